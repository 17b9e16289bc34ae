"""Private empirical risk minimisation: linear classifiers by output perturbation on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema import Schema
from dpstream.core.schema.numeric import Ordered
from dpstream.families.growing.blackbox import MAX_UNIVERSE, BlackBox, BoxReads, Counts, Database, Records
from dpstream.families.growing.erm_classifier import LinearClassifier, shrinkage
from dpstream.families.growing.erm_features import FeatureMap
from dpstream.families.growing.erm_loss import Loss, LossName, loss_by_name
from dpstream.families.growing.erm_solver import GradientCertificate, Rows, minimise

#: Regularisation is chosen between these; below, the minimiser could not be certified, above nothing is learned.
_WEAKEST_LAM, _STRONGEST_LAM = 2.0**-24, 1.0
#: Regularisation is stronger where noise would cost more than this: that was better wherever it was measured.
_LARGEST_NOISE_COST = 1.0 / 32.0
#: The grid is this much finer than the sensitivity, per root of the dimension: rounding costs a thousandth.
_GRID_FINENESS = 1024
#: Floats hold all whole numbers up to this one exactly.
_LARGEST_EXACT = 2.0**53


@dataclass(frozen=True)
class ErmRun:
    """All public numbers of one run: regularisation, certified distance, grid, sensitivity, noise.

    Guarantee: with the noise added to ``rint(minimiser / step)``, where the minimiser is known to within
    ``certificate.share / (lam t)``, one run satisfies ``budget`` for the replacement of one of ``t`` records.
    Proof: docs/theory/erm.md.
    """

    features: FeatureMap
    loss: Loss
    lam: float
    budget: Budget
    t: int

    @cached_property
    def certificate(self) -> GradientCertificate:
        """How close to the exact minimiser the solver has to come."""
        return GradientCertificate(self.features, self.loss, self.lam, self.t)

    @cached_property
    def distance(self) -> Fraction:
        """How far apart the solver's points of two neighbours can be (L2): ``2 (1 + share) / (lam t)``."""
        return 2 * (1 + Fraction(self.certificate.share)) / (Fraction(self.lam) * self.t)

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
        self.certificate.check()
        _ = self.noise
        if self.certificate.ball / self.step >= _LARGEST_EXACT:
            raise LimitError(
                "the coefficients would not fit the grid", where="erm", allowed="a smaller t, or a larger lam"
            )


