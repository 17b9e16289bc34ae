"""What a census says about itself: counted numbers with the law of their noise, predictions, words for plans."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import ExpectedErrors, ExpectedTable, MarginalError, Part
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.graphical import estimate_total
from dpstream.core.privacy import HistogramsNoise, Noise, PureDP
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.census.census_state import CensusTerms
from dpstream.families.census.schedule import last_of, level_of, with_census
from dpstream.families.census.totals_filter import LONG_STAY, LevelTotal, blend, expected_stay
from dpstream.mechanisms.aim import AIMPlan
from dpstream.mechanisms.description import headline_facts, table_facts
from dpstream.mechanisms.headlines import headline_words
from dpstream.mechanisms.mwem_pgm import OfflineRun

# The number of records as censuses counted it, whose noise has a known law; and how large that noise can be.


def counted_total(plan: AIMPlan, run: OfflineRun) -> tuple[float, float]:
    """The number of records in the window of a census of level 0, and the variance of its noise (0 where it is public).

    From the columns (or, where nothing is selected, from all measurements), by precision. The number from which the
    rounds follow is left out: given that number, all amounts are fixed before these measurements are drawn, so their
    noise has mean 0 and just this variance.
    """
    if plan.unit.relation == "replace":
        return run.total, 0.0
    skipped = 0 if plan.whole else 1
    return estimate_total(run.sums[skipped : skipped + len(plan.first_noises)])


#: Marginals of one draw each, with its noise.
_Draws = Sequence[tuple[tuple[Clique, ...], Noise | HistogramsNoise]]


def _first_draws(plan: CensusTerms, level: int) -> _Draws:
    """What every census of a level measures first; of level 0 with its noise at most."""
    return plan.noises_of(level) if level else plan.run.first_noises


def largest_variance(domain: Domain, measured: _Draws) -> float:
    """Of the number of records that these count: rounds that follow from noisy numbers can only make it smaller."""
    sums = [
        noise.sum_variance
        if isinstance(noise, HistogramsNoise)
        else noise.variance * domain.cells(cliques[0])
        for cliques, noise in measured
    ]
    return 0.0 if 0.0 in sums else 1.0 / sum(1.0 / variance for variance in sums)


def column_deviation(plan: CensusTerms) -> float:
    """Standard deviation of the noise in a column's cell in a census of level 0, on average, at most."""
    domain = plan.workload.domain
    cells = [
        variance * (domain.cells(clique) / domain.sizes[column])
        for clique, variance in _cell_variances(plan, 0)
        for column in clique
    ]
    return math.sqrt(sum(cells) / len(cells))


def _cell_variances(plan: CensusTerms, level: int) -> list[tuple[Clique, float]]:
    """The marginals that every census of a level measures first, with the variance of a cell, at most."""
    return [
        (clique, variance)
        for cliques, noise in _first_draws(plan, level)
        for clique, variance in zip(
            cliques, noise.variances if isinstance(noise, HistogramsNoise) else (noise.variance,), strict=True
        )
    ]


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
        for own in range(level + 1):
            if len(levels) == own:
                levels.append(LevelTotal.fresh(turnover))
                present.append(0.0)
            if own == 0:
                came = expected.records_per_step * expected_stay(1.0 / stay, step - before)
                number = came if before else expected.size_at(step)
                variance = _expected_variance(plan, number)
            else:
                number, noise_above = present[0], largest_variance(plan.workload.domain, plan.noises_of(own))
                variance = blend((number, noise_above), (number, levels[0].variance))[1]
                levels[0].empty()
                present[0] = 0.0
            present[own] += number
            levels[own].add((number, variance), (number, variance))
        wrong = sum(total.size for total in levels) - sum(present)
        found[step] = sum(total.variance for total in levels) + wrong**2
    return found


