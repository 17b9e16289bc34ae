"""Private empirical risk minimisation: linear classifiers by output perturbation on a grid, and their streams.

Features are made from the public domain alone, with norms of at most 1. Losses are convex functions of a margin
``m = y <x, theta>``, 1-Lipschitz and smooth.

``F(theta) = (1/t) sum_i loss(y_i <x_i, theta>) + (lam/2) |theta|^2`` is ``lam``-strongly convex, so every point lies
within ``|grad F| / lam`` of the minimiser. The gradient is computed in floating point with a bound on its error that
holds for all data; a point is given out only where computed norm and bound together are small enough: its distance from
the minimiser is certified, not assumed. The proofs, of the bound and that such a point is always reached, are in
docs/theory/erm.md.

Trusted base: kernel (reads private records, draws a classifier, amounts of classifiers).
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

from dpstream.core.contracts import (
    UNPACKED,
    Packed,
    RecipeContext,
    SectionReader,
    Synthesis,
    build,
    check_words,
    located,
    option,
    pack_fields,
    unpack_fields,
)
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema import Categorical, Real, Schema
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.schema.numeric import Ordered
from dpstream.families.growing.blackbox import MAX_UNIVERSE, BlackBox, BoxRun, Counts, Database
from dpstream.families.growing.growing_plan import GrowingPlan, GrowingState, LastRun
from dpstream.families.growing.run_schedule import ScheduledRun

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


#: Regularisation is chosen between these; below, the minimiser could not be certified, above nothing is learned.
_WEAKEST_LAM, _STRONGEST_LAM = 2.0**-24, 1.0
#: Regularisation is stronger where noise would cost more than this: that was better wherever it was measured.
_MAX_NOISE_COST = 1.0 / 32.0
#: The grid is this much finer than the sensitivity, per root of the dimension: rounding costs a thousandth.
_GRID_FINENESS = 1024
#: Floats hold all whole numbers up to this one exactly.
_MAX_EXACT = 2.0**53


def root_above(number: int) -> Fraction:
    """A rational of at least the square root, by at most a millionth."""
    return Fraction(math.isqrt(number * 10**12) + 1, 10**6)


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
        root = root_above(self.features.dimension)
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
                "the minimiser cannot be certified in double precision with so many records and so little "
                "regularisation",
                where="erm",
                allowed=f"t * (1 + smoothness / lam) * 8 * {self.rounding:.1e} up to {_MAX_SHARE}",
            )
        _ = self.noise
        if self.ball / self.step >= _MAX_EXACT:
            raise LimitError(
                "the coefficients would not fit the grid", where="erm", allowed="a smaller t, or a larger lam"
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
    raise AssertionError("gradient descent ended outside the bounds of its proof")


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


def _predictors(
    section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]
) -> tuple[str, ...] | None:
    return section.columns("predictors", "all others")


def _positive(section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]) -> str | None:
    if section.has("positive"):
        return section.text("positive")
    assert given.schema is not None
    with located(section.place()):
        section.note("positive", given.schema[earlier["target"]].labels()[1], default=True)
    return None


@dataclass(frozen=True)
class ERM(BlackBox[LinearClassifier]):
    """Regularised logistic regression, or a linear support vector machine with a rounded hinge.

    Guarantee: a run satisfies its budget (pure, or zCDP) for the replacement of one record, ``t`` public. The
    minimiser of the regularised risk moves by at most ``2 / (lam t)`` (Chaudhuri, Monteleoni, Sarwate 2011,
    Theorem 8); the solver's certified distance to it and the rounding to a grid are part of the sensitivity; the
    noise is exact integer noise. Proof: docs/theory/erm.md.

    Args:
        schema: the columns, one of which is the target.
        positive: the label of the target that counts as positive; None: its second one.
        predictors: the columns to predict from; None: all but the target.
        as_numbers: those that are taken as one number, by the position of their bin; the others are one-hot.
        loss: ``logistic`` or ``svm``.
        radius: the norm of the coefficients that the regularisation is balanced for; a public guess. None takes half
            a unit for each feature of each column: ``sqrt(columns * features) / 2``.
        lam: strength of the regularisation, a float; None: chosen for each run from ``t``, the budget and
            ``radius`` so that the bound of ``predicted_excess`` is smallest, or more where noise would be large.

    Errors:
        ConfigError, SchemaError: an unknown column, label or loss, a number without an order, a ``radius`` or ``lam``
            that cannot be used, or more than 10^7 combinations of features and target.

    Cost: about ``sqrt(smoothness / lam) log(t)`` passes over the different records; memory for them.

    Reference: Chaudhuri, Monteleoni, Sarwate (2011), Algorithm 1, with another noise; Bassily, Smith, Thakurta
    (2014) for the lower bounds.
    """

    schema: Schema
    target: str = option(
        allowed="a column of two or more values, with black_box = erm",
        shown="not set; needed with black_box = erm",
        reason="only the owner knows what is to be predicted",
        meaning="The column that a classifier predicts.",
    )
    positive: str | None = option(
        None,
        allowed="a label of the target, with black_box = erm",
        shown="its second label",
        reason="for a boolean target that is true",
        meaning="The value of the target that counts as positive; all others are negative.",
        read=_positive,
    )
    predictors: tuple[str, ...] | None = option(
        None,
        allowed="a list of columns, with black_box = erm",
        shown="all other columns",
        reason="a choice of columns needs knowledge; fewer features mean less noise",
        meaning="The columns to predict from. Together with the target they have at most 10^7 combinations of values.",
        read=_predictors,
    )
    as_numbers: tuple[str, ...] = option(
        (),
        key="numbers",
        allowed="a list of integer, real or date columns, with black_box = erm",
        reason="a feature for each bin can follow any shape",
        meaning="Predictors that are taken as one number each, by the position of the bin: far fewer features.",
    )
    loss: LossName = option(
        "logistic",
        allowed="logistic, svm, with black_box = erm",
        reason="it gives probabilities",
        meaning="Logistic regression, or a linear support vector machine with a rounded hinge.",
    )
    radius: float | None = None
    lam: float | None = None

    name = "erm"

    def __post_init__(self) -> None:
        check_words(self)
        if self.features.domain.cells(self.features.clique) > MAX_UNIVERSE:
            raise ConfigError(
                "features and target together have too many combinations to be kept as counts",
                where="predictors",
                allowed="fewer columns, or coarser ones: at most 10^7 combinations",
            )
        for key, value, most in (("radius", self.radius, 1e6), ("lam", self.lam, _STRONGEST_LAM)):
            if value is not None and not (isinstance(value, (int, float)) and _WEAKEST_LAM <= value <= most):
                raise ConfigError(
                    f"{key} = {value!r}", where="erm", allowed=f"{_WEAKEST_LAM:.0e} to {most:g}"
                )

    @cached_property
    def features(self) -> FeatureMap:
        """How records become features."""
        labels = self.schema[self.target].labels()
        if self.positive is not None and self.positive not in labels:
            raise ConfigError(
                f"{self.target!r} has no label {self.positive!r}", where="target", allowed=", ".join(labels)
            )
        numbers = []
        for name in self.as_numbers:
            column = self.schema[name]
            if not isinstance(column, Ordered):
                raise ConfigError(
                    f"{name!r} is {column.type_name}",
                    where="numbers",
                    allowed="integer, real and date columns",
                )
            numbers.append((name, column.bins))
        positive = 1 if self.positive is None else labels.index(self.positive)
        columns = None if self.predictors is None else tuple(self.predictors)
        return FeatureMap(self.schema.domain, self.target, positive, columns, tuple(numbers))

    @property
    def reads(self) -> Counts:
        """The counts of all combinations of features and target."""
        return Counts(self.features.domain, (self.features.clique,))

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        return {
            "loss": self.loss,
            "target": self.features.target,
            "positive": self.features.positive,
            "columns": list(self.features.columns or ()),
            "numbers": [list(pair) for pair in self.features.numbers],
            "radius": self.assumed_radius,
            "lam": self.lam,
        }

    def describe(self) -> str:
        """One run in words."""
        kind = "logistic regression" if self.loss == "logistic" else "a linear support vector machine"
        return (
            f"{kind} for {self.features.target!r} on {self.features.dimension} features, regularised, with integer "
            "noise on a grid added to its coefficients"
        )

    @property
    def assumed_radius(self) -> float:
        """The given ``radius``, or what its public rule says."""
        if self.radius is not None:
            return float(self.radius)
        return 0.5 * math.sqrt(len(self.features.blocks) * self.features.dimension)

    def plan(self, budget: Budget, t: int) -> ErmRun:
        """The public numbers of a run."""
        loss = LOSSES[self.loss]
        lam = self._best_lam(budget, t, loss) if self.lam is None else float(self.lam)
        return ErmRun(self.features, loss, lam, budget, t)

    def predicted_excess(self, budget: Budget, t: int) -> float:
        """A bound on the expected excess risk over every classifier of norm ``radius`` or less.

        The excess risk is the mean loss over the ``t`` records, without regularisation, less that of the other
        classifier. A bound of the loss of the classifier 0 (``log 2``, or 1 for ``svm``) or more promises nothing.
        """
        run = self.plan(budget, t)
        share = run.shrinkage
        noise = run.loss.smoothness * run.standard_error**2 / 2.0
        solver = run.share / (run.lam * t) + run.step * math.sqrt(self.features.dimension) / 2.0
        bias = run.lam * self.assumed_radius**2 / 2.0
        return (1.0 - share) * run.loss.at_zero + share * (bias + solver) + share**2 * noise

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[LinearClassifier]:
        """Minimise, round, add noise.

        Errors:
            LimitError: see ``ErmRun.check``.
        """
        run = self.plan(budget, data.t)
        run.check()
        point = minimise(Rows(self.features, data.counts[0], data.t), run)
        whole = np.rint(point / run.step).astype(np.int64)
        noisy = randomness.measure(whole, run.noise).astype(np.float64)
        measured, error = noisy * run.step, run.standard_error
        return BoxRun(LinearClassifier(self.features, self.loss, measured, error, data.t, run.lam))

    def _best_lam(self, budget: Budget, t: int, loss: Loss) -> float:
        """The minimum of ``smoothness * variance / 2 + lam radius^2 / 2`` with variance ``c / (lam t)^2``.

        It is larger where noise would cost more than ``_MAX_NOISE_COST`` in the mean loss. It is rounded up to
        eight binary digits, so that it can be read, and doubled until double precision can certify the minimiser
        among so many records. Any value is private; some are better.
        """
        if isinstance(budget, PureDP):
            variance = 8.0 * self.features.dimension / float(budget.epsilon) ** 2
        else:
            variance = 2.0 / float(budget.rho)
        curved = loss.smoothness * variance
        balanced = (2.0 * curved / (self.assumed_radius * t) ** 2) ** (1.0 / 3.0)
        quiet = math.sqrt(curved / (2.0 * _MAX_NOISE_COST)) / t
        share, exponent = math.frexp(min(max(balanced, quiet, _WEAKEST_LAM), _STRONGEST_LAM))
        lam = math.ldexp(math.ceil(share * 256.0), exponent - 8)
        while lam < _STRONGEST_LAM and not ErmRun(self.features, loss, lam, budget, t).usable:
            lam *= 2.0
        return min(lam, _STRONGEST_LAM)


def read_erm(section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]) -> ERM:
    """The black box that the options describe.

    Errors:
        ConfigError: an option that is unknown or unusable. SchemaError: an unknown column.
    """
    if given.schema is None:
        raise section.wrong("target", "a classifier needs a schema: labels and bins", "a file with [schema]")
    box: ERM = build(section, ERM, given)
    return box


# Streams: schedulers and improvers around ``ERM``.

#: The bound of released numbers that the codebook shows: no number comes near it.
_CODEBOOK_BOUND = 1e12


@dataclass(frozen=True)
class ClassifierSynthesis(Synthesis):
    """The last run's classifier at the present size.

    Attributes:
        classifier: of the last run; all coefficients are 0 before the first.
        t: number of records now; public.
        made: the last run; None before the first.
        excess: a bound on its expected excess risk, on the records that it was trained on (``ERM.predicted_excess``);
            None before the first run.
        next_run: the size at which the next one is due.
    """

    noun = "a classifier"

    classifier: LinearClassifier
    t: int
    made: LastRun | None
    excess: float | None
    next_run: int
    #: The number of records is public.
    total_error = 0.0

    @property
    def domain(self) -> Domain:
        """The columns of the records."""
        return self.classifier.features.domain

    @property
    def total(self) -> float:
        """The number of records: public, not estimated."""
        return float(self.t)

    def rows(self, schema: Schema, most: int) -> int:
        """One row for each feature; never cut."""
        return len(schema["feature"].labels())

    def released(self, schema: Schema, rows: int, seed: int) -> Any:
        """One row for each feature: its name, its coefficient, and what was measured with which noise."""
        import pyarrow as pa

        made = self.classifier
        names = schema["feature"].labels()
        columns: dict[str, Any] = {
            "feature": pa.array(names, pa.string()),
            "coefficient": pa.array(made.coefficients),
            "measured": pa.array(made.measured),
            "standard_error": pa.array(np.full(len(names), made.standard_error)),
        }
        return pa.table(columns)

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says: which run this is, what it cost, and how noisy the coefficients are."""
        facts = {
            "total_standard_error": 0.0,
            "records": self.t,
            "next_run_at": self.next_run,
            "run": None if self.made is None else self.made.facts(),
        }
        if self.made is None or self.excess is None:
            return facts
        return {
            **facts,
            "standard_error": self.classifier.standard_error,
            "shrinkage": self.classifier.shrinkage,
            "excess": self.excess if self.excess < LOSSES[self.classifier.loss].at_zero else None,
        }

    def pack(self) -> Packed:
        """Arrays and JSON."""
        return pack_fields(self)


