"""What a DP-STabS plan says before any data are read, what its fits are to match, and what a step gives. Public."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    UNPACKED,
    Events,
    ExpectedErrors,
    ExpectedTable,
    Packed,
    StreamPlan,
    check_share,
    check_words,
    option,
)
from dpstream.core.contracts.expectations import check_steps, with_table
from dpstream.core.counters import CalibratedCounter, Choice, Counter, SimpleCounter, best, counter_by_name
from dpstream.core.counters.choose import EXPECTED_TICKS
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.errors import ConfigError, HorizonError
from dpstream.core.graphical import Measurement, Model, fit, tree_cells
from dpstream.core.privacy import Budget, Event, EventUnit
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.mechanisms import options, plans
from dpstream.mechanisms.description import counter_facts
from dpstream.mechanisms.engine import Selector
from dpstream.mechanisms.limits import TreeCapacity, check_each, check_fit, default_rounds
from dpstream.mechanisms.run_outputs import MIN_VARIANCE
from dpstream.mechanisms.table_release import ModelSynthesis, average_marginals
from dpstream.mechanisms.workload_cells import Cells, ScoreName

# What is public of a DP-STabS stream's memory, and what public noise scales say about its errors.

#: Measurements up to which the total's error is predicted where it is followed one by one (about a second).
MAX_PREDICTED = 100_000
_MOMENTS = 3


@dataclass
class TotalNoise:
    """Variance of the noise in the sum of all estimated arrivals of one side: public bookkeeping.

    At its tick ``s`` counter ``i`` gains ``e(s) - e(s-1)`` of noise, which enters the arrivals with the
    public weight ``w(s)``. An interval counter's gain is its new noise less that of the intervals which the
    new one swallows, so a draw that came with weight ``w`` and is swallowed at weight ``w'`` is left with
    ``w - w'``. Exact for given weights: draws are independent. (Weights follow from which marginals were
    selected, which earlier noise may have influenced; that influence is not in it.)

    Attributes:
        settled: variance of what nothing will swallow any more.
        open: per counter and level, the sums of ``v``, ``v w`` and ``v w^2`` over its open draws of variance
            ``v``; shape (counters, levels seen so far, 3).

    Reference for the intervals: ``dpstream.core.counters.intervals``. Cost: a few operations per measurement.
    """

    counter: CalibratedIntervalCounter = field(metadata=UNPACKED)
    sizes: NDArray[np.int64] = field(metadata=UNPACKED)
    settled: float = 0.0
    open: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, _MOMENTS)))

    @classmethod
    def fresh(cls, counter: CalibratedCounter, sizes: NDArray[np.int64]) -> TotalNoise | None:
        """The bookkeeping before the first step; None for a counter whose noise is not known draw by draw."""
        if not isinstance(counter, CalibratedIntervalCounter):
            return None
        return cls(counter, sizes, 0.0, np.zeros((len(sizes), 0, _MOMENTS)))

    @property
    def variance(self) -> float:
        """The variance of the sum of all arrivals so far."""
        return self.settled + float(self.sizes @ self.open[:, :, 2].sum(axis=1))

    def add(self, measured: Sequence[tuple[int, int, float]]) -> None:
        """Take in one step: (counter, its tick, weight of the sum of its cells in this step's arrivals)."""
        for index, tick, weight in measured:
            level, share = self.counter.recipe.interval(tick)
            variance = self.counter.noise(share).variance
            own = self.open[index]
            swallowed = own if level is None else own[:level]
            moments = swallowed.sum(axis=0)
            left = moments[2] - 2.0 * weight * moments[1] + weight**2 * moments[0]
            self.settled += float(self.sizes[index]) * max(left, 0.0)
            swallowed[:] = 0.0
            if level is None:
                self.settled += float(self.sizes[index]) * weight**2 * variance
                continue
            if level >= self.open.shape[1]:
                grown = np.zeros((len(self.sizes), level + 1, _MOMENTS))
                grown[:, : self.open.shape[1]] = self.open
                self.open = grown
            self.open[index, level] += variance * np.array([1.0, weight, weight**2])


def arrival_weights(increments: Sequence[Measurement]) -> list[float]:
    """The weights with which ``estimate_total`` takes the sums of the measured marginals."""
    return _shares([m.variance * len(m.values) for m in increments])


def total_in_turns(
    counter: CalibratedCounter,
    sizes: NDArray[np.int64],
    rounds: int,
    steps: Sequence[int],
    gain_variance: Callable[[int], float],
    fits: Callable[[Sequence[int]], bool],
) -> dict[int, float]:
    """Variance of one side's noisy total at some steps, if at every step the next ``rounds`` marginals are measured.

    Which ones a stream will measure follows from its data; taking turns is the neutral guess. Exact where all are
    measured at every step: the weights never change then, and the sum of a counter's gains is its output. Elsewhere
    followed step by step, up to ``MAX_PREDICTED`` measurements; later steps are missing in the result. Nothing is
    predicted where marginals of one turn do not fit into one model: how early such a step ends follows from the data.
    """
    count = len(sizes)
    turns_taken = range(count // math.gcd(count, rounds))
    if not all(fits([(turn * rounds + j) % count for j in range(rounds)]) for turn in turns_taken):
        return {}
    if rounds == count:
        precision = float((1.0 / sizes).sum())
        return {step: counter.variance(step) / precision for step in steps}
    noise = TotalNoise.fresh(counter, sizes)
    if noise is None:
        return {}
    variances = {}
    last = max((step for step in steps if step * rounds <= MAX_PREDICTED), default=0)
    for step in range(1, last + 1):
        turns = [divmod((step - 1) * rounds + j, count) for j in range(rounds)]
        weights = _shares([gain_variance(done + 1) * int(sizes[i]) for done, i in turns])
        noise.add([(i, done + 1, weight) for (done, i), weight in zip(turns, weights, strict=True)])
        if step in steps:
            variances[step] = noise.variance
    return variances


def _shares(variances: Sequence[float]) -> list[float]:
    """The weights of an inverse-variance mean."""
    precisions = [1.0 / variance for variance in variances]
    whole = math.fsum(precisions)
    return [precision / whole for precision in precisions]


@dataclass
class PublicSide:
    """What is remembered of one kind of events: all of them, or the inserts, or the deletes.

    Attributes:
        total: noisy number of these events so far.
        rate: smoothed noisy number per step, the prediction for the next one.
        ticks: the invocations of each workload's counter (C_i).
        estimates: the counters' last outputs, all cells.
        remainder: what is booked for the steps at which a workload was not measured (r_i), all cells.
        batch: the model of recent batches; only its distribution matters.
        noise: what is known of the noise in ``total``; None for a counter that does not tell.
    """

    total: float
    rate: float
    ticks: NDArray[np.int64]
    estimates: NDArray[np.int64]
    remainder: NDArray[np.float64]
    batch: Model
    noise: TotalNoise | None

    @property
    def booked(self) -> NDArray[np.float64]:
        """``m_i = C_i + r_i`` of every workload, all cells."""
        return self.estimates + self.remainder


@dataclass
class DPStabsBook:
    """What is public of all that DP-STabS remembers.

    Attributes:
        step: steps done.
        sides: one, or with ``deletions`` two: inserts and deletes.
        models: the models whose equal mixture is the current release (g_t).
        marginals: the release's marginals, all cells (used by the literal reading).
        kept: workloads in the table's model (used by the predicted reading).
        rebuild_at: the step at which ``kept`` is chosen anew.
        with_base: whether the stream began with another one's table, so that counters hold only what came since.
        base_variance: of that table's number of records; None where it is not known.
    """

    step: int
    sides: tuple[PublicSide, ...]
    models: tuple[Model, ...]
    marginals: NDArray[np.float64]
    kept: list[int]
    rebuild_at: int
    with_base: bool = False
    base_variance: float | None = 0.0

    @property
    def total(self) -> float:
        """Noisy number of records: what came less what went."""
        return self.sides[0].total - sum(side.total for side in self.sides[1:])

    @property
    def passed(self) -> tuple[float, float] | None:
        """Noisy numbers of what came and what went; None where they are not followed apart."""
        return (self.sides[0].total, self.sides[1].total) if len(self.sides) == 2 else None

    @property
    def estimates(self) -> NDArray[np.int64]:
        """The counters' last outputs, all cells: of the inserts less of the deletes."""
        return np.asarray(np.subtract.reduce([side.estimates for side in self.sides]))

    @property
    def booked(self) -> NDArray[np.float64]:
        """``m_i`` of the table, all cells: of the inserts less of the deletes."""
        return np.asarray(np.subtract.reduce([side.booked for side in self.sides]))


#: The name that leaves the choice to the predicted error.
BEST = "best"


def expected_ticks(steps: int | None, rounds: int, marginals: int) -> int:
    """How often a marginal is measured if they take turns; 250 steps are expected without a horizon.

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
    if not isinstance(wanted, str):
        recipe = wanted
    else:
        recipe = counter_by_name(wanted, horizon=steps, expected_ticks=ticks)
    # A counter that ends before the stream would fail at the step at which a private selection picks it.
    ends = recipe.tick_limit
    if ends is not None and (steps is None or ends < steps):
        raise HorizonError(
            f"counter {recipe.name!r} has {ends} ticks, the stream "
            + ("an unknown number of steps" if steps is None else f"{steps} steps"),
            where="mechanism",
            allowed="a counter with a tick for every step",
        )
    return recipe, None


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

    def cell_variances(self, state: DPStabsBook) -> NDArray[np.float64]:
        """Noise variance of one cell of every workload's ``m_i``."""
        variances = np.zeros(len(self.cells.cliques))
        for side in state.sides:
            ticks, places = np.unique(np.maximum(side.ticks, 1), return_inverse=True)
            variances += np.array([self.variance(int(many)) for many in ticks])[places]
        return variances

    def total_variance(self, side: PublicSide, step: int) -> float | None:
        """Variance of a side's noisy total; None where it is not known."""
        if side.noise is not None:
            return side.noise.variance
        if (side.ticks == step).all():
            # The weights never changed, so that the counters' gains add up to their outputs.
            return self.variance(step) / float((1.0 / self.cells.sizes).sum())
        return None

    def booked(self, state: DPStabsBook, indices: Sequence[int]) -> list[Measurement]:
        """``m_i = C_i + r_i`` (Algorithm 3) for some workloads."""
        values, variances = state.booked, self.cell_variances(state).tolist()
        cliques, part = self.cells.cliques, self.cells.part
        return [Measurement(cliques[i], values[part(i)], variances[i]) for i in indices]

    def columns(self, state: DPStabsBook) -> list[Measurement]:
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

    def choose_kept(self, state: DPStabsBook) -> list[int]:
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

    def _singles(self, state: DPStabsBook) -> list[NDArray[np.float64]]:
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
class DPStabsOptions:
    """What may be chosen; see ``DPStabs``."""

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
            what = f"k = {self.k} exceeds the workload's {count} marginals"
            raise ConfigError(what, where="mechanism", allowed=f"1 to {count}")
        check_words(self)
        object.__setattr__(self, "select_share", check_share(self.select_share, "select_share"))
        check_fit(self.iterations, self.max_cells, self.prior_weight)
        check_each(self.workload, self.max_cells)

    @property
    def sides(self) -> tuple[Events, ...]:
        """The kinds of events that are followed apart."""
        return plans.events_apart(self.deletions and self.past == "predicted")

    @property
    def measures_all(self) -> bool:
        """Whether every workload is measured at every step, so that there is nothing to select."""
        count = len(self.workload.cliques)
        cells = tree_cells(self.workload.domain, self.workload.cliques)
        return self.rounds == count and cells <= self.max_cells

    @property
    def rounds(self) -> int:
        """``k``, or its default for this workload."""
        return default_rounds(self.workload) if self.k is None else self.k


@dataclass(frozen=True)
class DPStabsFacts(StreamPlan):
    """What a calibrated ``DPStabs`` says; see ``DPStabsPlan``."""

    recipe: DPStabsOptions
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

    def _synthesis(self, state: DPStabsBook) -> ModelSynthesis:
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

    def _total_error(self, state: DPStabsBook) -> float | None:
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
            total = totals.get(step)
            whole = None if total is None else math.sqrt(total * sides)
            every = math.sqrt(self.counter.variance(step) * sides)
            errors.append(ExpectedErrors(step, 0.0, whole, every_step=every))
        always = () if self.selector is not None else self.cells.cliques
        return with_table(errors, self.domain, always, expected)

    def _fits(self, chosen: Sequence[int]) -> bool:
        """Whether one model may hold all these marginals: else a step that begins with some of them ends early."""
        cliques = [self.cells.cliques[i] for i in chosen]
        return tree_cells(self.domain, cliques) <= self.recipe.max_cells

    def unpack_synthesis(self, packed: Packed) -> ModelSynthesis:
        """The inverse of ``ModelSynthesis.pack``."""
        return ModelSynthesis.unpack(packed)


#: How many iterations fit the table's model after its structure has changed.
REFIT_ITERATIONS = 200


def fit_table(plan: DPStabsFacts, state: DPStabsBook) -> Model:
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
