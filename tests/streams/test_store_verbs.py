"""The verbs that look after a store, and what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fault_harness import sql
from postgres_server import Cluster
from toy_stream import batch, run, start

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.io.sinks import read_table as read
from dpstream.stream.inspection import check_store
from dpstream.stream.store import sqlite

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
from cli_stream import dpstream, make, released


def test_check_says_what_is_damaged(tmp_path: Path) -> None:
    """In a value of the store: ``test_a_flipped_bit_anywhere_is_told``."""
    with pytest.raises(ConfigError, match="the stream is missing"):
        check_store(tmp_path / "state", None)
    run(tmp_path, 3)
    state, releases = tmp_path / "state", tmp_path / "releases"

    def problems() -> str:
        return "; ".join(check_store(state, releases).problems)

    assert problems() == ""
    sql(tmp_path, "UPDATE steps SET synthesis = substr(synthesis, 1, 60) WHERE step = 1")
    assert "stored model of step 1" in problems()
    table = releases / "step-000002" / "table.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert "table.parquet of step 2 differs from the committed file" in problems()
    table.unlink()
    assert "table.parquet of step 2 is missing" in problems()
    store = state / "stream.sqlite"
    store.write_bytes(store.read_bytes()[: store.stat().st_size // 2])
    assert problems()
    store.unlink()
    assert "the store is gone" in problems()


def test_large_stores_are_opened_by_their_small_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, 2, publish=False)
    monkeypatch.setattr(sqlite, "_WHOLE", 0)
    with start(tmp_path, publish=False) as stream:
        assert stream.step(batch(3), "b3").step == 3
    (tmp_path / "state" / "stream.sqlite").write_bytes(b"SQLite format 3\0" + b"\0" * 9000)
    with pytest.raises(StoreDamagedError):
        start(tmp_path, publish=False)


def test_the_verbs(tmp_path: Path) -> None:
    config = make(tmp_path, steps=4)
    dpstream("store", "check", config, code=2)
    dpstream("run", config, "--test-seed", 3)
    assert "sound: 4 steps" in dpstream("store", "check", config).stdout
    found = json.loads(dpstream("store", "check", config, "--json").stdout)
    assert (found["sound"], found["steps"], found["problems"]) == (True, 4, [])
    before = released(tmp_path)
    size = (tmp_path / "state" / "stream.sqlite").stat().st_size
    config.write_text(config.read_text() + "keep = 1\n")
    dpstream("store", "compact", config)
    after = released(tmp_path)
    assert [n for n in before if n not in after] == [
        f"step-00000{step}/table.csv{end}" for step in (1, 2, 3) for end in ("", "-metadata.json")
    ]
    assert (tmp_path / "state" / "stream.sqlite").stat().st_size <= size
    dpstream("store", "check", config)
    dpstream("store", "export", config, "--out", tmp_path / "releases" / "x", code=2)
    dpstream("store", "export", config, "--move", "--out", tmp_path / "x.dpstore")
    dpstream("run", config, code=4)
    assert "moved away" in dpstream("store", "check", config).stdout
    dpstream("store", "import", config, "--from", tmp_path / "x.dpstore")
    dpstream("run", config)
    manifest = tmp_path / "releases" / "step-000002" / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    assert "manifest.json of step 2" in dpstream("store", "check", config, code=4).stderr


def test_compacting_keeps_what_changes_rest_on(tmp_path: Path) -> None:
    config = make(tmp_path, steps=3)
    config.write_text(
        config.read_text() + 'records = "persistent"\npublish = "changes"\nfull_every = 3\nkeep = 1\n'
    )
    dpstream("run", config, "--test-seed", 3)
    before = released(tmp_path)
    dpstream("store", "compact", config)
    assert released(tmp_path) == before, "the changes of step 3 are changes of the table of step 1"
    assert read(tmp_path / "releases", step=3).shape[0] > 0
    assert len(before) == 11 + 3, "each step keeps what it measured"


def test_a_configuration_names_a_server(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, steps=2)
    text = config.read_text()
    url = f"postgresql://dpstream@/postgres?host={postgres.home}"
    config.write_text(text + f'[state]\nurl = "{url}"\n')
    assert json.loads(dpstream("status", config, "--json").stdout)["started"] is False
    dpstream("run", config)
    assert json.loads(dpstream("status", config, "--json").stdout)["steps"] == 2
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == ["head.json"]
    assert "sound: 2 steps" in dpstream("store", "check", config).stdout
    dpstream("store", "compact", config)
    monkeypatch.setenv("STREAM_URL", f"postgresql://guarded:{postgres.password}@/postgres?host=/nowhere")
    config.write_text(text + '[state]\nurl_env = "STREAM_URL"\n')
    failed = dpstream("run", config, code=2)
    assert "S3cret" not in failed.output + failed.stderr
    assert "write @ : / in names as %40 %3A %2F" in failed.stderr
    for wrong in (
        f"postgresql://guarded:{postgres.password}@localhost/postgres",
        "postgresql://u:S3cret/x@h/db",
        "postgresql://h/db?password=S3cret",
        "mysql://S3cret/x",
    ):
        config.write_text(text + f'[state]\nurl = "{wrong}"\n')
        told = dpstream("plan", config, code=2)
        assert "S3cret" not in told.output + told.stderr
        assert "url" in told.stderr
    config.write_text(text + '[state]\nurl_env = "NOT_SET"\n')
    assert "is not set" in dpstream("run", config, code=2).stderr
