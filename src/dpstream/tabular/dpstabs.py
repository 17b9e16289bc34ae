"""DP-STabS: select, measure with counters, fit, at every step (Algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpstream.counters import CalibratedCounter, Counter, counter_by_name
from dpstream.errors import ConfigError
from dpstream.graphical import Model, fit
from dpstream.mechanism import Packed, Part, PrivateBatch, StreamPlan
from dpstream.privacy.budget import Amount, Budget, exact_amount
from dpstream.privacy.randomness import Randomness
from dpstream.privacy.unit import Event, Unit
from dpstream.schema.domain import Domain
from dpstream.tables import Workload
from dpstream.tabular import strata
from dpstream.tabular.cells import SCORES, Cells, Score, ScoreName
from dpstream.tabular.limits import check_each, within
from dpstream.tabular.plans import check_horizon, event_unit, read_budget
from dpstream.tabular.selection import Selector
from dpstream.tabular.state import DPStabsState, fresh_state, pack, unpack
from dpstream.tabular.synthesis import ModelSynthesis, average_marginals
from dpstream.tabular.targets import Targets
from dpstream.tabular.tracker import Columns, Tracker

__all__ = ["DPStabs", "DPStabsPlan"]

Past = Literal["measured", "literal"]
Aggregate = Literal["last", "average"]
Candidates = Literal["model", "all"]


@dataclass(frozen=True)
class DPStabs:
    """DP-STabS, Kumar, Strohmer, Vershynin, Algorithm 3.

    Guarantee: the budget, for the whole stream and one event. One vector counter per workload, each within
    ``(1 - select_share) budget / k``; a batch is read by ``k`` selections (``select_share budget / k`` each)
    and enters ``k`` different counters. An event is in one batch, so these ``2 k`` parts compose to the budget.

    Args:
        workload: the marginals to preserve.
        k: workloads measured at every step, all different.
        counter: a recipe or the name of one.
        score: how selection judges a workload, see ``Score``.
        aggregate: the release is the ``last`` of the step's models or the ``average`` of all ``k``.
        past: what stands for the steps at which a workload was not measured, see ``targets``.
        candidates: which workloads a selection may choose from, a public set: ``all``, or at most steps only
            those in the ``model`` once it covers every column (every ``EXPLORE``-th step is open to all).
        select_share: part of the budget for selections.
        iterations: of the fit after each measurement (it starts from the previous model).
        max_cells: limit on the model's junction tree.

    Cost: per step one count of the workload, ``k`` fits and ``k`` evaluations of the workload from the model.
    State: the counters and four vectors over all cells; independent of the number of steps.
    """

    workload: Workload
    k: int = 2
    counter: Counter | str = "simple"
    score: ScoreName = "mean"
    aggregate: Aggregate = "last"
    past: Past = "measured"
    candidates: Candidates = "model"
    select_share: Fraction = Fraction(1, 4)
    iterations: int = 20
    max_cells: int = 10_000

    def __post_init__(self) -> None:
        count = len(self.workload.cliques)
        if isinstance(self.k, bool) or not 1 <= self.k <= count:
            raise ConfigError(
                f"k = {self.k} does not fit a workload of {count} marginals",
                where="mechanism",
                allowed=f"1 to {count}",
            )
        for name, value, allowed in (
            ("score", self.score, SCORES),
            ("aggregate", self.aggregate, get_args(Aggregate)),
            ("past", self.past, get_args(Past)),
            ("candidates", self.candidates, get_args(Candidates)),
        ):
            if value not in allowed:
                raise ConfigError(f"{name} = {value!r}", where="mechanism", allowed=", ".join(allowed))
        share = exact_amount(self.select_share, where="select_share")
        object.__setattr__(self, "select_share", share)
        if not share < 1:
            raise ConfigError(
                f"select_share = {self.select_share}", where="mechanism", allowed="between 0 and 1"
            )
        if self.iterations < 1 or self.max_cells < 1:
            raise ConfigError("iterations and max_cells are positive numbers", where="mechanism")
        check_each(self.workload, self.max_cells)

    def calibrate(
        self,
        *,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
        unit: Unit | None = None,
        horizon: int | None = None,
    ) -> DPStabsPlan:
        """Fix every noise scale. Exactly one of ``epsilon`` and ``rho``; the unit defaults to ``Event()``.

        ``horizon`` is the largest number of steps; counters that need one take it from here.
        """
        budget, event, steps = read_budget(epsilon, rho), event_unit(unit), check_horizon(horizon)
        recipe = self.counter
        if isinstance(recipe, str):
            recipe = counter_by_name(recipe, horizon=steps)
        measure = budget.scaled((1 - self.select_share) / self.k)
        select = budget.scaled(self.select_share / self.k)
        return DPStabsPlan(self, budget, event, steps, recipe.calibrate(measure, event), Selector(select))


@dataclass(frozen=True)
class DPStabsPlan(StreamPlan):
    """See ``DPStabs``."""

    recipe: DPStabs
    budget: Budget
    unit: Event
    horizon: int | None
    counter: CalibratedCounter
    selector: Selector

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.recipe.workload.domain

    @property
    def name(self) -> str:
        """Name in configuration files."""
        return "dpstabs"

    def parts(self) -> tuple[Part, ...]:
        """What one event's batch costs: ``k`` selections and ``k`` counters."""
        k = self.recipe.k
        return (
            Part("select", k, self.selector.budget, f"{self.selector.describe()}, score {self.recipe.score}"),
            Part("measure", k, self.counter.budget, self.counter.describe()),
        )

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        return {
            "workload": self.recipe.workload.as_spec(),
            "k": self.recipe.k,
            "counter": self.counter.describe(),
            "score": self.recipe.score,
            "aggregate": self.recipe.aggregate,
            "past": self.recipe.past,
            "candidates": self.recipe.candidates,
            "select_share": str(self.recipe.select_share),
            "iterations": self.recipe.iterations,
            "max_cells": self.recipe.max_cells,
        }

    @cached_property
    def cells(self) -> Cells:
        """The workload as one vector."""
        return Cells(self.recipe.workload)

    @cached_property
    def _score(self) -> Score:
        bias = float(np.sqrt(2.0 * self.counter.variance(1) / np.pi))
        return Score(self.cells, self.recipe.score, self.unit, bias)

    @cached_property
    def _columns(self) -> Columns:
        return Columns(self.cells)

    @cached_property
    def _targets(self) -> Targets:
        return Targets(self.cells, self.counter, self.recipe.max_cells)

    def start(self) -> DPStabsState:
        """Nothing counted; the uniform distribution."""
        return fresh_state(self.cells, self.counter)

    def step(self, state: DPStabsState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """One step of Algorithm 3."""
        _Step(self, state, batch, randomness).run()
        if self.recipe.past == "literal":
            return ModelSynthesis(state.models, state.total)
        variances = self._targets.scaled(state, state.total).variances
        cliques = self.cells.cliques
        errors = {cliques[i]: float(np.sqrt(variances[i])) for i in state.kept}
        return ModelSynthesis(state.models, state.total, errors)

    def pack_state(self, state: DPStabsState) -> Packed:
        """The whole state; it holds private sums."""
        return pack(state)

    def unpack_state(self, packed: Packed) -> DPStabsState:
        """The inverse of ``pack_state``."""
        return unpack(packed)

    def unpack_synthesis(self, packed: Packed) -> ModelSynthesis:
        """The inverse of ``ModelSynthesis.pack``."""
        return ModelSynthesis.unpack(packed)


#: Iterations of the fit after a change of structure.
REFIT_ITERATIONS = 200

#: With ``candidates = "model"``, every so many steps a selection may choose from the whole workload.
EXPLORE = 5

#: How quickly the predicted number of records per step forgets: about this many steps.
_RATE_MEMORY = 16


class _Step:
    """One step under way. Private: ``counts`` and the counters' sums; all else follows from noisy outputs."""

    def __init__(
        self, plan: DPStabsPlan, state: DPStabsState, batch: PrivateBatch, randomness: Randomness
    ) -> None:
        self.plan, self.state, self.randomness = plan, state, randomness
        self.cells, self.recipe = plan.cells, plan.recipe
        self.counts = batch.count(self.cells.cliques, "net")
        self.joined = self.cells.join_counts(self.counts)
        self.before = state.marginals
        self.total_before = state.total
        # Batch sizes may be read only where the owner declared them public ("replace").
        self.public_arrivals = float(self.counts[0].sum()) if plan.unit.relation == "replace" else None
        self.chosen: list[int] = []
        self.precision = 0.0
        self.weighted = 0.0
        self.model = state.models[-1]
        self.tracker = Tracker(plan._columns, state.levels, state.spread, state.score)

    def run(self) -> None:
        """``k`` rounds, then the bookkeeping that the next step starts from."""
        state = self.state
        state.step += 1
        self.tracker.drift()
        shares = self.tracker.shares()
        self.prediction = self.plan._columns.product(shares) * self.expected_arrivals
        strata.arrive(state, self.expected_arrivals, self.prediction)
        rounds: list[Model] = []
        current = self.before
        for _ in range(self.recipe.k):
            allowed = self._allowed()
            if not allowed:
                break  # the model is full: what is left of this step's budget stays unspent
            index = self._select(current, allowed)
            self._measure(index)
            self.model = self._fit()
            current = self.cells.join(self.model.marginals(self.cells.cliques))
            rounds.append(self.model)
        state.models = tuple(rounds) if self.recipe.aggregate == "average" else (self.model,)
        self._book(current)

    def _select(self, current: NDArray[np.float64], allowed: list[int]) -> int:
        """Choose among the workloads not yet measured at this step, by how badly the batch is explained."""
        numerators, denominators = self.plan._score.evaluate(self.joined, self._expected(current))
        index = self.plan.selector.choose(
            numerators, denominators, allowed, self.plan._score.grid_sensitivity, self.randomness
        )
        self.chosen.append(index)
        return index

    def _allowed(self) -> list[int]:
        """Workloads that may be chosen now: a function of public things only.

        Literal: as long as the fit of this step's workloads stays within the model's size, which may end the
        rounds early. Measured: see ``candidates``.
        """
        state, chosen = self.state, set(self.chosen)
        everything = [i for i in range(len(self.cells.cliques)) if i not in chosen]
        if self.recipe.past == "literal":
            everything = within(self.recipe.workload, self.chosen, everything, self.recipe.max_cells)
        if self.recipe.candidates == "all":
            return everything
        covered = {c for i in np.flatnonzero(state.ticks) for c in self.cells.cliques[i]}
        known = [i for i in state.kept if i not in chosen]
        explore = state.step % EXPLORE == 0 or not known or len(covered) < len(self.plan.domain)
        candidates = everything if explore else known
        # Those measured longest ago: scores under drift would otherwise pick the same few for ever.
        ages = state.measured_at[candidates]
        oldest = np.partition(ages, (len(ages) - 1) // 2)[(len(ages) - 1) // 2]
        return [i for i, age in zip(candidates, ages, strict=True) if age <= oldest]

    def _expected(self, current: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the current model expects of this batch.

        Literal: what the model has gained since the last release, so nothing in the first round. Measured: its
        distribution times the predicted number of arrivals.
        """
        if self.recipe.past == "literal":
            return current - self.before
        total = self.model.total
        if total <= 0.0:
            uniform = np.repeat(1.0 / self.cells.sizes, self.cells.sizes)
            return uniform * self.predicted
        return current * (self.predicted / total)

    @property
    def predicted(self) -> float:
        """Predicted arrivals of this step; negative where deletions prevail."""
        return self.state.rate if self.public_arrivals is None else self.public_arrivals

    @property
    def expected_arrivals(self) -> float:
        """The weight of this step when measured steps stand for others: arrivals, or one where unknown."""
        return self.predicted if self.predicted > 0.0 else 1.0

    def _measure(self, index: int) -> None:
        """Tick one counter, and learn something about the number of arrivals from its sum."""
        state, part = self.state, self.cells.part(index)
        estimate = self.plan.counter.step(state.counters[index], self.counts[index], self.randomness)
        increment = estimate - state.estimates[part]
        arrived = float(increment.sum())
        state.estimates[part] = estimate
        state.ticks[index] += 1
        state.measured_at[index] = state.step
        strata.tick(state, self.cells, index, self.expected_arrivals, self.prediction)
        self.tracker.read(
            index, increment.astype(np.float64), self.plan.counter.variance(1), self.expected_arrivals
        )
        precision = 1.0 / float(self.cells.sizes[index])
        self.precision += precision
        self.weighted += precision * arrived

    @property
    def arrivals(self) -> float:
        """Noisy number of arrivals of this step (inverse-variance mean over the measured workloads)."""
        if self.public_arrivals is not None:
            return self.public_arrivals
        return self.weighted / self.precision

    def _fit(self) -> Model:
        state, total = self.state, self.total_before + self.arrivals
        if self.recipe.past == "literal":
            targets = self.plan._targets.literal(state, self.chosen)
        else:
            targets = self.plan._targets.measured(state, self.plan._targets.scaled(state, total))
        return fit(
            self.plan.domain,
            targets,
            total=total,
            warm=self.model,
            iterations=self.recipe.iterations,
            max_cells=self.recipe.max_cells,
        )

    def _refit(self) -> Model:
        """A long fit from nothing, after the structure has changed: the warm start belongs to the old one."""
        scaled = self.plan._targets.scaled(self.state, self.state.total)
        return fit(
            self.plan.domain,
            self.plan._targets.measured(self.state, scaled),
            total=self.state.total,
            iterations=REFIT_ITERATIONS,
            max_cells=self.recipe.max_cells,
        )

    def _book(self, current: NDArray[np.float64]) -> None:
        state, plan = self.state, self.plan
        state.total = self.total_before + self.arrivals
        state.rate += (self.arrivals - state.rate) / min(state.step, _RATE_MEMORY)
        strata.close_full(state, self.cells, self.chosen)
        if len(state.models) > 1:
            current = self.cells.join(average_marginals(state.models, self.cells.cliques))
        state.marginals = current
        unmeasured = np.ones(len(self.cells.cliques), dtype=bool)
        unmeasured[self.chosen] = False
        mask = np.repeat(unmeasured, self.cells.sizes)
        state.remainder[mask] = current[mask] - state.estimates[mask]
        if self.recipe.past == "literal":
            state.kept = list(self.chosen)
        elif state.step >= state.rebuild_at:
            # The structure is chosen anew on a public schedule, ever more rarely: it costs many tree sizes.
            state.kept = plan._targets.choose_kept(state, plan._targets.scaled(state, state.total))
            state.rebuild_at = state.step + max(1, state.step // 10)
            self.model = self._refit()
            state.models = (self.model,)
            state.marginals = self.cells.join(self.model.marginals(self.cells.cliques))