@dataclass
class ClassifierState(GrowingState):
    """The state of a stream of classifiers."""

    table: LinearClassifier  # type: ignore[assignment]


@dataclass(frozen=True)
class ClassifierPlan(GrowingPlan):
    """A calibrated scheduler or improver whose black box is ``ERM``.

    Guarantee: that of ``GrowingPlan``. A release is a classifier; as a table, one row for each feature.
    """

    @property
    def erm(self) -> ERM:
        """The black box."""
        assert isinstance(self.box, ERM)
        return self.box

    def released_schema(self, schema: Schema) -> Schema:
        """The columns of the table of coefficients; features are named by the labels of ``schema``."""
        names = self.erm.features.names(schema)
        numbers = [
            Real(name, (low, _CODEBOOK_BOUND))
            for name, low in (
                ("coefficient", -_CODEBOOK_BOUND),
                ("measured", -_CODEBOOK_BOUND),
                ("standard_error", 0.0),
            )
        ]
        return Schema((Categorical("feature", names), *numbers))

    def promise(self, run: ScheduledRun) -> float | None:
        """The bound on the excess risk; None where a classifier of zeros would be within it, too."""
        bound = self.promised_excess(run)
        return bound if bound < LOSSES[self.erm.loss].at_zero else None

    def promised_excess(self, run: ScheduledRun) -> float:
        """A bound on the expected excess risk of a run, before any data is read."""
        return self.erm.predicted_excess(run.budget, run.t)

    def classifier_facts(self) -> dict[str, Any]:
        """See ``GrowingPlan.classifier_facts``."""
        features = self.erm.features
        return {"target": features.target, "columns": list(features.columns or ())}

    def unpack_synthesis(self, packed: Packed) -> ClassifierSynthesis:
        """The inverse of ``ClassifierSynthesis.pack``."""
        return unpack_fields(ClassifierSynthesis, packed, **self._given)

    def _blank(self) -> LinearClassifier:
        features = self.erm.features
        return LinearClassifier(features, self.erm.loss, np.zeros(features.dimension), 0.0, 0, 1.0)

    @property
    def _state_kind(self) -> type[GrowingState]:
        return ClassifierState

    @property
    def _given(self) -> dict[str, Any]:
        return {"features": self.erm.features, "loss": self.erm.loss}

    def _synthesis(self, state: GrowingState) -> ClassifierSynthesis:
        assert isinstance(state, ClassifierState)
        following = self.schedule.time(state.done + 1)
        made, excess = state.made, None
        if made is not None:
            excess = self.promised_excess(self.schedule.run(*made.epochs, made.t))
        return ClassifierSynthesis(state.table, state.t, made, excess, max(following, state.t + 1))
