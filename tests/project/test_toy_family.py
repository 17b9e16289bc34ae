"""Families, sources and sinks of other packages: found through their entry points, without a line in the source."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import cli_stream
import pytest
from installed import install
from report_pages import Page
from small_configs import PAID, ZIP, rewrite, write_config, write_rows

from dpstream.core.contracts import Family, option
from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.families import registry
from dpstream.io.sinks import read_manifest, read_table
from dpstream.io.sources.source_keys import SourceKind
from dpstream.project import Config
from dpstream.project.json_schema import json_schema
from dpstream.project.keys import keys_of

HERE = Path(__file__).parent / "toy_family"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed toy family, and a file that uses it."""
    install(tmp_path / "site", "toyfamily", families="histogram = toy_family:FAMILY")
    for place in (HERE, tmp_path / "site"):
        monkeypatch.syspath_prepend(str(place))
    write_rows(tmp_path, "d.csv", "step,zip,paid", ["1,a,true", "1,b,false", "2,c,true"])
    return write(tmp_path)


def dpstream(*arguments: object, code: int = 0) -> str:
    return cli_stream.dpstream(*arguments, code=code, error=False).output


def write(folder: Path, old: str = "", new: str = "") -> Path:
    path = write_config(
        folder,
        name="toy",
        source='path = "data/*.csv"\ntime_column = "step"\nend = 2',
        columns=ZIP + PAID,
        mechanism='name = "histogram"\ncolumn = "zip"',
    )
    return rewrite(path, old, new) if old else path


def test_it_runs_and_every_text_says_something_true_of_it(toy: Path) -> None:
    """It explains nothing itself: these are the words for any mechanism."""
    dpstream("plan", toy)
    dpstream("run", toy)
    assert len(list((toy.parent / "releases").rglob("*.parquet"))) == 2
    statement = " ".join(dpstream("statement", toy).replace("\\", "").split())
    assert "A record is charged in its step only" in statement
    assert "toy · 2 steps released" in dpstream("status", toy)
    manifest = read_manifest(toy.parent / "releases", 2)
    assert "The listed marginal is measured at every step" in manifest["accuracy"]["words"]
    assert manifest["spent"]["composition"].startswith("parallel over steps")
    book = json.loads((toy.parent / "releases/codebook.json").read_text())
    assert [field["name"] for field in book["resources"][0]["schema"]["fields"]] == ["zip", "paid"]


