"""Keys about how exact releases are; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.core.contracts import HEADLINE_SHARE, Key
from dpstream.core.contracts.recipe_options import NUMBER, TEXTS

__all__ = ["ACCURACY_KEYS"]

ACCURACY_KEYS: tuple[Key, ...] = (
    Key(
        "accuracy",
        "headline",
        'a list of marginals such as [["zip"], ["zip", "cause"]], with name = "pooled" or "census"',
        "none",
        "every number that is measured for itself takes budget from the others",
        "Marginals that are measured by themselves whenever anything is (at the end of every group of steps, at every "
        "census), so that their counts have exact errors. The synthetic tables keep to them as far as noise allows.",
        fragment={"type": "array", "items": {**TEXTS, "minItems": 1}, "minItems": 1},
    ),
    Key(
        "accuracy",
        "headline_share",
        "an exact number between 0 and 1, with a headline",
        str(HEADLINE_SHARE),
        "the headlines stand out, and the rest of the table has most of the budget",
        "Share of the budget for the headlines, in equal parts.",
        fragment=NUMBER,
    ),
)
