"""What a census says about itself: counted numbers with the law of their noise, predictions, words for plans."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    ExpectedErrors,
    ExpectedTable,
    Explanation,
    MarginalError,
    Part,
    PrintedTable,
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.contracts.explanation import with_measurements
from dpstream.core.graphical import estimate_total
from dpstream.core.privacy.unit import Record
from dpstream.core.schema.domain import Clique
from dpstream.families.census.census_terms import CensusTerms
from dpstream.families.census.schedule import last_of, level_of, with_census
from dpstream.mechanisms.aim import AIMPlan
from dpstream.mechanisms.description import explain_table, with_headline
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
    columns = plan.candidates.groups if _grouped(plan, run) else plan.candidates.columns
    return estimate_total(run.measurements[1:][: len(columns)])


def _grouped(plan: AIMPlan, run: OfflineRun) -> bool:
    return (
        tuple(m.clique for m in run.measurements[1:][: len(plan.candidates.groups)]) == plan.candidates.groups
    )


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
    """Of the number of records at each step, with those who came and left since the last census; of a cell of every
    column as that census counted it, at most. Without a table: of the number of records as it was counted.

    Those who left are taken off a column in proportion, so the noise of their number is spread over its cells.
    """
    if expected is None:
        deviations = counted_deviations(plan, steps)
        return tuple(ExpectedErrors(step, 0.0, total) for step, total in zip(steps, deviations, strict=True))
    columns = list(zip(plan.workload.domain.names, plan.workload.domain.sizes, strict=True))
    return tuple(
        ExpectedErrors(
            step,
            expected.size_at(step),
            math.sqrt(variances[0] + _uncounted(plan, step, census, before, expected)),
            tuple(
                MarginalError((name,), cells, math.sqrt(variance))
                for (name, cells), variance in zip(columns, variances[1:].tolist(), strict=True)
                if math.isfinite(variance)
            ),
            at_most=True,
        )
        for step, (census, before, variances) in zip(steps, _noise(plan, steps), strict=True)
    )


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


@dataclass(frozen=True)
class CensusReport:
    """Sentences and facts of a plan."""

    plan: CensusTerms

    @property
    def levels(self) -> int:
        """How many levels are listed."""
        known = self.plan.schedule.levels
        return _NAMED_LEVELS if known is None else known

    def parts(self) -> tuple[Part, ...]:
        """What a stay pays, level by level; they add up to the budget exactly."""
        plan, found = self.plan, list[Part]()
        for level in range(self.levels):
            runs = "; ".join(f"{part.name}: {part.detail}" for part in plan.run_of(level).parts())
            detail, heads = f"an AIM run: {runs}", plan.headline_noises(level)
            if heads:
                detail += f"; and {plan.headline_share} for the headlines, {headline_words(heads)}"
            found.append(Part(f"census of level {level}", 1, plan.amounts.of_level(level), detail))
        if plan.schedule.levels is None:
            detail = f"each further level gets half of what the one before it has; level {self.levels} and on"
            found.append(Part("further levels", 1, plan.amounts.beyond(self.levels), detail))
        noise = plan.amounts.departure_noise
        if noise is not None:
            every = plan.schedule.departures
            detail = f"at a census, for each level: who left since the census before, with {noise.describe()}"
            if every is not None:
                detail = (
                    f"at a census and {_every(every)} between censuses, for each level: who left since the count "
                    f"before, with {noise.describe()}; a stay is in one count, however many there are"
                )
            found.append(Part("departures", 1, plan.amounts.of_departures, detail))
        return tuple(found)

    def composition(self) -> str:
        """How what is spent adds up over steps."""
        returns = (
            "; a key that comes back after an absence pays again"
            if isinstance(self.plan.unit, Record) and self.plan.unit.returns == "new"
            else ""
        )
        counted = "" if self.plan.public_presence else " and in at most one count of departures"
        return (
            f"over a stay: every record is in at most one census of each level{counted}, whatever is updated "
            f"meanwhile, so the total is that of one stay, however many steps there are{returns}; charged in full at "
            "the first step"
        )

    def declared_public(self) -> tuple[str, ...]:
        """What the owner has declared."""
        plan, found = self.plan, list[str]()
        if plan.public_presence:
            found.append("which keys are present at the end of every step is declared public")
        if plan.turnover is not None:
            found.append(
                f"the turnover of {plan.turnover} steps, a guess that sets how often a census is taken, is public and "
                "no part of the guarantee: it must not be computed from the private table"
            )
        if plan.schedule.departures is not None:
            every = _every(plan.schedule.departures)
            found.append(
                f"that departures are counted {every} between censuses is public and no part of the guarantee: it must "
                "not be computed from the private table"
            )
        return tuple(found)

    def counts_words(self, step: int, last: Sequence[int]) -> str:
        """For manifests; ``last`` is the last census of each level."""
        census = last_of(last, 0)
        following, behind = self.plan.schedule.after(census), step - census
        words = "A census was taken at this step."
        if behind:
            steps = "step" if behind == 1 else "steps"
            since = (
                "how many records came and left since is public and exact, and their values are expected, not measured."
                if self.plan.public_presence
                else "who came and left since is expected, not measured."
            )
            count = self.plan.schedule.last_count(step, last)
            if count == step:
                since = (
                    "who left was counted at this step, with noise; who came since is expected, not measured."
                )
            elif count > census:
                since = (
                    f"who left was last counted at step {count}, with noise. Who came since the census, and who left "
                    "since that count, is expected, not measured."
                )
            words = f"The last census was taken {behind} {steps} ago; {since}"
            if self.plan.horizon is None or following <= self.plan.horizon:
                words += f" The next one is at step {following}."
        return (
            f"{words} No other released count has an error bar: it joins censuses of different steps, of "
            "records that have changed and left since, by a rule that follows what was measured."
        )

    def accuracy(
        self, step: int, last: Sequence[int], model_error: float, counted: tuple[float, float] | None
    ) -> dict[str, Any]:
        """What the manifest of one step says of errors.

        Args:
            last: the last census of each level.
            model_error: of the released number of records, by the model of stays and by how far it is from the counts.
            counted: at a census, the number of records without any model, and the standard error of its noise.
        """
        public, census = self.plan.public_presence, last_of(last, 0)
        following, horizon = self.plan.schedule.after(census), self.plan.horizon
        number = "The number of records is declared public and has no noise."
        if not public:
            number = "The number of records joins noisy counts by a model of stays. " + (
                f"Its standard error is {model_error:.3g}: that of the model, or, where it is larger, that of the "
                "counts alone and the model's distance from them."
                if step == census
                else "Its error is not known, because nobody counted who came since the last census."
            )
        found: dict[str, Any] = {
            "last_census": {"step": census, "level": level_of(last)},
            "next_census": following if horizon is None or following <= horizon else None,
            "total_standard_error": 0.0 if public else None,
            "measured_every_step": {"standard_error": None, "marginals": []},
            "words": f"{number} {self.counts_words(step, last)}",
        }
        if not public:
            found["total_model_standard_error"] = model_error if step == census else None
        if counted is not None:
            found["counted"] = {
                # A sum of many: its last digits are of floating point, such as 991.9999999999999.
                "records": round(counted[0], 6) + 0.0,
                "standard_error": counted[1],
                "words": "The number of records at this step, from censuses and counts of departures alone: its noise "
                "has mean 0 and this standard error, whatever the records are.",
            }
        return found


def explain_census(plan: CensusTerms, usual: Explanation) -> Explanation:
    """When censuses are, what a stay costs, and which errors are exact."""
    told, deviation = CensusReport(plan), column_deviation(plan.run_of(0))
    own = explain_table(usual, plan.workload, deviation)
    listed = _shown_censuses(plan)
    words = _words(plan)
    number = (
        "that its number of records is exact"
        if plan.public_presence
        else "how wrong its number of records may be, by a model of stays and by its distance from the counts; at a "
        "census also the number as counted, with its exact standard error"
    )
    numbers = [plan.run_of(level).numbers() for level in range(told.levels)]
    left, domain = 0 if plan.public_presence else told.levels, plan.workload.domain
    heads = sum(domain.cells(clique) for clique in plan.headline)
    least, most = min(n for n, _ in numbers) + heads, max(n for _, n in numbers) + heads + left
    own = with_headline(
        own,
        [domain.label(clique) for clique in plan.headline],
        plan.headline_share,
        plan.headline_noises(0),
        "at every census",
        all_columns=False,
        of="what a census of each level costs (here of level 0)",
    )
    own = with_measurements(
        own,
        f"at a census, {least:,} to {most:,} numbers; {_at_other_steps(plan, left)}",
        {"first": least, "most": most, "at": "censuses", **_facts_between(plan)},
    )
    return replace(
        own,
        number_told=number,
        costs="A record pays once for its whole stay: its insert, all its updates and its delete together. Further "
        "tables therefore cost those who are in earlier ones nothing more.",
        says=(
            "Noise of one census of level 0: standard deviation at most "
            f"{deviation:.4g} records in a column's cell, on average over the columns.",
            PrintedTable(
                {
                    "step": "census at step",
                    "level": "level",
                    "after": "counts records that came after step",
                    "cell": "noise of a column's cell, at most",
                    "total": "of the number counted, at most",
                },
                listed,
            ),
        ),
        further=(*words.values(), *own.further),
        facts={
            **own.facts,
            "census": {
                "turnover": None if plan.turnover is None else str(plan.turnover),
                "gap": plan.schedule.gap,
                **_facts_between(plan),
                "levels": plan.schedule.levels,
                "first": listed,
                "shares": {str(g): str(plan.amounts.of_level(g).amount) for g in range(told.levels)},
                "words": words,
            },
        },
        growth="then as many models as there are open cohorts, whatever the number of rows and steps",
        predicted="total: the number of records as the last census up to that step counted it, from noise alone, at "
        "most; nothing is predicted of cells, which follow models.",
        predicted_note="The number of records as counted by censuses, at most.",
    )


def _words(plan: CensusTerms) -> dict[str, str]:
    gap, levels = plan.schedule.gap, plan.schedule.levels
    often = (
        "At step 1 the whole table is counted; then a census is taken when a tenth of the steps so far have passed"
        + ("" if gap is None else f", and at least every {gap} steps" if gap > 1 else ": at every step")
    )
    if gap == 1:
        often = "A census is taken at every step"
    which = f"{often}. It counts the records that came since the last one."
    if gap is not None and (levels is None or levels > 1):
        ratio = plan.schedule.ratio
        rows = [f"level {g}: every {gap * ratio**g} steps" for g in range(1, min(levels or 4, 4))]
        which += (
            f" From time to time it is one of a higher level ({', '.join(rows)}{', ...' if levels is None else ''}), "
            "and counts again all who came since the last census of that level or a higher one."
        )
    noisy = "" if plan.public_presence else " A record that leaves is in one count of departures."
    every = plan.schedule.departures
    if every is not None:
        which += f" Who left is counted at every census, and {_every(every)} in between."
        noisy = f"{noisy[:-1]}, however many counts there are."
    pays = [f"level {g}: {_amount(plan, g)}" for g in range(CensusReport(plan).levels)]
    stay = (
        f"What a stay costs: one census of each level it lives to see ({', '.join(pays)})."
        f"{noisy} Updates cost nothing. Together this is at most the budget, however long a record stays."
    )
    counted, other = (
        ("", "everything") if every is None else (", and each count of departures", "everything else")
    )
    errors = (
        "What is exact: at a census, the measured marginals of the records counted there, and the number of records as "
        f"counted{counted}. What is a model's: {other} between censuses, the number of rows, and every count of the "
        "released table; old values of records that were updated stay in it until they are counted again."
    )
    if plan.public_presence:
        errors = (
            "The number of records is declared public. At a census the measured marginals of the records counted there "
            "have exact errors; every count of the released table is a model's."
        )
    return {"schedule": which, "stay": stay, "errors": errors}


def _every(steps: int) -> str:
    return "at every step" if steps == 1 else f"every {steps} steps"


def _at_other_steps(plan: CensusTerms, levels: int) -> str:
    """How many numbers are measured where no census is taken."""
    every = plan.schedule.departures
    if every is None:
        return "at other steps none"
    numbers = "1 number" if levels == 1 else f"1 to {levels:,} numbers"
    if every == 1:
        return f"at other steps {numbers} of records that left"
    return f"{_every(every)} between censuses, {numbers} of records that left; at other steps none"


def _facts_between(plan: CensusTerms) -> dict[str, Any]:
    every = plan.schedule.departures
    return {} if every is None else {"departures_every": every}


def _amount(plan: CensusTerms, level: int) -> str:
    return str(plan.amounts.of_level(level))


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
