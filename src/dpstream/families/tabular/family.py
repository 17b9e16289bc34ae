"""What a stream of tables says about itself."""

from __future__ import annotations

from typing import Any

from dpstream.core.contracts import Alternative, Family, Limits
from dpstream.core.privacy import InsertedRecord, Record, Unit
from dpstream.families.tabular.advice import advice
from dpstream.families.tabular.baseline import Baseline
from dpstream.families.tabular.dpstabs import DPStabs
from dpstream.families.tabular.pooled import Pooled

_SAME = ("workload", "come_and_go")


def _alternatives(recipe: Any, unit: Unit) -> tuple[Alternative, ...]:
    """All of the family; and where records have keys and never leave, what follows them by their keys."""
    # As a draft has it; a configured one keeps its own options.
    drafted = {} if isinstance(recipe, Pooled) else TABULAR.draft_decided["pooled"]
    own = (
        Alternative("pooled", drafted, keeps=_SAME),
        Alternative("dpstabs", keeps=_SAME),
        Alternative("baseline", keeps=_SAME),
        Alternative("baseline", {"offline": "aim"}, keeps=_SAME, named=True),
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
    # No defaults: files of streams that began before there were these keys do not name them.
    draft_decided={
        "pooled": {
            "noise": "joint",
            "estimates": "joined",
            "how_many": "predicted",
            "first_records": "expected",
        }
    },
    draft_deletes={"come_and_go": "cancelled"},
    alternatives=_alternatives,
    advice=advice,
)
