"""What a step is in the store: reserved, computed, committed, in the ledger; and its packed state, in parts.

What is public in a state and stays the same from step to step is written once. The row of ``state`` holds a container
(``container.py``) with everything that is small or private, and names the large public arrays, which are rows of
``state_parts``. The name of a part is a keyed hash of its content, so it tells whether the part was changed. A step
writes the parts that are not there and deletes those that nothing names any more, inside its transaction.

Only arrays that ``Packed.public`` lists become parts: that one is not written tells whoever sees the writing (the
server of an encrypted store) that it did not change, and private numbers may not tell that."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from dpstream.core.contracts import Packed, ShardedEvents, UserEvents
from dpstream.core.errors import StoreDamagedError, StoreError
from dpstream.io.sinks.table_files import Content
from dpstream.stream.store import container
from dpstream.stream.store.present_rows import PresentChange
from dpstream.stream.store.store_database import StoreDatabase

#: What the key of the names is derived for.
STATE = b"parts of the state"
#: Smaller arrays stay in the row of ``state``, in bytes.
_LEAST = 512
_NAMES = "parts/"
_KIND = "state part"


@dataclass(frozen=True, repr=False)
class PackedState:
    """A state that is ready to be written.

    Attributes:
        head: the container of the row of ``state``.
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


def write_state(db: StoreDatabase, step: int, state: PackedState) -> bool:
    """Write the state after a step, inside the caller's transaction; False where the one before it is not there.

    Cost: the bytes of the row of ``state`` and of the parts that are new.
    """
    there = {bytes(name) for (name,) in db.execute("SELECT name FROM state_parts").fetchall()}
    for name in sorted(there - state.parts.keys()):
        db.execute("DELETE FROM state_parts WHERE name = ?", (name,))
    for name in sorted(state.parts.keys() - there):
        data = container.dump(Packed({}, {"part": state.parts[name]}))
        db.execute("INSERT INTO state_parts VALUES (?, ?)", (name, db.sealing.seal(data, _KIND, name)))
    head = db.sealing.seal(state.head, "state", step)
    updated = db.execute("UPDATE state SET step = ?, packed = ? WHERE step = ?", (step, head, step - 1))
    return updated.rowcount == 1


def read_state(db: StoreDatabase, step: int, key: bytes) -> Packed:
    """The state after a step.

    Errors:
        StoreDamagedError: it, or a part of it, was changed or lost. StoreFormatError: written by another version.
    """
    head, names = _head(db, step)
    if not names:
        return head
    parts = {array: _part(db, name, key) for array, name in names.items()}
    return Packed(head.meta["state"], {**head.arrays, **parts})


def verify_state(db: StoreDatabase, step: int, key: bytes) -> str | None:
    """What is wrong with the state; None if nothing is."""
    try:
        read_state(db, step, key)
        named = set(_head(db, step)[1].values())
    except StoreError as error:
        return error.what
    stored = {bytes(name) for (name,) in db.execute("SELECT name FROM state_parts").fetchall()}
    return "there are parts of the state that it does not name" if stored - named else None


def _head(db: StoreDatabase, step: int) -> tuple[Packed, dict[str, bytes]]:
    """What the row of ``state`` holds, and the names of the parts beside it."""
    (data,) = db.execute("SELECT packed FROM state").fetchone()
    head = container.load(db.sealing.open(bytes(data), "state", step), where=f"{db.where} (state)")
    return head, {array: bytes.fromhex(name) for array, name in head.meta.get(_NAMES, {}).items()}


def _part(db: StoreDatabase, name: bytes, key: bytes) -> NDArray[Any]:
    where = f"{db.where} (state)"
    row = db.execute("SELECT packed FROM state_parts WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise StoreDamagedError("a part of the state is missing", where=where)
    part = container.load(db.sealing.open(bytes(row[0]), _KIND, name), where=where).arrays.get("part")
    if part is None or not hmac.compare_digest(_name_of(part, key), name):
        raise StoreDamagedError("a part of the state was changed", where=where)
    return part


def _name_of(array: NDArray[Any], key: bytes) -> bytes:
    """A keyed hash of type, shape, memory order and values."""
    entry, block = container.array_block("part", array)
    mac = hmac.new(key, repr(sorted(entry.items())).encode(), hashlib.sha256)
    mac.update(block)
    return mac.digest()


#: Stands where the kind of a failure stands, in a store that a copy replaced.
RESTORED = "a restored copy"


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
    """Everything that one step commits; ``files`` are the released files without the manifest."""

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
    keyed: PresentChange | ShardedEvents | None = None


@dataclass(frozen=True)
class LedgerEntry:
    """What one step cost each unit in it; ``parts`` as the plan stated them, amounts exact."""

    step: int
    definition: str
    spent: Fraction
    parts: tuple[dict[str, Any], ...]
