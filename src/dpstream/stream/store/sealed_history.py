"""The sealed history of a store, and the witness that is kept beside it.

Every step's row is sealed (HMAC-SHA256, a key of the store's own) over its columns and the seal before it: a
row that was changed, is missing or was taken from another store breaks the chain.
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
#: What the key of the users' counters is derived for.
COUNTERS = b"user counters"
_KEY_BYTES = 32
#: Under the first name a store remembers a charge in an account from its start on. A charge that came later stands
#: under the second one, with a seal of its own: the first seal of the chain covers what was there at the start.
PINNED, PINNED_LATER = "account", "account later"
_SEAL_BYTES = 32
#: Facts that the first versions did not pin: a stream of theirs takes them from the plan it is opened with.
_LATER_FACTS = ("declared_public", "source")


@dataclass(frozen=True)
class SealedHistory:
    """The seals of all steps, the first one that of ``meta``, and of the log, the first one empty; whether any step was
    made with predictable noise."""

    seals: list[bytes]
    log: list[bytes]
    used_test_seed: bool

    @property
    def last_step(self) -> int:
        """Number of committed steps."""
        return len(self.seals) - 1


def read_meta(db: StoreDatabase) -> dict[str, bytes]:
    """Plan, key and id of the stream."""
    meta = {str(key): bytes(value) for key, value in db.execute("SELECT key, value FROM meta")}
    if "key" in meta:
        meta["key"] = db.sealing.open(meta["key"], "key")
    return meta


def read_history(db: StoreDatabase, meta: dict[str, bytes], where: str) -> SealedHistory:
    """Seals, ledger, state, reservation: everything that opening has to trust, over small columns.

    Errors:
        StoreDamagedError: says at which step it does not hold together.
    """
    if len(meta.get("key", b"")) != _KEY_BYTES:
        raise damaged_store("the store's key is missing", where)
    seals, used_test_seed = [first_seal(meta)], False
    for expected, (step, seal, test_seed, fits) in enumerate(checked_steps(db, meta), start=1):
        if step != expected or not fits:
            raise damaged_store(f"the record of step {expected} was changed or is missing", where)
        seals.append(seal)
        used_test_seed |= test_seed
    log = [b"", *(bytes(seal) for *_, seal in read_log(db, meta["key"]))]
    history = SealedHistory(seals, log, used_test_seed)
    (ledger_rows,) = db.execute("SELECT count(*) FROM ledger").fetchone()
    state = db.execute("SELECT step FROM state").fetchall()
    if ledger_rows != history.last_step or state != [(history.last_step,)]:
        raise damaged_store("ledger, steps and state end at different steps", where)
    reserved = db.execute("SELECT step FROM reservation").fetchone()
    if reserved is not None and reserved[0] != history.last_step + 1:
        raise damaged_store("a reservation does not follow the last step", where)
    for row in db.execute("SELECT step, batch_id, content, seal FROM reservation").fetchall():
        content = db.sealing.open(row[2], "reservation", row[0])
        _require_seal(meta["key"], "reservation", (row[0], row[1], content), row[3], where)
    for table, kind in (("position", "position"), ("reserved_position", "reserved position")):
        for step, source, seal in db.execute(f"SELECT step, source, seal FROM {table}").fetchall():
            text = db.sealing.open_text(source, kind, step)
            _require_seal(meta["key"], table, (step, text), seal, where)
    return history


def row_seal(key: bytes, table: str, *columns: int | str | bytes) -> bytes:
    """The seal of the only row of a table: of what it says, before it is encrypted."""
    return _seal(key, table.encode(), columns)


def _require_seal(
    key: bytes, table: str, columns: tuple[int | str | bytes, ...], seal: bytes, where: str
) -> None:
    if not hmac.compare_digest(row_seal(key, table, *columns), seal):
        raise damaged_store(f"the {table.replace('_', ' ')} was changed", where)


def checked_steps(db: StoreDatabase, meta: dict[str, bytes]) -> Iterator[tuple[int, bytes, bool, bool]]:
    """Each step in order: its number, its stored seal, whether its noise was predictable, and whether its row fits the
    seal, given the stored seal of the step before it (True where that step is missing)."""
    rows = db.execute(
        "SELECT s.step, batch_id, content, manifest, manifest_sha256, test_seed, seal, "
        "definition, spent, parts FROM steps s LEFT JOIN ledger l ON l.step = s.step ORDER BY s.step"
    )
    seals = {0: first_seal(meta)}
    for step, batch_id, content, *columns, stored, definition, spent, parts in rows:
        seals[step], fits = bytes(stored), True
        if step - 1 in seals:
            opened = db.sealing.open(content, "content", step)
            before = seals.pop(step - 1)
            seal = step_seal(meta["key"], before, step, batch_id, opened, *columns, definition, spent, parts)
            fits = hmac.compare_digest(seal, seals[step])
        yield step, seals[step], bool(columns[-1]), fits


def step_seal(key: bytes, previous: bytes, *columns: int | str | bytes | None) -> bytes:
    """The seal of one step: of the seal before it and of its columns."""
    return _seal(key, b"step" + previous, columns)


def stored_plan(meta: dict[str, bytes], given: dict[str, Any], where: str) -> dict[str, Any]:
    """The facts that the store is pinned to, as this version would have written them."""
    try:
        facts: dict[str, Any] = json.loads(meta["plan"])
    except (KeyError, ValueError):
        raise damaged_store("the stream's plan cannot be read", where) from None
    return as_written_now(facts, given)


def as_written_now(facts: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Facts that a stream is pinned to, as this version would have written them; ``given``: those of now."""
    facts = {**{name: given[name] for name in _LATER_FACTS if name in given and name not in facts}, **facts}
    schema, now = facts.get("schema", {}), given.get("schema", {})
    if "constraints" in schema and schema.get("fingerprint") == now.get("fingerprint"):
        # The first versions pinned the bytes of the files; the fingerprint pins what they say.
        facts["schema"] = {**schema, "constraints": now["constraints"]}
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
        raise damaged_store("the stream's record of its charge in an account was changed", where)
    return pin


