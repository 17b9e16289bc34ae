"""What runs in Spark's executors: count, hash and check the rows of one partition, and add such parts up.

Executors get the public schema, the cliques and the half of the hash's key that rows are hashed with. They get no
budget and no entropy, and give back counts, sums of hashes and marks of problems: never a row, never a text of one.
A task is a pure function of its partition, so that one that is tried again or run twice changes nothing: Spark takes
one of its results. (Accumulators would add both.)

A part is a few rows of ``(part, chunk, data)``: chunk -1 is the ``Tally``, chunks from 0 on are blocks of counts.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import gc
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.schema.arrow import valid_text
from dpstream.core.schema.code_blocks import CodeBlocks, narrow_type
from dpstream.core.schema.column import PROBLEM_KINDS, Problem
from dpstream.core.tables import MultisetHash
from dpstream.core.tables.contribution import Words, hash_ids, id_bytes, owner_words
from dpstream.core.tables.counter_files import shard_of
from dpstream.core.tables.counting import add_counts, count_plan
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.core.schema.domain import Clique
    from dpstream.io.sources.operations import Operations

#: The columns of a part, as Spark names types.
PART_TYPE = "part int, chunk int, data binary"
#: Counts in one row of a part: 2 MiB.
_CHUNK = 2**18
_ROWS = 2**16
_TALLY = -1
_WORDS = struct.Struct("<8Q")
#: The columns of rows on their way to their shards, as Spark names types.
SHARDED = "shard int, data binary"
#: Stands in the place of a shard where the data is a tally: some rows did not fit.
_PROBLEMS = -1
#: Before some rows: how many, and whether they have an order. Their ids follow, their order, what they do, their codes.
_HEAD = struct.Struct("<QB")
#: Bits of a tally's last entry: an operation that is none, an id that is none, a row without an order.
WRONG_OPERATION, NO_ID, NO_ORDER = 1, 2, 4


class TaskFailure(Exception):
    """A task failed. Spark shows and logs this text; it holds the name of what failed and nothing of the rows."""


@dataclass
class Tally:
    """What a part knows beside its counts. Private.

    Attributes:
        here, gone: hashes of the inserts and of the deletes.
        problems: for each column, bits of ``PROBLEM_KINDS``; the last entry is for the operations and the user ids.
        dropped: rows that are left out, because their users have reached the bound.
        written: which files of users or records were written (``user_tasks.written_file``).
    """

    problems: NDArray[np.uint8]
    here: MultisetHash = field(default_factory=MultisetHash)
    gone: MultisetHash = field(default_factory=MultisetHash)
    dropped: int = 0
    written: bytes = b""

    @classmethod
    def empty(cls, columns: int) -> Self:
        """Of no rows."""
        return cls(np.zeros(columns + 1, np.uint8))

    def pack(self) -> bytes:
        """As bytes. Rows and totals share no field, so nothing overflows below 2^64 rows."""
        words = [self.dropped, len(self.problems)]
        for one in (self.here, self.gone):
            words += [one.rows, one.total % 2**64, one.total >> 64]
        return _WORDS.pack(*words) + self.problems.tobytes() + self.written

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of ``pack``."""
        dropped, columns, *words = _WORDS.unpack_from(data)
        one, two = (MultisetHash(words[i + 1] | words[i + 2] << 64, words[i]) for i in (0, 3))
        end = _WORDS.size + columns
        return cls(np.frombuffer(data[_WORDS.size : end], np.uint8).copy(), one, two, dropped, data[end:])

    def mark(self, schema: Schema, problems: Iterable[Problem]) -> None:
        """Remember what kept values from having a code."""
        for problem in problems:
            self.problems[schema.domain.index(problem.column)] |= 1 << PROBLEM_KINDS.index(problem.kind)

    def add(self, other: Tally) -> None:
        """Take in another part."""
        self.here, self.gone = self.here.merge(other.here), self.gone.merge(other.gone)
        self.problems |= other.problems
        self.dropped += other.dropped
        self.written += other.written


@dataclass(frozen=True, repr=False)
class Ids:
    """Where a row says whose it is.

    Attributes:
        column: of the ids.
        key: that they are hashed with.
        what: an id is called in messages.
    """

    column: str
    key: bytes
    what: str = "user id"


