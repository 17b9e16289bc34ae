"""A pooled stream is stopped before its durability calls, inside epochs and at borders, like every durable stream."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from fault_harness import (
    STEPS,
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
from dpstream.schema import Boolean, Categorical, Schema
from dpstream.streams import Batch
from dpstream.streams.publishing import Publishing
from dpstream.tables import Workload
from dpstream.tabular import Pooled

SCHEMA = Schema((Boolean("paid"), Categorical("zip", ["94102", "94103", "94110"])))


def rows(count: int, generator: np.random.Generator) -> dict[str, list[object]]:
    zips = generator.choice(["94102", "94103", "94110"], count)
    return {"paid": (generator.random(count) < 0.3).tolist(), "zip": zips.tolist()}


def batch(step: int) -> Batch:
    """Inserts and deletes."""
    generator = np.random.default_rng(step)
    return Batch(rows(30, generator), rows(4, generator))


#: Half of a stream may be extrapolated, so that there are steps inside epochs.
RECIPE = Pooled(Workload.all_k_way(SCHEMA.domain, 2), staleness="1/2", deletions=True)  # type: ignore[arg-type]
SUBJECT = Subject(RECIPE.calibrate(epsilon="1", horizon=STEPS), SCHEMA, batch, Publishing())


def test_killed_before_durability_calls(tmp_path: Path) -> None:
    """Finished by another process, nothing is drawn twice, and with equal entropy every file is equal.

    Every fifth call: the calls are those of all streams, each of which ``test_faults.py`` stops at.
    """
    options = {"seeded": True, "subject": SUBJECT}
    with faulty(None, kill) as calls:
        run_stream(tmp_path / "undisturbed", **options)  # type: ignore[arg-type]
    expected = outcome(tmp_path / "undisturbed")
    for at in range(1, len(calls) + 1, 5):
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
    options = {"seeded": True, "subject": SUBJECT}
    with faulty(None, kill) as calls:
        run_stream(tmp_path / "undisturbed", **options)  # type: ignore[arg-type]
    for at in range(3, len(calls) + 1, 11):
        home = tmp_path / str(at)
        with faulty(at, fault), pytest.raises(StoreError):  # type: ignore[arg-type]
            run_stream(home, **options)  # type: ignore[arg-type]
        before = committed_steps(home)
        run_stream(home, **options)  # type: ignore[arg-type]
        assert violations_at_end(home, before) == [], at
