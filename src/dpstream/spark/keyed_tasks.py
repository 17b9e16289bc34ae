"""What executors run where records have keys and change: rows go to their key's shard, and each shard applies them.

Guarantee: what becomes of a key follows from that key's own rows in the step, in the order that a column of theirs
says, and from the record that is committed for it, as in one process (``core.tables.keyed_reading``, which runs here).
A shard's task is a pure function of the multiset of its rows and of the committed file: one that is tried again writes
another file with the same content, and Spark takes one of its results, which names its file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import CounterShards, ReadRequest
from dpstream.core.errors import DataError
from dpstream.core.schema.column import PROBLEM_KINDS
from dpstream.core.tables import KeyedBatch, KeyedChanges
from dpstream.core.tables.counter_files import Generation, read_present_shard, shard_of, write_present_shard
from dpstream.core.tables.counting import count_plan
from dpstream.core.tables.keyed_reading import (
    DELETE,
    UPSERT,
    EventsError,
    SortedRows,
    encode_events,
    hash_keys,
    operation_numbers,
    sorted_by_key,
)
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES
from dpstream.core.tables.present_table import PresentTable, search_keys
from dpstream.spark.tasks import (
    NO_ID,
    WRONG_OPERATION,
    Tally,
    attempt,
    guarded,
    part_rows,
    partition,
    row_blocks,
)
from dpstream.spark.user_tasks import PROBLEMS, shard_batch, written_file

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.core.schema.domain import Clique
    from dpstream.io.sources.operations import KeyedOperations

#: More bits of a tally's last entry: a row without an order, events that the rules refuse, a key that came back.
NO_ORDER = 4
REFUSED = {"several": 8, "delete": 16, "update": 32, "insert": 64}
RETURNS = 128
#: Before some rows: how many. Their hashed keys follow, their order, their operations, and their codes.
_HEAD = struct.Struct("<Q")

Codes = NDArray[np.int32]


@dataclass(frozen=True, repr=False)
class KeyedColumns:
    """What the rows of a step have beside the columns of the schema.

    Attributes:
        batch: the names of the columns of keys and operations, and the rules; no events.
        words: of the operations; None: each row says what its record is.
        order: the column that says which row of a key comes first; None: nothing does.
        secret: that keys are hashed with.
    """

    batch: KeyedBatch
    words: KeyedOperations | None
    order: str | None
    secret: bytes

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        found = (self.batch.key, self.batch.operation, self.order)
        return tuple(dict.fromkeys(name for name in found if name is not None))


@dataclass(frozen=True, repr=False)
class _Rows:
    """Rows of some keys, in any order. Private."""

    keys: NDArray[np.uint64]
    order: NDArray[np.int64]
    operations: NDArray[np.int64]
    codes: Codes

    def pack(self, chosen: NDArray[np.intp], kind: np.dtype[Any]) -> bytes:
        """Some of them as bytes."""
        columns = (
            self.keys[chosen].astype("<u8"),
            self.order[chosen].astype("<i8"),
            self.operations[chosen].astype(np.uint8),
            np.ascontiguousarray(self.codes[chosen], kind),
        )
        return _HEAD.pack(len(chosen)) + b"".join(one.tobytes() for one in columns)

    @classmethod
    def unpack(cls, data: bytes, kind: np.dtype[Any]) -> _Rows:
        """The inverse."""
        (number,) = _HEAD.unpack_from(data)
        found, start = [], _HEAD.size
        for one, width in (("<u8", 16), ("<i8", 8), ("u1", 1)):
            found.append(np.frombuffer(data[start : start + width * number], one))
            start += width * number
        keys, order, operations = found
        codes = np.frombuffer(data[start:], kind).reshape(number, -1).astype(np.int32)
        return cls(
            keys.reshape(-1, 2).astype(np.uint64), order.astype(np.int64), operations.astype(np.int64), codes
        )

    @classmethod
    def joined(cls, parts: list[_Rows]) -> _Rows:
        """All rows of one shard, those of a key in their order."""
        keys, order, operations, codes = (
            np.concatenate([getattr(one, name) for one in parts])
            for name in ("keys", "order", "operations", "codes")
        )
        by = np.lexsort((order, keys[:, 1], keys[:, 0]))
        return cls(keys[by], order[by], operations[by], codes[by])

    def tied(self) -> bool:
        """Whether nothing says which of two rows of one key comes first; they ascend."""
        same = (self.keys[1:] == self.keys[:-1]).all(axis=1) & (self.order[1:] == self.order[:-1])
        return bool(same.any())


@dataclass(frozen=True, repr=False)
class SpreadingKeys:
    """Encodes the rows of a partition, and sends them to the shards of their keys.

    Attributes:
        version: of the package on the driver.
        schema: the columns.
        columns: the others.
        number: of shards.
    """

    version: str
    schema: Schema
    columns: KeyedColumns
    number: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Rows of ``SHARDED``, some for each block and shard.

        Errors:
            TaskFailure: anything but rows that do not fit, which are told in a tally.
        """
        yield from guarded(self.version, self._parts(batches))

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        tally = Tally.empty(len(self.schema))
        for table in row_blocks(batches):
            found = self._encoded(table, tally)
            if found is not None:
                yield shard_batch(list(self._spread(found)))
        if tally.problems.any():
            yield shard_batch([(PROBLEMS, tally.pack())])

    def _spread(self, rows: _Rows) -> Iterator[tuple[int, bytes]]:
        kind = _signed(self.schema)
        shards = shard_of(rows.keys, self.number)
        order = np.argsort(shards, kind="stable")
        starts = np.searchsorted(shards[order], np.arange(self.number + 1))
        for shard in np.flatnonzero(np.diff(starts)).tolist():
            yield shard, rows.pack(order[starts[shard] : starts[shard + 1]], kind)

    def _encoded(self, table: Any, tally: Tally) -> _Rows | None:
        """The rows; None where some do not fit, which ``tally`` is told."""
        own, wrong = self.columns, 0
        operations = np.full(table.num_rows, UPSERT, np.int64)
        if own.words is not None:
            name = str(own.batch.operation)
            try:
                meaning, keep = own.words.read(table.column(name), name=name, where="")
            except DataError:
                tally.problems[-1] |= WRONG_OPERATION  # which rows are deletes is not known: no other look
                return None
            table, operations = table.filter(keep), operation_numbers(meaning)
        keys = np.zeros((0, 2), np.uint64)
        try:
            keys = hash_keys(table.column(own.batch.key), own.secret, "")
        except DataError:
            wrong |= NO_ID
        order = np.zeros(table.num_rows, np.int64)
        if own.order is not None:
            column = table.column(own.order)
            if column.null_count:
                wrong |= NO_ORDER
            else:
                order = _whole_numbers(column)
        tally.problems[-1] |= wrong
        codes = self._codes(table.select(list(self.schema.names)), operations, tally)
        return None if wrong or codes is None else _Rows(keys, order, operations, codes)

    def _codes(self, table: Any, operations: NDArray[np.int64], tally: Tally) -> Codes | None:
        import pyarrow as pa

        keeping = self.columns.batch.changed is not None
        try:
            return encode_events(table, operations, self.schema, "", keeping=keeping)
        except DataError:
            for problem in self.schema.problems(table.filter(pa.array(operations != DELETE))):
                if not (keeping and problem.kind == "null"):
                    bit = 1 << PROBLEM_KINDS.index(problem.kind)
                    tally.problems[self.schema.domain.index(problem.column)] |= bit
        return None


