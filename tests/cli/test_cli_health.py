"""The JSON log and the health line: what a machine that watches a stream gets to know."""

from __future__ import annotations

import ast
import datetime
import errno
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_stream import certain as make
from cli_stream import dpstream, status, write_step
from small_configs import rewrite

import dpstream as package
from dpstream.cli.logs import JsonLog
from dpstream.cli.shared import ATTENTION
from dpstream.core import durable
from dpstream.project import Config
from dpstream.project.status import is_running
from dpstream.stream import Stream
from dpstream.stream.step_log import StepEvent, log_step

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "operations.md"
KEYS = {"time", "level", "event", "stream", "step", "state"}


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def short(path: Path) -> list[tuple[object, ...]]:
    return [(one["level"], one["event"], one["step"], one["state"]) for one in events(path)]


def test_a_run_is_one_line_per_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, log = make(tmp_path, 2), tmp_path / "run.log"
    before = datetime.datetime.now(datetime.UTC)
    dpstream("run", config, "--log-json", log)
    steps = [("info", "step", n, state) for n in (1, 2) for state in ("reserved", "committed", "published")]
    assert short(log) == [("info", "run", None, "begun"), *steps, ("info", "run", None, "done")]
    for one in events(log):
        assert set(one) - {"exit_code"} == KEYS
        assert one["stream"] == "test"
        assert datetime.datetime.fromisoformat(one["time"]) >= before - datetime.timedelta(seconds=1)
    assert log.stat().st_mode & 0o777 == 0o600
    dpstream("run", config, "--log-json", log)
    assert short(log)[8:-1] == [("info", "run", None, "begun")] + [
        ("info", "step", n, "repeated") for n in (1, 2)
    ]
    assert not logging.getLogger("dpstream.streams").handlers
    monkeypatch.setenv("DPSTREAM_LOG", "-")  # standard error
    done = dpstream("run", config, "--json")
    assert json.loads(done.stderr.splitlines()[0])["state"] == "begun"
    assert json.loads(done.stdout.splitlines()[0])["step"] == 1


def test_failures_are_told_by_kind_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, log = make(tmp_path, 3), tmp_path / "run.log"
    write_step(tmp_path, 2, ["secretvalue,true,x"])
    dpstream("run", config, "--log-json", log, code=2)
    assert events(log)[-1] | {"time": ""} == {
        "time": "", "level": "error", "event": "run", "stream": "test", "step": None, "state": "stopped",
        "error": "DataError", "exit_code": 2,
    }  # fmt: skip
    write_step(tmp_path, 2)
    real = Stream.step

    def step(self: Stream, *args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return real(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "step", step)
        dpstream("run", config, "--log-json", log, code=5)
    assert short(log)[-1] == ("warning", "run", None, "interrupted")
    (tmp_path / "data" / "002.csv").unlink()
    dpstream("run", tmp_path / "none.toml", "--log-json", log, code=2)
    assert events(log)[-1]["error"] == "ConfigError"
    assert "secretvalue" not in log.read_text(encoding="utf-8")


def test_a_log_that_cannot_be_written_stops_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, real = make(tmp_path, 2), os.write
    log = tmp_path / "run.log"

    def write(descriptor: int, data: bytes) -> int:
        if bytes(data).startswith(b'{"time"') and b"committed" in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    done = dpstream("run", config, "--log-json", log)
    assert done.stderr.count("the log ends here, the run goes on") == 1
    assert "2 new steps" in done.stdout
    assert [one["state"] for one in events(log)] == ["begun", "reserved"]


def test_an_event_has_its_code_whatever_the_sentence_says(capsys: pytest.CaptureFixture[str]) -> None:
    """And records that are not listed are not copied."""
    with JsonLog("-") as log:
        logging.getLogger("dpstream.streams").warning("the value %s", "secretvalue")
        logging.getLogger("dpstream.streams").warning("x", extra={"event": "secretvalue", "step": 1})
        log.handle(logging.makeLogRecord({"event": StepEvent.RESERVED, "step": "secretvalue"}))
        for event in StepEvent:
            log_step(event, 7, " secretvalue", ValueError("secretvalue"))
    text = capsys.readouterr().err
    told = [json.loads(line) for line in text.splitlines()]
    assert [(one["event"], one["step"], one["state"]) for one in told] == [
        ("step", 7, e.value) for e in StepEvent
    ]
    assert "secretvalue" not in text


def test_each_event_is_documented_and_logged_somewhere() -> None:
    """And the streams log nothing without a code."""
    (row,) = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("* `step`:")]
    documented = set(row.split("`"))
    assert documented >= {event.value for event in StepEvent}
    said, lines = set(), 0
    for path in (Path(package.__file__).parent / "stream").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "log_step":
                said.add(ast.unparse(node.args[0]).removeprefix("StepEvent."))
            lines += isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_log.")
    assert said == set(StepEvent.__members__)
    assert lines == 1, "of ``log_step`` itself"


