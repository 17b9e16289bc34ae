"""What a release is fit for, from what it and its plan say of errors. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import ExpectedTable, MarginalError, StreamPlan, Synthesis, SyntheticTable
from dpstream.core.contracts.expectations import with_columns
from dpstream.core.privacy.unit import Individual, Record
from dpstream.core.schema import Schema
from dpstream.core.schema.column import Column
from dpstream.core.schema.numeric import Integer, Ordered, Real, number_text
from dpstream.stream.release.verdicts import (
    EXACT,
    MODELLED,
    NOT_KNOWN,
    PREDICTED,
    How,
    Verdict,
    as_of,
    only_good_news,
    verdicts_from,
)

# The number of records of a release and its error: the only place that reads them off a manifest. Public.


@dataclass(frozen=True)
class NumberOfRecords:
    """How many records a release has, and how wrong that may be.

    Attributes:
        value: the released number.
        error: its standard error; 0 where the number is public, None where the error is not known. Of records that
            nobody has measured yet no error is known, however small the error of the others is.
        how: where the error comes from: noise alone, or the mechanism's model; None without an error.
        step: the step of the release.
        measured_up_to: the last step up to which the number of records is measured; counts may be older.
        period: what that step stands for, where a period was given.
    """

    value: int
    error: float | None
    how: How | None
    step: int
    measured_up_to: int
    period: str | None = None

    @property
    def noise_error(self) -> float | None:
        """The error, where noise alone gives it."""
        return self.error if self.how == EXACT else None

    @property
    def expected_since(self) -> bool:
        """Whether records came since that are expected, not measured."""
        return self.measured_up_to < self.step


def number_of_records(manifest: Mapping[str, Any]) -> NumberOfRecords:
    """The number of records of the release that a manifest is about."""
    accuracy, step = manifest.get("accuracy") or {}, int(manifest["step"])
    error, how = accuracy.get("total_standard_error"), EXACT
    if error is None:
        error, how = accuracy.get("total_model_standard_error"), MODELLED
    kind = "total_measured_up_to" if "total_measured_up_to_step" in accuracy else "measured_up_to"
    up_to, period = _measured(manifest, kind)
    return NumberOfRecords(
        int(manifest["rows"]),
        None if error is None else float(error),
        None if error is None else how,
        step,
        up_to,
        period,
    )


def table_measured(manifest: Mapping[str, Any]) -> tuple[int, str | None]:
    """The last step up to which a release's counts are measured, and what that step stands for."""
    return _measured(manifest, "measured_up_to")


def _measured(manifest: Mapping[str, Any], kind: str) -> tuple[int, str | None]:
    accuracy, step = manifest.get("accuracy") or {}, int(manifest["step"])
    up_to = int(accuracy.get(f"{kind}_step", step))
    return up_to, accuracy.get(f"{kind}_period") if up_to < step else manifest.get("period")


def when_measured(step: int, period: str | None) -> str:
    """
    >>> when_measured(11, "2013-11-01/2013-11-30"), when_measured(3, None)
    ('step 11 (2013-11-30)', 'step 3')
    """
    return f"step {step}" if period is None else f"step {step} ({period.rsplit('/', 1)[-1]})"


#: Where errors stand that no simulation gives.
_OPEN = "dpstream measured has errors of measured counts"
#: Columns whose averages a verdict names.
_NAMED = 3


def released_verdicts(
    synthesis: Synthesis,
    plan: StreamPlan,
    step: int,
    told: Mapping[str, Any],
    *,
    with_base: bool,
    records: str = "records",
) -> tuple[Verdict, ...]:
    """One verdict for each use of the released table.

    Errors are exact where noise alone gives them; else the plan predicts them for a table of the released size. Of
    records that nobody has measured yet no error is known. After a base only the number of records is judged: part of
    every count comes from the table that the stream began with.

    Args:
        told: what the manifest says of errors.
        records: what the records that are counted are called.
    """
    if plan.asks is not None:
        # A table of answers, each of which gives its error; how many records there are is public.
        return verdicts_from(max(synthesis.total, 0.0), 0.0, (), EXACT)[:1]
    size = max(synthesis.total, 0.0)
    if not size:
        return verdicts_from(size, None, (), EXACT)
    manifest = {"step": step, "rows": round(size), "accuracy": told}
    number, (counted, period) = number_of_records(manifest), table_measured(manifest)
    total, how = number.error, number.how
    marginals, marginals_how, bounds = _exact(synthesis, plan), EXACT, False
    if not with_base and (not marginals or total is None):
        predicted = plan.expected_errors([step], _like(synthesis, plan, step, size))
        if predicted is not None:
            if not marginals:
                marginals, marginals_how = predicted[0].marginals, PREDICTED
                bounds = predicted[0].at_most
            if total is None and not number.expected_since:
                total, how = predicted[0].total, PREDICTED
    found = verdicts_from(size, total, marginals, marginals_how, how, records)
    # The number of records has an error of its own where the marginals have bounds only.
    found = (found[0], *only_good_news(found[1:])) if bounds else found
    if plan.open_columns:  # of discovered values no stream is invented
        found = tuple(replace(one, why=_OPEN) if one.word == NOT_KNOWN else one for one in found)
    totals, rest = found[:1], found[1:]
    if number.expected_since:
        totals = as_of(totals, number.measured_up_to, when_measured(number.measured_up_to, number.period))
    return (*totals, *(as_of(rest, counted, when_measured(counted, period)) if counted < step else rest))


