"""Releases that went missing or were changed: health says so, and a run puts back exactly what was published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_stream import certain as make
from cli_stream import dpstream, released
from test_cli_health import healthy
from test_cli_publishing import configured

from dpstream.core.contracts import SyntheticTable
from dpstream.core.errors import StoreError
from dpstream.io.sinks import read_table as read

CHANGES = ['records = "persistent"', 'publish = "both"']


@pytest.mark.parametrize(
    "lines", [[], CHANGES, ['records = "persistent"', 'publish = "changes"', "full_every = 2"]]
)
def test_what_is_missing_is_published_again(tmp_path: Path, lines: list[str]) -> None:
    config = configured(tmp_path, *lines, steps=5)
    dpstream("run", config)
    before = released(tmp_path)
    assert healthy(config, code=0) == healthy(config, "--deep", code=0) == "healthy"
    for gone in ("step-000002", "step-000005", "catalogue.json", "codebook.json", ""):
        place = tmp_path / "releases" / gone
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        assert healthy(config) == "releases"
        told = dpstream("run", config).stderr
        steps = {"": "1, 2, 3, 4, 5", "step-000002": "2", "step-000005": "5"}.get(gone)
        assert ("because it was missing: step" in told) == (steps is not None)
        assert steps is None or f"step {steps}\n" in told
        assert released(tmp_path) == before
        assert healthy(config, "--deep", code=0) == "healthy"
    min((tmp_path / "releases" / "step-000004").glob("*.csv")).unlink()  # one file of a step
    assert healthy(config) == "releases"
    dpstream("run", config)
    assert released(tmp_path) == before


def test_what_was_changed_is_told_and_never_replaced(tmp_path: Path) -> None:
    config = make(tmp_path, 5)
    dpstream("run", config)
    before = released(tmp_path)
    table = tmp_path / "releases" / "step-000004" / "table.csv"
    table.write_bytes(table.read_bytes() + b"a,true,x\n")
    assert healthy(config) == "releases"
    told = dpstream("run", config, code=4).stderr
    assert "table.csv of step 4 differs from the committed file" in told
    assert "move it away and run again" in told
    assert table.read_bytes() != before["step-000004/table.csv"], "it is left as it is"
    table.rename(tmp_path / "edited.csv")
    assert "step 4" in dpstream("run", config).stderr
    assert released(tmp_path) == before
    old = tmp_path / "releases" / "step-000001" / "table.csv"
    old.write_bytes(b"changed")
    assert healthy(config, code=0) == "healthy", "only the last steps are read"
    assert healthy(config, "--deep") == "releases"
    dpstream("status", config, "--deep", code=2)
    old.write_bytes(before["step-000001/table.csv"])
    catalogue = tmp_path / "releases" / "catalogue.json"
    catalogue.write_text(catalogue.read_text(encoding="utf-8").replace('"kept": true', '"kept": false', 1))
    assert healthy(config) == "releases"
    dpstream("run", config)
    assert released(tmp_path) == before


def test_only_published_steps_come_back(tmp_path: Path) -> None:
    """Not what was withdrawn, rejected, expired, or is held."""
    config = configured(tmp_path, "approve = true", "keep = 4", steps=6)
    dpstream("run", config, "--until", 5)
    for step in (1, 2, 3):
        dpstream("approve", config, "--step", step)
    dpstream("withdraw", config, "--step", 2, "--reason", "wrong")
    dpstream("withdraw", config, "--step", 4, "--reason", "wrong")
    dpstream("run", config)  # step 6: the table of step 1 and 2 expire
    shutil.rmtree(tmp_path / "releases")
    assert "step 3\n" in dpstream("run", config).stderr
    tables = sorted({path.parent.name for path in (tmp_path / "releases").glob("*/table.*")})
    assert tables == ["step-000003"]
    assert json.loads(dpstream("status", config, "--json").stdout)["held"] == [5, 6]
    assert healthy(config) == "held"


def test_what_cannot_be_made_again_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other bytes than the committed ones are never published under their name."""
    config = make(tmp_path, 2)
    dpstream("run", config)
    shutil.rmtree(tmp_path / "releases" / "step-000001")
    real = SyntheticTable.released
    with monkeypatch.context() as patch:
        patch.setattr(SyntheticTable, "released", lambda *arguments: real(*arguments).slice(1))
        told = dpstream("run", config, code=StoreError.exit_code).stderr
    assert "cannot be made identical" in told
    assert "dpstream withdraw" in told
    assert not (tmp_path / "releases" / "step-000001").exists()
    reason = "the file was lost"
    dpstream("withdraw", config, "--step", 1, "--reason", reason)
    assert dpstream("run", config).stderr == ""


