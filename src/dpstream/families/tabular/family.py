"""What a stream of tables says about itself."""

from __future__ import annotations

from dpstream.core.contracts import Family, Limits
from dpstream.families.tabular.baseline import Baseline
from dpstream.families.tabular.dpstabs import DPStabs
from dpstream.families.tabular.pooled import Pooled

__all__ = ["TABULAR"]

TABULAR = Family(
    "tabular",
    "a stream of tables",
    {"pooled": Pooled, "dpstabs": DPStabs, "baseline": Baseline},
    Limits(base=True),
    # Not the default: files of streams that began before there was this key do not name it.
    draft_deletes={"come_and_go": "cancelled"},
)
