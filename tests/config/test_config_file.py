"""A configuration file: every wrong key and value says what, where, and what is allowed."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpstream.config import KEYS, SECTIONS, Config
from dpstream.config.keys import FAMILIES_TO_COME, MECHANISMS, keys_of, recipe_defaults
from dpstream.errors import (
    BudgetError,
    ConfigError,
    DpstreamError,
    LimitError,
    SchemaError,
    UnitError,
)
from dpstream.privacy import ZCDP, Event, PureDP, zcdp_to_delta
from dpstream.sources import SourceOptions
from dpstream.tabular import MWEMPGM, Baseline, BaselinePlan, DPStabs, DPStabsPlan
from dpstream.tabular.cells import SCORES

MINIMAL = """\
[stream]
name = "test"
{stream}
[source]
{source}
[schema.columns.zip]
type = "categorical"
values = ["a", "b", "c"]
[schema.columns.paid]
type = "boolean"
[schema.columns.kind]
type = "categorical"
values = ["x", "y"]
[mechanism]
{mechanism}
[budget]
{budget}
{rest}
"""
DEFAULTS = {
    "stream": "",
    "source": 'path = "data/*.csv"\ntime_column = "step"\nend = 9',
    "mechanism": "",
    "budget": 'epsilon = "1"',
    "rest": "",
}


def write(folder: Path, **parts: str) -> Path:
    path = folder / "dpstream.toml"
    path.write_text(MINIMAL.format(**{**DEFAULTS, **parts}), encoding="utf-8")
    return path


def load(folder: Path, **parts: str) -> Config:
    return Config.load(write(folder, **parts))


PUBLIC = 'total = "public"'
ROWS = 'path = "data/*.csv"\nrows = 50'

# (parts, exception, what the message has to hold beside the file)
WRONG: dict[str, tuple[dict[str, str], type[DpstreamError], tuple[str, ...]]] = {
    "unknown section": (
        {"rest": "[budgets]\nepsilon = 1"},
        ConfigError,
        ("'budgets'", "a table", "did you mean 'budget'?", "mechanism"),
    ),
    "unknown key": (
        {"mechanism": 'selectshare = "1/2"'},
        ConfigError,
        ("[mechanism]", "'selectshare'", "'1/2'", "did you mean 'select_share'?", "max_cells"),
    ),
    "unknown key without a neighbour": (
        {"stream": "zzz = 1"},
        ConfigError,
        ("[stream]", "'zzz' (1)", "allowed", "unit"),
    ),
    "long value is cut": ({"stream": f'zzz = "{"v" * 500}"'}, ConfigError, ("vvv...",)),
    "unit of another type": ({"stream": "unit = 3"}, ConfigError, ("[stream] unit", "3", "event-replace")),
    "unknown unit": ({"stream": 'unit = "evnt"'}, ConfigError, ("[stream] unit", "'evnt'", "event-replace")),
    "individual": ({"stream": 'unit = "individual"'}, UnitError, ("[stream] unit", "'individual'", "event")),
    "user": ({"stream": 'unit = "user"\nmax_events = 3'}, UnitError, ("'user'", "not built yet", "event")),
    "max_events alone": ({"stream": "max_events = 3"}, ConfigError, ("[stream] max_events", "user")),
    "user column alone": (
        {"source": DEFAULTS["source"] + '\nuser_column = "u"'},
        ConfigError,
        ("[source] user_column", "user"),
    ),
    "total": ({"stream": 'total = "secret"'}, ConfigError, ("[stream] total", "'secret'", "private, public")),
    "total contradicts unit": (
        {"stream": 'unit = "event-replace"\ntotal = "private"'},
        ConfigError,
        ("[stream] total", "contradicts", "event-replace"),
    ),
    "rows with private sizes": (
        {"source": ROWS},
        ConfigError,
        ("[source] rows", "50", "publish the size", 'total = "public"'),
    ),
    "rows and every": (
        {"source": ROWS + '\nevery = "week"', "stream": PUBLIC},
        ConfigError,
        ("[source]", "every", "one of the two"),
    ),
    "no path": ({"source": 'time_column = "step"'}, ConfigError, ("[source] path", "missing")),
    "no cut": ({"source": 'path = "d.csv"'}, ConfigError, ("[source]", "step ends", "time_column")),
    "no start": (
        {"source": 'path = "d.csv"\ntime_column = "t"\nevery = "week"\nend = "data"'},
        ConfigError,
        ("[source]", "start", "2026-01-05"),
    ),
    "no end": ({"source": 'path = "d.csv"\ntime_column = "t"'}, ConfigError, ("[source]", "end is missing")),
    "every": (
        {"source": 'path = "d"\ntime_column = "t"\nevery = "fortnight"\nstart = 2026-01-05\nend = "data"'},
        ConfigError,
        ("[source]", "'fortnight'", "week"),
    ),
    "late": ({"source": DEFAULTS["source"] + '\nlate = "skip"'}, ConfigError, ("'skip'", "next-step")),
    "time column is an attribute": (
        {"source": 'path = "d.csv"\ntime_column = "zip"\nend = 3'},
        ConfigError,
        ("[source] time_column", "'zip'", "schema"),
    ),
    "op column is an attribute": (
        {"source": DEFAULTS["source"] + '\nop_column = "paid"'},
        ConfigError,
        ("[source] op_column", "'paid'", "schema"),
    ),
    "mechanism": (
        {"mechanism": 'name = "dpstab"'},
        ConfigError,
        ("[mechanism] name", "did you mean 'dpstabs'?", "baseline"),
    ),
    **{
        f"family {name}": (
            {"mechanism": f'name = "{name}"'},
            ConfigError,
            ("[mechanism] name", "not built yet", "dpstabs, baseline"),
        )
        for name in FAMILIES_TO_COME
    },
    "option of the other": (
        {"mechanism": 'name = "baseline"\ncounter = "simple"'},
        ConfigError,
        ("[mechanism] counter", "'baseline' has no option", "measure_share"),
    ),
    "option of the baseline": (
        {"mechanism": 'measure_share = "1/2"'},
        ConfigError,
        ("[mechanism] measure_share", "'dpstabs' has no option", "select_share"),
    ),
    "k of 0": ({"mechanism": "k = 0"}, ConfigError, ("[mechanism] k", "0", "1 to")),
    "k true": ({"mechanism": "k = true"}, ConfigError, ("[mechanism] k", "True")),
    "k text": ({"mechanism": 'k = "3"'}, ConfigError, ("[mechanism] k", "'3'")),
    "k above the workload": ({"mechanism": "k = 4"}, ConfigError, ("[mechanism]", "4", "1 to 3")),
    "baseline k above the workload": (
        {"mechanism": 'name = "baseline"\nk = 4'},
        ConfigError,
        ("[mechanism] k", "4", "1 to 3"),
    ),
    "workload word": (
        {"mechanism": 'workload = "all-pairs"'},
        ConfigError,
        ("[mechanism] workload", "'all-pairs'", "all-2-way"),
    ),
    "workload type": ({"mechanism": "workload = 2"}, ConfigError, ("[mechanism] workload", "all-2-way")),
    "workload column": (
        {"mechanism": 'workload = [["zip", "piad"]]'},
        ConfigError,
        ("[mechanism] workload", "'piad'", "zip"),
    ),
    "workload too wide": ({"mechanism": 'workload = "all-4-way"'}, ConfigError, ("workload", "3")),
    "counter": (
        {"mechanism": 'counter = "tre"'},
        ConfigError,
        ("[mechanism] counter", "did you mean 'tree'?"),
    ),
    "counter needs a horizon": (
        {"mechanism": 'counter = "tree"'},
        ConfigError,
        ("[mechanism]", "'tree' needs a horizon", "simple"),
    ),
    "score": (
        {"mechanism": 'score = "median"'},
        ConfigError,
        ("[mechanism] score", "'median'", "mean-cells"),
    ),
    "aggregate": ({"mechanism": "aggregate = 1"}, ConfigError, ("[mechanism] aggregate", "last, average")),
    "past": ({"mechanism": 'past = "all"'}, ConfigError, ("[mechanism] past", "measured, literal")),
    "share of 1": ({"mechanism": "select_share = 1"}, ConfigError, ("[mechanism] select_share", "0 and 1")),
    "share text": ({"mechanism": 'select_share = "half"'}, ConfigError, ("select_share", "'half'")),
    "share nan": ({"mechanism": "select_share = nan"}, ConfigError, ("select_share", "nan")),
    "share over zero": ({"mechanism": 'select_share = "1/0"'}, ConfigError, ("select_share", "1/0")),
    "iterations": ({"mechanism": "iterations = -1"}, ConfigError, ("[mechanism] iterations", "-1")),
    "max_cells": ({"mechanism": "max_cells = 2.5"}, ConfigError, ("[mechanism] max_cells", "2.5")),
    "no budget": ({"budget": ""}, ConfigError, ("[budget]", "no budget", "epsilon, or rho")),
    "two budgets": ({"budget": 'epsilon = "1"\nrho = "1"'}, ConfigError, ("[budget]", "epsilon and rho")),
    "delta alone": ({"budget": 'delta = "1e-9"'}, ConfigError, ("[budget]", "delta")),
    "epsilon true": ({"budget": "epsilon = true"}, ConfigError, ("[budget] epsilon", "True")),
    "epsilon list": ({"budget": "epsilon = [1]"}, ConfigError, ("[budget] epsilon", "[1]")),
    **{
        f"epsilon {text}": (
            {"budget": f"epsilon = {text}"},
            BudgetError,
            ("[budget] epsilon", "a positive number up to 1000"),
        )
        for text in ("0", "-1", "nan", "inf", "1e9", '"0"', '"-0.5"', '"NaN"', '"one"', '""', '"1e9"')
    },
    "rho": ({"budget": "rho = 0"}, BudgetError, ("[budget] rho", "positive")),
    "delta of 0": ({"budget": 'epsilon = "1"\ndelta = "0"'}, BudgetError, ("[budget] delta", "positive")),
    "delta of 1": ({"budget": 'epsilon = "1"\ndelta = "1"'}, BudgetError, ("[budget] delta", "below 1")),
    **{
        f"horizon {text}": (
            {"budget": f'epsilon = "1"\nhorizon = {text}'},
            ConfigError,
            ("[budget] horizon", "none, or a number"),
        )
        for text in ("0", '"forever"', "2.5", "true")
    },
    "output dir": ({"rest": '[output]\ndir = ""'}, ConfigError, ("[output] dir", "''")),
    "output format": (
        {"rest": '[output]\nformat = "xlsx"'},
        ConfigError,
        ("[output] format", "parquet, csv"),
    ),
    "keep": ({"rest": "[output]\nkeep = 0"}, ConfigError, ("[output] keep", "0", "all")),
    "state in the output": (
        {"rest": '[output]\ndir = "out"\n[state]\ndir = "out/state"'},
        ConfigError,
        ("[state] dir", "out/state", "outside"),
    ),
    "output in the state": (
        {"rest": '[output]\ndir = "s/releases"\n[state]\ndir = "s"'},
        ConfigError,
        ("[state] dir", "outside"),
    ),
    "state is the output": (
        {"rest": '[output]\ndir = "x"\n[state]\ndir = "y/../x"'},
        ConfigError,
        ("[state] dir", "outside"),
    ),
    "schema key": (
        {"rest": '[schema.columns.rent]\ntype = "real"\nedge = [0, 1]'},
        SchemaError,
        ("'rent'", "'edge'", "did you mean 'edges'?"),
    ),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_wrong_files_say_what_where_and_what_is_allowed(case: str, tmp_path: Path) -> None:
    parts, kind, words = WRONG[case]
    with pytest.raises(DpstreamError) as caught:
        load(tmp_path, **parts)
    assert type(caught.value) is kind
    text = str(caught.value)
    for word in ("dpstream.toml", *words):
        assert word in text
    assert text.count("dpstream.toml") == 1
    assert caught.value.allowed
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format = 2\n", ("format", "2", "allowed: 1")),
        ("formt = 1\n", ("'formt'", "did you mean 'format'?")),
        ("budget = 3\n", ("budget = 3", "section [budget]")),
        ("stream = [1]\n", ("stream = [1]", "section [stream]")),
        ("[stream\n", ("not TOML", "line 1")),
        ("[stream]\nname = 'x'\n[source]\npath = 'd.csv'\nevery = 'files'\n[budget]\nepsilon=1", ("schema",)),
        ("[stream]\n", ("[stream] name", "missing")),
        ('[stream]\nname = "a\\tb"\n', ("[stream] name", "printable")),
    ],
)
def test_wrong_documents(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "dpstream.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Config.load(path)
    for word in ("dpstream.toml", *words):
        assert word in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: No such file"):
        Config.load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.load(tmp_path)
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not TOML"):
        Config.load(tmp_path / "x.toml")


def test_defaults_and_their_reasons(tmp_path: Path) -> None:
    config = load(tmp_path)
    plan = config.plan()
    assert isinstance(plan, DPStabsPlan)
    assert plan.recipe == DPStabs(plan.recipe.workload)
    assert (config.unit, config.budget.budget, config.budget.horizon) == (Event(), PureDP.of(1), None)
    assert (config.output.dir, config.state_dir) == (tmp_path / "releases", tmp_path / "state")
    noted = {(used.section, used.key): used for used in config.used}
    for key in keys_of("mechanism").values():
        if not key.mechanisms or "dpstabs" in key.mechanisms:
            assert noted["mechanism", key.name].reason
    assert noted["budget", "epsilon"].reason is None
    assert (
        noted["output", "format"].line() == "[output] format = parquet (default: it keeps the columns' types)"
    )


def test_every_option_of_the_parts_has_a_key(tmp_path: Path) -> None:
    """Defaults and choices are taken from the recipes; the rows themselves have to be there."""
    mechanism = keys_of("mechanism")
    for name, kind in (("dpstabs", DPStabs), ("baseline", MWEMPGM)):
        fields = {key for key, row in mechanism.items() if name in row.mechanisms}
        assert fields == {item.name for item in dataclasses.fields(kind)} | {"workload"}
        used = {
            u.key: u for u in load(tmp_path, mechanism=f'name = "{name}"').used if u.section == "mechanism"
        }
        assert fields | {"name"} == set(used)
        for key, value in recipe_defaults(kind).items():
            if key != "k":
                assert used[key].value == str(value)
                assert str(value) in str(mechanism[key].default)
                assert used[key].reason
    assert mechanism["score"].allowed == ", ".join(SCORES)
    sources = {item.name for item in dataclasses.fields(SourceOptions)}
    assert set(keys_of("source")) == sources | {"user_column"}
    assert {key.section for key in KEYS} | {"schema"} == set(SECTIONS)


def test_all_options_reach_the_mechanism(tmp_path: Path) -> None:
    plan = load(
        tmp_path,
        mechanism="""