def test_a_pipe_is_told_nothing_twice(tmp_path: Path) -> None:
    config = configured(tmp_path, 'sink = "stdout"', steps=3)
    dpstream("run", config)
    shutil.rmtree(tmp_path / "releases" / "step-000002")
    done = dpstream("run", config, "--log-json", tmp_path / "run.log")
    assert done.stdout == ""
    assert read(tmp_path / "releases", 2).num_rows > 0
    # Those who watch the log hear of it.
    said = [json.loads(line) for line in (tmp_path / "run.log").read_text(encoding="utf-8").splitlines()]
    assert ("restored", 2) in [(one["state"], one["step"]) for one in said]


def test_no_other_file_is_taken_for_a_database(tmp_path: Path) -> None:
    """DuckDB shows a CSV file as a database in memory: steps would be released, and nothing be stored."""
    pytest.importorskip("duckdb")
    config = configured(tmp_path, 'sink = "duckdb"', 'database = "mine.csv"', steps=2)
    for content in (b"a,b\n1,2\n", b"", b"SQLite format 3\x00" + bytes(80)):
        (tmp_path / "mine.csv").write_bytes(content)
        assert "the file has another format" in dpstream("run", config, code=2).stderr
        assert (tmp_path / "mine.csv").read_bytes() == content
    assert not (tmp_path / "state").exists(), "nothing was begun"
    (tmp_path / "mine.csv").unlink()
    dpstream("run", config)
    assert (tmp_path / "mine.csv").read_bytes()[8:12] == b"DUCK"


def in_database(folder: Path) -> tuple[dict[int, str], list[tuple[object, ...]]]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(folder / "releases.duckdb")) as db:
        states = dict(db.execute("SELECT step, state FROM synthetic_steps").fetchall())
        return states, db.execute("SELECT * FROM synthetic ORDER BY record_id").fetchall()


@pytest.mark.parametrize(("publish", "withdrawn"), [("changes", 2), ("both", 4)])
def test_a_lost_database_comes_from_the_store_alone(tmp_path: Path, publish: str, withdrawn: int) -> None:
    """Nothing of a withdrawn step, nothing that others put into the folder."""
    more = ["full_every = 10"] if publish == "changes" else []
    output = ['records = "persistent"', f'publish = "{publish}"', 'sink = "duckdb"']
    config = configured(tmp_path, *output, 'database = "releases.duckdb"', *more)
    dpstream("run", config, "--until", 3)
    third = in_database(tmp_path)[1]
    dpstream("run", config)
    wanted = third if withdrawn == 4 else in_database(tmp_path)[1]
    releases, newest = tmp_path / "releases", 3 if withdrawn == 4 else 4
    shutil.copytree(releases / f"step-{withdrawn:06d}", tmp_path / "copy")
    dpstream("withdraw", config, "--step", withdrawn, "--reason", "wrong")
    if withdrawn == 2:
        assert healthy(config, "--deep", code=0) == "healthy"

    (tmp_path / "releases.duckdb").unlink()
    extra = releases / f"step-{newest:06d}" / "table.parquet"
    extra.write_bytes(b"from somewhere else")
    assert healthy(config) == "releases"
    dpstream("run", config)
    states, rows = in_database(tmp_path)
    assert rows == wanted
    assert states == {newest: "current", withdrawn: "withdrawn"}
    assert healthy(config, "--deep", code=0) == "healthy"
    assert dpstream("run", config).stderr == ""

    back = releases / f"step-{withdrawn:06d}" / "changes.csv"
    shutil.copy(tmp_path / "copy" / "changes.csv", back)
    (tmp_path / "releases.duckdb").unlink()
    assert healthy(config) == "releases"
    told = dpstream("run", config, code=4).stderr
    assert f"changes.csv of the withdrawn step {withdrawn} is there" in told
    back.unlink()
    dpstream("run", config)
    assert in_database(tmp_path) == (states, wanted)
