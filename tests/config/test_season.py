"""``[stream] season`` reaches the plan as a number of steps; or one sentence says why not, and what is allowed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from small_configs import load

from dpstream.core.errors import ConfigError

CALENDAR = 'path = "data/*.csv"\ntime_column = "day"\nevery = "{}"\nstart = "2020-01-06"\nend = "2024-01-07"'
SEASONS = {
    "months of a year": ('"year"', "month", Fraction(12)),
    "quarters of a year": ('"year"', "3 months", Fraction(4)),
    "weeks of a year": ('"year"', "week", Fraction(1461, 28)),
    "days of a week": ('"week"', "day", Fraction(7)),
    "steps": ("12", None, Fraction(12)),
}
WRONG = {
    "another word": ('"month"', "day", "", "year, week, or a number of steps"),
    "a truth": ("true", None, "", "year, week, or a number of steps"),
    "a fraction": ("2.5", None, "", "year, week, or a number of steps"),
    "never": ("10000000", None, "", "2 to 10,000"),
    "one step": ("1", None, "", "2 to 10,000"),
    "a week of weeks": ('"week"', "week", "", "2 to 10,000"),
    "a week of months": ('"week"', "month", "", "2 to 10,000"),
    "no calendar": ('"year"', None, "", "the number of steps of a season"),
    "another mechanism": ("12", None, 'name = "dpstabs"', 'name = "pooled"'),
}


def parts(season: str, every: str | None, mechanism: str = "") -> dict[str, str]:
    """Parts of a file."""
    source = {} if every is None else {"source": CALENDAR.format(every)}
    return {"stream": f"season = {season}", "mechanism": mechanism, **source}


@pytest.mark.parametrize("case", SEASONS)
def test_a_season_reaches_the_plan(case: str, tmp_path: Path) -> None:
    season, every, steps = SEASONS[case]
    config = load(tmp_path, **parts(season, every))
    assert config.recipe.season == steps
    assert config.plan().options()["season"] == str(steps)
    assert config.facts() != load(tmp_path, **parts(season, every) | {"stream": ""}).facts()


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_season_is_told_with_file_section_and_key(case: str, tmp_path: Path) -> None:
    season, every, mechanism, allowed = WRONG[case]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **parts(season, every, mechanism))
    assert "[stream] season" in str(caught.value.where)
    assert allowed in str(caught.value.allowed)
