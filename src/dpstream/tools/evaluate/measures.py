"""One number of an evaluation with its two yardsticks, and the words for it. Evaluation only, not releasable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpstream.core.contracts.verdicts import NOT_KNOWN, THRESHOLDS

__all__ = ["Measure", "measure_headings", "measure_rows", "verdict_words"]


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
    """

    name: str
    question: str
    unit: str
    value: float
    floor: float
    ceiling: float
    meaning: str

    @property
    def word(self) -> str:
        """``good``, ``usable``, ``poor`` or ``unfit``: the limits of verdicts, or the floor where that is higher."""
        if math.isnan(self.value):
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
    return ("what may be wrong", "verdict", "released", "two real samples", *(("one offline run",) * ceiling))


def measure_rows(measures: Sequence[Measure]) -> list[list[str]]:
    """Measures as a table for people; see ``measure_headings``."""
    many = len(measure_headings(measures)) - 2
    return [
        [one.question, one.word, *(one.text(value) for value in (one.value, one.floor, one.ceiling)[:many])]
        for one in measures
    ]


def verdict_words(measures: Sequence[Measure]) -> str:
    """The verdict in two or three sentences."""
    known = [one for one in measures if one.word != NOT_KNOWN]
    if not known:
        return "Nothing could be measured."
    counted = [(word, sum(one.word == word for one in known)) for word in (*THRESHOLDS, "unfit")]
    told = ", ".join(f"{many} {word}" for word, many in counted if many)
    text = f"Of {len(known)} measures: {told}."
    over = max(known, key=lambda one: (_rank(one.word), one.value - _zero(one.floor)))
    if over.word == "good":
        return f"{text} Nothing is far from what a sample of the real records would be."
    text += f" The weakest: {over.question} ({over.text(over.value)} {over.unit}"
    text += "" if math.isnan(over.floor) else f"; two samples of real records: {over.text(over.floor)}"
    return f"{text}). {_cause(over)}".rstrip()


def _cause(measure: Measure) -> str:
    """Where the loss comes from, as far as the offline run tells."""
    if math.isnan(measure.ceiling):
        return ""
    if measure.ceiling >= 0.75 * measure.value:
        return (
            f"One offline run on the same table with the whole budget gives {measure.text(measure.ceiling)}: a stream "
            "cannot do much better; more records or a larger budget would."
        )
    return (
        f"One offline run on the same table with the whole budget gives {measure.text(measure.ceiling)}: the rest is "
        "the price of releasing at every step, or of the options."
    )


def _rank(word: str) -> int:
    return [*THRESHOLDS, "unfit"].index(word)


def _zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
