"""A pooled stream is stopped before its durability calls, inside epochs and at borders, like every durable stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fault_harness import STEPS, Fault, Subject, fails_clearly_at, full_disk, killed_at_every, lying_commit

from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.tables import Workload
from dpstream.families.tabular import Pooled
from dpstream.stream import Batch
from dpstream.stream.release.publishing import Publishing

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
    killed_at_every(5, tmp_path, subject=SUBJECT)


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_are_clear_errors_and_nothing_is_lost(tmp_path: Path, fault: Fault) -> None:
    fails_clearly_at(slice(3, None, 11), fault, tmp_path, subject=SUBJECT)
