"""The command when something stops it: a full disk, an interrupt, a failure, another process, damage."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream, make, released, status

from dpstream.core import durable
from dpstream.core.errors import LimitError, StoreError
from dpstream.stream import Stream
from dpstream.stream.store.store import Store


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    real, full = durable.write, [False]

    def write(descriptor: int, data: bytes) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor, data)

    monkeypatch.setattr(durable, "write", write)

    def switch(on: bool) -> None:
        full[0] = on

    return switch


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


def test_a_full_disk_stops_cleanly(tmp_path: Path, full_disk: Callable[[bool], None]) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 1)
    full_disk(True)
    assert "No space left" in dpstream("run", config, code=4).stderr
    assert (
        "No space left" in dpstream("sample", config, "--step", 1, "--out", tmp_path / "s.csv", code=4).stderr
    )
    full_disk(False)
    assert not (tmp_path / "s.csv").exists()
    dpstream("run", config)
    assert status(config)["steps"] == 3


@pytest.mark.parametrize("number", [errno.EACCES, errno.EDQUOT, errno.EIO])
def test_a_missing_right_or_a_broken_disk_is_one_line(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, 1)
    dpstream("run", config)

    def fail(path: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(durable, "replace_file", fail)
    out = tmp_path / "s.csv"
    assert (
        f"{out}: {os.strerror(number)}"
        in dpstream("sample", config, "--step", 1, "--out", out, code=4).stderr
    )


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
        patch.setattr(Store, "record_failure", full)
        told = dpstream("run", config, code=3).stderr
        assert "64 bits" in told
        assert "the failed attempt could not be recorded (the disk is full): see docs" in told
        assert status(config)["failed"] is None
        patch.undo()
        patch.setattr(Stream, "_prepare", fail)
        assert "recorded" not in dpstream("run", config, code=3).stderr
    assert status(config)["failed"] == "LimitError"
    assert "never put it into a scheduled command" in dpstream("status", config).stdout
    assert "stopped with LimitError" in dpstream("run", config, code=2).stderr
    assert "2 new steps, 2 in all" in dpstream("run", config, "--discard-reserved").stdout


def test_one_run_at_a_time(tmp_path: Path) -> None:
    from dpstream.project import Config

    config = make(tmp_path, 2)
    dpstream("run", config, "--until", 1)
    with Config.load(config).open_stream():
        assert "another process" in dpstream("run", config, code=4).stderr
        assert status(config)["steps"] == 1
