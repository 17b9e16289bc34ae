"""A stream of keyed records is stopped before its durability calls, like every durable stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fault_harness import STEPS, Fault, Subject, fails_clearly_at, full_disk, killed_at_every, lying_commit
from toy_keyed import KeyedPlan, Values, batch, frame, values
from toy_stream import SCHEMA

from dpstream.stream import KeyedBatch, Snapshot, StateKey
from dpstream.stream.inspection import check_store
from dpstream.stream.release.publishing import Publishing


def mixed(step: int) -> KeyedBatch | Snapshot:
    """Events, and a snapshot as the second step."""
    if step != 2:
        return batch(step)
    rng = np.random.default_rng(step)
    rows: dict[str, Values] = {f"key-{key}": values(rng) for key in range(20, 50)}
    return Snapshot(frame(rows), "id")


SUBJECT = Subject(KeyedPlan(), SCHEMA, mixed, Publishing())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stride", "key"), [(3, None), (11, StateKey(b"k" * 32))], ids=["plain", "encrypted"]
)
def test_killed_before_durability_calls(tmp_path: Path, stride: int, key: StateKey | None) -> None:
    """Finished by another process, nothing is drawn twice, and with equal entropy every file is equal, so the present
    records are: their counts are in every table's manifest and rows."""

    def sound(home: Path) -> None:
        assert check_store(home / "state", home / "releases", key=key).problems == ()

    calls = killed_at_every(stride, tmp_path, judge=sound, subject=SUBJECT, key=key)
    assert calls > 10 * STEPS


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_are_clear_errors_and_nothing_is_lost(tmp_path: Path, fault: Fault) -> None:
    fails_clearly_at(slice(2, None, 11), fault, tmp_path, subject=SUBJECT)


@pytest.mark.usefixtures("on_postgres")
def test_killed_on_a_server(tmp_path: Path) -> None:
    assert killed_at_every(19, tmp_path, subject=SUBJECT) > 10 * STEPS
