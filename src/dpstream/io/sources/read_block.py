"""A block of a file after it was read: what cuts it into steps, and its records, perhaps encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.objects import AnyPath
from dpstream.core.schema.encoded_table import BlockEncoder, EncodedBlock


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
