"""What ``dpstream plan`` says of a pooled stream: when it measures, and what is not known about its errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from dpstream.core.contracts import StreamPlan
from dpstream.families.tabular import PooledPlan

__all__ = ["describe_pooled"]

#: Ends of epochs that a plan lists.
_LISTED = 25


def describe_pooled(plan: StreamPlan) -> dict[str, Any] | None:
    """Ends of epochs, and sentences; None for other mechanisms. Public: step numbers and options only."""
    if not isinstance(plan, PooledPlan):
        return None
    ends = _ends(plan)
    every = next((one for one, following in pairwise([0, *ends]) if following != one + 1), ends[-1])
    marginals = len(plan.recipe.workload)
    return {
        "staleness": str(plan.recipe.staleness),
        "epoch_ends": ends,
        "measured_one_by_one": every,
        "words": {
            "epochs": "Steps are measured together, in epochs that end with fixed steps; the first "
            f"{'is' if every == 1 else f'{every} are'} measured one by one. Later a release goes on as the last epoch "
            f"went, until the next end: at most {_part(plan)} of the steps so far is not measured yet.",
            "errors": "No error of a count is predicted, and no released count has an error bar: counts join "
            "measurements of many epochs, by a rule that follows what was measured. Compare on invented records of "
            f"the same shape (dpstream simulate, dpstream compare). {_total(plan)}",
            "instead": f'For error bars of counts: name = "dpstabs" with k = {marginals}, all marginals at every step.',
        },
    }


def _ends(plan: PooledPlan) -> list[int]:
    """The first ends of epochs, up to the horizon."""
    ends = [plan.epochs.after(0)]
    while len(ends) < _LISTED and ends[-1] != plan.horizon:
        ends.append(plan.epochs.after(ends[-1]))
    return ends


def _total(plan: PooledPlan) -> str:
    if plan.unit.relation == "replace":
        return "The number of records is declared public."
    return "The number of records has a standard error in the releases that end an epoch."


def _part(plan: PooledPlan) -> str:
    share = plan.recipe.staleness
    return f"one part in {share.denominator}" if share.numerator == 1 else f"a share of {share}"
