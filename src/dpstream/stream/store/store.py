"""The durable store: ledger, state and releases of one stream, in SQLite or PostgreSQL.

Guarantee: a step's spend, new state, batch id and release become durable in one transaction, or none of
them does. Rows are sealed in a keyed chain, so that a changed or missing row is found on open.

Trusted base: store (holds private state).
"""

from __future__ import annotations

import hashlib
import secrets
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dpstream.core import durable
from dpstream.core.errors import StoreDamagedError, StoreError
from dpstream.core.tables.counter_files import sweep_files
from dpstream.io.sinks.table_files import Content, sha256_of
from dpstream.io.sinks.target import MEASUREMENTS
from dpstream.stream.identity import canonical_json, is_same_plan, require_same_plan
from dpstream.stream.store.encryption import StateKey, mark, sealing_for, unlock
from dpstream.stream.store.lock import FolderLock, StateDirectory
from dpstream.stream.store.place import backend_for, refuse_moved
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.present_rows import PresentChange, write_present
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
    Head,
    SealedLog,
    forget_latest,
    is_unspent,
    read_history,
    read_meta,
    sealed_pin,
    step_seal,
    stored_plan,
    undecided_failure,
    utc_now,
    write_latest,
)
from dpstream.stream.store.sqlite import DATABASE
from dpstream.stream.store.staging import Staging
from dpstream.stream.store.step_rows import Prepared, Reservation, write_state
from dpstream.stream.store.store_database import (
    Sealing,
    StoreDatabase,
    create_tables,
    damaged_store,
    file_errors,
)
from dpstream.stream.store.stored import StoreReader
from dpstream.stream.store.users import problem_of_files, read_shards, verify_events, write_events


