"""Audits of panels: neighbours differ in the whole history of one person.

* Exact: the running code runs on a panel, recording its noise, and on a neighbour, with the noise that makes every
  noisy count the same. The shift of the noise gives the loss (rho). If a release differs all the same, private
  information reached it other than through the noise, and the loss is infinite. Small panels try every pair of
  histories.
* Empirical: many runs on two neighbours; a linear discriminant of everything that is released, judged by other runs
  (see ``counters_audit``).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.choose import ZCDP_COUNTER_NAMES
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteGaussian, Event, Individual, Randomness
from dpstream.core.privacy.budget import Amount
from dpstream.core.schema import Categorical, Schema
from dpstream.families.panel import (
    CumulativePlan,
    CumulativeSynthesis,
    PanelCumulative,
    PanelWindow,
    WindowPlan,
    WindowSynthesis,
)
from dpstream.families.panel.extension import extend, split_whole
from dpstream.families.panel.people import PanelState
from dpstream.lab.audits.controls import QuietNoise, ReusedNoise, broken_quiet_counter
from dpstream.lab.audits.counters_audit import COUNTERS_CONFIDENCE, _discriminant, rho_lower_bound
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.transcript_tape import Tape, TapedNoise, in_order
from dpstream.lab.audits.transcripts import rows_drawn


class _Broken(WindowPlan):
    @classmethod
    def of(cls, plan: WindowPlan) -> Self:
        """``plan``, broken."""
        return cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})


class BrokenPrivateSplit(_Broken):
    """BROKEN: groups the synthetic people by the histories of the private people, as the published listing does."""

    def _extend(
        self, state: PanelState, noisy: NDArray[np.int64], generator: np.random.Generator
    ) -> WindowSynthesis:
        symbols = self.codes
        powers = symbols ** np.arange(self.window - 2, -1, -1)
        groups = (state.history[:, state.period - self.window :] @ powers).astype(np.int32)
        # The listing: I_z = {i | (x_i^{t-k+1}, ..., x_i^{t-1}) = z}, with x the private reports.
        private = (state.private // symbols)[: len(groups)]
        groups[: len(private)] = private
        available = np.bincount(groups, minlength=self.patterns // symbols).astype(np.int64)
        numbers, clipped = split_whole(noisy.reshape(-1, symbols), available, generator)
        state.clipped += clipped
        return self._grown(state, extend(groups, numbers, generator)[:, None], numbers.ravel(), noisy)


class BrokenUnpairedNoise(_Broken):
    """BROKEN: has the noise for one changed count, but a replaced person changes two. True loss: twice the claim."""

    @cached_property
    def noise(self) -> DiscreteGaussian:
        """Noise of half of the variance that replacement needs."""
        return DiscreteGaussian(super().noise.sigma_squared / 2)


def broken_unpaired_counters(plan: CumulativePlan) -> CumulativePlan:
    """BROKEN: counters with the noise for one changed increment, but a replaced person changes two."""
    counters = tuple(
        counter.recipe.calibrate(replace(plan.budget, rho=rho), Event())
        for counter, rho in zip(plan.counters, plan.shares, strict=True)
    )
    return replace(plan, counters=counters)


def broken_quiet(plan: CumulativePlan) -> CumulativePlan:
    """BROKEN: counters with 2/3 of the noise."""
    return replace(plan, counters=tuple(broken_quiet_counter(counter) for counter in plan.counters))


Plan = WindowPlan | CumulativePlan
History = tuple[int, ...]

#: The most pairs of histories; the runs per side of an empirical audit; and as many pilot runs, which choose weights.
_PAIRS: dict[AuditLength, int] = {"short": 150, "long": 2000}
_RUNS: dict[AuditLength, int] = {"short": 8_000, "long": 60_000}
_PILOT = 1_000
_PEOPLE = 5


@dataclass(frozen=True)
class PanelSubject:
    """One synthesizer to be audited.

    Attributes:
        wrap: replaces the randomness that the plan gets (for controls).
        pair: the two histories of the empirical audit; the first is None where the person is added. None: the audit is
            exact.
    """

    name: str
    plan: Plan
    wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness
    control: bool = False
    pair: tuple[History | None, History] | None = None


def audit_panels(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Both synthesizers under both relations, exactly and empirically, with their controls."""
    for subject in panel_subjects():
        progress(subject.name)
        if subject.pair is None:
            yield exact_panel(subject, _PAIRS[length], randomness)
        else:
            yield sampled_panel(subject, _RUNS[length], randomness)


