"""A configuration file: every wrong key and value says what, where, and what is allowed; so does its JSON schema."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from cli_stream import dpstream
from small_configs import DEFAULTS, POINTS, PUBLIC, RENT, ROWS, load, of_mechanism, write_config

from dpstream.core.errors import BudgetError, ConfigError, DpstreamError, SchemaError, UnitError
from dpstream.families.registry import mechanisms
from dpstream.project import SECTIONS, Config
from dpstream.project.json_schema import json_schema
from dpstream.project.keys import keys_of
from dpstream.tools.simulate import EXAMPLES, simulate


@functools.cache
def _validator() -> Any:
    return jsonschema_rs.validator_for(json_schema())


def faults(document: dict[str, Any]) -> list[str]:
    """What is wrong with a document that TOML gave, as ``place: words``; dates are texts, as editors have them."""
    texts = json.loads(json.dumps(document, default=lambda day: day.isoformat()))
    found = _validator().iter_errors(texts)
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in found]


Case = tuple[dict[str, str], tuple[str, ...], type[DpstreamError]]


def case(part: str, text: str, *words: str, kind: type[DpstreamError] = ConfigError, **parts: str) -> Case:
    return {part: text, **parts}, words, kind


stream, source, mechanism, budget, rest = (
    partial(case, part) for part in ("stream", "source", "mechanism", "budget", "rest")
)


def more(text: str, *words: str) -> Case:
    """Further keys of a source that is right without them."""
    return source(f"{DEFAULTS['source']}\n{text}", *words)


def dpstabs(text: str, *words: str) -> Case:
    return mechanism(f'name = "dpstabs"\n{text}', *words)


def points(text: str, *words: str, kind: type[DpstreamError] = ConfigError, **parts: str) -> Case:
    return {**POINTS["points"], "mechanism": f'name = "points"\n{text}', **parts}, words, kind


USERS = 'unit = "user"\nmax_events = 3'
BY_USER = DEFAULTS["source"] + '\nuser_column = "person"'
#: What the message has to hold beside the file.
WRONG: list[Case] = [
    rest("[budgets]\nepsilon = 1", "'budgets'", "a table", "did you mean 'budget'?", "mechanism"),
    mechanism('stalenes = "1/2"', "[mechanism]", "'stalenes'", "'1/2'", "did you mean 'staleness'?", "max_cells"),
    source('order_column = "n"', "[source]", "unknown key 'order_column'", 'belongs to kind = "spark" only'),
    stream(f'zzz = "{"v" * 500}"', "vvv..."),
    stream('unit = "evnt"', "[stream] unit", "'evnt'", "event-replace"),
    stream('unit = "individual"', "[stream] unit", "'individual'", "event", kind=UnitError),
    stream('unit = "user"', "[stream] unit", "'user'", "max_events", kind=UnitError),
    stream(USERS, "[source] user_column", "missing", "a column outside the schema"),
    stream('unit = "user"\nmax_events = 1000001', "[stream] max_events", "1000001", "1 to 1000000"),
    stream(f'{USERS}\ntotal = "public"', "[stream] total", "contradicts", "private"),
    stream(USERS, "[source] rows", "publish sizes", source=f'{ROWS}\nuser_column = "u"'),
    stream(USERS, "[source] user_column", "'zip'", "schema", source=f'{DEFAULTS["source"]}\nuser_column = "zip"'),
    stream(USERS, "[source]", "user_column", "two columns", source=f'{DEFAULTS["source"]}\nuser_column = "step"'),
    stream("max_events = 3", "[stream] max_events", "user"),
    stream('per = "3 steps"', "[stream] per", "unit = event", 'unit = "user"'),
    stream(f'{USERS}\nper = "life"', "[stream] per", "'life'", "year", source=BY_USER),
    stream(f'{USERS}\nper = "year"', "[stream] per", "'year' needs a calendar", "13 steps", source=BY_USER),
    stream(
        f'{USERS}\nper = "month"',
        "[stream] per",
        "a month is shorter than a step",
        "a longer period",
        source=BY_USER.replace("end = 9", 'every = "3 months"\nstart = 2020-01-01\nend = 2025-01-01'),
    ),
    stream('max_events_from = "data"', "[stream] max_events_from", "only max_events", "leave it out"),
    stream(f'{USERS}\nmax_events_from = "me"', "[stream] max_events_from", "'me'", "public", "data"),
    stream('unit = "event-replace"\ntotal = "private"', "[stream] total", "contradicts", "event-replace"),
    more('user_column = "u"', "[source] user_column", "user"),
    source(ROWS, "[source] rows", "50", "publish sizes", 'total = "public"'),
    source(f'{ROWS}\nevery = "week"', "[source]", "every", stream=PUBLIC),
    source('time_column = "step"', "[source] path", "missing"),
    source('path = "d.csv"\ntime_column = "zip"\nend = 3', "[source] time_column", "'zip'", "schema"),
    more('op_column = "paid"', "[source] op_column", "'paid'", "schema"),
    mechanism('name = "dpstab"', "[mechanism] name", "did you mean 'dpstabs'?", "baseline"),
    mechanism('name = "points"', "[stream] total", "points cannot protect the unit 'event'", 'total = "public"'),
    points("", "[source] op_column", "do not leave", source=f'{DEFAULTS["source"]}\nop_column = "op"'),
    points("", "without delta", kind=BudgetError, budget='epsilon = "1"\ndelta = "1e-9"'),
    points('log = ["rent"]', "[mechanism] column 'rent'", "positive numbers", kind=SchemaError),
    points('periodic = ["zip"]', "[mechanism] periodic", "'zip': expected a coordinate", "rent"),
    points("", "[base]", "cannot begin", rest='[base]\nreleases = "old"'),
    mechanism('name = "baseline"\ncounter = "simple"', "[mechanism] counter", "'baseline' has no option", "offline"),
    mechanism('counter = "simple"', "the default mechanism 'pooled' has no option", 'name = "dpstabs"', "staleness"),
    mechanism('name = "baseline"\noffline = "aim"\nk = 2', "'aim' has no option 'k'", 'with offline = "mwem-pgm"'),
    mechanism('name = "baseline"\nk = 4', "[mechanism] k", "4", "1 to 3"),
    dpstabs("k = true", "[mechanism] k", "True", "1 to 3"),
    mechanism('workload = "all-pairs"', "[mechanism] workload", "'all-pairs'", "all-2-way"),
    mechanism('workload = [["zip", "piad"]]', "[mechanism] workload", "'piad'", "zip"),
    mechanism('workload = ["all-1-way", {pairs_with = ["piad"]}]', "[mechanism] workload table 2", "'piad'", "zip"),
    mechanism('workload = "all-4-way"', "workload", "3"),
    dpstabs('counter = "tree"', "[mechanism]", "'tree' needs a horizon", "simple"),
    mechanism("staleness = 1", "[mechanism] staleness", "above 0, up to 1/2"),
    mechanism('staleness = "1/0"', "staleness", "1/0"),
    mechanism("max_cells = 2.5", "[mechanism] max_cells", "2.5"),
    budget("", "[budget]", "the budget is missing", "epsilon, or rho"),
    budget('epsilon = "1"\nrho = "1"', "[budget]", "epsilon and rho"),
    budget('delta = "1e-9"', "[budget]", "delta"),
    budget("epsilon = true", "[budget] epsilon", "True"),
    *(
        budget(f"epsilon = {text}", "[budget] epsilon", "a positive number up to 1000", kind=BudgetError)
        for text in ("0", "-1", "nan", "inf", '"0"', '"-0.5"', '"1e9"')
    ),
    *(
        budget(f"epsilon = {text}", "[budget] epsilon", "is not a number", "up to 1000")
        for text in ('"NaN"', '"one"', '""', '"1/0"')
    ),
    budget("rho = 0", "[budget] rho", "positive", kind=BudgetError),
    budget('epsilon = "1"\ndelta = "0"', "[budget] delta", "positive", kind=BudgetError),
    budget('epsilon = "1"\ndelta = "1"', "[budget] delta", "below 1", kind=BudgetError),
    budget('epsilon = "1"\nhorizon = "forever"', "[budget] horizon", "none, or a number"),
    rest('[output]\ndir = ""', "[output] dir", "''"),
    rest("[output]\nkeep = 0", "[output] keep", "0", "all"),
    rest("[output]\nfull_every = 3", "[output] full_every", "with publish = 'full'", 'publish = "changes"'),
    rest('[output]\ndir = "out"\n[state]\ndir = "out/state"', "[state] dir", "out/state", "two separate folders"),
    rest('[output]\ndir = "s/releases"\n[state]\ndir = "s"', "[state] dir", "two separate folders"),
    rest('[output]\ndir = "x"\n[state]\ndir = "y/../x"', "[state] dir", "two separate folders"),
    rest('[schema.columns.rent]\ntype = "real"\nedge = [0, 1]', "'edge'", "did you mean 'edges'?", kind=SchemaError),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "words", "kind"), WRONG)
def test_wrong_files_say_what_where_and_what_is_allowed(
    parts: dict[str, str], words: tuple[str, ...], kind: type[DpstreamError], tmp_path: Path
) -> None:
    with pytest.raises(DpstreamError) as caught:
        load(tmp_path, **parts)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert [word for word in words if word not in text] == []
    assert text.count("dpstream.toml") == 1
    assert caught.value.allowed
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format = 2\n", ("format", "2", "allowed: 1")),
        ("formt = 1\n", ("'formt'", "did you mean 'format'?")),
        ("budget = 3\n", ("budget = 3", "section [budget]")),
        ("[stream\n", ("invalid TOML", "line 1")),
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
    assert [word for word in ("dpstream.toml", *words) if word not in str(caught.value)] == []


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    for path, words in (("none.toml", "No such file"), (".", "this is a folder"), ("x.toml", "invalid TOML")):
        with pytest.raises(ConfigError, match=words):
            Config.load(tmp_path / path)


ODD = [
    *("0", "-1", "1.5", "nan", "1e400", "9223372036854775807", '"1e400000000"', "true", "2026-01-05"),
    *('""', '"x"', '" "', '"+1"', '"\u0661"', '"a\\u0000b"', '"a\\u001b[31mb\\nc"', f'"{"x" * 6000}"'),
    *("[]", '[""]', '["", 1]', "[[[[]]]]", "[" * 300 + "]" * 300, "{}", "{a = 1}", '{"" = {x = 1}}'),
]
#: Of these every key is looked at, of the others their options.
USUAL = ("pooled", "census", "panel-window", "points")
KEYS = [
    (section, key.name, mechanism)
    for section in SECTIONS
    for key in keys_of(section).values()
    for mechanism in mechanisms()
    if section and (mechanism in USUAL or mechanism in key.mechanisms)
]


@pytest.mark.parametrize(("section", "name", "mechanism"), KEYS)
def test_no_value_of_any_key_is_a_bug(section: str, name: str, mechanism: str, tmp_path: Path) -> None:
    """Whatever stands there, it is used or refused by name."""
    for odd in ODD:
        parts = {**DEFAULTS, **of_mechanism(mechanism)}
        field = section if section in ("stream", "source", "mechanism", "budget") else "rest"
        head = f"[{section}]\n" if field == "rest" else ""
        kept = [line for line in parts[field].splitlines() if not line.startswith(f"{name} ")]
        parts[field] = "\n".join([head, *kept, f"{name} = {odd}"])
        path = write_config(tmp_path, **parts)
        if (section, name) == ("stream", "name"):
            path.write_text(path.read_text().replace('name = "test"\n', ""))
        message = refusal(path)
        # What follows from a number is refused where it is used, too.
        assert message is None or f"[{section}]" in message or odd[:15] in message
        assert "\n" not in (message or "")
        if message is None:  # what is used, editors do not refuse
            assert faults(tomllib.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "spot", ["zip.values", "zip.other", "rent.edges", "rent.outside", "rent.type", "rent"]
)
def test_no_value_in_a_column_is_a_bug(spot: str, tmp_path: Path) -> None:
    column, _, option = spot.partition(".")
    for odd in ODD:
        path = write_config(tmp_path, **POINTS["points"])
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        value = tomllib.loads(f"x = {odd}")["x"]
        columns = document["schema"]["columns"]
        columns[column] = {**columns[column], option: value} if option else value
        message = refusal(path, document)
        assert message is None or "[schema]" in message


def refusal(path: Path, document: dict[str, Any] | None = None) -> str | None:
    try:
        Config.load(path, document=document)
    except DpstreamError as error:
        return str(error)
    return None


# The JSON schema


ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "dpstream.schema.json"


def whole_files() -> dict[str, str]:
    """Every configuration in the documentation that is a whole file, and the golden draft of ``init``."""
    found = {"golden_draft": (ROOT / "tests" / "schema" / "golden_draft.toml").read_text(encoding="utf-8")}
    for page in sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")]):
        blocks = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        wholes = [text for text in blocks if {"stream", "budget", "schema"} <= set(tomllib.loads(text))]
        found |= {f"{page.relative_to(ROOT)} {number}": text for number, text in enumerate(wholes)}
    return found


def test_the_committed_schema_is_the_one_that_is_made() -> None:
    assert json.loads(PAGE.read_text(encoding="utf-8")) == json_schema(), (
        "make it again: python -m dpstream.project.json_schema > docs/reference/dpstream.schema.json"
    )


def test_a_draft_names_the_schema_beside_it(tmp_path: Path) -> None:
    """Editors find it without a network, also after the folder has moved; nothing that is there is replaced."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.csv").write_text("day,zip\n2026-01-05,10101\n", encoding="utf-8")
    for name in ("first.toml", "second.toml"):
        out = tmp_path / name
        dpstream("init", tmp_path / "data", "--time-column", "day", "--out", out)
        line = out.read_text(encoding="utf-8").splitlines()[0]
        beside = tmp_path / line.removeprefix("#:schema ")
        if name == "first.toml":
            assert json.loads(beside.read_text(encoding="utf-8")) == json_schema()
            beside.write_text("{}", encoding="utf-8")
    assert beside.read_text(encoding="utf-8") == "{}"
    assert json.loads(dpstream("init", "--json-schema").output) == json_schema()


