"""A points stream is stopped before its durability calls, like every durable stream."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from fault_harness import (
    Subject,
    committed_steps,
    faulty,
    full_disk,
    in_child,
    kill,
    lying_commit,
    outcome,
    refused,
    run_stream,
    violations_after_stop,
    violations_at_end,
)

from dpstream.errors import StoreError
from dpstream.points import PointsStream
from dpstream.privacy import Event
from dpstream.schema import Categorical, Real, Schema
from dpstream.streams import Batch, StateKey
from dpstream.streams.publishing import Publishing

PLANE = Schema((Categorical("kind", ["a", "b", "c"]), Real("x", [0, 1]), Real("y", [0, 0.5, 1])))
LINE = Schema((Real("x", [0, 1]),))
KEY = StateKey.generate()


def subject(schema: Schema, *, publish: str) -> Subject:
    """Levels end within steps and between them; with one coordinate earlier points are kept for ever."""
    plan = PointsStream(schema, max_depth=6).calibrate(epsilon="8", unit=Event("replace"))

    def points(step: int) -> Batch:
        generator = np.random.default_rng(step)
        count = (3, 40, 0, 25, 60, 17)[step % 6]
        columns = {
            "kind": generator.choice(["a", "b", "c"], count),
            "x": generator.random(count) ** 2,
            "y": generator.random(count),
        }
        return Batch({name: columns[name] for name in schema.names})

    return Subject(plan, schema, points, Publishing(records="persistent", publish=publish))  # type: ignore[arg-type]


SUBJECTS = {"plane": subject(PLANE, publish="changes"), "line": subject(LINE, publish="both")}


@pytest.mark.parametrize(
    ("name", "keep", "key", "stride"),
    [("plane", "all", None, 5), ("line", 1, KEY, 9)],
)
def test_killed_before_durability_calls(
    tmp_path: Path, name: str, keep: int | str, key: StateKey | None, stride: int
) -> None:
    """Finished by another process: with equal entropy every file is equal, and nothing was drawn twice."""
    options = {"seeded": True, "keep": keep, "key": key, "subject": SUBJECTS[name]}
    with faulty(None, kill) as calls:
        run_stream(tmp_path / "undisturbed", **options)  # type: ignore[arg-type]
    expected = outcome(tmp_path / "undisturbed")
    assert len(calls) > 30
    for at in range(1, len(calls) + 1, stride):
        home = tmp_path / str(at)

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                run_stream(home, **options)  # type: ignore[arg-type]

        assert in_child(disturbed) == -signal.SIGKILL
        assert violations_after_stop(home) == [], at
        before = committed_steps(home)
        assert not refused(home, **options), (at, calls[at - 1])
        assert violations_at_end(home, before) == [], at
        if before:
            assert outcome(home) == expected, at


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_are_clear_errors_and_nothing_is_lost(tmp_path: Path, fault: object) -> None:
    options = {"seeded": True, "subject": SUBJECTS["plane"]}
    with faulty(None, kill) as calls:
        run_stream(tmp_path / "undisturbed", **options)  # type: ignore[arg-type]
    for at in range(1, len(calls) + 1, 9):
        home = tmp_path / str(at)
        with faulty(at, fault), pytest.raises(StoreError):  # type: ignore[arg-type]
            run_stream(home, **options)  # type: ignore[arg-type]
        before = committed_steps(home)
        run_stream(home, **options)  # type: ignore[arg-type]
        assert violations_at_end(home, before) == [], at
