"""DP-STabS: select, measure with counters, fit, at every step (Algorithm 3).

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    Events,
    ExpectedErrors,
    ExpectedTable,
    NoisyCounts,
    Packed,
    Part,
    PrivateBatch,
    Recipe,
    StartTable,
    StreamPlan,
    Terms,
    check_share,
    check_words,
    marginal_query,
    option,
    pack_fields,
)
from dpstream.core.contracts.expectations import check_steps, with_table
from dpstream.core.counters import CalibratedCounter, Choice, Counter, SimpleCounter, best, counter_by_name
from dpstream.core.counters.choose import EXPECTED_TICKS
from dpstream.core.errors import ConfigError, HorizonError
from dpstream.core.graphical import Measurement, Model, estimate_total, fit, tree_cells
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.randomness import Exact, Noisy, Randomness
from dpstream.core.privacy.unit import Event, EventUnit
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular.dpstabs_state import (
    DpstabsSide,
    DPStabsState,
    arrival_weights,
    fresh_state,
    total_in_turns,
    unpack,
)
from dpstream.mechanisms import options, plans
from dpstream.mechanisms.description import counter_facts
from dpstream.mechanisms.engine import MIN_VARIANCE, Selector
from dpstream.mechanisms.limits import TreeCapacity, check_each
from dpstream.mechanisms.table_release import ModelSynthesis, average_marginals
from dpstream.mechanisms.workload_cells import Cells, Score, ScoreName

# Which counter a DP-STabS stream takes. Public: from the plan alone.

#: The name that leaves the choice to the predicted error.
BEST = "best"


def expected_ticks(steps: int | None, rounds: int, marginals: int) -> int:
    """How often a marginal is measured if they take turns; 250 steps are expected where there is no horizon.

    >>> expected_ticks(1000, 4, 78), expected_ticks(52, 3, 3), expected_ticks(None, 1, 2), expected_ticks(1, 1, 9)
    (52, 52, 125, 1)
    """
    return -(-(steps or EXPECTED_TICKS) * rounds // marginals)


def counter_for(
    wanted: Counter | str,
    workload: Workload,
    rounds: int,
    budget: Budget,
    unit: Event,
    steps: int | None,
    *,
    all_measured: bool,
) -> tuple[Counter, Choice | None]:
    """The counter of each marginal, and how it was chosen where it was.

    Args:
        wanted: a recipe, a name, or ``BEST``: that with the smallest predicted error for as many ticks as a marginal
            is expected to get. Counters that need a horizon are built for all steps, since a selection may pick one
            marginal at every step.
        all_measured: the released table is then fitted to running sums, and their errors are compared. Where
            marginals take turns, what the other steps brought comes from a model that learns from single gains, and
            the simple counter has the smallest error of a gain: it is ``BEST``, and nothing is compared.
        budget: of one counter.
        steps: the stream's horizon.

    Errors:
        ConfigError: an unknown name. HorizonError: a counter that may end before the stream.
    """
    marginals = workload.cliques
    ticks = expected_ticks(steps, rounds, len(marginals))
    if wanted == BEST and not all_measured:
        return SimpleCounter(), None
    if wanted == BEST:
        cells = sum(workload.domain.cells(clique) for clique in marginals)
        choice = best(budget, unit, horizon=steps, expected_ticks=ticks, width=cells)
        return choice.recipe, choice
    # The constants of "blt" are those that ``best`` would take: a stream can go on with the name of what was chosen.
    hint = ticks if steps is None and wanted == "blt" else steps
    recipe = counter_by_name(wanted, horizon=hint) if isinstance(wanted, str) else wanted
    # A counter that ends before the stream would fail at the step at which a private selection picks it.
    ends = recipe.tick_limit
    if ends is not None and (steps is None or ends < steps):
        raise HorizonError(
            f"the counter {recipe.name!r} is built for {ends} ticks, the stream for "
            + ("an unknown number of steps" if steps is None else f"{steps} steps"),
            where="mechanism",
            allowed="a counter for at least as many ticks as the horizon has steps",
        )
    return recipe, None


# What the fits of DP-STabS are asked to match. Everything here is public post-processing.


@dataclass(frozen=True)
class Targets:
    """Turns counter outputs into measurements for the fits."""

    cells: Cells
    counter: CalibratedCounter
    max_cells: int

    def gain_variance(self, ticks: int) -> float:
        """Variance of what one cell of a counter gained at its latest tick. Only a weight in fits.

        Outputs of a counter share most of their noise: the sum of both variances would be far too much.
        """
        return max(self.counter.gain_variance(ticks), MIN_VARIANCE)

    def variance(self, ticks: int) -> float:
        """The counter's variance after some ticks."""
        return max(self.counter.variance(ticks), MIN_VARIANCE)

    def cell_variances(self, state: DPStabsState) -> NDArray[np.float64]:
        """Noise variance of one cell of every workload's ``m_i``."""
        variances = np.zeros(len(self.cells.cliques))
        for side in state.sides:
            ticks, places = np.unique(np.maximum(side.ticks, 1), return_inverse=True)
            variances += np.array([self.variance(int(many)) for many in ticks])[places]
        return variances

    def total_variance(self, side: DpstabsSide, step: int) -> float | None:
        """Variance of a side's noisy total; None where it is not known."""
        if side.noise is not None:
            return side.noise.variance
        if (side.ticks == step).all():
            # The weights never changed, so that the counters' gains add up to their outputs.
            return self.variance(step) / float((1.0 / self.cells.sizes).sum())
        return None

    def booked(self, state: DPStabsState, indices: Sequence[int]) -> list[Measurement]:
        """``m_i = C_i + r_i`` (Algorithm 3) for some workloads."""
        values, variances = state.booked, self.cell_variances(state).tolist()
        cliques, part = self.cells.cliques, self.cells.part
        return [Measurement(cliques[i], values[part(i)], variances[i]) for i in indices]

    def columns(self, state: DPStabsState) -> list[Measurement]:
        """Every column's own distribution: the mean of what its workloads say of it.

        A column that depends on no other is in no kept workload, and would be uniform in the table's model.
        """
        values, variances, means = state.booked, self.cell_variances(state), []
        for column, (slots, owners, cells) in self._slots.items():
            size = self.cells.workload.domain.sizes[column]
            summed = np.bincount(slots, values[cells], minlength=size) / len(owners)
            variance = float((variances[owners] * self.cells.sizes[owners]).sum()) / size
            means.append(Measurement((column,), summed.astype(np.float64), variance / len(owners) ** 2))
        return means

    @cached_property
    def _slots(self) -> dict[int, tuple[NDArray[np.int64], list[int], NDArray[np.int64]]]:
        """Per column: its value in each cell of the workloads that have it, those workloads, their cells."""
        domain = self.cells.workload.domain
        slots_of = {}
        for column in range(len(domain)):
            owners = [i for i, clique in enumerate(self.cells.cliques) if column in clique]
            if not owners:
                continue
            slots, cells = [], []
            for i in owners:
                clique, part = self.cells.cliques[i], self.cells.part(i)
                slots.append(np.indices(domain.shape(clique))[clique.index(column)].ravel())
                cells.append(np.arange(part.start, part.stop))
            slots_of[column] = (np.concatenate(slots), owners, np.concatenate(cells))
        return slots_of

    def choose_kept(self, state: DPStabsState) -> list[int]:
        """The workloads that the table's model should hold: greedily by what independence would get wrong per
        cell (as the error is judged), while the junction tree stays small enough."""
        values = state.booked
        gains: list[tuple[float, int]] = []
        singles = self._singles(state)
        for i, clique in enumerate(self.cells.cliques):
            product = np.array([max(state.total, 0.0)])
            for column in clique:
                product = np.outer(product, singles[column]).ravel()
            distance = float(np.abs(values[self.cells.part(i)] - product).mean())
            gains.append((distance * float(self.cells.workload.weights[i]), i))
        room = TreeCapacity(self.cells.workload, self.max_cells)
        return room.take_in_order([i for _, i in sorted(gains, reverse=True)])

    def _singles(self, state: DPStabsState) -> list[NDArray[np.float64]]:
        """One probability vector per column, clipped at 0 and normalised; uniform where nothing is known."""
        known = {m.clique[0]: np.maximum(m.values, 0.0) for m in self.columns(state)}
        singles = []
        for column, size in enumerate(self.cells.workload.domain.sizes):
            values = known.get(column, np.ones(size))
            whole = values.sum()
            singles.append(values / whole if whole > 0.0 else np.full(size, 1.0 / size))
        return singles