@dataclass(frozen=True, repr=False)
class Rows:
    """Rows of a block, or of a shard. Private.

    Attributes:
        codes: rows x columns.
        does: what each does: of rows without keys whether it leaves, of others its operation.
        ids: the hashed ids of their users or records, two words each; None: nobody's.
        order: which row of an id comes first, where something says so.
    """

    codes: NDArray[Any]
    does: NDArray[np.uint8]
    ids: Words | None = None
    order: NDArray[np.int64] | None = None

    def taken(self, chosen: NDArray[Any]) -> Rows:
        """Some of them, by a mask or by their places."""
        ids, order = (None if cells is None else cells[chosen] for cells in (self.ids, self.order))
        return Rows(self.codes[chosen], self.does[chosen], ids, order)

    def side(self, *, leave: bool) -> Rows:
        """Those that leave, or those that come."""
        chosen = self.does == leave
        return self if chosen.all() else self.taken(chosen)

    def spread(self, number: int, kind: np.dtype[Any]) -> Iterator[tuple[int, bytes]]:
        """The rows of each shard as bytes, with codes of a type."""
        assert self.ids is not None
        shards = shard_of(self.ids, number)
        order = np.argsort(shards, kind="stable")
        starts = np.searchsorted(shards[order], np.arange(number + 1))
        for shard in np.flatnonzero(np.diff(starts)).tolist():
            rows = self.taken(order[starts[shard] : starts[shard + 1]])
            assert rows.ids is not None
            ordered = b"" if rows.order is None else rows.order.astype("<i8").tobytes()
            head = _HEAD.pack(len(rows.does), rows.order is not None) + rows.ids.astype("<u8").tobytes()
            codes = np.ascontiguousarray(rows.codes, kind)
            yield shard, head + ordered + rows.does.astype("u1").tobytes() + codes.tobytes()

    @classmethod
    def unpack(cls, data: bytes, kind: np.dtype[Any]) -> Rows:
        """The rows of one shard that ``spread`` gave."""
        number, ordered = _HEAD.unpack_from(data)
        ends = np.cumsum([_HEAD.size, 16 * number, 8 * number * ordered, number]).tolist()
        ids, order, does = (
            np.frombuffer(data[start:end], name)
            for start, end, name in zip(ends, ends[1:], ("<u8", "<i8", "u1"), strict=False)
        )
        codes = np.frombuffer(data[ends[-1] :], kind).reshape(number, -1).astype(np.int32)
        words = ids.reshape(-1, 2).astype(np.uint64)
        return cls(codes, does, words, order.astype(np.int64) if ordered else None)

    @classmethod
    def joined(cls, parts: list[Rows]) -> Rows:
        """All rows of one shard."""
        codes, does = (
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.does for part in parts]),
        )
        ids = [part.ids for part in parts if part.ids is not None]
        order = [part.order for part in parts if part.order is not None]
        return cls(codes, does, np.concatenate(ids), np.concatenate(order) if order else None)

    def hash_into(self, tally: Tally, key: bytes) -> CodeBlocks:
        """Add the hash of these rows, which all come or all leave, and of their users to a tally; gives their codes."""
        blocks, leave = code_blocks(self.codes), bool(self.does.any())
        words = None if self.ids is None else owner_words(self.ids)
        content = MultisetHash.of(blocks, words, key, deletes=leave)
        if leave:
            tally.gone = tally.gone.merge(content)
        else:
            tally.here = tally.here.merge(content)
        return blocks


def code_blocks(codes: NDArray[Any]) -> CodeBlocks:
    """Codes as the compiled loops read them in one process, for which they are compiled."""
    codes = np.asfortranarray(codes, np.int32)
    codes.flags.writeable = False
    return CodeBlocks(codes.shape[1], [codes])


def padded(row_key: bytes) -> bytes:
    """The half of a key that rows are hashed with, at the length of a whole one."""
    return row_key + bytes(HASH_KEY_BYTES - len(row_key))


def require_version(version: str) -> None:
    """That an executor has the driver's version of this package (TaskFailure)."""
    from dpstream.core.version import __version__

    if __version__ != version:
        raise TaskFailure(f"dpstream {__version__} is installed here, and {version} on the driver")


