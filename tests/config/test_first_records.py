"""Public guesses, what a stream measures by them and says before any data is read, and seasons."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_configs import PUBLIC, load

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled
from dpstream.project.planning import describe

DOMAIN = Domain(("a", "b", "c"), (3, 4, 5))
RECORDS = 3000


def first_release(guess: int | None) -> tuple[Any, Any]:
    """The first release of a table whose columns depend on each other, and its pairs."""
    codes = np.random.default_rng(1).integers(3, size=(RECORDS, 1)).repeat(3, axis=1).astype(np.int32)
    plan = Pooled(Workload.all_k_way(DOMAIN, 2), first_records=guess).calibrate(epsilon=1, horizon=20)
    found = plan.step(plan.start(), EncodedBatch(DOMAIN, codes, None), Randomness.seeded("first epoch"))
    return found, [np.bincount(codes[:, 0] * size + codes[:, 0], minlength=3 * size) for size in (4, 5)]


def test_a_guess_lets_the_first_step_measure_pairs() -> None:
    """The pairs of a table of 3000 equal values are a diagonal: single columns cannot tell."""
    wrong = {}
    for guess in (None, 1, 1000, RECORDS, 30 * RECORDS):
        release, truth = first_release(guess)
        pairs = release.marginals([(0, 1), (0, 2)])
        wrong[guess] = sum(np.abs(a - b).sum() for a, b in zip(pairs, truth, strict=True)) / RECORDS
    assert wrong[None] > 2.0  # of at most 4, with independent columns 8/3
    assert wrong[1] == wrong[None]
    # Right within noise of standard deviation 12 at most in each of 27 cells, or 30 times too large.
    assert max(wrong[1000], wrong[RECORDS], wrong[30 * RECORDS]) < 0.5


@pytest.mark.parametrize(("expect", "guess"), [("records_per_step = 300", 300), ("", None)])
def test_the_guess_of_the_file_counts(expect: str, guess: int | None, tmp_path: Path) -> None:
    config = load(tmp_path, rest=f"[expect]\n{expect}" if expect else "")
    assert config.recipe.first_records == guess
    assert config.plan().options()["first_records"] == guess


def test_no_record_is_no_guess() -> None:
    with pytest.raises(ConfigError, match="first_records = 0"):
        Pooled(Workload.all_k_way(DOMAIN, 2), first_records=0)


def test_the_order_of_records_is_a_guess_of_growing_tables(tmp_path: Path) -> None:
    written = '[expect]\nrecords_per_step = 300\norder = "{}"'
    mixed, ordered = (load(tmp_path, rest=written.format(word)) for word in ("mixed", "sorted"))
    assert ordered.expected is not None
    assert ordered.expected.ordered
    assert "the owner's guess order = sorted is published ([expect])" in ordered.declared_public()
    assert (
        mixed.declared_public() == load(tmp_path, rest="[expect]\nrecords_per_step = 300").declared_public()
    )
    with pytest.raises(ConfigError, match="is not a choice") as caught:
        load(tmp_path, rest=written.format("by place"))
    assert "[expect] order" in str(caught.value.where)


# What a plan says about errors before any data is read


@pytest.mark.parametrize(
    ("horizon", "ends", "one_by_one"),
    [
        ("", [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 32, 36, 41, 46, 52, 58, 65, 73], 9),
        ("\nhorizon = 5", [1, 2, 3, 4, 5], 5),
        ("\nhorizon = 12", [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12], 9),
    ],
)
def test_the_default_says_when_it_measures_and_what_it_cannot_say(
    tmp_path: Path, horizon: str, ends: list[int], one_by_one: int
) -> None:
    facts = describe(load(tmp_path, budget=f'epsilon = "1"{horizon}'))
    pooled = facts["pooled"]
    assert (pooled["epoch_ends"], pooled["measured_one_by_one"]) == (ends, one_by_one)
    # What it says instead can be done, and has error bars.
    assert 'name = "dpstabs" with k = 3' in " ".join(facts["words"]["further"])
    instead = describe(load(tmp_path, mechanism='name = "dpstabs"\nk = 3', budget=f'epsilon = "1"{horizon}'))
    assert "pooled" not in instead
    assert [part["name"] for part in instead["parts"]] == ["measure"]
    public = describe(load(tmp_path, stream=PUBLIC, mechanism='staleness = "1/2"'))["pooled"]
    assert (public["measured_one_by_one"], public["epoch_ends"][:4]) == (1, [1, 3, 7, 9]), "the last step"


def test_a_public_total_has_no_error(tmp_path: Path) -> None:
    plan = load(tmp_path, stream=PUBLIC, mechanism='name = "dpstabs"').plan()
    assert {predicted.total for predicted in plan.expected_errors([1, 10])} == {0.0}


# Seasons


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
