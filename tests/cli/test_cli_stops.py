"""The command when something stops it: a full disk, an interrupt, a failure, another process, damage."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream, make, released, status

from dpstream.core import durable
from dpstream.core.errors import LimitError, StoreError
from dpstream.stream import Stream
from dpstream.stream.store.store import Store


@pytest.mark.parametrize(("place", "code"), [("/proc/releases", 4), ("dpstream.toml/releases", 2)])
def test_an_output_that_cannot_be_written_is_found_before_anything_is_spent(
    tmp_path: Path, place: str, code: int
) -> None:
    config = make(tmp_path, 2)
    text = config.read_text()
    config.write_text(text.replace("[output]\n", f'[output]\ndir = "{place}"\n'))
    said = dpstream("run", config, code=code).stderr
    assert place in said
    # Nothing was drawn: the stream begins with another folder as if it had not been tried.
    config.write_text(text)
    facts = status(config)
    assert (facts["steps"], facts["begun"], facts["spent"]) == (0, None, None)
    dpstream("run", config)


def test_a_sample_on_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make(tmp_path, 1)
    dpstream("run", config)

    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable, "write", full)
    out = tmp_path / "s.csv"
    assert "No space left" in dpstream("sample", config, "--step", 1, "--out", out, code=4).stderr
    assert not out.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_running_process_that_is_stopped_goes_on(tmp_path: Path, number: int) -> None:
    config = make(tmp_path, 200)
    command = [sys.executable, "-m", "dpstream", "run", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        while len(list(tmp_path.glob("releases/step-*"))) < 2 and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(number)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == (5 if number == signal.SIGINT else -number), said
    assert ("the state is clean" in said) == (number == signal.SIGINT)
    until = status(config)["steps"] + 2
    assert 4 <= until < 200
    dpstream("run", config, "--until", until)
    facts = status(config)
    assert (facts["steps"], facts["begun"]) == (until, None)


def test_an_interrupt_inside_a_step_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, 4)
    # Ignored where the suite itself was started in the background.
    before = signal.getsignal(signal.SIGINT)
    real = Stream.step

    def step(self: Stream, *args: Any, **kwargs: Any) -> Any:
        if self.last_step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Stream, "step", step)
    error = dpstream("run", config, code=5).stderr
    assert "interrupted after step 2; the state is clean" in error
    monkeypatch.undo()
    assert status(config)["steps"] == 2
    assert "2 new steps, 4 in all" in dpstream("run", config).stdout
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_aborts_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 1)
    before = released(tmp_path)
    real = Stream._prepare

    def prepare(self: Stream, *args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        return real(self, *args)

    monkeypatch.setattr(Stream, "_prepare", prepare)
    assert "the state is clean" in dpstream("run", config, code=5).stderr
    monkeypatch.undo()
    assert released(tmp_path) == before
    # Noise had been drawn, so the step stays reserved for its records, as after a crash; they go on.
    assert status(config)["begun"] == 2
    assert "2 new steps, 3 in all" in dpstream("run", config).stdout


def test_a_failure_after_drawing_is_decided_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make(tmp_path, 2)

    def fail(*_: Any) -> Any:
        raise LimitError("a sum would pass 64 bits", where="counter")

    def full(*_: Any) -> Any:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "_prepare", fail)
        with monkeypatch.context() as deeper:
            deeper.setattr(Store, "record_failure", full)
            said = dpstream("run", config, code=3).stderr
        assert "64 bits" in said
        assert "could not be recorded (the disk is full)" in said
        assert status(config)["failed"] is None
        assert "recorded" not in dpstream("run", config, code=3).stderr
    assert status(config)["failed"] == "LimitError"
    assert "stopped with LimitError" in dpstream("run", config, code=2).stderr
    assert "2 new steps, 2 in all" in dpstream("run", config, "--discard-reserved").stdout


def test_another_output_folder_hides_no_rollback(tmp_path: Path) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 1)
    shutil.copytree(tmp_path / "state", tmp_path / "old")
    dpstream("run", config, "--until", 2)
    told = dpstream("run", config, "--state", tmp_path / "old", "--out", tmp_path / "o", code=4).stderr
    assert "step 2 is published, but the ledger ends at step 1" in told
    # Another stream of the same file, and the same stream in another folder, are fine.
    dpstream("run", config, "--state", tmp_path / "new", "--out", tmp_path / "o")
    dpstream("run", config, "--out", tmp_path / "p")
    assert status(config)["steps"] == 3
