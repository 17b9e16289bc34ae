"""Panels in a configuration file: the unit, the options, and what does not go with them."""

from __future__ import annotations

from fractions import Fraction
from typing import cast, get_args

from dpstream.core.counters import COUNTER_NAMES
from dpstream.core.errors import UnitError
from dpstream.core.privacy import Individual, parse_unit
from dpstream.core.schema import Schema
from dpstream.families.panel import CumulativeStream, WindowStream
from dpstream.families.panel.cumulative import Split
from dpstream.io.sources.options import SourceOptions
from dpstream.project.panel_keys import PANELS
from dpstream.project.reader import Section, shown
from dpstream.project.sections import OutputOptions, located, mechanism_name, names_one_of

__all__ = [
    "PanelRecipe",
    "check_panel_output",
    "check_panel_source",
    "is_panel",
    "read_panel",
    "read_person_unit",
]

PanelRecipe = WindowStream | CumulativeStream


def is_panel(section: Section) -> bool:
    """Whether ``[mechanism]`` names a panel.

    Errors:
        ConfigError: it names no mechanism (said first: what a panel needs would mislead).
    """
    return names_one_of(section, PANELS)


def read_person_unit(section: Section) -> Individual:
    """``[stream] unit`` and ``total`` of a panel: a person's whole history, the number of people private or public.

    Errors:
        UnitError: a unit that is no person. ConfigError: a unit and a total that contradict each other.
    """
    word = section.raw("unit") if section.has("unit") else "individual"
    if section.has("max_events"):
        raise section.wrong("max_events", "a panel follows everything that a person reports", "leave it out")
    if not isinstance(word, str):
        raise section.wrong("unit", f"{shown(word)} is not a unit", "individual, individual-replace")
    if word != "user":
        with located(section.place("unit")):
            unit = parse_unit(word)
    if word == "user" or not isinstance(unit, Individual):
        raise UnitError(
            f"a panel cannot protect the unit {word!r} only: a person reports every period",
            where=section.place("unit"),
            allowed="individual, individual-replace",
        )
    default = "public" if unit.relation == "replace" else "private"
    total = section.choice("total", ("private", "public"), default)
    if unit.relation == "replace" and total == "private":
        raise section.wrong(
            "total",
            "'private' contradicts unit = 'individual-replace', which makes the number of people public",
            "total = 'public', or unit = 'individual'",
        )
    if unit.relation == "add-remove" and total == "public":
        reason = 'total = "public" switches the relation to replace'
        section.note("unit", "individual-replace", default=True, reason=reason)
        return Individual("replace")
    reason = "a panel follows people: all reports of one are protected together"
    section.note("unit", unit.name, default=not section.has("unit"), reason=reason)
    return unit


def check_panel_source(section: Section, options: SourceOptions) -> None:
    """Reports of people are cut by periods, once for each person and period.

    Errors:
        ConfigError: names the key, and what is allowed.
    """
    if options.rows is not None:
        raise section.wrong(
            "rows", "a period of a panel is no number of rows", "a time_column, or period_columns"
        )
    if options.deletions:
        key = "kind" if options.kind == "postgres-changes" else "op_column"
        raise section.wrong(key, "reports of a panel do not leave", "a source without deletes")
    if options.late == "next-step":
        raise section.wrong(
            "late", "a late report would be a second one of its person", "error, drop-and-count-nothing"
        )


def check_panel_output(section: Section, output: OutputOptions) -> None:
    """A database holds one row a person, which new periods alone do not make.

    Errors:
        ConfigError: a database that would be given changes only.
    """
    if output.sink in ("duckdb", "postgresql") and output.publishing.publish == "changes":
        raise section.wrong(
            "publish", f"sink = {output.sink!r} holds whole tables of a panel", 'publish = "full" or "both"'
        )


def read_panel(section: Section, schema: Schema) -> PanelRecipe:
    """The recipe that ``[mechanism]`` names.

    Errors:
        ConfigError: an option that is unknown, unusable, or of another mechanism.
    """
    name = mechanism_name(section)
    failure = section.share("failure", Fraction(1, 20))
    people = section.count("people")
    if name == "panel-window":
        section.required("window")
        window = section.count("window")
        assert window is not None  # required
        return WindowStream(schema, window, failure, people)
    counted = _counted(section)
    thresholds = section.count("thresholds")
    counter = section.choice("counter", ("best", *COUNTER_NAMES), "best")
    split = cast(Split, section.choice("split", get_args(Split), "error"))
    return CumulativeStream(schema, counted, thresholds, counter, split, failure, people)


def _counted(section: Section) -> tuple[str, ...] | None:
    if not section.has("counted"):
        return None
    given = section.raw("counted")
    if not isinstance(given, list) or not given or not all(isinstance(label, str | int) for label in given):
        raise section.wrong("counted", f"{shown(given)} is no list of values")
    section.note("counted", ", ".join(str(label) for label in given), default=False)
    # As labels: a boolean column's are false and true.
    return tuple(str(label).lower() if isinstance(label, bool) else str(label) for label in given)
