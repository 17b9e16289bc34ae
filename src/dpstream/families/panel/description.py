"""What a panel's plan says about itself, before any data are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dpstream.core.contracts import Explanation, Table

__all__ = ["explain_panel", "first_and_last"]


def explain_panel(
    usual: Explanation,
    names: Sequence[str],
    words: str,
    deviation: float,
    *,
    first: int,
    padding: int,
    bound: float,
    errors: Sequence[tuple[str, float]],
) -> Explanation:
    """What both synthesizers have in common.

    Args:
        usual: what any mechanism says. names: of the columns of a report. words: the plan in words.
        deviation: of one noisy count, in people.
        first: the period with the first synthetic people. padding: how many of them are padding.
        bound: see ``PeopleEstimate.bound``. errors: questions about the last period, and their standard errors.
    """
    panel: dict[str, Any] = {
        "words": words,
        "first_release": first,
        "padding": padding,
        "bound": bound,
        "errors": [{"question": asked, "standard_error": error} for asked, error in errors],
    }
    return replace(
        usual,
        published=(
            "Synthetic people are published, and ",
            f" what they report is added: {', '.join(names)}. They are invented by a program from noisy counts, and "
            "persist: what was published of one of them is never changed. None is copied from a person; one may look "
            "like a person by chance.",
        ),
        number_told="how wrong answers about the people may be",
        counts_told="",
        row="Synthetic people: no row is a person. A row is one of them, with a column for each period so far; new "
        "periods are added, and what is there is never changed.",
        says=(
            f"{words}.",
            f"The first synthetic people come with period {first}; {padding} of them are padding, which answers leave "
            "out. They persist: later periods are added, and nothing of them is changed.",
            Table(("people, at the last period", "standard error of the count"), errors, (1,)),
        ),
        facts={"panel": panel},
        deviation=deviation,
        growth="then about 20 bytes a person, and a byte a synthetic person and period",
    )


def first_and_last(last: int) -> list[int]:
    """The first few numbers and the last: tables of hundreds of lines help nobody."""
    return list(range(1, last + 1)) if last <= 6 else [1, 2, 3, last // 2, last]
