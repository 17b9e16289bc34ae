"""A source and a sink that another package brings: used by name, without a line of them in the source."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_stream import dpstream
from installed import install
from small_configs import ZIP, rewrite, write_config

from dpstream.core.contracts import option
from dpstream.core.errors import ConfigError
from dpstream.io.sinks import read_manifest
from dpstream.io.sources.source_keys import SourceKind
from dpstream.project import Config
from dpstream.project.json_schema import json_schema
from dpstream.project.keys import keys_of

HERE = Path(__file__).parent / "toy_io"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package, private rows, and a file that uses them; we are in its folder."""
    install(tmp_path / "site", "toyio", sources="toy = toy_io:SOURCE", sinks="toy = toy_io:SINK")
    for place in (HERE, tmp_path / "site"):
        monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect(tmp_path / "private.sqlite") as file:
        file.execute("CREATE TABLE visits (step INTEGER, zip TEXT)")
        file.executemany("INSERT INTO visits VALUES (?, ?)", [(1, "a")] * 200 + [(3, "b")] * 100)
    return write(tmp_path)


def write(folder: Path, old: str = "", new: str = "") -> Path:
    path = write_config(
        folder,
        name="toy",
        source='kind = "toy"\ndatabase = "private.sqlite"\ntable = "visits"\nend = 3',
        columns=ZIP,
        mechanism='workload = "all-1-way"',
        rest='[output]\nsink = "toy"\ndatabase = "public.sqlite"\ntable = "released"',
    )
    return rewrite(path, old, new) if old else path


def test_it_runs_from_the_toy_source_into_the_toy_sink(toy: Path) -> None:
    for verb in (["check"], ["plan"], ["run"], ["status"], ["run"]):
        dpstream(*verb, toy)
    manifest = read_manifest(toy.parent / "releases", 3)
    assert "trusted to hold each record in one row" in json.dumps(manifest)
    with sqlite3.connect(toy.parent / "public.sqlite") as file:
        rows = dict(file.execute("SELECT step, COUNT(*) FROM released GROUP BY step").fetchall())
        assert [step for (step,) in file.execute("SELECT step FROM steps ORDER BY step")] == [1, 2, 3]
    # Noise is far below the 200 and 300 rows of these steps (false alarms below 1e-6 at epsilon 1).
    assert 100 < rows[1] < 300 < rows[3] + 100


def test_a_source_has_keys_of_its_own(toy: Path) -> None:
    config = Config.load(write(toy.parent, "end = 3", 'end = 3\nvalid = "zip = \'a\'"\njournal = "delete"'))
    assert config.source_options.own.valid == "zip = 'a'"
    used = [value.line() for value in config.used if value.section == "source"]
    assert "[source] valid = zip = 'a'" in used
    assert sum(line.startswith("[source] table") for line in used) == 1
    # What says which records there are is pinned; what may move is not.
    assert config.facts()["source"]["own"] == {"valid": "zip = 'a'"}
    entry = next(iter(config.source().steps()))
    assert entry.inserts.num_rows == 200
    write(toy.parent, "end = 3", 'end = 3\nvalid = "zip IS NULL"')
    assert next(iter(Config.load(toy).source().steps())).inserts.num_rows == 0
    defaults = [value.line() for value in Config.load(write(toy.parent)).used]
    assert "[source] journal = wal (default: as files have it)" in defaults
    rows = keys_of("source")
    assert (rows["journal"].allowed, rows["journal"].mechanisms) == ("wal, delete", ("toy",))
    schema = json_schema()["properties"]
    assert schema["source"]["properties"]["journal"]["enum"] == ["wal", "delete"]
    kinds = schema["source"]["properties"]["kind"], schema["output"]["properties"]["sink"]
    assert [kind["enum"][-1] for kind in kinds] == ["toy", "toy"]
    with pytest.raises(ConfigError, match="unknown key 'valid'"):
        Config.load(write(toy.parent, 'kind = "toy"', 'path = "x.csv"\nvalid = "1"'))


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
def test_mistakes_are_named(toy: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(write(toy.parent, old, new))
    for word in words:
        assert word in str(caught.value)
    assert "=x" not in str(caught.value)
