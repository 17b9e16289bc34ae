"""What may be chosen of both synthesizers, and checks of what a panel can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpstream.core.contracts import (
    Option,
    RecipeContext,
    SectionReader,
    Terms,
    check_share,
    check_unit,
    check_whole,
    located,
    shown,
)
from dpstream.core.counters import ZCDP_COUNTER_NAMES
from dpstream.core.errors import ConfigError, HorizonError
from dpstream.core.privacy import Amount, Individual
from dpstream.core.schema import Boolean, Categorical, Column, Schema
from dpstream.io.sinks.period_tables import PERIOD, PERSON, WEIGHT, wide_name

#: People of a panel: their counts stay far below 2^53.
MAX_PEOPLE = 2**31 - 1
MAX_SYMBOLS = 255
OTHER_UNIT = "a panel cannot protect the unit {unit!r}"

#: No panel has more.
_MOST_PERIODS = 10_000


def _period_names(
    section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """The names of all periods, as listed or as the source has them; None where they are numbers from 1 anyway."""
    listed = section.raw("period_names")
    if listed is not None:
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise section.wrong("period_names", f"{shown(listed)}: expected a list of names")
        section.note("period_names", ", ".join(listed), default=False)
        return tuple(listed)
    if given.horizon is None or given.step_name is None or given.horizon > _MOST_PERIODS:
        return None
    names, periods = [], range(1, given.horizon + 1)
    for period in periods:
        with located(section.place()):
            name = given.step_name(period)
        if name is None:
            return None
        names.append(name)
    return None if names == [str(period) for period in periods] else tuple(names)


def _counted(
    section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]
) -> tuple[str, ...] | None:
    if not section.has("counted"):
        return None
    listed = section.raw("counted")
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(label, str | int) for label in listed)
    ):
        raise section.wrong("counted", f"{shown(listed)}: expected a list of values")
    section.note("counted", ", ".join(str(label) for label in listed), default=False)
    # Values are compared as labels: those of a boolean column are false and true.
    return tuple(str(label).lower() if isinstance(label, bool) else str(label) for label in listed)


FAILURE = Option(
    "an exact number between 0 and 1",
    "Probability that the bound fails anywhere; sets a window's padding.",
    "the bound holds in 95 of 100 streams",
    "1/20",
)
PEOPLE = Option(
    "a number of places from 1, with unit = individual-replace",
    "Public number of people, so that others may join later; columns need `missing`.",
    "the people of the first period",
    "not set",
)
PERIOD_NAMES = Option(
    "a list of names, one per period of the horizon",
    "What tables call the periods (`poor_2005-04`).",
    "readers know them",
    "names of the calendar or of period columns; else numbers",
    read=_period_names,
    fragment={"type": "array", "minItems": 1, "items": {"type": "string"}},
)
WINDOW = Option(
    "a number of periods from 1 to the horizon",
    "Periods in a row that synthetic people follow. Each multiplies patterns and padding.",
)
COUNTER = Option(
    meaning="The counter of running sums.",
    reason="the smallest predicted error for each threshold",
    words=("best", *ZCDP_COUNTER_NAMES),
)
THRESHOLDS = Option(
    "a number from 1 to the horizon",
    'The largest threshold b of "at least b so far".',
    "each threshold takes a share of the budget",
    "the horizon",
)
COUNTED = Option(
    'a list of values, such as ["late"]',
    "The reports that are counted; missing ones never are.",
    "a boolean column needs none",
    "true, of a boolean column",
    read=_counted,
    fragment={"type": "array", "minItems": 1, "items": {"type": ["string", "integer", "boolean"]}},
)


def common_fields(
    terms: Terms, schema: Schema, people: int | None, period_names: tuple[str, ...] | None, failure: Amount
) -> dict[str, Any]:
    """The fields of a ``PeoplePlan``, checked.

    Errors:
        BudgetError: pure epsilon. HorizonError: no number of periods. UnitError: no whole person. ConfigError: names,
        places or a failure that cannot be used.
    """
    budget = terms.concentrated("a panel's Gaussian noise has no pure guarantee")
    if terms.horizon is None:
        raise HorizonError(
            "a panel needs a horizon",
            where="horizon",
            allowed="a number of periods",
        )
    unit = check_unit(terms.unit, Individual(), ("individual", "individual-replace"), OTHER_UNIT)
    # The code of a report in which every column is missing, where all columns declare such a bin.
    missing = all(column.missing is not None for column in schema.columns)
    absent = schema.domain.cells(tuple(range(len(schema)))) - 1 if missing else None
    check_share(failure, "failure", "panel")
    for name in (PERSON, PERIOD, WEIGHT):
        if name in schema.names:
            raise ConfigError(
                f"released panels need the column name {name!r} themselves",
                where="schema",
                allowed=f"a name except {PERSON}, {PERIOD} and {WEIGHT}",
            )
    if people is not None:
        _check_places(people, unit, absent)
    if period_names is not None:
        _check_period_names(period_names, terms.horizon, schema)
    return {
        "budget": budget,
        "unit": unit,
        "horizon": int(terms.horizon),
        "columns": schema.domain,
        "absent": absent,
        "places": people,
        "period_names": None if period_names is None else tuple(period_names),
        "failure": failure,
    }


def _check_places(people: int, unit: Individual, absent: int | None) -> None:
    """ConfigError where people who come later would have no place, or no report to be counted with before."""
    check_whole(people, "people", 1, MAX_PEOPLE, "panel")
    if unit.relation != "replace":
        raise ConfigError(
            f"people = {people} makes the places public",
            where="people",
            allowed="unit = 'individual-replace' (joining changes a place's history)",
        )
    if absent is None:
        raise ConfigError(
            "an empty place needs a value to be counted",
            where="people",
            allowed='missing = "..." in every column',
        )


def _check_period_names(names: tuple[str, ...], periods: int, schema: Schema) -> None:
    """ConfigError where there is not one for each period, one cannot be used, or two columns of released tables would
    have the same name."""
    usable = not isinstance(names, str) and all(
        isinstance(name, str) and name.isprintable() and 0 < len(name) <= 100 for name in names
    )
    if not usable or len(names) != periods:
        what = f"{len(names)} names, and {periods} periods" if usable else "unusable name"
        raise ConfigError(
            what, where="period_names", allowed="a printable text of up to 100 characters per period"
        )
    columns = [wide_name(column, name) for name in names for column in (*schema.names, WEIGHT)]
    if len(set(columns)) != len(columns):
        raise ConfigError(
            "two periods, or columns with their periods, have the same name",
            where="period_names",
            allowed="different names",
        )


def readable(column: Column) -> Column:
    """A column as panels release it: bins of numbers and dates by their labels, so nothing is drawn."""
    if isinstance(column, Boolean | Categorical):
        return column
    return Categorical(column.name, column.bin_labels(), other=column.other, missing=column.missing)


def first_and_last(last: int) -> list[int]:
    """The first few numbers and the last: tables of hundreds of lines help nobody."""
    return list(range(1, last + 1)) if last <= 6 else [1, 2, 3, last // 2, last]