workload = [["zip", "paid"], {columns = ["kind"], weight = "1/2"}]
k = 2
counter = "tree"
score = "sum-noise"
aggregate = "average"
past = "literal"
select_share = 0.1
iterations = 7
max_cells = 99
""",
        budget='rho = "1/3"\nhorizon = 12',
        rest='[output]\nkeep = 5\nformat = "csv"',
    ).plan()
    assert isinstance(plan, DPStabsPlan)
    recipe = plan.recipe
    assert (recipe.k, recipe.score, recipe.aggregate, recipe.past) == (2, "sum-noise", "average", "literal")
    assert (recipe.select_share, recipe.iterations, recipe.max_cells) == (Fraction(1, 10), 7, 99)
    assert recipe.workload.weights == (Fraction(1), Fraction(1, 2))
    assert (plan.budget, plan.horizon, plan.counter.horizon) == (ZCDP(Fraction(1, 3)), 12, 12)


@pytest.mark.parametrize("op", [False, True])
def test_an_operation_column_makes_the_baseline_handle_deletes(tmp_path: Path, op: bool) -> None:
    source = DEFAULTS["source"] + ('\nop_column = "op"' if op else "")
    config = load(tmp_path, source=source, mechanism='name = "baseline"\nmeasure_share = "2/3"')
    plan = config.plan()
    assert isinstance(plan, BaselinePlan)
    (iterations,) = [used for used in config.used if used.key == "iterations"]
    assert iterations.reason == "each of its fits starts anew"
    assert plan.recipe == Baseline(
        plan.recipe.workload, offline=MWEMPGM(k=3, measure_share=Fraction(2, 3)), deletions=op
    )


@pytest.mark.parametrize(
    ("stream", "relation"),
    [
        ("", "add-remove"),
        ('unit = "event"\ntotal = "private"', "add-remove"),
        ('unit = "event-replace"', "replace"),
        ('unit = "event-replace"\ntotal = "public"', "replace"),
        (PUBLIC, "replace"),
        (f'unit = "event"\n{PUBLIC}', "replace"),
    ],
)
def test_unit_and_total_say_the_relation_together(tmp_path: Path, stream: str, relation: str) -> None:
    config = load(tmp_path, stream=stream)
    assert config.unit.relation == config.plan().unit.relation == relation  # type: ignore[union-attr]
    if relation == "replace":
        assert load(tmp_path, stream=stream, source=ROWS).source_options.rows == 50


def test_epsilon_and_delta_become_the_largest_rho_within(tmp_path: Path) -> None:
    config = load(tmp_path, budget='epsilon = "1"\ndelta = "1e-9"')
    budget = config.budget.budget
    assert isinstance(budget, ZCDP)
    assert config.budget.stated == (Fraction(1), Fraction(1, 10**9))
    assert zcdp_to_delta(budget, "1") <= 1e-9
    # Rounding down costs less than one part in 10^8.
    assert zcdp_to_delta(budget.scaled(1 + Fraction(1, 10**7)), "1") > 1e-9
    (note,) = [used for used in config.used if used.key == "rho"]
    assert "rounded down" in str(note.reason)


def test_workload_defaults_to_single_columns_where_there_is_one(tmp_path: Path) -> None:
    path = write(tmp_path)
    document = path.read_text().split("[schema.columns.zip]")[0]
    path.write_text(
        f'{document}[schema.columns.zip]\ntype = "categorical"\nvalues = ["a"]\n[budget]\nrho = 1'
    )
    config = Config.load(path)
    assert config.plan().domain.sizes == (1,)
    assert [u.value for u in config.used if u.key == "workload"] == ["all-1-way"]


def test_a_workload_larger_than_memory_is_refused(tmp_path: Path) -> None:
    columns = "\n".join(f'[schema.columns.c{i}]\ntype = "integer"\nmin = 0\nmax = 9999' for i in range(4))
    with pytest.raises(LimitError) as caught:
        load(tmp_path, rest=columns, mechanism='workload = "all-3-way"')
    assert "[mechanism] workload" in str(caught.value)


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", rest='[output]\ndir = "../out"\n[state]\ndir = "secret"')
    monkeypatch.chdir(tmp_path)
    config = Config.load("deep/dpstream.toml")
    assert config.output.dir.resolve() == tmp_path / "out"
    assert config.state_dir.resolve() == tmp_path / "deep" / "secret"


def test_another_state_folder_is_checked_too(tmp_path: Path) -> None:
    config = load(tmp_path)
    with pytest.raises(ConfigError, match="secret state"):
        config.open_stream(state=tmp_path / "releases" / "state")
    assert not (tmp_path / "releases").exists()


def test_a_draft_does_not_run(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(
        path.read_text().replace("[schema.columns.zip]", "[schema]\nconfirmed = false\n[schema.columns.zip]")
    )
    with pytest.raises(ConfigError, match="confirmed = true"):
        Config.load(path).open_stream()
    assert not (tmp_path / "state").exists()


def test_the_schema_may_stand_in_another_file(tmp_path: Path) -> None:
    path = write(tmp_path)
    document: dict[str, Any] = tomllib.loads(path.read_text())
    text = path.read_text()
    start, end = text.index("[schema"), text.index("[mechanism]")
    (tmp_path / "schema.toml").write_text(text[start:end].replace("schema.columns", "columns"))
    path.write_text(text[:start] + '[schema]\nfile = "schema.toml"\n' + text[end:])
    assert Config.load(path).schema().names == tuple(document["schema"]["columns"])


ODD = (
    "0",
    "-1",
    "1.5",
    "nan",
    "1e400",
    '""',
    '"x"',
    '" "',
    "[]",
    '[""]',
    "{}",
    "{a = 1}",
    "true",
    "2026-01-05",
)


@pytest.mark.parametrize("key", [f"{key.section}.{key.name}" for key in KEYS if key.section])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_value_of_any_key_is_a_bug(key: str, mechanism: str, tmp_path: Path) -> None:
    """Whatever stands there, it is used or refused by name."""
    section, name = key.split(".")
    for odd in ODD:
        parts = dict(DEFAULTS, mechanism=f'name = "{mechanism}"')
        field = section if section in ("stream", "source", "mechanism", "budget") else "rest"
        head = f"[{section}]\n" if field == "rest" else ""
        kept = [line for line in parts[field].splitlines() if not line.startswith(f"{name} ")]
        parts[field] = "\n".join([head, *kept, f"{name} = {odd}"])
        path = write(tmp_path, **parts)
        if key == "stream.name":
            path.write_text(path.read_text().replace('name = "test"\n', ""))
        message = refusal(path)
        assert message is None or f"[{section}]" in message


def refusal(path: Path) -> str | None:
    try:
        Config.load(path)
    except DpstreamError as error:
        return str(error)
    return None


def test_the_page_about_the_file_shows_every_section() -> None:
    """The tables of keys are put into the page when the documentation is built."""
    page = (Path(__file__).resolve().parents[2] / "docs/reference/configuration.md").read_text(
        encoding="utf-8"
    )
    marked = " ".join(re.findall(r"<!-- keys: ([a-z ]+) -->", page)).split()
    assert sorted([*marked, "schema", ""]) == sorted(SECTIONS)
    assert "## `[schema]`" in page


def test_config_is_frozen(tmp_path: Path) -> None:
    config = load(tmp_path)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.name = "other"  # type: ignore[misc]
