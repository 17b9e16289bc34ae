"""The durable store: ledger, state and releases of one stream, in SQLite or PostgreSQL.

Guarantee: a step's spend, new state, batch id and release become durable in one transaction, or none of
them does. Rows are sealed in a keyed chain, so that a changed or missing row is found on open.

Trusted base: store (holds private state).
"""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core import durable
from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError, StepError, StoreDamagedError, StoreError
from dpstream.core.paths import sha256_hex
from dpstream.core.tables.access import CounterShards
from dpstream.core.tables.counter_files import sweep_files
from dpstream.core.tables.undiscovered import Counts, PresentTexts
from dpstream.io.sinks.table_files import Content, sha256_of
from dpstream.io.sinks.target import MANIFEST, MEASUREMENTS, NOTICE
from dpstream.stream.identity import canonical_json, require_same_plan
from dpstream.stream.store.encryption import StateKey, mark, sealing_for, unlock
from dpstream.stream.store.lock import FolderLock, StateDirectory
from dpstream.stream.store.place import backend_for, refuse_moved
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    BEGUN,
    DISCARDED,
    FAILED,
    PINNED_LATER,
    POSITION,
    RESERVATION,
    RESERVED_POSITION,
    RESTORED,
    STATE_ROW,
    USER_SUM,
    Head,
    SealedLog,
    derive,
    forget_latest,
    is_unspent,
    read_history,
    read_latest,
    read_meta,
    row_seal,
    sealed_pin,
    step_seal,
    stored_plan,
    undecided_failure,
    utc_now,
    write_latest,
)
from dpstream.stream.store.sqlite import DATABASE
from dpstream.stream.store.staging import Staging
from dpstream.stream.store.step_rows import Decision, Prepared, Reservation, Step, read_state, write_state
from dpstream.stream.store.store_database import (
    NEWEST_OR_NEW,
    Sealing,
    StoreDatabase,
    create_tables,
    damaged_store,
    file_errors,
)
from dpstream.stream.store.summed_rows import (
    PresentChange,
    any_departed,
    dropped,
    forget_counts,
    forget_records,
    problem_of_files,
    read_cut,
    read_events,
    read_present,
    read_shards,
    read_values,
    user_folder,
    verify_events,
    verify_values,
    write_events,
    write_present,
    write_values,
)

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.core.tables import PresentTable
    from dpstream.stream.cut_users import CutUsers

#: What ``meta`` is to hold besides plan and key (the ``stream_id``), and the packed first state.
Genesis = Callable[[], tuple[dict[str, bytes], bytes]]


