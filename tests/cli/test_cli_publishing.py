"""Holding, approving and withdrawing releases, persistent records and other sinks, on the command line."""

from __future__ import annotations

import datetime
import re
import sqlite3
from pathlib import Path

import pytest
from cli_stream import certain, dpstream, released, status
from small_configs import rewrite

from dpstream.cli import shared
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.io.sinks import read_catalogue
from dpstream.io.sinks import read_table as read
from dpstream.io.sources import SourceOptions
from dpstream.project import Config


def test_a_decision_waits_for_the_step_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path, "approve = true", steps=1)
    dpstream("run", config)
    stream = Config.load(config).open_stream()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            stream.close()

    monkeypatch.setattr(shared.time, "sleep", wait)
    done = dpstream("approve", config, "--all")
    assert (len(waits), done.stdout) == (3, "published: step 1\n")
    assert done.stderr.count("waiting: another command works on the stream") == 1
    with Config.load(config).open_stream():
        monkeypatch.setattr(shared, "_PATIENCE", -1.0)
        assert "has this stream open" in dpstream("approve", config, "--all", code=4).stderr
        assert "another process" in dpstream("run", config, code=4).stderr
        assert status(config)["steps"] == 1


def configured(folder: Path, *lines: str, steps: int = 4) -> Path:
    return rewrite(certain(folder, steps), "[output]\n", "\n".join(["[output]", *lines, ""]))


def test_steps_are_held_approved_and_withdrawn(tmp_path: Path) -> None:
    config = configured(tmp_path, "approve = true")
    done = dpstream("run", config)
    assert "held for approval" in done.stdout
    assert status(config)["held"] == [1, 2, 3, 4]
    assert [path.name for path in (tmp_path / "releases").iterdir()] == [".head.json"]
    dpstream("approve", config, code=2)
    dpstream("approve", config, "--all", "--step", "1", code=2)
    dpstream("approve", config, "--step", "9", code=2)
    assert dpstream("approve", config, "--step", "1").stdout == "published: step 1\n"
    assert dpstream("approve", config, "--all").stdout == "published: steps 2, 3, 4\n"
    assert dpstream("approve", config, "--all").stdout == "nothing was held\n"
    spent = status(config)["spent"]
    reason = "the source sent step 2 twice"
    assert dpstream("withdraw", config, "--step", "2", "--reason", reason).stdout == "step 2 is withdrawn\n"
    again = dpstream("withdraw", config, "--step", "2", "--reason", reason)
    assert again.stdout == "step 2 was withdrawn already\n"
    assert reason in dpstream("withdraw", config, "--step", "2", "--reason", "other", code=2).stderr
    dpstream("withdraw", config, "--step", "7", "--reason", "x", code=2)
    with pytest.raises(ConfigError, match=reason):
        read(tmp_path / "releases", 2)
    assert status(config)["spent"] == spent
    assert dpstream("run", config).exit_code == 0, "released steps are compared and found equal"
    assert dpstream("store", "check", config).stdout.startswith("sound")
    left = tmp_path / "releases" / "step-000002" / "table.parquet"
    left.write_bytes(b"what was withdrawn")
    checked = dpstream("store", "check", config, code=4).stderr
    assert checked == (
        f"error: {tmp_path / 'releases'}: table.parquet of the withdrawn step 2 is there: move it away\n"
    )
    left.unlink()
    assert [e["state"] for e in read_catalogue(tmp_path / "releases")["steps"]] == [
        "full", "withdrawn", "full", "full",
    ]  # fmt: skip


