"""DP-STabS: select, measure with counters, fit, at every step (Algorithm 3).

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    Events,
    NoisyCounts,
    Packed,
    Part,
    PrivateBatch,
    Recipe,
    StartTable,
    Terms,
    marginal_query,
    pack_fields,
    unpack_fields,
)
from dpstream.core.counters import CalibratedCounter, CounterState, SimpleCounter
from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Measurement, Model, estimate_total
from dpstream.core.privacy import AnyNoise, Exact, Noisy, Randomness
from dpstream.core.privacy.law import Law, NoiseSum
from dpstream.core.schema.domain import Clique
from dpstream.families.tabular.dpstabs_facts import (
    DPStabsBook,
    DPStabsFacts,
    DPStabsOptions,
    PublicSide,
    TotalNoise,
    arrival_weights,
    counter_for,
    fit_table,
)
from dpstream.mechanisms import Cells, ModelSynthesis, Score, plans
from dpstream.mechanisms.engine import Selector
from dpstream.mechanisms.limits import PRIOR_BOUND, TreeCapacity, check_domain

# The state of a DP-STabS stream.


@dataclass
class DpstabsSide(PublicSide):
    """The same, and one vector counter per workload (C_i); they hold private sums."""

    counters: list[CounterState]


@dataclass
class DPStabsState(DPStabsBook):
    """All that DP-STabS remembers. The sides hold private sums: the state is secret."""

    sides: tuple[DpstabsSide, ...]


def fresh_state(cells: Cells, counter: CalibratedCounter, sides: int) -> DPStabsState:
    """The state before the first step: nothing is counted; the model is uniform over an unknown (zero) total."""
    domain = cells.workload.domain
    return DPStabsState(
        step=0,
        sides=tuple(_fresh_side(cells, counter) for _ in range(sides)),
        models=(Model.uniform(domain, 0.0),),
        marginals=np.zeros(cells.total),
        kept=[],
        rebuild_at=1,
    )


def _fresh_side(cells: Cells, counter: CalibratedCounter) -> DpstabsSide:
    return DpstabsSide(
        total=0.0,
        rate=0.0,
        counters=[counter.init(int(size)) for size in cells.sizes],
        ticks=np.zeros(len(cells.cliques), dtype=np.int64),
        estimates=np.zeros(cells.total, dtype=np.int64),
        remainder=np.zeros(cells.total),
        batch=Model.uniform(cells.workload.domain, 1.0),
        noise=TotalNoise.fresh(counter, cells.sizes),
    )


def unpack(packed: Packed, cells: Cells, counter: CalibratedCounter) -> DPStabsState:
    """The inverse of ``pack_fields``; StoreDamagedError if the counters' arrays do not fit the counter."""
    state = unpack_fields(DPStabsState, packed, counter=counter, sizes=cells.sizes)
    for side in state.sides:
        vectors = len(side.estimates), len(side.remainder), len(side.ticks), len(side.counters)
        if vectors != (cells.total, cells.total, len(cells.cliques), len(cells.cliques)):
            raise StoreDamagedError("a side's counts do not fit the workload", where="state")
        for arrays, size in zip(side.counters, cells.sizes, strict=True):
            counter.check_state(arrays, int(size))
    return state


@dataclass(frozen=True)
class DPStabs(DPStabsOptions, Recipe["DPStabsPlan"]):
    """DP-STabS, Kumar, Strohmer, Vershynin, Algorithm 3. Theory: docs/theory/dp-stabs.md.

    Guarantee: the budget, for the whole stream and one event (or one user). A batch is read by ``k`` selections
    (``select_share budget / k`` each) and enters ``k`` counters (``(1 - select_share) budget / k`` each).

    Args:
        workload: the marginals to preserve. k: how many are measured at every step; None: four, or all of fewer.
        counter: a recipe, its name, or ``best``: that with the smallest predicted error.
        score, aggregate, past, prior_weight: how selection judges, what a step leaves, what is booked for steps without
            a measurement, how much a batch looks like those before it. ``literal`` values follow the text.
        deletions: a public statement that records may leave: inserts and deletes are followed apart, each at the full
            budget. cancels: of equal rows that come and leave in a step only the difference is read.
        select_share: part of the budget for selections. iterations: of each fit. max_cells: of the junction tree.

    Cost: per step ``k`` fits and ``k`` evaluations of the workload; the state does not grow with the steps.
    """

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
class DPStabsPlan(DPStabsFacts):
    """See ``DPStabs``."""

    def parts(self) -> tuple[Part, ...]:
        """What one event's batch costs: ``k`` selections and ``k`` counters; of a user's, all events together."""
        k = self.recipe.rounds * self.unit.factor(self.budget)
        measure = Part("measure", k, self.counter.budget, self.counter.describe())
        if self.selector is None:
            return (measure,)
        detail = f"{self.selector.describe()}, score {self.recipe.score}"
        return (Part("select", k, self.selector.budget, detail), measure)

    @cached_property
    def _score(self) -> Score:
        bias = float(np.sqrt(2.0 * self.counter.variance(1) / np.pi))
        return Score(self.cells, self.recipe.score, self.unit, bias)

    def start(self) -> DPStabsState:
        """The state before the first step: nothing is counted, and the model is uniform."""
        return fresh_state(self.cells, self.counter, len(self.recipe.sides))

    def start_from(self, base: StartTable) -> DPStabsState:
        """The state that begins with the base: its marginals are booked (``r_i``), and the first models are fitted
        to them."""
        check_domain(base, self.domain)
        state = self.start()
        state.sides[0].total = base.total
        state.sides[0].remainder = np.concatenate(base.marginals(self.cells.cliques))
        state.with_base, state.rebuild_at = True, 0
        state.base_variance = None if base.total_error is None else base.total_error**2
        model = fit_table(self, state)
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
            state.models = (fit_table(self, state),)
        return replace(self._synthesis(state), noisy_counts=tuple(measured))

    def asked_cliques(self) -> Sequence[Clique]:
        """All of the workload."""
        return self.cells.cliques

    def pack_state(self, state: DPStabsState) -> Packed:
        """The whole state; it holds private sums."""
        return pack_fields(state)

    def unpack_state(self, packed: Packed) -> DPStabsState:
        """The inverse of ``pack_state``."""
        return unpack(packed, self.cells, self.counter)


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

        They are running sums since step 1 where every marginal is measured at every step; else what a marginal gained
        at this step, because its counter knows nothing of the steps that did not measure it. Values of one counter
        share noise from step to step, so they have a series; gains of a simple counter have draws of their own.
        """
        plan, step, counts = self.plan, self.state.step, list[NoisyCounts]()
        every, gained = plan.selector is None, self.side.estimates - self.before
        independent = not every and isinstance(getattr(plan.counter, "recipe", None), SimpleCounter)
        for i in self.chosen:
            ticks = int(self.side.ticks[i])
            law = plan.counter.law(ticks, 1) if every else plan.counter.gain_law(ticks)
            if law is not None:
                columns = [plan.domain.names[column] for column in plan.cells.cliques[i]]
                name, query = f"{part}, {' x '.join(columns)}", marginal_query(columns)
                draw, series = f"step {step}, {name}", None if independent else name
                noise: AnyNoise | Law = law
                if independent and isinstance(law, NoiseSum):
                    query["chosen"], noise = columns, law.parts[0][0]
                values, first = Noisy(gained[plan.cells.part(i)]), 1 if every else step
                counts.append(NoisyCounts(draw, part, first, step, query, values, noise, series=series))
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
        self.prior = self.batch = self.side.batch.bounded(PRIOR_BOUND)
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
