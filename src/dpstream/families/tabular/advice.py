"""What public guesses say against the chosen options of a stream of tables, before it begins. Reads no data."""

from __future__ import annotations

from typing import Any

from dpstream.core.contracts import ExpectedTable, StreamPlan
from dpstream.families.tabular.pooled import PooledPlan

_SORTED = (
    "The records come sorted ([expect]), so what pooled releases between two measurements looks like steps that are "
    'past. Baseline with offline = "aim" measures each step by itself and is closer where steps are few and large: '
    "plan --compare tells which one fits."
)
_FIRST = (
    "About {records:,.0f} records are expected in the first step, enough to measure {more} besides single columns: a "
    'stream that has not begun is closer to the truth at first with [mechanism] first_records = "expected".'
)


def advice(recipe: Any, plan: StreamPlan, expected: ExpectedTable) -> tuple[str, ...]:
    """Sentences that say what else would fit the stream and why; none where nothing public speaks for it."""
    if not isinstance(plan, PooledPlan):
        return ()
    found = [_SORTED] if expected.ordered else []
    # Where numbers of events are public, nothing has to be guessed.
    if recipe.first_records is None and plan.unit.relation != "replace":
        design = plan.runner.design(expected.records_per_step, drifts=True)
        more = design.k + design.pairs
        if more:
            words = "a further marginal" if more == 1 else f"{more} further marginals"
            found.append(_FIRST.format(records=expected.records_per_step, more=words))
    return tuple(found)