def test_who_decided_is_kept_and_published_nowhere(tmp_path: Path) -> None:
    config = configured(tmp_path, "approve = true", steps=7)
    done = dpstream("run", config, "--steps", 6)
    assert [line.split(") ")[1] for line in done.stdout.splitlines()[:6]] == ["held"] * 6
    for wrong in ("0", "5-3", "a", "1-", "", "9" * 30):
        dpstream("approve", config, "--step", wrong, code=2)
    dpstream("approve", config, "--step", "1,9", code=2)
    assert status(config)["held"] == [1, 2, 3, 4, 5, 6], "all or none"
    dpstream("withdraw", config, "--step", 2, "--reason", "wrong", "--by", "Ben Okafor")
    told = dpstream("approve", config, "--step", "1-3,5", "--by", "Anna Meier").stdout
    assert told == "published: steps 1, 3, 5\n"
    dpstream("withdraw", config, "--step", 3, "--reason", "wrong", "--by", "Ben Okafor")
    dpstream("approve", config, "--step", "1-3", "--by", "Nobody")  # nothing is left to decide
    dpstream("approve", config, "--all")
    found = [(one["step"], one["kind"], one["by"]) for one in status(config)["decisions"]]
    login = found[-1][2]
    assert found == [
        (2, "rejected", "Ben Okafor"),
        *((step, "approved", "Anna Meier") for step in (1, 3, 5)),
        (3, "withdrawn", "Ben Okafor"),
        *((step, "approved", login) for step in (4, 6)),
    ]
    assert login
    for data in released(tmp_path).values():
        assert b"Anna" not in data
        assert b"Okafor" not in data
    dpstream("approve", config, "--all", "--by", "two\nlines", code=2)
    with sqlite3.connect(tmp_path / "state" / "stream.sqlite") as db:
        db.execute("UPDATE log SET detail = 'Somebody' WHERE kind = 'rejected'")
    with pytest.raises(StoreDamagedError, match="entry 2 of the log was changed or is missing"):
        Config.load(config).open_stream()
    checked = dpstream("store", "check", config, code=4).stderr
    assert "entry 2 of the log was changed or is missing" in checked


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['publish = "changes"'], "persistent records"),
        (['may_change = "any"'], "with records = persistent"),
        (['records = "persistent"', 'may_change = ["city"]'], "unknown column 'city'"),
        (['sink = "postgresql"'], "database: the key is missing"),
        (['sink = "postgresql"', 'database = "postgresql://me:secret@host/db"'], "holds a password"),
        (['sink = "duckdb"', 'database = "state/x.duckdb"'], "lie inside each other"),
        (['table = "t"'], "only with duckdb, postgresql or spark"),
        (['dir = "s3://bucket/x"'], 'got a URL .* sink = "bucket" with database'),
        (['sink = "duckdb"', 'database = "s3://bucket/x.duckdb"'], "got a URL"),
        (['sink = "duckdb"', 'database = "releases/catalogue.json"'], "lies among the releases"),
        (['sink = "duckdb"', 'database = "data/x.csv"'], "would read the database 'x.csv'"),
        (["[schema.columns.far]", 'type = "integer"', f"edges = [0, {2**53}]"], f"declares {2**53}"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_spent(
    tmp_path: Path, lines: list[str], words: str
) -> None:
    config = configured(tmp_path)
    text = config.read_text(encoding="utf-8")
    config.write_text(re.sub(r"\[output\].*", "\n".join(["[output]", *lines]) + "\n", text, flags=re.DOTALL))
    for verb in ("check", "plan", "run", "status"):
        told = dpstream(verb, config, code=2).stderr
        assert re.search(words, told.replace("\n", " "))
        assert "secret@" not in told
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "s3:").exists()
    assert re.search("got a URL", dpstream("run", config, "--out", "s3://bucket/x", code=2).stderr)


def test_what_stops_a_publication_after_its_commit_is_not_wrong_input(tmp_path: Path) -> None:
    """Exit code 2 says that nothing was spent."""
    config = configured(tmp_path, steps=1)
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "codebook.json").mkdir()
    told = dpstream("run", config, code=4)
    assert "step 1 is committed, and could not be published" in told.stderr
    (tmp_path / "releases" / "codebook.json").rmdir()
    dpstream("run", config)
    assert read(tmp_path / "releases", 1).num_rows > 0


def test_a_clock_that_went_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = datetime.date(2024, 1, 1)
    config = certain(tmp_path, time_column='"day"', every='"day"', start=f'"{start}"', end='"today"')
    for file in (tmp_path / "data").iterdir():
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"(?m)^(\d)", r"2024-01-0\1", text.replace("step", "day")), encoding="utf-8")
    monkeypatch.setattr(SourceOptions, "clock", lambda self: start + datetime.timedelta(days=4))
    dpstream("run", config)
    assert status(config)["steps"] == 4
    monkeypatch.setattr(SourceOptions, "clock", lambda self: start + datetime.timedelta(days=3))
    told = dpstream("run", config, code=2).stderr
    assert "step 4 is released: by this machine's clock (day 2024-01-04, UTC) no later step is over" in told
