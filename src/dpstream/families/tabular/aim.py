"""AIM: measure the columns, then again and again what the model explains worst, with a model that grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, Part, PrivateBatch, check_share, check_whole, option
from dpstream.core.graphical import Measurement, Model, TreeSizes, estimate_total, fit, tree_cells
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.families.tabular import options
from dpstream.families.tabular.aim_candidates import Candidates
from dpstream.families.tabular.limits import check_each
from dpstream.families.tabular.mwem_pgm import OfflineMechanism, OfflinePlan, OfflineRun
from dpstream.families.tabular.plans import check_fit
from dpstream.families.tabular.run_outputs import RunOutput, measurements_of
from dpstream.families.tabular.selector import Selector
from dpstream.families.tabular.targets import LEAST_VARIANCE

#: The most rounds of a run, however large the budget: each costs a fit.
_MOST_ROUNDS = 100
#: Factors of ``rounds_for``, from runs on two real and two invented tables of 500 to 50,000 records.
_PURE_ROUNDS, _ZCDP_ROUNDS = 1 / 19, 0.2
#: Columns get their number, divided by this times the number of rounds, as their part of the budget.
_COLUMNS_DIVISOR = 5
#: The part of the budget for the number of records, from which the number of rounds follows.
_TOTAL_SHARE = Fraction(1, 100)


@dataclass(frozen=True)
class AIM(OfflineMechanism):
    """AIM with fixed amounts per round: columns first, then select, measure and fit.

    Guarantee: pure epsilon (zCDP with a zCDP budget) for one record of the table. Columns get their part of the budget
    (``columns_for``); every round gets the same part of the rest, of which selecting and measuring get theirs. How
    many rounds there are follows from noisy values; the amounts add up to the budget in every case. Where few
    marginals hold the whole workload, they are measured without selecting. Proof: docs/theory/aim.md.

    Args:
        rounds: how many; None takes ``rounds_for`` of the noisy number of records.
        columns_share: part of the budget for the columns at least.
        measure_share: part of a round's budget for measuring; None takes 4/5 under pure DP, 9/10 under zCDP.
        unions: whether unions of three columns may be measured for the pairs in them (pure DP only; under zCDP they
            do not pay).
        iterations, final_iterations: of the fit after a round, and after the last one.
        max_cells: limit on the junction tree at the end; in a round, the share of it that is spent by then.
        prior_weight: as in ``MWEMPGM``, where a prior is given.

    Cost: ``rounds`` fits and as many evaluations of the workload from the model; 0.1 to 0.5 s for 13 columns.

    Reference: McKenna, Mullins, Sheldon, Miklau, "AIM: An Adaptive and Iterative Mechanism for Differentially Private
    Synthetic Data" (2022), with the differences that docs/theory/aim.md lists.
    """

    rounds: int | None = option(None, options.AIM_ROUNDS)
    columns_share: Fraction = option(Fraction(3, 20), options.COLUMNS_SHARE)
    measure_share: Fraction | None = option(None, options.AIM_SHARE)
    unions: bool = option(True, options.UNIONS)
    iterations: int = option(10, options.ITERATIONS)
    final_iterations: int = option(100, options.FINAL_ITERATIONS)
    max_cells: int = option(50_000, options.TREE_CELLS)
    prior_weight: float = option(0.1, options.PRIOR_WEIGHT)

    def __post_init__(self) -> None:
        if self.rounds is not None:
            check_whole(self.rounds, "rounds", 1, _MOST_ROUNDS)
        object.__setattr__(self, "columns_share", check_share(self.columns_share, "columns_share"))
        if self.measure_share is not None:
            object.__setattr__(self, "measure_share", check_share(self.measure_share, "measure_share"))
        check_fit(min(self.iterations, self.final_iterations), self.max_cells, self.prior_weight)

    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> AIMPlan:
        """Fix what may be measured and how the budget is shared."""
        check_each(workload, self.max_cells)
        return AIMPlan(self, workload, budget, unit)


@dataclass(frozen=True)
class AIMRun:
    """What a run released; all of it public.

    Attributes:
        model: fitted to everything measured (and known before), with ``total`` records.
        measurements: of this run alone: first columns, then one per round; independent noise of known variance.
        total, total_variance: noisy number of records from these, and the variance of its noise (0 where it is public).
        rounds: how many selections were made; 0 where there was nothing to select.
        spent: the amount of the budget that the parts add up to.
        outputs: the same measurements as whole numbers, for publishing.
    """

    model: Model
    measurements: tuple[Measurement, ...]
    total: float
    total_variance: float
    rounds: int
    spent: Fraction
    outputs: tuple[RunOutput, ...] = ()


@dataclass(frozen=True)
class AIMPlan(OfflinePlan):
    """See ``AIM``."""

    recipe: AIM
    workload: Workload
    budget: Budget
    unit: Event

    @cached_property
    def candidates(self) -> Candidates:
        """The marginals that may be measured."""
        power = -0.25 if self._pure else -0.5
        unions = self.recipe.unions and self._pure
        return Candidates(self.workload, self.unit, unions, power)

    @property
    def counted(self) -> tuple[Clique, ...]:
        """The marginals whose counts ``run_on`` takes, in order."""
        return self.candidates.counted

    @property
    def _pure(self) -> bool:
        return isinstance(self.budget, PureDP)

    @property
    def measure_share(self) -> Fraction:
        """Part of a round's budget for measuring."""
        given = self.recipe.measure_share
        return given if given is not None else Fraction(4, 5) if self._pure else Fraction(9, 10)

    def noise(self, budget: Budget) -> Noise:
        """The noise of a measured cell: a histogram moves by 1 in ``unit.changed_cells`` cells."""
        return noise_for(budget, self.unit.changed_cells, self.unit.changed_cells)

    def selector(self, budget: Budget) -> Selector:
        """What makes the choices; audits put one there that follows a script."""
        return Selector(budget)

    @cached_property
    def whole(self) -> bool:
        """Whether the workload is held by no more candidates than columns, and by the model: nothing is selected."""
        own = self.candidates
        return len(own.cover) <= len(own.columns) and self._fits(own.cover)

    def _fits(self, chosen: Sequence[int]) -> bool:
        cliques = [self.candidates.cliques[i] for i in chosen]
        return tree_cells(self.workload.domain, cliques) <= self.recipe.max_cells

    def rounds_for(self, records: float) -> int:
        """Rounds for a table of so many records (a noisy or public number).

        More rounds leave less to the model and more to the noise. If what the model leaves falls with the square of
        the number of rounds, the best number grows with ``(epsilon n)^(1/3)`` (pure: noise ``rounds / epsilon``), or
        ``(sqrt(rho) n)^(2/5)`` (zCDP: ``sqrt(rounds / rho)``). A union stands for two pairs and more; and the
        more columns there are, the more pairs depend on each other in more than a chance way.
        """
        if self.recipe.rounds is not None:
            return self.recipe.rounds
        amount, known = float(self.budget.amount), max(records, 1.0)
        if self._pure:
            wanted = _PURE_ROUNDS * (2.0 - self.candidates.covered) * (amount * known) ** (1 / 3)
        else:
            wanted = _ZCDP_ROUNDS * (amount**0.5 * known) ** (2 / 5)
        wanted *= len(self.candidates.columns) ** 0.75
        return int(min(max(round(wanted), 1), _MOST_ROUNDS))

    def columns_for(self, rounds: int) -> Fraction:
        """Part of the budget for the columns: the fewer rounds there are, the more is left to independence."""
        fair = Fraction(len(self.candidates.columns), _COLUMNS_DIVISOR * rounds)
        return min(max(self.recipe.columns_share, fair), Fraction(1))

    def parts(self) -> tuple[Part, ...]:
        """Columns and rounds; the rounds' own division follows from noisy values."""
        own = self.candidates
        if self.whole:
            each = self.budget.scaled(Fraction(1, len(own.cover)))
            return (Part("measure", len(own.cover), each, f"marginals with {self.noise(each).describe()}"),)
        total, share = self.budget.scaled(_TOTAL_SHARE), self.recipe.columns_share
        if self.unit.relation == "replace":
            total = self.budget.scaled(0)
        rest = self.budget.scaled(1 - total.amount / self.budget.amount)
        columns = self.noise(rest.scaled(share / len(own.groups))).describe()
        how = f"selecting ({self.selector(rest).describe()}) and measuring ({self.measure_share} of it)"
        lines = (
            Part(
                "columns and rounds",
                1,
                rest,
                f"columns with {columns} or less; equal rounds of {how}",
            ),
        )
        if not total.amount:
            return lines
        return (Part("total", 1, total, f"number of records with {self.noise(total).describe()}"), *lines)

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        return {"offline": "aim", **options.as_json(self.recipe, measure_share=self.measure_share)}

    def run(
        self, batch: PrivateBatch, part: Events, randomness: Randomness, prior: Model | None = None
    ) -> Model:
        """One run on one part of a batch."""
        return self.run_on(batch.count(self.counted, part), randomness, prior=prior).model

    def full_run(
        self, batch: PrivateBatch, part: Events, randomness: Randomness, prior: Model | None = None
    ) -> OfflineRun:
        """See ``OfflinePlan.full_run``."""
        run = self.run_on(batch.count(self.counted, part), randomness, prior=prior)
        return OfflineRun(run.model, run.total_variance, run.outputs)

    def numbers(self) -> tuple[int, int]:
        """See ``OfflinePlan.numbers``: the number of records, columns, and what the most rounds can choose."""
        own, domain = self.candidates, self.workload.domain
        cover = sum(domain.cells(own.cliques[i]) for i in own.cover)
        if self.whole:
            return cover, cover
        columns = (sum(map(domain.cells, own.groups)), sum(domain.sizes[i] for (i,) in own.columns))
        total, largest = int(self.unit.relation != "replace"), max(map(domain.cells, own.cliques))
        chosen = max((self.recipe.rounds or _MOST_ROUNDS) * largest, cover)
        return total + min(columns), total + max(columns) + chosen

    def run_on(
        self,
        counts: Sequence[NDArray[np.int64]],
        randomness: Randomness,
        *,
        known: Sequence[Measurement] = (),
        prior: Model | None = None,
        expected: float | None = None,
    ) -> AIMRun:
        """Spend the budget once on counts that are given.

        Args:
            counts: private, one array per clique of ``counted``.
            known: public: what is known of these very counts beforehand, with variances. Fits use it, columns that are
                known as well as a measurement would tell are not measured, and selections look elsewhere. Where it
                does not fit into the model, the later ones are left out.
            prior: public: a model that every fit is held to, as in ``MWEMPGM``.
            expected: public: about how many records there are. None: a hundredth of the budget tells.
        """
        progress = _Progress(self, counts, randomness, known, prior)
        own = self.candidates
        if self.whole:
            progress.measure_all(own.cover)
            return progress.result()
        if expected is None:
            expected = progress.measure_total()
        rounds = self.rounds_for(expected)
        progress.measure_columns(self.columns_for(rounds))
        if progress.spent == self.budget.amount:
            return progress.result()  # too few records for anything but columns
        if len(own.cover) <= rounds and self._fits(own.cover):
            progress.measure_all(own.cover)
        else:
            progress.select_and_measure(rounds)
        return progress.result()