def panel_subjects() -> tuple[PanelSubject, ...]:
    """All subjects: honest synthesizers, controls, and those of the empirical audits."""
    return (*_honest(), *_controls(), *_sampled())


_UNITS = (Individual(), Individual("replace"))


def panel_schema(symbols: int) -> Schema:
    """A column of so many values: what people of an audited or simulated panel report."""
    return Schema((Categorical("report", tuple(map(str, range(symbols)))),))


def window_plan(
    periods: int,
    window: int,
    symbols: int = 2,
    *,
    rho: Amount = "1/2",
    unit: Individual | None = None,
    **options: Any,
) -> WindowPlan:
    """A fixed window over reports of ``panel_schema``."""
    recipe = PanelWindow(panel_schema(symbols), window, **options)
    return recipe.calibrate(rho=rho, unit=unit, horizon=periods)


def cumulative_plan(
    periods: int,
    symbols: int = 2,
    *,
    rho: Amount = "1/2",
    unit: Individual | None = None,
    counted: tuple[str, ...] = ("1",),
    **options: Any,
) -> CumulativePlan:
    """Cumulative counts of reports of ``panel_schema``."""
    recipe = PanelCumulative(panel_schema(symbols), counted, **options)
    return recipe.calibrate(rho=rho, unit=unit, horizon=periods)


def _honest() -> Iterator[PanelSubject]:
    for unit, (periods, window, symbols) in itertools.product(_UNITS, ((4, 2, 2), (5, 1, 2), (3, 3, 3))):
        plan = window_plan(periods, window, symbols, unit=unit)
        name = f"window of {window} of {periods}, {symbols} symbols, {unit.relation}"
        yield PanelSubject(name, plan)
    for unit, counter in itertools.product(_UNITS, ("best", *ZCDP_COUNTER_NAMES)):
        cumulative = cumulative_plan(5, unit=unit, counter=counter)
        yield PanelSubject(f"cumulative of 5, counter {counter}, {unit.relation}", cumulative)
    few = cumulative_plan(5, unit=_UNITS[1], thresholds=2, split="levels", counter="tree")
    yield PanelSubject("cumulative of 5, two thresholds by levels, replace", few)


def _controls() -> Iterator[PanelSubject]:
    window = window_plan(4, 2, unit=Individual("replace"))
    plan = replace(window, unit=Individual())
    yield PanelSubject("window with 2/3 of the noise", window, QuietNoise, True)
    yield PanelSubject("window, split by private people", BrokenPrivateSplit.of(window), control=True)
    yield PanelSubject(
        "window, split by private people, add-remove", BrokenPrivateSplit.of(plan), control=True
    )
    yield PanelSubject("window, sqrt(2) too little noise", BrokenUnpairedNoise.of(window), control=True)
    yield PanelSubject("window, one noise for all histograms", window, ReusedNoise, True)
    one = cumulative_plan(5, unit=Individual("replace"), thresholds=1, counter="simple")
    yield PanelSubject("cumulative, one change paid of two", broken_unpaired_counters(one), control=True)
    for unit in _UNITS:
        every = cumulative_plan(5, unit=unit)
        yield PanelSubject(
            f"cumulative with 2/3 of the noise, {unit.relation}", broken_quiet(every), control=True
        )
    yield PanelSubject("cumulative, one noise for all ticks", one, ReusedNoise, True)


def _sampled() -> Iterator[PanelSubject]:
    """Small panels whose releases show all noisy counts."""
    window = window_plan(2, 2, rho=2, unit=Individual("replace"))
    pair: tuple[History, History] = ((0, 0), (1, 1))
    yield PanelSubject("window of 2 of 2, replace, runs", window, pair=pair)
    yield PanelSubject("window of 2 of 2, replace, 2/3 of the noise, runs", window, QuietNoise, True, pair)
    first = window_plan(2, 2, rho=2)
    yield PanelSubject("window of 2 of 2, add-remove, runs", first, pair=(None, (1, 1)))
    yield PanelSubject(
        "window of 2 of 2, add-remove, 2/3 of the noise, runs", first, QuietNoise, True, (None, (1, 1))
    )
    one = cumulative_plan(2, rho=2, unit=Individual("replace"), thresholds=1, counter="simple")
    pair = ((1, 0), (0, 1))
    yield PanelSubject("cumulative of 2, runs", one, pair=pair)
    yield PanelSubject(
        "cumulative of 2 with 2/3 of the noise, runs", broken_quiet(one), control=True, pair=pair
    )


