"""The sealed history of a store, and the witness that is kept beside it.

Every step's row is sealed (HMAC-SHA256, a key of the store's own) over its columns and the seal before it: a
row that was changed, is missing or was taken from another store breaks the chain. The log is such a chain, too; what
there is once (``latest``) is sealed by itself.

Trusted base: store (seals what was spent).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import StoreDamagedError
from dpstream.core.paths import parse_json, read_bytes
from dpstream.stream.identity import canonical_json
from dpstream.stream.store.store_database import STORE_TABLES, StoreDatabase, damaged_store, file_errors

HEAD = "head.json"
#: The same witness of the questions' store, in the state of its stream.
QUESTIONS = "questions.json"
#: Kinds of entries in the log: what people decided about a committed step (``approved``, ``withdrawn``, ``rejected``),
#: and these: a first reservation; an attempt that failed after it drew (or ``RESTORED``: a copy does not know whether
#: one did); that the owner allowed another attempt; a move to another place; that another key seals the values, and
#: that the old ones are gone from the database's files.
BEGUN, FAILED, DISCARDED, LEFT = "begun", "failed", "discarded", "left"
RESEALED, CLEANED = "resealed", "cleaned"
#: Stands where the kind of a failure stands, in a store that a copy replaced.
RESTORED = "a restored copy"
#: What a key is derived for: that of the users' counters.
COUNTERS = b"user counters"
#: What there is once in a store (``latest``): the reserved step, and how far the source was read for it; the same of
#: the last step, the packed state after it, and what the rows of users, of present records and of values add up to.
RESERVATION, RESERVED_POSITION, POSITION = "reservation", "reserved position", "position"
STATE_ROW, USER_SUM, PRESENT_SUM, VALUE_SUM = "state", "user sum", "present sum", "value sum"
#: And what is read without the key: the name of the key that seals the values; that the stream goes on elsewhere.
ENCRYPTION, MOVED = "encryption", "moved"
_AHEAD = (RESERVATION, RESERVED_POSITION)
_AT_LAST = (POSITION, STATE_ROW, USER_SUM, PRESENT_SUM, VALUE_SUM)
_OPEN = (ENCRYPTION, MOVED)
_KEY_BYTES = 32
#: Under the first name a store remembers a charge in an account from its start on. A charge that came later stands
#: under the second one, with a seal of its own: the first seal of the chain covers what was there at the start.
PINNED, PINNED_LATER = "account", "account later"
_SEAL_BYTES = 32
_UNWRITTEN = "the witness could not be written"


@dataclass(frozen=True)
class SealedHistory:
    """The stored seals of a store.

    Attributes:
        seals: of each step; of step 0 that of ``meta``, or empty where it is not known.
        log: of each entry of the log; of entry 0 empty.
        used_test_seed: whether any step was made with predictable noise.
        problems: what does not hold together, in a sentence each.
        sound: whether the rows of all steps fit their seals, and none is missing.
    """

    seals: Mapping[int, bytes]
    log: Mapping[int, bytes]
    used_test_seed: bool = False
    problems: tuple[str, ...] = ()
    sound: bool = True

    @property
    def last(self) -> tuple[int, bytes]:
        """Number and seal of the last step."""
        step = max(self.seals)
        return step, self.seals[step]

    @property
    def last_entry(self) -> tuple[int, bytes]:
        """Number and seal of the last entry of the log."""
        entry = max(self.log)
        return entry, self.log[entry]

    @property
    def last_step(self) -> int:
        """Number of committed steps."""
        return self.last[0]


def read_meta(db: StoreDatabase) -> dict[str, bytes]:
    """Plan, key and id of the stream."""
    meta = {str(key): bytes(value) for key, value in db.execute("SELECT key, value FROM meta")}
    if "key" in meta:
        meta["key"] = db.sealing.open(meta["key"], "key")
    return meta


def read_history(db: StoreDatabase, meta: dict[str, bytes], where: str | None = None) -> SealedHistory:
    """Seals of steps, log, reservation: everything that opening has to trust, over small columns.

    Errors:
        StoreDamagedError: says at which step it does not hold together.
    """
    history = look_at_history(db, meta)
    for problem in history.problems:
        raise damaged_store(problem, where or db.where)
    return history


def look_at_history(db: StoreDatabase, meta: dict[str, bytes]) -> SealedHistory:
    """As ``read_history``, with all problems: one changed row does not hide the others."""
    if len(meta.get("key", b"")) != _KEY_BYTES or not {"plan", "stream_id"} <= set(meta):
        problem = "the stream's pin or key is missing"
        return SealedHistory({0: b""}, {0: b""}, problems=(problem,), sound=False)
    key, last, seals = meta["key"], 0, {0: first_seal(meta)}
    used_test_seed, problems = False, list[str]()
    rows = db.execute(
        "SELECT step, seal, batch_id, content, manifest, manifest_sha256, test_seed, definition, spent, parts, "
        "committed FROM steps ORDER BY step"
    )
    for step, stored, batch_id, content, *columns in rows:
        problems += [f"step {lost} is missing" for lost in range(last + 1, step)]
        if step == last + 1:
            opened = db.sealing.open(content, "content", step)
            wanted = step_seal(key, seals[last], step, batch_id, opened, *columns)
            if not hmac.compare_digest(wanted, bytes(stored)):
                what = "or the stream's pin " if step == 1 else ""
                problems.append(f"the record of step {step} {what}was changed")
        last, seals[step] = step, bytes(stored)
        used_test_seed |= bool(columns[2])
    sound = not problems
    if sound:
        problems += latest_problems(db, key, last)
    try:
        SealedLog(db, key).kinds()
    except StoreDamagedError as error:
        problems.append(error.what)
    return SealedHistory(seals, _log_seals(db), used_test_seed, tuple(problems), sound)


def stored_seals(db: StoreDatabase) -> SealedHistory:
    """The seals as they are stored, unchecked; the seal of ``meta`` needs the key of an encrypted store."""
    steps = {int(step): bytes(seal) for step, seal in db.execute("SELECT step, seal FROM steps")}
    return SealedHistory({0: b"", **steps}, _log_seals(db))


def _log_seals(db: StoreDatabase) -> dict[int, bytes]:
    return {0: b"", **{int(number): bytes(seal) for number, seal in db.execute("SELECT id, seal FROM log")}}


def step_seal(key: bytes, previous: bytes, *columns: int | str | bytes | None) -> bytes:
    """The seal of one step: of the seal before it and of its columns."""
    return row_seal(key, b"step" + previous, columns)


# What there is once.


def write_latest(db: StoreDatabase, key: bytes, name: str, step: int, value: bytes) -> None:
    """Write or replace a value of a step, inside the caller's transaction; its seal is of what it says, before it is
    encrypted."""
    seal = row_seal(key, name.encode(), (step, value))
    _replace_latest(db, name, step, seal, db.sealing.seal(value, name, step))


def read_latest(db: StoreDatabase, key: bytes, name: str) -> tuple[int, bytes] | None:
    """The step of a value, and the value; None where there is none.

    Errors:
        StoreDamagedError: it was changed.
    """
    row = db.execute("SELECT step, seal, value FROM latest WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    step, seal, stored = row
    value = db.sealing.open(bytes(stored), name, step)
    if not hmac.compare_digest(row_seal(key, name.encode(), (step, value)), bytes(seal)):
        raise damaged_store(f"the {name} was changed", db.where)
    return int(step), value


def _replace_latest(db: StoreDatabase, *row: int | str | bytes) -> None:
    forget_latest(db, str(row[0]))
    db.execute("INSERT INTO latest (name, step, seal, value) VALUES (?, ?, ?, ?)", row)


def forget_latest(db: StoreDatabase, name: str) -> None:
    """Remove a value, inside the caller's transaction."""
    db.execute("DELETE FROM latest WHERE name = ?", (name,))


