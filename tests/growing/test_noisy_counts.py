"""Growing databases say how many numbers their runs publish, and of what; readers get exact intervals from these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dpstream
from dpstream.core.contracts import NoisyCounts
from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import BBScheduler, MWEMPGMBox
from dpstream.io.sinks import Publisher, read_measurements
from dpstream.mechanisms import MWEMPGM
from dpstream.stream import Batch, open_stream
from dpstream.stream.templates import words
from dpstream.tools.audit.door import Door
from dpstream_lab.audits.growing_audit import arrivals, growing_plans

HONEST = growing_plans()


@pytest.mark.parametrize("name", HONEST)
def test_a_run_publishes_as_many_numbers_as_the_plan_says(name: str) -> None:
    """That they are what was drawn: ``tests/evaluate/test_published_is_measured.py``."""
    plan, door, counts = HONEST[name], Door(b"1"), list[NoisyCounts]()
    state = plan.start()
    for codes in arrivals(plan.domain, [5, 4, 2, 9]):
        counts += plan.step(state, EncodedBatch(plan.domain, codes), door).noisy_counts
    assert len(counts) == len(door.measured)
    assert all((one.first, one.counted) == (1, "inserts") for one in counts)
    said = plan.facts().get("noisy_counts")
    if plan.box.name == "smalldb":
        assert (counts, said) == ([], None)
        return
    for step in {one.last for one in counts}:
        run = [one for one in counts if one.last == step]
        assert said["first"] <= sum(len(one.values) for one in run) <= said["most"]
        # The smallest marginal is measured in any case.
        assert ["chosen" in one.query for one in run] == [number > 0 for number in range(len(run))]


SCHEMA = Schema((Categorical("zip", ("a", "b", "c")), Categorical("kind", tuple("pqrstuvw"))))


def grown(tmp_path: Path, box):
    """Releases of a durable stream of four steps, of which the last two end with a run."""
    plan = BBScheduler(box, 100, gamma="1/2").calibrate(epsilon=1)
    rows = [60, 20, 60, 200]
    steps = arrivals(SCHEMA.domain, rows)
    with open_stream(plan, SCHEMA, tmp_path / "state", publish_to=Publisher(tmp_path / "releases")) as stream:
        for number, codes in enumerate(steps, 1):
            stream.step(Batch(codes), f"b{number}")
    return dpstream.read(tmp_path / "releases"), steps


def test_a_reader_gets_intervals_as_of_the_last_run(tmp_path: Path) -> None:
    box = MWEMPGMBox(Workload.all_k_way(SCHEMA.domain, 1), MWEMPGM(k=2))
    release, steps = grown(tmp_path, box)
    # All marginals are measured, so none is chosen: each has an interval.
    counts = read_measurements(tmp_path / "releases")
    assert [(one.last, "chosen" in one.query) for one in counts] == [(3, False), (4, False)]
    zips = release.measured(["zip"])
    assert (zips.as_of, zips.epochs, zips.exact) == (4, ((1, 4),), True)
    low, high = zips.interval(0.999999)
    true = np.bincount(np.concatenate(steps)[:, 0], minlength=3)
    assert low[0] <= true[0] <= high[0]  # false alarms: 1e-6
    assert release.measured(["zip"], as_of=3).epochs == ((1, 3),)
    number = release.measured([])
    assert (float(number.values), number.standard_error, number.as_of) == (340.0, 0.0, 4)
    assert release.measured(["kind"]).interval() is not None
    assert "at every run, 11 numbers" in box_words(box)


def box_words(box) -> str:
    plan = BBScheduler(box, 100, gamma="1/2").calibrate(epsilon=1)
    return words(plan, "further", **plan.facts())
