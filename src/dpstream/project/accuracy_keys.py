"""Keys about errors that are found out while a stream runs; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.core.contracts import Key
from dpstream.core.contracts.recipe_options import COUNT, words

__all__ = ["ACCURACY_KEYS"]

ACCURACY_KEYS: tuple[Key, ...] = (
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
