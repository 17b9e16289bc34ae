"""A configuration file: every wrong key and value says what, where, and what is allowed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from config_files import DEFAULTS, GROWING, KEYED, PANELS, POINTS, PUBLIC, ROWS, load, write
from schema_check import faults

from dpstream.core.errors import BudgetError, ConfigError, DpstreamError, SchemaError, UnitError
from dpstream.families.registry import mechanisms
from dpstream.project import SECTIONS, Config
from dpstream.project.json_schema import json_schema
from dpstream.project.keys import keys_of

SCHEMA = json_schema()

# (parts, exception, what the message has to hold beside the file)
WRONG: dict[str, tuple[dict[str, str], type[DpstreamError], tuple[str, ...]]] = {
    "unknown section": (
        {"rest": "[budgets]\nepsilon = 1"},
        ConfigError,
        ("'budgets'", "a table", "did you mean 'budget'?", "mechanism"),
    ),
    "unknown key": (
        {"mechanism": 'stalenes = "1/2"'},
        ConfigError,
        ("[mechanism]", "'stalenes'", "'1/2'", "did you mean 'staleness'?", "max_cells"),
    ),
    "unknown key without a neighbour": (
        {"stream": "zzz = 1"},
        ConfigError,
        ("[stream]", "'zzz' (1)", "allowed", "unit"),
    ),
    "key of another kind of source": (
        {"source": 'order_column = "n"'},
        ConfigError,
        (
            "[source]",
            "unknown key 'order_column' ('n'); it belongs to kind = \"spark\" only",
        ),
    ),
    "long value is cut": ({"stream": f'zzz = "{"v" * 500}"'}, ConfigError, ("vvv...",)),
    "unit of another type": ({"stream": "unit = 3"}, ConfigError, ("[stream] unit", "3", "event-replace")),
    "unknown unit": ({"stream": 'unit = "evnt"'}, ConfigError, ("[stream] unit", "'evnt'", "event-replace")),
    "individual": ({"stream": 'unit = "individual"'}, UnitError, ("[stream] unit", "'individual'", "event")),
    "user without a bound": (
        {"stream": 'unit = "user"'},
        UnitError,
        ("[stream] unit", "'user'", "max_events"),
    ),
    "user without a column": (
        {"stream": 'unit = "user"\nmax_events = 3'},
        ConfigError,
        ("[source] user_column", "missing", "a column of the data"),
    ),
    "max_events 0": (
        {"stream": 'unit = "user"\nmax_events = 0'},
        ConfigError,
        ("[stream] max_events", "from 1"),
    ),
    "max_events beyond": (
        {"stream": 'unit = "user"\nmax_events = 1000001'},
        ConfigError,
        ("[stream] max_events", "1000001", "1 to 1000000"),
    ),
    "user and public sizes": (
        {"stream": 'unit = "user"\nmax_events = 3\ntotal = "public"'},
        ConfigError,
        ("[stream] total", "contradicts", "private"),
    ),
    "user and rows": (
        {"stream": 'unit = "user"\nmax_events = 3', "source": ROWS + '\nuser_column = "u"'},
        ConfigError,
        ("[source] rows", "publish the size"),
    ),
    "user column is an attribute": (
        {
            "stream": 'unit = "user"\nmax_events = 3',
            "source": DEFAULTS["source"] + '\nuser_column = "zip"',
        },
        ConfigError,
        ("[source] user_column", "'zip'", "schema"),
    ),
    "user column is the time column": (
        {
            "stream": 'unit = "user"\nmax_events = 3',
            "source": DEFAULTS["source"] + '\nuser_column = "step"',
        },
        ConfigError,
        ("[source]", "user_column", "two columns"),
    ),
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
    "points with private sizes": (
        {"mechanism": 'name = "points"'},
        ConfigError,
        ("[stream] total", "number is public", 'total = "public"'),
    ),
    "points with deletes": (
        {**POINTS["points"], "source": DEFAULTS["source"] + '\nop_column = "op"'},
        ConfigError,
        ("[source] op_column", "do not leave"),
    ),
    "points and delta": (
        {**POINTS["points"], "budget": 'epsilon = "1"\ndelta = "1e-9"'},
        BudgetError,
        ("without delta",),
    ),
    "points on a scale of 0": (
        {**POINTS["points"], "mechanism": 'name = "points"\nlog = ["rent"]'},
        SchemaError,
        ("[mechanism] column 'rent'", "positive numbers"),
    ),
    "points of other columns": (
        {**POINTS["points"], "mechanism": 'name = "points"\nperiodic = ["zip"]'},
        ConfigError,
        ("[mechanism] periodic", "'zip' is no coordinate", "rent"),
    ),
    "points with a table before them": (
        {**POINTS["points"], "rest": '[base]\nreleases = "old"'},
        ConfigError,
        ("[base]", "cannot begin"),
    ),
    "points and workloads": (
        {**POINTS["points"], "mechanism": 'name = "points"\nk = 3'},
        ConfigError,
        ("[mechanism] k", "'points' has no option", "max_depth"),
    ),
    "option of the other": (
        {"mechanism": 'name = "baseline"\ncounter = "simple"'},
        ConfigError,
        ("[mechanism] counter", "'baseline' has no option", "offline"),
    ),
    "option of the baseline": (
        {"mechanism": 'name = "dpstabs"\nprior = "uniform"'},
        ConfigError,
        ("[mechanism] prior", "'dpstabs' has no option", "max_cells"),
    ),
    "option of another mechanism than the default": (
        {"mechanism": 'workload = "all-2-way"\ncounter = "simple"'},
        ConfigError,
        (
            "[mechanism] counter",
            "the default, 'pooled', which has no option 'counter'",
            'name = "dpstabs"',
            "staleness",
        ),
    ),
    "option of the baseline alone": (
        {"mechanism": 'offline = "aim"'},
        ConfigError,
        ("[mechanism] offline", "the default, 'pooled'", 'name = "baseline"'),
    ),
    "offline": (
        {"mechanism": 'name = "baseline"\noffline = "mst"'},
        ConfigError,
        ("[mechanism] offline", "'mst'", "mwem-pgm, aim"),
    ),
    "option of the other offline mechanism": (
        {"mechanism": 'name = "baseline"\noffline = "aim"\nk = 2'},
        ConfigError,
        ("[mechanism] k", "offline = 'aim' has no option 'k'", 'with offline = "mwem-pgm"'),
    ),
    "k of 0": ({"mechanism": 'name = "dpstabs"\nk = 0'}, ConfigError, ("[mechanism] k", "0", "1 to")),
    "k true": ({"mechanism": 'name = "dpstabs"\nk = true'}, ConfigError, ("[mechanism] k", "True")),
    "k text": ({"mechanism": 'name = "dpstabs"\nk = "3"'}, ConfigError, ("[mechanism] k", "'3'")),
    "k above the workload": (
        {"mechanism": 'name = "dpstabs"\nk = 4'},
        ConfigError,
        ("[mechanism]", "4", "1 to 3"),
    ),
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
    "workload of pairs with no column": (
        {"mechanism": 'workload = ["all-1-way", {pairs_with = ["piad"], weight = 2}]'},
        ConfigError,
        ("[mechanism] workload table 2", "'piad'", "zip"),
    ),
    "workload too wide": ({"mechanism": 'workload = "all-4-way"'}, ConfigError, ("workload", "3")),
    "counter": (
        {"mechanism": 'name = "dpstabs"\ncounter = "tre"'},
        ConfigError,
        ("[mechanism] counter", "did you mean 'tree'?"),
    ),
    "counter needs a horizon": (
        {"mechanism": 'name = "dpstabs"\ncounter = "tree"'},
        ConfigError,
        ("[mechanism]", "'tree' needs a horizon", "simple"),
    ),
    "an argument of Python": (
        {"mechanism": 'name = "dpstabs"\nscore = "mean-cells"'},
        ConfigError,
        ("[mechanism]", "unknown key 'score'"),
    ),
    "prior": (
        {"mechanism": 'name = "baseline"\nprior = "none"'},
        ConfigError,
        ("[mechanism] prior", "'none'", "previous, uniform"),
    ),
    "share of 1": (
        {"mechanism": "staleness = 1"},
        ConfigError,
        ("[mechanism] staleness", "above 0, up to 1/2"),
    ),
    "share text": ({"mechanism": 'staleness = "half"'}, ConfigError, ("staleness", "'half'")),
    "share nan": ({"mechanism": "staleness = nan"}, ConfigError, ("staleness", "nan")),
    "share over zero": ({"mechanism": 'staleness = "1/0"'}, ConfigError, ("staleness", "1/0")),
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
        for text in ("0", "-1", "nan", "inf", "1e9", '"0"', '"-0.5"', '"1e9"')
    },
    **{
        f"epsilon {text}": (
            {"budget": f"epsilon = {text}"},
            ConfigError,
            ("[budget] epsilon", "is not a number", "up to 1000"),
        )
        for text in ('"NaN"', '"one"', '""', '"1/0"')
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
    with pytest.raises(ConfigError, match="this is a folder"):
        Config.load(tmp_path)
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not TOML"):
        Config.load(tmp_path / "x.toml")


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


@pytest.mark.parametrize(
    "key", [f"{section}.{key}" for section in SECTIONS if section for key in keys_of(section)]
)
@pytest.mark.parametrize("mechanism", mechanisms())
def test_no_value_of_any_key_is_a_bug(key: str, mechanism: str, tmp_path: Path) -> None:
    """Whatever stands there, it is used or refused by name."""
    section, name = key.split(".")
    for odd in ODD:
        parts = {
            **DEFAULTS,
            "mechanism": f'name = "{mechanism}"',
            **{**PANELS, **POINTS, **GROWING, **KEYED}.get(mechanism, {}),
        }
        field = section if section in ("stream", "source", "mechanism", "budget") else "rest"
        head = f"[{section}]\n" if field == "rest" else ""
        kept = [line for line in parts[field].splitlines() if not line.startswith(f"{name} ")]
        parts[field] = "\n".join([head, *kept, f"{name} = {odd}"])
        path = write(tmp_path, **parts)
        if key == "stream.name":
            path.write_text(path.read_text().replace('name = "test"\n', ""))
        message = refusal(path)
        assert message is None or f"[{section}]" in message
        if message is None:  # what is used, editors do not refuse
            assert faults(SCHEMA, tomllib.loads(path.read_text(encoding="utf-8"))) == []


def refusal(path: Path) -> str | None:
    try:
        Config.load(path)
    except DpstreamError as error:
        return str(error)
    return None
