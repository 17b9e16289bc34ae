"""``[stream] season``: public knowledge that what comes repeats itself, as a number of steps."""

from __future__ import annotations

from fractions import Fraction

from dpstream.core.contracts import StreamRecipe
from dpstream.core.errors import ConfigError
from dpstream.io.sources.calendar import DayPeriods, MonthPeriods
from dpstream.io.sources.source_options import SourceOptions
from dpstream.project.reader import Section

_DAYS = {"year": Fraction(1461, 4), "week": Fraction(7)}
_MONTHS = 12
#: A year of minutes has 525,960.
MOST_STEPS = 1_000_000


def read_season(section: Section, options: SourceOptions) -> Fraction | None:
    """How many steps a season has; None where the file names none.

    Errors:
        ConfigError: no season; one of a calendar, where steps are no periods of one; or of fewer than two steps.
    """
    if not section.has("season"):
        return None
    value = section.raw("season")
    if isinstance(value, int) and not isinstance(value, bool):
        steps = Fraction(value)
    elif isinstance(value, str) and value in _DAYS:
        steps = _of_calendar(section, value, options)
    else:
        raise section.wrong("season", f"{value!r} is no season")
    if steps < 2:
        raise section.wrong("season", "a season is shorter than two steps", "a longer season, or none")
    if steps > MOST_STEPS:
        raise section.wrong("season", f"a season of {value} steps", f"2 to {MOST_STEPS:,} steps, or none")
    section.note("season", value if isinstance(value, str) else f"{value} steps", default=False)
    return steps


def _of_calendar(section: Section, word: str, options: SourceOptions) -> Fraction:
    grid = options.grid
    if isinstance(grid, DayPeriods):
        return _DAYS[word] / grid.days
    if isinstance(grid, MonthPeriods):
        # A week is a part of a step then: whatever is below two is refused.
        return Fraction(_MONTHS if word == "year" else 0, grid.months)
    raise section.wrong(
        "season",
        f"season = {word!r} means nothing where steps are no periods of a calendar",
        "the number of steps of a season, such as 12; or [source] every with a time column",
    )


def check_season_taken(section: Section, recipe: StreamRecipe) -> None:
    """ConfigError where the mechanism knows no seasons."""
    if section.has("season") and not hasattr(recipe, "season"):
        raise ConfigError(
            "the mechanism of this file knows no seasons",
            where=section.place("season"),
            allowed='no season, or [mechanism] name = "pooled"',
        )