def _expected_variance(plan: CensusTerms, records: float) -> float:
    """Of ``counted_total``, where a census finds so many records: fewer rounds leave more to the columns."""
    run = plan.run
    largest = largest_variance(plan.workload.domain, run.first_noises)
    part = 1 if run.whole else run.recipe.columns_share / run.columns_for(run.rounds_for(records))
    return largest * float(part) ** (2 if isinstance(run.budget, PureDP) else 1)


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
    of records, and of a cell of each column, at most. What was counted of columns shrinks as records leave."""
    sizes, noise = np.array(plan.workload.domain.sizes, dtype=np.float64), plan.amounts.departure_noise
    of_departures = (0.0 if noise is None else noise.variance) * np.concatenate(([1.0], sizes**-2))
    asked = check_steps(steps, plan.horizon)
    domain, public, of_census = plan.workload.domain, plan.public_presence, list[NDArray[np.float64]]()
    for level in range(plan.schedule.levels):
        number = 0.0 if public else largest_variance(domain, _first_draws(plan, level))
        of_census.append(np.concatenate(([number], _column_variances(plan, level))))
    at, books = [0], [np.zeros((2, len(of_departures)))]
    for step, level, _ in plan.schedule.taken(max(asked, default=0)):
        # Departures of levels with an open cohort are counted since the census before, up to this one.
        fresh = plan.schedule.counts_between(at[-1], step)
        book = books[-1] + fresh * of_departures * books[-1].any(axis=1, keepdims=True)
        if plan.turnover is not None:
            book[:, 1:] *= math.exp(-2.0 * (step - at[-1]) / plan.turnover)
        book[0] += of_census[0]
        if level:
            # A column that this census leaves out stays as those of level 0 have counted it.
            book[1] += np.where(np.isfinite(of_census[1]), of_census[1], book[0])
            book[0] = 0.0
        books.append(book)
        at.append(step)
    places = [bisect_right(at, step) - 1 for step in asked]
    return [(at[place], at[place - 1] if place else 0, books[place].sum(axis=0)) for place in places]


def _column_variances(plan: CensusTerms, level: int) -> NDArray[np.float64]:
    """The variance of the noise in a cell of each column, at most: from the best of the marginals that have it."""
    domain, measured = plan.workload.domain, _cell_variances(plan, level)
    return np.array([
        min((variance * domain.cells(c) / size for c, variance in measured if i in c), default=math.inf)
        for i, size in enumerate(domain.sizes)
    ])  # fmt: skip


# What a census says about itself: plans, manifests and statements. Step numbers, options and public scales only.

#: A plan lists so many censuses, and the first one of level 1.
_SHOWN = 4
#: Without a horizon, none that is further away.
_FARTHEST = 10_000


def census_parts(plan: CensusTerms) -> tuple[Part, ...]:
    """What a stay pays, level by level; they add up to the budget exactly."""
    runs, heads = "; ".join(f"{part.name}: {part.detail}" for part in plan.run.parts()), plan.noises_of(0)
    details = [f"an AIM run: {runs}"]
    if heads:
        details[0] += f"; and {plan.headline_share} for the headlines, {headline_words(heads)}"
    if plan.schedule.levels > 1:
        what = ", ".join(dict.fromkeys(noise.describe() for _, noise in plan.noises_of(1)))
        details.append(f"the {'columns' if plan.upper[0] else 'number of records'} with {what}")
    parts = [
        Part(f"census of level {level}", 1, plan.amounts.of_level(level), detail)
        for level, detail in enumerate(details)
    ]
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
    schedule, domain, levels = plan.schedule, plan.workload.domain, range(plan.schedule.levels)
    higher = [{"level": g, "every": (schedule.gap or 0) * schedule.ratio**g} for g in levels if g]
    first, most = plan.run.numbers()
    left, above = (
        0 if plan.public_presence else len(levels),
        sum(map(domain.cells, plan.upper)) if higher else 0,
    )
    heads = sum(domain.cells(clique) for clique in plan.headline)
    return {
        **table_facts(plan.workload, column_deviation(plan)),
        **headline_facts(
            [domain.label(clique) for clique in plan.headline],
            plan.headline_share,
            plan.noises_of(0),
            all_columns=False,
        ),
        "census": {
            "turnover": None if plan.turnover is None else str(plan.turnover),
            "gap": schedule.gap,
            "departures_every": schedule.departures,
            "levels": schedule.levels,
            "higher": higher,
            "columns": bool(plan.upper[0]),
            "first": _shown_censuses(plan),
            "shares": {str(g): str(plan.amounts.of_level(g).amount) for g in levels},
            "costs": {str(g): str(plan.amounts.of_level(g)) for g in levels},
            "prior": prior,
        },
        "noisy_counts": {
            "first": first + heads,
            "most": most + heads + above + left,
            "at": "censuses",
            "levels_left": left,
        },
    }


def _shown_censuses(plan: CensusTerms) -> list[Mapping[str, Any]]:
    """The first censuses, and the first one of level 1."""
    schedule, horizon = plan.schedule, plan.horizon
    until = 2 * _SHOWN
    if schedule.gap is not None:
        until += 2 * schedule.gap * schedule.ratio ** (schedule.levels - 1)
    until = min(until, _FARTHEST if horizon is None else horizon)
    found, last, seen = list[Mapping[str, Any]](), list[int](), set[int]()
    predicted = counted_deviations(plan, range(1, until + 1))
    for step, level in schedule.censuses(1, until):
        if len(found) < _SHOWN or level not in seen:
            after, total = last_of(last, level), predicted[step - 1]
            found.append({"step": step, "level": level, "after": after, "total": total})
        seen.add(level)
        last = with_census(last, level, step)
    return found
