"""The options of panels, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpstream.core import counters
from dpstream.core.contracts import Given, Option, SectionReader, located, shown


def _counted(section: SectionReader, given: Given, earlier: Mapping[str, Any]) -> tuple[str, ...] | None:
    if not section.has("counted"):
        return None
    listed = section.raw("counted")
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(label, str | int) for label in listed)
    ):
        raise section.wrong("counted", f"{shown(listed)} is no list of values")
    section.note("counted", ", ".join(str(label) for label in listed), default=False)
    # Values are compared as labels: those of a boolean column are false and true.
    return tuple(str(label).lower() if isinstance(label, bool) else str(label) for label in listed)


def _period_names(section: SectionReader, given: Given, earlier: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of all periods, as listed or as the source has them; None where they are numbers from 1 anyway."""
    listed = section.raw("period_names")
    if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
        section.note("period_names", ", ".join(listed), default=False)
        return tuple(listed)
    wanted = section.has("period_names")
    if given.horizon is None or (wanted and not section.flag("period_names", True)):
        return None
    names, periods = [], range(1, given.horizon + 1)
    for period in periods:
        with located(section.place("period_names")):
            name = None if given.step_name is None else given.step_name(period)
        if name is None and not wanted:
            return None
        if name is None:
            raise section.wrong(
                "period_names",
                f"nothing says how period {period} of {given.horizon} is called",
                "a time_column, or period_columns with a number or for all periods; a list of names; or false",
            )
        names.append(name)
    return None if names == [str(period) for period in periods] else tuple(names)


COUNTER = Option(
    meaning="How noisy running sums are kept. `best`: the counter with the smallest predicted error for each "
    "threshold. A stream keeps the counters that it began with.",
    reason="the counter with the smallest predicted error for the periods that are left to a threshold",
    words=("best", *counters.ZCDP_COUNTER_NAMES),
)
WINDOW = Option(
    "a number of periods from 1 to the horizon",
    "How many periods in a row the synthetic people are right about. Every further one multiplies the patterns, "
    "and the padding, by the number of values.",
)
THRESHOLDS = Option(
    "a number from 1 to the horizon",
    'The largest number of times that is followed: "at least b so far" for b = 1, 2, ... up to it.',
    "each threshold that is left out leaves its budget to the others",
    "the horizon",
)
COUNTED = Option(
    'a list of values of the column, such as ["late"]',
    "The reports that are counted; all others, missing ones included, are not.",
    "a boolean column says itself what is counted",
    "true, of a boolean column",
    read=_counted,
    fragment={"type": "array", "minItems": 1, "items": {"type": ["string", "integer", "boolean"]}},
)
SPLIT = Option(
    meaning="How the budget is shared among the thresholds: by the error that it causes, or as published (`levels`).",
    reason="it makes the sum of all variances the smallest",
)
FAILURE = Option(
    "an exact number between 0 and 1",
    "The probability that the stated bound fails anywhere; of a window it also sets the padding.",
    "the bound holds for all periods at once in 95 of 100 streams",
    "1/20",
)
PEOPLE = Option(
    "a number of places from 1, with unit = individual-replace",
    "How many people there is room for, declared public, so that others may join later. Who has not joined, or has "
    "no report, has the value `missing`, which every column then has to declare.",
    "those who report in the first period are the panel",
    "not set",
)
WEIGHTS = Option(
    "true, false",
    "Whether published tables have a weight for each synthetic person and period, which takes the padding out of "
    "weighted sums. No column may be called `weight` then. A stream keeps what it began with.",
    "the padding would bias every count",
)
PERIOD_NAMES = Option(
    "true, false, or a list of names, one for each period of the horizon",
    "Whether published tables call periods by their names (`poor_2005-04`) or by their numbers (`poor_1`). With true "
    "the names are those of the calendar, or what stands for the period in the columns of the source. A stream keeps "
    "what it began with.",
    "readers know periods by their names",
    "true; numbers where periods have no names",
    read=_period_names,
    fragment={"anyOf": [{"type": "boolean"}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]},
)
