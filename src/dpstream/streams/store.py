"""The durable store: ledger, state and releases of one stream in one SQLite file.

Guarantee: a step's spend, new state, batch id and release become durable in one transaction, or none of
them does. Rows are sealed in a keyed chain, so that a changed or missing row is found on open.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream import durable
from dpstream.errors import StoreDamagedError, StoreError
from dpstream.streams.database import (
    connect,
    create_tables,
    file_errors,
    migrate,
    sqlite_errors,
    verify_structure,
)
from dpstream.streams.identity import canonical_json, require_same_plan
from dpstream.streams.lock import StateDirectory

__all__ = ["DATABASE", "Prepared", "Reservation", "Step", "Store"]

DATABASE = "stream.sqlite"
_HEAD = "head.json"


@dataclass(frozen=True)
class Reservation:
    """The committed intent to run one step on one batch."""

    step: int
    batch_id: str
    content: bytes


@dataclass(frozen=True)
class Step:
    """A committed step as it stands in the store."""

    step: int
    batch_id: str
    content: bytes
    manifest: bytes
    test_seed: bool
    publication: str


@dataclass(frozen=True)
class Prepared:
    """Everything that one step commits; ``files`` are the released bytes without the manifest."""

    reservation: Reservation
    definition: str
    spent: str
    parts: bytes
    state: bytes
    synthesis: bytes
    manifest: bytes
    files: dict[str, bytes]
    test_seed: bool
    publication: str
    keep: int | None
    position: str | None = None


class Store:
    """One stream's store, locked for this process.

    Errors (all methods):
        StoreDamagedError: the stored content contradicts itself.
        StoreError: the disk is full or fails; after a failed COMMIT the object refuses all further use,
            because only reading the store again tells what happened.
    """

    def __init__(self, path: Path, facts: dict[str, Any], genesis: Callable[[], tuple[bytes, bytes]]) -> None:
        """Open ``path``, or create it with ``facts`` (the pinned plan) and what ``genesis`` gives: a public
        id and the packed first state. The ``facts`` of an existing store have to be equal."""
        self._broken: str | None = None
        self._connection: sqlite3.Connection | None = None
        self._directory = StateDirectory(path, database=DATABASE)
        self.path = self._directory.path
        try:
            with file_errors("the state could not be opened", self.path):
                if not self._directory.database.exists():
                    self._create(facts, *genesis())
                self._open(facts)
        except BaseException:
            self.close()
            raise

    # Opening

    def _create(self, facts: dict[str, Any], stream_id: bytes, state: bytes) -> None:
        """Build under another name, then rename: a store that exists is complete, so that one cut down to
        nothing can never pass for a new one (which would spend the budget a second time)."""
        for witness in (self._head_path, self.path / f"{DATABASE}-wal"):
            if witness.exists():
                raise StoreDamagedError(
                    f"the store is gone, but its {witness.name} is there", where=str(self.path)
                )
        new = self._directory.database.with_name(DATABASE + ".new")
        for suffix in ("", "-wal", "-shm", "-journal"):
            durable.unlink(new.with_name(new.name + suffix))
        meta = {"plan": canonical_json(facts), "key": secrets.token_bytes(32), "stream_id": stream_id}
        with sqlite_errors(new):
            connection = connect(new)
            try:
                connection.execute("BEGIN IMMEDIATE")
                create_tables(connection)
                connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
                connection.execute("INSERT INTO state VALUES (1, 0, ?)", (state,))
                durable.commit(connection)
            finally:
                connection.close()  # checkpoints: the file is whole without its log
        with new.open("rb") as file:
            durable.sync_file(file.fileno())
        durable.rename(new, self._directory.database)
        durable.sync_directory(self.path)
        durable.sync_directory(self.path.parent)

    def _open(self, facts: dict[str, Any]) -> None:
        path = self._directory.database
        self._connection = connect(path)
        self._directory.repair_permissions()
        with sqlite_errors(path):
            version = verify_structure(self._connection, path)
            migrate(self._connection, version, durable.commit)
            self.meta: dict[str, bytes] = dict(self._connection.execute("SELECT key, value FROM meta"))
            seals = self._verify()
        self._last_seal = seals[-1]
        try:
            require_same_plan(json.loads(self.meta["plan"]), facts, str(self.path))
        except (KeyError, ValueError):
            raise self._damaged("its plan cannot be read") from None
        self._check_head(seals)

    def _verify(self) -> list[bytes]:
        """Seals, ledger, state: everything that open has to trust, in one pass over small columns."""
        db = self._db
        if len(self.meta.get("key", b"")) != 32:
            raise self._damaged("its key is missing")
        seals = [self._genesis_seal()]
        #: Whether any step was made with predictable noise: its traces stay in the state.
        self.used_test_seed = False
        rows = db.execute(
            "SELECT s.step, batch_id, content, manifest, manifest_sha256, test_seed, seal, "
            "definition, spent, parts FROM steps s LEFT JOIN ledger l USING (step) ORDER BY s.step"
        )
        for expected, (step, *columns, stored, definition, spent, parts) in enumerate(rows, start=1):
            seal = self._seal(seals[-1], step, *columns, definition, spent, parts)
            if step != expected or not hmac.compare_digest(seal, stored):
                raise self._damaged(f"the record of step {expected} was changed or is missing")
            seals.append(seal)
            self.used_test_seed |= bool(columns[-1])
        self.last_step = len(seals) - 1
        (ledger_rows,) = db.execute("SELECT count(*) FROM ledger").fetchone()
        state = db.execute("SELECT step FROM state").fetchall()
        if ledger_rows != self.last_step or state != [(self.last_step,)]:
            raise self._damaged("ledger, steps and state end at different steps")
        held = self.reservation()
        if held is not None and held.step != self.last_step + 1:
            raise self._damaged("a reservation does not follow the last step")
        return seals

    def _check_head(self, seals: list[bytes]) -> None:
        """A head that is ahead of the store means that the store (or its log) was rolled back."""
        if not self._head_path.exists():
            # Only the time between creating the store and its first head.
            if self.last_step > 0:
                raise self._damaged("its head file is missing")
            self.write_head()
            return
        try:
            head = json.loads(self._head_path.read_bytes())
            step, seal = int(head["step"]), bytes.fromhex(head["seal"])
        except (ValueError, KeyError, TypeError):
            raise self._damaged("its head file cannot be read") from None
        if step > self.last_step:
            raise self._damaged(
                f"the head file knows step {step}, the store ends at step {self.last_step}: "
                "the store was rolled back, and continuing would spend the budget twice"
            )
        if step < 0 or not hmac.compare_digest(seal, seals[step]):
            raise self._damaged("its head file belongs to another history")
        if step < self.last_step:
            self.write_head()

    def close(self) -> None:
        """Give up the database and the lock."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._directory.close()

    # Reading

    def fingerprint(self, parts: list[bytes]) -> bytes:
        """Keyed hash (HMAC-SHA256) of a batch's content: the key never leaves the state."""
        mac = hmac.new(self.meta["key"], b"batch", hashlib.sha256)
        for part in parts:
            mac.update(len(part).to_bytes(8, "little"))
            mac.update(part)
        return mac.digest()

    def derived_key(self, purpose: bytes) -> bytes:
        """32 secret bytes for one purpose."""
        return hmac.new(self.meta["key"], b"derive" + purpose, hashlib.sha256).digest()

    def reservation(self) -> Reservation | None:
        """The intent that has no committed step yet."""
        with self._reading() as db:
            row = db.execute("SELECT step, batch_id, content FROM reservation").fetchone()
        return None if row is None else Reservation(*row)

    def undecided_failure(self) -> str | None:
        """What kind of exception stopped the reserved step after noise was drawn, until that is decided."""
        with self._reading() as db:
            row = db.execute("SELECT kind FROM failures WHERE decided = 0 ORDER BY id DESC").fetchone()
        return None if row is None else str(row[0])

    def find(self, *, step: int | None = None, batch_id: str | None = None) -> Step | None:
        """One committed step."""
        with self._reading() as db:
            row = db.execute(
                "SELECT step, batch_id, content, manifest, test_seed, publication FROM steps "
                "WHERE step IS ? OR batch_id IS ?",
                (step, batch_id),
            ).fetchone()
        if row is None:
            return None
        number, name, content, manifest, test_seed, publication = row
        return Step(number, name, content, manifest, bool(test_seed), publication)

    def publications(self) -> list[tuple[int, str, str]]:
        """(step, publication, manifest's SHA-256) of every step, in order."""
        with self._reading() as db:
            return db.execute("SELECT step, publication, manifest_sha256 FROM steps ORDER BY step").fetchall()

    def in_publication(self, *states: str) -> list[int]:
        """Steps in one of these publication states, in order."""
        marks = ", ".join("?" * len(states))
        with self._reading() as db:
            rows = db.execute(f"SELECT step FROM steps WHERE publication IN ({marks}) ORDER BY step", states)
            return [step for (step,) in rows]

    def files(self, step: int) -> dict[str, bytes]:
        """The released bytes of a step that is not published yet; checked against their hashes."""
        with self._reading() as db:
            rows = db.execute("SELECT name, sha256, bytes FROM files WHERE step = ?", (step,)).fetchall()
        for name, digest, data in rows:
            if data is None or hashlib.sha256(data).hexdigest() != digest:
                raise self._damaged(f"the stored {name} of step {step} was changed")
        return {name: data for name, _, data in rows}

    def file_names(self, step: int) -> list[str]:
        """Names of a step's released files."""
        with self._reading() as db:
            return [name for (name,) in db.execute("SELECT name FROM files WHERE step = ?", (step,))]

    def file_names_from(self, step: int) -> dict[int, set[str]]:
        """Names of the released files of this step and of later ones, by step."""
        found: dict[int, set[str]] = {}
        with self._reading() as db:
            for number, name in db.execute(
                "SELECT step, name FROM files WHERE step >= ?", (step,)
            ).fetchall():
                found.setdefault(number, set()).add(name)
        return found

    def state(self) -> bytes:
        """The packed state after the last step."""
        with self._reading() as db:
            packed: bytes = db.execute("SELECT packed FROM state").fetchone()[0]
        return packed

    def position(self) -> dict[str, int] | None:
        """How far the source was read for the last step; None before the first."""
        with self._reading() as db:
            row = db.execute("SELECT step, source FROM position").fetchone()
        if row is None and self.last_step == 0:
            return None
        if row is None or row[0] != self.last_step:
            raise self._damaged(f"the source's position at step {self.last_step} is missing")
        return {str(name): int(value) for name, value in json.loads(row[1]).items()}

    def synthesis(self, step: int) -> bytes | None:
        """The packed synthesis of a step; None where the keep policy dropped it."""
        with self._reading() as db:
            row = db.execute("SELECT synthesis FROM steps WHERE step = ?", (step,)).fetchone()
        return None if row is None else row[0]

    def ledger(self) -> list[tuple[int, str, str, str]]:
        """(step, definition, spent, parts) of every step; amounts are exact text."""
        with self._reading() as db:
            return db.execute("SELECT step, definition, spent, parts FROM ledger ORDER BY step").fetchall()

    # Writing

    def reserve(self, reservation: Reservation) -> None:
        """Commit the intent. Reserving the same step again replaces nothing: see ``release_reservation``."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO reservation VALUES (1, ?, ?, ?)",
                (reservation.step, reservation.batch_id, reservation.content),
            )

    def release_reservation(self) -> None:
        """Forget an intent whose result never left the process; failed attempts at it count as decided."""
        with self._transaction() as db:
            db.execute("UPDATE failures SET decided = 1")
            db.execute("DELETE FROM reservation")

    def record_failure(self, reservation: Reservation, kind: str) -> None:
        """Note that an attempt failed after noise was drawn; the intent stays until somebody decides."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO failures (step, batch_id, kind, decided) VALUES (?, ?, ?, 0)",
                (reservation.step, reservation.batch_id, kind),
            )

    def commit_step(self, prepared: Prepared) -> None:
        """Spend, state, batch id and release in one transaction."""
        held = prepared.reservation
        step = held.step
        flag = int(prepared.test_seed)
        parts = prepared.parts.decode()
        digest = hashlib.sha256(prepared.manifest).hexdigest()
        columns = (step, held.batch_id, held.content, prepared.manifest, digest, flag)
        seal = self._seal(self._last_seal, *columns, prepared.definition, prepared.spent, parts)

        def remember() -> None:
            self.last_step, self._last_seal = step, seal
            self.used_test_seed |= prepared.test_seed

        with self._transaction(remember) as db:
            db.execute(
                "INSERT INTO ledger VALUES (?, ?, ?, ?)", (step, prepared.definition, prepared.spent, parts)
            )
            db.execute(
                "INSERT INTO steps (step, batch_id, content, manifest, manifest_sha256, test_seed, "
                "publication, synthesis, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*columns, prepared.publication, prepared.synthesis, seal),
            )
            for name, data in prepared.files.items():
                hashed = hashlib.sha256(data).hexdigest()
                db.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (step, name, hashed, data))
            updated = db.execute(
                "UPDATE state SET step = ?, packed = ? WHERE step = ?", (step, prepared.state, step - 1)
            )
            if updated.rowcount != 1:
                raise self._damaged("the state does not stand before this step")
            db.execute("DELETE FROM reservation")
            db.execute("DELETE FROM position")
            if prepared.position is not None:
                db.execute("INSERT INTO position VALUES (1, ?, ?)", (step, prepared.position))
            if prepared.keep is not None:
                self._expire(db, step - prepared.keep)

    def _expire(self, db: sqlite3.Connection, through: int) -> None:
        db.execute(
            "UPDATE steps SET synthesis = NULL, publication = "
            "CASE publication WHEN 'published' THEN 'expiring' WHEN 'unpublished' THEN 'dropped' "
            "ELSE publication END WHERE step <= ? AND publication IN ('published', 'unpublished')",
            (through,),
        )

    def mark_published(self, steps: list[int], expired: list[int]) -> None:
        """The sink has these steps (their bytes are no longer needed here) and lost the expired tables."""
        with self._transaction() as db:
            for step in steps:
                db.execute("UPDATE steps SET publication = 'published' WHERE step = ?", (step,))
                db.execute("UPDATE files SET bytes = NULL WHERE step = ?", (step,))
            for step in expired:
                db.execute("UPDATE steps SET publication = 'expired' WHERE step = ?", (step,))

    def move(self, steps: Sequence[int], publication: str) -> None:
        """Put steps into another publication state."""
        with self._transaction() as db:
            for step in steps:
                db.execute("UPDATE steps SET publication = ? WHERE step = ?", (publication, step))

    def withdraw(self, step: int, name: str, notice: bytes) -> None:
        """Take a step's table back for good: its bytes go, and ``notice`` joins its files."""
        with self._transaction() as db:
            db.execute("UPDATE files SET bytes = NULL WHERE step = ?", (step,))
            row = (step, name, hashlib.sha256(notice).hexdigest(), notice)
            db.execute("INSERT INTO files VALUES (?, ?, ?, ?)", row)
            db.execute("UPDATE steps SET publication = 'withdrawing' WHERE step = ?", (step,))

    def stored_file(self, step: int, name: str) -> bytes | None:
        """One file of a step, checked against its hash; None where there is none."""
        with self._reading() as db:
            row = db.execute(
                "SELECT sha256, bytes FROM files WHERE step = ? AND name = ?", (step, name)
            ).fetchone()
        if row is None:
            return None
        if row[1] is None or hashlib.sha256(row[1]).hexdigest() != row[0]:
            raise self._damaged(f"the stored {name} of step {step} was changed")
        return bytes(row[1])

    def write_head(self) -> None:
        """Note the last step beside the store: a second witness against a store that was rolled back."""
        head = canonical_json({"format": 1, "step": self.last_step, "seal": self._last_seal.hex()})
        with file_errors("the head file could not be written", self._head_path):
            durable.replace_file(self._head_path, head, mode=0o600)

    # Inside

    @property
    def _head_path(self) -> Path:
        return self.path / _HEAD

    @property
    def _db(self) -> sqlite3.Connection:
        if self._broken is not None:
            raise StoreError(self._broken, where=str(self.path), allowed="closing it and opening it again")
        if self._connection is None:
            raise StoreError("the stream is closed", where=str(self.path), allowed="opening it again")
        return self._connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with sqlite_errors(self._directory.database):
            yield self._db

    @contextmanager
    def _transaction(self, then: Callable[[], None] | None = None) -> Iterator[sqlite3.Connection]:
        """One transaction; ``then`` (what memory knows of it) belongs to the commit: interrupted in
        between, the object refuses further use."""
        with sqlite_errors(self._directory.database):
            db = self._db
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                self._broken = "a commit was interrupted; whether it took effect is unknown"
                durable.commit(db)
                if then is not None:
                    then()
                self._broken = None
            except BaseException:
                # Before the commit nothing took effect: SQLite may have rolled back by itself (a full disk).
                if self._broken is None and db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _genesis_seal(self) -> bytes:
        pinned = {key: value.hex() for key, value in self.meta.items()}
        return hmac.new(self.meta["key"], b"meta" + canonical_json(pinned), hashlib.sha256).digest()

    def _seal(self, previous: bytes, *columns: int | str | bytes | None) -> bytes:
        mac = hmac.new(self.meta["key"], b"step" + previous, hashlib.sha256)
        for column in columns:
            data = column if isinstance(column, bytes) else repr(column).encode()
            mac.update(len(data).to_bytes(8, "little"))
            mac.update(data)
        return mac.digest()

    def _damaged(self, what: str) -> StoreDamagedError:
        return StoreDamagedError(what, where=str(self._directory.database))
