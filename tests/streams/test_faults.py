"""Durable steps under injected faults, one table of subjects (``fault_subjects.py``) and faults: a stream is stopped
before its durability calls, or these fail; then it is finished, and judged from its files.

In ``make test`` each subject is stopped at some calls, with other strides; in ``make torture`` at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fault_harness import Fault, fails_clearly_at, full_disk, killed_at_every, lying_commit
from fault_subjects import SUBJECTS

if TYPE_CHECKING:
    from postgres_server import Cluster

pytestmark = pytest.mark.usefixtures("small_blocks")
#: Of all subjects, instead of their own.
STRIDE = int(os.environ.get("DPSTREAM_KILL_STRIDE", "0"))


@pytest.mark.parametrize("name", SUBJECTS)
def test_killed_before_durability_calls(tmp_path: Path, name: str) -> None:
    """Finished by another process, nothing is drawn twice, and with equal entropy every file is equal."""
    assert killed_at_every(STRIDE or SUBJECTS[name].stride, tmp_path, SUBJECTS[name]) > 30


@pytest.mark.parametrize(("name", "stride"), [("toy", 19), ("users", 13), ("keyed", 19)])
def test_killed_on_a_server(tmp_path: Path, on_postgres: Cluster, name: str, stride: int) -> None:
    assert killed_at_every(STRIDE or stride, tmp_path, SUBJECTS[name]) > 30


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("toy", slice(1, None, 5)),
        ("scheduler", slice(1, None, 13)),
        ("window", slice(1, None, 11)),
        ("plane", slice(1, None, 13)),
        ("pooled", slice(3, None, 17)),
        ("keyed", slice(2, None, 11)),
    ],
)
def test_failing_calls_are_clear_errors_and_nothing_is_lost(
    tmp_path: Path, name: str, calls: slice, fault: Fault
) -> None:
    fails_clearly_at(slice(1, None, STRIDE) if STRIDE else calls, fault, tmp_path, SUBJECTS[name])


def test_the_harness_catches_publishing_before_the_commit(tmp_path: Path) -> None:
    """Negative control: the wrong order is found."""
    with pytest.raises(AssertionError, match="published and not committed"):
        killed_at_every(5, tmp_path, wrong_order=True)
