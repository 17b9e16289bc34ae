"""The sealed history of a store, and the witness that is kept beside it.

Every step's row is sealed (HMAC-SHA256, a key of the store's own) over its columns and the seal before it: a
row that was changed, is missing or was taken from another store breaks the chain.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.paths import parse_json, read_bytes
from dpstream.stream.identity import canonical_json
from dpstream.stream.store.store_database import STORE_TABLES, StoreDatabase, damaged_store, file_errors

__all__ = [
    "COUNTERS",
    "HEAD",
    "NOTED",
    "PINNED",
    "PINNED_LATER",
    "Head",
    "SealedHistory",
    "account_pin",
    "as_written_now",
    "checked_steps",
    "decision_seal",
    "derive",
    "first_seal",
    "head_problem",
    "is_unspent",
    "read_history",
    "read_meta",
    "sealed_pin",
    "step_seal",
    "stored_plan",
    "time_seal",
    "utc_now",
]

HEAD = "head.json"
#: Under this name a store says that its first reservation leaves a row, whatever becomes of it (``is_unspent``).
NOTED = "first_reservation"
#: What the key of the users' counters is derived for.
COUNTERS = b"user counters"
_KEY_BYTES = 32
#: Under the first name a store remembers a charge in an account from its start on. A charge that came later stands
#: under the second one, with a seal of its own: the first seal of the chain covers what was there at the start.
PINNED, PINNED_LATER = "account", "account later"
_SEAL_BYTES = 32
#: Facts that the first versions did not pin: a stream of theirs takes them from the plan it is opened with.
_LATER_FACTS = ("declared_public", "source")
_LATER_SOURCE = ("line_breaks",)


@dataclass(frozen=True)
class SealedHistory:
    """All seals, the first one that of ``meta``; and whether any step was made with predictable noise."""

    seals: list[bytes]
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
    history = SealedHistory(seals, used_test_seed)
    (ledger_rows,) = db.execute("SELECT count(*) FROM ledger").fetchone()
    state = db.execute("SELECT step FROM state").fetchall()
    if ledger_rows != history.last_step or state != [(history.last_step,)]:
        raise damaged_store("ledger, steps and state end at different steps", where)
    reserved = db.execute("SELECT step FROM reservation").fetchone()
    if reserved is not None and reserved[0] != history.last_step + 1:
        raise damaged_store("a reservation does not follow the last step", where)
    return history


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
    source, own = facts.get("source"), given.get("source")
    if isinstance(source, dict) and isinstance(own, Mapping):
        # The first versions always read in this way.
        later = {name: own[name] for name in _LATER_SOURCE if name in own and name not in source}
        facts["source"] = {**source, **later}
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


def decision_seal(key: bytes, *columns: int | str) -> bytes:
    """The seal of one decision: of its number, its step, what was decided, by whom and when."""
    return _seal(key, b"decision", columns)


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


class Head:
    """``head.json`` in the local state directory: the last step and its seal, outside of the database.

    A head that is ahead of the store means that the store (its log, its server) was rolled back.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / HEAD

    def read(self, where: str) -> tuple[int, bytes] | None:
        """Last step and seal; None where there is no head yet."""
        head = self._load(where)
        return None if head is None else head[:2]

    def importing(self, where: str) -> str | None:
        """The number of an import of an archive that has not ended yet; None where there is none."""
        head = self._load(where)
        return None if head is None else head[2]

    def _load(self, where: str) -> tuple[int, bytes, str | None] | None:
        if not self.path.exists():
            return None
        try:
            head = parse_json(read_bytes(self.path))
            step, seal = int(head["step"]), bytes.fromhex(head["seal"])
            importing = head.get("importing")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged_store(f"{HEAD} cannot be read", where) from None
        if step < 0:
            raise damaged_store(f"{HEAD} belongs to another history", where)
        return step, seal, None if importing is None else str(importing)

    def check(self, seals: list[bytes], where: str) -> bool:
        """Compare the head with a store, and give whether it is as far as the store and notes no import.

        Errors:
            StoreDamagedError: missing, ahead, or of another history.
        """
        head = self._load(where)
        wrong = head_problem(None if head is None else head[:2], dict(enumerate(seals)))
        if wrong is not None:
            raise damaged_store(wrong, where)
        return head is not None and head[0] == len(seals) - 1 and head[2] is None

    def write(self, step: int, seal: bytes, *, lasting: bool = True, importing: str | None = None) -> None:
        """Replace it. Not ``lasting``: a loss of power may bring back the one before, as a kill just before
        this call leaves it."""
        facts = {"format": 1, "step": step, "seal": seal.hex()}
        head = canonical_json(facts if importing is None else {**facts, "importing": importing})
        with file_errors("the head file could not be written", self.path):
            durable.replace_file(self.path, head, mode=0o600, lasting=lasting)

    def forget(self) -> None:
        """Remove it, before another plan takes the place of one of which no step was begun."""
        with file_errors("the head file could not be removed", self.path):
            durable.unlink(self.path)
            durable.sync_directory(self.path.parent)


def head_problem(head: tuple[int, bytes] | None, seals: Mapping[int, bytes]) -> str | None:
    """What is wrong with a head beside a store with these seals, by step; None where nothing is."""
    last = max(seals)
    if head is None:
        # A store is without a head only between its creation and its first step.
        return f"{HEAD} is missing" if last > 0 else None
    step, seal = head
    if step > last:
        return (
            f"{HEAD} knows step {step}, the store ends at step {last}: the store was rolled back, and going on would "
            "spend the budget twice"
        )
    if step not in seals or not hmac.compare_digest(seal, seals[step]):
        return f"{HEAD} belongs to another history (at step {step})"
    return None


def is_unspent(db: StoreDatabase) -> bool:
    """Whether no step of a store was ever begun and no account was ever charged for it, as its rows prove.

    Nothing was reserved, so no noise was drawn: the first reservation leaves a row among the failures, also where it
    is given up or discarded. A store of a version that left none proves nothing, and counts as spent.
    """
    known = {str(key) for (key,) in db.execute("SELECT key FROM meta").fetchall()}
    if NOTED not in known or known & {PINNED, PINNED_LATER}:
        return False
    first = ("meta", "state", "encryption")  # what every store has from its start on
    others = [name for names in STORE_TABLES.values() for name in names if name not in first]
    return all(not db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall() for name in others)


def derive(key: bytes, purpose: bytes) -> bytes:
    """32 secret bytes for one purpose, of the key of a store."""
    return hmac.new(key, b"derive" + purpose, hashlib.sha256).digest()


def first_seal(meta: dict[str, bytes]) -> bytes:
    """The seal of ``meta``, with which the chain begins."""
    pinned = {key: value.hex() for key, value in meta.items() if key != PINNED_LATER}
    return hmac.new(meta["key"], b"meta" + canonical_json(pinned), hashlib.sha256).digest()
