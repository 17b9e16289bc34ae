"""Linear classifiers as a black box: options, what a run reads, and what it measures (``erm_run.py``).

Trusted base: kernel (draws a classifier).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpstream.core.contracts import RecipeContext, SectionReader, check_words, located, option
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Budget, PureDP, Randomness
from dpstream.core.schema import Ordered, Schema
from dpstream.families.growing.blackbox import BlackBox, BoxRun, Counts, Database
from dpstream.families.growing.erm_run import (
    LOSSES,
    ErmRun,
    FeatureMap,
    LinearClassifier,
    Loss,
    LossName,
    Rows,
    minimise,
)
from dpstream.families.growing.tables import MAX_UNIVERSE

#: Regularisation is chosen between these; below, the minimiser could not be certified, above nothing is learned.
_WEAKEST_LAM, _STRONGEST_LAM = 2.0**-24, 1.0
#: Regularisation is stronger where noise would cost more than this: that was better wherever it was measured.
_MAX_NOISE_COST = 1.0 / 32.0


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

    Guarantee: a run satisfies its budget for the replacement of one record, ``t`` public. The minimiser moves by at
    most ``2 / (lam t)``; the solver's certified distance and the rounding are part of the sensitivity. Proof:
    docs/theory/erm.md.

    Args:
        schema: the columns, one of which is the target. positive: its label that counts as positive; None: the second.
        predictors: None: all but the target. as_numbers: those taken as one number; the others are one-hot.
        loss: ``logistic`` or ``svm``. radius: norm of the coefficients that the regularisation is balanced for, public.
        lam: strength of the regularisation; None: chosen for each run so that ``predicted_excess`` is smallest.

    Errors:
        ConfigError, SchemaError: an unknown column, label or loss, or more than 10^7 combinations of features.
    """

    schema: Schema
    target: str = option(
        allowed="a column of two or more values, for erm",
        shown="needed with black_box = erm",
        reason="the owner chooses",
        meaning="The column to predict.",
    )
    positive: str | None = option(
        None,
        allowed="a label of the target, for erm",
        shown="its second label",
        reason="true of a boolean target",
        meaning="The target's positive value; all others are negative.",
        read=_positive,
    )
    predictors: tuple[str, ...] | None = option(
        None,
        allowed="a list of columns, for erm",
        shown="all other columns",
        reason="fewer features mean less noise",
        meaning="Columns to predict from: with the target at most 10^7 combinations.",
        read=lambda section, *_: section.columns("predictors", "all others"),
    )
    as_numbers: tuple[str, ...] = option(
        (),
        key="numbers",
        allowed="a list of integer, real or date columns, for erm",
        reason="a feature per bin fits any shape",
        meaning="Predictors taken as numbers, by bin position: far fewer features.",
    )
    loss: LossName = option(
        "logistic",
        allowed="logistic, svm, for erm",
        reason="it gives probabilities",
        meaning="Logistic regression, or a linear support vector machine.",
    )
    radius: float | None = None
    lam: float | None = None
    name = "erm"

    def __post_init__(self) -> None:
        check_words(self)
        if self.features.domain.cells(self.features.clique) > MAX_UNIVERSE:
            raise ConfigError(
                "features and target have too many combinations",
                where="predictors",
                allowed="fewer or coarser columns: at most 10^7 combinations",
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
                f"{self.target!r} lacks the label {self.positive!r}",
                where="target",
                allowed=", ".join(labels),
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

    def best_lam(self, budget: Budget, t: int, loss: Loss) -> float:
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

    # A run.

    @property
    def reads(self) -> Counts:
        """The counts of all combinations of features and target."""
        return Counts(self.features.domain, (self.features.clique,))

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

    def plan(self, budget: Budget, t: int) -> ErmRun:
        """The public numbers of a run."""
        loss = LOSSES[self.loss]
        lam = self.best_lam(budget, t, loss) if self.lam is None else float(self.lam)
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
