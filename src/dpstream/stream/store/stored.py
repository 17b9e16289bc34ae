"""What is in a store, read: the last step, the reservation, committed steps and their files.

Trusted base: store (reads a private store).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.core.tables.access import CounterShards
from dpstream.io.sinks.target import MANIFEST, NOTICE
from dpstream.stream.store.present_rows import any_departed, read_present
from dpstream.stream.store.sealed_history import (
    POSITION,
    RESERVATION,
    RESERVED_POSITION,
    USER_SUM,
    derive,
    read_latest,
    undecided_failure,
)
from dpstream.stream.store.step_rows import Decision, Reservation, Step, read_state
from dpstream.stream.store.store_database import StoreDatabase, damaged_store
from dpstream.stream.store.users import dropped, read_events, read_shards, user_folder

if TYPE_CHECKING:
    from dpstream.core.schema.domain import Domain
    from dpstream.core.tables import PresentTable


class StoreReader:
    """The reading half of ``Store``, which opens and writes what is read here."""

    path: Path
    meta: dict[str, bytes]
    last_step: int
    _where: str
    _broken: str | None
    _database: StoreDatabase | None

    def fingerprint(self, parts: list[bytes]) -> bytes:
        """Keyed hash (HMAC-SHA256) of a question."""
        mac = hmac.new(self.meta["key"], b"batch", hashlib.sha256)
        for part in parts:
            mac.update(len(part).to_bytes(8, "little"))
            mac.update(part)
        return mac.digest()

    def derived_key(self, purpose: bytes) -> bytes:
        """32 secret bytes for one purpose."""
        return derive(self.meta["key"], purpose)

    @property
    def source_key(self) -> bytes:
        """The key for fingerprints of source files."""
        return key_of_sources(self.meta["key"])

    def reservation(self) -> Reservation | None:
        """The intent that has no committed step yet."""
        stored = self._latest(RESERVATION)
        if stored is None:
            return None
        intent = json.loads(stored[1])
        return Reservation(stored[0], intent["batch_id"], bytes.fromhex(intent["content"]))

    def reserved_position(self) -> tuple[int, dict[str, int]] | None:
        """The reserved step, and how far the source was read for it; None where nothing is known of that."""
        stored = self._latest(RESERVED_POSITION)
        return None if stored is None else (stored[0], as_position(stored[1]))

    def undecided_failure(self) -> str | None:
        """What kind of exception stopped the reserved step after noise was drawn (or ``RESTORED``), until that is
        decided."""
        with self._reading() as db:
            return undecided_failure(db)

    def find(self, *, step: int | None = None, batch_id: str | None = None) -> Step | None:
        """One committed step, by one of the two."""
        key, value = ("step", step) if batch_id is None else ("batch_id", batch_id)
        with self._reading() as db:
            row = db.execute(
                f"SELECT step, batch_id, content, manifest, test_seed, publication FROM steps WHERE {key} = ?",
                (value,),
            ).fetchone()
            if row is None:
                return None
            number, name, sealed, manifest, test_seed, publication = row
            content = db.sealing.open(sealed, "content", number)
        return Step(number, name, content, manifest, bool(test_seed), publication)

    def publications(self, first: int, last: int) -> list[tuple[int, str, str]]:
        """(step, publication, manifest's SHA-256) of the steps from ``first`` to ``last``, in order."""
        with self._reading() as db:
            return db.execute(
                "SELECT step, publication, manifest_sha256 FROM steps WHERE step BETWEEN ? AND ? ORDER BY step",
                (first, last),
            ).fetchall()

    def in_publication(self, *states: str, since: int = 1) -> list[int]:
        """Steps from ``since`` on in one of these publication states, in order."""
        marks = ", ".join("?" * len(states))
        with self._reading() as db:
            rows = db.execute(
                f"SELECT step FROM steps WHERE publication IN ({marks}) AND step >= ? ORDER BY step",
                (*states, since),
            )
            return [step for (step,) in rows]

    def last_in_publication(self, *states: str) -> int:
        """The last step in one of these publication states; 0 where there is none. One look at the index for each."""
        with self._reading() as db:
            query = "SELECT coalesce(max(step), 0) FROM steps WHERE publication = ?"
            return max(int(db.execute(query, (state,)).fetchone()[0]) for state in states)

    def files(self, step: int) -> dict[str, bytes | None]:
        """The released bytes of a step that is not published yet, checked against their hashes; None for files that
        wait on the disk, or are made again."""
        with self._reading() as db:
            rows = db.execute("SELECT name, sha256, bytes FROM files WHERE step = ?", (step,)).fetchall()
            return {
                name: None if data is None else self._file(db, step, name, digest, data)
                for name, digest, data in rows
            }

    def file_names(self, step: int) -> list[str]:
        """Names of a step's released files."""
        with self._reading() as db:
            return [name for (name,) in db.execute("SELECT name FROM files WHERE step = ?", (step,))]

    def file_names_of(self, first: int, last: int) -> dict[int, set[str]]:
        """Names of the released files of the steps from ``first`` to ``last``, by step."""
        names: dict[int, set[str]] = {}
        with self._reading() as db:
            rows = db.execute("SELECT step, name FROM files WHERE step BETWEEN ? AND ?", (first, last))
            for number, name in rows.fetchall():
                names.setdefault(number, set()).add(name)
        return names

    def published_files(self) -> dict[int, dict[str, str]]:
        """SHA-256 of every file of every published step, by its name; the manifest included."""
        with self._reading() as db:
            return published_files(db)

    def remembered_file(self, step: int, name: str) -> tuple[str, bytes | None]:
        """SHA-256 of a released file, and its bytes, where they are still here.

        Errors:
            StoreDamagedError: the store knows no such file, or its bytes were changed.
        """
        with self._reading() as db:
            row = db.execute(
                "SELECT sha256, bytes FROM files WHERE step = ? AND name = ?", (step, name)
            ).fetchone()
            if row is None:
                raise self._damaged(f"the store has no file {name} of step {step}")
            return row[0], None if row[1] is None else self._file(db, step, name, *row)

    def state(self) -> Packed:
        """The packed state after the last step.

        Errors:
            StoreDamagedError: it was changed, or lost in part.
        """
        with self._reading() as db:
            return read_state(db, self.meta["key"])

    def position(self) -> dict[str, int] | None:
        """How far the source was read for the last step; None before the first."""
        stored = self._latest(POSITION)
        if stored is None and self.last_step == 0:
            return None
        if stored is None or stored[0] != self.last_step:
            raise self._damaged(f"the source's position at step {self.last_step} is missing")
        return as_position(stored[1])

    def user_events(self, ids: list[bytes]) -> NDArray[np.int64]:
        """Events admitted so far of some users, by their keyed hashes.

        Errors:
            ConfigError: the counters are files.
        """
        if self._shards(counted=True) is not None:
            raise _files_and_rows("the counters of this stream's users", self._where, are_files=True)
        with self._reading() as db:
            return read_events(db, ids)

    def counter_files(self) -> tuple[Path, CounterShards | None]:
        """The folder of users' counters, which may not be there, and the files in it; None before the first step.

        Errors:
            ConfigError: the counters are rows.
        """
        shards = self._shards(counted=True)
        if self.last_step and shards is None:
            raise _files_and_rows("the counters of this stream's users", self._where, are_files=False)
        return self.user_folder, shards

    @property
    def user_folder(self) -> Path:
        """Where files of users' counters, or of present records, are: a folder of this stream's own, also where a link
        leads to one of many."""
        return user_folder(self.path, self.meta)

    def present(self, domain: Domain) -> PresentTable:
        """The keyed records that are present. Private.

        Errors:
            StoreDamagedError: one was changed, lost or added. ConfigError: they are files.
        """
        if self._shards() is not None:
            raise _files_and_rows("the present records of this stream", self._where, are_files=True)
        with self._reading() as db:
            return read_present(db, self.meta["key"], domain, self.last_step)

    def present_files(self) -> tuple[Path, CounterShards | None]:
        """The folder of the files of present records, which may not be there, and those files; None before the first
        step.

        Errors:
            ConfigError: the present records are rows.
        """
        shards = self._shards()
        if self.last_step and shards is None:
            raise _files_and_rows("the present records of this stream", self._where, are_files=False)
        return self.user_folder, shards

    def _shards(self, *, counted: bool = False) -> CounterShards | None:
        """The files that the store names; of ``counted`` users something must be there after the first step."""
        with self._reading() as db:
            if counted and self.last_step and read_latest(db, self.meta["key"], USER_SUM) is None:
                raise self._damaged("the counters of users are missing")
            return read_shards(db, self.meta["key"])

    def any_departed(self, keys: NDArray[np.uint64]) -> bool:
        """Whether a record with one of these hashed keys left before, where such keys are kept."""
        with self._reading() as db:
            return any_departed(db, keys)

    def dropped_events(self) -> int:
        """Events left out so far, because their users had reached the bound. Private."""
        with self._reading() as db:
            return dropped(db, self.meta["key"])

    def synthesis(self, step: int) -> bytes | None:
        """The packed synthesis of a step; None where the keep policy dropped it."""
        with self._reading() as db:
            row = db.execute("SELECT synthesis FROM steps WHERE step = ?", (step,)).fetchone()
            return None if row is None or row[0] is None else db.sealing.open(row[0], "synthesis", step)

    def ledger(self) -> list[tuple[int, str, str, str]]:
        """(step, definition, spent, parts) of every step; amounts are exact text."""
        with self._reading() as db:
            return db.execute("SELECT step, definition, spent, parts FROM steps ORDER BY step").fetchall()

    def largest_cost(self) -> Fraction:
        """What the dearest step cost; 0 before the first."""
        with self._reading() as db:
            return largest_cost(db)

    def decisions(self) -> list[Decision]:
        """Who approved or withdrew which step, in order."""
        with self._reading() as db:
            return read_decisions(db)

    def stored_file(self, step: int, name: str) -> bytes | None:
        """One file of a step, checked against its hash; None where there is none."""
        with self._reading() as db:
            row = db.execute(
                "SELECT sha256, bytes FROM files WHERE step = ? AND name = ?", (step, name)
            ).fetchone()
            return None if row is None else self._file(db, step, name, *row)

    # Inside

    @property
    def _db(self) -> StoreDatabase:
        if self._broken is not None:
            raise StoreError(self._broken, where=str(self.path), allowed="closing it and opening it again")
        if self._database is None:
            raise StoreError("the stream is closed", where=str(self.path), allowed="opening it again")
        return self._database

    @contextmanager
    def _reading(self) -> Iterator[StoreDatabase]:
        db = self._db
        with db.errors():
            yield db

    def _latest(self, name: str) -> tuple[int, bytes] | None:
        with self._reading() as db:
            return read_latest(db, self.meta["key"], name)

    def _file(self, db: StoreDatabase, step: int, name: str, digest: str, sealed: bytes | None) -> bytes:
        """The bytes of a released file, checked against their hash."""
        data = None if sealed is None else db.sealing.open(sealed, "file", step, name)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise self._damaged(f"the stored {name} of step {step} was changed")
        return data

    def _damaged(self, what: str) -> StoreDamagedError:
        return damaged_store(what, self._where)


def largest_cost(db: StoreDatabase) -> Fraction:
    """What the dearest step cost; 0 before the first."""
    amounts = (Fraction(amount) for (amount,) in db.execute("SELECT DISTINCT spent FROM steps"))
    return max(amounts, default=Fraction(0))


def published_files(db: StoreDatabase) -> dict[int, dict[str, str]]:
    """SHA-256 of every file of every published step, by its name; the manifest included."""
    rows = db.execute("SELECT step, manifest_sha256 FROM steps WHERE publication = 'published' ORDER BY step")
    hashes = {step: {MANIFEST: digest} for step, digest in rows}
    for step, name, digest in db.execute(
        "SELECT step, name, f.sha256 FROM files f JOIN steps s USING (step) WHERE s.publication = 'published'"
    ):
        hashes.setdefault(step, {})[name] = digest
    return hashes


def read_decisions(db: StoreDatabase) -> list[Decision]:
    """Who approved or withdrew which step, in order."""
    kinds = "('approved', 'withdrawn', 'rejected')"
    rows = db.execute(f"SELECT step, kind, detail, written FROM log WHERE kind IN {kinds} ORDER BY id")
    return [Decision(*row) for row in rows.fetchall()]


def rollback_problems(
    published: Collection[int], withdrawn: Collection[int], states: Mapping[int, str]
) -> list[str]:
    """What readers know and the store does not, in a sentence each: the state was rolled back.

    Args:
        published: steps that readers have. withdrawn: those of which they have a notice.
        states: the publication state of each committed step.
    """
    last = max(states, default=0)
    problems = [
        f"step {step} is published, but the ledger ends at step {last}: the state was rolled back"
        for step in sorted(set(published) - states.keys())
    ]
    problems += [
        f"step {step} was withdrawn ({NOTICE} is in its folder), and the store does not know it: the state was rolled "
        "back"
        for step in sorted(withdrawn)
        if states.get(step) not in ("withdrawing", "withdrawn")
    ]
    return problems


def publication_states(db: StoreDatabase) -> dict[int, str]:
    """The publication state of each committed step."""
    return dict(db.execute("SELECT step, publication FROM steps ORDER BY step").fetchall())


def key_of_sources(key: bytes) -> bytes:
    """The key for fingerprints of source files, of the key of a store."""
    return derive(key, b"source files")


def as_position(text: bytes) -> dict[str, int]:
    """A position as the store keeps it."""
    return {str(name): int(value) for name, value in json.loads(text).items()}


def _files_and_rows(what: str, where: str, *, are_files: bool) -> ConfigError:
    """Counters or records are where this batch cannot be compared with them."""
    if are_files:
        return ConfigError(
            f"{what} are files, which Spark's executors read and write",
            where=where,
            allowed="records of Spark at every step, as at the first one; or a new stream for other records",
        )
    return ConfigError(
        f"{what} are in its store, where Spark's executors do not read them",
        where=where,
        allowed="records of files, databases or frames of this process at every step, as at the first one; or "
        "a new stream for records of Spark",
    )
