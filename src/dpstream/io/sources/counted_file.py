"""A large file that is one step: hashed and counted while it is read, so that no record waits in memory.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import LifoQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, PrivateBatch
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy.randomness import Exact
from dpstream.core.schema import Clique, Schema
from dpstream.core.schema.code_blocks import BLOCK_ROWS, AnyCodes, CodeBlocks, narrow_type
from dpstream.core.schema.encoded_table import BlockEncoder, EncodedBlock
from dpstream.core.tables import HASH_KEY_BYTES, BatchAccess, MultisetHash, ReadRequest
from dpstream.core.tables.counting import add_counts, check_codes, count_plan
from dpstream.core.threads import thread_count
from dpstream.io.objects import AnyPath
from dpstream.io.sources.file_opening import arrow_bytes, changed_file, file_format, readable


@dataclass(frozen=True, repr=False)
class ReadBlock:
    """A block. Private.

    Attributes:
        num_rows: the number of records.
        marks: an Arrow table of their times and operations.
        records: an Arrow table, or an ``EncodedBlock``.
    """

    num_rows: int
    marks: Any
    records: Any

    def column(self, name: str) -> Any:
        """The times, or the operations."""
        return self.marks.column(name)

    @property
    def nbytes(self) -> int:
        """The memory of the records."""
        records = self.records
        return int(records.codes.nbytes if isinstance(records, EncodedBlock) else records.nbytes)


@dataclass(frozen=True)
class ReadFile:
    """What the first pass learns about one file.

    Attributes:
        name: its path from the base folder.
        records: how many it has.
        blocks: for each block with records that are due: how many records the file has up to its end, and the smallest
            step in it. So the second pass knows how far to read for a step. Empty where the first pass kept them all.
    """

    path: AnyPath
    name: str
    records: int
    blocks: tuple[tuple[int, int], ...]


def read_block(
    table: Any, marks: Sequence[str], columns: Sequence[str], encoder: BlockEncoder | None
) -> ReadBlock:
    """Take a table apart, and encode its records where that is possible.

    Args:
        marks: the columns of times and operations.
        columns: those of the records.
    """
    records = table.select(columns)
    encoded = None if encoder is None else encoder.encode(records)
    return ReadBlock(table.num_rows, table.select(marks), records if encoded is None else encoded)


def chosen(records: Any, keep: NDArray[np.bool_]) -> Any:
    """The records of a block, of whatever kind, that a mask names."""
    if keep.all():
        return records
    return records.take(np.flatnonzero(keep)) if isinstance(records, EncodedBlock) else records.filter(keep)


class Ahead:
    """How many bytes of codes the first pass may still keep. The first file that is too large ends it."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, size: int) -> bool:
        """Whether so many bytes may be kept."""
        self.left = self.left - size if size <= self.left else 0
        return self.left > 0


#: Bytes of codes from which on a file is counted while it is read.
_LARGE = 2**27
#: The most cells that each thread may have for itself.
_THREAD_CELLS = 2**21

Read = Callable[[Callable[["ReadBlock"], Any]], Iterator[Any]]


def is_large(path: AnyPath, encoder: BlockEncoder) -> bool:
    """Whether a file's codes would take more memory than they may. Of Parquet files only: others do not say.

    Errors:
        DataError: the file is damaged.
    """
    if file_format(path) != "parquet":
        return False
    import pyarrow.parquet

    with readable(path), arrow_bytes(path) as opened, pyarrow.parquet.ParquetFile(opened) as file:
        cells = int(file.metadata.num_rows) * len(encoder.columns)
    return cells * narrow_type([column.size for column in encoder.columns]).itemsize > _LARGE


@dataclass(repr=False)
class CountedFile:
    """The records of a file; an ``EngineBatch`` that grants counts. Private.

    A pass reads all records, hashes them, and counts what was asked; the first one counts what the mechanism says that
    it will ask. Passes that read other records are refused. Nothing is written: another copy of private records, even
    of their codes, would need a key of its own.

    A file with a record that has no code is read as every other one is, which says what is wrong.

    Args:
        encoder: as whose codes the records are read.
        read: gives what a function makes of each block, which several threads call.
        whole: the records as one table, as ``StepInput.inserts`` has them.

    Memory: two blocks for each thread, and the counts; for a mechanism that reads records, all codes.
    """

    encoder: BlockEncoder
    read: Read
    whole: Callable[[], Any]

    def __repr__(self) -> str:
        return "CountedFile(records hidden)"

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        """See ``EngineBatch``. The records are read when their hash is asked for.

        Errors:
            ConfigError: a mechanism that reads more than counts gets the records from ``whole``.
        """
        if wanted.reads != "counts" or wanted.max_events is not None:
            raise ConfigError("a file counted while read grants counts only", where=wanted.where)
        passes = _Passes(self, wanted)
        return BatchAccess(_View(passes), passes)


