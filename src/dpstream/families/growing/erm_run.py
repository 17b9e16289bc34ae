"""Private empirical risk minimisation: linear classifiers by output perturbation on a grid.

Features are made from the public domain alone, with norms of at most 1. Losses are convex functions of a margin
``m = y <x, theta>``, 1-Lipschitz and smooth.

``F(theta) = (1/t) sum_i loss(y_i <x_i, theta>) + (lam/2) |theta|^2`` is ``lam``-strongly convex, so every point lies
within ``|grad F| / lam`` of the minimiser. The gradient is computed in floating point with a bound on its error that
holds for all data; a point is given out only where computed norm and bound together are small enough: its distance from
the minimiser is certified, not assumed. The proofs, of the bound and that such a point is always reached, are in
docs/theory/erm.md.

Trusted base: kernel (reads private records, noise of classifiers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import UNPACKED
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import Budget, Noise, noise_for
from dpstream.core.schema import Clique, Domain, Schema

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
LossName = Literal["logistic", "svm"]


@dataclass(frozen=True)
class Loss:
    """A convex loss of a margin, which does not rise.

    Attributes:
        smoothness: Lipschitz constant of ``slope``.
        at_zero: the loss of the margin 0, rounded up.
        slope: its derivative, in [-1, 0], computed to within ``_SLOPE_ERROR (1 + |m|)`` units of 2^-53.
    """

    smoothness: float
    at_zero: float
    slope: Callable[[Floats], Floats]


#: exp is right to 4 units in every common library, and the quotient adds two; the rest is a margin.
_SLOPE_ERROR = 16.0


def _logistic_slope(margins: Floats) -> Floats:
    # exp(-|m|) cannot overflow; both branches are quotients of positive numbers without cancellation.
    small = np.exp(-np.abs(margins))
    return -np.where(margins > 0.0, small, 1.0) / (1.0 + small)


def _svm_slope(margins: Floats) -> Floats:
    return -np.clip(1.5 - margins, 0.0, 1.0)


#: ``log(1 + exp(-m))``; and the hinge ``max(0, 1 - m)`` with its corner rounded off between ``1/2`` and ``3/2``
#: (Chapelle 2007).
LOSSES: Mapping[LossName, Loss] = {
    "logistic": Loss(0.25, math.nextafter(math.log(2.0), 1.0), _logistic_slope),
    "svm": Loss(1.0, 1.0, _svm_slope),
}


@dataclass(frozen=True)
class FeatureMap:
    """How codes become features ``x`` with ``||x||_2 <= 1``, and a target's code a label.

    A column of two codes becomes -1 or 1, another one a one-hot block. A column in ``numbers`` becomes one number
    from -1 to 1 by the position of its bin, and one-hot flags for its other codes (null, other values).
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
                f"positive = {self.positive} must be a code of {self.target!r}, which needs two",
                where="target",
                allowed=f"0 to {size - 1}, of two or more",
            )
        chosen = tuple(name for name in self.domain.names if name != self.target)
        if self.columns is not None:
            chosen = tuple(self.columns)
        if not chosen or self.target in chosen or len(set(chosen)) != len(chosen):
            raise ConfigError(
                "predictors are missing, repeated, or include the target",
                where="columns",
                allowed="different columns without the target",
            )
        object.__setattr__(self, "columns", chosen)
        for name, bins in self.numbers:
            if name not in chosen or not 2 <= bins <= self.domain.sizes[self.domain.index(name)]:
                raise ConfigError(
                    f"{name!r} cannot be a number of {bins} bins",
                    where="numbers",
                    allowed="a predictor of 2 bins or more",
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

    def names(self, schema: Schema | None = None) -> tuple[str, ...]:
        """A name for each feature: ``column=code``, ``column`` for a number, ``constant``; with labels of a schema."""
        feature_names: list[str] = []
        for name, block in zip(self.columns or (), self.blocks, strict=True):
            labels = [str(code) for code in range(len(block))] if schema is None else schema[name].labels()
            first = block.shape[0] - block.shape[1] + 1 if self._is_number(name) else 0
            feature_names += [name] if self._is_number(name) else []
            feature_names += [f"{name}={label}" for label in labels[first:]]
        return (*feature_names, "constant") if self.has_constant else tuple(feature_names)

    def margins(self, columns: Sequence[Ints], coefficients: Floats) -> Floats:
        """``<x, coefficients>`` of every record, from the codes of each feature column."""
        start = 0
        total = np.full(len(columns[0]), self.scale * float(coefficients[-1]) if self.has_constant else 0.0)
        for block, column in zip(self.blocks, columns, strict=True):
            total += (block @ coefficients[start : start + block.shape[1]])[column]
            start += block.shape[1]
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


def shrinkage(loss: Loss, standard_error: float) -> float:
    """``loss(0) / (2 smoothness noise^2)``, at most 1: what noisy coefficients are multiplied by.

    The noise in a record's margin has at most the variance of one coefficient's, and costs ``smoothness / 2`` times
    that in the mean loss. Shrunk, it never costs more than a quarter of what the classifier 0 loses.
    """
    cost = 2.0 * loss.smoothness * standard_error**2
    return 1.0 if cost <= loss.at_zero else loss.at_zero / cost


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """What one run of ``ERM`` gives.

    Attributes:
        features: from codes to features.
        loss: what was minimised.
        measured: the noisy minimiser: right in the mean (up to the solver's certified distance).
        standard_error: of the noise in one coefficient of ``measured``.
        t: number of records it was trained on.
        lam: strength of the regularisation.
    """

    features: FeatureMap = field(metadata=UNPACKED)
    loss: LossName = field(metadata=UNPACKED)
    measured: Floats
    standard_error: float
    t: int
    lam: float

    @property
    def shrinkage(self) -> float:
        """What ``measured`` is multiplied by; public."""
        return shrinkage(LOSSES[self.loss], self.standard_error)

    @cached_property
    def coefficients(self) -> Floats:
        """What predictions are made with: ``shrinkage`` times ``measured``."""
        return self.measured * self.shrinkage


#: The relative rounding error of one operation.
_ROUNDING_UNIT = 2.0**-53
#: Records that one running sum takes: its rounding error grows with their number.
_CHUNK = 4096
#: How close to the minimiser, as a share of ``1 / (lam t)``, half of what one record can move it by.
_WANTED_SHARE = 2.0**-10
#: The largest distance that is allowed, in the same unit: beyond it the sensitivity would suffer.
_MAX_SHARE = 0.25
#: The grid is this much finer than the sensitivity, per root of the dimension: rounding costs a thousandth.
_GRID_FINENESS = 1024
#: Floats hold all whole numbers up to this one exactly.
_MAX_EXACT = 2.0**53


@dataclass(frozen=True)
class ErmRun:
    """All public numbers of one run: regularisation, certified distance, grid, sensitivity, noise.

    Guarantee: with the noise added to ``rint(minimiser / step)``, where the minimiser is known to within
    ``share / (lam t)``, one run satisfies ``budget`` for the replacement of one of ``t`` records.
    Proof: docs/theory/erm.md.
    """

    features: FeatureMap
    loss: Loss
    lam: float
    budget: Budget
    t: int

    @property
    def condition(self) -> float:
        """Smoothness over strong convexity of ``F``."""
        return 1.0 + self.loss.smoothness / self.lam

    @property
    def ball(self) -> float:
        """Twice the largest norm of a minimiser: ``(lam/2) |theta|^2 <= F(0) = loss(0)`` there."""
        return 2.0 * math.sqrt(2.0 * self.loss.at_zero / self.lam)

    @cached_property
    def rounding(self) -> float:
        """No computed gradient inside the ball is further than this from the exact one."""
        sizes = [len(block) for block in self.features.blocks]
        margin = self.loss.smoothness * (len(sizes) + max(sizes) + 4) * self.ball
        slope = _SLOPE_ERROR * (1.0 + self.ball)
        sums = _CHUNK + self.t / _CHUNK + max(sizes) + 8
        regular = 4.0 * (1.0 + self.lam * self.ball)
        # Twice, for products of rounding errors and for the rounding of this very number.
        return 2.0 * _ROUNDING_UNIT * (margin + slope + sums + regular)

    @cached_property
    def gradient(self) -> float:
        """The largest exact norm of the gradient at a point that is given out: ``lam * distance``."""
        return max(_WANTED_SHARE / self.t, 8.0 * self.condition * self.rounding)

    @property
    def share(self) -> float:
        """Largest distance from the minimiser, as a share of ``1 / (lam t)``; at least ``gradient * t``."""
        return math.nextafter(self.gradient * self.t, math.inf)

    @property
    def usable(self) -> bool:
        """Whether the distance hardly adds to the sensitivity."""
        return self.share <= _MAX_SHARE

    def holds(self, point: Floats, gradient: Floats) -> bool:
        """Whether ``point``, with this computed gradient, is within the distance."""
        norm = float(np.linalg.norm(gradient)) * (1.0 + 1e-9)
        return norm + self.rounding <= self.gradient and float(np.linalg.norm(point)) <= 0.99 * self.ball

    @cached_property
    def distance(self) -> Fraction:
        """How far apart the solver's points of two neighbours can be (L2): ``2 (1 + share) / (lam t)``."""
        return 2 * (1 + Fraction(self.share)) / (Fraction(self.lam) * self.t)

    @cached_property
    def step(self) -> float:
        """The step of the grid, a power of two: divisions by it are exact."""
        return 2.0 ** math.floor(
            math.log2(float(self.distance) / (_GRID_FINENESS * math.sqrt(self.features.dimension)))
        )

    @cached_property
    def sensitivity(self) -> tuple[int, Fraction]:
        """(L1, squared L2) of the rounded point, in steps; each of its coordinates was rounded by 1/2 at most."""
        # At least the root of the dimension, by at most a millionth.
        root = Fraction(math.isqrt(self.features.dimension * 10**12) + 1, 10**6)
        steps = self.distance / Fraction(self.step)
        return math.floor(root * (steps + root)), (steps + root) ** 2

    @cached_property
    def noise(self) -> Noise:
        """The noise of each coordinate, in steps of the grid."""
        return noise_for(self.budget, *self.sensitivity)

    @property
    def standard_error(self) -> float:
        """The standard deviation of the noise in one coefficient, before it is shrunk."""
        return self.step * math.sqrt(self.noise.variance)

    @property
    def shrinkage(self) -> float:
        """See ``LinearClassifier.shrinkage``."""
        return shrinkage(self.loss, self.standard_error)

    def check(self) -> None:
        """Refuse what cannot be run, by public numbers only.

        Errors:
            LimitError: too many records for the certificate, noise beyond 64-bit numbers, or coefficients beyond
                the grid.
        """
        if not self.usable:
            raise LimitError(
                "the minimiser cannot be certified in double precision",
                where="erm",
                allowed=f"t * (1 + smoothness / lam) * 8 * {self.rounding:.1e} up to {_MAX_SHARE}",
            )
        _ = self.noise
        if self.ball / self.step >= _MAX_EXACT:
            raise LimitError(
                "coefficients exceed the grid", where="erm", allowed="a smaller t, or a larger lam"
            )


class Rows:
    """Different records with their multiplicities, in the columns that matter. Private.

    Args:
        counts: the marginal of ``features.clique``, flat in C order.

    Attributes:
        columns: codes of each feature column. labels: 1 or -1. weights: multiplicities; they add up to ``total``.
    """

    def __init__(self, features: FeatureMap, counts: NDArray[np.int64], total: int) -> None:
        self.features, self.total = features, total
        occupied, clique = np.flatnonzero(counts), features.clique
        codes = dict(zip(clique, np.unravel_index(occupied, features.domain.shape(clique)), strict=True))
        target = codes[features.domain.index(features.target)]
        self.columns = [codes[position] for position in features.positions]
        self.labels = np.where(target == features.positive, 1.0, -1.0)
        self.weights = counts[occupied].astype(np.float64)

    def gradient(self, loss: Loss, lam: float, theta: Floats) -> Floats:
        """The gradient of ``F`` at ``theta``; sums are cut into chunks, so that their rounding stays small."""
        margins = self.features.margins(self.columns, theta) * self.labels
        pulls = loss.slope(margins) * self.labels * self.weights
        sums = [np.zeros(block.shape[0]) for block in self.features.blocks]
        total = 0.0
        for start in range(0, len(pulls), _CHUNK):
            part = slice(start, start + _CHUNK)
            total += float(pulls[part].sum())
            for sum_, column in zip(sums, self.columns, strict=True):
                sum_ += np.bincount(column[part], weights=pulls[part], minlength=len(sum_))
        return self.features.gathered(sums, total) / self.total + lam * theta


def minimise(rows: Rows, run: ErmRun) -> Floats:
    """A point within ``run.share / (lam t)`` of the exact minimiser.

    Accelerated gradient steps, then as many plain ones as the proof of termination needs.

    Cost: about ``sqrt(smoothness / lam) * log(t)`` passes over the different records.
    """
    root = math.sqrt(run.condition)
    momentum = (root - 1.0) / (root + 1.0)
    accuracy = math.log(8.0 * run.condition / run.gradient)
    accelerated, plain = math.ceil(4.0 * root * accuracy), math.ceil(4.0 * root * root * accuracy)
    for steps, weight in ((accelerated, momentum), (plain, 0.0)):
        point = _descend(rows, run, steps, weight)
        if point is not None:
            return point
    raise AssertionError("gradient descent left its proven bounds")


def _descend(rows: Rows, run: ErmRun, steps: int, momentum: float) -> Floats | None:
    """A point for which the certificate holds, if gradient descent from the origin gets there in so many steps."""
    loss, lam = run.loss, run.lam
    length = 1.0 / (loss.smoothness + lam)
    before = point = np.zeros(run.features.dimension)
    for _ in range(steps + 1):
        gradient = rows.gradient(loss, lam, point)
        if run.holds(point, gradient):
            return point
        moved = point - length * gradient
        point, before = moved + momentum * (moved - before), moved
    return None
