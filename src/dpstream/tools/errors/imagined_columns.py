"""Records of a table that nobody has seen: uniform columns, columns that depend on each other, or like a public table.

All of it is invented from public facts, with an ordinary generator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpstream.core.schema.domain import Domain
from dpstream.tools.evaluate.array_types import Codes, Floats

#: A number of records and a generator -> codes, shape (records, columns).
Draw = Callable[[int, np.random.Generator], Codes]
#: Ranges from which each column's skew and each pair's dependence are drawn: standard deviations of logarithms of
#: shares. 0: all values alike; 1: shares that differ by a factor of about 3 as a rule; 2: by a factor of 7 and more.
_SKEW = (0.0, 2.5)
_DEPENDENCE = (0.0, 2.0)


def uniform_columns(domain: Domain) -> Draw:
    """All combinations of values alike."""

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        return generator.integers(np.array(domain.sizes), size=(rows, len(domain))).astype(np.int32)

    return draw


def correlated_columns(domain: Domain, generator: np.random.Generator) -> Draw:
    """Skewed columns that depend on each other along a random tree.

    The logarithm of a value's share is normal, and so is what a value of the parent adds to it: some columns are
    nearly even and some nearly constant, some pairs nearly independent and some nearly a function of each other.

    Args:
        generator: of the tree and the shares; the records have their own.
    """
    order = generator.permutation(len(domain)).tolist()
    parents: dict[int, int | None] = {
        column: order[int(generator.integers(place))] if place else None for place, column in enumerate(order)
    }
    ends: dict[int, Floats] = {}
    for column, parent in parents.items():
        size = domain.sizes[column]
        logs = generator.uniform(*_SKEW) * generator.standard_normal((1, size))
        if parent is not None:
            rows = domain.sizes[parent]
            logs = logs + generator.uniform(*_DEPENDENCE) * generator.standard_normal((rows, size))
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        found = (shares / shares.sum(axis=1, keepdims=True)).cumsum(axis=1)
        found[:, -1] = np.inf  # sums of shares may end a rounding error below 1
        ends[column] = found

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        codes = np.zeros((rows, len(domain)), np.int32)
        for column, parent in parents.items():
            places = generator.random(rows)
            own = np.zeros(rows, np.int32) if parent is None else codes[:, parent]
            for value in range(len(ends[column])):
                chosen = own == value
                codes[chosen, column] = np.searchsorted(ends[column][value], places[chosen], side="right")
        return codes

    return draw


def like_records(records: Codes) -> Draw:
    """Records of a public table, drawn again and again."""

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        return records[generator.integers(len(records), size=rows)].astype(np.int32)

    return draw
