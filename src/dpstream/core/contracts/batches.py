"""What a mechanism reads of a private batch, and what an engine that counts elsewhere has to offer a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts.user_counters import PresentShards, ShardedEvents, UserCounters, UserEvents
from dpstream.core.schema.domain import Clique

if TYPE_CHECKING:
    from dpstream.core.schema import Problem, Schema

#: ``counts``: nothing but marginal counts. ``records``: the inserted records, too. ``reports``: whose they are, too.
#: ``present``: instead of what a step brings, the keyed records that are there at its end.
BatchReads = Literal["counts", "records", "reports", "present"]
#: Which records of a batch are counted: those that come less those that go, or one of the two.
Events = Literal["net", "inserts", "deletes"]


class PresentRecords(Protocol):
    """The keyed records that are present at the end of a step, each with its first step: the step that read its
    insert. Private."""

    def count(self, cliques: Sequence[Clique], after: int) -> list[NDArray[np.int64]]:
        """Flat (C order) marginal counts of the records whose first step is later than ``after``."""
        ...

    @property
    def departed(self) -> NDArray[np.int32]:
        """First steps of the records that were present at the end of the step before and are not now; any order."""
        ...


class PrivateBatch(Protocol):
    """One step's private records, as a mechanism sees them: what was not granted is None."""

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[NDArray[np.int64]]:
        """Flat (C order) marginal counts, one array of ``domain.cells(clique)`` per clique.

        ``net`` is inserts minus deletes and may be negative.
        """
        ...

    @property
    def declares_deletes(self) -> bool:
        """Whether the batch was given deletes at all, an empty table included: a public fact of the source."""
        ...

    @property
    def records(self) -> NDArray[np.int32] | None:
        """Codes of the inserted records, shape (records, columns)."""
        ...

    @property
    def marks(self) -> NDArray[np.uint8] | None:
        """Keyed marks of the people whose ``records`` they are, shape (records, 16): ascending and different."""
        ...

    @property
    def present(self) -> PresentRecords | None:
        """What is there at the end of the step, where records have keys."""
        ...


class BatchBase:
    """Base of a ``PrivateBatch``: nothing beside its counts is granted but what a subclass grants."""

    __slots__ = ()

    @property
    def records(self) -> NDArray[np.int32] | None:
        """None: the records are not granted."""
        return None

    @property
    def marks(self) -> NDArray[np.uint8] | None:
        """None: whose records they are is not granted."""
        return None

    @property
    def present(self) -> PresentRecords | None:
        """None: the records have no keys, or what is present is not granted."""
        return None


@runtime_checkable
class CancellingBatch(Protocol):
    """A ``PrivateBatch`` that can leave out what comes and goes within it."""

    def without_cancelled(self) -> PrivateBatch:
        """Inserts without equal deletes, and deletes without equal inserts, as bags of whole rows."""
        ...


class BoundedBatch(Protocol):
    """A batch that knows whose records it holds, before it is decided which of them are admitted."""

    def admit(self, counters: UserCounters, /) -> tuple[PrivateBatch, UserEvents | ShardedEvents]:
        """The batch as the mechanism may see it, and what its step commits.

        Args:
            counters: the committed ones, so that a step that is computed afresh after a crash admits the same records.
        """
        ...


class BatchRows(Protocol):
    """The records of a batch as a multiset, which tells whether a batch comes again. Private."""

    def fingerprint(self, key: bytes) -> bytes:
        """The same for the same records (and owners) in any order and any partition, and for no others but by a chance
        that the secret ``key`` makes negligible (``MultisetHash``)."""
        ...


class KeyedTable(Protocol):
    """The present records as they were committed, for a batch of keyed records (``core.tables.PresentTable``).
    Private."""

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Hashed keys, shape (records, 2): ascending and different."""
        ...

    @property
    def codes(self) -> NDArray[np.integer]:
        """Shape (records, columns)."""
        ...

    def find(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where each key is, or would be, and whether it is there."""
        ...


class KeyedEffect(Protocol):
    """What a step changes of the present records (``core.tables.KeyedChanges``). Private."""

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Hashed keys that the step names, shape (changes, 2): ascending and different."""
        ...

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether each is present at the end of the step."""
        ...

    @property
    def codes(self) -> NDArray[np.int32]:
        """Values of those that are present, in their order."""
        ...


class KeyedRows(Protocol):
    """The keyed records of a step, before it is known which keys are there."""

    def changes(self, present: KeyedTable) -> KeyedEffect:
        """What they change.

        Errors:
            DataError: the declared rules refuse them. Nothing was spent, and nothing is reserved.
        """
        ...


class KeyedShards(Protocol):
    """The keyed records of a step, where an engine keeps the present ones in files."""

    def apply(self, present: PresentShards, /) -> tuple[PresentRecords, ShardedEvents]:
        """The records that are present after the step, in files that are on the disk; none of them is believed before
        the step's transaction names it.

        Errors:
            DataError: the declared rules refuse them, or a key came back where none may. Nothing was spent, and nothing
                is reserved. StoreDamagedError: a file is not what was committed.
        """
        ...


@dataclass(frozen=True)
class ReadRequest:
    """What a stream asks of a batch.

    Attributes:
        reads: what the mechanism reads.
        schema: the columns, as whose codes it reads records.
        unit: name of the unit of protection.
        max_events: how many events of a user are admitted; None where the unit is no user.
        key: secret; ids and record keys are only ever seen as hashes of 16 bytes with this key.
        where: for messages.
        cliques: what the mechanism will count, as far as that is known before (``StreamPlan.asked_cliques``): an
            engine can count it in the pass that makes the content hash.
    """

    reads: BatchReads
    schema: Schema
    unit: str
    max_events: int | None
    key: bytes
    where: str
    cliques: tuple[Clique, ...] = ()


@dataclass(frozen=True, repr=False)
class BatchAccess:
    """What a batch gives a stream.

    Attributes:
        view: all of it, for a mechanism that reads what was wanted; None where ``keyed`` says it.
        rows: the records as a multiset; the stream keeps a keyed hash of it. Of keyed records it does not depend on
            which of them are present.
        bounded: the batch before records are admitted, where the events of users are bounded.
        keyed: where a mechanism reads the records that are present.
        sharded: the same, where the engine keeps those that are present.
    """

    view: PrivateBatch | None
    rows: BatchRows
    bounded: BoundedBatch | None = None
    keyed: KeyedRows | None = None
    sharded: KeyedShards | None = None


@runtime_checkable
class EngineBatch(Protocol):
    """One step's private records, wherever they are: what ``Stream.step`` takes beside a ``Batch`` of frames."""

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        """Give what is wanted, and nothing beyond it.

        Errors:
            DataError, SchemaError: records that do not fit. Nothing was spent.
        """
        ...


@runtime_checkable
class CheckedBatch(EngineBatch, Protocol):
    """An engine's batch that can say what keeps its records from being counted, for ``dpstream check``."""

    def problems(self, schema: Schema, where: str) -> list[Problem]:
        """All problems of all columns, without a value."""
        ...