class Store:
    """One stream's store, locked for this process.

    Errors (all methods):
        StoreDamagedError: the stored content contradicts itself.
        StoreError: the disk is full or fails, or the server is gone; after a failed COMMIT the object refuses
            all further use, because only reading the store again tells what happened.
    """

    def __init__(
        self,
        path: Path,
        facts: dict[str, Any],
        genesis: Genesis | None = None,
        *,
        server: PostgresServer | None = None,
        key: StateKey | None = None,
        renew: bool = False,
        published: Callable[[str], Collection[int]] | None = None,
        outside: tuple[Path, ...] = (),
    ) -> None:
        """Open the store of the state directory ``path``, on ``server`` if one is given, encrypted with ``key``
        if one is given.

        Where there is none, it is created with ``facts`` (the pinned plan) and what ``genesis`` gives:
        what ``meta`` is to hold besides (the ``stream_id``) and the packed first state (without ``genesis``:
        StoreError). The ``facts`` of an existing store have to be equal; with ``renew`` other ones take their place
        where no step was ever begun (``is_unspent``) and readers have no step of the old stream: ``published``
        gives the steps that they have, by the stream's id. ``outside``: where witnesses are kept outside of the state;
        whoever opens the store compares the releases, and then calls ``write_head`` where it is not ``witnessed``.
        """
        self._broken: str | None = None
        self._database: StoreDatabase | None = None
        self._directory = StateDirectory(path, database=DATABASE)
        self._users = FolderLock()
        self.path = self._directory.path
        self.staging = Staging(self.path)
        self._head = Head(self.path, outside)
        self._backend = backend_for(self.path, server)
        self._where = self._backend.where
        self._key = key
        try:
            with file_errors("the state could not be opened", self.path):
                if not self._backend.exists():
                    self._require_new()
                    self._create(facts, genesis)
                self._open(facts, genesis if renew else None, published)
                if not self.witnessed and not outside:
                    self.write_head()
                self.sweep_staged()
        except BaseException:
            self._directory.remove_new()
            self.close()
            raise

    # Opening

    def _require_new(self) -> None:
        """Refuse to make a store where a witness knows one that is gone."""
        # Before genesis, which charges an account.
        for witness in (self._head.path, *self._backend.witnesses(), *self._head.outside):
            if witness.exists():
                raise StoreDamagedError(
                    f"the store is gone; its witness {witness.name} remains",
                    where=str(witness.parent),
                    allowed=NEWEST_OR_NEW,
                )

    def _create(self, facts: dict[str, Any], genesis: Genesis | None) -> None:
        """Make the store, whole; one of which no step was ever begun gives way to it."""
        if genesis is None:
            raise StoreError(
                "the stream is missing",
                where=str(self.path),
                allowed="a state directory of dpstream run",
            )
        given, state = genesis()
        sealing, key = sealing_for(self._key, given["stream_id"], self._where), secrets.token_bytes(32)
        meta = {**given, "plan": canonical_json(facts), "key": sealing.seal(key, "key")}

        def fill(db: StoreDatabase) -> None:
            create_tables(db)
            db.sealing = sealing
            mark(db, sealing)
            db.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
            write_latest(db, key, STATE_ROW, 0, state)

        self._backend.create(fill)

    def _open(
        self,
        facts: dict[str, Any],
        genesis: Genesis | None,
        published: Callable[[str], Collection[int]] | None = None,
    ) -> None:
        self._database = db = self._backend.connect()
        self._directory.repair_permissions()
        with db.errors():
            db.verify_structure()
            refuse_moved(db, self._where)
            unlock(db, self._key)
            self.meta = read_meta(db)
            history = read_history(db, self.meta)
            wrong, shards = verify_events(db, self.meta["key"]), read_shards(db, self.meta["key"])
            if wrong is None and shards is not None:
                wrong = problem_of_files(self.user_folder, shards, history.last_step, everything=False)
            if wrong is not None:
                raise self._damaged(wrong)
            unspent = is_unspent(db)
        self.last_step, self._last_seal = history.last
        self._last_entry = history.last_entry
        #: Whether any step was made with predictable noise: its traces stay in the state.
        self.used_test_seed = history.used_test_seed
        pinned = stored_plan(self.meta, self._where)
        if unspent and genesis is not None and canonical_json(pinned) != canonical_json(facts):
            # A damaged head is reported before it is forgotten.
            self._head.check(history, self._where)
            if published is not None and published(self.meta["stream_id"].hex()):
                raise StoreDamagedError(
                    "the state was rolled back behind published steps",
                    where=str(self.path),
                    allowed=NEWEST_OR_NEW,
                )
            # The head names the plan before. Without one, a store without steps opens under either.
            self._head.forget()
            self._backend.release(db)
            self._database = None
            self._create(facts, genesis)
            warnings.warn(
                f"{self.path}: another plan's state without steps begins anew",
                stacklevel=2,
            )
            self._open(facts, None)
            return
        require_same_plan(pinned, facts, str(self.path))
        #: Whether the witnesses are as far as the store; else ``write_head`` is to be called.
        self.witnessed = self._head.check(history, self._where)
        self._head.sweep()

    @property
    def sealing(self) -> Sealing:
        """What private values are sealed with, staged files among them."""
        return self._db.sealing

    def sweep_staged(self) -> None:
        """Remove staged files that no committed step waits for, such as those of a step that was never committed; and
        files of users or records that no committed row names."""
        with file_errors("files could not be removed", self.path):
            if self.user_folder.is_dir():
                self._users.take(
                    self.user_folder,
                    "a copy of this state uses the same files; stop it",
                )
                with self._reading() as db:
                    sweep_files(self.user_folder, read_shards(db, self.meta["key"]))
        with file_errors("files could not be removed", self.path):
            if not self.staging.names():
                return
            with self._reading() as db:
                waiting = staged_files(db)
            self.staging.sweep(waiting, self.sealing)

    def close(self) -> None:
        """Give up the database and the lock."""
        if self._database is not None:
            self._database.close()
            self._database = None
        self._backend.close()
        self._users.close()
        self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def fingerprint(self, question: bytes) -> bytes:
        """Keyed hash (HMAC-SHA256) of a question."""
        return row_seal(self.meta["key"], b"batch", [question])

    def derived_key(self, purpose: bytes) -> bytes:
        """32 secret bytes for one purpose."""
        return derive(self.meta["key"], purpose)

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

    def committed(self, step: int) -> Step:
        """One committed step.

        Errors:
            StepError: there is none.
        """
        found = self.find(step=step)
        if found is None:
            raise StepError(f"step {step} does not exist", where="release", allowed=f"1 to {self.last_step}")
        return found

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

    def file_names(self, step: int) -> set[str]:
        """Names of a step's released files."""
        return self.file_names_of(step, step).get(step, set())

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
            digest, sealed = row
            data = None if sealed is None else db.sealing.open(sealed, "file", step, name)
        if data is not None and sha256_hex(data) != digest:
            raise self._damaged(f"the stored {name} of step {step} was changed")
        return digest, data

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
        self._require_rows(self._counted())
        with self._reading() as db:
            return read_events(db, ids)

    def counter_files(self) -> tuple[Path, CounterShards | None]:
        """The folder of users' counters, which may not be there, and the files in it; None before the first step.

        Errors:
            ConfigError: the counters are rows.
        """
        return self.user_folder, self._require_files(self._counted())

    @property
    def user_folder(self) -> Path:
        """Where files of users' counters, or of present records, are: a folder of this stream's own, also where a link
        leads to one of many."""
        return user_folder(self.path, self.meta)

    def present(self, schema: Schema) -> PresentTable:
        """The keyed records that are present, with the texts that their codes of open columns stand for. Private.

        Errors:
            StoreDamagedError: one was changed, lost or added. ConfigError: they are files.
        """
        self._require_rows(self._shards())
        with self._reading() as db:
            key, texts = self.meta["key"], None
            if columns := schema.open_columns:
                wrong = verify_values(db, key)
                if wrong is not None:
                    raise self._damaged(wrong)
                texts = PresentTexts.stored(
                    schema, (read_values(db, key, i, ()) for i in range(len(columns)))
                )
            return read_present(db, key, schema.domain, self.last_step, texts)

    def present_files(self) -> tuple[Path, CounterShards | None]:
        """The folder of the files of present records, which may not be there, and those files; None before the first
        step.

        Errors:
            ConfigError: the present records are rows.
        """
        return self.user_folder, self._require_files(self._shards())

    def _shards(self) -> CounterShards | None:
        """The files that the store names."""
        with self._reading() as db:
            return read_shards(db, self.meta["key"])

    def _counted(self) -> CounterShards | None:
        """The same, of users' counters, of which something is there after the first step."""
        if self.last_step and self._latest(USER_SUM) is None:
            raise self._damaged("the counters of users are missing")
        return self._shards()

    def _require_files(self, shards: CounterShards | None) -> CounterShards | None:
        """Refuse counters or records that are where Spark cannot compare a batch with them."""
        if self.last_step and shards is None:
            raise ConfigError(
                "counters or records are in the store, out of Spark's reach",
                where=self._where,
                allowed="records of this process, or a new stream",
            )
        return shards

    def _require_rows(self, shards: CounterShards | None) -> None:
        """Refuse those that this process cannot compare a batch with."""
        if shards is not None:
            raise ConfigError(
                "counters or records are files of Spark's executors",
                where=self._where,
                allowed="records of Spark, or a new stream",
            )

    def any_departed(self, keys: NDArray[np.uint64]) -> bool:
        """Whether a record with one of these hashed keys left before, where such keys are kept."""
        with self._reading() as db:
            return any_departed(db, keys)

    def undiscovered(self, column: int, added: Counts) -> Iterator[tuple[str, int]]:
        """The counts of a column's undiscovered values in the open epoch; see ``read_values``.

        Errors:
            StoreDamagedError: a count was changed; nothing was given yet.
        """
        with self._reading() as db:
            wrong = verify_values(db, self.meta["key"]) if column == 0 else None
            if wrong is not None:
                raise self._damaged(wrong)
            yield from read_values(db, self.meta["key"], column, added)

    def dropped_events(self) -> int:
        """Events left out so far, because their users had reached the bound. Private."""
        with self._reading() as db:
            return dropped(db, self.meta["key"])

    def cut_users(self) -> CutUsers:
        """What is counted of users whom the bound cuts. Private."""
        with self._reading() as db:
            return read_cut(db, self.meta["key"])

    def synthesis(self, step: int) -> bytes | None:
        """The packed synthesis of a step; None where the keep policy dropped it."""
        with self._reading() as db:
            row = db.execute("SELECT synthesis FROM steps WHERE step = ?", (step,)).fetchone()
            return None if row is None or row[0] is None else db.sealing.open(row[0], "synthesis", step)

    def largest_cost(self) -> Fraction:
        """What the dearest step cost; 0 before the first."""
        with self._reading() as db:
            return largest_cost(db)

    def decisions(self) -> list[Decision]:
        """Who approved or withdrew which step, in order."""
        with self._reading() as db:
            return read_decisions(db)

    def stored_file(self, step: int, name: str) -> bytes | None:
        """One file of a step whose bytes stay, checked against its hash; None where there is none."""
        if name not in self.file_names(step):
            return None
        _, data = self.remembered_file(step, name)
        if data is None:
            raise self._damaged(f"the stored {name} of step {step} was changed")
        return data

    # Writing

    def reserve(self, reservation: Reservation, position: str | None = None) -> None:
        """Commit the intent, and how far the source was read for it. Reserving the same step again replaces
        nothing: see ``release_reservation``."""
        step, key = reservation.step, self.meta["key"]
        intent = {"batch_id": reservation.batch_id, "content": reservation.content.hex()}
        with self._transaction() as db:
            if self.reservation() is not None:
                raise self._damaged(f"step {step} is reserved already")
            write_latest(db, key, RESERVATION, step, canonical_json(intent))
            if step == 1 and self._last_entry[0] == 0:
                self._note(db, 1, BEGUN)
            if position is not None:
                write_latest(db, key, RESERVED_POSITION, step, position.encode())

    def release_reservation(self) -> None:
        """Forget an intent whose result never left the process; failed attempts at it count as decided."""
        with self._transaction() as db:
            failed = undecided_failure(db) is not None
            if failed:
                self._note(db, self.last_step + 1, DISCARDED)
            _forget_reservation(db)
        if failed:
            self.write_head()

    def record_failure(self, reservation: Reservation, kind: str) -> None:
        """Note that an attempt failed after noise was drawn; the intent stays until somebody decides."""
        with self._transaction() as db:
            self._note(db, reservation.step, FAILED, kind)
        self.write_head()

    def commit_step(self, prepared: Prepared) -> None:
        """Spend, state, batch id and release in one transaction."""
        held = prepared.reservation
        step = held.step
        flag = int(prepared.test_seed)
        key, digest = self.meta["key"], sha256_hex(prepared.manifest)
        cost = (prepared.definition, prepared.spent, prepared.parts.decode(), utc_now())
        sealed = (step, held.batch_id, held.content, prepared.manifest, digest, flag, *cost)
        seal = step_seal(key, self._last_seal, *sealed)

        def remember() -> None:
            self.last_step, self._last_seal, self.witnessed = step, seal, False
            self.used_test_seed |= prepared.test_seed

        with self._transaction(remember) as db:
            db.execute(
                "INSERT INTO steps (step, batch_id, content, manifest, manifest_sha256, test_seed, definition, spent, "
                "parts, committed, publication, synthesis, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *sealed[:2],
                    db.sealing.seal(held.content, "content", step),
                    *sealed[3:],
                    prepared.publication,
                    db.sealing.seal(prepared.synthesis, "synthesis", step),
                    seal,
                ),
            )
            for name, data in prepared.files.items():
                self._insert_file(db, step, name, data)
            write_state(db, key, step, prepared.state)
            _forget_reservation(db)
            forget_latest(db, POSITION)
            if prepared.position is not None:
                write_latest(db, key, POSITION, step, prepared.position.encode())
            for changes in (prepared.users, prepared.keyed):
                if isinstance(changes, PresentChange):
                    write_present(db, key, step, changes)
                elif changes is not None:
                    write_events(db, key, step, changes, prepared.cut)
            if prepared.values is not None:
                write_values(db, key, step, prepared.values)
            if prepared.forgets:
                forget_records(db, key)
            if prepared.keep is not None:
                self._expire(db, step - prepared.keep)

    def _expire(self, db: StoreDatabase, through: int) -> None:
        db.execute(
            "UPDATE steps SET synthesis = NULL, publication = "
            "CASE publication WHEN 'published' THEN 'expiring' WHEN 'unpublished' THEN 'dropped' "
            "ELSE publication END WHERE step <= ? AND publication IN ('published', 'unpublished')",
            (through,),
        )

    def mark_published(self, steps: list[int], expired: list[int]) -> None:
        """The sink has these steps (their bytes are no longer needed here) and lost the expired tables.

        Not fsynced: where a loss of power takes the mark back, the next opening publishes the same bytes again.
        """
        with self._transaction(lasting=False) as db:
            for step in steps:
                _set_publication(db, step, "published")
                _drop_bytes(db, step)
            for step in expired:
                _set_publication(db, step, "expired")
        self.sweep_staged()

    def move(self, steps: Sequence[int], publication: str, decision: tuple[str, str] | None = None) -> None:
        """Put steps into another publication state; ``decision``: what was decided, and by whom."""
        with self._transaction() as db:
            for step in steps:
                _set_publication(db, step, publication)
                if decision is not None:
                    self._note(db, step, *decision)
        self.write_head()

    def withdraw(
        self,
        step: int,
        name: str,
        notice: bytes,
        publication: str,
        decision: tuple[str, str],
        whole: Mapping[str, bytes] | None,
    ) -> None:
        """Take a step's table back for good: its bytes go, and ``notice`` joins its files. As in ``move``.

        Args:
            whole: files that take the place of the changes of the next step; None leaves that one as it is.
        """
        with self._transaction() as db:
            if whole is not None:
                db.execute("DELETE FROM files WHERE step = ? AND name LIKE 'changes.%'", (step + 1,))
                for other, data in whole.items():
                    self._insert_file(db, step + 1, other, data)
            _drop_bytes(db, step)
            self._insert_file(db, step, name, notice)
            _set_publication(db, step, publication)
            self._note(db, step, *decision)
        self.write_head()
        self.sweep_staged()

    def remember_account(self, pin: bytes, *, closed: bool) -> None:
        """From now on the stream is opened with this account only, and where it was closed there, stays closed: nothing
        of users and values is counted any more."""
        sealed = sealed_pin(self.meta, pin)
        with self._transaction(lambda: self.meta.update({PINNED_LATER: sealed})) as db:
            db.execute("DELETE FROM meta WHERE key = ?", (PINNED_LATER,))
            db.execute("INSERT INTO meta VALUES (?, ?)", (PINNED_LATER, sealed))
            if closed:
                forget_counts(db, self.meta["key"])

    def apply_keep(self, keep: int | None) -> None:
        """Mark what the keep policy allows to drop as expiring (``None``: nothing)."""
        if keep is not None:
            with self._transaction() as db:
                self._expire(db, self.last_step - keep)

    def compact(self) -> None:
        """Give back the room of what was dropped."""
        with self._reading() as db:
            db.compact()

    def write_head(self, *, lasting: bool = True) -> None:
        """Note the last step, and what was decided or failed, beside the store and among the releases, against a store
        that is rolled back."""
        self._head.write((self.last_step, self._last_seal), self._last_entry, lasting=lasting)
        self.witnessed = lasting

    # Inside

    @contextmanager
    def _transaction(
        self, then: Callable[[], None] | None = None, *, lasting: bool = True
    ) -> Iterator[StoreDatabase]:
        """One transaction; ``then`` (what memory knows of it) belongs to the commit: interrupted in
        between, the object refuses further use."""
        db = self._db
        self._noted = self._last_entry
        with db.errors():
            try:
                db.begin(lasting=lasting)
                yield db
                self._broken = "a commit was interrupted; its effect is not known"
                durable.commit(db)
                self._last_entry = self._noted
                if then is not None:
                    then()
                self._broken = None
            except BaseException:
                # Before the commit nothing took effect.
                if self._broken is None:
                    db.rollback()
                raise

    def _note(self, db: StoreDatabase, step: int, kind: str, detail: str = "") -> None:
        """Add an entry to the log; a transaction that fails afterwards takes it back."""
        self._noted = SealedLog(db, self.meta["key"]).add(step, kind, detail)

    def _insert_file(self, db: StoreDatabase, step: int, name: str, content: Content) -> None:
        """Of a staged file only its name and hash."""
        data = db.sealing.seal(content, "file", step, name) if isinstance(content, bytes) else None
        db.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (step, name, sha256_of(content), data))

    @property
    def _db(self) -> StoreDatabase:
        if self._broken is not None:
            raise StoreError(self._broken, where=str(self.path), allowed="closing and opening it again")
        if self._database is None:
            raise closed_stream(str(self.path))
        return self._database

    @contextmanager
    def _reading(self) -> Iterator[StoreDatabase]:
        db = self._db
        with db.errors():
            yield db

    def _latest(self, name: str) -> tuple[int, bytes] | None:
        with self._reading() as db:
            return read_latest(db, self.meta["key"], name)

    def _damaged(self, what: str) -> StoreDamagedError:
        return damaged_store(what, self._where)