def test_every_example_of_the_repository_fits() -> None:
    files = whole_files()
    assert len(files) > 3
    found = {name: faults(tomllib.loads(text)) for name, text in files.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_simulated_stream_fits(example: str, tmp_path: Path) -> None:
    config = simulate(example, 6, tmp_path)
    assert faults(tomllib.loads(config.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("key", ["per", "periods"])
def test_editors_and_the_program_take_the_same_periods(key: str, tmp_path: Path) -> None:
    days = 'path = "data/*.csv"\ntime_column = "day"\nevery = "day"\nstart = "2024-01-01"\nend = "2024-12-30"'
    taken = list[str]()
    for text in ("day", "week", "month", "quarter", "year", "years", "12", "1 step", "12 steps", "0 steps"):
        parts = {"rest": f'[accuracy]\nheadline = ["zip"]\nperiods = "{text}"', "source": days}
        if key == "per":
            unit = f'unit = "user"\nmax_events = 3\nper = "{text}"'
            parts = {"stream": unit, "source": f'{days}\nuser_column = "who"'}
        document = tomllib.loads(write_config(tmp_path, **parts).read_text(encoding="utf-8"))
        try:
            load(tmp_path, **parts)
        except ConfigError:
            assert faults(document) != [], text
        else:
            assert faults(document) == [], text
            taken.append(text)
    assert taken == ["week", "month", "quarter", "year", "1 step", "12 steps"][key == "per" :]


@pytest.mark.parametrize("mechanism", mechanisms())
def test_a_file_of_every_mechanism_fits_and_those_of_others_do_not(mechanism: str, tmp_path: Path) -> None:
    schema = json_schema()
    parts = of_mechanism(mechanism)
    document = tomllib.loads(write_config(tmp_path, **parts).read_text(encoding="utf-8"))
    load(tmp_path, **parts)
    assert faults(document) == []
    section = schema["properties"]["mechanism"]
    rules = {rule["if"]["properties"]["name"]["const"]: rule["then"] for rule in section["allOf"]}
    own = set(rules[mechanism]["propertyNames"]["enum"])
    foreign = sorted(set(section["properties"]) - own)
    assert foreign
    for key in foreign:
        wrong = {**document, "mechanism": {**document["mechanism"], key: 1}}
        assert any(one.startswith(f'mechanism: "{key}" is not one of ') for one in faults(wrong))
    for key in rules[mechanism]["required"]:
        rest = {name: value for name, value in document["mechanism"].items() if name != key}
        assert f'mechanism: "{key}" is a required property' in faults({**document, "mechanism": rest})


@pytest.mark.parametrize(
    ("section", "line", "fault"),
    [
        ("stream", "zzz = 1", "stream: Additional properties are not allowed ('zzz'"),
        ("mechanism", 'workload = "all-pairs"', "mechanism.workload: "),
        ("mechanism", "staleness = true", "mechanism.staleness: true is not of types "),
        ("mechanism", "iterations = 0", "mechanism.iterations: 0 is less than the minimum of 1"),
        ("mechanism", 'name = "dpstab"', 'mechanism.name: "dpstab" is not one of '),
        ("rest", "[base]\nstep = 1", 'base: "releases" is a required property'),
        ("rest", RENT.replace("edges", "edge"), 'schema.columns.rent: "edge" is not one of '),
    ],
)
def test_wrong_files_are_told(section: str, line: str, fault: str, tmp_path: Path) -> None:
    document = tomllib.loads(write_config(tmp_path, **{section: line}).read_text(encoding="utf-8"))
    assert any(one.startswith(fault) for one in faults(document)), faults(document)
