"""One number of an evaluation with its two yardsticks, and the words for it. Evaluation only, not releasable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dpstream.stream.release.verdicts import NOT_KNOWN, THRESHOLDS
from dpstream.stream.templates import Words

#: The names of a measure's floor and of its ceiling.
YARDSTICKS: Final = ("two real samples", "one offline run")
WORDS: Final = Words(Path(__file__).with_name("words.j2"))


@dataclass(frozen=True)
class Measure:
    """One thing that may be wrong with a table, and how much of it is.

    Attributes:
        name: for programs.
        question: what it is about, in plain words.
        unit: what the share is one of.
        value: the share that is wrong; NaN where it is not known.
        floor: the same of two samples of real records of the same sizes.
        ceiling: the same of one offline run with the same budget.
        meaning: what the number says, and what statisticians call it.
        use: what a table is used for that this number tells about; empty where nobody uses a table for it.
    """

    name: str
    question: str
    unit: str
    value: float
    floor: float
    ceiling: float
    meaning: str
    use: str = ""

    @property
    def few(self) -> bool:
        """Whether two real samples alone are further apart than any word but unfit allows: no number tells then."""
        return not math.isnan(self.value) and self.floor > max(THRESHOLDS.values())

    @property
    def word(self) -> str:
        """``good``, ``usable``, ``poor`` or ``unfit``: the limits of verdicts, or the floor where that is higher.

        ``not known`` without a number, or with too few records to tell (``few``).
        """
        if math.isnan(self.value) or self.few:
            return NOT_KNOWN
        floor = 0.0 if math.isnan(self.floor) else self.floor
        limits = THRESHOLDS.items()
        return next((word for word, most in limits if self.value <= max(most, floor)), "unfit")

    def text(self, value: float) -> str:
        """A value of this measure for people.

        >>> Measure("columns", "", "of the table", 0.0312, 0.01, 0.02, "").text(0.0312)
        '3.1 %'
        """
        if math.isnan(value):
            return "not known"
        if self.name == "sets":
            return f"{1000 * (1 - value):.0f} of 1,000"
        return "under 0.1 %" if 0 < value < 0.0005 else f"{100 * value:.1f} %"


def measure_headings(measures: Sequence[Measure]) -> tuple[str, ...]:
    """Of ``measure_rows``: without the offline run where there is none."""
    ceiling = any(not math.isnan(one.ceiling) for one in measures)
    return ("what may be wrong", "verdict", "released", *YARDSTICKS[: 1 + ceiling])


def measure_rows(measures: Sequence[Measure]) -> list[list[str]]:
    """Measures as a table for people; see ``measure_headings``."""
    many = len(measure_headings(measures)) - 2
    return [
        [one.question, one.word, *(one.text(value) for value in (one.value, one.floor, one.ceiling)[:many])]
        for one in measures
    ]


def verdict_words(measures: Sequence[Measure]) -> str:
    """The verdict in a few sentences, what the table is fit for, and what would help."""
    known = [one for one in measures if one.word != NOT_KNOWN]
    order = [*THRESHOLDS, "unfit"]
    counted = [(word, sum(one.word == word for one in known)) for word in order]
    worst = max(known, key=lambda one: (order.index(one.word), one.value - _zero(one.floor)), default=None)
    weakest = None if worst is None or worst.word == "good" else worst
    kinds = {
        "fit for": ("good", "usable"),
        "for rough comparisons": ("poor",),
        "not fit for": ("unfit",),
    }
    uses = [(kind, [one.use for one in known if one.use and one.word in of]) for kind, of in kinds.items()]
    return WORDS.text(
        "verdict",
        known=len(known),
        counted=[(word, many) for word, many in counted if many],
        few=[one for one in measures if one.few],
        weakest=weakest,
        floor=weakest is not None and not math.isnan(weakest.floor),
        ceiling=weakest is not None and not math.isnan(weakest.ceiling),
        of_budget=weakest is not None and weakest.ceiling >= 0.75 * weakest.value,
        uses=[(kind, names) for kind, names in uses if names],
        weak=weakest is not None and weakest.word in ("poor", "unfit"),
    )


def _zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


#: Is given how many of the steps to be evaluated are done, and how many there are.
EvaluationProgress = Callable[[int, int], None]
