"""The options of a census as a file says them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from census_stays import SMALL

from dpstream.core.contracts import RecipeContext, build
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import PureDP
from dpstream.families.census import Census
from dpstream.project.keys import section_of


def read(expected: Fraction | None = None, coming: int | None = None, **table: Any) -> Census:
    section = section_of("dpstream.toml", "mechanism", {"name": "census", **table})
    section.variant = "census"
    recipe: Census = build(
        section, Census, RecipeContext(SMALL, turnover=expected, budget=PureDP.of(1), records_per_step=coming)
    )
    return recipe


def test_a_file_says_the_turnover_or_what_it_expects() -> None:
    assert read(Fraction(12)).turnover == 12
    assert read(Fraction(12), turnover="5/2").turnover == Fraction(5, 2)
    assert read(turnover="none").turnover is None
    assert read(turnover=3, levels="unlimited").levels == "unlimited"


def test_departures_are_counted_between_censuses_as_what_a_file_expects_says() -> None:
    for turnover, coming, every in ((12, 5000, 1), (100, 100, 9), (12, 10, None), (12, None, None)):
        plan = read(Fraction(turnover), coming).calibrate(epsilon=1)
        assert plan.schedule.departures == every  # ten records are less than noise


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "turnover"),
        ({"turnover": "often"}, "turnover"),
        ({"turnover": -1}, "turnover"),
        ({"turnover": True}, "turnover"),
        ({"turnover": 3, "levels": 3}, "levels"),
        ({"turnover": 3, "levels": "two"}, "levels"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        read(**table)
    assert "[mechanism]" in str(error.value)
    assert error.value.allowed
