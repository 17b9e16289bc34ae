"""What a step is in the store: reserved, computed, committed, and in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpstream.core.contracts import ShardedEvents, UserEvents
from dpstream.io.sinks.staged_file import Content
from dpstream.stream.store.present_rows import PresentChange
from dpstream.stream.store.state_parts import PackedState

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