def healthy(config: Path, *args: object, code: int = ATTENTION) -> str:
    done = dpstream("status", config, "--health", *args, code=code, error=False)
    (line,) = done.stdout.splitlines()
    name, word, _ = line.split(": ", 2)
    assert name == "test"
    return word


def test_health_over_a_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make(tmp_path, 3)
    assert healthy(config) == "not-started"
    dpstream("run", config, "--until", 1)
    assert healthy(config, code=0) == "healthy"
    with monkeypatch.context() as patch:

        def crash(*_: Any) -> Any:
            raise KeyboardInterrupt

        patch.setattr(Stream, "_commit_and_publish", crash)
        dpstream("run", config, code=5)
    assert healthy(config) == "begun"
    with monkeypatch.context() as patch:

        def full(*_: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(durable, "rename", full)
        patch.setattr("dpstream.stream.store.store.Store.write_head", lambda _, **options: None)
        dpstream("run", config, "--until", 2, code=4)
    assert healthy(config) == "unpublished"
    dpstream("run", config, "--until", 2)
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> Any:
            raise ValueError

        patch.setattr(Stream, "_prepare", fail)
        with pytest.raises(ValueError):
            dpstream("run", config)
    assert healthy(config) == "failed"
    dpstream("run", config, "--discard-reserved")
    assert healthy(config, code=0) == "healthy"
    rewrite(config, 'epsilon = "100"', 'epsilon = "200"')
    assert healthy(config) == "other-plan"


def test_health_of_a_horizon_of_a_seed_and_of_damage(tmp_path: Path) -> None:
    config = make(tmp_path, 3)
    rewrite(config, 'epsilon = "100"', 'epsilon = "100"\nhorizon = 2')
    dpstream("run", config, "--until", 1)
    assert healthy(config, code=0) == "healthy"
    assert "step 3" in dpstream("run", config, code=3).stderr
    assert healthy(config) == "used-up"
    facts = status(config)
    assert (facts["steps"], facts["steps_left"], facts["begun"]) == (2, 0, None)
    other = make(tmp_path / "seeded", 1)
    dpstream("run", other, "--test-seed", 1)
    assert healthy(other) == "no-guarantee"
    (tmp_path / "state" / "stream.sqlite").write_bytes(b"no store")
    dpstream("status", config, "--health", code=4)


def test_age_is_that_of_the_newest_release(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    dpstream("run", config, "--until", 1)
    assert healthy(config, "--max-age", "1h", code=0) == "healthy"
    manifest = tmp_path / "releases" / "step-000001" / "manifest.json"
    then = manifest.stat().st_mtime - 7_200
    os.utime(manifest, (then, then))
    assert healthy(config, "--max-age", "1h") == "stale"
    assert healthy(config, "--max-age", "3h", code=0) == "healthy"
    told = dpstream("status", config, "--health", "--max-age", "1h", "--json", code=ATTENTION, error=False)
    facts = json.loads(told.stdout)
    assert (facts["health"], facts["stream"]) == ("stale", "test")
    dpstream("run", config)
    assert healthy(config, "--max-age", "1h", code=0) == "healthy"
    dpstream("status", config, "--max-age", "1h", code=2)
    dpstream("status", config, "--health", "--max-age", "soon", code=2)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux lists its locks")
def test_a_run_at_work_is_seen_without_touching_its_lock(tmp_path: Path) -> None:
    config = make(tmp_path, 1)
    dpstream("run", config)
    state = tmp_path / "state"
    assert not is_running(state)
    with Config.load(config).open_stream():
        if not is_running(state):
            pytest.skip("this file system's lock cannot be told from its number")
        assert "a run is at work" in dpstream("status", config, "--health").stdout
        code = (
            "import pathlib; from dpstream.project.status import is_running; "
            f"print(is_running(pathlib.Path({str(state)!r})))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "True\n"
    assert not is_running(state)
