"""The number of records as censuses counted it, whose noise has a known law; and how large that noise can be."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import ExpectedErrors, ExpectedTable, MarginalError, PredictedError
from dpstream.core.errors import ConfigError, HorizonError
from dpstream.core.graphical import estimate_total
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import Noise
from dpstream.core.schema.domain import Clique
from dpstream.families.census.census_terms import CensusTerms
from dpstream.families.tabular.aim import AIMPlan, AIMRun


def counted_total(plan: AIMPlan, run: AIMRun) -> tuple[float, float]:
    """The number of records in a census's window, and the variance of its noise (0 where it is public).

    From the columns (or, where nothing is selected, from all measurements), by precision. The number from which the
    rounds follow is left out: given that number, all amounts are fixed before these measurements are drawn, so their
    noise has mean 0 and just this variance.
    """
    if plan.unit.relation == "replace":
        return run.total, 0.0
    if plan.whole:
        return estimate_total(run.sums)
    # The columns come first; with few records to a group, one by one.
    columns = plan.candidates.groups if _grouped(plan, run) else plan.candidates.columns
    return estimate_total(run.sums[1:][: len(plan.draws(columns))])


def _grouped(plan: AIMPlan, run: AIMRun) -> bool:
    return (
        tuple(m.clique for m in run.measurements[1:][: len(plan.candidates.groups)]) == plan.candidates.groups
    )


def largest_variance(plan: AIMPlan) -> float:
    """Of ``counted_total``: rounds that follow from noisy numbers can only make it smaller."""
    if plan.unit.relation == "replace":
        return 0.0
    domain, whole = plan.workload.domain, 0.0
    for cliques, noise in _first_measured(plan):
        own = noise.sum_variance if isinstance(noise, HistogramsNoise) else None
        whole += 1.0 / (noise.variance * domain.cells(cliques[0]) if own is None else own)
    return 1.0 / whole


def column_deviation(plan: AIMPlan) -> float:
    """Standard deviation of the noise in a column's cell, on average over the columns, at most."""
    domain, measured = plan.workload.domain, _cell_variances(plan)
    first = measured[0][1]
    cells = [
        variance / first * (domain.cells(clique) / domain.sizes[column])
        for clique, variance in measured
        for column in clique
    ]
    return math.sqrt(first * sum(cells) / len(cells))


def _first_measured(plan: AIMPlan) -> list[tuple[tuple[Clique, ...], Noise | HistogramsNoise]]:
    """The marginals that every run measures: the cover, or the columns; by draws, with the noise that they have at
    most."""
    own = plan.candidates
    if plan.whole:
        budget, cliques = plan.budget, [own.cliques[i] for i in own.cover]
    else:
        rest = next(part for part in plan.parts() if part.name == "columns and rounds").budget
        budget, cliques = rest.scaled(plan.recipe.columns_share), list(own.groups)
    return [(group, plan.noise_together(group, budget.scaled(share))) for group, share in plan.draws(cliques)]


def _cell_variances(plan: AIMPlan) -> list[tuple[Clique, float]]:
    """The same marginals, each with the variance of one of its cells."""
    found = list[tuple[Clique, float]]()
    for group, noise in _first_measured(plan):
        own = noise.variances if isinstance(noise, HistogramsNoise) else (noise.variance,)
        found += zip(group, own, strict=True)
    return found


def predicted_errors(plan: CensusTerms, steps: Sequence[int]) -> tuple[PredictedError, ...]:
    """Standard errors of the number of records as the last census up to each step counted it, at most.

    Errors:
        HorizonError: a step beyond the horizon. ConfigError: no number of a step.
    """
    for step in steps:
        if isinstance(step, bool) or not isinstance(step, int) or step < 1:
            raise ConfigError(f"{step!r} is no step", where="steps", allowed="1 or more")
        if plan.horizon is not None and step > plan.horizon:
            raise HorizonError(
                f"step {step} is beyond the plan", where="steps", allowed=f"1 to {plan.horizon}"
            )
    _count_on(plan, max(steps, default=0))
    return tuple(PredictedError(step, None, None, 1, math.sqrt(_variances(plan, step)[0])) for step in steps)