@dataclass(frozen=True)
class ERM(BlackBox[LinearClassifier]):
    """Regularised logistic regression, or a linear support vector machine with a rounded hinge.

    Guarantee: a run satisfies its budget (pure, or zCDP) for the replacement of one record, ``t`` public. The
    minimiser of the regularised risk moves by at most ``2 / (lam t)`` (Chaudhuri, Monteleoni, Sarwate 2011,
    Theorem 8); the solver's certified distance to it and the rounding to a grid are part of the sensitivity; the
    noise is exact integer noise. Proof: docs/theory/erm.md.

    Args:
        features: the target and how records become features.
        loss: ``logistic`` or ``svm``.
        radius: the norm of the coefficients that the regularisation is balanced for; a public guess. None takes half
            a unit for each feature of each column: ``sqrt(columns * features) / 2``.
        lam: strength of the regularisation, a float; None: chosen for each run from ``t``, the budget and
            ``radius`` so that the bound of ``predicted_excess`` is smallest, or more where noise would be large.

    Errors:
        ConfigError: an unknown loss, or a ``radius`` or ``lam`` that cannot be used.

    Cost: about ``sqrt(smoothness / lam) log(t)`` passes over the different records; memory for them.

    Reference: Chaudhuri, Monteleoni, Sarwate (2011), Algorithm 1, with another noise; Bassily, Smith, Thakurta
    (2014) for the lower bounds.
    """

    features: FeatureMap
    loss: LossName = "logistic"
    radius: float | None = None
    lam: float | None = None

    name = "erm"

    def __post_init__(self) -> None:
        loss_by_name(self.loss)
        for key, value, most in (("radius", self.radius, 1e6), ("lam", self.lam, _STRONGEST_LAM)):
            if value is not None and not (isinstance(value, (int, float)) and _WEAKEST_LAM <= value <= most):
                raise ConfigError(
                    f"{key} = {value!r}", where="erm", allowed=f"{_WEAKEST_LAM:.0e} to {most:g}"
                )

    @classmethod
    def of_schema(
        cls,
        schema: Schema,
        target: str,
        *,
        positive: str | None = None,
        columns: Sequence[str] | None = None,
        numbers: Sequence[str] = (),
        loss: LossName = "logistic",
        radius: float | None = None,
        lam: float | None = None,
    ) -> ERM:
        """The black box for the columns of a schema.

        Args:
            columns: to predict from; None: all but the target.
            numbers: those that are taken as one number, by the position of their bin; the others are one-hot.

        Errors:
            ConfigError, SchemaError: unknown columns or labels, a number without an order.
        """
        labels = schema[target].labels()
        if positive is not None and positive not in labels:
            raise ConfigError(
                f"{target!r} has no label {positive!r}", where="target", allowed=", ".join(labels)
            )
        for name in numbers:
            if not isinstance(schema[name], Ordered):
                raise ConfigError(
                    f"{name!r} is {schema[name].type_name}",
                    where="numbers",
                    allowed="integer, real and date columns",
                )
        features = FeatureMap(
            schema.domain,
            target,
            1 if positive is None else labels.index(positive),
            None if columns is None else tuple(columns),
            tuple((name, schema[name].bins) for name in numbers),
        )
        return cls(features, loss, radius, lam)

    @property
    def reads(self) -> BoxReads:
        """The counts of all combinations of features and target; records, where there would be too many."""
        domain, clique = self.features.domain, self.features.clique
        if domain.cells(clique) <= MAX_UNIVERSE:
            return Counts(domain, (clique,))
        return Records(domain)

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
        loss = loss_by_name(self.loss)
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
        solver = run.certificate.share / (run.lam * t) + run.step * math.sqrt(self.features.dimension) / 2.0
        bias = run.lam * self.assumed_radius**2 / 2.0
        return (1.0 - share) * run.loss.at_zero + share * (bias + solver) + share**2 * noise

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> LinearClassifier:
        """Minimise, round, add noise.

        Errors:
            LimitError: see ``ErmRun.check``.
        """
        run = self.plan(budget, data.t)
        run.check()
        if data.records is None:
            rows = Rows.of_counts(self.features, data.counts[0], data.t)
        else:
            rows = Rows.of_records(self.features, data.records)
        point = minimise(rows, run.certificate)
        whole = np.rint(point / run.step).astype(np.int64)
        noisy = randomness.measure(whole, run.noise).astype(np.float64)
        return LinearClassifier(
            self.features, self.loss, noisy * run.step, run.standard_error, data.t, run.lam
        )

    def unpack(self, packed: Packed) -> LinearClassifier:
        """The inverse of ``LinearClassifier.pack``."""
        return LinearClassifier.unpack(packed)

    def _best_lam(self, budget: Budget, t: int, loss: Loss) -> float:
        """The minimum of ``smoothness * variance / 2 + lam radius^2 / 2`` with variance ``c / (lam t)^2``.

        It is larger where noise would cost more than ``_LARGEST_NOISE_COST`` in the mean loss. It is rounded up to
        eight binary digits, so that it can be read, and doubled until double precision can certify the minimiser
        among so many records. Any value is private; some are better.
        """
        if isinstance(budget, PureDP):
            variance = 8.0 * self.features.dimension / float(budget.epsilon) ** 2
        else:
            variance = 2.0 / float(budget.rho)
        curved = loss.smoothness * variance
        balanced = (2.0 * curved / (self.assumed_radius * t) ** 2) ** (1.0 / 3.0)
        quiet = math.sqrt(curved / (2.0 * _LARGEST_NOISE_COST)) / t
        share, exponent = math.frexp(min(max(balanced, quiet, _WEAKEST_LAM), _STRONGEST_LAM))
        lam = math.ldexp(math.ceil(share * 256.0), exponent - 8)
        while lam < _STRONGEST_LAM and not GradientCertificate(self.features, loss, lam, t).usable:
            lam *= 2.0
        return min(lam, _STRONGEST_LAM)


def root_above(number: int) -> Fraction:
    """A rational of at least the square root, by at most a millionth."""
    return Fraction(math.isqrt(number * 10**12) + 1, 10**6)
