"""A points stream is stopped before its durability calls, like every durable stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fault_harness import Fault, Subject, fails_clearly_at, full_disk, killed_at_every, lying_commit

from dpstream.core.privacy import Event
from dpstream.core.schema import Categorical, Real, Schema
from dpstream.families.points import Points
from dpstream.stream import Batch, StateKey
from dpstream.stream.release.publishing import Publishing

PLANE = Schema((Categorical("kind", ["a", "b", "c"]), Real("x", [0, 1]), Real("y", [0, 0.5, 1])))
LINE = Schema((Real("x", [0, 1]),))
KEY = StateKey.generate()


def subject(schema: Schema, *, publish: str) -> Subject:
    """Levels end within steps and between them; with one coordinate earlier points are kept for ever."""
    plan = Points(schema, max_depth=6).calibrate(epsilon="8", unit=Event("replace"))

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
    assert killed_at_every(stride, tmp_path, keep=keep, key=key, subject=SUBJECTS[name]) > 30


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_are_clear_errors_and_nothing_is_lost(tmp_path: Path, fault: Fault) -> None:
    fails_clearly_at(slice(1, None, 9), fault, tmp_path, subject=SUBJECTS["plane"])
