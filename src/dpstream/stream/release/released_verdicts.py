"""What a release is fit for, from what it and its plan say of errors. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from dpstream.core.contracts import ExpectedTable, MarginalError, StreamPlan, Synthesis
from dpstream.core.contracts.expectations import with_columns
from dpstream.core.contracts.verdicts import (
    BY_MODEL,
    EXACT,
    PREDICTED,
    Verdict,
    only_good_news,
    verdicts,
    verdicts_from,
)
from dpstream.core.privacy.unit import Individual, Record

__all__ = ["released_verdicts"]


def released_verdicts(
    synthesis: Synthesis, plan: StreamPlan, step: int, told: Mapping[str, Any], *, with_base: bool
) -> tuple[Verdict, ...]:
    """One verdict for each use of the released table.

    Errors are exact where noise alone gives them; else the plan predicts them for a table of the released size. After a
    base only the number of records is judged: part of every count comes from the table that the stream began with.

    Args:
        told: what the manifest says of errors.
    """
    if plan.asks is not None:
        # A table of answers, each of which gives its error; how many records there are is public.
        return verdicts_from(max(synthesis.total, 0.0), 0.0, (), EXACT)[:1]
    size = max(synthesis.total, 0.0)
    if not size:
        return verdicts(size, None, (), ())
    total, how = told.get("total_standard_error"), EXACT
    if total is None:
        # By a model of stays.
        total, how = told.get("total_model_standard_error"), BY_MODEL
    marginals, marginals_how, bounds = _exact(synthesis, plan), EXACT, False
    if not with_base and (not marginals or total is None):
        predicted = plan.expected_errors([step], _like(synthesis, plan, step, size))
        if predicted is not None:
            if not marginals:
                marginals, marginals_how = predicted[0].marginals, PREDICTED
                bounds = predicted[0].at_most
            if total is None:
                total, how = predicted[0].total, PREDICTED
    found = verdicts_from(size, total, marginals, marginals_how, how)
    # The number of records has an error of its own where the marginals have bounds only.
    return (found[0], *only_good_news(found[1:])) if bounds else found


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
