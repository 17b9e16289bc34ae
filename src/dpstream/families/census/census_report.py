"""What a census says about itself: counted numbers with the law of their noise, predictions, words for plans."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import ExpectedErrors, ExpectedTable, MarginalError, Part
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.graphical import estimate_total
from dpstream.core.privacy.budget import PureDP
from dpstream.core.schema.domain import Clique
from dpstream.families.census.census_state import CensusTerms
from dpstream.families.census.schedule import last_of, level_of, with_census
from dpstream.families.census.totals_filter import LONG_STAY, LevelTotal, expected_stay
from dpstream.mechanisms.aim import AIMPlan
from dpstream.mechanisms.description import headline_facts, table_facts
from dpstream.mechanisms.headlines import headline_words
from dpstream.mechanisms.mwem_pgm import OfflineRun

# The number of records as censuses counted it, whose noise has a known law; and how large that noise can be.


def counted_total(plan: AIMPlan, run: OfflineRun) -> tuple[float, float]:
    """The number of records in a census's window, and the variance of its noise (0 where it is public).

    From the columns (or, where nothing is selected, from all measurements), by precision. The number from which the
    rounds follow is left out: given that number, all amounts are fixed before these measurements are drawn, so their
    noise has mean 0 and just this variance.
    """
    if plan.unit.relation == "replace":
        return run.total, 0.0
    if plan.whole:
        return estimate_total(run.measurements)
    # The columns come first; with few records to a group, one by one.
    groups, measured = plan.candidates.groups, run.measurements[1:]
    grouped = tuple(one.clique for one in measured[: len(groups)]) == groups
    return estimate_total(measured[: len(groups if grouped else plan.candidates.columns)])


def largest_variance(plan: AIMPlan) -> float:
    """Of ``counted_total``: rounds that follow from noisy numbers can only make it smaller."""
    if plan.unit.relation == "replace":
        return 0.0
    domain = plan.workload.domain
    return 1.0 / sum(1.0 / (variance * domain.cells(clique)) for clique, variance in _cell_variances(plan))


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


def _cell_variances(plan: AIMPlan) -> list[tuple[Clique, float]]:
    """The marginals that every run measures (the cover, or the columns), with the variance of a cell, at most."""
    own = plan.candidates
    if plan.whole:
        budget, cliques = plan.budget, [own.cliques[i] for i in own.cover]
    else:
        rest = next(part for part in plan.parts() if part.name == "columns and rounds").budget
        budget, cliques = rest.scaled(plan.recipe.columns_share), list(own.groups)
    variance = plan.noise(budget.scaled(Fraction(1, len(cliques)))).variance
    return [(clique, variance) for clique in cliques]


def counted_deviations(plan: CensusTerms, steps: Sequence[int]) -> list[float]:
    """Standard errors of the number of records as the last census up to each step counted it, at most.

    Errors:
        HorizonError: a step beyond the horizon. ConfigError: no number of a step.
    """
    return [math.sqrt(variances[0]) for *_, variances in _noise(plan, steps)]


def expected_errors(
    plan: CensusTerms, steps: Sequence[int], expected: ExpectedTable | None
) -> tuple[ExpectedErrors, ...]:
    """Of the released number of records at each step, with those who came and left since the last census; of a cell of
    every column as that census counted it, at most. Without a table: of the number of records as it was counted.

    Those who left are taken off a column in proportion, so the noise of their number is spread over its cells.
    """
    if expected is None:
        deviations = counted_deviations(plan, steps)
        return tuple(ExpectedErrors(step, 0.0, total) for step, total in zip(steps, deviations, strict=True))
    columns = list(zip(plan.workload.domain.names, plan.workload.domain.sizes, strict=True))
    modelled = _modelled(plan, expected, max(steps, default=0))
    return tuple(
        ExpectedErrors(
            step,
            expected.size_at(step),
            math.sqrt(min(variances[0], modelled[census]) + _uncounted(plan, step, census, before, expected)),
            tuple(
                MarginalError((name,), cells, math.sqrt(variance))
                for (name, cells), variance in zip(columns, variances[1:].tolist(), strict=True)
                if math.isfinite(variance)
            ),
            at_most=True,
        )
        for step, (census, before, variances) in zip(steps, _noise(plan, steps), strict=True)
    )


def _modelled(plan: CensusTerms, expected: ExpectedTable, until: int) -> dict[int, float]:
    """The squared error of the released number of records at each census, where all counts come out as expected."""
    if plan.public_presence:
        return dict.fromkeys((step for step, _, _ in plan.schedule.taken(until)), 0.0)
    turnover, noise = float(plan.turnover or LONG_STAY), plan.amounts.departure_noise
    growing = expected.change == "grows" or not expected.records_per_step
    stay = LONG_STAY if growing else expected.size / expected.records_per_step
    levels, present, found = list[LevelTotal](), list[float](), dict[int, float]()
    for step, level, last in plan.schedule.taken(until):
        before, wait = last_of(last, 0), plan.schedule.departures or step
        counts = [*range(before, step, wait), step]
        for since, now in pairwise(counts):
            for own, total in enumerate(levels):
                left = present[own] * -math.expm1((since - now) / stay)
                present[own] -= left
                total.count(now - since, left, 0.0 if noise is None else noise.variance)
        if len(levels) == level:
            levels.append(LevelTotal.fresh(turnover))
            present.append(0.0)
        came = expected.records_per_step * expected_stay(1.0 / stay, step - before)
        number = sum(present[:level]) + (came if before else expected.size_at(step))
        for lower in range(level):
            levels[lower].empty()
            present[lower] = 0.0
        present[level] += number
        variance = _expected_variance(plan.run_of(level), number)
        levels[level].add((number, variance), (number, variance))
        wrong = sum(total.size for total in levels) - sum(present)
        found[step] = sum(total.variance for total in levels) + wrong**2
    return found


def _expected_variance(plan: AIMPlan, records: float) -> float:
    """Of ``counted_total``, where a census finds so many records: fewer rounds leave more to the columns."""
    largest = largest_variance(plan)
    if plan.whole:
        return largest
    part = plan.recipe.columns_share / plan.columns_for(plan.rounds_for(records))
    return largest * float(part) ** (2 if isinstance(plan.budget, PureDP) else 1)


def _uncounted(plan: CensusTerms, step: int, census: int, before: int, expected: ExpectedTable) -> float:
    """The variance that records bring which came or left after they were last counted.

    Their number in each step differs from that in the steps between the last two censuses by ``expected.varies`` of
    it, independently: u steps after L counted ones this adds v^2 r^2 (u + u^2 / L), for those who came and, since the
    last count of departures, for those who left.
    """
    if plan.public_presence:
        return 0.0
    since = [step - census]
    if plan.turnover is not None:
        since.append(step - plan.schedule.last_count(step, [census]))
    several = sum(number + number**2 / (census - before) for number in since)
    return (expected.varies * expected.records_per_step) ** 2 * several


def _noise(plan: CensusTerms, steps: Sequence[int]) -> list[tuple[int, int, NDArray[np.float64]]]:
    """For each step its last census, the one before that, and the variance of the noise at the last one: of the number
    of records, and of a cell of each column, at most."""
    sizes, noise = np.array(plan.workload.domain.sizes, dtype=np.float64), plan.amounts.departure_noise
    of_departures = (0.0 if noise is None else noise.variance) * np.concatenate(([1.0], sizes**-2))
    asked = check_steps(steps, plan.horizon)
    # For each census: of every level, its censuses and the counts of its departures since it was last emptied.
    at, books = [0], [list[tuple[int, int]]()]
    for step, level, _ in plan.schedule.taken(max(asked, default=0)):
        # Departures of levels with an open cohort are counted since the census before, up to this one.
        fresh = plan.schedule.counts_between(at[-1], step)
        book = [(taken, counts + fresh if taken else 0) for taken, counts in books[-1][level:]]
        taken, counts = book[0] if book else (0, 0)
        books.append([*[(0, 0)] * level, (taken + 1, counts), *book[1:]])
        at.append(step)
    of_census = {}
    for level in range(max(map(len, books))):
        run = plan.run_of(level)
        of_census[level] = np.concatenate(([largest_variance(run)], _column_variances(run)))
    places = [bisect_right(at, step) - 1 for step in asked]
    variances = {
        place: sum(
            (taken * of_census[level] + counts * of_departures)
            for level, (taken, counts) in enumerate(books[place])
            if taken
        )
        for place in set(places)
    }
    return [(at[place], at[place - 1] if place else 0, np.asarray(variances[place])) for place in places]


def _column_variances(plan: AIMPlan) -> NDArray[np.float64]:
    """The variance of the noise in a cell of each column, at most: from the best of the marginals that have it."""
    domain, measured = plan.workload.domain, _cell_variances(plan)
    return np.array([
        min((variance * domain.cells(c) / size for c, variance in measured if i in c), default=math.inf)
        for i, size in enumerate(domain.sizes)
    ])  # fmt: skip


# What a census says about itself: plans, manifests and statements. Step numbers, options and public scales only.

#: A plan lists so many censuses, and the first one of each further level up to so many.
_SHOWN, _SHOWN_LEVELS = 4, 4
#: Without a horizon, none that is further away.
_FARTHEST = 10_000
#: Levels that a plan without a last level lists one by one.
_NAMED_LEVELS = 6


def listed_levels(plan: CensusTerms) -> int:
    """How many levels are listed."""
    return plan.schedule.levels or _NAMED_LEVELS


def census_parts(plan: CensusTerms) -> tuple[Part, ...]:
    """What a stay pays, level by level; they add up to the budget exactly."""
    parts, levels = list[Part](), listed_levels(plan)
    for level in range(levels):
        runs = "; ".join(f"{part.name}: {part.detail}" for part in plan.run_of(level).parts())
        detail, heads = f"an AIM run: {runs}", plan.headline_noises(level)
        if heads:
            detail += f"; and {plan.headline_share} for the headlines, {headline_words(heads)}"
        parts.append(Part(f"census of level {level}", 1, plan.amounts.of_level(level), detail))
    if plan.schedule.levels is None:
        detail = f"each further level gets half of what the one before it has; level {levels} and on"
        parts.append(Part("further levels", 1, plan.amounts.beyond(levels), detail))
    noise = plan.amounts.departure_noise
    if noise is not None:
        every = plan.schedule.departures
        detail = f"at a census, for each level: who left since the census before, with {noise.describe()}"
        if every is not None:
            between = "at every step" if every == 1 else f"every {every} steps"
            detail = (
                f"at a census and {between} between censuses, for each level: who left since the count "
                f"before, with {noise.describe()}; a stay is in one count, however many there are"
            )
        parts.append(Part("departures", 1, plan.amounts.of_departures, detail))
    return tuple(parts)


def accuracy_facts(
    plan: CensusTerms,
    step: int,
    last: Sequence[int],
    model_error: float,
    counted: tuple[float, float] | None,
    gap: int | None = None,
) -> dict[str, Any]:
    """What the manifest of one step says of errors.

    Args:
        last: the last census of each level.
        model_error: of the released number of records, by the model of stays and by how far it is from the counts.
        counted: at a census, the number of records without any model, and the standard error of its noise.
        gap: most steps up to the next census, where that was learnt.
    """
    public, census = plan.public_presence, last_of(last, 0)
    following, horizon = plan.paced(gap).after(census), plan.horizon
    facts: dict[str, Any] = {
        "last_census": {"step": census, "level": level_of(last)},
        "next_census": following if horizon is None or following <= horizon else None,
        "last_count": plan.schedule.last_count(step, last),
        "total_standard_error": 0.0 if public else None,
        "measured_every_step": {"standard_error": None, "marginals": []},
    }
    if not public:
        facts["total_model_standard_error"] = model_error if step == census else None
    if counted is not None:
        # A sum of many: its last digits are of floating point, such as 991.9999999999999.
        facts["counted"] = {"records": round(counted[0], 6) + 0.0, "standard_error": counted[1]}
    return facts


def plan_facts(plan: CensusTerms, prior: str | None) -> dict[str, Any]:
    """When censuses are, what a stay costs, and how much noise there is.

    Args:
        prior: what is said of the public table that shapes cohorts; None where there is none.
    """
    schedule, levels, domain = plan.schedule, listed_levels(plan), plan.workload.domain
    higher = list[dict[str, int]]()
    if schedule.gap is not None:
        until = min(schedule.levels or _SHOWN_LEVELS, _SHOWN_LEVELS)
        higher = [{"level": g, "every": schedule.gap * schedule.ratio**g} for g in range(1, until)]
    numbers = [plan.run_of(level).numbers() for level in range(levels)]
    left = 0 if plan.public_presence else levels
    heads = sum(domain.cells(clique) for clique in plan.headline)
    return {
        **table_facts(plan.workload, column_deviation(plan.run_of(0))),
        **headline_facts(
            [domain.label(clique) for clique in plan.headline],
            plan.headline_share,
            plan.headline_noises(0),
            all_columns=False,
        ),
        "census": {
            "turnover": None if plan.turnover is None else str(plan.turnover),
            "gap": schedule.gap,
            "departures_every": schedule.departures,
            "levels": schedule.levels,
            "higher": higher,
            "first": _shown_censuses(plan),
            "shares": {str(g): str(plan.amounts.of_level(g).amount) for g in range(levels)},
            "costs": {str(g): str(plan.amounts.of_level(g)) for g in range(levels)},
            "prior": prior,
        },
        "noisy_counts": {
            "first": min(first for first, _ in numbers) + heads,
            "most": max(most for _, most in numbers) + heads + left,
            "at": "censuses",
            "levels_left": left,
        },
    }


def _shown_censuses(plan: CensusTerms) -> list[Mapping[str, Any]]:
    """The first censuses, and the first one of each further level."""
    schedule, horizon = plan.schedule, plan.horizon
    levels = min(_SHOWN_LEVELS, schedule.levels or _SHOWN_LEVELS)
    until = (
        2 * _SHOWN if schedule.gap is None else 2 * schedule.gap * schedule.ratio ** (levels - 1) + 2 * _SHOWN
    )
    until = min(until, _FARTHEST if horizon is None else horizon)
    found, last, seen = list[Mapping[str, Any]](), list[int](), set[int]()
    predicted = counted_deviations(plan, range(1, until + 1))
    for step, level in schedule.censuses(1, until):
        if len(found) < _SHOWN or (level not in seen and level < levels):
            found.append({
                "step": step,
                "level": level,
                "after": last_of(last, level),
                "cell": column_deviation(plan.run_of(level)),
                "total": predicted[step - 1],
            })  # fmt: skip
        seen.add(level)
        last = with_census(last, level, step)
    return found
