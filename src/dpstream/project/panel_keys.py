"""Keys of panels; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.project.output_keys import Key

__all__ = ["PANELS", "PANEL_KEYS"]

#: Mechanisms that follow people.
PANELS = ("panel-window", "panel-cumulative")
_WINDOW, _CUMULATIVE = PANELS[:1], PANELS[1:]

PANEL_KEYS: tuple[Key, ...] = (
    Key(
        "source",
        "period_columns",
        'a list such as ["m1", "m2"], or a text such as "m{period}" or "{column}_{period:02}", with a panel',
        "not set",
        "without it, files have one row for each person and period",
        "Files with one row a person: the columns of the periods, in their order. A text stands for as many as there "
        "are, counted from 1; with several variables it has `{column}` in it.",
    ),
    Key(
        "mechanism",
        "window",
        "a number of periods from 1 to the horizon",
        None,
        "",
        "How many periods in a row the synthetic people are right about. Every further one multiplies the patterns, "
        "and the padding, by the number of values.",
        _WINDOW,
    ),
    Key(
        "mechanism",
        "thresholds",
        "a number from 1 to the horizon",
        "the horizon",
        "each threshold that is left out leaves its budget to the others",
        'The largest number of times that is followed: "at least b so far" for b = 1, 2, ... up to it.',
        _CUMULATIVE,
    ),
    Key(
        "mechanism",
        "counted",
        'a list of values of the column, such as ["late"]',
        "true, of a boolean column",
        "a boolean column says itself what is counted",
        "The reports that are counted; all others, missing ones included, are not.",
        _CUMULATIVE,
    ),
    Key(
        "mechanism",
        "split",
        "error, levels",
        "error",
        "it makes the sum of all variances the smallest",
        "How the budget is shared among the thresholds: by the error that it causes, or as published (`levels`).",
        _CUMULATIVE,
    ),
    Key(
        "mechanism",
        "failure",
        "an exact number between 0 and 1",
        "1/20",
        "the bound holds for all periods at once in 95 of 100 streams",
        "The probability that the stated bound fails anywhere; of a window it also sets the padding.",
        PANELS,
    ),
    Key(
        "mechanism",
        "people",
        "a number of places from 1, with unit = individual-replace",
        "not set",
        "those who report in the first period are the panel",
        "How many people there is room for, declared public, so that others may join later. Who has not joined, or has "
        "no report, has the value `missing`, which every column then has to declare.",
        PANELS,
    ),
)
