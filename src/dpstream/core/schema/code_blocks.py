"""Codes of records in blocks of rows, in the narrowest type that holds them.

Trusted base: kernel (holds encoded private records).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.domain import Codes

#: Codes in any of the types of ``narrow_type``, or int32.
AnyCodes = NDArray[Any]

#: Rows that are read, encoded and counted together.
BLOCK_ROWS = 2**16


def narrow_type(sizes: Sequence[int]) -> np.dtype[Any]:
    """The type for codes of columns of these sizes: 1, 2 or 4 bytes a cell.

    >>> [narrow_type([2, size]).name for size in (256, 257, 2**16, 2**16 + 1)]
    ['uint8', 'uint16', 'uint16', 'int32']
    """
    most = max(sizes)
    return np.dtype(np.uint8 if most <= 2**8 else np.uint16 if most <= 2**16 else np.int32)


class CodeBlocks:
    """The codes of a table, block by block. Private.

    Args:
        columns: the number of columns.
        blocks: arrays (rows x columns) in the order of the records; column-major is fastest. They are not copied, so
            nobody else may write to them.

    >>> codes = CodeBlocks(2, [np.array([[0, 1]], np.uint8), np.array([[2, 0], [1, 1]], np.uint8)])
    >>> len(codes), codes.whole().tolist(), codes.whole().dtype.name
    (3, [[0, 1], [2, 0], [1, 1]], 'int32')
    """

    __slots__ = ("blocks", "columns", "rows")

    def __init__(self, columns: int, blocks: Iterable[AnyCodes]) -> None:
        self.columns = columns
        self.blocks: tuple[AnyCodes, ...] = tuple(blocks)
        self.rows = sum(len(block) for block in self.blocks)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}(columns={self.columns}, records hidden)"

    def whole(self) -> Codes:
        """All codes as one int32 array, column-major and read-only: 4 bytes a cell."""
        if len(self.blocks) == 1 and self.blocks[0].dtype == np.int32:
            return self.blocks[0]
        out = np.empty((self.rows, self.columns), np.int32, order="F")
        for start, block in self.placed():
            out[start : start + len(block)] = block
        out.flags.writeable = False
        return out

    def placed(self) -> Iterator[tuple[int, AnyCodes]]:
        """Each block with the number of rows before it."""
        start = 0
        for block in self.blocks:
            yield start, block
            start += len(block)

    @classmethod
    def joined(cls, columns: int, parts: Iterable[AnyCodes]) -> CodeBlocks:
        """Parts in their order, small ones joined to blocks of up to ``BLOCK_ROWS`` rows."""
        blocks: list[AnyCodes] = []
        held: list[AnyCodes] = []
        rows = 0
        for part in parts:
            if held and rows + len(part) > BLOCK_ROWS:
                blocks.append(_one(held, rows, columns))
                held, rows = [], 0
            if len(part):
                held.append(part)
                rows += len(part)
        if held:
            blocks.append(_one(held, rows, columns))
        return cls(columns, blocks)


def _one(parts: list[AnyCodes], rows: int, columns: int) -> AnyCodes:
    if len(parts) == 1:
        return parts[0]
    out = np.empty((rows, columns), np.result_type(*parts), order="F")
    np.concatenate(parts, out=out)
    out.flags.writeable = False
    return out
