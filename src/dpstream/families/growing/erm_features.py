"""Features of records for linear classifiers, from the public domain alone, with norms of at most 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Clique, Domain

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureMap:
    """How codes become features ``x`` with ``||x||_2 <= 1``, and a target's code a label.

    A column of two codes becomes -1 or 1, another one a one-hot block. A column in ``numbers`` becomes one number
    from -1 to 1 by the position of its bin, and one-hot flags for its codes that are no bins (null, other values).
    Where nothing is one-hot, a constant is added. All of it is divided by the root of the number of columns, so no
    record is clipped: the rule is public and holds for every record that the domain allows.

    Args:
        domain: the columns of the records.
        target: the column to be predicted.
        positive: its code that counts as the positive class; all others are the negative one.
        columns: the columns to predict from; None: all others.
        numbers: (column, number of bins) of columns that are taken as numbers.

    Errors:
        ConfigError: an unknown column, the target among the features, no features, a code or number of bins that
            does not fit.

    >>> features = FeatureMap(Domain(("zip", "paid", "late"), (3, 2, 2)), target="late")
    >>> features.dimension, [block.shape for block in features.blocks]
    (4, [(3, 3), (2, 1)])
    """

    domain: Domain
    target: str
    positive: int = 1
    columns: tuple[str, ...] | None = None
    numbers: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        size = self.domain.sizes[self.domain.index(self.target)]
        if not 0 <= self.positive < size or size < 2:
            raise ConfigError(
                f"positive = {self.positive} is not one of two or more codes of {self.target!r}",
                where="target",
                allowed=f"0 to {size - 1}, of two codes or more",
            )
        chosen = tuple(name for name in self.domain.names if name != self.target)
        if self.columns is not None:
            chosen = tuple(self.columns)
        if not chosen or self.target in chosen or len(set(chosen)) != len(chosen):
            raise ConfigError(
                "the columns to predict from are missing or repeated, or one of them is the target",
                where="columns",
                allowed="different columns other than the target",
            )
        object.__setattr__(self, "columns", chosen)
        for name, bins in self.numbers:
            if name not in chosen or not 2 <= bins <= self.domain.sizes[self.domain.index(name)]:
                raise ConfigError(
                    f"{name!r} cannot be a number of {bins} bins",
                    where="numbers",
                    allowed="a column to predict from, of 2 bins or more",
                )

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """The positions of the feature columns in a record."""
        return tuple(self.domain.index(name) for name in self.columns or ())

    @cached_property
    def clique(self) -> Clique:
        """The feature columns and the target."""
        return tuple(sorted((*self.positions, self.domain.index(self.target))))

    @cached_property
    def has_constant(self) -> bool:
        """Whether a constant feature stands at the end: one-hot blocks already hold one."""
        return all(self._is_number(name) for name in self.columns or ())

    @cached_property
    def blocks(self) -> tuple[Floats, ...]:
        """The features of every code of each column, shape (codes, features of the column)."""
        return tuple(self._block(name) * self.scale for name in self.columns or ())

    @cached_property
    def scale(self) -> float:
        """1 over the root of the number of columns, rounded down so that no exact norm passes 1."""
        parts = len(self.columns or ()) + self.has_constant
        scale = 1.0 / math.sqrt(parts)
        while Fraction(scale) ** 2 * parts > 1:
            scale = math.nextafter(scale, 0.0)
        return scale

    @cached_property
    def dimension(self) -> int:
        """Number of features."""
        return int(sum(block.shape[1] for block in self.blocks)) + int(self.has_constant)

    def labels(self, records: NDArray[np.int32]) -> Floats:
        """1 for the positive class, else -1."""
        return np.where(records[:, self.domain.index(self.target)] == self.positive, 1.0, -1.0)

    def names(self, schema: Schema | None = None) -> tuple[str, ...]:
        """A name for each feature: ``column=code``, ``column`` for a number, ``constant``; with labels of a schema."""
        feature_names: list[str] = []
        for name, block in zip(self.columns or (), self.blocks, strict=True):
            labels = [str(code) for code in range(len(block))] if schema is None else schema[name].labels()
            first = block.shape[0] - block.shape[1] + 1 if self._is_number(name) else 0
            feature_names += [name] if self._is_number(name) else []
            feature_names += [f"{name}={label}" for label in labels[first:]]
        return (*feature_names, "constant") if self.has_constant else tuple(feature_names)

    def scores(self, coefficients: Floats) -> tuple[list[Floats], float]:
        """What each code of each column adds to ``<x, coefficients>``, and what the constant adds."""
        parts, start = [], 0
        for block in self.blocks:
            parts.append(block @ coefficients[start : start + block.shape[1]])
            start += block.shape[1]
        return parts, self.scale * float(coefficients[start]) if self.has_constant else 0.0

    def margins(self, records: NDArray[np.int32], coefficients: Floats) -> Floats:
        """``<x, coefficients>`` of every record."""
        scores, constant = self.scores(coefficients)
        total = np.full(len(records), constant)
        for position, column in zip(self.positions, scores, strict=True):
            total += column[records[:, position]]
        return total

    def gathered(self, sums: Sequence[Floats], total: float) -> Floats:
        """``sum_i a_i x_i`` from the sums of ``a_i`` over the records of each code of each column, and over all."""
        parts = [block.T @ column for block, column in zip(self.blocks, sums, strict=True)]
        if self.has_constant:
            parts.append(np.array([self.scale * total]))
        return np.concatenate(parts)

    def _is_number(self, name: str) -> bool:
        return name in dict(self.numbers) or self.domain.sizes[self.domain.index(name)] == 2

    def _block(self, name: str) -> Floats:
        size = self.domain.sizes[self.domain.index(name)]
        if not self._is_number(name):
            return np.eye(size)
        bins = dict(self.numbers).get(name, size)
        block = np.zeros((size, 1 + size - bins))
        # Halves of whole numbers over a whole number: at most 1 in magnitude, also when rounded.
        block[:bins, 0] = (2 * np.arange(bins) - (bins - 1)) / (bins - 1)
        block[bins:, 1:] = np.eye(size - bins)
        return block
