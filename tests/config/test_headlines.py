"""``[accuracy]``: headline marginals reach the plan, or one sentence says why not, where, and what is allowed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from small_configs import KEYED, load

from dpstream.core.contracts import StepPeriods
from dpstream.core.errors import DpstreamError

HEADLINE = '[accuracy]\nheadline = ["zip", ["zip", "kind"]]'
PERIODS = f'{HEADLINE}\nperiods = "3 steps"'


def test_headlines_reach_the_plan(tmp_path: Path) -> None:
    assert load(tmp_path, rest=HEADLINE).recipe.periods == StepPeriods(1)
    config = load(tmp_path, rest=PERIODS)
    assert (config.recipe.periods, config.recipe.number) == (StepPeriods(3), StepPeriods(3))
    assert config.recipe.headline == (("zip",), ("zip", "kind"))
    assert config.recipe.headline_share == Fraction(1, 5)
    assert config.plan().options()["headline"] == [["zip"], ["zip", "kind"]]
    used = {(one.section, one.key): one.value for one in config.used}
    assert used["accuracy", "headline"] == "zip, zip x kind"
    shared = load(tmp_path, rest=f'{PERIODS}\nheadline_share = "1/3"')
    assert shared.plan().options()["headline_share"] == "1/3"


def test_a_file_without_them_is_the_same_plan(tmp_path: Path) -> None:
    plain, empty = load(tmp_path), load(tmp_path, rest="[accuracy]")
    assert empty.facts() == plain.facts()
    assert [one for one in empty.used if one.section != "accuracy"] == list(plain.used)


WRONG = {
    "unknown column": ('headline = [["rent"]]', "headline, marginal 1", "rent"),
    "column twice": ('headline = [["zip", "zip"]]', "headline, marginal 1", "twice"),
    "marginal twice": ('headline = [["zip", "kind"], ["kind", "zip"]]', "headline", "occurs twice"),
    "a month without one": ('headline = ["zip"]\nperiods = "month"', "periods", "'month' needs a calendar"),
    "unknown length": ('headline = ["zip"]\nperiods = "fortnight"', "periods", "'fortnight' is unknown"),
    "no column": ("headline = [[]]", "headline", "expected marginals"),
    "none": ("headline = []", "headline", "the list is empty"),
    "all": ('headline = [["zip"]]\nheadline_share = 1', "headline_share", "not a share"),
    "nothing": ('headline = [["zip"]]\nheadline_share = 0', "headline_share", "not a share"),
    "share alone": ('headline_share = "1/2"', "headline_share", "without headline"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_headlines_are_told_with_file_section_and_key(case: str, tmp_path: Path) -> None:
    text, place, what = WRONG[case]
    with pytest.raises(DpstreamError) as caught:
        load(tmp_path, rest=f"[accuracy]\n{text}")
    assert caught.value.where == f"{tmp_path / 'dpstream.toml'} [accuracy] {place}"
    assert what in caught.value.what
    assert caught.value.allowed


def test_headlines_that_no_model_holds(tmp_path: Path) -> None:
    """Three pairs in a circle need a table of all three columns."""
    circle = '[accuracy]\nheadline = [["zip", "kind"], ["kind", "paid"], ["paid", "zip"]]'
    with pytest.raises(DpstreamError, match=r"\[accuracy\] headline.*max_cells = 11") as caught:
        load(tmp_path, mechanism="max_cells = 11", rest=circle)
    assert "[mechanism]" not in str(caught.value)


@pytest.mark.parametrize("name", ["dpstabs", "baseline"])
def test_other_mechanisms_measure_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(DpstreamError, match="measures no headlines") as caught:
        load(tmp_path, mechanism=f'name = "{name}"', rest=HEADLINE)
    assert "pooled" in str(caught.value.allowed)


def test_a_census_takes_headlines(tmp_path: Path) -> None:
    config = load(tmp_path, rest=HEADLINE, **KEYED["census"] | {"mechanism": 'name = "census"\nturnover = 3'})
    assert config.plan().options()["headline"] == [["zip"], ["zip", "kind"]]


def test_other_mechanisms_have_no_periods(tmp_path: Path) -> None:
    with pytest.raises(DpstreamError, match="measures nothing by periods"):
        load(tmp_path, mechanism='name = "dpstabs"', rest='[accuracy]\nperiods = "2 steps"')


WEEKS = 'path = "d.csv"\ntime_column = "t"\nevery = "week"\nstart = 2026-01-05\nend = 2030-01-06'


@pytest.mark.parametrize(
    ("expected", "headline", "periods"),
    [
        (None, '["zip"]', "quarter"),
        (10_000, '["zip"]', "month"),
        (5, '["zip"]', "quarter"),
        (1, '["zip", "kind"]', "year"),
    ],
)
def test_a_calendar_gives_periods(expected: int | None, headline: str, periods: str, tmp_path: Path) -> None:
    """The shortest length whose mean count is above two standard errors, by the public guess alone."""
    rest = f"[accuracy]\nheadline = {headline}\n"
    if expected is not None:
        rest += f"[expect]\nrecords_per_step = {expected}\n"
    recipe = load(tmp_path, source=WEEKS, rest=rest).recipe
    assert (recipe.periods.name, recipe.number.name) == (periods, "month")


def test_without_headlines_the_number_of_records_gets_little(tmp_path: Path) -> None:
    shares = [
        load(tmp_path, source=WEEKS, rest=f"[expect]\nrecords_per_step = {many}").recipe.number_share
        for many in (10, 10_000)
    ]
    assert shares == [Fraction(1, 20), Fraction(1, 50)]
    short = load(
        tmp_path, source=WEEKS.replace('"week"', '"3 months"').replace("2026-01-05", "2026-02-01")
    ).recipe
    assert short.number.name == "quarter"
