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
from dpstream.core.schema.code_blocks import CodeBlocks
from dpstream.core.schema.column import PROBLEM_KINDS
from dpstream.core.tables import MultisetHash
from dpstream.core.tables.counting import add_counts, count_plan
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.core.schema.domain import Clique
    from dpstream.io.sources.operations import Operations

__all__ = ["PART_TYPE", "Counting", "Summing", "Tally", "TaskFailure", "joined"]

#: The columns of a part, as Spark names types.
PART_TYPE = "part int, chunk int, data binary"
#: Counts in one row of a part: 2 MiB.
_CHUNK = 2**18
_ROWS = 2**16
_TALLY = -1


class TaskFailure(Exception):
    """A task failed. Spark shows and logs this text; it holds the name of what failed and nothing of the rows."""


@dataclass
class Tally:
    """What a part knows beside its counts. Private.

    Attributes:
        here, gone: hashes of the inserts and of the deletes.
        problems: for each column, bits of ``PROBLEM_KINDS``; the last entry is for the operations.
    """

    problems: NDArray[np.uint8]
    here: MultisetHash = field(default_factory=MultisetHash)
    gone: MultisetHash = field(default_factory=MultisetHash)

    @classmethod
    def empty(cls, columns: int) -> Self:
        """Of no rows."""
        return cls(np.zeros(columns + 1, np.uint8))

    def pack(self) -> bytes:
        """As bytes. Rows and totals share no field, so nothing overflows below 2^64 rows."""
        words: list[int] = []
        for one in (self.here, self.gone):
            words += [one.rows, one.total % 2**64, one.total >> 64]
        return struct.pack("<6Q", *words) + self.problems.tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of ``pack``."""
        words = struct.unpack_from("<6Q", data)
        one, two = (MultisetHash(words[i + 1] | words[i + 2] << 64, words[i]) for i in (0, 3))
        return cls(np.frombuffer(data, np.uint8, offset=48).copy(), one, two)

    def add(self, other: Tally) -> None:
        """Take in another part."""
        self.here, self.gone = self.here.merge(other.here), self.gone.merge(other.gone)
        self.problems |= other.problems


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
    """

    version: str
    schema: Schema
    cliques: tuple[Clique, ...]
    row_key: bytes
    operations: tuple[str, Operations] | None = None
    deletes: bool = False
    has_deletes: bool = False
    apart: int = 1

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Count all rows, and give one part; nothing for an empty partition.

        Errors:
            TaskFailure: anything but rows that do not fit the schema, which are marked in the tally.
        """
        from dpstream import __version__

        if __version__ != self.version:
            raise TaskFailure(f"dpstream {__version__} is installed here, and {self.version} on the driver")
        failed = None
        try:
            part = self._read(batches)
        except (MemoryError, OSError):
            raise  # the machine's, not the rows': Spark tries again elsewhere
        except Exception as error:  # noqa: BLE001 (its text may quote a row, and Spark logs every text)
            failed = type(error).__name__
        if failed is not None:
            raise TaskFailure(f"a partition cannot be counted ({failed})")
        if part is not None:
            yield from _rows(_partition() % self.apart, *part)

    def _read(self, batches: Iterable[Any]) -> tuple[Tally, NDArray[np.int64]] | None:
        plan = count_plan(self.schema.domain, self.cliques)
        tally = Tally.empty(len(self.schema))
        counts = np.zeros((2 if self.has_deletes else 1, plan.cells), np.int64)
        key = self.row_key + bytes(HASH_KEY_BYTES - len(self.row_key))
        rows = 0
        for table in _blocks(batches):
            rows += table.num_rows
            codes, flags = self._encoded(table, tally)
            if codes is None:
                continue  # the pass goes on: all problems are told at once, and none of the counts is used
            parts = (
                [(codes, self.deletes)] if flags is None else [(codes[~flags], False), (codes[flags], True)]
            )
            for some, leaves in parts:
                some = np.asfortranarray(some)
                some.flags.writeable = False  # the compiled loops are kept for such arrays, as in one process
                blocks = CodeBlocks(some.shape[1], [some])
                add_counts(plan, blocks, 1, counts[int(leaves)], "auto")
                one = MultisetHash.of(blocks, None, key, deletes=leaves)
                if leaves:
                    tally.gone = tally.gone.merge(one)
                else:
                    tally.here = tally.here.merge(one)
        return (tally, counts.reshape(-1)) if rows else None

    def _encoded(self, table: Any, tally: Tally) -> tuple[Any, Any]:
        from dpstream.io.sources.times import delete_flags

        flags, wrong = None, False
        if self.operations is not None:
            name, words = self.operations
            try:
                flags = delete_flags(table.column(name), name=name, where="", before=None, words=words)
            except DataError:
                tally.problems[-1], wrong = 1, True
            table = table.drop_columns([name])
        try:
            codes = self.schema.encode(table)
        except DataError:
            for problem in self.schema.problems(table):
                bit = 1 << PROBLEM_KINDS.index(problem.kind)
                tally.problems[self.schema.domain.index(problem.column)] |= bit
            return None, None
        return (None, None) if wrong else (codes, flags)


class Summing:
    """Adds up the parts of a partition of parts."""

    def __init__(self, to: int = 0) -> None:
        self._to = to

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One part; nothing where there is none."""
        total = joined(batches)
        if total is not None:
            yield from _rows(self._to, *total)


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


def _rows(part: int, tally: Tally, counts: NDArray[np.int64]) -> Iterator[Any]:
    """A part as Arrow batches, one row each: none is larger than a chunk."""
    import pyarrow as pa

    kinds = pa.schema([("part", pa.int32()), ("chunk", pa.int32()), ("data", pa.binary())])

    def row(chunk: int, data: bytes) -> Any:
        return pa.RecordBatch.from_pydict({"part": [part], "chunk": [chunk], "data": [data]}, schema=kinds)

    yield row(_TALLY, tally.pack())
    for chunk, start in enumerate(range(0, len(counts), _CHUNK)):
        yield row(chunk, counts[start : start + _CHUNK].astype("<i8").tobytes())


def _blocks(batches: Iterable[Any]) -> Iterator[Any]:
    """Tables of about ``_ROWS`` rows: Spark's own batches are small."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0
    _set_apart()
    return int(context.partitionId())


@cache
def _set_apart() -> None:
    """Once in each worker: what is imported by now is no garbage. Spark collects garbage after each task, and would
    look through all of it every time, which takes longer than to count a thousand rows."""
    gc.freeze()
