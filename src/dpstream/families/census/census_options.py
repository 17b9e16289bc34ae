"""The options of a census, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from dpstream.core.contracts import Given, Option, SectionReader, shown
from dpstream.core.contracts.recipe_options import COUNT, NUMBER
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy.budget import Amount, exact_amount
from dpstream.families.census.departures import expected_wait
from dpstream.families.tabular import options

Levels = Literal[1, 2, "unlimited"] | None
Turnover = Amount | None

_TURNOVERS = 'a number of steps such as 3, 10 or 30, or "none"'
_LEVELS = '1, 2 or "unlimited"'
_LARGEST_RATIO = 100
_DEPARTURES = 'a whole number of steps, "expected" or "census"'


def check_turnover(value: Turnover) -> Fraction | None:
    """Steps in which as many records come as the table holds; None: hardly any leave.

    Errors:
        ConfigError: neither a positive number nor "none".
    """
    if value is None or value == "none":
        return None
    try:
        return exact_amount(value, where="turnover")
    except BudgetError:
        raise ConfigError(f"turnover = {shown(value)}", where="mechanism", allowed=_TURNOVERS) from None


def check_levels(value: Any) -> Levels:
    """How many levels; None: the plan chooses.

    Errors:
        ConfigError: anything else.
    """
    if value is None or (not isinstance(value, bool) and value in (1, 2, "unlimited")):
        found: Levels = value
        return found
    raise ConfigError(f"levels = {shown(value)}", where="mechanism", allowed=_LEVELS)


def check_ratio(value: int) -> None:
    """ConfigError unless it is a number of levels' ratio."""
    if isinstance(value, bool) or not isinstance(value, int) or not 2 <= value <= _LARGEST_RATIO:
        raise ConfigError(f"ratio = {shown(value)}", where="mechanism", allowed=f"2 to {_LARGEST_RATIO}")


def check_departures_every(value: int | None) -> None:
    """ConfigError unless it is a number of steps, or None: departures are counted at censuses only."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(
            f"departures_every = {shown(value)}", where="mechanism", allowed="a number of steps, or None"
        )


def _departures_every(section: SectionReader, given: Given, found: Mapping[str, Any]) -> int | None:
    at_census = "at censuses only"
    value = section.raw("departures_every") if section.has("departures_every") else "expected"
    if value == "census":
        section.note("departures_every", at_census, default=False)
        return None
    if value != "expected":
        if isinstance(value, str):
            raise section.wrong("departures_every", f"{shown(value)} is no number of steps", _DEPARTURES)
        return section.count("departures_every")
    if given.records_per_step is None or given.budget is None:
        if section.has("departures_every"):
            raise section.wrong(
                "departures_every",
                '"expected" rests on records_per_step of [expect], and this file has none',
                'a whole number of steps, "census", or [expect] in place of turnover',
            )
        section.note("departures_every", at_census, default=True, reason="turnover stands for [expect]")
        return None
    wait = expected_wait(given.budget, found["departures_share"], given.records_per_step, found["turnover"])
    here = at_census if wait is None else "every step" if wait == 1 else f"every {wait} steps"
    why = f"about {given.records_per_step} records leave in a step ([expect])"
    section.note(
        "departures_every", f"expected: {here}", default=not section.has("departures_every"), reason=why
    )
    return wait


def _levels(section: SectionReader, given: Given, found: Mapping[str, Any]) -> Levels:
    if not section.has("levels"):
        reason = "two, or one where records stay as long as the stream"
        section.note("levels", "chosen from the turnover and the horizon", default=True, reason=reason)
        return None
    value = section.raw("levels")
    try:
        levels = check_levels(value)
    except ConfigError:
        raise section.wrong("levels", f"{shown(value)} is no number of levels", _LEVELS) from None
    section.note("levels", str(levels), default=False)
    return levels


def _turnover(section: SectionReader, given: Given, found: Mapping[str, Any]) -> Turnover:
    if section.has("turnover"):
        value = section.raw("turnover")
        try:
            steps = check_turnover(value)
        except ConfigError:
            raise section.wrong("turnover", f"{shown(value)} is no turnover", _TURNOVERS) from None
        section.note("turnover", "none" if steps is None else f"{steps} steps", default=False)
        return steps
    if given.turnover is not None:
        reason = "size / records_per_step of [expect]"
        section.note("turnover", f"{given.turnover} steps", default=True, reason=reason)
        return given.turnover
    section.required("turnover")
    return None


WORKLOAD = options.WORKLOAD.but()
TURNOVER = Option(
    _TURNOVERS,
    "A public guess: in so many steps about as many records come as the table holds. It sets how often a census is "
    "taken, and is published. `none`: records hardly ever leave.",
    "three times too large or too small makes cells 4 to 15 % worse; it must not be computed from the private table",
    "size / records_per_step of [expect]",
    read=_turnover,
    fragment={"anyOf": [NUMBER, {"enum": ["none"]}]},
)
LEVELS = Option(
    _LEVELS,
    "How often a stay is counted again: never, once, or again and again at ever longer intervals, each time with less "
    "of the budget.",
    "a second census corrects what a first one said of records that stay; `unlimited` is for records that change "
    "while they stay much longer than the turnover",
    "2; 1 where records stay as long as the stream",
    read=_levels,
    fragment={"enum": [1, 2, "unlimited"]},
)
RATIO = Option(
    f"2 to {_LARGEST_RATIO}",
    "A census of the next level is so many times rarer.",
    "few cohorts at a time, and a second census while most of its records are there",
)
DEPARTURES_SHARE = Option(
    "an exact number between 0 and 1",
    "Share of the budget for counting who left. Unused where presence is public.",
    "a count of departures is one number, a census is many",
)
DEPARTURES_EVERY = Option(
    _DEPARTURES,
    "Who left is counted at every census, and so many steps after the last count; a stay pays for one count however "
    "many there are. `expected`: as soon as the guess records_per_step of [expect] says that many more left than a "
    "count's noise; `census`: at censuses only.",
    "counts that follow each other too closely would say little beside their noise",
    "expected; census where the file has turnover in place of [expect]",
    read=_departures_every,
    fragment={"anyOf": [COUNT, {"enum": ["expected", "census"]}]},
)
TOTALS = Option(
    meaning="How numbers of records are followed between censuses: `simple` by levels alone; `full` keeps how errors "
    "of numbers and of hazards depend on each other, and lets the rate of newcomers drift as fast as they say.",
    reason="on real tables its numbers of records are a third closer, and its cells as close or closer",
)
TRACKER = Option(
    "true, false",
    "Whether a cohort's model uses what earlier censuses measured, as far as newcomers resemble each other.",
    "small tables gain 10 to 20 %",
)
LEAVING_BY_VALUE = Option(
    "true, false",
    "Whether a cohort is made to look like who is left of it, where censuses show that records with some values leave "
    "sooner.",
    "what stays long looks less and less like what came; where all leave alike it costs nothing",
)
ITERATIONS = options.ITERATIONS.but(reason="a fit that starts from little needs so many")
MAX_CELLS = options.TREE_CELLS.but()
