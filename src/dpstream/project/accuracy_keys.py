"""Keys about how exact releases are, and how that is found out; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.core.contracts import HEADLINE_SHARE, Key
from dpstream.core.contracts.recipe_options import COUNT, NUMBER, TEXTS, words

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
    Key(
        "accuracy",
        "simulate",
        "none, or a number of runs from 2 to 1000; 20 are usual",
        "none",
        "it takes as many runs of the whole stream; dpstream errors does the same when it is called",
        "How many runs find out by simulation, after steps 1, 2, 4, 8, ..., how far the releases are off. Results are "
        "in errors/ beside the releases. They read public files only and cost no budget.",
        fragment={"anyOf": [words("none"), {**COUNT, "minimum": 2, "maximum": 1000}]},
    ),
    Key(
        "accuracy",
        "simulate_seconds",
        "a whole number from 1, with simulate",
        "600",
        "steps should not wait for long",
        "CPU seconds after which a simulation begins no further run; at least two are done. Public: it depends on "
        "releases only.",
        fragment=COUNT,
    ),
)
