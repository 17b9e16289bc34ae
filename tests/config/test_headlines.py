"""``[accuracy]``: headline marginals reach the plan, or one sentence says why not, where, and what is allowed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from small_configs import KEYED, load

from dpstream.core.errors import DpstreamError

HEADLINE = '[accuracy]\nheadline = [["zip"], ["zip", "kind"]]'


def test_headlines_reach_the_plan(tmp_path: Path) -> None:
    config = load(tmp_path, rest=HEADLINE)
    assert config.recipe.headline == (("zip",), ("zip", "kind"))
    assert config.recipe.headline_share == Fraction(1, 5)
    assert config.plan().options()["headline"] == [["zip"], ["zip", "kind"]]
    used = {(one.section, one.key): one.value for one in config.used}
    assert used["accuracy", "headline"] == "zip, zip x kind"
    shared = load(tmp_path, rest=f'{HEADLINE}\nheadline_share = "1/3"')
    assert shared.plan().options()["headline_share"] == "1/3"


def test_a_file_without_them_is_the_same_plan(tmp_path: Path) -> None:
    plain, empty = load(tmp_path), load(tmp_path, rest="[accuracy]")
    assert empty.facts() == plain.facts()
    assert [one for one in empty.used if one.section != "accuracy"] == list(plain.used)


WRONG = {
    "unknown column": ('headline = [["rent"]]', "headline, marginal 1", "rent"),
    "column twice": ('headline = [["zip", "zip"]]', "headline, marginal 1", "twice"),
    "marginal twice": ('headline = [["zip", "kind"], ["kind", "zip"]]', "headline", "occurs twice"),
    "columns only": ('headline = ["zip"]', "headline", "expected marginals"),
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
    with pytest.raises(DpstreamError, match=r"\[accuracy\] headline.*max_cells = 11") as caught:
        load(tmp_path, mechanism="max_cells = 11", rest='[accuracy]\nheadline = [["zip", "kind", "paid"]]')
    assert "[mechanism]" not in str(caught.value)


@pytest.mark.parametrize("name", ["dpstabs", "baseline"])
def test_other_mechanisms_measure_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(DpstreamError, match="measures no headlines") as caught:
        load(tmp_path, mechanism=f'name = "{name}"', rest=HEADLINE)
    assert "pooled" in str(caught.value.allowed)


def test_a_census_takes_headlines(tmp_path: Path) -> None:
    config = load(tmp_path, rest=HEADLINE, **KEYED["census"] | {"mechanism": 'name = "census"\nturnover = 3'})
    assert config.plan().options()["headline"] == [["zip"], ["zip", "kind"]]