def averages_verdict(schema: Schema, table: SyntheticTable) -> tuple[Verdict, ...]:
    """Between which numbers averages of binned columns lie, the vaguest columns first; nothing where each number is a
    bin of its own."""
    if table.placed is not None or table.domain != schema.domain:
        return ()
    counts = table.marginals([(i,) for i in range(len(schema.columns))])
    found = {
        column.name: ends
        for column, own in zip(schema.columns, counts, strict=True)
        if (ends := average_ends(column, own)) is not None
    }
    if not found:
        return ()
    vague = sorted(found, key=lambda name: -(found[name][1] - found[name][0]) / max(map(abs, found[name])))
    named = "; ".join(f"of {name} {average_words(schema[name], found[name])}" for name in vague[:_NAMED])
    more = f"; {len(vague) - _NAMED} more columns have bins" if len(vague) > _NAMED else ""
    why = f"{named}{more} (places inside bins are unknown)"
    return (Verdict("averages", NOT_KNOWN, None, None, why),)


def clipped_words(column: Column) -> str:
    """How numbers, or days, beyond a column's ends count; empty where there are none.

    >>> clipped_words(Integer("delay", edges=[-10, 0, 200], outside="clip"))
    'counted up to 200 (200 and more are in the last bin, -10 and less in the first)'
    """
    if not isinstance(column, Ordered) or column.outside != "clip":
        return ""
    (before, after), ends = column.beyond, column.limits()
    low, high = (number_text(end) if isinstance(end, float) else end for end in ends)
    return f"counted up to {high} ({high} and {after} are in the last bin, {low} and {before} in the first)"


def average_ends(column: Column, counts: NDArray[Any]) -> tuple[float, float] | None:
    """The least and the largest average of numbers of which only the bins are known; None for other columns, and where
    each bin that holds records is a single number.

    Args:
        counts: records by code; those without a number are left out.

    >>> delay = Integer("delay", edges=[0, 15, 120, 1440], missing="missing")
    >>> [round(end, 2) for end in average_ends(delay, np.array([80, 15, 5, 40]))]
    [8.25, 101.05]
    >>> average_ends(delay, np.zeros(4)), average_ends(Integer("age", min=0, max=1), np.ones(2))
    (None, None)
    """
    if not isinstance(column, Integer | Real):
        return None
    weights = np.maximum(np.asarray(counts[: column.bins], dtype=np.float64), 0.0)
    if not weights.sum():
        return None
    shares = weights / weights.sum()
    low, high = (float(shares @ ends) for ends in (column.lower, column.upper))
    return (low, high) if high > low else None


def average_text(value: float) -> str:
    """An average in three digits."""
    return f"{float(f'{value:.3g}'):,g}"


def average_words(column: Column, ends: tuple[float, float]) -> str:
    """Between which numbers an average lies, and up to which number it counts."""
    low, high = map(average_text, ends)
    counted = clipped_words(column).partition(" (")[0]
    return f"anywhere from {low} to {high}{counted and f', {counted}'}"


def _exact(synthesis: Synthesis, plan: StreamPlan) -> tuple[MarginalError, ...]:
    """Of marginals that were measured at every step; of a panel's newest reports."""
    answers, domain = synthesis.answers, plan.domain
    if answers is None:
        return ()
    names = domain.names
    errors = {clique: one.standard_error for clique, one in answers.measured.items()}
    if not errors and synthesis.grows is not None and answers.domain == domain:
        columns = range(len(domain))
        for clique in (*((i,) for i in columns), *combinations(columns, 2)):
            error = answers.marginal(clique).standard_error
            if error is not None:
                errors[clique] = error
    known = [
        MarginalError(tuple(names[i] for i in clique), domain.cells(clique), error)
        for clique, error in errors.items()
    ]
    return with_columns(known, dict(zip(names, domain.sizes, strict=True)))


def _like(synthesis: Synthesis, plan: StreamPlan, step: int, size: float) -> ExpectedTable:
    """The table as it was released, in place of a guess."""
    if isinstance(plan.unit, Individual | Record):
        return ExpectedTable(round(size), 0, "steady")
    if synthesis.passed is not None:
        return ExpectedTable(round(size), max(synthesis.passed[0], 0.0) / step, "turns-over")
    return ExpectedTable(round(size), size / step, "grows")
