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


def advice(recipe: Any, plan: StreamPlan, expected: ExpectedTable) -> tuple[str, ...]:
    """Sentences that say what else would fit the stream and why; none where nothing public speaks for it."""
    return (_SORTED,) if expected.ordered and isinstance(plan, PooledPlan) else ()