@dataclass
class _Progress:
    """A run that is under way."""

    plan: AIMPlan
    counts: Sequence[NDArray[np.int64]]
    randomness: Randomness
    known: Sequence[Measurement]
    prior: Model | None
    measured: list[Measurement] = field(default_factory=list)
    outputs: list[RunOutput] = field(default_factory=list)
    taken: list[Clique] = field(default_factory=list)
    spent: Fraction = Fraction(0)
    rounds: int = 0

    def __post_init__(self) -> None:
        own = self.plan.candidates
        self.domain = self.plan.workload.domain
        self.of = {(): self.counts[0].sum(keepdims=True)} | dict(zip(own.counted, self.counts, strict=True))
        self.public_total = float(self.counts[0].sum()) if self.plan.unit.relation == "replace" else None
        self.precision = np.zeros(len(own.cells.cliques))
        self.known = self._known_that_fit()
        for measurement in self.known:
            self._note(measurement)
        self.model = Model.uniform(self.domain, 0.0) if self.prior is None else self.prior

    def _known_that_fit(self) -> list[Measurement]:
        kept: list[Measurement] = []
        for measurement in self.known:
            if (
                tree_cells(self.domain, [m.clique for m in [*kept, measurement]])
                <= self.plan.recipe.max_cells
            ):
                kept.append(measurement)
        return kept

    def _note(self, measurement: Measurement) -> None:
        """Book what a measurement says of the workload's marginals in it."""
        own = self.plan.candidates
        size = self.domain.cells(measurement.clique)
        for i in own.parts(measurement.clique):
            self.precision[i] += float(own.cells.sizes[i]) / (measurement.variance * size)
        if len(measurement.clique) > 1 and measurement.clique not in self.taken:
            self.taken.append(measurement.clique)

    @property
    def total(self) -> float:
        """Number of records, as far as it is known."""
        if self.public_total is not None:
            return self.public_total
        return estimate_total(self.measured or self.known)[0]

    def _measure(self, clique: Clique, budget: Budget, *, chosen: bool = False) -> None:
        """Measure one marginal."""
        noise = self.plan.noise(budget)
        values = self.randomness.measure(self.of[clique], noise)
        self.outputs.append(RunOutput.of_draw(self.domain, [clique], values, noise, chosen=chosen))
        self.spent += budget.amount
        self.measured += measurements_of([clique], values, noise)
        self._note(self.measured[-1])

    def _fit(self, iterations: int) -> None:
        recipe = self.plan.recipe
        self.model = fit(
            self.domain,
            [*self.known, *self.measured],
            total=self.total,
            # With a prior, every round starts from it again: it is what the fit is held to.
            warm=self.model if self.prior is None else self.prior,
            iterations=iterations if self.prior is None else recipe.final_iterations,
            max_cells=max(recipe.max_cells, tree_cells(self.domain, self.taken)),
            regularisation=0.0 if self.prior is None else recipe.prior_weight,
        )

    def measure_total(self) -> float:
        """Measure the number of records, unless it is public."""
        if self.public_total is None:
            self._measure((), self.plan.budget.scaled(_TOTAL_SHARE))
        return self.total

    def measure_columns(self, share: Fraction) -> None:
        """Measure all columns, or groups of them, each with an equal part of this share of what is left of the budget.

        Columns that are known as precisely already are left out.
        """
        plan, groups = self.plan, self._groups()
        each = plan.budget.scaled(share * self._left() / len(groups))
        enough = 1.0 / max(plan.noise(each).variance, LEAST_VARIANCE)
        fresh = [g for g in groups if min(self._known_precision((column,)) for column in g) < enough]
        for group in fresh:
            self._measure(group, each)
        self._fit(plan.recipe.final_iterations)

    def _groups(self) -> list[Clique]:
        """Groups of columns beside what is known already; one by one where the model could not hold a group."""
        chosen: list[Clique] = []
        for group in self.plan.candidates.groups:
            held = tree_cells(self.domain, [*self.taken, *chosen, group]) <= self.plan.recipe.max_cells
            chosen += [group] if held else [(column,) for column in group]
        return chosen

    def _left(self) -> Fraction:
        """The part of the budget that is not spent."""
        return 1 - self.spent / self.plan.budget.amount

    def _known_precision(self, column: Clique) -> float:
        """Precision of a column's cells from what was known before."""
        size = self.domain.cells(column)
        return sum(
            size / (m.variance * self.domain.cells(m.clique)) for m in self.known if column[0] in m.clique
        )

    def measure_all(self, cover: Sequence[int]) -> None:
        """Measure all of these with equal parts of what is left of the budget, and select nothing."""
        each = self.plan.budget.scaled(self._left() / len(cover))
        for i in cover:
            self._measure(self.plan.candidates.cliques[i], each)
        self._fit(self.plan.recipe.final_iterations)

    def select_and_measure(self, rounds: int) -> None:
        """``rounds`` times: choose among what the model may hold, measure, fit."""
        plan, own = self.plan, self.plan.candidates
        whole = plan.budget.amount
        turn = plan.budget.scaled(self._left() / rounds)
        measure, select = turn.scaled(plan.measure_share), turn.scaled(1 - plan.measure_share)
        variance = max(plan.noise(measure).variance, LEAST_VARIANCE)
        joined = np.concatenate([self.of[c] for c in own.cells.cliques])
        tree = TreeSizes(self.domain, own.cliques, self.taken)
        for number in range(rounds):
            allowed = self._allowed(tree, (self.spent + turn.amount) / whole)
            if not len(allowed):
                break  # the model is full: what is left of the budget is charged, and not used
            expected = self.model.flat_marginals(own.cells.cliques)
            scores = own.scores(joined, expected, variance, self.precision)
            chosen = plan.selector(select).choose(
                scores, np.ones_like(scores), allowed, Fraction(own.sensitivity), self.randomness
            )
            self.spent += select.amount
            self.rounds += 1
            self._measure(own.cliques[chosen], measure, chosen=True)
            tree.add(own.cliques[chosen])
            if number < rounds - 1:
                self._fit(plan.recipe.iterations)
        self._fit(plan.recipe.final_iterations)

    def _allowed(self, tree: TreeSizes, share: Fraction) -> NDArray[np.int64]:
        """Candidates with which the model keeps to its share of ``max_cells``, or else to all of it."""
        limit, everything = self.plan.recipe.max_cells, np.arange(len(self.plan.candidates.cliques))
        fitting = np.flatnonzero(tree.within(everything, limit * float(share)))
        return fitting if len(fitting) else np.flatnonzero(tree.within(everything, limit))

    def result(self) -> AIMRun:
        """What the run released."""
        variance = 0.0 if self.public_total is not None else estimate_total(self.measured)[1]
        model = self.model.with_total(self.total)
        measured, outputs = tuple(self.measured), tuple(self.outputs)
        return AIMRun(model, measured, self.total, variance, self.rounds, self.spent, outputs)