def time_seal(key: bytes, seal: bytes, committed: str) -> bytes:
    """The seal of a step's time: of the step's own seal and the text."""
    return hmac.new(key, b"time" + seal + committed.encode(), hashlib.sha256).digest()


def time_problems(db: StoreDatabase, meta: dict[str, bytes]) -> list[str]:
    """What is wrong with the times of the steps, in a sentence each."""
    seals, _ = stored_seals(db)
    rows = db.execute("SELECT step, committed, seal FROM times ORDER BY step").fetchall()
    lost = seals.keys() - {0} - {step for step, _, _ in rows}
    findings = [f"the time of step {step} is missing" for step in sorted(lost)]
    for step, text, seal in rows:
        if step not in seals:
            findings.append(f"the time of step {step} belongs to no step")
        elif not hmac.compare_digest(time_seal(meta["key"], seals[step], text), bytes(seal)):
            findings.append(f"the time of step {step} was changed")
    return findings


def write_log(db: StoreDatabase, key: bytes, step: int, kind: str, detail: str = "") -> tuple[int, bytes]:
    """Add an entry to the log, inside the caller's transaction; gives its number and its seal."""
    last = db.execute("SELECT id, seal FROM log ORDER BY id DESC LIMIT 1").fetchone()
    number, before = (0, b"") if last is None else last
    columns = (number + 1, step, kind, detail, utc_now())
    seal = _seal(key, b"log" + bytes(before), columns)
    db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", (*columns, seal))
    return number + 1, seal


def read_log(db: StoreDatabase, key: bytes) -> list[tuple[int, int, str, str, str, bytes]]:
    """Every entry: number, step, kind, detail, time and seal.

    Errors:
        StoreDamagedError: an entry was changed or is missing.
    """
    rows: list[Any] = db.execute(
        "SELECT id, step, kind, detail, written, seal FROM log ORDER BY id"
    ).fetchall()
    before = b""
    for expected, (*columns, seal) in enumerate(rows, start=1):
        if columns[0] != expected or not hmac.compare_digest(_seal(key, b"log" + before, columns), seal):
            raise damaged_store(
                f"the log of decisions and failures was changed at entry {expected}", db.where
            )
        before = bytes(seal)
    return rows


def undecided_failure(db: StoreDatabase) -> str | None:
    """What kind of exception stopped the reserved step after noise was drawn (or ``RESTORED``), until its owner has
    decided."""
    row = db.execute(
        f"SELECT kind, detail FROM log WHERE kind IN ('{FAILED}', '{DISCARDED}') ORDER BY id DESC LIMIT 1"
    ).fetchone()
    return None if row is None or row[0] == DISCARDED else str(row[1])


