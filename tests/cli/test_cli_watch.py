"""``run --watch``: what makes a step due, what is waited for, and how it stops."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_stream import dpstream, make, released, status, write_step

from dpstream.cli import run as watch_module
from dpstream.io.sources import FileSource, SourceOptions

Action = Callable[[], None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Action]]:
    """What happens during each wait; Ctrl-C when there is nothing left."""
    actions: list[Action] = []

    def pause(_seconds: float) -> None:
        if not actions:
            raise KeyboardInterrupt
        actions.pop(0)()

    monkeypatch.setattr(watch_module, "_pause", pause)
    yield actions
    assert not actions


def test_files_become_steps_when_they_are_renamed_into_place(tmp_path: Path, script: list[Action]) -> None:
    config = make(tmp_path, 1, time_column=None, end=None, every='"files"', path='"data/*.csv"')
    data, half = tmp_path / "data", tmp_path / "data" / ".002.csv.part"

    def begin() -> None:
        half.write_text((data / "001.csv").read_text()[:20])

    def finish() -> None:
        half.write_bytes((data / "001.csv").read_bytes())
        half.rename(data / "002.csv")

    for path in data.iterdir():
        path.write_text(path.read_text().replace("step,", "").replace("\n1,", "\n"))
    script += [begin, lambda: None, finish]
    done = dpstream("run", config, "--watch", "--interval", "2m")
    assert done.stdout.splitlines()[:2] == [f"step {n} (data/00{n}.csv) released" for n in (1, 2)]
    assert done.stderr.splitlines() == [
        "waiting for step 2; looking every 120 s, Ctrl-C stops",
        "waiting for step 3; looking every 120 s, Ctrl-C stops",
        "stopped after step 2; every due step is released",
    ]
    before = released(tmp_path)
    dpstream("run", config)
    assert released(tmp_path) == before


def test_marked_files_numbered_steps_and_a_file_that_cannot_be_read(
    tmp_path: Path, script: list[Action]
) -> None:
    """A numbered step waits for a record of a later one: its own may come in several files."""
    config = make(tmp_path, 2, end='"data"', complete='"done"')
    data = tmp_path / "data"

    def mark(*steps: int) -> None:
        for step in steps:
            (data / f"{step:03d}.csv.done").touch()

    def damage() -> None:
        (data / "003.csv").write_bytes(b"step,zip,paid,kind\xff\n3,a,true,x\n")
        mark(3)

    script += [lambda: mark(1), lambda: mark(2), damage, lambda: write_step(tmp_path, 3)]
    done = dpstream("run", config, "--watch")
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("step")] == ["1", "2"]
    errors = done.stderr.splitlines()
    assert errors[0].startswith("cannot be read yet: data/*.csv: no file matches")
    assert errors[1].startswith("waiting for step 1 (step-1)")
    assert "003.csv: expected UTF-8" in errors[3]
    assert errors[-1] == "stopped after step 2; every due step is released"
    # A run that is not watched takes the newest step as well: its owner says that it is all there.
    assert "step 3 (step-3) released" in dpstream("run", config).stdout


def test_other_commands_find_the_stream_free_while_it_waits(tmp_path: Path, script: list[Action]) -> None:
    config = make(tmp_path, 2, end='"data"')
    config.write_text(config.read_text() + "approve = true\n", encoding="utf-8")

    def approve() -> None:
        assert "published: step 1" in dpstream("approve", config, "--all").stdout

    script += [approve, lambda: write_step(tmp_path, 3)]
    dpstream("run", config, "--watch")
    assert status(config)["held"] == [2]


def test_stopped_while_something_cannot_be_read(tmp_path: Path, script: list[Action]) -> None:
    config = make(tmp_path, 1, end='"data"')
    (tmp_path / "data" / "001.csv").unlink()
    script += [lambda: None] * 20
    done = dpstream("run", config, "--watch", code=5)
    assert done.stderr.count("no file matches") == 2, "once, and a reminder"
    assert "(attempt 20)" in done.stderr


def test_calendar_steps_wait_for_the_end_of_their_period_and_the_grace_period(
    tmp_path: Path, script: list[Action], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [datetime.datetime(2026, 1, 8, 5, 59, tzinfo=datetime.UTC)]
    real = SourceOptions.clock
    monkeypatch.setattr(SourceOptions, "clock", lambda self: real(self, now[0]))
    reads: list[int] = []
    real_steps = FileSource.steps
    monkeypatch.setattr(FileSource, "steps", lambda *a, **k: reads.append(1) or real_steps(*a, **k))
    day = {"every": '"day"', "start": '"2026-01-06"', "end": '"2026-01-07"', "lag": '"6 hours"'}
    config = make(tmp_path, 0, **day)
    rows = "".join(f"2026-01-{d:02d},a,true,x\n" for d in (6, 6, 7))
    (tmp_path / "data" / "a.csv").write_text(f"step,zip,paid,kind\n{rows}")

    def tick(minutes: int) -> None:
        now[0] += datetime.timedelta(minutes=minutes)

    def check() -> None:
        assert status(config)["steps"] == 1
        assert len(reads) == 1, "read without a period being over"
        tick(1)

    script += [lambda: None, check]
    done = dpstream("run", config, "--watch")
    assert "waiting for step 2 (2026-01-07)" in done.stderr
    assert "2 new steps, 2 in all" in done.stdout


def test_what_cannot_be_watched(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    done = dpstream("run", config, "--watch", code=2)
    assert "all steps up to end are due at once" in done.stderr
    assert "a length of time" in dpstream("run", config, "--watch", "--interval", "soon", code=2).stderr


def test_a_signal_that_does_not_end_the_sleep_is_seen_within_seconds() -> None:
    """As one that arrives between Python's last look for signals and the sleep: another thread takes it."""

    def send() -> None:
        time.sleep(0.5)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    # Whoever starts the tests in the background may have told them to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=send).start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            watch_module._pause(20)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_waiting_is_a_planned_stop(tmp_path: Path, number: int) -> None:
    config = make(tmp_path, 2, end='"data"')
    command = [sys.executable, "-m", "dpstream", "run", str(config), "--watch", "--interval", "1h"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("waiting for step 2"):
                break
        os.kill(process.pid, number)
        rest = process.stderr.read()
        assert process.wait(60) == 0
    assert rest == "stopped after step 1; every due step is released\n"
    facts = status(config)
    assert (facts["steps"], facts["begun"]) == (1, None)
