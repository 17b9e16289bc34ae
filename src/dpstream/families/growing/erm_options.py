"""What a classifier's run is made with: its options, its features, and its regularisation. Any of it is private."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpstream.core.contracts import (
    RecipeContext,
    SectionReader,
    check_words,
    located,
    option,
)
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.schema import Schema
from dpstream.core.schema.numeric import Ordered
from dpstream.families.growing.blackbox import BlackBox
from dpstream.families.growing.erm_run import (
    ErmRun,
    FeatureMap,
    LinearClassifier,
    Loss,
    LossName,
)
from dpstream.families.growing.tables import MAX_UNIVERSE

#: Regularisation is chosen between these; below, the minimiser could not be certified, above nothing is learned.
_WEAKEST_LAM, _STRONGEST_LAM = 2.0**-24, 1.0
#: Regularisation is stronger where noise would cost more than this: that was better wherever it was measured.
_MAX_NOISE_COST = 1.0 / 32.0


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
class ErmOptions(BlackBox[LinearClassifier]):
    """The options of ``ERM``, and the regularisation that is chosen for a run."""

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
