"""What public facts alone say against the chosen mechanism or its options, before a stream begins. Reads no data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpstream.families.tabular import Pooled
from dpstream.families.tabular.pooled import PooledPlan

if TYPE_CHECKING:
    from dpstream.project import Config

__all__ = ["advice"]

_SORTED = (
    "The records come sorted ([expect]), so what pooled releases between two measurements looks like steps that are "
    'past. Baseline with offline = "aim" measures each step by itself and is closer where steps are few and large: '
    "plan --compare tells which one fits."
)
_FIRST = (
    "About {records:,} records are expected in the first step, enough to measure {more} besides single columns: a "
    'stream that has not begun is closer to the truth at first with [mechanism] first_epoch = "expected".'
)


def advice(config: Config) -> tuple[str, ...]:
    """Sentences that say what else would fit the stream and why; none where nothing public speaks for it."""
    recipe, expected = config.recipe, config.expected
    if not isinstance(recipe, Pooled) or expected is None:
        return ()
    found = [_SORTED] if expected.table.ordered else []
    plan, coming = config.plan(), expected.records_per_step
    assert isinstance(plan, PooledPlan)
    # Where numbers of events are public, nothing has to be guessed.
    if recipe.first_records is None and plan.unit.relation != "replace":
        design = plan.runner.design(float(coming), drifts=True)
        more = design.k + design.pairs
        if more:
            words = "a further marginal" if more == 1 else f"{more} further marginals"
            found.append(_FIRST.format(records=coming, more=words))
    return tuple(found)