def step_of(db: StoreDatabase, name: str) -> int | None:
    """The step of a value, unchecked; None where there is none."""
    row = db.execute("SELECT step FROM latest WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def write_open(db: StoreDatabase, name: str, step: int, value: bytes) -> None:
    """As ``write_latest``, of what is read without the key."""
    _replace_latest(db, name, step, b"", value)


def read_open(db: StoreDatabase, name: str) -> bytes | None:
    """What ``write_open`` wrote; None where it wrote nothing."""
    row = db.execute("SELECT value FROM latest WHERE name = ?", (name,)).fetchone()
    return None if row is None else bytes(row[0])


def sealed_names(db: StoreDatabase) -> list[tuple[str, int]]:
    """The names of the values that are sealed, with their steps."""
    rows = db.execute("SELECT name, step FROM latest ORDER BY name").fetchall()
    return [(str(name), int(step)) for name, step in rows if name not in _OPEN]


def latest_problems(db: StoreDatabase, key: bytes, last_step: int) -> Iterator[str]:
    """What is wrong with these values, in a sentence each. The state may be large, and is checked when it is read."""
    names = dict(sealed_names(db))
    for name, step in names.items():
        if name not in (*_AHEAD, *_AT_LAST):
            yield f"a value has the unknown name {name!r}"
            continue
        try:
            if name != STATE_ROW:
                read_latest(db, key, name)
            if step != last_step + (name in _AHEAD):
                yield f"the {name} is that of step {step}, and the ledger ends at step {last_step}"
        except StoreDamagedError as error:
            yield error.what
    if STATE_ROW not in names:
        yield "the state is missing"


def stored_plan(meta: dict[str, bytes], where: str) -> dict[str, Any]:
    """The facts that the store is pinned to."""
    try:
        facts: dict[str, Any] = json.loads(meta["plan"])
    except (KeyError, ValueError):
        raise damaged_store("the stream's plan cannot be read", where) from None
    return facts


def sealed_pin(meta: dict[str, bytes], pin: bytes) -> bytes:
    """What a store remembers of a charge that came after its start, bound to this stream."""
    return hmac.new(meta["key"], b"account" + first_seal(meta) + pin, hashlib.sha256).digest() + pin


def account_pin(meta: dict[str, bytes], where: str) -> bytes | None:
    """What the store remembers of its account; None where it knows of none.

    Errors:
        StoreDamagedError: it was changed.
    """
    if PINNED_LATER not in meta:
        return meta.get(PINNED)
    pin = meta[PINNED_LATER][_SEAL_BYTES:]
    if not hmac.compare_digest(sealed_pin(meta, pin), meta[PINNED_LATER]):
        raise damaged_store("the stream's charge was changed", where)
    return pin


# The log.


class SealedLog:
    """The entries of a table ``log``: each is sealed over the one before it, and nothing is ever changed.

    Args:
        key: a secret one of the database's own.
    """

    def __init__(self, db: StoreDatabase, key: bytes) -> None:
        self._db, self._key = db, key

    def add(self, step: int, kind: str, detail: str = "") -> tuple[int, bytes]:
        """Write the next entry, inside the caller's transaction; gives its number, and the seal of it and of everything
        before."""
        last = self._db.execute("SELECT id, seal FROM log ORDER BY id DESC LIMIT 1").fetchone()
        number, before = (0, b"") if last is None else last
        columns = (int(number) + 1, step, kind, detail, utc_now())
        seal = self._seal(bytes(before), columns)
        self._db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", (*columns, seal))
        return columns[0], seal

    def kinds(self) -> list[str]:
        """The kinds of all entries, in their order.

        Errors:
            StoreDamagedError: an entry was changed or is missing.
        """
        rows = self._db.execute(
            "SELECT id, step, kind, detail, written, seal FROM log ORDER BY id"
        ).fetchall()
        before, kinds = b"", list[str]()
        for expected, (*columns, seal) in enumerate(rows, start=1):
            if columns[0] != expected or not hmac.compare_digest(self._seal(before, columns), bytes(seal)):
                raise damaged_store(f"entry {expected} of the log was changed or is missing", self._db.where)
            before = bytes(seal)
            kinds.append(columns[2])
        return kinds

    def _seal(self, before: bytes, columns: Iterable[int | str]) -> bytes:
        return row_seal(self._key, b"log" + before, columns)


def undecided_failure(db: StoreDatabase) -> str | None:
    """What kind of exception stopped the reserved step after noise was drawn (or ``RESTORED``), until its owner has
    decided."""
    kind, detail = _last_of(db, FAILED, DISCARDED)
    return detail if kind == FAILED else None


def _last_of(db: StoreDatabase, *kinds: str) -> tuple[str, str]:
    """Kind and detail of the last entry of one of two kinds; empty ones where there is none."""
    query = "SELECT kind, detail FROM log WHERE kind IN (?, ?) ORDER BY id DESC LIMIT 1"
    kind, detail = db.execute(query, kinds).fetchone() or ("", "")
    return str(kind), str(detail)


def row_seal(key: bytes, start: bytes, columns: Iterable[int | str | bytes | None]) -> bytes:
    """A keyed hash of the columns of a row; numbers and texts as Python writes them, each with its length."""
    mac = hmac.new(key, start, hashlib.sha256)
    for column in columns:
        data = column if isinstance(column, bytes) else repr(column).encode()
        mac.update(len(data).to_bytes(8, "little"))
        mac.update(data)
    return mac.digest()


def utc_now() -> str:
    """The clock's time for people. Nothing else depends on it: a moved clock changes what is printed only."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# The witnesses.


@dataclass(frozen=True)
class Heads:
    """What the witnesses of a store say.

    Attributes:
        step, seal: the last step that ``head.json`` knows.
        entry, entry_seal: the last entry of the log that it knows.
        importing: the number of an import of an archive that has not ended yet; None where there is none.
        outside: the last two seals that each witness outside of the state knows, where it is there.
    """

    step: int
    seal: bytes
    entry: int
    entry_seal: bytes
    importing: str | None = None
    outside: Mapping[Path, tuple[bytes, bytes]] = field(default_factory=dict)


def outside_heads(releases: Path | None) -> tuple[Path, ...]:
    """Where the witness of a stream's store stands besides: among the releases, where a restored state directory does
    not reach it."""
    return () if releases is None else (releases / f".{HEAD}",)


def outside_heads_of_questions(state: Path, releases: Path | None) -> tuple[Path, ...]:
    """Where the witness of the store of the questions of the stream in ``state`` stands besides."""
    return (state / QUESTIONS, *(() if releases is None else (releases / f".{QUESTIONS}",)))


class Head:
    """``head.json`` in the local state directory: the last step and the last entry of the log with their seals, outside
    of the database; and the same seals ``outside`` of the directory. Those hold seals only: how often a step failed is
    not for readers of releases.

    It is written after a commit, and before anybody is shown what was committed. So a store may be ahead of it (the
    process was killed in between), and a store that is behind it (its log, its server) was rolled back.
    """

    def __init__(self, directory: Path, outside: tuple[Path, ...] = ()) -> None:
        self.path = directory / HEAD
        self.outside = outside

    def read(self, where: str) -> Heads | None:
        """What the witnesses know; None without a head.

        Errors:
            StoreDamagedError: one cannot be read, or one outside of the state is alone.
        """
        outside = {path: _read_outside(path) for path in self.outside if path.exists()}
        if not self.path.exists():
            for path in outside:
                raise damaged_store(_unknown(path), where)
            return None
        try:
            head = parse_json(read_bytes(self.path))
            step, seal = int(head["step"]), bytes.fromhex(head["seal"])
            entry, entry_seal = int(head["entry"]), bytes.fromhex(head["entry_seal"])
            importing = head.get("importing")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged_store(f"{HEAD} cannot be read", where) from None
        if step < 0 or entry < 0:
            raise damaged_store(f"{HEAD} belongs to another history", where)
        number = None if importing is None else str(importing)
        return Heads(step, seal, entry, entry_seal, number, outside)

    def check(self, history: SealedHistory, where: str) -> bool:
        """Compare the witnesses with a store, and give whether they are as far as the store and note no import.

        Errors:
            StoreDamagedError: missing, ahead, or of another history.
        """
        heads = self.read(where)
        wrong = head_problem(heads, history)
        if wrong is not None:
            raise damaged_store(wrong, where)
        shown = _shown(*history.last, history.last_entry[1])
        return (
            heads is not None
            and (heads.seal, heads.entry_seal) == (history.last[1], history.last_entry[1])
            and heads.importing is None
            and all(heads.outside.get(path) == shown for path in self.outside)
        )

    def write(
        self,
        step: tuple[int, bytes],
        entry: tuple[int, bytes],
        *,
        lasting: bool = True,
        importing: str | None = None,
    ) -> None:
        """Replace them. Not ``lasting``, for a step that the releases themselves will witness: only in the state, and a
        loss of power may bring back the one before, as a kill just before this call leaves it."""
        facts = {
            "format": 1,
            "step": step[0],
            "entry": entry[0],
            "seal": step[1].hex(),
            "entry_seal": entry[1].hex(),
        }
        head = canonical_json(facts if importing is None else {**facts, "importing": importing})
        with file_errors(f"{HEAD} could not be written", self.path):
            durable.replace_file(self.path, head, mode=0o600, lasting=lasting)
        shown = _shown(*step, entry[1])
        if not lasting or shown is None:
            return
        seals = {"seal": shown[0].hex(), "entry_seal": shown[1].hex()}
        for path in self.outside:
            with file_errors(_UNWRITTEN, path):
                path.parent.mkdir(parents=True, exist_ok=True)
                # Hidden ones are among the releases, which others may read and copy.
                mode = 0o644 if path.name.startswith(".") else 0o600
                durable.replace_file(path, canonical_json(seals), mode=mode)

    def sweep(self) -> None:
        """Remove what an interrupted write left outside of the state."""
        for path in self.outside:
            left = path.with_name(f".{path.name}.tmp")
            if left.exists():
                with file_errors(_UNWRITTEN, left):
                    durable.unlink(left)

    def forget(self) -> None:
        """Remove it, before another plan takes the place of one of which no step was begun."""
        with file_errors(f"{HEAD} could not be removed", self.path):
            durable.unlink(self.path)
            durable.sync_directory(self.path.parent)


def _read_outside(path: Path) -> tuple[bytes, bytes]:
    try:
        seals = parse_json(read_bytes(path))
        return bytes.fromhex(seals["seal"]), bytes.fromhex(seals["entry_seal"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged_store(f"{path.name} cannot be read", str(path)) from None


def _unknown(path: Path) -> str:
    return f"{path} knows more than the state, which was rolled back or is another stream's"


def _shown(step: int, seal: bytes, entry_seal: bytes) -> tuple[bytes, bytes] | None:
    """What a witness outside of the state says; of step 0 nothing, and None where nothing has happened yet."""
    return (seal if step else b"", entry_seal) if step or entry_seal else None


def is_half_rekeyed(db: StoreDatabase) -> bool:
    """Whether values under the key before (or none) may still be in the database's files."""
    return _last_of(db, RESEALED, CLEANED)[0] == RESEALED


def head_problem(heads: Heads | None, history: SealedHistory) -> str | None:
    """What is wrong with the witnesses beside a store; None where nothing is. An empty seal of step 0 is not known, and
    fits."""
    last, seals, log = history.last_step, history.seals, history.log
    if heads is None:
        # A store is without a head only between its creation and its first step.
        return f"{HEAD} is missing" if last > 0 else None
    if heads.step > last:
        return f"{HEAD} knows step {heads.step}, the store ends at step {last}: the store was rolled back"
    seal = seals.get(heads.step)
    if seal is None or (seal and not hmac.compare_digest(heads.seal, seal)):
        return f"{HEAD} belongs to another history (at step {heads.step})"
    if not hmac.compare_digest(heads.entry_seal, log.get(heads.entry, b"missing")):
        return f"{HEAD} knows more events than the store: the store was rolled back"
    for path, (step, entry) in heads.outside.items():
        if (step and step not in seals.values()) or entry not in log.values():
            return _unknown(path)
    return None


def is_unspent(db: StoreDatabase) -> bool:
    """Whether no step of a store was ever begun and no account was ever charged for it, as its rows prove.

    Nothing was reserved, so no noise was drawn: the first reservation leaves an entry in the log, also where it
    is given up or discarded.
    """
    known = {str(key) for (key,) in db.execute("SELECT key FROM meta").fetchall()}
    latest = {str(name) for (name,) in db.execute("SELECT name FROM latest").fetchall()}
    if known & {PINNED, PINNED_LATER} or latest - {STATE_ROW, ENCRYPTION}:
        return False
    others = [name for name in STORE_TABLES if name not in ("meta", "latest")]
    return all(not db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall() for name in others)


def derive(key: bytes, purpose: bytes) -> bytes:
    """32 secret bytes for one purpose, of the key of a store."""
    return hmac.new(key, b"derive" + purpose, hashlib.sha256).digest()


def first_seal(meta: dict[str, bytes]) -> bytes:
    """The seal of ``meta``, with which the chain begins."""
    pinned = {key: value.hex() for key, value in meta.items() if key != PINNED_LATER}
    return hmac.new(meta["key"], b"meta" + canonical_json(pinned), hashlib.sha256).digest()
