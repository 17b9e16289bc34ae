"""A panel stream is stopped before its durability calls, like every durable stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fault_harness import STEPS, Fault, Subject, fails_clearly_at, full_disk, killed_at_every, lying_commit

from dpstream.core.privacy import Individual
from dpstream.core.schema import Boolean, Schema
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, StateKey
from dpstream.stream.release.publishing import Publishing

SCHEMA = Schema((Boolean("poor", missing="absent"),))
KEY = StateKey.generate()


def reports(step: int) -> Batch:
    """Thirty people in another order at every step; ten of them come later, one stays away."""
    generator = np.random.default_rng(step)
    people = generator.permutation(20 if step == 1 else 30)[: -1 if step == 3 else None]
    return Batch({"poor": (generator.random(len(people)) < 0.3).tolist()}, users=people)


def subject(kind: str) -> Subject:
    recipe = (
        PanelWindow(SCHEMA, window=2, people=40) if kind == "window" else PanelCumulative(SCHEMA, people=40)
    )
    plan = recipe.calibrate(rho="1/2", unit=Individual("replace"), horizon=STEPS)
    publish = "changes" if kind == "window" else "both"
    return Subject(plan, SCHEMA, reports, Publishing(records="persistent", publish=publish))


SUBJECTS = {kind: subject(kind) for kind in ("window", "cumulative")}


@pytest.mark.parametrize(
    ("kind", "keep", "key", "stride"),
    [("window", "all", None, 3), ("cumulative", 1, KEY, 6)],
)
def test_killed_before_durability_calls(
    tmp_path: Path, kind: str, keep: int | str, key: StateKey | None, stride: int
) -> None:
    """Finished by another process, nothing is drawn twice, and with equal entropy every file is equal.

    Every third or sixth call: the calls are those of all streams, each of which ``test_faults.py`` stops at.
    """
    assert (
        killed_at_every(
            stride, tmp_path, keep=keep, key=key, subject=SUBJECTS[kind], judge=assert_only_extended
        )
        > 30
    )


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_are_clear_errors_and_nothing_is_lost(tmp_path: Path, fault: Fault) -> None:
    fails_clearly_at(slice(1, None, 6), fault, tmp_path, subject=SUBJECTS["window"])


def assert_only_extended(home: Path) -> None:
    """Each kept release holds the one before it, cell by cell."""
    earlier = None
    for step in range(1, STEPS + 1):
        if not any((home / "releases" / f"step-{step:06d}").glob("[tc]*.csv")):
            continue
        table = read(home / "releases", step)
        if earlier is not None and earlier.num_columns > 1:
            assert table.select(earlier.column_names).equals(earlier)
        earlier = table
    assert earlier is not None
    assert [name for name in earlier.column_names if name.startswith("poor")] == [
        f"poor_{step}" for step in range(1, STEPS + 1)
    ]