def test_it_is_reported_and_evaluated(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The family brings nothing: its page is made of manifests, and its tables are compared column by column."""
    dpstream("run", toy, "--test-seed", 1)
    dpstream("report", toy, "--out", toy.parent / "page.html")
    page = Page(toy.parent / "page.html")
    assert page.chart("Rows per release")["released (noisy)"] == [
        read_manifest(toy.parent / "releases", step)["rows_in_table"] for step in (1, 2)
    ]
    words = " ".join(page.words.split())
    for text in ("This guarantee protects", "From the codebook", "zip 3", "paid 2", "How wrong it can be"):
        assert text in words
    assert "lacks heat maps" in dpstream("report", toy, "--pair", "zip", "paid", "--out", "x.html", code=2)
    facts = json.loads(dpstream("evaluate", toy, "--json"))
    assert (facts["workload"], facts["marginals"]) == ("all-1-way", 2)
    for one in facts["worst_workloads"]:
        (column,) = one["columns"]
        made = read_table(toy.parent / "releases", 2).column(column).to_pylist()
        true = {"zip": ["a", "b", "c"], "paid": [True, False, True]}[column]
        distance = sum(abs(true.count(value) - made.count(value)) for value in {*true, *made})
        assert one["L1"] == pytest.approx(distance / 3)
    assert json.loads(dpstream("evaluate", toy, "--json", "--workload", "all-2-way"))["marginals"] == 1
    assert "Pictures" not in dpstream("evaluate", toy)
    # Who has the public folder only need not have the family's package.
    shutil.copytree(toy.parent / "releases", toy.parent / "public")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.startswith(str(toy.parent))])
    dpstream("report", toy.parent / "public", "--out", toy.parent / "public.html")
    assert (toy.parent / "public.html").read_bytes() == (toy.parent / "page.html").read_bytes()


def test_its_draft_says_its_options_and_runs_when_it_is_filled_in(toy: Path) -> None:
    draft = toy.with_name("draft.toml")
    data = toy.parent / "data"
    dpstream(
        "init", data, "--public", "*", "--time-column", "step", "--mechanism", "histogram", "--out", draft
    )
    text = draft.read_text(encoding="utf-8")
    for line in (
        'column = "FILL IN"  # FILL IN',
        "# What becomes of the noisy counts. Allowed: none, whole. Default: none (the noise is whole already).",
        '# rounding = "none"',
    ):
        assert line in text.splitlines(), line
    assert "next-step" not in text, "a histogram is never late"
    for old, new, words in (
        ('"FILL IN"', '"zip"', "start, end, records_per_step, column, epsilon are marked FILL IN"),
        ('start = "zip"', "start = 1", "start: expected a step number"),
        ('end = "zip"', "end = 2", "end must be a step number"),
        ("confirmed = false", "confirmed = true", "the schema is an unconfirmed draft"),
        ("# FILL IN", "#", "marked FILL IN, which a run refuses: start, end, records_per_step, "),
    ):
        assert words in " ".join(dpstream("check", draft, code=2).split())
        text = text.replace(old, new)
        draft.write_text(text, encoding="utf-8")
    assert "2 steps read: all rows fit the schema" in dpstream("check", draft)
    dpstream("run", draft)
    # With the bins that a draft has, no value stops it; without them one does.
    (data / "e.csv").write_text("step,zip,paid\n1,elsewhere,true\n", encoding="utf-8")
    assert json.loads(dpstream("check", draft, "--json"))["problems"] == []
    draft.write_text(text.replace('other = "other"\n', ""), encoding="utf-8")
    (found,) = json.loads(dpstream("check", draft, "--json", code=2))["problems"]
    assert "column 'zip'" in found
    assert "elsewhere" not in found
    refused = dpstream(
        "init", data, "--person-column", "zip", "--mechanism", "histogram", "--out", "x", code=2
    )
    assert "a stream of histograms has no use for a person column" in " ".join(refused.split())


def test_a_successor_begins_with_its_table(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy.parent / "data" / "d.csv").write_text(
        "step,zip,paid\n" + "1,a,true\n2,b,false\n3,c,true\n4,c,true\n" * 400, encoding="utf-8"
    )
    write(toy.parent, 'epsilon = "1"', 'epsilon = "100"')
    dpstream("run", toy, "--test-seed", 1)
    following = toy.with_name("next.toml")
    dpstream("init", "--after", toy, "--out", following)
    assert tomllib.loads(following.read_text(encoding="utf-8"))["source"]["start"] == 3
    assert json.loads(dpstream("plan", following, "--json"))["base"]["step"] == 2
    dpstream("run", following, "--test-seed", 2)
    config = Config.load(following)
    table = read_table(config.output.dir, 2)
    counts = Counter(table.column("zip").to_pylist())
    # Two tables are drawn, of 800 and 1600 rows: standard errors below 15 and 21 (false alarms below 1e-13). Without
    # the base there would be no "a".
    for value, expected in {"a": 400, "b": 400, "c": 800}.items():
        assert abs(counts[value] - expected) <= 200
    assert "began with the public release of step 2" in json.dumps(read_manifest(config.output.dir, 2))
    for verb in ("status", "statement", "evaluate"):
        dpstream(verb, following)
    dpstream("report", following, "--out", toy.with_name("next.html"))
    import toy_family

    old = toy_family.FAMILY
    monkeypatch.setattr(toy_family, "FAMILY", replace(old, limits=replace(old.limits, base=False)))
    refused = dpstream("init", "--after", toy, "--out", toy.with_name("again.toml"), code=2)
    assert "the mechanism 'histogram' cannot begin with another stream's table" in " ".join(refused.split())
    with pytest.raises(ConfigError, match="a stream of histograms cannot begin with another stream's table"):
        Config.load(following)


def test_it_can_bring_an_evaluation_and_a_page(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import toy_family

    dpstream("run", toy, "--test-seed", 1)
    own = {"evaluation": "toy_tools:EVALUATION", "page": "toy_tools:PAGE"}
    monkeypatch.setattr(toy_family, "FAMILY", replace(toy_family.FAMILY, tools=own))
    assert json.loads(dpstream("evaluate", toy, "--json"))["released"] == [1, 2]
    assert (toy.parent / "evaluation" / "steps.csv").stat().st_mode & 0o777 == 0o600
    refused = dpstream("evaluate", toy, "--target", "paid", code=2)
    assert "--target does not fit this stream (allowed: --out, --releases" in " ".join(refused.split())
    dpstream("report", toy, "--out", toy.parent / "page.html")
    assert "A toy has 3 values" in Page(toy.parent / "page.html").words
    monkeypatch.setattr(toy_family, "FAMILY", replace(toy_family.FAMILY, name="points", tools={}))
    # A name gives nobody's tools.
    assert json.loads(dpstream("evaluate", toy, "--json"))["workload"] == "all-1-way"
    for gone in ("toy_tools:NOBODY", "toy_gone:PAGE", "toy_tools"):
        monkeypatch.setattr(toy_family, "FAMILY", replace(toy_family.FAMILY, tools={"evaluation": gone}))
        assert "the evaluation of the family 'points'" in dpstream("evaluate", toy, code=2)


def test_its_options_are_in_the_table_and_in_the_json_schema(toy: Path) -> None:
    rows = keys_of("mechanism")
    assert (rows["column"].default, rows["rounding"].allowed) == (None, "none, whole")
    assert rows["column"].mechanisms == rows["rounding"].mechanisms == ("histogram",)
    assert "histogram" in rows["name"].allowed
    section = json_schema()["properties"]["mechanism"]
    assert section["properties"]["rounding"]["enum"] == ["none", "whole"]
    assert [rule["then"] for rule in section["allOf"]][-1] == {
        "propertyNames": {"enum": ["name", "column", "rounding"]},
        "required": ["column"],
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('column = "zip"', "", ("[mechanism] column", "missing")),
        ('column = "zip"', 'column = "rent"', ("[mechanism] column", "'rent' is no column", "zip, paid")),
        ('column = "zip"', 'column = "zip"\nrounding = "up"', ("[mechanism] rounding", "none, whole")),
        ('column = "zip"', 'column = "zip"\nk = 2', ("[mechanism] k", "'histogram' has no option", "column")),
        ('column = "zip"', 'colum = "zip"', ("'colum'", "did you mean 'column'?")),
        ('name = "histogram"\n', "", ("the default mechanism 'pooled'", 'name = "histogram"')),
        ('name = "toy"', 'name = "toy"\ntotal = "public"', ("cannot protect the unit 'event-replace'",)),
        ("end = 2", 'end = 2\nop_column = "op"', ("[source] op_column", "does not forget")),
        ("end = 2", 'end = 2\nlate = "next-step"', ("[source] late", "never late", "error, drop")),
        ('epsilon = "1"', 'rho = "1"', ("a toy has a pure guarantee",)),
        ('epsilon = "1"', 'epsilon = "1"\n[output]\nrecords = "persistent"', ("[output] records", "fresh")),
    ],
)
def test_its_limits_are_kept(toy: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    with pytest.raises(DpstreamError) as caught:
        Config.load(write(toy.parent, old, new))
    for word in words:
        assert word in str(caught.value)


def test_commands_for_tables_say_what_it_is(toy: Path) -> None:
    with pytest.raises(ConfigError, match=r'one of histograms, and compare .*"pooled", "dpstabs" or'):
        Config.load(toy).table_recipe("compare")


def test_two_packages_with_one_name_are_refused(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        toy.parent / "other",
        "otherfamily",
        families="histogram = toy_family:FAMILY\npoints = toy_family:FAMILY",
    )
    monkeypatch.syspath_prepend(str(toy.parent / "other"))
    with pytest.raises(ConfigError, match=r"'(other|toy)family' and the package '(other|toy)family' both"):
        Config.load(toy)
    with pytest.raises(ConfigError, match="the package 'otherfamily' both bring the mechanism 'points'"):
        registry.family_of("points")
    with pytest.raises(ConfigError, match="both bring"):
        registry.families()
    # Streams of other mechanisms go on.
    assert "pooled" in registry.family_of("pooled").mechanisms


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("toy_family_that_is_gone:FAMILY", "cannot be loaded: ModuleNotFoundError"),
        ("toy_family:NOBODY", "cannot be loaded: AttributeError"),
        ("toy_family:LOADED", "lacks a Family with that name"),
    ],
)
def test_a_broken_package_is_named(
    value: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "brokenfamily", families=f"histogram = {value}")
    for place in (HERE, tmp_path / "site"):
        monkeypatch.syspath_prepend(str(place))
    with pytest.raises(ConfigError) as caught:
        Config.load(write(tmp_path))
    assert words in str(caught.value)
    assert "the package 'brokenfamily'" in str(caught.value)


def test_families_are_loaded_when_they_are_asked_for() -> None:
    """In a process of its own: asking for one mechanism loads no other family, and naming them loads none."""
    code = (
        "import sys; from dpstream.families import registry\n"
        "names = lambda: [n for n in sys.modules if n.startswith('dpstream.families.') and n.count('.') == 2]\n"
        "loaded = lambda: [n for n in names() if n != 'dpstream.families.registry']\n"
        "registry.mechanisms(); print(loaded()); registry.family_of('points'); print(loaded())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "['dpstream.families.points']"]


def test_every_family_says_what_it_is() -> None:
    """Of all families: each mechanism is in one family, and every sentence that may be needed is there."""
    found = registry.families()
    names = [name for family in found for name in family.mechanisms]
    assert sorted(names) == sorted(set(names)) == sorted(registry.mechanisms())
    for family in found:
        limits = family.limits
        assert isinstance(family, Family)
        assert family.noun.startswith(("a ", "one "))
        assert limits.records
        if set(limits.units) != {"event", "event-replace", "user"}:
            assert "{unit!r}" in limits.other_units
        for key in family.keys:
            assert key.allowed, key.name
            assert key.meaning, key.name
            assert key.fragment, key.name
            assert key.default is None or key.reason, key.name
            assert set(key.mechanisms) <= set(family.mechanisms)


# Sources and sinks


TOY_IO = Path(__file__).parent / "toy_io"


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package, private rows, and a file that uses them; we are in its folder."""
    install(tmp_path / "site", "toyio", sources="toy = toy_io:SOURCE", sinks="toy = toy_io:SINK")
    for place in (TOY_IO, tmp_path / "site"):
        monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect(tmp_path / "private.sqlite") as file:
        file.execute("CREATE TABLE visits (step INTEGER, zip TEXT)")
        file.executemany("INSERT INTO visits VALUES (?, ?)", [(1, "a")] * 200 + [(3, "b")] * 100)
    return write_io(tmp_path)


def write_io(folder: Path, old: str = "", new: str = "") -> Path:
    path = write_config(
        folder,
        name="toy",
        source='kind = "toy"\ndatabase = "private.sqlite"\ntable = "visits"\nend = 3',
        columns=ZIP,
        mechanism='workload = "all-1-way"',
        rest='[output]\nsink = "toy"\ndatabase = "public.sqlite"\ntable = "released"',
    )
    return rewrite(path, old, new) if old else path


def test_it_runs_from_the_toy_source_into_the_toy_sink(connected: Path) -> None:
    for verb in (["check"], ["plan"], ["run"], ["status"], ["run"]):
        dpstream(*verb, connected)
    manifest = read_manifest(connected.parent / "releases", 3)
    assert "trusted to hold each record in one row" in json.dumps(manifest)
    with sqlite3.connect(connected.parent / "public.sqlite") as file:
        rows = dict(file.execute("SELECT step, COUNT(*) FROM released GROUP BY step").fetchall())
        assert [step for (step,) in file.execute("SELECT step FROM steps ORDER BY step")] == [1, 2, 3]
    # Noise is far below the 200 and 300 rows of these steps (false alarms below 1e-6 at epsilon 1).
    assert 100 < rows[1] < 300 < rows[3] + 100


def test_a_source_has_keys_of_its_own(connected: Path) -> None:
    config = Config.load(
        write_io(connected.parent, "end = 3", 'end = 3\nvalid = "zip = \'a\'"\njournal = "delete"')
    )
    assert config.source_options.own.valid == "zip = 'a'"
    used = [value.line() for value in config.used if value.section == "source"]
    assert "[source] valid = zip = 'a'" in used
    assert sum(line.startswith("[source] table") for line in used) == 1
    # What says which records there are is pinned; what may move is not.
    assert config.facts()["source"]["own"] == {"valid": "zip = 'a'"}
    entry = next(iter(config.source().steps()))
    assert entry.inserts.num_rows == 200
    write_io(connected.parent, "end = 3", 'end = 3\nvalid = "zip IS NULL"')
    assert next(iter(Config.load(connected).source().steps())).inserts.num_rows == 0
    defaults = [value.line() for value in Config.load(write_io(connected.parent)).used]
    assert "[source] journal = wal (default: as files have it)" in defaults
    rows = keys_of("source")
    assert (rows["journal"].allowed, rows["journal"].mechanisms) == ("wal, delete", ("toy",))
    schema = json_schema()["properties"]
    assert schema["source"]["properties"]["journal"]["enum"] == ["wal", "delete"]
    kinds = schema["source"]["properties"]["kind"], schema["output"]["properties"]["sink"]
    assert [kind["enum"][-1] for kind in kinds] == ["toy", "toy"]
    with pytest.raises(ConfigError, match="unknown key 'valid'"):
        Config.load(write_io(connected.parent, 'kind = "toy"', 'path = "x.csv"\nvalid = "1"'))


def test_an_own_key_takes_no_shared_name() -> None:
    @dataclass(frozen=True)
    class Taken:
        table: str = option("x", allowed="a text", reason="none", meaning="None.")

    with pytest.raises(ConfigError, match="a key has the name of a shared key"):
        SourceKind(print, keys=(), options=Taken)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('table = "visits"\n', "", ('table is missing, which kind = "toy" needs',)),
        ("end = 3", 'end = 3\npath = "*"', ("path has no meaning with kind", "database, table, start, end")),
        ("end = 3\n", "", ("end is missing",)),
        ("end = 3", 'end = 3\njournal = "none"', ("[source] journal", "'none' is not", "wal, delete")),
        ("end = 3", "end = 3\nvalids = 1", ("unknown key 'valids'", "did you mean 'valid'?")),
        ('kind = "toy"', 'kind = "toys"', ("unknown kind = 'toys'", "postgres-changes, mysql, spark, toy")),
        ('sink = "toy"', 'sink = "toys"', ("[output] sink", "stdout, spark, toy")),
        ('"public.sqlite"', '"password=x"', ("holds a password",)),
    ],
)
def test_mistakes_are_named(connected: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(write_io(connected.parent, old, new))
    for word in words:
        assert word in str(caught.value)
    assert "=x" not in str(caught.value)
