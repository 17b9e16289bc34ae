"""A scheduler is stopped before its durability calls, like every durable stream: also where it runs, and where not."""

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
from dpstream.growing import ERM, MWEM, BBImprover, BBScheduler, FeatureMap, MWEMPGMBox
from dpstream.schema import Boolean, Schema
from dpstream.sinks import read_manifest
from dpstream.streams import Batch
from dpstream.tables import Workload
from dpstream.tabular import MWEMPGM

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
    "improver": Subject(BBImprover(MWEM(WORKLOAD, 2), 50).calibrate(rho=1), SCHEMA, arrivals),
    "classifier": Subject(
        BBScheduler(ERM(FeatureMap(SCHEMA.domain, "late")), 50, gamma="1/10").calibrate(epsilon=1),
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
    with faulty(None, kill) as calls:
        run_stream(tmp_path / "undisturbed", seeded=True, subject=subject)
    expected = outcome(tmp_path / "undisturbed")
    assert len(calls) > 30
    for at in range(1, len(calls) + 1, stride):
        home = tmp_path / str(at)

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                run_stream(home, seeded=True, subject=subject)

        assert in_child(disturbed) == -signal.SIGKILL
        assert violations_after_stop(home) == [], at
        before = committed_steps(home)
        assert not refused(home, seeded=True, subject=subject), (at, calls[at - 1])
        assert violations_at_end(home, before) == [], at
        if before:
            assert outcome(home) == expected, at
        manifests = [read_manifest(home / "releases", step) for step in range(1, STEPS + 1)]
        runs = [manifest["accuracy"]["run"] for manifest in manifests]
        assert [None if run is None else run["number"] for run in runs] == RUNS[kind]


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_are_clear_errors_and_nothing_is_lost(tmp_path: Path, fault: object) -> None:
    subject = SUBJECTS["scheduler"]
    with faulty(None, kill) as calls:
        run_stream(tmp_path / "undisturbed", seeded=True, subject=subject)
    for at in range(1, len(calls) + 1, 8):
        home = tmp_path / str(at)
        with faulty(at, fault), pytest.raises(StoreError):  # type: ignore[arg-type]
            run_stream(home, seeded=True, subject=subject)
        before = committed_steps(home)
        run_stream(home, seeded=True, subject=subject)
        assert violations_at_end(home, before) == [], at