@dataclass(frozen=True, repr=False)
class Before:
    """The present records that a step changes, and where it writes them.

    Attributes:
        folder: of the files.
        shards: the committed ones.
        generation: of the files that are written.
        step: that comes.
        keep_keys: whether hashes of keys that left are kept, because no key may come back.
    """

    folder: str
    shards: CounterShards
    generation: Generation
    step: int
    keep_keys: bool


@dataclass(frozen=True, repr=False)
class Applying:
    """Hashes the rows of some shards; with ``before`` it applies them to the present records, and writes those anew.

    The counts of a part are of the records that left, by their first step.

    Attributes:
        version: of the package on the driver.
        schema: the columns.
        batch: the rules.
        row_key: the half of the hash's key that rows are hashed with.
        apart: the number of parts that the results are spread over.
        before: the present records; None: rows are hashed, and looked at by themselves.
    """

    version: str
    schema: Schema
    batch: KeyedBatch
    row_key: bytes
    apart: int
    before: Before | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One part; nothing for a partition without rows.

        Errors:
            TaskFailure: a file was changed, or anything else. OSError: a file cannot be read or written.
        """
        yield from guarded(self.version, self._parts(batches))

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        tally, kind, some = Tally.empty(len(self.schema)), _signed(self.schema), False
        left = np.zeros(0 if self.before is None else self.before.step, np.int64)
        found: dict[int, list[_Rows]] = {}
        for batch in batches:
            for shard, data in zip(batch.column("shard").to_pylist(), batch.column("data"), strict=True):
                some = True
                if shard == PROBLEMS:
                    tally.add(Tally.unpack(data.as_py()))
                else:
                    found.setdefault(shard, []).append(_Rows.unpack(data.as_py(), kind))
        for shard in sorted(found):
            try:
                self._apply(shard, _Rows.joined(found.pop(shard)), tally, left)
            except EventsError as error:
                if error.column is None:
                    tally.problems[-1] |= REFUSED[error.kind]
                else:
                    at = self.schema.domain.index(error.column)
                    tally.problems[at] |= 1 << PROBLEM_KINDS.index(error.kind)
        if some:
            yield from part_rows(partition() % self.apart, tally, left)

    def _apply(self, shard: int, given: _Rows, tally: Tally, left: NDArray[np.int64]) -> None:
        if self.batch.rules.repeated != "error" and given.tied():
            tally.problems[-1] |= REFUSED["several"]
            return
        wanted = ReadRequest("present", self.schema, "record", None, b"", "")
        granted = sorted_by_key(self.batch, wanted, given.keys, given.operations, given.codes)
        assert isinstance(granted.rows, SortedRows)
        key = self.row_key + bytes(HASH_KEY_BYTES - len(self.row_key))
        tally.here = tally.here.merge(granted.rows.content(key))
        own = self.before
        if own is None:
            return
        assert granted.keyed is not None
        folder, domain = Path(own.folder), self.schema.domain
        present, departed = read_present_shard(folder, own.shards.files.get(shard, ()), domain)
        effect = granted.keyed.changes(present)
        changes = KeyedChanges(effect.keys, effect.present, effect.codes)
        _, there = present.find(changes.keys)
        if own.keep_keys:
            if search_keys(departed, changes.keys[changes.present & ~there])[1].any():
                tally.problems[-1] |= RETURNS
                return
            departed = np.concatenate([departed, changes.keys[there & ~changes.present]])
            departed = departed[np.lexsort((departed[:, 1], departed[:, 0]))]
        after, gone = present.after(changes, own.step)
        left += np.bincount(gone, minlength=len(left))
        if len(changes.keys):
            tried = attempt()
            name = own.generation.file_name(shard, tried)
            file = write_present_shard(folder, own.generation, name, after, departed)
            tally.written += written_file(shard, 0, file, tried)


@dataclass(frozen=True, repr=False)
class CountingPresent:
    """Counts the present records of some shards, of files that do not change.

    Attributes:
        version: of the package on the driver.
        schema: the columns.
        cliques: what is counted.
        after: of the records whose first step is later.
        folder, shards: the files.
        apart: the number of parts that the results are spread over.
    """

    version: str
    schema: Schema
    cliques: tuple[Clique, ...]
    after: int
    folder: str
    shards: CounterShards
    apart: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One part, of the shards that the column ``id`` names.

        Errors:
            TaskFailure: a file was changed, or anything else. OSError: a file cannot be read.
        """
        yield from guarded(self.version, self._parts(batches))

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        domain, some = self.schema.domain, False
        counts = np.zeros(count_plan(domain, self.cliques).cells, np.int64)
        for batch in batches:
            for shard in batch.column("id").to_pylist():
                files = self.shards.files.get(shard, ())
                if files:
                    table, some = read_present_shard(Path(self.folder), files, domain)[0], True
                    counts += np.concatenate(table.count(self.cliques, self.after))
        if some:
            yield from part_rows(partition() % self.apart, Tally.empty(len(self.schema)), counts)


def _signed(schema: Schema) -> np.dtype[Any]:
    """The type of codes on their way: narrow, with room for the one that says nothing."""
    return PresentTable.empty(schema.domain).codes.dtype


def _whole_numbers(column: Any) -> NDArray[np.int64]:
    """Whole numbers, days and moments as numbers that ascend with them."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    found = column.cast(pa.int64()).to_numpy()
    return np.asarray(found, np.int64)
