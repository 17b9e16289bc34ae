"""Least squares up and down a tree of levels (Hay et al. 2010): answers of all levels that agree. Public values only.

Each level was measured with noise of its own, of one variance. Upwards, a node's estimate is the mean of its own value
and of its children's sum, weighted by inverse variances; downwards, children share what their sum misses in proportion
to their variances. On a tree that is the best linear unbiased estimate. Time is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dpstream.core.schema.schema import Schema

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree whose top is the number of records.

    Attributes:
        columns: its levels below the top, the coarsest first.
        parents: of each of these levels, the places of its nodes' parents in the level above.
    """

    columns: tuple[str, ...]
    parents: tuple[NDArray[np.int64], ...]
    _fitted: dict[tuple[float, ...], Fitted] = field(default_factory=dict, repr=False)

    def fitted(self, variances: tuple[float, ...]) -> Fitted:
        """With the variances of its levels; remembered, so that equal noise cancels."""
        return self._fitted.setdefault(variances, Fitted(self, variances))

    @classmethod
    def of(cls, schema: Schema, columns: Sequence[str]) -> Tree:
        """The levels of a schema."""
        assert schema.constraints is not None
        codes = {one.column.name: np.array(one.codes) for one in schema.constraints.derived}
        codes[columns[-1]] = np.arange(schema[columns[-1]].size)
        return cls.of_codes(columns, [codes[name] for name in columns])

    @classmethod
    def of_codes(cls, columns: Sequence[str], codes: Sequence[NDArray[np.int64]]) -> Tree:
        """From each level's code of every value of the finest."""
        parents = [np.zeros(int(codes[0].max()) + 1, dtype=np.int64)]
        for above, below in pairwise(codes):
            first = np.unique(below, return_index=True)[1]
            parents.append(above[first])
        return cls(tuple(columns), tuple(parents))

    @cached_property
    def sizes(self) -> list[int]:
        """Nodes of each level, the top first."""
        return [1, *map(len, self.parents)]

    def _sums(self, level: int, values: _Floats) -> _Floats:
        """The sums of a level's values over the nodes of the level above."""
        return np.asarray(
            np.bincount(self.parents[level - 1], values, self.sizes[level - 1]), dtype=np.float64
        )

    def top_down(self, values: Sequence[_Floats]) -> list[_Floats]:
        """Counts of the first levels that are not negative, the nearest ones level by level: those of the coarsest
        level have the top's sum, the children of a node that node's."""
        found = [np.maximum(values[0], 0.0)]
        for parents, own in zip(self.parents, values[1:], strict=False):
            found.append(_onto_sums(own, parents, found[-1]))
        return found

    @cached_property
    def kinds(self) -> list[NDArray[np.int64]]:
        """Nodes of each level by what the tree looks like from them: those of one kind have the same error."""
        up = [np.zeros(size, dtype=np.int64) for size in self.sizes]
        for level in range(len(self.parents) - 1, -1, -1):
            below: list[list[int]] = [[] for _ in range(self.sizes[level])]
            for parent, kind in zip(self.parents[level].tolist(), up[level + 1].tolist(), strict=True):
                below[parent].append(kind)
            names = dict[tuple[int, ...], int]()
            up[level][:] = [names.setdefault(tuple(sorted(kinds)), len(names)) for kinds in below]
        down = [np.zeros(1, dtype=np.int64)]
        for level, parents in enumerate(self.parents):
            pairs = np.column_stack([down[level][parents], up[level + 1]])
            down.append(np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1))
        return down


def _onto_sums(values: _Floats, parents: NDArray[np.int64], sums: _Floats) -> _Floats:
    """The nearest values that are not negative and have the sums of their parents: of each family, all less one number,
    but for those that would be negative."""
    order = np.lexsort((-values, parents))
    own, family = values[order], parents[order]
    begins = np.searchsorted(family, np.arange(len(sums)))
    upto = np.cumsum(own)
    upto -= (upto[begins] - own[begins])[family]
    less = (upto - sums[family]) / (np.arange(len(own)) - begins[family] + 1)
    many = np.bincount(family, own > less, len(sums)).astype(np.int64)
    found = np.empty_like(own)
    found[order] = np.maximum(own - less[begins + np.maximum(many, 1) - 1][family], 0.0)
    return found


@dataclass(frozen=True, eq=False)
class Fitted:
    """A tree with the variance of each level's noise; infinite: the level was not measured; 0: it is public."""

    tree: Tree
    variances: tuple[float, ...]
    _weights: dict[tuple[int, bytes], list[_Floats]] = field(default_factory=dict, repr=False)

    @cached_property
    def _up(self) -> tuple[list[_Floats], list[_Floats]]:
        """Of each level: the variances of the upward estimates, and the weights of own values in them."""
        tree, last = self.tree, len(self.variances) - 1
        spread = [np.full(tree.sizes[last], self.variances[last])]
        weights = [np.ones(tree.sizes[last])]
        for level in range(last - 1, -1, -1):
            below, own = tree._sums(level + 1, spread[0]), self.variances[level]
            weight = np.zeros(len(below)) if np.isinf(own) else below / np.maximum(below + own, 1e-300)
            spread.insert(0, (1.0 - weight) * below)
            weights.insert(0, weight)
        return spread, weights

    def estimate(self, values: Sequence[_Floats]) -> list[_Floats]:
        """The estimates of all levels, from what was measured of each (of one that was not: anything finite)."""
        tree, (spread, weights) = self.tree, self._up
        found: list[Any] = [np.asarray(own, dtype=np.float64) for own in values]
        for level in range(len(found) - 2, -1, -1):
            below = tree._sums(level + 1, found[level + 1])
            found[level] = below + weights[level] * (found[level] - below)
        for level in range(1, len(found)):
            missing = found[level - 1] - tree._sums(level, found[level])
            whole = np.maximum(tree._sums(level, spread[level]), 1e-300)
            shared = (missing / whole)[tree.parents[level - 1]]
            found[level] = found[level] + spread[level] * shared
        return found

    def covariances(self, level: int, cells: NDArray[np.bool_]) -> list[_Floats]:
        """Of all estimates with the sum of some nodes of a level."""
        # The estimate of y is K W y, K its symmetric covariance and W the precisions: so K c is that of c / W.
        values: list[Any] = [np.zeros(size) for size in self.tree.sizes]
        if np.isfinite(self.variances[level]):
            values[level] = cells * self.variances[level]
            return self.estimate(values)
        # Of a level that was not measured: the sum of its children.
        return self.covariances(level + 1, cells[self.tree.parents[level]])

    def weights(self, level: int, cells: NDArray[np.bool_]) -> list[_Floats]:
        """With which weights the measured values of each level enter the sum of some nodes of a level."""
        key = level, cells.tobytes()
        if key not in self._weights:
            found = self.covariances(level, cells)
            self._weights[key] = [
                own / variance if variance and np.isfinite(variance) else np.zeros(len(own))
                for own, variance in zip(found, self.variances, strict=True)
            ]
        return self._weights[key]
