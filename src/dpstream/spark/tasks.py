"""What runs in Spark's executors: count, hash and check the rows of one partition, and add such parts up.

Executors get the public schema, the cliques and the half of the hash's key that rows are hashed with. They get no
budget and no entropy, and give back counts, sums of hashes and marks of problems: never a row, never a text of one.
A task is a pure function of its partition, so that one that is tried again or run twice changes nothing: Spark takes
one of its results. (Accumulators would add both.)

A part is a few rows of ``(part, chunk, data)``: chunk -1 is the ``Tally``, chunks from 0 on are blocks of counts.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.schema.arrow import valid_text
from dpstream.core.schema.code_blocks import CodeBlocks
from dpstream.core.schema.column import PROBLEM_KINDS
from dpstream.core.tables import MultisetHash
from dpstream.core.tables.contribution import Words, hash_ids, id_bytes, owner_words
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
#: Bits of a tally's last entry: an operation that is none, a user id that is none.
WRONG_OPERATION, NO_ID = 1, 2


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
    """Rows of a block that do the same. Private.

    Attributes:
        codes: rows x columns.
        leave: whether they are deletes.
        owners: the hashed ids of their users, two words each; None: nobody's.
    """

    codes: NDArray[Any]
    leave: bool
    owners: Words | None = None

    def blocks(self) -> CodeBlocks:
        """The codes as the compiled loops read them in one process, for which they are compiled."""
        codes = np.asfortranarray(self.codes, np.int32)
        codes.flags.writeable = False
        return CodeBlocks(codes.shape[1], [codes])

    def hash_into(self, tally: Tally, blocks: CodeBlocks, key: bytes) -> None:
        """Add the hash of these rows and their users to a tally."""
        words = None if self.owners is None else owner_words(self.owners)
        one = MultisetHash.of(blocks, words, key, deletes=self.leave)
        if self.leave:
            tally.gone = tally.gone.merge(one)
        else:
            tally.here = tally.here.merge(one)


def guarded(version: str, parts: Iterator[Any]) -> Iterator[Any]:
    """What a task gives, from an executor that has the driver's version of this package.

    Errors:
        TaskFailure: another version, or the task failed; nothing of its rows is said.
    """
    from dpstream.core.version import __version__

    if __version__ != version:
        raise TaskFailure(f"dpstream {__version__} is installed here, and {version} on the driver")
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
class Counting:
    """One pass over a partition: Spark's ``mapInArrow`` calls it with the partition's record batches.

    Attributes:
        version: of the package on the driver; executors with another one refuse.
        schema: the columns.
        cliques: what is counted, of inserts and of deletes apart.
        row_key: the half of the hash's key that rows are hashed with.
        operations: the column that says what a row does, and its words; None: all rows do the same.
        deletes: without ``operations``, whether the rows leave.
        has_deletes: whether counts of deletes are kept.
        apart: the number of parts that the results are spread over.
        users: whose records they are; None: nobody's.
    """

    version: str
    schema: Schema
    cliques: tuple[Clique, ...]
    row_key: bytes
    operations: tuple[str, Operations] | None = None
    deletes: bool = False
    has_deletes: bool = False
    apart: int = 1
    users: Ids | None = None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Count all rows, and give one part; nothing for an empty partition.

        Errors:
            TaskFailure: anything but rows that do not fit the schema, which are marked in the tally.
        """
        yield from guarded(self.version, self._parts(batches))

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        plan = count_plan(self.schema.domain, self.cliques)
        tally = Tally.empty(len(self.schema))
        counts = np.zeros((2 if self.has_deletes else 1, plan.cells), np.int64)
        key = self.row_key + bytes(HASH_KEY_BYTES - len(self.row_key))
        rows = 0
        for table in row_blocks(batches):
            rows += table.num_rows
            found = self.encoded(table, tally)
            if found is None:
                continue  # the pass goes on: all problems are told at once, and none of the counts is used
            for part in found:
                blocks = part.blocks()
                add_counts(plan, blocks, 1, counts[int(part.leave)], "auto")
                part.hash_into(tally, blocks, key)
        if rows:
            yield from part_rows(partition() % self.apart, tally, counts.reshape(-1))

    def encoded(self, table: Any, tally: Tally) -> list[Rows] | None:
        """The rows that come and those that leave; None where some do not fit, which ``tally`` is told."""
        from dpstream.io.sources.times import delete_flags

        flags, owners, wrong = None, None, False
        if self.operations is not None:
            name, words = self.operations
            try:
                flags = delete_flags(table.column(name), name=name, where="", before=None, words=words)
            except DataError:
                tally.problems[-1] |= WRONG_OPERATION
                wrong = True
            table = table.drop_columns([name])
        if self.users is not None:
            name = self.users.column
            try:
                owners = hash_ids(id_bytes(table.column(name), ""), self.users.key)
            except DataError:
                tally.problems[-1] |= NO_ID
                wrong = True
            table = table.drop_columns([name])
        try:
            codes = self.schema.encode(table)
        except DataError:
            for problem in self.schema.problems(table):
                bit = 1 << PROBLEM_KINDS.index(problem.kind)
                tally.problems[self.schema.domain.index(problem.column)] |= bit
            return None
        if wrong:
            return None
        if flags is None:
            return [Rows(codes, self.deletes, owners)]
        return [
            Rows(codes[of], leave, None if owners is None else owners[of])
            for of, leave in ((~flags, False), (flags, True))
        ]


class Summing:
    """Adds up the parts of a partition of parts."""

    def __init__(self, to: int = 0) -> None:
        self._to = to

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One part; nothing where there is none."""
        total = joined(batches)
        if total is not None:
            yield from part_rows(self._to, *total)


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
    """A number that no other attempt at a task has in this session."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


@cache
def _set_apart() -> None:
    """Once in each worker: what is imported by now is no garbage. Spark collects garbage after each task, and would
    look through all of it every time, which takes longer than to count a thousand rows."""
    gc.freeze()
