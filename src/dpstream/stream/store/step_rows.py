"""What a step is in the store: reserved, computed, committed, in the ledger; and its packed state, in parts.

What is public in a state and stays the same from step to step is written once. The value ``state`` is a container
(``container.py``) with everything that is small or private, and names the large public arrays, which are rows of
``state_parts``. The name of a part is a keyed hash of its content, so it tells whether the part was changed. A step
writes the parts that are not there and deletes those that nothing names any more, inside its transaction.

Only arrays that ``Packed.public`` lists become parts: that one is not written tells whoever sees the writing (the
server of an encrypted store) that it did not change, and private numbers may not tell that.

Trusted base: store (what a step writes).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import StoreDamagedError, StoreError
from dpstream.core.tables.access import ShardedEvents, UserEvents
from dpstream.io.sinks.table_files import Content
from dpstream.stream.cut_users import NONE_CUT, CutUsers
from dpstream.stream.store import container
from dpstream.stream.store.sealed_history import STATE_ROW, derive, read_latest, step_of, write_latest
from dpstream.stream.store.store_database import StoreDatabase, damaged_store
from dpstream.stream.store.summed_rows import PresentChange, ValueCounts, put_values

#: What the key of the names is derived for.
STATE = b"parts of the state"
#: Smaller arrays stay in the value ``state``, in bytes.
_LEAST = 512
_NAMES = "parts/"
_PARTS = "state_parts"


@dataclass(frozen=True, repr=False)
class PackedState:
    """A state that is ready to be written.

    Attributes:
        head: the container of the value ``state``.
        parts: by their names; as many bytes are made of them as are written.
    """

    head: bytes
    parts: dict[bytes, NDArray[Any]]


def split_state(packed: Packed, key: bytes) -> PackedState:
    """Cost: a hash of all public arrays; only the others are packed."""
    rest, names = dict(packed.arrays), {}
    parts: dict[bytes, NDArray[Any]] = {}
    for array in sorted(packed.public):
        if rest[array].nbytes >= _LEAST:
            name = _name_of(rest[array], key)
            names[array] = name.hex()
            parts[name] = rest.pop(array)
    meta = {"state": packed.meta, _NAMES: names} if names else packed.meta
    return PackedState(container.dump(Packed(meta, rest)), parts)


def write_state(db: StoreDatabase, key: bytes, step: int, state: PackedState) -> None:
    """Write the state after a step, inside the caller's transaction.

    Args:
        key: of the store.

    Errors:
        StoreDamagedError: the state of the step before is not there.

    Cost: the bytes of the head and of the parts that are new.
    """
    if step_of(db, STATE_ROW) != step - 1:
        raise damaged_store("the stored state belongs to another step", db.where)
    there = _stored_parts(db)
    for name in sorted(there - state.parts.keys()):
        db.execute("DELETE FROM state_parts WHERE key = ?", (name,))
    for name in sorted(state.parts.keys() - there):
        put_values(db, _PARTS, [name], [container.dump(Packed({}, {"part": state.parts[name]}))])
    write_latest(db, key, STATE_ROW, step, state.head)


def read_state(db: StoreDatabase, key: bytes) -> Packed:
    """The state after the last step.

    Errors:
        StoreDamagedError: it, or a part of it, was changed or lost. StoreFormatError: written by another version.
    """
    head, names = _head(db, key)
    if not names:
        return head
    parts = {array: _part(db, name, derive(key, STATE)) for array, name in names.items()}
    return Packed(head.meta["state"], {**head.arrays, **parts})


def verify_state(db: StoreDatabase, key: bytes) -> str | None:
    """What is wrong with the state; None if nothing is."""
    try:
        read_state(db, key)
        named = set(_head(db, key)[1].values())
    except StoreError as error:
        return error.what
    return "the state has unnamed parts" if _stored_parts(db) - named else None


def _stored_parts(db: StoreDatabase) -> set[bytes]:
    return {bytes(name) for (name,) in db.execute("SELECT key FROM state_parts").fetchall()}


def _head(db: StoreDatabase, key: bytes) -> tuple[Packed, dict[str, bytes]]:
    """What the value ``state`` holds, and the names of the parts beside it."""
    stored = read_latest(db, key, STATE_ROW)
    if stored is None:
        raise damaged_store("the state is missing", db.where)
    head = container.load(stored[1], where=f"{db.where} (state)")
    return head, {array: bytes.fromhex(name) for array, name in head.meta.get(_NAMES, {}).items()}


def _part(db: StoreDatabase, name: bytes, key: bytes) -> NDArray[Any]:
    where = f"{db.where} (state)"
    row = db.execute("SELECT value FROM state_parts WHERE key = ?", (name,)).fetchone()
    if row is None:
        raise StoreDamagedError("a part of the state is missing", where=where)
    part = container.load(db.sealing.open(bytes(row[0]), _PARTS, name), where=where).arrays.get("part")
    if part is None or not hmac.compare_digest(_name_of(part, key), name):
        raise StoreDamagedError("a part of the state was changed", where=where)
    return part


def _name_of(array: NDArray[Any], key: bytes) -> bytes:
    """A keyed hash of type, shape, memory order and values."""
    entry, block = container.array_block("part", array)
    mac = hmac.new(key, repr(sorted(entry.items())).encode(), hashlib.sha256)
    mac.update(block)
    return mac.digest()


@dataclass(frozen=True)
class Reservation:
    """The committed intent to run one step on one batch."""

    step: int
    batch_id: str
    content: bytes


@dataclass(frozen=True)
class Decision:
    """What somebody decided about a committed step. Not public.

    Attributes:
        kind: ``approved``, ``withdrawn`` or ``rejected``.
        by: the name that was given.
        time: UTC, by the owner's clock.
    """

    step: int
    kind: str
    by: str
    time: str


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
    """Everything that one step commits; ``files`` are the released files without the manifest, and ``forgets`` says
    whether counters of users are deleted after it."""

    reservation: Reservation
    definition: str
    spent: str
    parts: bytes
    state: PackedState
    synthesis: bytes
    manifest: bytes
    files: dict[str, Content]
    test_seed: bool
    publication: str
    keep: int | None
    position: str | None = None
    users: UserEvents | ShardedEvents | None = None
    cut: CutUsers = NONE_CUT
    keyed: PresentChange | ShardedEvents | None = None
    values: ValueCounts | None = None
    forgets: bool = False
