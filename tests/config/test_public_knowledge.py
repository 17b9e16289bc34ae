"""What an owner knows in advance and publishes: guesses, a season, headlines, a public table.

Each reaches the plan and is pinned, or one sentence says what is wrong, where, and what is allowed.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_configs import KEYED, PUBLIC, load

from dpstream.core.contracts import StepPeriods
from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled
from dpstream.project import Config, describe
from dpstream.stream.identity import require_same_plan

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


# Seasons


CALENDAR = 'path = "data/*.csv"\ntime_column = "day"\nevery = "{}"\nstart = "2020-01-06"\nend = "2024-01-07"'
SEASONS = {
    "months of a year": ('"year"', "month", Fraction(12)),
    "quarters of a year": ('"year"', "3 months", Fraction(4)),
    "weeks of a year": ('"year"', "week", Fraction(1461, 28)),
    "days of a week": ('"week"', "day", Fraction(7)),
    "steps": ("12", None, Fraction(12)),
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


# Headlines


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


def test_headlines_that_no_model_holds(tmp_path: Path) -> None:
    """Three pairs in a circle need a table of all three columns."""
    circle = '[accuracy]\nheadline = [["zip", "kind"], ["kind", "paid"], ["paid", "zip"]]'
    with pytest.raises(DpstreamError, match=r"\[accuracy\] headline.*max_cells = 11") as caught:
        load(tmp_path, mechanism="max_cells = 11", rest=circle)
    assert "[mechanism]" not in str(caught.value)


def test_a_census_takes_headlines(tmp_path: Path) -> None:
    config = load(tmp_path, rest=HEADLINE, **KEYED["census"] | {"mechanism": 'name = "census"\nturnover = 3'})
    assert config.plan().options()["headline"] == [["zip"], ["zip", "kind"]]


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


# A public table


PRIOR = '[prior]\nfile = "register.csv"\nweight = "homes"\npublic = true'
TABLE = "kind,zip,homes,street\nx,a,6,Elm\ny,b,3.5,Oak\nx,b,0,Ash\n"


def with_table(folder: Path, table: str = TABLE) -> Path:
    (folder / "register.csv").write_text(table)
    return folder


def test_the_table_reaches_the_plan(tmp_path: Path) -> None:
    config = load(with_table(tmp_path), rest=PRIOR)
    prior = config.recipe.prior
    assert prior.columns == (0, 2)
    assert prior.total == 9.5
    assert prior.marginal((0, 2)) == pytest.approx([6 / 9.5, 0, 0, 3.5 / 9.5, 0, 0])
    facts = config.plan().options()["prior"]
    digest = hashlib.sha256(TABLE.encode()).hexdigest()
    assert facts == {"sha256": digest, "columns": ["zip", "kind"], "records": 9.5, "weight": "homes"}
    used = {(one.section, one.key): one.value for one in config.used}
    assert used["prior", "file"] == "register.csv"


def test_another_table_is_another_plan(tmp_path: Path) -> None:
    began = load(with_table(tmp_path), rest=PRIOR).facts()
    now = load(with_table(tmp_path, TABLE.replace("3.5", "3")), rest=PRIOR).facts()
    none = load(tmp_path).facts()
    assert none["options"]["prior"] is None
    rows = load(with_table(tmp_path), rest=PRIOR.replace('weight = "homes"\n', ""))
    assert rows.recipe.prior.total == 3.0, "rows are records without a weight"
    for one, other, what in (
        (began, now, r"the file behind options\.prior\.sha256 has changed \(allowed: the plan of its start"),
        (none, now, r"options\.prior has changed"),
        (began, none, r"options\.prior has changed"),
        (began, rows.facts(), r"options\.prior\.weight"),
    ):
        with pytest.raises(ConfigError, match=what):
            require_same_plan(one, other, "state")


def test_a_plan_tells_how_much_of_it_is_in_other(tmp_path: Path) -> None:
    load(with_table(tmp_path), rest=PRIOR)
    file = tmp_path / "dpstream.toml"
    file.write_text(file.read_text().replace('["a", "b", "c"]', '["a", "b", "c"]\nother = "other"'))
    (tmp_path / "register.csv").write_text(TABLE.replace("y,b,3.5", "y,q,2"))
    config = Config.load(file)
    assert config.recipe.prior.other == {"zip": 0.25}
    assert "In the bin other are 25 % of zip" in config.recipe.prior.describe()
    assert "other" not in config.plan().options()["prior"]


@pytest.mark.parametrize("name", ["dpstabs", "baseline"])
def test_other_mechanisms_take_no_table_headlines_or_periods(tmp_path: Path, name: str) -> None:
    for rest, words in (
        (PRIOR, r"\[prior\].*takes no prior"),
        (HEADLINE, "measures no headlines.*pooled"),
        ('[accuracy]\nperiods = "2 steps"', "measures nothing by periods"),
    ):
        with pytest.raises(DpstreamError, match=words):
            load(with_table(tmp_path), mechanism=f'name = "{name}"', rest=rest)


def test_constraints_ask_nothing_of_it(tmp_path: Path) -> None:
    """Neither columns that it lacks, nor columns that follow from others, nor rows that keep to them."""
    rules = (
        '\n[schema.columns.street]\ntype = "categorical"\nvalues = ["Elm", "Oak"]\n[schema.constraints]\n'
        "forbidden = [\"paid = 1 and kind = 'x'\"]\n"
        '[schema.constraints.derived]\nstreet = { from = "zip", file = "streets.csv" }\n'
    )
    (tmp_path / "streets.csv").write_text("zip,street\na,Elm\nb,Oak\nc,Oak\n")
    assert load(with_table(tmp_path), rest=PRIOR + rules).recipe.prior.columns == (0, 2)


# What is wrong


Case = tuple[dict[str, str], str, str]


def season(text: str, every: str | None, words: str, mechanism: str = "") -> Case:
    return parts(text, every, mechanism), "[stream] season", words


def headline(text: str, place: str, words: str) -> Case:
    return {"rest": f"[accuracy]\n{text}"}, f"[accuracy] {place}", words


def prior(rest: str, table: str, place: str, words: str) -> Case:
    return {"rest": rest, "table": table}, f"[prior] {place}", words


WRONG: list[Case] = [
    season('"month"', "day", "year, week, or a number of steps"),
    season("true", None, "year, week, or a number of steps"),
    season("10000000", None, "2 to 10,000"),
    season("1", None, "2 to 10,000"),
    season('"week"', "week", "2 to 10,000"),
    season('"year"', None, "the number of steps of a season"),
    season("12", None, 'name = "pooled"', 'name = "dpstabs"'),
    headline('headline = [["rent"]]', "headline, marginal 1", "rent"),
    headline('headline = [["zip", "zip"]]', "headline, marginal 1", "twice"),
    headline('headline = [["zip", "kind"], ["kind", "zip"]]', "headline", "occurs twice"),
    headline('headline = ["zip"]\nperiods = "month"', "periods", "'month' needs a calendar"),
    headline('headline = ["zip"]\nperiods = "fortnight"', "periods", "'fortnight' cannot be used"),
    headline("headline = [[]]", "headline", "expected marginals"),
    headline("headline = []", "headline", "the list is empty"),
    headline('headline = [["zip"]]\nheadline_share = 1', "headline_share", "not a share"),
    headline('headline = [["zip"]]\nheadline_share = 0', "headline_share", "not a share"),
    headline('headline_share = "1/2"', "headline_share", "without headline"),
    prior(PRIOR.replace("true", "false"), TABLE, "public", "does not confirm"),
    prior(PRIOR.replace("public = true", ""), TABLE, "public", "the key is missing"),
    prior(PRIOR.replace("register", "other"), TABLE, "file", "No such file"),
    prior(PRIOR, "", "file", "empty"),
    prior(PRIOR, TABLE.replace("kind,zip", "sort,code"), "file", "none of the schema's"),
    prior(PRIOR, TABLE.replace("Oak", "Oak\nx,d,1,Fir"), "file, register.csv", "zip"),
    prior(PRIOR, TABLE.replace("y,b", ",b"), "file, register.csv", "kind"),
    prior(PRIOR.replace("homes", "flats"), TABLE, "weight", "no column 'flats'"),
    prior(PRIOR.replace("homes", "paid"), TABLE, "weight", "in the schema"),
    prior(PRIOR, TABLE.replace("3.5", "few"), "weight", "other than numbers"),
    prior(PRIOR, TABLE.replace("3.5", "-1"), "weight", "below 0"),
    prior(PRIOR, TABLE.replace("3.5", "inf"), "weight", "empty cells"),
    prior(PRIOR, TABLE.replace("6", "0.6").replace("3.5", "0.4"), "weight", "as shares do"),
    prior(PRIOR, TABLE.replace("3.5", "3e12"), "weight", "adds up to 3e+12"),
    prior(PRIOR, "kind,zip,homes\nx,a,0\n", "file", "no record"),
]


@pytest.mark.parametrize(("given", "place", "words"), WRONG)
def test_what_is_wrong_is_told_in_one_sentence_with_file_section_and_key(
    given: dict[str, str], place: str, words: str, tmp_path: Path
) -> None:
    with_table(tmp_path, given.get("table", TABLE))
    with pytest.raises(DpstreamError) as caught:
        load(tmp_path, **{name: text for name, text in given.items() if name != "table"})
    assert caught.value.where == f"{tmp_path / 'dpstream.toml'} {place}"
    assert words in f"{caught.value.what} {caught.value.allowed}"
    assert caught.value.allowed