class Store(StoreReader):
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
        genesis: Callable[[], tuple[dict[str, bytes], bytes]] | None = None,
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

    def _create(
        self, facts: dict[str, Any], genesis: Callable[[], tuple[dict[str, bytes], bytes]] | None
    ) -> None:
        for witness in (self._head.path, *self._backend.witnesses()):
            if witness.exists():
                raise damaged_store(f"the store is gone, but its {witness.name} is there", str(self.path))
        for witness in self._head.outside:
            if witness.exists():
                # Before genesis, which charges an account.
                raise StoreDamagedError(
                    f"the state is gone, but its witness {witness.name} is among the releases",
                    where=str(witness.parent),
                    allowed="the newest state; or another folder for the releases of a new stream",
                )
        if genesis is None:
            raise StoreError(
                "there is no stream yet",
                where=str(self.path),
                allowed="a state directory that dpstream run made",
            )
        first = self._first_rows(facts, genesis)

        def fill(db: StoreDatabase) -> None:
            create_tables(db)
            first(db)

        self._backend.create(fill)

    def _first_rows(
        self, facts: dict[str, Any], genesis: Callable[[], tuple[dict[str, bytes], bytes]]
    ) -> Callable[[StoreDatabase], None]:
        """What writes the rows that a store holds before its first step."""
        given, state = genesis()
        sealing, key = (
            sealing_for(self._key, given["stream_id"], self._backend.where),
            secrets.token_bytes(32),
        )
        meta = {**given, "plan": canonical_json(facts), "key": sealing.seal(key, "key")}

        def fill(db: StoreDatabase) -> None:
            db.sealing = sealing
            mark(db, sealing)
            db.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
            write_latest(db, key, STATE_ROW, 0, state)

        return fill

    def _begin_anew(
        self, facts: dict[str, Any], genesis: Callable[[], tuple[dict[str, bytes], bytes]]
    ) -> None:
        """Give a store of which no step was ever begun another plan, in one transaction, as in a new stream."""
        fill = self._first_rows(facts, genesis)
        # The head names the plan before. Without one, a store without steps opens under either.
        self._head.forget()
        with self._transaction() as db:
            db.execute("DELETE FROM meta")
            fill(db)
        warnings.warn(
            f"{self.path}: the state belonged to another plan, of which no step was ever begun; it begins anew with "
            "this one",
            stacklevel=2,
        )
        if self._database is not None:
            self._backend.release(self._database)
            self._database = None
        self._open(facts, None)

    def _open(
        self,
        facts: dict[str, Any],
        genesis: Callable[[], tuple[dict[str, bytes], bytes]] | None,
        published: Callable[[str], Collection[int]] | None = None,
    ) -> None:
        self._database = self._backend.connect()
        self._directory.repair_permissions()
        where = self._backend.where
        with self._database.errors():
            self._database.verify_structure()
            refuse_moved(self._database, where)
            unlock(self._database, self._key)
            self.meta = read_meta(self._database)
            history = read_history(self._database, self.meta, where)
            wrong = verify_events(self._database, self.meta["key"])
            shards = read_shards(self._database, self.meta["key"])
            if wrong is None and shards is not None:
                step = history.last_step
                wrong = problem_of_files(self.user_folder, shards, step, everything=False)
            if wrong is not None:
                raise self._damaged(wrong)
        self.last_step, self._last_seal = history.last_step, history.seals[-1]
        self._last_entry = (len(history.log) - 1, history.log[-1])
        #: Whether any step was made with predictable noise: its traces stay in the state.
        self.used_test_seed = history.used_test_seed
        pinned = stored_plan(self.meta, where)
        if genesis is not None and not is_same_plan(pinned, facts):
            with self._database.errors():
                unspent = is_unspent(self._database)
            if unspent:
                # A damaged head is reported before it is forgotten.
                self._head.check(history, where)
                if published is not None and published(self.meta["stream_id"].hex()):
                    raise StoreDamagedError(
                        "no step was begun in this state, and steps of its stream are published: the state was "
                        "rolled back, and does not begin anew with another plan",
                        where=str(self.path),
                        allowed="the newest state, or a new state directory and releases of its own",
                    )
                self._begin_anew(facts, genesis)
                return
        require_same_plan(pinned, facts, str(self.path))
        #: Whether the witnesses are as far as the store; else ``write_head`` is to be called.
        self.witnessed = self._head.check(history, where)
        self._head.sweep()

    @property
    def sealing(self) -> Sealing:
        """What private values are sealed with, staged files among them."""
        return self._db.sealing

    def sweep_staged(self) -> None:
        """Remove staged files that no committed step waits for, such as those of a step that was never committed; and
        files of users or records that no committed row names."""
        with file_errors("files in the folder users could not be removed", self.path):
            if self.user_folder.is_dir():
                self._users.take(self.user_folder)
                with self._reading() as db:
                    sweep_files(self.user_folder, read_shards(db, self.meta["key"]))
        with file_errors("files that wait to be published could not be removed", self.path):
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
        key, digest = self.meta["key"], hashlib.sha256(prepared.manifest).hexdigest()
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
                    write_events(db, key, step, changes)
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
                db.execute("UPDATE steps SET publication = 'published' WHERE step = ?", (step,))
                _drop_bytes(db, step)
            for step in expired:
                db.execute("UPDATE steps SET publication = 'expired' WHERE step = ?", (step,))
        self.sweep_staged()

    def move(self, steps: Sequence[int], publication: str, decision: tuple[str, str] | None = None) -> None:
        """Put steps into another publication state; ``decision``: what was decided, and by whom."""
        with self._transaction() as db:
            for step in steps:
                db.execute("UPDATE steps SET publication = ? WHERE step = ?", (publication, step))
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
            db.execute("UPDATE steps SET publication = ? WHERE step = ?", (publication, step))
            self._note(db, step, *decision)
        self.write_head()
        self.sweep_staged()

    def remember_account(self, pin: bytes) -> None:
        """From now on the stream is opened with this account only, and where it was closed there, stays closed."""
        sealed = sealed_pin(self.meta, pin)
        with self._transaction(lambda: self.meta.update({PINNED_LATER: sealed})) as db:
            db.execute("DELETE FROM meta WHERE key = ?", (PINNED_LATER,))
            db.execute("INSERT INTO meta VALUES (?, ?)", (PINNED_LATER, sealed))

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
                self._broken = "a commit was interrupted; whether it took effect is unknown"
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
        entry = SealedLog(db, self.meta["key"]).add(step, kind, detail)
        self._noted = entry.number, entry.seal

    def _insert_file(self, db: StoreDatabase, step: int, name: str, content: Content) -> None:
        """Of a staged file only its name and hash."""
        data = db.sealing.seal(content, "file", step, name) if isinstance(content, bytes) else None
        db.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (step, name, sha256_of(content), data))


def staged_files(db: StoreDatabase) -> list[tuple[int, str]]:
    """Step and name of the files that wait on the disk to be published."""
    return db.execute(
        "SELECT f.step, f.name FROM files f JOIN steps s USING (step) "
        "WHERE s.publication IN ('pending', 'held') AND f.bytes IS NULL"
    ).fetchall()


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
