"""Synthetic people are extended, never rewritten, towards noisy counts.

Public post-processing of noisy counts; an ordinary generator, seeded from the one door to entropy, is enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def extend(
    groups: NDArray[np.integer], numbers: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.uint8]:
    """A symbol for every synthetic person: ``numbers[group, symbol]`` people of each group get each symbol.

    Args:
        groups: the group of each person, below 2^16.
        numbers: shape (groups, symbols); every row adds up to the people of its group.

    Every assignment is equally likely: the people stand in a random order, and each group is dealt its symbols.
    """
    order = generator.permutation(len(groups))
    # Sixteen bits are sorted in linear time.
    order = order[np.argsort(groups[order].astype(np.uint16), kind="stable")]
    dealt = np.tile(np.arange(numbers.shape[1], dtype=np.uint8), len(numbers))
    symbols = np.empty(len(groups), np.uint8)
    symbols[order] = np.repeat(dealt, numbers.ravel())
    return symbols


def append_columns(history: NDArray[np.uint8], columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The history with new periods; what is there stays as it is."""
    if not history.shape[1]:
        return np.asfortranarray(columns)
    return np.asfortranarray(np.concatenate([history, columns], axis=1))


def split_whole(
    wanted: NDArray[np.int64], available: NDArray[np.int64], generator: np.random.Generator
) -> tuple[NDArray[np.int64], int]:
    """Whole numbers of people for each symbol, whose rows add up to ``available``, as near to ``wanted`` as can be.

    Args:
        wanted: noisy counts, shape (groups, symbols).
        available: synthetic people of each group, shape (groups,).

    Gives the numbers and how many groups had to be clipped into ``0 .. available``. The difference between a row
    of ``wanted`` and the people who are there is shared evenly; what is left of a division goes to symbols drawn
    at random, so that no symbol gains from it on average.
    """
    symbols = wanted.shape[1]
    share, rest = np.divmod(available - wanted.sum(axis=1), symbols)
    numbers = wanted + share[:, None]
    order = generator.permuted(np.tile(np.arange(symbols), (len(wanted), 1)), axis=1)
    numbers += order < rest[:, None]
    bad = np.flatnonzero((numbers < 0).any(axis=1))
    for group in bad:
        numbers[group] = _nearest(numbers[group], int(available[group]))
    return numbers, len(bad)


def _nearest(numbers: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Nonnegative numbers with the sum ``total``: what negative ones lack is taken from the others evenly."""
    numbers = numbers.copy()
    while (numbers < 0).any():
        missing = -int(numbers[numbers < 0].sum())
        numbers[numbers < 0] = 0
        positive = np.flatnonzero(numbers)
        each, rest = divmod(missing, len(positive))
        numbers[positive] -= each
        # The largest gives first; equal ones give in the order of the symbols.
        numbers[positive[np.argsort(-numbers[positive], kind="stable")[:rest]]] -= 1
    assert int(numbers.sum()) == total
    return numbers
