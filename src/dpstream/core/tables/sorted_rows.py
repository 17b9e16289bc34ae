"""The rows of a table in order, as words: what stores of the formats 1 to 8 kept a hash of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.domain import Codes

# A mixed-radix word must stay below 2**63.
_WORD = 2**63


def sorted_words(codes: Codes, sizes: Sequence[int], owners: NDArray[np.int64] | None) -> list[bytes]:
    """The number of rows, and the words of all rows in their order.

    Args:
        sizes: those of the columns.
        owners: whose rows they are, in integers (rows x words); None: nobody's.
    """
    words: list[NDArray[np.int64]] = [] if owners is None else list(owners.T)
    span = _WORD
    for position, size in enumerate(sizes):
        if span * size >= _WORD:
            words.append(np.zeros(len(codes), dtype=np.int64))
            span = 1
        words[-1] *= size
        words[-1] += codes[:, position]
        span *= size
    order = np.lexsort(words)
    return [len(codes).to_bytes(8, "little"), *(word[order].astype("<i8").tobytes() for word in words)]
