"""``[prior]``: a public table reaches the plan and is pinned by its hash, or one sentence says what is wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from small_configs import load

from dpstream.core.errors import ConfigError
from dpstream.project import Config
from dpstream.stream.identity import require_same_plan

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
    unweighed = load(with_table(tmp_path), rest=PRIOR.replace('weight = "homes"\n', "")).facts()
    for one, other, what in (
        (began, now, r"the file behind options\.prior\.sha256 has changed \(allowed: the plan of its start"),
        (none, now, r"options\.prior has changed"),
        (began, none, r"options\.prior has changed"),
        (began, unweighed, r"options\.prior\.weight"),
    ):
        with pytest.raises(ConfigError, match=what):
            require_same_plan(one, other, "state")


def test_rows_are_records_without_a_weight(tmp_path: Path) -> None:
    rest = PRIOR.replace('weight = "homes"\n', "")
    assert load(with_table(tmp_path), rest=rest).recipe.prior.total == 3.0


WRONG = {
    "not confirmed": (PRIOR.replace("true", "false"), TABLE, "[prior] public", "does not confirm"),
    "nothing said": (PRIOR.replace("public = true", ""), TABLE, "[prior] public", "the key is missing"),
    "no file": (PRIOR.replace("register", "other"), TABLE, "[prior] file", "No such file"),
    "no table": (PRIOR, "", "[prior] file", "empty"),
    "no column": (PRIOR, TABLE.replace("kind,zip", "sort,code"), "[prior] file", "none of the schema's"),
    "unknown value": (PRIOR, TABLE.replace("Oak", "Oak\nx,d,1,Fir"), "[prior] file, register.csv", "zip"),
    "null": (PRIOR, TABLE.replace("y,b", ",b"), "[prior] file, register.csv", "kind"),
    "no weight": (PRIOR.replace("homes", "flats"), TABLE, "[prior] weight", "no column 'flats'"),
    "weight of the schema": (PRIOR.replace("homes", "paid"), TABLE, "[prior] weight", "in the schema"),
    "text": (PRIOR, TABLE.replace("3.5", "few"), "[prior] weight", "other than numbers"),
    "negative": (PRIOR, TABLE.replace("3.5", "-1"), "[prior] weight", "below 0"),
    "infinite": (PRIOR, TABLE.replace("3.5", "inf"), "[prior] weight", "empty cells"),
    "shares": (PRIOR, TABLE.replace("6", "0.6").replace("3.5", "0.4"), "[prior] weight", "as shares do"),
    "less than one": (PRIOR, TABLE.replace("6", "0").replace("3.5", "0.4"), "[prior] weight", "shares"),
    "too many": (PRIOR, TABLE.replace("3.5", "3e12"), "[prior] weight", "adds up to 3e+12"),
    "no record": (PRIOR, "kind,zip,homes\nx,a,0\n", "[prior] file", "no record"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_table_is_told_in_one_sentence(case: str, tmp_path: Path) -> None:
    rest, table, place, what = WRONG[case]
    with pytest.raises(ConfigError) as caught:
        load(with_table(tmp_path, table), rest=rest)
    assert caught.value.where == f"{tmp_path / 'dpstream.toml'} {place}"
    assert what in caught.value.what
    assert caught.value.allowed


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
def test_other_mechanisms_refuse_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"\[prior\].*takes no prior"):
        load(with_table(tmp_path), mechanism=f'name = "{name}"', rest=PRIOR)


def test_constraints_ask_nothing_of_it(tmp_path: Path) -> None:
    """Neither columns that it lacks, nor columns that follow from others, nor rows that keep to them."""
    rules = (
        '\n[schema.columns.street]\ntype = "categorical"\nvalues = ["Elm", "Oak"]\n[schema.constraints]\n'
        "forbidden = [\"paid = 1 and kind = 'x'\"]\n"
        '[schema.constraints.derived]\nstreet = { from = "zip", file = "streets.csv" }\n'
    )
    (tmp_path / "streets.csv").write_text("zip,street\na,Elm\nb,Oak\nc,Oak\n")
    assert load(with_table(tmp_path), rest=PRIOR + rules).recipe.prior.columns == (0, 2)