def expected_errors(
    plan: CensusTerms, steps: Sequence[int], expected: ExpectedTable
) -> tuple[ExpectedErrors, ...]:
    """Of the number of records at each step, with those who came and left since the last census; of a cell of every
    column as that census counted it, at most.

    Those who left are taken off a column in proportion, so the noise of their number is spread over its cells.
    """
    domain, totals = plan.workload.domain, predicted_errors(plan, steps)
    return tuple(
        ExpectedErrors(
            one.step,
            expected.size_at(one.step),
            math.hypot(one.total or 0.0, math.sqrt(_uncounted(plan, one.step, expected))),
            tuple(
                MarginalError((name,), cells, math.sqrt(variance))
                for name, cells, variance in zip(
                    domain.names,
                    domain.sizes,
                    _variances(plan, one.step)[1:].tolist(),
                    strict=True,
                )
                if math.isfinite(variance)
            ),
            at_most=True,
        )
        for one in totals
    )


def _uncounted(plan: CensusTerms, step: int, expected: ExpectedTable) -> float:
    """The variance that records bring which came or left after they were last counted.

    Their number in each step differs from that in the steps between the last two censuses by ``expected.varies`` of
    it, independently: u steps after L counted ones this adds v^2 r^2 (u + u^2 / L), for those who came and, since the
    last count of departures, for those who left.
    """
    if plan.public_presence:
        return 0.0
    steps = plan.noise_of_counts.steps
    index = bisect_right(steps, step) - 1
    census, before = steps[index], steps[index - 1] if index else 0
    since = [step - census]
    if plan.turnover is not None:
        since.append(step - plan.schedule.last_count(step, [census]))
    several = sum(number + number**2 / (census - before) for number in since)
    return (expected.varies * expected.records_per_step) ** 2 * several


def _variances(plan: CensusTerms, step: int) -> NDArray[np.float64]:
    """At the last census up to a step: the variance of the number of records, and of a cell of each column, at most."""
    own = plan.noise_of_counts
    return own.variances[bisect_right(own.steps, step) - 1]


def _count_on(plan: CensusTerms, until: int) -> None:
    """Follow the censuses up to a step, from where the last call stopped: late steps cost no more than early ones."""
    own = plan.noise_of_counts
    sizes = np.array(plan.workload.domain.sizes, dtype=np.float64)
    noise = plan.amounts.departure_noise
    left = np.zeros(len(sizes) + 1)
    if noise is not None:
        left = noise.variance * np.concatenate(([1.0], sizes**-2))
    for step, level in plan.schedule.censuses(own.steps[-1] + 1 if own.steps else 1, until):
        counts = plan.schedule.counts_between(own.steps[-1] if own.steps else 0, step)
        own.levels += [np.zeros(len(sizes) + 1)] * (level + 1 - len(own.levels))
        # Departures of levels with an open cohort are counted since the census before, up to this one.
        own.levels[:] = [one + counts * left if one.any() else one for one in own.levels]
        own.levels[:level] = [np.zeros(len(sizes) + 1)] * level
        run = plan.run_of(level)
        counted = np.concatenate(([largest_variance(run)], _column_variances(run)))
        own.levels[level] = own.levels[level] + counted
        own.variances.append(np.sum(own.levels, axis=0))
        own.steps.append(step)


def _column_variances(plan: AIMPlan) -> NDArray[np.float64]:
    """The variance of the noise in a cell of each column, at most: from the best of the marginals that have it."""
    domain, measured = plan.workload.domain, _cell_variances(plan)
    return np.array([
        min((variance * domain.cells(c) / size for c, variance in measured if i in c), default=math.inf)
        for i, size in enumerate(domain.sizes)
    ])  # fmt: skip
