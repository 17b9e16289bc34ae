"""Offline mechanisms: one table in, one model out. The baseline stream runs one at every step.

Trusted base: kernel (selects and measures).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpstream.core.contracts import Events, Part, PrivateBatch, check_share, check_words, option
from dpstream.core.errors import ConfigError
from dpstream.core.graphical import Measurement, Model, tree_cells
from dpstream.core.privacy import Budget, Event, HistogramsNoise, Noise, PureDP, Randomness, noise_for
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.mechanisms import options
from dpstream.mechanisms.engine import Run, Selector
from dpstream.mechanisms.joint_groups import draws, noise_of
from dpstream.mechanisms.limits import TreeCapacity, check_each, check_fit
from dpstream.mechanisms.run_outputs import RunOutput
from dpstream.mechanisms.workload_cells import Cells, Score, ScoreName


@dataclass(frozen=True)
class OfflineRun:
    """What a run released; all of it public.

    Attributes:
        model: fitted to everything measured.
        total_variance: of the noise in ``total`` (0 where that is public, None where public scales do not give it).
        measurements: independent noise of known variance each, where nothing was drawn together.
        outputs: the same measurements as whole numbers, for publishing.
        rounds: how many selections were made.
        spent: the amount of the budget that the parts add up to.
        sums: for each draw, what it says of the number of records.
    """

    model: Model
    total_variance: float | None = None
    measurements: tuple[Measurement, ...] = ()
    outputs: tuple[RunOutput, ...] = ()
    rounds: int = 0
    spent: Fraction = Fraction(0)
    sums: tuple[Measurement, ...] = ()

    @property
    def total(self) -> float:
        """The noisy number of records."""
        return self.model.total


class OfflinePlan(ABC):
    """A calibrated offline mechanism.

    Guarantee: one call of ``run`` costs ``budget`` under ``unit``, for the part of the batch it reads.
    """

    budget: Budget
    unit: Event
    workload: Workload

    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """What each part of one run costs."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""

    @abstractmethod
    def run(
        self, batch: PrivateBatch, part: Events, randomness: Randomness, prior: Model | None = None
    ) -> OfflineRun:
        """Spend the budget once on one part of a batch; ``model.total`` is the noisy number of records.

        ``prior``: a public model of what such batches look like, to start from; None: the uniform distribution.
        """

    @property
    def counted(self) -> tuple[Clique, ...]:
        """The marginals whose counts a run takes, in order."""
        return self.workload.cliques

    def numbers(self) -> tuple[int, int] | None:
        """How many numbers a run measures, at least and at most; None where the mechanism does not tell."""
        return None


class OfflineMechanism(ABC):
    """A recipe for an offline mechanism (the extension point of the baseline stream)."""

    @abstractmethod
    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> OfflinePlan:
        """Fix every noise scale."""


@dataclass(frozen=True)
class MWEMPGM(OfflineMechanism):
    """MWEM+PGM: select the worst explained marginal, measure it, fit a graphical model, repeat.

    Guarantee: pure epsilon (zCDP with a zCDP budget) for one record. A run selects ``k - 1`` times and measures ``k``
    histograms; the first is the one with the fewest cells, a public choice. Where ``k`` is the whole workload, nothing
    is selected, and all marginals share the budget (docs/theory/joint-noise.md).

    Args:
        k: marginals measured; None: the number of columns. measure_share: part of the budget for measuring.
        score: see ``Score``. iterations: of the fit after each measurement.
        prior_weight: how much the table is taken to look like the prior (0: not; 1: as if drawn from it).
        max_cells: limit on the junction tree; a marginal that would pass it is left out, by a public rule.

    Cost: ``k`` fits and ``k`` evaluations of the workload.
    Reference: Liu, Vietri, Wu (2021); McKenna et al. (2019); Kumar et al., Algorithm 1.
    """

    k: int | None = option(None, options.K)
    measure_share: Fraction = Fraction(1, 2)
    score: ScoreName = "sum-cells"
    iterations: int = option(50, options.ITERATIONS)
    max_cells: int = option(10_000, options.TREE_CELLS)
    prior_weight: float = 0.1

    def __post_init__(self) -> None:
        check_words(self)
        if self.k is not None and self.k < 1:
            raise ConfigError(f"k = {self.k}", where="mechanism", allowed="1 or more")
        object.__setattr__(self, "measure_share", check_share(self.measure_share, "measure_share"))
        check_fit(self.iterations, self.max_cells, self.prior_weight)

    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> MWEMPGMPlan:
        """Fix every noise scale; refuses a ``k`` above the number of marginals."""
        k = min(len(workload.domain), len(workload.cliques)) if self.k is None else self.k
        if k > len(workload.cliques):
            raise ConfigError(
                f"k = {k} exceeds the workload's {len(workload.cliques)} marginals",
                where="mechanism",
                allowed=f"1 to {len(workload.cliques)}",
            )
        check_each(workload, self.max_cells)
        return MWEMPGMPlan(self, workload, budget, unit, k)