def guarded(version: str, parts: Iterator[Any]) -> Iterator[Any]:
    """What a task gives, from an executor that has the driver's version of this package.

    Errors:
        TaskFailure: another version, or the task failed; nothing of its rows is said.
    """
    require_version(version)
    failed = None
    try:
        yield from parts
    except (MemoryError, OSError):
        raise  # the machine's, not the rows': Spark tries again elsewhere
    except Exception as error:  # noqa: BLE001 (its text may quote a row, and Spark logs every text)
        failed = type(error).__name__
    if failed is not None:
        raise TaskFailure(f"a partition cannot be counted ({failed})")


@dataclass(frozen=True, repr=False)
class Task(ABC):
    """What one partition becomes: Spark's ``mapInArrow`` calls it with the partition's record batches.

    Attributes:
        version: of the package on the driver; executors with another one refuse.
        schema: the columns.
    """

    version: str
    schema: Schema

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Parts, or rows of ``SHARDED``; nothing for an empty partition.

        Errors:
            TaskFailure: a file was changed, or anything else but rows that do not fit, which are marked in the tally.
            OSError: a file cannot be read or written.
        """
        yield from guarded(self.version, self._parts(batches))

    @abstractmethod
    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]: ...


class Reading(Protocol):
    """What the rows of a frame hold beside the columns of the schema."""

    def kind(self, schema: Schema) -> np.dtype[Any]:
        """The type of codes on their way to the shards."""
        ...

    def encoded(self, table: Any, schema: Schema, tally: Tally) -> Rows | None:
        """The rows; None where some do not fit, which ``tally`` is told."""
        ...


@dataclass(frozen=True, repr=False)
class EventColumns:
    """Of records that come and go; a ``Reading``.

    Attributes:
        operations: the column that says what a row does, and its words; None: all rows do the same.
        deletes: without ``operations``, whether the rows leave.
        users: whose records they are; None: nobody's.
    """

    operations: tuple[str, Operations] | None = None
    deletes: bool = False
    users: Ids | None = None

    def kind(self, schema: Schema) -> np.dtype[Any]:
        """See ``Reading``."""
        return np.dtype(narrow_type(schema.domain.sizes))

    def encoded(self, table: Any, schema: Schema, tally: Tally) -> Rows | None:
        """See ``Reading``."""
        flags, ids, wrong = np.full(table.num_rows, self.deletes), None, 0
        if self.operations is not None:
            name, words = self.operations
            try:
                flags = words.deletes(table.column(name), name=name, where="")
            except DataError:
                wrong |= WRONG_OPERATION
            table = table.drop_columns([name])
        if self.users is not None:
            name = self.users.column
            try:
                ids = hash_ids(id_bytes(table.column(name), ""), self.users.key)
            except DataError:
                wrong |= NO_ID
            table = table.drop_columns([name])
        tally.problems[-1] |= wrong
        try:
            codes = schema.encode(table)
        except DataError:
            tally.mark(schema, schema.problems(table))
            return None
        return None if wrong else Rows(codes, flags.astype(np.uint8), ids)


@dataclass(frozen=True, repr=False)
class Counting(Task):
    """One pass over a partition: counts and hashes its rows.

    Attributes:
        cliques: what is counted, of inserts and of deletes apart.
        row_key: the half of the hash's key that rows are hashed with.
        reading: says what the rows hold.
        has_deletes: whether counts of deletes are kept.
        apart: the number of parts that the results are spread over.
    """

    cliques: tuple[Clique, ...]
    row_key: bytes
    reading: EventColumns
    has_deletes: bool
    apart: int

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        plan = count_plan(self.schema.domain, self.cliques)
        tally, some = Tally.empty(len(self.schema)), False
        counts = np.zeros((2 if self.has_deletes else 1, plan.cells), np.int64)
        for table in row_blocks(batches):
            some = some or table.num_rows > 0
            rows = self.reading.encoded(table, self.schema, tally)
            if rows is None:
                continue  # the pass goes on: all problems are told at once, and none of the counts is used
            for leave in (False, True):
                side = rows.side(leave=leave)
                if len(side.does):
                    blocks = side.hash_into(tally, padded(self.row_key))
                    add_counts(plan, blocks, 1, counts[int(leave)])
        if some:
            yield from part_rows(partition() % self.apart, tally, counts.reshape(-1))


@dataclass(frozen=True, repr=False)
class Spreading(Task):
    """Encodes the rows of a partition, and sends them to the shards of their users or records.

    Attributes:
        reading: says what the rows hold.
        number: of shards.
    """

    reading: Reading
    number: int

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        tally, kind = Tally.empty(len(self.schema)), self.reading.kind(self.schema)
        for table in row_blocks(batches):
            rows = self.reading.encoded(table, self.schema, tally)
            if rows is not None:
                yield _shard_batch(list(rows.spread(self.number, kind)))
        if tally.problems.any():
            yield _shard_batch([(_PROBLEMS, tally.pack())])


def _shard_batch(rows: list[tuple[int, bytes]]) -> Any:
    """Rows of ``SHARDED``."""
    import pyarrow as pa

    kinds = pa.schema([("shard", pa.int32()), ("data", pa.binary())])
    columns = {"shard": [shard for shard, _ in rows], "data": [data for _, data in rows]}
    return pa.RecordBatch.from_pydict(columns, schema=kinds)


def gathered(batches: Iterable[Any], tally: Tally, kind: np.dtype[Any]) -> dict[int, list[Rows]] | None:
    """The rows of ``SHARDED`` by shard, to be joined; what did not fit goes into ``tally``. None: there is no row."""
    found: dict[int, list[Rows]] | None = None
    for batch in batches:
        for shard, data in zip(batch.column("shard").to_pylist(), batch.column("data"), strict=True):
            found = found or {}
            if shard == _PROBLEMS:
                tally.add(Tally.unpack(data.as_py()))
            else:
                found.setdefault(shard, []).append(Rows.unpack(data.as_py(), kind))
    return found


class Summing:
    """Adds up the parts of a partition of parts."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One part; nothing where there is none."""
        total = joined(batches)
        if total is not None:
            yield from part_rows(0, *total)