Past = Literal["predicted", "literal"]
Aggregate = Literal["last", "average"]


@dataclass(frozen=True)
class DPStabs(Recipe["DPStabsPlan"]):
    """DP-STabS, Kumar, Strohmer, Vershynin, Algorithm 3.

    Guarantee: the budget, for the whole stream and one event (or one user, whose events each get their part of it:
    see ``dpstream.core.privacy.User``). One vector counter per workload, each within
    ``(1 - select_share) budget / k``; a batch is read by ``k`` selections (``select_share budget / k`` each)
    and enters ``k`` different counters. An event is in one batch, so these ``2 k`` parts compose to the budget.

    Args:
        workload: the marginals to preserve.
        k: workloads measured at every step, all different. None takes four, or all where there are fewer: each
            further one takes its share of the noise budget from the others.
        counter: a recipe, the name of one, or ``best``: that with the smallest predicted error for the number of
            measurements that a marginal is expected to get.
        score: how selection judges a workload, see ``Score``.
        aggregate: what a step leaves: the ``last`` model of its rounds or the ``average``; of the table
            (``literal``), or of the batch (``predicted``).
        past: what is booked (``r_i``) for a step at which a workload was not measured: ``predicted``, the answer of
            a model of the current batches; or ``literal``, the growth of the released table's own answer.
        prior_weight: how much a batch looks like those before it (0: not; 1: drawn from them); ``predicted`` only.
        deletions: a public statement that the stream may delete records. The predicted reading then follows inserts
            and deletes apart, each with its own counters and rounds at the full budget: an event is in one of the
            two. The literal reading counts inserts less deletes.
        cancels: of equal rows that a step inserts and deletes only the difference is read (unless their numbers are
            public).
        select_share: part of the budget for selections. iterations: of each fit, which starts from the last one.
        max_cells: limit on the model's junction tree.

    Cost: per step one count of the workload, ``k`` fits and ``k`` evaluations of the workload from the model. The
    state, counters and a few vectors over all cells, does not grow with the steps.
    """

    workload: Workload = option(of=options.WORKLOAD)
    k: int | None = option(None, options.K)
    counter: Counter | str = option(BEST, options.COUNTER)
    score: ScoreName = "sum-cells"
    aggregate: Aggregate = "last"
    past: Past = "predicted"
    prior_weight: float = 0.1
    deletions: bool = False
    cancels: bool = True
    select_share: Fraction = Fraction(1, 4)
    iterations: int = option(20, options.ITERATIONS)
    max_cells: int = option(5_000, options.TREE_CELLS)

    def __post_init__(self) -> None:
        count = len(self.workload.cliques)
        if self.k is not None and (isinstance(self.k, bool) or not 1 <= self.k <= count):
            what = f"k = {self.k} does not fit a workload of {count} marginals"
            raise ConfigError(what, where="mechanism", allowed=f"1 to {count}")
        check_words(self)
        object.__setattr__(self, "select_share", check_share(self.select_share, "select_share"))
        plans.check_fit(self.iterations, self.max_cells, self.prior_weight)
        check_each(self.workload, self.max_cells)

    @property
    def sides(self) -> tuple[Events, ...]:
        """The kinds of events that are followed apart."""
        return ("inserts", "deletes") if self.deletions and self.past == "predicted" else ("net",)

    @property
    def measures_all(self) -> bool:
        """Whether every workload is measured at every step, so that there is nothing to select."""
        count = len(self.workload.cliques)
        cells = tree_cells(self.workload.domain, self.workload.cliques)
        return self.rounds == count and cells <= self.max_cells

    @property
    def rounds(self) -> int:
        """``k``, or its default for this workload."""
        return plans.default_rounds(self.workload) if self.k is None else self.k

    def _plan(self, terms: Terms) -> DPStabsPlan:
        """Counters that need a horizon take it from the terms."""
        protected = plans.event_unit(terms.unit)
        # A plan that selects nothing spends everything on measurements.
        share = Fraction(0) if self.measures_all else self.select_share
        each = protected.per_event(terms.budget)
        measuring = each.scaled((1 - share) / self.rounds)
        given = (self.workload, self.rounds, measuring, protected.event, terms.horizon)
        recipe, choice = counter_for(self.counter, *given, all_measured=not share)
        counter = recipe.calibrate(measuring, protected.event)
        selector = Selector(each.scaled(share / self.rounds)) if share else None
        return DPStabsPlan(self, terms.budget, protected, terms.horizon, counter, selector, choice)