class CountedPasses(ABC):
    """The passes over one step's records, wherever they are, and what they have found.

    Guarantee: all passes read the same multiset of records, or the step is refused. What comes out is exact and
    private: counts and a hash for the plan.

    Args:
        cliques: what the first pass counts.
        deletes: whether the records have deletes; counts then have two rows.

    Attributes:
        content: the key of the last pass, and the hash of what it read.
    """

    def __init__(
        self, schema: Schema, cliques: Sequence[Clique], where: str, *, deletes: bool = False
    ) -> None:
        self.schema, self.where, self.has_deletes = schema, where, deletes
        self.content: tuple[bytes, MultisetHash] | None = None
        self._asked = cliques
        self._known: dict[Clique, NDArray[np.int64]] = {}

    @abstractmethod
    def _read(self, cliques: tuple[Clique, ...], key: bytes) -> tuple[MultisetHash, NDArray[np.int64]]:
        """One pass: the hash of all records, and the counts of some cliques beside each other, a row for what comes
        and one for what goes."""

    @abstractmethod
    def _changed(self) -> DataError:
        """The refusal of records that are others than in the pass before."""

    def fingerprint(self, key: bytes) -> bytes:
        """The hash of all records; the first call reads them, and counts what is known to be asked."""
        if self.content is None or not hmac.compare_digest(self.content[0], key):
            self._run(self._asked, key)
        assert self.content is not None
        return self.content[1].finish(self.schema.domain.sizes, key)

    def counts(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """Counts of inserts and deletes, shape (1 or 2, cells) each; reads the records again where some are missing."""
        if any(clique not in self._known for clique in cliques):
            # Without a fingerprint before it there is nothing to compare with, and any key will do.
            self._run(cliques, bytes(HASH_KEY_BYTES) if self.content is None else self.content[0])
        return [self._known[clique] for clique in cliques]

    def _run(self, asked: Sequence[Clique], key: bytes) -> None:
        cliques = tuple(clique for clique in dict.fromkeys(asked) if clique not in self._known)
        content, counts = self._read(cliques, key)
        before = self.content
        if before is not None and hmac.compare_digest(before[0], key) and before[1] != content:
            raise self._changed()
        self.content, start = (key, content), 0
        for clique in cliques:
            end = start + self.schema.domain.cells(clique)
            self._known[clique], start = counts[:, start:end], end


@dataclass(frozen=True, repr=False)
class CountedView(PrivateBatch):
    """Counts of the records of some passes; a ``PrivateBatch``."""

    _passes: CountedPasses

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[Exact]:
        """See ``PrivateBatch``. Both parts are counted in one pass, so that no reading comes after noise was drawn.

        Errors:
            DataError: the records changed since they were read first. LimitError: too many cells.
        """
        if part not in ("net", "inserts", "deletes"):
            raise ConfigError(f"unknown part {part!r}", where="count", allowed="net, inserts, deletes")
        found = self._passes.counts(cliques)
        if not self._passes.has_deletes:
            return [counts[0].copy() if part != "deletes" else 0 * counts[0] for counts in found]
        return [
            counts[0] - counts[1] if part == "net" else counts[int(part == "deletes")].copy()
            for counts in found
        ]

    @property
    def declares_deletes(self) -> bool:
        """See ``PrivateBatch``."""
        return self._passes.has_deletes


class _Passes(CountedPasses):
    """Those over the records of a file."""

    def __init__(self, file: CountedFile, wanted: ReadRequest) -> None:
        super().__init__(wanted.schema, wanted.cliques, f"{wanted.where}, inserts")
        self._file = file
        self._in_memory: CodeBlocks | None = None

    def _changed(self) -> DataError:
        return changed_file(self.where)

    def codes(self) -> CodeBlocks:
        """All records, in memory."""
        if self._in_memory is None:
            self._in_memory = self.schema.encode_blocks(self._file.whole(), where=self.where)
        return self._in_memory

    def _read(self, cliques: tuple[Clique, ...], key: bytes) -> tuple[MultisetHash, NDArray[np.int64]]:
        domain, encoder = self.schema.domain, self._file.encoder
        plan = count_plan(domain, cliques)
        # Tables for threads that count at the same time; large ones are not there twice.
        tables: LifoQueue[NDArray[np.int64]] = LifoQueue()
        sums = [
            np.zeros(plan.cells, np.int64)
            for _ in range(thread_count() if plan.cells <= _THREAD_CELLS else 1)
        ]
        for table in sums:
            tables.put(table)

        def taken(codes: AnyCodes) -> MultisetHash:
            check_codes(codes, domain, self.where)
            found = MultisetHash()
            for start in range(0, len(codes), BLOCK_ROWS):
                found = found.merge(MultisetHash.of(codes[start : start + BLOCK_ROWS], None, key))
            own = tables.get()
            try:
                add_counts(plan, CodeBlocks(len(domain), [codes]), 1, own)
            finally:
                tables.put(own)
            return found

        def work(block: ReadBlock) -> MultisetHash | None:
            return taken(block.records.codes) if isinstance(block.records, EncodedBlock) else None

        content = MultisetHash()
        own = self.schema
        same = encoder.gives_codes_of(own.columns, own.null_values, own.constraints)
        coded = self._in_memory is None and same
        if coded:
            for found in self._file.read(work):
                if found is None:
                    coded = False
                    break
                content = content.merge(found)
        if not coded:
            content = MultisetHash()
            for table in sums:
                table[:] = 0
            for block in self.codes().blocks:
                content = content.merge(taken(block))
        return content, sum(sums[1:], sums[0])[None, :]


class _View(CountedView):
    """Deletes do not occur."""

    def without_cancelled(self) -> _View:
        """See ``CancellingBatch``."""
        return self
