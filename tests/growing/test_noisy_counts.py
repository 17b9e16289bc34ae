"""Growing databases publish what their runs drew, all of it and nothing else; readers get exact intervals from it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from door_runs import only_drawn, stream_loss

import dpstream
from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import BBScheduler, GrowingPlan, MWEMPGMBox
from dpstream.io.sinks import Publisher, read_measurements
from dpstream.mechanisms import MWEMPGM
from dpstream.stream import Batch, open_stream
from dpstream.stream.templates import words
from dpstream.tools.audit.door import Door
from dpstream_lab.audits.growing_audit import (
    arrivals,
    growing_plans,
)

HONEST = growing_plans()


def few(plan: GrowingPlan) -> tuple[np.ndarray, ...]:
    """The records of the steps of a few runs."""
    return arrivals(plan.domain, [5, 4, 2, 9])


def exact(one: NoisyCounts, plan: GrowingPlan, steps: tuple[np.ndarray, ...]) -> np.ndarray:
    """What a query says of the records themselves."""
    if one.query["kind"] == "marginals":
        return np.concatenate([exact(marginal, plan, steps) for marginal in one.marginals])
    codes = np.concatenate(steps[one.first - 1 : one.last])
    columns = [plan.domain.names.index(name) for name in one.query["columns"]]
    sizes = [plan.domain.sizes[i] for i in columns]
    return np.bincount(np.ravel_multi_index(tuple(codes[:, columns].T), sizes), minlength=int(np.prod(sizes)))


def published_is_drawn(plan: GrowingPlan) -> tuple[bool, list[NoisyCounts]]:
    """Whether a stream publishes each vector of noise that its runs drew, added to true counts; what it publishes."""
    door, state, counts = Door(b"1"), plan.start(), list[NoisyCounts]()
    for codes in few(plan):
        counts += plan.step(state, EncodedBatch(plan.domain, codes), door).noisy_counts
    if len(door.measured) != len(counts):
        return False, counts
    pairs = zip(door.measured, counts, strict=True)
    drawn = [(made.noise, made.noisy - made.exact + exact(one, plan, few(plan))) for made, one in pairs]
    return only_drawn(drawn, counts), counts


class Leaking(GrowingPlan):
    """BROKEN: where a run is made, publishes one exact count beside the noisy ones."""

    def step(self, state, batch, randomness):
        made = super().step(state, batch, randomness)
        if not made.noisy_counts:
            return made
        leak = replace(made.noisy_counts[0], draw=f"leak {state.step}", values=state.counts[0].copy())
        return replace(made, noisy_counts=(*made.noisy_counts, leak))


class InPlace(GrowingPlan):
    """BROKEN: publishes exact counts in the place of noisy ones."""

    def step(self, state, batch, randomness):
        made = super().step(state, batch, randomness)
        exact_ones = [
            replace(one, values=state.counts[0].copy()) if one.values.shape == state.counts[0].shape else one
            for one in made.noisy_counts
        ]
        return replace(made, noisy_counts=tuple(exact_ones))


def broken(kind: type[GrowingPlan], plan: GrowingPlan) -> GrowingPlan:
    return kind(*(getattr(plan, item.name) for item in fields(plan)))


@pytest.mark.parametrize("name", HONEST)
def test_a_growing_stream_publishes_what_its_runs_drew(name: str) -> None:
    plan = HONEST[name]
    holds, counts = published_is_drawn(plan)
    assert holds
    assert all((one.first, one.counted) == (1, "inserts") for one in counts)
    said = plan.facts().get("noisy_counts")
    if plan.box.name == "smalldb":
        assert counts == []
        assert said is None
        return
    by_step = {step: [one for one in counts if one.last == step] for step in {one.last for one in counts}}
    for run in by_step.values():
        assert said["first"] <= sum(len(one.values) for one in run) <= said["most"]
        chosen = ["chosen" in one.query for one in run]
        # The smallest marginal is measured in any case.
        assert chosen == [number > 0 for number in range(len(run))]
    if name == "scheduler around MWEM+PGM, one marginal, zCDP":
        for kind in (Leaking, InPlace):
            assert not published_is_drawn(broken(kind, plan))[0]


def test_the_audit_sees_what_is_published() -> None:
    plan = HONEST["scheduler around MWEM+PGM, two of three marginals"]
    steps = few(plan)
    other = (*steps[:-1], steps[-1].copy())
    other[-1][0] = (other[-1][0] + 1) % np.array(plan.domain.sizes)
    leaking = broken(Leaking, plan)
    base, near = ([EncodedBatch(plan.domain, codes) for codes in stream] for stream in (steps, other))
    assert stream_loss(plan, base, near, Randomness.seeded(1)) <= 2.0
    assert stream_loss(leaking, base, near, Randomness.seeded(1)) == np.inf


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
