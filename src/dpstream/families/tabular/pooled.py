"""The pooled stream: epochs with public borders, each measured once.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    NoisyCounts,
    Packed,
    Part,
    PrivateBatch,
    Recipe,
    Terms,
    UndiscoveredCounts,
    pack_fields,
    unpack_fields,
)
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.graphical import Model
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema.discrete import Found
from dpstream.core.schema.domain import Clique
from dpstream.families.tabular.pooled_book import EPOCHS, Flows, Number, PooledBook, PublicSide, look_ahead
from dpstream.families.tabular.pooled_clock import Clock
from dpstream.families.tabular.pooled_estimates import Estimates
from dpstream.families.tabular.pooled_facts import PooledFacts, PooledOptions
from dpstream.families.tabular.pooled_growth import Growth
from dpstream.families.tabular.pooled_run import Outcome, Runner
from dpstream.mechanisms import Cells, ModelSynthesis
from dpstream.mechanisms.discovery import entering
from dpstream.mechanisms.discovery_plan import Discoveries
from dpstream.mechanisms.engine import Selector
from dpstream.mechanisms.followed_cells import MeasuredCells
from dpstream.mechanisms.grown_tables import fitting, with_new
from dpstream.mechanisms.headlines import headline_cliques, headline_folds, headline_words
from dpstream.mechanisms.means import MEAN_SHARE, Sums
from dpstream.mechanisms.plans import event_unit, read_events
from dpstream.mechanisms.run_outputs import published

# The state of a pooled stream.


@dataclass
class PooledSide(PublicSide):
    """The same, and private: the open epoch's counts of all followed marginals, and of each clock's open period."""

    counts: NDArray[np.int64] = field(kw_only=True)
    periods: list[NDArray[np.int64]] = field(kw_only=True)


@dataclass
class PooledState(PooledBook):
    """All that a pooled stream remembers. The sides hold private counts: the state is secret."""

    sides: tuple[PooledSide, ...]


def fresh_state(
    cells: Cells,
    sides: int,
    border: int,
    season: float | None = None,
    first: int = 0,
    meters: Sequence[Clock | Sums] = (),
) -> PooledState:
    """The state before the first step: nothing is counted, and models are uniform.

    Args:
        first: how many events the first step lets expect, but for deletes; 0: nobody guesses.
    """
    domain, clocks = cells.workload.domain, [meter for meter in meters if isinstance(meter, Clock)]
    return PooledState(
        step=0,
        closed=0,
        border=border,
        sides=tuple(
            PooledSide(
                Estimates.fresh(cells, season),
                rate,
                number=Number.fresh(len(clocks)),
                flows=[Flows(np.zeros(sum(clock.sizes))) for clock in clocks],
                counts=np.zeros(cells.total, dtype=np.int64),
                periods=[np.zeros(sum(meter.sizes), dtype=np.int64) for meter in meters],
            )
            for rate in (float(first), *[0.0] * (sides - 1))
        ),
        open_total=0.0,
        models=tuple(Model.uniform(domain, 1.0) for _ in range(sides)),
        latest=Model.uniform(domain, 1.0),
        table=Model.uniform(domain, 0.0),
        base=np.zeros(cells.total),
        base_total=0.0,
        base_variance=0.0,
        began=[0] * len(meters),
    )


def unpack(
    packed: Packed, cells: Cells, season: float | None = None, meters: Sequence[Clock | Sums] = ()
) -> PooledState:
    """The inverse of ``pack_fields``; StoreDamagedError if the arrays do not fit the workload."""
    state = unpack_fields(PooledState, packed, cells=cells, season=season)
    for side in state.sides:
        if len(side.counts) != cells.total:
            raise StoreDamagedError("an epoch's counts do not fit the workload", where="state")
        sizes = [sum(meter.sizes) for meter in meters]
        clocks = [sum(meter.sizes) for meter in meters if isinstance(meter, Clock)]
        if [len(own) for own in side.periods] != sizes or [len(own.values) for own in side.flows] != clocks:
            raise StoreDamagedError("a period's counts do not fit the headlines", where="state")
        side.estimates.check()
    return state


@dataclass(frozen=True)
class Pooled(PooledOptions, Recipe["PooledPlan"]):
    """Epochs of public length, each measured once; one model of the table from all measurements.

    Guarantee: the budget, for the whole stream and one event, or one user, whose events each get a part of it. An
    event is in one epoch and one period: each is measured once, for fixed shares (docs/theory/pooled.md, periods.md).

    Args:
        workload: the marginals to preserve. iterations, max_cells: of the fits and their junction trees.
        staleness: a release is never older than this share of the steps so far, or one step: so long are epochs.
        deletions: records may leave; inserts and deletes have epochs apart. cancels: equal rows that come and leave in
            a step are not counted. select_share: part of a run's budget. season: steps of a season; None: none.
        headline, headline_share: marginals measured at the end of each of ``periods``, and their part of the budget.
        number, number_share: periods of the number of records; its part without headlines.
        first_records: a public guess of the first step's records. prior: public knowledge of the table.
        discovery: the columns whose values are discovered; all else shares what it leaves of the budget.
    Cost: a step counts the workload; an epoch (about ``log(steps) / staleness`` of them) takes a few fits.
    """

    def _plan(self, terms: Terms) -> PooledPlan:
        """Fix the budget of a run."""
        protected = event_unit(terms.unit)
        domain = self.workload.domain
        headlines = headline_folds(domain, self.marginals)
        followed = MeasuredCells(self.workload, headline_cliques(domain, self.marginals))
        whole, clocks = protected.per_event(terms.budget), list[Clock]()
        public = protected.relation == "replace"
        discovery = None
        if self.discovery is not None:
            share = self.discovery.share
            discovery = Discoveries(self.discovery, terms.budget.scaled(share), protected)
            whole = whole.scaled(1 - share)
        number, rest = Fraction(0) if public or self.number is None else self.number_share, Fraction(1)
        if headlines:
            number = self.headline_share / 10 if number else number
            share = self.headline_share - number
            rest -= share
            clocks.append(
                Clock(self.periods, followed.cells, headlines, whole.scaled(share), protected.event)
            )
        if number and self.number is not None:
            rest -= number
            clocks.append(Clock(self.number, followed.cells, (), whole.scaled(number), protected.event))
        sums = None
        if means := self.means:
            rest -= MEAN_SHARE
            sums = Sums(self.periods, means, domain, whole.scaled(MEAN_SHARE), protected.event)
        if rest <= 0:
            where = "[accuracy] headline_share"
            what = f"{self.headline_share} leaves nothing to the tables"
            raise ConfigError(what, where=where, allowed="below 19/20")
        runner = Runner(
            followed=followed,
            budget=whole.scaled(rest),
            unit=protected.event,
            select_share=self.select_share,
            iterations=self.iterations,
            max_cells=self.max_cells,
        )
        plan = PooledPlan(
            self, terms.budget, protected, terms.horizon, runner, tuple(clocks), sums, discovery=discovery
        )
        if sums is not None:
            sums.check(plan.asked_cliques())
        return plan


@dataclass(frozen=True)
class PooledPlan(PooledFacts):
    """See ``Pooled``."""

    def parts(self) -> tuple[Part, ...]:
        """What one event's epoch costs; of a user's events, all together."""
        times, own = self.unit.factor(self.budget), self.runner
        design = own.design(0.0, drifts=True)
        laws = [
            f"columns of two values together with {draw.describe()}" for draw, _ in own.joint_draws(design)
        ]
        groups = [noise for group, noise in own.column_draws(design) if len(group) > 1]
        laws += [f"columns together with {noise.describe()}" for noise in groups]
        if any(len(group) == 1 for group in own.division.column_groups(design)):
            laws.append(f"{'other ' if laws else ''}columns with {own.noise(design).describe()}")
        columns = ", ".join(laws)
        noise = (
            "an epoch's marginals in shares that follow from their numbers; columns without selections share all of an "
            f"event's budget: {columns}"
        )
        heads: tuple[Part, ...] = ()
        for clock in self.clocks:
            noises = headline_words([(group, drawn) for group, _, drawn in clock.draws])
            about = "headline marginals, " if clock.headlines else "number of records, "
            detail = f"the {about}at the end of each {clock.periods.name}, {noises}"
            heads += (Part("headline" if clock.headlines else "number", times, clock.budget, detail),)
        if self.sums is not None:
            kinds = dict.fromkeys(noise.describe() for noise in self.sums.noises)
            detail = f"sums for means at the end of each {self.sums.periods.name}, with {', '.join(kinds)}"
            heads += (Part("mean", times, self.sums.budget, detail),)
        if self.discovery is not None:
            cost = self.unit.per_event(self.discovery.budget)
            heads += (self.discovery.part(times, cost),)
        if not own.followed.choosable:
            return (*heads, Part("measure", times, own.budget, f"an epoch's {columns}"))
        select, measure = own.budget.split(self.recipe.select_share, 1 - self.recipe.select_share)
        detail = f"an epoch's marginals by {Selector(select).describe()}; if it has none, this measures, too"
        return (*heads, Part("select", times, select, detail), Part("measure", times, measure, noise))

    def start(self) -> PooledState:
        """The state before the first step: nothing is counted, and the model is uniform."""
        sides, first = len(self.recipe.sides), self.recipe.first_records or 0
        return fresh_state(self.cells, sides, self.epochs.after(0), self._season, first, self.meters)

    def step(self, state: PooledState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """Add the batch to the open epoch; at a border measure it."""
        batch = read_events(batch, deletions=self.recipe.deletions, cancels=self.cancels)
        state.step += 1
        for part, side in zip(self.recipe.sides, state.sides, strict=True):
            asked = self.asked_cliques()
            read: Mapping[Clique, NDArray[np.int64]] = dict(zip(asked, batch.count(asked, part), strict=True))
            fresh = [] if self.sums is None else [self.sums.read(read)]
            counts = read if self.sums is None else self.sums.declared(read)
            side.counts += np.concatenate([counts[clique] for clique in self.cells.cliques])
            fresh = [clock.read(counts) for clock in self.clocks] + fresh
            side.periods = [own + new for own, new in zip(side.periods, fresh, strict=True)]
        if self.unit.relation == "replace":
            # Public by the owner's declaration; under "add-remove" no size is ever read.
            state.open_total = sum(
                sign * float(side.counts[self.cells.part(0)].sum())
                for sign, side in zip((1, -1), state.sides, strict=False)
            )
        measured = self._close_periods(state, randomness)
        # The last step may have been moved since the border was set.
        if state.step in (state.border, self.last_step):
            measured += self._close_epoch(state, randomness)
        elif self.clocks and self.clocks[0].followed and state.began[0] == state.step:
            state.moved = self._moved(state)
        if measured:
            self._expect(state)
        synthesis = replace(self._synthesis(state), noisy_counts=tuple(measured))
        heads = [began for clock, began in zip(self.clocks, state.began, strict=False) if clock.headlines]
        ended = state.closed == state.step and all(began == state.step for began in heads)
        if self.discovery is not None and ended and self.discovery.due(state.step, state.discovered):
            self._discover(state, self.discovery, batch.undiscovered, randomness)
        return synthesis

    def _discover(
        self,
        state: PooledState,
        own: Discoveries,
        counts: UndiscoveredCounts | None,
        randomness: Randomness,
    ) -> None:
        """End a discovery epoch: what is published of it begins with the next step, and the state gets its cells."""
        heads = headline_cliques(self.domain, self.recipe.marginals)
        rules = own.rules(self.domain, state.found, heads, self.recipe.max_cells)
        passed = entering(rules, counts, (state.discovered, state.step), randomness)
        new = fitting(self.domain, passed, heads, self.recipe.max_cells)
        records = state.total - state.found_total
        state.found_total, state.discovered = state.total, state.step
        if new:
            self._grow(state, own, new, records)

    def _grow(
        self, state: PooledState, own: Discoveries, new: Mapping[str, Sequence[Found]], records: float
    ) -> None:
        """Move the state to columns with new values."""
        state.found = with_new(state.found, new)
        plan = self.grown(state.found)
        domain = self.domain
        others = {domain.index(name): own.other_code(name) for name in new}
        entries = {domain.index(name): values for name, values in new.items()}
        Growth(self.cells, plan.cells, others, self.recipe.max_cells).move(state, entries, records)
        for side in state.sides:
            side.counts = np.zeros(plan.cells.total, dtype=np.int64)
            for place, clock in enumerate(plan.clocks):
                if clock.headlines:  # others go on: the number of records has no new cell
                    side.periods[place] = np.zeros(sum(clock.sizes), dtype=np.int64)
                    side.flows[place].values = np.zeros(sum(clock.sizes))

    def _close_periods(self, state: PooledState, randomness: Randomness) -> list[NoisyCounts]:
        """Measure each clock whose period ends here, on every side; gives what it drew."""
        measured = list[NoisyCounts]()
        for place, meter in enumerate(self.meters):
            if not meter.ends(state.step, self.last_step, self.horizon):
                continue
            first, state.began[place] = state.began[place] + 1, state.step
            for part, side in zip(self.recipe.sides, state.sides, strict=True):
                if isinstance(meter, Sums):
                    outputs = meter.measure(side.periods[place], randomness)
                else:
                    values, number, outputs = meter.measure(side.periods[place], randomness)
                    side.flows[place].add(values)
                    if self.unit.relation != "replace":
                        side.number.add(1 + place, number, meter.number_variance, state.step)
                side.periods[place] = np.zeros_like(side.periods[place])
                measured += published(outputs, f"step {state.step}, {part}", part, first, state.step)
        return measured

    def _close_epoch(self, state: PooledState, randomness: Randomness) -> list[NoisyCounts]:
        """Measure the open epoch of every side, whatever it holds, and fit the table's model; gives what it drew."""
        first, length = state.closed + 1, state.step - state.closed
        models, measured = [], list[NoisyCounts]()
        for part, side, known in zip(self.recipe.sides, state.sides, state.models, strict=True):
            outcome = self._run(side, known, state.step, length, randomness, tests=side is state.sides[0])
            self._take_flows(side, state.step, state.began)
            models.append(outcome.model)
            measured += published(outcome.outputs, f"step {state.step}, {part}", part, first, state.step)
        shapes = state.models
        state.models, state.latest = tuple(models), models[0]
        state.closed, state.border = state.step, self.epochs.after(state.step)
        state.open_total, state.moved = 0.0, None
        answers = [
            side.estimates.answer(shape.flat_marginals(self.cells.cliques))
            for side, shape in zip(state.sides, shapes, strict=True)
        ]
        for side, answer in zip(state.sides, answers, strict=True):
            side.steady = answer.steady
        values, variances = self._estimates(state, answers)
        volatile = {index for answer in answers for index in answer.volatile}
        state.table_total = state.total
        state.table, kept = self._fit(state, values, variances, volatile)
        if len(state.sides) == 1:
            state.models = (state.table,)
        if self._prior is not None:
            self._take_prior(self._prior, state, values, variances, kept)
        if self._season is not None:
            state.ahead = look_ahead(state, self.cells)
        return measured

    def _run(
        self, side: PooledSide, known: Any, step: int, length: int, randomness: Randomness, *, tests: bool
    ) -> Outcome:
        """Run one side's epoch. The private counts start again at nothing."""
        size = int(side.counts[self.cells.part(0)].sum()) if self.unit.relation == "replace" else None
        expected = side.rate * length if size is None else float(size)
        design = self.runner.design(expected, drifts=not side.steady)
        if self._prior is not None and tests:
            design = self._with_test(self._prior, design, side.estimates, known)
        outcome = self.runner.run(side.counts, known, design, randomness, side.estimates.seen)
        side.counts = np.zeros_like(side.counts)
        side.estimates.add(outcome.epoch, step, outcome.total_variance)
        side.number.add(EPOCHS, outcome.epoch.records, outcome.total_variance, step)
        if not side.number.periods:
            side.rate = outcome.epoch.records / length
            side.rate_variance = outcome.total_variance / length**2
        return outcome

    def pack_state(self, state: PooledState) -> Packed:
        """The whole state; it holds private counts."""
        return pack_fields(state)

    def unpack_state(self, packed: Packed) -> PooledState:
        """The inverse of ``pack_state``."""
        plan = self.grown(packed.meta.get("found", {}))
        return unpack(packed, plan.cells, plan._season, plan.meters)