@dataclass(frozen=True)
class DPStabsPlan(StreamPlan):
    """See ``DPStabs``."""

    recipe: DPStabs
    budget: Budget
    unit: EventUnit
    horizon: int | None
    counter: CalibratedCounter
    selector: Selector | None
    choice: Choice | None = field(default=None, compare=False)  #: of the counter; None where it was given
    name = "dpstabs"
    follows_constraints = True

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.recipe.workload.domain

    def parts(self) -> tuple[Part, ...]:
        """What one event's batch costs: ``k`` selections and ``k`` counters; of a user's, all events together."""
        k = self.recipe.rounds * self.unit.factor(self.budget)
        measure = Part("measure", k, self.counter.budget, self.counter.describe())
        if self.selector is None:
            return (measure,)
        detail = f"{self.selector.describe()}, score {self.recipe.score}"
        return (Part("select", k, self.selector.budget, detail), measure)

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        known = {"k": self.recipe.rounds, "counter": self.counter.describe(), "cancels": self.cancels}
        return options.as_json(self.recipe, **known)

    @property
    def cancels(self) -> bool:
        """Whether equal rows that come and go within a step are left out."""
        return plans.leaves_out_cancelled(self.recipe.cancels, self.unit, deletions=self.recipe.deletions)

    def facts(self) -> dict[str, Any]:
        """The noise, how the counter was chosen, and how many numbers a step publishes."""
        facts = counter_facts(self.recipe.workload, self.counter, self.choice)
        facts["all_measured"] = self.selector is None
        if self.recipe.deletions:
            facts["turnover"] = {"cancelled": self.cancels}
        if self.counter.law(1, 1) is None:
            return facts
        sizes, k = np.sort(self.cells.sizes), self.recipe.rounds
        least, most = (int(chosen.sum()) * len(self.recipe.sides) for chosen in (sizes[:k], sizes[-k:]))
        return {**facts, "noisy_counts": {"first": least, "most": most, "at": "every_step"}}

    @cached_property
    def cells(self) -> Cells:
        """The workload as one vector."""
        return Cells(self.recipe.workload)

    @cached_property
    def _score(self) -> Score:
        bias = float(np.sqrt(2.0 * self.counter.variance(1) / np.pi))
        return Score(self.cells, self.recipe.score, self.unit, bias)

    @cached_property
    def _targets(self) -> Targets:
        return Targets(self.cells, self.counter, self.recipe.max_cells)

    def marginals(self, *models: Model) -> NDArray[np.float64]:
        """All cells of the workload from the equal mixture of some models."""
        return np.concatenate(average_marginals(models, self.cells.cliques))

    def fitted(
        self,
        measured: Sequence[Measurement],
        total: float,
        warm: Model | None,
        prior_weight: float = 0.0,
        iterations: int | None = None,
    ) -> Model:
        """A model of so many records, fitted to measurements from another one."""
        return fit(
            self.domain,
            measured,
            total=total,
            warm=warm,
            iterations=iterations or self.recipe.iterations,
            max_cells=self.recipe.max_cells,
            regularisation=prior_weight,
        )

    def start(self) -> DPStabsState:
        """The state before the first step: nothing is counted, and the model is uniform."""
        return fresh_state(self.cells, self.counter, len(self.recipe.sides))

    def start_from(self, base: StartTable) -> DPStabsState:
        """The state that begins with the base: its marginals are booked (``r_i``), and the first models are fitted
        to them."""
        plans.check_domain(base, self.domain)
        state = self.start()
        state.sides[0].total = base.total
        state.sides[0].remainder = np.concatenate(base.marginals(self.cells.cliques))
        state.with_base, state.rebuild_at = True, 0
        state.base_variance = None if base.total_error is None else base.total_error**2
        model = _fit_table(self, state)
        state.models, state.marginals = (model,), self.marginals(model)
        for side in state.sides:
            side.batch = model.with_total(1.0)
        return state

    def step(self, state: DPStabsState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """Run one step of Algorithm 3."""
        batch = plans.read_events(batch, deletions=self.recipe.deletions, cancels=self.cancels)
        state.step += 1
        measured: list[NoisyCounts] = []
        for part, side in zip(self.recipe.sides, state.sides, strict=True):
            reading = _LiteralStep if self.recipe.past == "literal" else _PredictedStep
            own = reading(self, state, side, batch.count(self.cells.cliques, part), randomness)
            own.run()
            measured += own.noisy_counts(part)
        if self.recipe.past == "predicted":
            state.models = (_fit_table(self, state),)
        return replace(self._synthesis(state), noisy_counts=tuple(measured))

    def _synthesis(self, state: DPStabsState) -> ModelSynthesis:
        """The release, with what public noise scales tell about it: nothing about counts where marginals are selected.

        Whether a selected marginal is chosen again depends on its own earlier noise: among releases in which one
        happens to be measured at every step, large errors are overrepresented.
        """
        total_error = self._total_error(state)
        passed = state.passed if self.cancels else None
        # After a base the counters hold only what came since, so no count over the whole table has an error bar.
        if self.selector is not None or state.with_base:
            return ModelSynthesis(state.models, state.total, total_error=total_error, passed=passed)
        deviation = (self._targets.variance(state.step) * len(state.sides)) ** 0.5
        cliques, estimates = self.cells.cliques, state.estimates
        return ModelSynthesis(
            state.models,
            state.total,
            errors=dict.fromkeys(cliques, deviation),
            counts={clique: estimates[self.cells.part(i)] for i, clique in enumerate(cliques)},
            noise=self.counter.law(state.step, len(state.sides)),
            total_error=total_error,
            passed=passed,
        )

    def _total_error(self, state: DPStabsState) -> float | None:
        """The standard error of the noisy total: the noise of what came and of what went is independent."""
        if self.unit.relation == "replace":
            return 0.0
        variances = [self._targets.total_variance(side, state.step) for side in state.sides]
        variances.append(state.base_variance)
        known = [variance for variance in variances if variance is not None]
        return math.sqrt(sum(known)) if len(known) == len(variances) else None

    def expected_errors(
        self, steps: Sequence[int], expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...]:
        """See ``StreamPlan.expected_errors``; a total's step by step prediction takes a second at most."""
        asked, sizes, rounds = check_steps(steps, self.horizon), self.cells.sizes, self.recipe.rounds
        totals: dict[int, float] = dict.fromkeys(asked, 0.0)
        if self.unit.relation != "replace":
            gain = self._targets.gain_variance
            totals = total_in_turns(self.counter, sizes, rounds, asked, gain, self._fits)
        sides, errors = len(self.recipe.sides), []
        for step in asked:
            turns, total = max(1, round(step * rounds / len(sizes))), totals.get(step)
            every, even = (math.sqrt(self.counter.variance(ticks) * sides) for ticks in (step, turns))
            whole = None if total is None else math.sqrt(total * sides)
            errors.append(
                ExpectedErrors(step, 0.0, whole, every_step=every, even_share=even, measurements=turns)
            )
        always = () if self.selector is not None else self.cells.cliques
        return with_table(errors, self.domain, always, expected)

    def asked_cliques(self) -> Sequence[Clique]:
        """All of the workload."""
        return self.cells.cliques

    def _fits(self, chosen: Sequence[int]) -> bool:
        """Whether one model may hold all these marginals: else a step that begins with some of them ends early."""
        cliques = [self.cells.cliques[i] for i in chosen]
        return tree_cells(self.domain, cliques) <= self.recipe.max_cells

    def pack_state(self, state: DPStabsState) -> Packed:
        """The whole state; it holds private sums."""
        return pack_fields(state)

    def unpack_state(self, packed: Packed) -> DPStabsState:
        """The inverse of ``pack_state``."""
        return unpack(packed, self.cells, self.counter)

    def unpack_synthesis(self, packed: Packed) -> ModelSynthesis:
        """The inverse of ``ModelSynthesis.pack``."""
        return ModelSynthesis.unpack(packed)


#: How many iterations fit the table's model after its structure has changed.
REFIT_ITERATIONS = 200

#: How quickly the predicted number of records per step forgets: about this many steps.
_RATE_MEMORY = 16


@dataclass
class _Step(ABC):
    """One side of one step under way: what the two readings of the listing share.

    Private: ``counts`` and the counters' sums; all else follows from noisy outputs.
    """

    plan: DPStabsPlan
    state: DPStabsState
    side: DpstabsSide
    counts: Sequence[Exact]
    randomness: Randomness
    chosen: list[int] = field(default_factory=list)
    increments: list[Measurement] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan, side = self.plan, self.side
        # Public: what was measured at this step must fit into one model.
        self.room = TreeCapacity(plan.recipe.workload, plan.recipe.max_cells)
        # Batch sizes may be read only where the owner declared them public ("replace").
        self.public_arrivals = float(self.counts[0].sum()) if plan.unit.relation == "replace" else None
        # Noisy counts are what was gained since; running sums, where everything is measured at every step.
        self.before = np.zeros_like(side.estimates) if plan.selector is None else side.estimates.copy()

    @abstractmethod
    def expected(self) -> NDArray[np.float64]:
        """What a selection takes the batch to hold, all cells."""

    @abstractmethod
    def fit(self) -> None:
        """Fit a model to what this step has measured so far."""

    @abstractmethod
    def book(self) -> None:
        """What the step leaves, also for marginals that it did not measure (``r_i``)."""

    def run(self) -> None:
        """``k`` rounds, then the bookkeeping that the next step starts from."""
        side, counts = self.side, np.concatenate(self.counts)
        for _ in range(self.plan.recipe.rounds):
            allowed = self.room.allowed()
            if not len(allowed):
                break  # the model is full: what is left of this step is charged, and not used
            self._measure(self._select(counts, allowed))
            self.fit()
        side.total += self.arrivals
        if side.noise is not None and self.public_arrivals is None:
            weights = arrival_weights(self.increments)
            ticks = side.ticks[self.chosen].tolist()
            side.noise.add(list(zip(self.chosen, ticks, weights, strict=True)))
        # A mean at first, which then forgets.
        side.rate += (self.arrivals - side.rate) / min(self.state.step, _RATE_MEMORY)
        self.book()

    def _select(self, counts: NDArray[np.int64], allowed: NDArray[np.int64]) -> int:
        """Choose a workload by how badly the batch is explained; in order where all are measured."""
        selector, score = self.plan.selector, self.plan._score
        if selector is None:
            return int(allowed[0])
        scores = score.evaluate(counts, self.expected())
        return selector.choose(*scores, allowed, score.grid_sensitivity, self.randomness)

    def _measure(self, index: int) -> None:
        """Tick one counter; what it gained is a noisy measurement of this batch."""
        side, plan, part = self.side, self.plan, self.plan.cells.part(index)
        estimate = plan.counter.step(side.counters[index], self.counts[index], self.randomness)
        gained = (estimate - side.estimates[part]).astype(np.float64)
        side.estimates[part] = estimate
        side.ticks[index] += 1
        self.chosen.append(index)
        self.room.take(index)
        variance = plan._targets.gain_variance(int(side.ticks[index]))
        self.increments.append(Measurement(plan.cells.cliques[index], gained, variance))

    def noisy_counts(self, part: Events) -> list[NoisyCounts]:
        """What the counters released at this step; nothing of counters whose law of noise is not known.

        Values of one counter share noise from step to step, so they have a series. They are running sums since step 1
        where every marginal is measured at every step; else what a marginal gained at this step, because its counter
        knows nothing of the steps that did not measure it.
        """
        plan, step, counts = self.plan, self.state.step, list[NoisyCounts]()
        every, gained = plan.selector is None, self.side.estimates - self.before
        for i in self.chosen:
            ticks = int(self.side.ticks[i])
            law = plan.counter.law(ticks, 1) if every else plan.counter.gain_law(ticks)
            if law is not None:
                columns = [plan.domain.names[column] for column in plan.cells.cliques[i]]
                name, first, query = (
                    f"{part}, {' x '.join(columns)}",
                    1 if every else step,
                    marginal_query(columns),
                )
                values = Noisy(gained[plan.cells.part(i)])
                counts.append(
                    NoisyCounts(f"step {step}, {name}", part, first, step, query, values, law, series=name)
                )
        return counts

    @property
    def unmeasured(self) -> NDArray[np.bool_]:
        """Which cells belong to workloads that were not measured at this step."""
        return np.repeat(self.room.left, self.plan.cells.sizes)

    @property
    def arrivals(self) -> float:
        """Noisy number of arrivals of this step (inverse-variance mean over the measured workloads)."""
        return estimate_total(self.increments)[0] if self.public_arrivals is None else self.public_arrivals

    @property
    def averages(self) -> bool:
        """Whether the step leaves the average of its models."""
        return self.plan.recipe.aggregate == "average"


class _LiteralStep(_Step):
    """The listing: fit the step's workloads to ``C_j + r_j``, starting from the last release."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.current, self.models = self.state.marginals, [self.state.models[-1]]

    def expected(self) -> NDArray[np.float64]:
        """What the model has gained since the last release: nothing in the first round."""
        return self.current - self.state.marginals

    def fit(self) -> None:
        targets, total = self.plan._targets.booked(self.state, self.chosen), self.side.total + self.arrivals
        self.models.append(self.plan.fitted(targets, total, self.models[-1]))
        self.current = self.plan.marginals(self.models[-1])

    def book(self) -> None:
        """``r_i`` makes up the difference between counter and release where nothing was measured."""
        state, side, mask = self.state, self.side, self.unmeasured
        state.models = tuple(self.models[1:] if self.averages else self.models[-1:])
        state.marginals = self.plan.marginals(*state.models)
        side.remainder[mask] = state.marginals[mask] - side.estimates[mask]


class _PredictedStep(_Step):
    """A model of the current batches predicts what was not measured; the table's model comes after all sides."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prior = self.batch = self.side.batch.bounded(plans.PRIOR_BOUND)
        self.rounds = [self.plan.marginals(self.batch.with_total(1.0))]

    def expected(self) -> NDArray[np.float64]:
        """The batch model's distribution times the predicted arrivals."""
        return self.rounds[-1] * (self.side.rate if self.public_arrivals is None else self.public_arrivals)

    def fit(self) -> None:
        """The batch as measured so far, as if it looked about like the batches before it."""
        total, weight = max(self.arrivals, 1.0), self.plan.recipe.prior_weight
        self.batch = self.plan.fitted(self.increments, total, self.prior, weight)
        self.rounds.append(self.plan.marginals(self.batch.with_total(1.0)))

    def book(self) -> None:
        """``r_i`` grows by what the batch model says of this step, where nothing was measured."""
        answers = np.mean(self.rounds[1:], axis=0) if self.averages else self.rounds[-1]
        mask = self.unmeasured
        self.side.remainder[mask] += answers[mask] * self.arrivals
        self.side.batch = self.batch


def _fit_table(plan: DPStabsPlan, state: DPStabsState) -> Model:
    """The table's model from ``m_i = C_i + r_i`` (of the inserts less of the deletes)."""
    changed, targets = state.step >= state.rebuild_at, plan._targets
    if changed:
        # The structure is chosen anew on a public schedule, ever more rarely: it costs many tree sizes.
        state.kept = targets.choose_kept(state)
        state.rebuild_at = state.step + max(1, state.step // 10)
    measured = targets.booked(state, state.kept) + targets.columns(state)
    if changed:
        return plan.fitted(measured, state.total, None, iterations=REFIT_ITERATIONS)
    return plan.fitted(measured, state.total, state.models[-1])
