"""Tables that change, from the command line: drafted, checked, run from any shape, resumed, confirmed, evaluated."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import keyed_history as told
import pytest
from cli_stream import dpstream, status
from keyed_history import History
from small_configs import ZIP, write_config, write_rows

import dpstream as dp
from dpstream.core.errors import ConfigError
from dpstream.project import Config

COLUMNS = (
    ZIP.replace("zip", "group")
    + 'missing = "missing"\n[schema.columns.size]\ntype = "integer"\nmin = 0\nmax = 9\n'
)
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


def make(folder: Path, source: str, *, stream: str = "") -> Path:
    return write_config(
        folder,
        stream=f'unit = "record"\n{stream}',
        source=source,
        columns=COLUMNS,
        mechanism='workload = "all-1-way"',
        rest='[expect]\nsize = 30\nrecords_per_step = 10\n[output]\nformat = "csv"',
    )


def problems(config: Path) -> str:
    """What ``check`` finds wrong."""
    return dpstream("check", config, code=2, error=False).stdout


def tables(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "releases").rglob("table.csv"))]


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
        assert "would stay for ever" in stopped.stderr
        assert not (folder / "state").exists()
        with pytest.raises(ConfigError, match="would stay for ever"):
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
    from dpstream.cli import run as watching

    def take(_source: object, recheck: bool) -> tuple[bool, int]:
        asked.append(recheck)
        return False, 0

    # Two readings, then nothing is left.
    twice = Mock(
        worth_reading=lambda *_: True, next_step=lambda _: "more", finished=lambda _: len(asked) == 2
    )
    monkeypatch.setattr(project, "Watch", lambda *_: twice)
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
    facts = status(config)
    assert (facts["steps"], facts["begun"]) == (3, None)
    assert "1 new step, 4 in all" in dpstream("run", config, "--confirm-shrink").stdout
    manifest = sorted((tmp_path / "releases").rglob("manifest*.json"))[-1].read_text()
    assert "until its owner has confirmed it" in manifest


def test_confirming_is_for_whole_tables_and_for_one_step(tmp_path: Path) -> None:
    config = make(tmp_path, FEED.format("feed.csv"))
    assert "changes, which cannot shrink" in dpstream("run", config, "--confirm-shrink", code=2).stderr
    config = make(tmp_path, SNAPSHOTS.format("t*.csv"))
    for more in ("--watch", "--dry-run"):
        assert "--confirm-shrink" in dpstream("run", config, "--confirm-shrink", more, code=2).stderr


def test_check_says_what_it_understood_to_the_owner_only(tmp_path: Path) -> None:
    from dpstream.project.keyed_check import KeyedCheck

    history = told.history(13)
    config = make(tmp_path, FEED.format("feed.csv"))
    told.write_feed(history, tmp_path, "feed.csv")
    assert "records present" not in dpstream("check", config).stdout
    loaded = Config.load(config)
    keyed = KeyedCheck(loaded.schema(), loaded.unit)
    for entry in loaded.source().steps():
        assert keyed.add(entry) is None
    there = [len(history.table(step)) for step in range(1, told.STEPS + 1)]
    assert len(keyed.present) == there[-1]
    assert keyed.sentences()[0].startswith(f"{there[-1]} records present at the end; {there[0]} at")
    assert [c - g for c, g in zip(keyed.came, keyed.left, strict=True)] == [
        now - before for before, now in zip([0, *there], there, strict=False)
    ]


@pytest.mark.parametrize(
    ("rows", "stream", "what"),
    [
        (["1,delete,7,,"], "", "a delete has an unknown key; at step 1"),
        (["1,insert,7,a,1", "2,delete,7,,", "3,insert,7,a,1"], 'returns = "refuse"', "a key returns after"),
        (["1,insert,7,x,1"], "", "column 'group'"),
    ],
)
def test_check_and_run_refuse_the_same(rows: list[str], stream: str, what: str, tmp_path: Path) -> None:
    config = make(tmp_path, FEED.format("feed.csv"), stream=stream)
    (tmp_path / "feed.csv").write_text("\n".join(["when,op,id,group,size", *rows]) + "\n")
    assert what in problems(config)
    result = dpstream("run", config, code=2)
    assert "'7'" not in result.output


def test_a_key_without_changes_is_no_table_that_changes(tmp_path: Path) -> None:
    data = write_rows(tmp_path, "a.csv", "day,zip", (f"2026-01-0{i % 9 + 1},z{i % 3}" for i in range(40)))
    refused = dpstream("init", data, "--key-column", "zip", "--out", tmp_path / "other.toml", code=2).stderr
    assert "fits neither a change feed nor snapshots nor stays" in refused
    assert 'set key_column = "zip", insert_only = true' in refused


def test_an_evaluation_compares_with_the_present_records(tmp_path: Path) -> None:
    from dpstream.tools.evaluate import true_steps

    history = told.history(15, keys=20)
    config = make(tmp_path, FEED.format("feed.csv"))
    told.write_feed(history, tmp_path, "feed.csv")
    for entry in true_steps(Config.load(config)):
        wanted = sorted(("abc".index(g), s) for g, s in history.table(entry.step).values())
        assert sorted(map(tuple, entry.table.rows().tolist())) == wanted
        assert entry.table.unmatched_deletes == 0