# Exact.


def exact_panel(subject: PanelSubject, pairs: int, randomness: Randomness) -> AuditFinding:
    """The largest loss over at most ``pairs`` pairs of histories; over all where there are no more."""
    began = time.perf_counter()
    plan, generator = subject.plan, np.random.default_rng(randomness.below(1 << 63))
    others = generator.integers(0, plan.codes, (_PEOPLE, plan.horizon))
    worst, chosen = Largest(), _pairs(plan, pairs, generator)
    for one, other in chosen:
        loss = history_loss(plan, _with(others, one), _with(others, other), randomness, subject.wrap)
        worst.see(loss, f"{'nobody' if one is None else one} against {other}")
    return AuditFinding.exact(
        began,
        subject=f"{subject.name}, histories",
        claimed=float(plan.budget.rho),
        found=worst.loss,
        control=subject.control,
        detail=f"{len(chosen)} pairs of histories; most with {worst.where}",
        unit="rho",
    )


def _pairs(plan: Plan, most: int, generator: np.random.Generator) -> list[tuple[History | None, History]]:
    """At most so many pairs of histories: all, or some random ones with histories of zeros followed by ones."""
    symbols, periods = plan.codes, plan.horizon
    every: list[History] = list(itertools.product(range(symbols), repeat=periods))
    if plan.unit.relation == "add-remove":
        alone: list[tuple[History | None, History]] = [(None, one) for one in every]
        return (
            alone
            if len(alone) <= most
            else [alone[i] for i in (0, -1, *_some(len(alone), most - 2, generator))]
        )
    steps = [tuple([0] * at + [1] * (periods - at)) for at in range(periods + 1)]
    first: list[tuple[History | None, History]] = list(itertools.combinations(steps, 2))
    both: list[tuple[History | None, History]] = list(itertools.combinations(every, 2))
    if len(both) <= most:
        return both
    return [*first, *(both[i] for i in _some(len(both), max(0, most - len(first)), generator))]


def _some(size: int, number: int, generator: np.random.Generator) -> list[int]:
    chosen: list[int] = generator.choice(size, number, replace=False).tolist()
    return chosen


def _with(others: NDArray[np.int64], history: History | None) -> NDArray[np.int64]:
    return others if history is None else np.vstack([others, np.array(history, np.int64)])


def history_loss(
    plan: Plan,
    base: NDArray[np.int64],
    neighbour: NDArray[np.int64],
    randomness: Randomness,
    wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness,
) -> float:
    """The loss (rho) of a panel's releases between two panels of shape (people, periods).

    Infinite where the noise cannot make all releases the same. Cost: two runs, and the counters' matrices.

    Errors:
        ConfigError: the plan draws noise that is not Gaussian.
    """
    # Random choices after the noise must be the same in both runs.
    seed = randomness.words(4).tobytes()
    first = Tape()
    released = _run(plan, base, wrap(TapedNoise.apart(seed, first)))
    moved = _window_moves if isinstance(plan, WindowPlan) else _cumulative_moves
    shifts = moved(plan, base, neighbour)  # type: ignore[arg-type]
    second = Tape(script=first)
    again = _run(plan, neighbour, wrap(TapedNoise.apart(seed, second, in_order(shifts))))
    # Fewer draws than noisy counts mean that some noise was used twice.
    if len(first.draws) != len(shifts) or not all(map(np.array_equal, released, again)):
        return math.inf
    loss = Fraction(0)
    for (law, _), shift in zip(first.draws, shifts, strict=True):
        if not isinstance(law, DiscreteGaussian):
            raise ConfigError(
                "the panel drew noise that is not Gaussian", where="audit", allowed="a zCDP budget"
            )
        loss += int((shift**2).sum()) / (2 * law.sigma_squared)
    return float(loss)