def _seal(key: bytes, start: bytes, columns: Iterable[int | str | bytes | None]) -> bytes:
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
        """What the witnesses know; None where there is no head yet.

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
        wrong = head_problem(heads, dict(enumerate(history.seals)), dict(enumerate(history.log)))
        if wrong is not None:
            raise damaged_store(wrong, where)
        seal, entry_seal = history.seals[-1], history.log[-1]
        return (
            heads is not None
            and (heads.seal, heads.entry_seal) == (seal, entry_seal)
            and heads.importing is None
            and all(
                heads.outside.get(path) == _shown(history.last_step, seal, entry_seal)
                for path in self.outside
            )
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
            "format": 2,
            "step": step[0],
            "entry": entry[0],
            "seal": step[1].hex(),
            "entry_seal": entry[1].hex(),
        }
        head = canonical_json(facts if importing is None else {**facts, "importing": importing})
        with file_errors("the head file could not be written", self.path):
            durable.replace_file(self.path, head, mode=0o600, lasting=lasting)
        shown = _shown(*step, entry[1])
        if not lasting or shown is None:
            return
        seals = {"seal": shown[0].hex(), "entry_seal": shown[1].hex()}
        for path in self.outside:
            with file_errors("the witness of the state could not be written", path):
                path.parent.mkdir(parents=True, exist_ok=True)
                # Hidden ones are among the releases, which others may read and copy.
                mode = 0o644 if path.name.startswith(".") else 0o600
                durable.replace_file(path, canonical_json(seals), mode=mode)

    def sweep(self) -> None:
        """Remove what an interrupted write left outside of the state."""
        for path in self.outside:
            left = path.with_name(f".{path.name}.tmp")
            if left.exists():
                with file_errors("the witness of the state could not be written", left):
                    durable.unlink(left)

    def forget(self) -> None:
        """Remove it, before another plan takes the place of one of which no step was begun."""
        with file_errors("the head file could not be removed", self.path):
            durable.unlink(self.path)
            durable.sync_directory(self.path.parent)


def _read_outside(path: Path) -> tuple[bytes, bytes]:
    try:
        seals = parse_json(read_bytes(path))
        return bytes.fromhex(seals["seal"]), bytes.fromhex(seals["entry_seal"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged_store(f"{path.name} cannot be read", str(path)) from None


def _unknown(path: Path) -> str:
    return (
        f"{path.name} {'among the releases' if path.name.startswith('.') else 'in the state'} knows a step, a "
        "decision, a failure or a move that the state does not: the state was rolled back, or the releases belong to "
        "another stream"
    )


def _shown(step: int, seal: bytes, entry_seal: bytes) -> tuple[bytes, bytes] | None:
    """What a witness outside of the state says; of step 0 nothing, and None where nothing has happened yet."""
    return (seal if step else b"", entry_seal) if step or entry_seal else None


def is_half_rekeyed(db: StoreDatabase) -> bool:
    """Whether values under the key before (or none) may still be in the database's files."""
    row = db.execute(
        f"SELECT kind FROM log WHERE kind IN ('{RESEALED}', '{CLEANED}') ORDER BY id DESC LIMIT 1"
    ).fetchone()
    return row is not None and row[0] == RESEALED


def stored_seals(db: StoreDatabase, first: bytes = b"") -> tuple[dict[int, bytes], dict[int, bytes]]:
    """The seals of steps and of the log as they are stored, for ``head_problem``; ``first``: that of ``meta``, which
    only the key of an encrypted store gives."""
    steps = {int(step): bytes(seal) for step, seal in db.execute("SELECT step, seal FROM steps")}
    log = {int(number): bytes(seal) for number, seal in db.execute("SELECT id, seal FROM log")}
    return {0: first, **steps}, {0: b"", **log}


def head_problem(heads: Heads | None, seals: Mapping[int, bytes], log: Mapping[int, bytes]) -> str | None:
    """What is wrong with the witnesses beside a store with these seals of steps and of its log; None where nothing is.
    An empty seal of step 0 is not known, and fits."""
    last = max(seals)
    if heads is None:
        # A store is without a head only between its creation and its first step.
        return f"{HEAD} is missing" if last > 0 else None
    if heads.step > last:
        return (
            f"{HEAD} knows step {heads.step}, the store ends at step {last}: the store was rolled back, and going on "
            "would spend the budget twice"
        )
    seal = seals.get(heads.step)
    if seal is None or (seal and not hmac.compare_digest(heads.seal, seal)):
        return f"{HEAD} belongs to another history (at step {heads.step})"
    if not hmac.compare_digest(heads.entry_seal, log.get(heads.entry, b"missing")):
        return (
            f"{HEAD} knows a decision, a failure or a move that the store does not: the store was rolled back, and "
            "going on would forget it"
        )
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
    if known & {PINNED, PINNED_LATER}:
        return False
    first = ("meta", "state", "encryption")  # what every store has from its start on
    others = [name for name in STORE_TABLES if name not in first]
    return all(not db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall() for name in others)


def derive(key: bytes, purpose: bytes) -> bytes:
    """32 secret bytes for one purpose, of the key of a store."""
    return hmac.new(key, b"derive" + purpose, hashlib.sha256).digest()


def first_seal(meta: dict[str, bytes]) -> bytes:
    """The seal of ``meta``, with which the chain begins."""
    pinned = {key: value.hex() for key, value in meta.items() if key != PINNED_LATER}
    return hmac.new(meta["key"], b"meta" + canonical_json(pinned), hashlib.sha256).digest()
