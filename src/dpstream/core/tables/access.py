"""What a stream asks of a batch, and what a batch grants: rows in this process, or an engine that counts elsewhere.

What is known of each user or key between the steps of a stream is rows of its store, or files of its state. A few
million of them are rows (``UserEvents`` says which ones a step changes). Those of an engine whose executors
count are files, in shards by the first bits of a user's keyed hash: each file is written once, and the step's
transaction says which files are believed (``ShardedEvents``). Records with keys are kept in the same way: a row of a
file is then a record that is present (``core.tables.counter_files``), and a user is a key.

Trusted base: kernel (grants private records to mechanisms).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import BatchReads, PresentRecords, PrivateBatch
from dpstream.core.errors import ConfigError
from dpstream.core.schema import Problem, Schema
from dpstream.core.schema.domain import Clique
from dpstream.core.tables.present_table import KeyedChanges, PresentTable

#: Bytes of a counter in a file.
COUNTER = 4


@dataclass(frozen=True, repr=False)
class UserEvents:
    """The counters that a step changes: for each user of its batch, the counter before and after; and how many events
    it left out, and of how many users for the first time. Private."""

    ids: list[bytes]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    dropped: int
    cut: int


@dataclass(frozen=True, repr=False)
class CounterFile:
    """One file of counters. Private.

    Attributes:
        name: unlike that of any other file that was ever begun.
        users: how many rows it has; its size follows.
        tag: binds its content; a changed file does not fit.
        key: that it is encrypted with; 32 bytes, the same for the files of one step.
        width: bytes of a row beside its hashed id; those of a counter.
    """

    name: str
    users: int
    tag: bytes
    key: bytes
    width: int = COUNTER


@dataclass(frozen=True, repr=False)
class CounterShards:
    """All counters of a stream's users, in files. Private.

    Attributes:
        number: of shards, a power of two; the first bits of a user's hash are the shard.
        files: for a shard its files, the oldest first. A counter in a later one stands in the place of an earlier one.
    """

    number: int
    files: Mapping[int, tuple[CounterFile, ...]] = field(default_factory=dict)

    def all_files(self) -> list[CounterFile]:
        """Of all shards."""
        return [file for shard in sorted(self.files) for file in self.files[shard]]


@dataclass(frozen=True, repr=False)
class ShardedEvents:
    """The counters after a step, in files that are on the disk, and how many events it left out, and of how many users
    for the first time. Private."""

    shards: CounterShards
    dropped: int
    cut: int


@dataclass(frozen=True, repr=False)
class PresentShards:
    """The records with keys that are present before a step, in files. Private.

    Attributes:
        folder: of the files, which may not be there.
        shards: the committed ones; None before the first step.
        step: the number of the one that comes.
        keep_keys: whether hashes of keys that left are kept, because no key may come back.
        content_key: that the step's rows are hashed with (``BatchRows.fingerprint``): what is applied has that hash.
    """

    folder: Path
    shards: CounterShards | None
    step: int
    keep_keys: bool
    content_key: bytes


class UserCounters(Protocol):
    """The committed counters of a stream's users."""

    def __call__(self, ids: list[bytes]) -> NDArray[np.int64]:
        """Events admitted of some users, by the keyed hashes of their ids.

        Errors:
            ConfigError: the counters are files, which an engine's executors read.
        """
        ...

    def in_files(self) -> tuple[Path, CounterShards | None]:
        """The folder of the files, which may not be there, and the committed ones; None before the first step.

        Errors:
            ConfigError: the counters are rows of the store.
        """
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


class KeyedRows(Protocol):
    """The keyed records of a step, before it is known which keys are there."""

    def changes(self, present: PresentTable) -> KeyedChanges:
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
        max_events: how many events of a user are admitted; None where the unit is not a user.
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


def refuse_open(columns: Sequence[str], where: str) -> None:
    """ConfigError where columns are open: an engine grants counts, and their values would have to leave it."""
    if columns:
        raise ConfigError(
            "values of records that stay in Spark cannot be discovered",
            where=where,
            allowed="a source of files or PostgreSQL, or a list of values",
        )


@runtime_checkable
class CheckedBatch(EngineBatch, Protocol):
    """An engine's batch that can say what keeps its records from being counted, for ``dpstream check``."""

    def problems(self, schema: Schema, where: str) -> list[Problem]:
        """All problems of all columns, without a value."""
        ...


@dataclass(frozen=True)
class FrameKind:
    """The object of an entry point of the group ``dpstream.frames``.

    Attributes:
        batch: makes the batch of inserts (a frame of the engine), deletes (another one, or None) and users (as given).
            It gives None for an object of that package that is not a frame of the engine.
        keyed: the same, of a ``KeyedBatch`` or ``Snapshot`` whose rows are such a frame; None: the engine keeps no
            records by key.
    """

    batch: Callable[[Any, Any, Any], EngineBatch | None]
    keyed: Callable[[Any], EngineBatch | None] | None = None
