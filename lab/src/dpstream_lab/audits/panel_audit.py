"""Transcripts of panels (see ``door``): neighbours differ in the whole history of one person.

Small panels try every pair of histories.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.choose import ZCDP_COUNTER_NAMES
from dpstream.core.privacy import Amount, DiscreteGaussian, Event, Individual, Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.families.panel import CumulativePlan, PanelCumulative, PanelWindow, WindowPlan
from dpstream.families.panel.people import PanelState
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.door import Run
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream_lab.audits.controls import ReusedNoise
from dpstream_lab.audits.subjects import rebuilt, transcripts_of

Plan = WindowPlan | CumulativePlan
History = tuple[int, ...]

#: The most pairs of histories.
_PAIRS: dict[AuditLength, int] = {"short": 150, "long": 2000}
_PEOPLE = 5
_UNITS = (Individual(), Individual("replace"))


def audit_panels(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Both synthesizers under both relations, with their controls."""
    return transcripts_of(partial(panel_subjects, _PAIRS[length]), 1, 1)(length, randomness, progress)


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


def panel_subjects(most: int) -> Iterator[Subject]:
    """Honest synthesizers; then controls.

    Args:
        most: pairs of histories.
    """
    subject = partial(_subject, most)
    for unit, (periods, window, symbols) in itertools.product(_UNITS, ((4, 2, 2), (5, 1, 2), (3, 3, 3))):
        plan = window_plan(periods, window, symbols, unit=unit)
        yield subject(plan, f"window of {window} of {periods}, {symbols} symbols, {unit.relation}")
    for unit, counter in itertools.product(_UNITS, ("best", *ZCDP_COUNTER_NAMES)):
        cumulative = cumulative_plan(5, unit=unit, counter=counter)
        yield subject(cumulative, f"cumulative of 5, counter {counter}, {unit.relation}")
    few = cumulative_plan(5, unit=_UNITS[1], thresholds=2, split="levels", counter="tree")
    yield subject(few, "cumulative of 5, two thresholds by levels, replace")
    whole, replaced = window_plan(4, 2, unit=_UNITS[1]), cumulative_plan(5, unit=_UNITS[1])
    split = rebuilt(BrokenPrivateSplit, whole)
    one = cumulative_plan(5, unit=_UNITS[1], thresholds=1, counter="simple")
    controls: tuple[tuple[str, Plan, Any], ...] = (
        ("window with 2/3 of the noise", whole, QuietNoise),
        ("window, split by private people", split, None),
        ("window, split by private people, add-remove", replace(split, unit=Individual()), None),
        ("window, sqrt(2) too little noise", rebuilt(BrokenUnpairedNoise, whole), None),
        ("window, one noise for all histograms", whole, ReusedNoise),
        ("cumulative, one change paid of two", broken_unpaired_counters(one), None),
        ("cumulative with 2/3 of the noise", cumulative_plan(5), QuietNoise),
        ("cumulative with 2/3 of the noise, replace", replaced, QuietNoise),
        ("cumulative, one noise for all ticks", one, ReusedNoise),
    )
    for name, broken, wrap in controls:
        yield subject(broken, name, control=True, **({} if wrap is None else {"wrap": wrap}))


def _subject(most: int, plan: Plan, name: str, **more: Any) -> Subject:
    """Some people, and one more with each of the histories."""

    def pairs() -> Iterator[Pair]:
        generator = np.random.default_rng(7)
        others = generator.integers(0, plan.codes, (_PEOPLE, plan.horizon))
        nobody = panel_run(plan, others)
        for one, other in _pairs(plan, most, generator):
            runs = (
                nobody if one is None else panel_run(plan, _with(others, one)),
                panel_run(plan, _with(others, other)),
            )
            yield Pair(f"{'nobody' if one is None else one} against {other}", *runs)

    return Subject(name, plan.budget, pairs, **more)


class BrokenPrivateSplit(WindowPlan):
    """BROKEN: groups the synthetic people by the histories of the private people, as the published listing does."""

    def _groups(self, state: PanelState) -> NDArray[np.int64]:
        groups = super()._groups(state)
        # The listing: I_z = {i | (x_i^{t-k+1}, ..., x_i^{t-1}) = z}, with x the private reports.
        private = (state.private // self.codes)[: len(groups)]
        groups[: len(private)] = private
        return groups


class BrokenUnpairedNoise(WindowPlan):
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


def panel_run(plan: Plan, panel: NDArray[np.int64]) -> Run:
    """Everything that is released of a panel of shape (people, periods), in order."""

    def run(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
        state = plan.start(len(panel))
        for column in panel.T:
            made = plan.advance(state, column, randomness)
            noisy = [counts.values for counts in made.noisy_counts]
            yield (
                [made.columns, made.counts, made.estimates, np.array(made.clipped), *noisy]
                if made.new
                else []
            )

    return run