def closed_stream(where: str) -> StoreError:
    """The refusal of further use after ``close``."""
    return StoreError("the stream is closed", where=where, allowed="opening it again")


def staged_files(db: StoreDatabase) -> list[tuple[int, str]]:
    """Step and name of the files that wait on the disk to be published."""
    return db.execute(
        "SELECT f.step, f.name FROM files f JOIN steps s USING (step) "
        "WHERE s.publication IN ('pending', 'held') AND f.bytes IS NULL"
    ).fetchall()


def _set_publication(db: StoreDatabase, step: int, publication: str) -> None:
    db.execute("UPDATE steps SET publication = ? WHERE step = ?", (publication, step))


def _drop_bytes(db: StoreDatabase, step: int) -> None:
    """Of the step's table, which can be made again. What was measured cannot be, and stays."""
    db.execute("UPDATE files SET bytes = NULL WHERE step = ? AND name <> ?", (step, MEASUREMENTS))


def _forget_reservation(db: StoreDatabase) -> None:
    forget_latest(db, RESERVATION)
    forget_latest(db, RESERVED_POSITION)


def note_restored(db: StoreDatabase, key: bytes, step: int) -> None:
    """Note that a copy replaces a lost store, which alone knew whether ``step`` was begun, or failed after it drew."""
    if undecided_failure(db) is None:
        SealedLog(db, key).add(step, FAILED, RESTORED)


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
        f"step {step} is published, but the ledger ends at step {last}"
        for step in sorted(set(published) - states.keys())
    ]
    problems += [
        f"step {step} was withdrawn ({NOTICE} is in the folder)"
        for step in sorted(withdrawn)
        if states.get(step) not in ("withdrawing", "withdrawn")
    ]
    return [f"{problem}: the state was rolled back" for problem in problems]


def publication_states(db: StoreDatabase) -> dict[int, str]:
    """The publication state of each committed step."""
    return dict(db.execute("SELECT step, publication FROM steps ORDER BY step").fetchall())


def key_of_sources(key: bytes) -> bytes:
    """The key for fingerprints of source files, of the key of a store."""
    return derive(key, b"source files")


def as_position(text: bytes) -> dict[str, int]:
    """A position as the store keeps it."""
    return {str(name): int(value) for name, value in json.loads(text).items()}
