"""A scheduler is stopped before its durability calls, like every durable stream: also where it runs, and where not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fault_harness import STEPS, Fault, Subject, fails_clearly_at, full_disk, killed_at_every, lying_commit

from dpstream.core.schema import Boolean, Schema
from dpstream.core.tables import Workload
from dpstream.families.growing import ERM, BBImprover, BBScheduler, MWEMPGMBox
from dpstream.io.sinks import read_manifest
from dpstream.mechanisms import MWEMPGM
from dpstream.stream import Batch

SCHEMA = Schema((Boolean("paid"), Boolean("late")))
WORKLOAD = Workload.all_k_way(SCHEMA.domain, 1)

#: Nothing yet, a run of several epochs, the last release again.
SIZES = {1: 30, 2: 40, 3: 2}
RUNS = {"scheduler": [None, 1, 1], "improver": [None, 1, 2], "classifier": [None, 1, 1]}


def arrivals(step: int) -> Batch:
    """Records of one step, in another order at every call."""
    generator = np.random.default_rng(step)
    codes = generator.integers(0, 2, (SIZES[step], 2)).astype(np.int32)
    return Batch(codes)


SUBJECTS = {
    "scheduler": Subject(
        BBScheduler(MWEMPGMBox(WORKLOAD, MWEMPGM(k=2)), 50, gamma="1/10").calibrate(epsilon=1),
        SCHEMA,
        arrivals,
    ),
    "improver": Subject(
        BBImprover(MWEMPGMBox(WORKLOAD, MWEMPGM(k=1)), 50).calibrate(rho=1), SCHEMA, arrivals
    ),
    "classifier": Subject(
        BBScheduler(ERM(SCHEMA, "late"), 50, gamma="1/10").calibrate(epsilon=1),
        SCHEMA,
        arrivals,
    ),
}
STRIDES = {"scheduler": 5, "improver": 8, "classifier": 11}


@pytest.mark.parametrize("kind", list(SUBJECTS))
def test_killed_before_durability_calls(tmp_path: Path, kind: str) -> None:
    """Finished by another process, no run is made twice, and with equal entropy every file is equal.

    Every fifth call or fewer: the calls are those of all streams, each of which ``test_faults.py`` stops at.
    """
    subject, stride = SUBJECTS[kind], STRIDES[kind]

    def runs_once(home: Path) -> None:
        manifests = [read_manifest(home / "releases", step) for step in range(1, STEPS + 1)]
        runs = [manifest["accuracy"]["run"] for manifest in manifests]
        assert [None if run is None else run["number"] for run in runs] == RUNS[kind]

    assert killed_at_every(stride, tmp_path, subject=subject, judge=runs_once) > 30


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_are_clear_errors_and_nothing_is_lost(tmp_path: Path, fault: Fault) -> None:
    fails_clearly_at(slice(1, None, 8), fault, tmp_path, subject=SUBJECTS["scheduler"])
