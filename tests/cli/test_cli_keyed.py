"""Tables that change, from the command line: drafted, checked, run from any shape, resumed, confirmed, evaluated."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import keyed_history as told
import pytest
from cli_stream import dpstream
from click.testing import CliRunner
from keyed_history import History

import dpstream as dp
from dpstream.cli import main
from dpstream.core.errors import ConfigError
from dpstream.project import Config

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "changing-tables.md"
SCHEMA = """\
[schema.columns.group]
type = "categorical"
values = ["a", "b", "c"]
missing = "missing"
[schema.columns.size]
type = "integer"
min = 0
max = 9
[mechanism]
workload = "all-1-way"
[expect]
size = 30
records_per_step = 10
[budget]
epsilon = "1"
[output]
format = "csv"
"""
FEED = 'path = "{}"\ntime_column = "when"\nend = 7\nop_column = "op"\nkey_column = "id"'
SNAPSHOTS = 'path = "{}"\nevery = "files"\nkey_column = "id"\nshape = "snapshots"'
STAYS = 'path = "{}"\ntime_column = "since"\ndelete_time_column = "until"\nend = 7\nkey_column = "id"\nshape = "stays"'
STAYS_OF_DATABASE = STAYS.replace(
    'path = "{}"', 'kind = "duckdb"\ndatabase = "stays.duckdb"\nquery = "SELECT * FROM t"'
)
SHAPES: dict[str, tuple[str, Callable[[History, Path], object]]] = {
    "feed": (FEED.format("feed.csv"), lambda h, d: told.write_feed(h, d, "feed.csv")),
    "lines": (FEED.format("feed.ndjson.gz"), lambda h, d: told.write_feed(h, d, "feed.ndjson.gz")),
    "snapshots": (SNAPSHOTS.format("table-*.csv"), told.write_snapshots),
    "stays": (STAYS.format("stays.csv"), lambda h, d: told.write_stays(h, d, "stays.csv")),
    "present": (
        STAYS.format("stays.csv") + '\nlate = "next-step"',
        lambda h, d: told.write_stays(h, d, "stays.csv"),
    ),
    "database": (STAYS_OF_DATABASE, lambda h, d: told.write_stays(h, d, "stays.duckdb")),
}


def make(folder: Path, source: str, *, stream: str = "", schema: str = SCHEMA) -> Path:
    folder.mkdir(exist_ok=True)
    config = folder / "dpstream.toml"
    config.write_text(f'[stream]\nname = "test"\nunit = "record"\n{stream}\n[source]\n{source}\n{schema}')
    return config


def problems(config: Path, *, stderr: bool = False) -> str:
    """What ``check`` finds wrong, or what stops it."""
    result = CliRunner().invoke(main, ["check", str(config)])
    assert result.exit_code == 2, result.output
    return result.stderr if stderr else result.stdout


def tables(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "releases").rglob("*.csv"))]


def test_every_shape_of_a_history_has_the_same_releases(tmp_path: Path) -> None:
    """Seeded, and stopped after some step; the stores differ in their names of steps only."""
    pytest.importorskip("duckdb")
    history = told.history(11, keys=30, updates=False)
    found = {}
    for number, (name, (source, write)) in enumerate(SHAPES.items(), start=1):
        folder = tmp_path / name
        config = make(folder, source)
        write(history, folder)
        assert "7 steps read: all rows fit the schema" in dpstream("check", config).stdout
        dpstream("run", config, "--test-seed", 5, "--until", number)
        dpstream("run", config, "--test-seed", number)
        assert "0 new steps, 7 in all" in dpstream("run", config, "--test-seed", 5).stdout
        found[name] = tables(folder)[:number]
    first = max(found.values(), key=len)
    assert len(first) == len(SHAPES)
    for made in found.values():
        assert made == first[: len(made)]


def test_stays_are_always_compared_unless_they_are_read_as_they_are(tmp_path: Path) -> None:
    """Else an end that is filled in late would never be noticed, and its record would stay for ever."""
    source, write = SHAPES["stays"]
    for number, late in enumerate(("", '\nlate = "next-step"')):
        folder = tmp_path / str(number)
        config = make(folder, source + late)
        write(told.history(13, keys=20, updates=False), folder)
        if late:
            dpstream("run", config, "--no-recheck", "--steps", 1)
            continue
        stopped = dpstream("run", config, "--no-recheck", "--steps", 1, code=2)
        assert "compared at every run" in stopped.stderr
        assert not (folder / "state").exists()
        with pytest.raises(ConfigError, match="compared at every run"):
            list(dp.run(config, recheck=False, steps=1))
        dpstream("run", config, "--steps", 2)
        config.write_text(re.sub(r"(?m)^end = .*$", "end = 1", config.read_text()))
        ended = dpstream("run", config, code=2).stderr
        assert "the source ends at step 1" in ended
        assert "--no-recheck" not in ended


def test_a_watched_file_of_stays_is_compared_whenever_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpstream import project
    from dpstream.cli import watch as watching

    class Twice:
        """Two readings, then nothing is left."""

        def __init__(self, *_: object) -> None:
            pass

        def finished(self, _: object) -> bool:
            return len(asked) == 2

        def source(self) -> None:
            pass

        def worth_reading(self, *_: object) -> bool:
            return True

        def next_step(self, _: object) -> str:
            return "more"

    def take(_source: object, recheck: bool) -> tuple[bool, int]:
        asked.append(recheck)
        return False, 0

    monkeypatch.setattr(project, "Watch", Twice)
    monkeypatch.setattr(watching, "_pause", lambda _: None)
    for source, second in ((SHAPES["stays"][0], True), (SHAPES["feed"][0], False)):
        asked: list[bool] = []
        config = Config.load(make(tmp_path / str(second), source))
        watching.watch(config, take, last_step=0, interval=1, until=None, recheck=True)
        assert asked == [True, second]


def test_a_snapshot_that_shrank_waits_for_its_owner(tmp_path: Path) -> None:
    config = make(tmp_path, SNAPSHOTS.format("t*.csv"))
    rows = "".join(f"{key},a,1\n" for key in range(40))
    for number, text in ((1, rows), (2, "1,a,1\n"), (3, "1,a,1\n"), (4, "")):
        (tmp_path / f"t{number}.csv").write_text("id,group,size\n" + text)
    result = dpstream("run", config, code=2)
    assert "step 2 (t2.csv)" in result.stderr
    assert "--confirm-shrink" in result.stderr
    assert problems(config).count("--confirm-shrink takes it") == 2
    assert "2 new steps, 3 in all" not in dpstream("run", config, code=2).output
    # One step is confirmed, and the next halt is another one.
    result = dpstream("run", config, "--confirm-shrink", code=2)
    assert "step 4 (t4.csv)" in result.stderr
    status = json.loads(dpstream("status", config, "--json").stdout)
    assert (status["steps"], status["begun"]) == (3, None)
    assert "1 new step, 4 in all" in dpstream("run", config, "--confirm-shrink").stdout
    plan = dpstream("plan", config).stdout
    assert "stops the stream until its owner has confirmed it" in " ".join(plan.split())
    manifest = sorted((tmp_path / "releases").rglob("manifest*.json"))[-1].read_text()
    assert "until its owner has confirmed it" in manifest


def test_confirming_is_for_whole_tables_and_for_one_step(tmp_path: Path) -> None:
    config = make(tmp_path, FEED.format("feed.csv"))
    assert "no whole tables" in dpstream("run", config, "--confirm-shrink", code=2).stderr
    config = make(tmp_path, SNAPSHOTS.format("t*.csv"))
    for more in ("--watch", "--dry-run"):
        assert "--confirm-shrink" in dpstream("run", config, "--confirm-shrink", more, code=2).stderr


def test_check_says_what_it_understood_to_the_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpstream.project.keyed_check import KeyedCheck

    history = told.history(13)
    config = make(tmp_path, FEED.format("feed.csv"))
    told.write_feed(history, tmp_path, "feed.csv")
    shown = dpstream("check", config).stdout
    assert "--show-values says how many are there" in shown
    assert "records present" not in shown
    loaded = Config.load(config)
    keyed = KeyedCheck(loaded.schema(), loaded.unit)
    for entry in loaded.source().steps():
        assert keyed.add(entry) is None
    there = [len(history.table(step)) for step in range(1, told.STEPS + 1)]
    assert len(keyed.present) == there[-1]
    assert keyed.sentences()[0].startswith(
        f"{there[-1]} records present at the end; {there[0]} at the first step"
    )
    assert [c - g for c, g in zip(keyed.came, keyed.left, strict=True)] == [
        now - before for before, now in zip([0, *there], there, strict=False)
    ]


@pytest.mark.parametrize(
    ("rows", "stream", "what"),
    [
        (["1,delete,7,,"], "", "a delete has a key that is not there; at step 1"),
        (
            ["1,insert,7,a,1", "2,delete,7,,", "3,insert,7,a,1"],
            'returns = "refuse"',
            "comes back after it was absent",
        ),
        (["1,insert,7,x,1"], "", "column 'group'"),
    ],
)
def test_check_and_run_refuse_the_same(rows: list[str], stream: str, what: str, tmp_path: Path) -> None:
    config = make(tmp_path, FEED.format("feed.csv"), stream=stream)
    (tmp_path / "feed.csv").write_text("\n".join(["when,op,id,group,size", *rows]) + "\n")
    assert what in problems(config)
    result = dpstream("run", config, code=2)
    assert "'7'" not in result.output


def filled(config: Path, *changes: tuple[str, str]) -> Path:
    text = config.read_text().replace("confirmed = false", "confirmed = true")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    config.write_text(text)
    return config


def test_init_drafts_other_data_as_before(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "day,zip\n" + "".join(f"2026-01-0{i % 9 + 1},z{i % 3}\n" for i in range(40))
    )
    shutil.copy(tmp_path / "a.csv", tmp_path / "b.csv")
    dpstream("init", tmp_path / "*.csv", "--out", tmp_path / "dpstream.toml")
    assert 'unit = "event"' in (tmp_path / "dpstream.toml").read_text()
    result = dpstream(
        "init", tmp_path / "a.csv", "--key-column", "zip", "--out", tmp_path / "other.toml", code=2
    )
    assert "no change feed, no snapshots and no stays" in result.stderr
    assert 'the lines key_column = "zip" and insert_only = true' in result.stderr


def test_an_evaluation_compares_with_the_present_records(tmp_path: Path) -> None:
    from dpstream.tools.evaluate import true_steps

    history = told.history(15, keys=20)
    config = make(tmp_path, FEED.format("feed.csv"))
    told.write_feed(history, tmp_path, "feed.csv")
    for entry in true_steps(Config.load(config)):
        wanted = sorted(("abc".index(g), s) for g, s in history.table(entry.step).values())
        assert sorted(map(tuple, entry.table.rows().tolist())) == wanted
        assert entry.table.unmatched_deletes == 0


def test_the_guide_takes_two_exports_to_a_healthy_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = GUIDE.read_text(encoding="utf-8")
    verbs = [
        shlex.split(line)[1:]
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for line in block.splitlines()
    ]
    assert [words[0] for words in verbs] == ["init", "check", "plan", "run", "status"]
    shown = next(text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[stream]" in text)
    monkeypatch.chdir(tmp_path)
    Path("exports").mkdir()
    draw = random.Random(3)
    rows = {key: (draw.choice(["cat", "dog", "other"]), draw.randint(0, 19)) for key in range(300)}

    def export(month: int) -> None:
        for key in draw.sample(sorted(rows), 100):
            del rows[key]
        for _ in range(100):
            rows[max(rows, default=0) + 1] = draw.choice(["cat", "cat", "dog", "other"]), draw.randint(0, 19)
        lines = [f"{key},{kind},{age}" for key, (kind, age) in rows.items()]
        Path(f"exports/2026-{month:02}.csv").write_text("\n".join(["id,kind,age", *lines]) + "\n")

    export(1)
    export(2)
    for words in verbs:
        dpstream(*words)
        if words[0] == "init":
            drafted = tomllib.loads(Path("dpstream.toml").read_text())
            written = tomllib.loads(shown)
            assert drafted["source"] == written["source"]
            assert drafted["schema"]["columns"] == written["schema"]["columns"]
            assert drafted["stream"]["unit"] == "record"
            Path("dpstream.toml").write_text(shown)
    export(3)
    assert "1 new step, 3 in all" in dpstream("run", "dpstream.toml").stdout
    assert "healthy" in dpstream("status", "dpstream.toml", "--health").stdout
    dpstream("evaluate", "dpstream.toml")


def test_the_guides_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(text, names)
    assert sorted(path.name for path in Path("shelter/releases").glob("step-*")) == [
        "step-000001",
        "step-000002",
    ]


def test_the_guides_other_sources_can_be_used(tmp_path: Path) -> None:
    page = GUIDE.read_text(encoding="utf-8")
    sources = [t for t in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if t.startswith("[source]")]
    shapes = []
    for number, text in enumerate(sources):
        assert text.startswith("[source]\n")
        config = make(tmp_path / str(number), text.removeprefix("[source]\n"))
        shapes.append(Config.load(config).source_options.shape)
    assert shapes == ["changes", "stays", "stays"]