def joined(batches: Iterable[Any]) -> tuple[Tally, NDArray[np.int64]] | None:
    """The sum of all parts in some Arrow batches; None where there is none. Order changes nothing."""
    tally: Tally | None = None
    chunks: dict[int, NDArray[np.int64]] = {}
    for batch in batches:
        for chunk, data in zip(batch.column("chunk").to_pylist(), batch.column("data"), strict=True):
            raw = data.as_buffer()
            if chunk == _TALLY:
                one = Tally.unpack(raw.to_pybytes())
                if tally is None:
                    tally = one
                else:
                    tally.add(one)
            elif chunk in chunks:
                chunks[chunk] += np.frombuffer(raw, "<i8")
            else:
                chunks[chunk] = np.frombuffer(raw, "<i8").astype(np.int64)
    if tally is None:
        return None
    ordered = [chunks[chunk] for chunk in sorted(chunks)]
    return tally, np.concatenate(ordered) if ordered else np.zeros(0, np.int64)


def part_rows(part: int, tally: Tally, counts: NDArray[np.int64]) -> Iterator[Any]:
    """A part as Arrow batches, one row each: none is larger than a chunk."""
    import pyarrow as pa

    kinds = pa.schema([("part", pa.int32()), ("chunk", pa.int32()), ("data", pa.binary())])

    def row(chunk: int, data: bytes) -> Any:
        return pa.RecordBatch.from_pydict({"part": [part], "chunk": [chunk], "data": [data]}, schema=kinds)

    yield row(_TALLY, tally.pack())
    for chunk, start in enumerate(range(0, len(counts), _CHUNK)):
        yield row(chunk, counts[start : start + _CHUNK].astype("<i8").tobytes())


def row_blocks(batches: Iterable[Any]) -> Iterator[Any]:
    """Tables of about ``_ROWS`` rows, whose texts are UTF-8 as those of files are: Spark's own batches are small."""
    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield _table(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _table(waiting)


def _table(batches: list[Any]) -> Any:
    import pyarrow as pa

    table = pa.Table.from_batches(batches)
    return pa.table([valid_text(column) for column in table.columns], names=table.column_names)


def partition() -> int:
    """The number of the task's partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0
    _set_apart()
    return int(context.partitionId())


def attempt() -> int:
    """A number that no other attempt at a task has in this session; 0 on the driver."""
    try:
        from pyspark import TaskContext
    except ImportError:
        return 0
    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


@cache
def _set_apart() -> None:
    """Once in each worker: what is imported by now is no garbage. Spark collects garbage after each task, and would
    look through all of it every time, which takes longer than to count a thousand rows."""
    gc.freeze()
