"""Synthetic people are extended, never rewritten: who of them gets which symbol next.

Public post-processing of noisy counts; an ordinary generator, seeded from the one door to entropy, is enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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


def extend(
    groups: NDArray[np.int32], numbers: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.uint8]:
    """A symbol for every synthetic person: ``numbers[group, symbol]`` people of each group get each symbol.

    Args:
        groups: the group of each person.
        numbers: shape (groups, symbols); every row adds up to the people of its group.

    Every assignment is equally likely, up to 2^-32 a person. Cost: 32 random bits a person.
    """
    from dpstream.families.panel._dealing_kernel import deal

    words = generator.integers(0, 2**32, size=len(groups), dtype=np.uint32)
    symbols: NDArray[np.uint8] = deal(groups, numbers.copy(), numbers.sum(axis=1), words)
    return symbols


def warm() -> None:
    """Run the compiled loop once."""
    extend(np.zeros(1, np.int32), np.array([[1, 0]]), np.random.default_rng(1))