def _run(plan: Plan, panel: NDArray[np.int64], randomness: Randomness) -> list[NDArray[np.generic]]:
    """Everything that is released, in order."""
    state = plan.start(len(panel))
    released: list[NDArray[np.generic]] = []
    for column in panel.T:
        release = plan.advance(state, column, randomness)
        noisy = np.concatenate([np.zeros(0, np.int64), *(counts.values for counts in release.noisy_counts)])
        if isinstance(release, WindowSynthesis):
            if release.new:
                released += [release.columns, release.counts, np.array(release.clipped), noisy]
        else:
            assert isinstance(release, CumulativeSynthesis)
            released += [release.columns, release.reached, release.estimates, noisy]
    return released


def _window_moves(
    plan: WindowPlan, base: NDArray[np.int64], neighbour: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """The shift of each noise on the neighbour: the difference of the two histograms."""
    powers = plan.codes ** np.arange(plan.window - 1, -1, -1)
    moves = []
    for end in range(plan.window, plan.horizon + 1):
        here, there = (
            np.bincount(panel[:, end - plan.window : end] @ powers, minlength=plan.patterns)
            for panel in (base, neighbour)
        )
        moves.append(here - there)
    return moves


def _cumulative_moves(
    plan: CumulativePlan, base: NDArray[np.int64], neighbour: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """The shift of each noise, in the order of draws: a counter's matrix times the difference of its increments."""
    periods, largest = plan.horizon, plan.largest
    moves = [] if plan.total_noise is None else [np.array([len(base) - len(neighbour)])]
    moved, drawn = [], []
    for b in range(1, largest + 1):
        ticks, counter = periods - b + 1, plan.counters[b - 1]
        change = _arrivals(base, b)[b - 1 :] - _arrivals(neighbour, b)[b - 1 :]
        moved.append(counter.materialize(ticks).encoder @ change)
        drawn.append(rows_drawn(counter, ticks))
    taken = [0] * largest
    for period, b in itertools.product(range(1, periods + 1), range(1, largest + 1)):
        for count in drawn[b - 1][period - b] if period >= b else ():
            moves.append(moved[b - 1][taken[b - 1] : taken[b - 1] + count])
            taken[b - 1] += count
    return moves


def _arrivals(panel: NDArray[np.int64], b: int) -> NDArray[np.int64]:
    """The number of people who report their ``b``-th one at each period."""
    so_far = np.cumsum(panel == 1, axis=1)
    arrived: NDArray[np.int64] = ((so_far == b) & (panel == 1)).sum(axis=0)
    return arrived


# Empirical.


def sampled_panel(subject: PanelSubject, runs: int, randomness: Randomness) -> AuditFinding:
    """A lower confidence bound on the loss between one pair of histories, from ``runs`` runs on each."""
    began = time.perf_counter()
    assert subject.pair is not None
    plan = subject.plan
    others = np.arange(_PEOPLE * plan.horizon).reshape(_PEOPLE, -1) % plan.codes
    sides = []
    for history in subject.pair:
        panel, wrapped = _with(others, history), subject.wrap(randomness)
        sides.append(np.array([_features(_run(plan, panel, wrapped)) for _ in range(_PILOT + runs)]))
    weights = _discriminant(sides[0][:_PILOT], sides[1][:_PILOT])
    scores: Sequence[NDArray[np.float64]] = [side[_PILOT:] @ weights for side in sides]
    found = rho_lower_bound(scores[0], scores[1], confidence=COUNTERS_CONFIDENCE)
    return AuditFinding.empirical(
        began,
        subject=subject.name,
        claimed=plan.budget,
        found=found,
        confidence=COUNTERS_CONFIDENCE,
        runs=runs,
        control=subject.control,
        detail=f"{'nobody' if subject.pair[0] is None else subject.pair[0]} against {subject.pair[1]}",
    )


def _features(released: list[NDArray[np.generic]]) -> NDArray[np.float64]:
    """The released counts and estimates; the synthetic columns and what was measured are in them."""
    parts = [part.ravel() for i, part in enumerate(released) if i % 4 in (1, 2)]
    return np.concatenate(parts).astype(np.float64)