@dataclass(frozen=True)
class MWEMPGMPlan(OfflinePlan):
    """See ``MWEMPGM``."""

    recipe: MWEMPGM
    workload: Workload
    budget: Budget
    unit: Event
    k: int

    @cached_property
    def whole(self) -> bool:
        """Whether all marginals are measured, and nothing is selected. Public: it follows from their sizes."""
        return (
            self.k == len(self.workload.cliques)
            and tree_cells(self.workload.domain, self.workload.cliques) <= self.recipe.max_cells
        )

    @property
    def joint(self) -> bool:
        """Whether they have joint noise, where that is less."""
        return self.whole and isinstance(self.budget, PureDP)

    @cached_property
    def draws(self) -> list[tuple[tuple[Clique, ...], Budget]]:
        """All marginals in groups of one draw each, with their budgets; for runs of the whole workload."""
        cliques = self.workload.cliques
        groups = draws([self.workload.domain.cells(clique) for clique in cliques], self.budget, self.unit)
        return [(tuple(cliques[i] for i in group), budget) for group, budget in groups]

    @cached_property
    def _noises(self) -> list[tuple[int, Noise | HistogramsNoise]]:
        """Of each draw: the cells of its first marginal, and the noise."""
        sizes = [([self.workload.domain.cells(clique) for clique in group], own) for group, own in self.draws]
        return [(cells[0], noise_of(budget, cells, self.unit)) for cells, budget in sizes]

    def _split(self) -> tuple[Budget, Budget | None]:
        """The budgets of one measurement and of one selection; where nothing is selected, measuring gets it
        all."""
        if self.k == 1 or self.whole:
            return self.budget.scaled(Fraction(1, self.k)), None
        share = self.recipe.measure_share
        return (
            self.budget.scaled(share / self.k),
            self.budget.scaled((1 - share) / (self.k - 1)),
        )

    @cached_property
    def noise(self) -> Noise:
        """The noise of every measured cell: a histogram moves by 1 in ``unit.changed_cells`` cells."""
        measure, _ = self._split()
        return noise_for(measure, self.unit.changed_cells, self.unit.changed_cells)

    @property
    def cell_variance(self) -> float:
        """Of the noise in a measured cell; where marginals have different noise, on average over these."""
        if not self.joint:
            return self.noise.variance
        own = [v for _, noise in self._noises for v in getattr(noise, "variances", (noise.variance,))]
        return float(sum(own) / len(own))

    @cached_property
    def _score(self) -> Score:
        bias = float(np.sqrt(self.noise.variance * 2 / np.pi))
        return Score(Cells(self.workload), self.recipe.score, self.unit, bias)

    def parts(self) -> tuple[Part, ...]:
        """Selections and measurements of one run."""
        measure, select = self._split()
        if self.joint:
            laws = ", ".join(dict.fromkeys(noise.describe() for _, noise in self._noises))
            return (Part("measure", 1, self.budget, f"all marginals with {laws}"),)
        lines = [Part("measure", self.k, measure, f"marginals with {self.noise.describe()}")]
        if select is not None:
            detail = f"{Selector(select).describe()}, score {self.recipe.score}"
            lines.insert(0, Part("select", self.k - 1, select, detail))
        return tuple(lines)

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        return {"offline": "mwem-pgm", **options.as_json(self.recipe, k=self.k)}

    def numbers(self) -> tuple[int, int]:
        """See ``OfflinePlan.numbers``."""
        sizes = np.sort(Cells(self.workload).sizes)
        return int(sizes[: self.k].sum()), int(sizes[-self.k :].sum())

    def total_variance(self) -> float:
        """Variance of the noise in a run's total, predicted before any data is read.

        The smallest marginal is always measured; of the others, ``k - 1`` of average precision are assumed.
        """
        if self.unit.relation == "replace":
            return 0.0
        if self.whole:
            precision = (
                1.0 / (noise.sum_variance if isinstance(noise, HistogramsNoise) else noise.variance * cells)
                for cells, noise in self._noises
            )
            return 1.0 / sum(precision)
        precisions = np.sort(1.0 / Cells(self.workload).sizes)[::-1]
        others = precisions[1:].mean() if self.k > 1 else 0.0
        return float(self.noise.variance / (precisions[0] + (self.k - 1) * others))

    def run(
        self, batch: PrivateBatch, part: Events, randomness: Randomness, prior: Model | None = None
    ) -> OfflineRun:
        """See ``OfflinePlan.run``: the variance is that of an inverse-variance mean, given what was selected."""
        arrays = batch.count(self.workload.cliques, part)
        counts = dict(zip(self.workload.cliques, arrays, strict=True))
        run = Run(self.workload.domain, counts, self.unit, randomness, prior)
        if self.whole:
            for cliques, budget in self.draws:
                run.measure(cliques, budget)
            self._fit(run)
        else:
            self._select_and_measure(run)
        return OfflineRun(run.model, run.total[1], tuple(run.measured), tuple(run.outputs))

    def _fit(self, run: Run) -> None:
        run.fit(self.recipe.iterations, self.recipe.max_cells, self.recipe.prior_weight)

    def _select_and_measure(self, run: Run) -> None:
        """The marginal with the fewest cells, then ``k - 1`` times what the model explains worst, with a fit after
        each."""
        score, (measure, select) = self._score, self._split()
        cells, counts = score.cells, np.concatenate(list(run.counts.values()))
        chosen, room = int(np.argmin(cells.sizes)), TreeCapacity(self.workload, self.recipe.max_cells)
        for number in range(self.k):
            if number and select is not None:
                scores = score.evaluate(counts, run.model.flat_marginals(cells.cliques))
                allowed = room.allowed()
                if not len(allowed):
                    break  # the model is full: what is left of this run is charged, and not used
                chosen = run.select(scores, score.grid_sensitivity, allowed, select)
            room.take(chosen)
            run.measure([cells.cliques[chosen]], measure, chosen=number > 0)
            self._fit(run)
