"""What a stream of tables says about itself."""

from __future__ import annotations

from typing import Any

from dpstream.core.contracts import Alternative, ExpectedTable, Family, Limits, StreamPlan
from dpstream.core.privacy import InsertedRecord, Record, Unit
from dpstream.families.tabular.baseline import Baseline
from dpstream.families.tabular.dpstabs import DPStabs
from dpstream.families.tabular.pooled import Pooled, PooledPlan

# What public guesses say against the chosen options of a stream of tables, before it begins. Reads no data.

_SORTED = (
    'Records come sorted ([expect]): where steps are few and large, baseline with offline = "aim" is closer. '
    "See plan --compare."
)


def advice(recipe: Any, plan: StreamPlan, expected: ExpectedTable) -> tuple[str, ...]:
    """Sentences that say what else would fit the stream and why; none where nothing public speaks for it."""
    return (_SORTED,) if expected.ordered and isinstance(plan, PooledPlan) else ()


def _alternatives(recipe: Any, unit: Unit) -> tuple[Alternative, ...]:
    """All of the family; and where records have keys and never leave, what follows them by their keys."""
    own = (
        Alternative("pooled"),
        Alternative("dpstabs"),
        Alternative("baseline"),
        Alternative("baseline", {"offline": "aim"}, named=True),
    )
    if not isinstance(unit, InsertedRecord):
        return own
    keyed = Alternative(
        "census",
        {"turnover": "none"},
        unit=Record(),
        needs="[source] insert_only = false",
    )
    return (*own, keyed)


TABULAR = Family(
    "tabular",
    "a stream of tables",
    {"pooled": Pooled, "dpstabs": DPStabs, "baseline": Baseline},
    Limits(base=True),
    alternatives=_alternatives,
    advice=advice,
)
