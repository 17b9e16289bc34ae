"""The options of a census as a file says them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from census_stays import SMALL

from dpstream.core.contracts import Given, build
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import PureDP
from dpstream.families.census import Census
from dpstream.project.reader import Section


def read_with_section(
    expected: Fraction | None = None, coming: int | None = None, **table: Any
) -> tuple[Census, Section]:
    section = Section("dpstream.toml", "mechanism", {"name": "census", **table})
    section.variant = "census"
    recipe: Census = build(
        section, Census, Given(SMALL, turnover=expected, budget=PureDP.of(1), records_per_step=coming)
    )
    return recipe, section


def read(expected: Fraction | None = None, coming: int | None = None, **table: Any) -> Census:
    return read_with_section(expected, coming, **table)[0]


def test_a_file_says_the_turnover_or_what_it_expects() -> None:
    assert read(Fraction(12)).turnover == 12
    assert read(Fraction(12), turnover="5/2").turnover == Fraction(5, 2)
    assert read(turnover="none").turnover is None
    chosen = read(
        turnover=3, levels="unlimited", ratio=2, totals="simple", tracker=False, leaving_by_value=False
    )
    assert (chosen.levels, chosen.ratio, chosen.totals) == ("unlimited", 2, "simple")
    assert not chosen.tracker
    assert not chosen.leaving_by_value


def test_a_file_says_how_often_departures_are_counted_or_what_it_expects() -> None:
    assert read(Fraction(12), 5000).departures_every == 1
    assert read(Fraction(12), 5000, departures_every="census").departures_every is None
    assert read(Fraction(12), 5000, departures_every="expected").departures_every == 1
    _, section = read_with_section(Fraction(12), 5000, departures_every="expected")
    (told,) = (used.value for used in section.used if used.key == "departures_every")
    assert told == "expected: every step"
    assert read(Fraction(100), 100, departures_every="expected").departures_every == 9
    assert (
        read(Fraction(12), 10, departures_every="expected").departures_every is None
    )  # ten are less than noise
    assert read(turnover=12, departures_every=3).departures_every == 3


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "turnover"),
        ({"turnover": "often"}, "turnover"),
        ({"turnover": -1}, "turnover"),
        ({"turnover": True}, "turnover"),
        ({"turnover": 3, "levels": 3}, "levels"),
        ({"turnover": 3, "levels": "two"}, "levels"),
        ({"turnover": 3, "ratio": 1}, "ratio"),
        ({"turnover": 3, "totals": "both"}, "totals"),
        ({"turnover": 3, "tracker": "yes"}, "tracker"),
        ({"turnover": 3, "departures_share": 1}, "departures_share"),
        ({"turnover": 3, "departures_every": "often"}, "departures_every"),
        ({"turnover": 3, "departures_every": 0}, "departures_every"),
        ({"turnover": 3, "departures_every": "expected"}, "departures_every"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        read(**table)
    assert "[mechanism]" in str(error.value)
    assert error.value.allowed
