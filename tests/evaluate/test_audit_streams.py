"""Whole-stream audits: neighbours are neighbours, the hand-made statistic is the likelihood ratio, controls are caught.

All randomness is seeded, so a finding is the same every time; with fresh randomness an honest subject is accused with
probability 2.5e-8.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpstream.core.privacy import Event, Randomness, pure_to_zcdp, zcdp_to_epsilon
from dpstream.core.privacy.budget import PureDP
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular import DPStabs
from dpstream.lab.audits.streams_audit import (
    STREAMS_CONFIDENCE,
    BlindPlan,
    ExactTotal,
    LeakyPlan,
    Pair,
    Scene,
    audit_published,
    audit_stream,
    crowded,
    empty,
    features,
    published_bytes,
    run_scene,
    stream_controls,
    stream_subjects,
)

TWO = Domain(("a", "b"), (2, 2))
ALL = stream_subjects() + stream_controls()


def named(part):
    (subject,) = [subject for subject in ALL if part in subject.name]
    return subject


def joint(stream):
    """Inserts and deletes at every step as counts over the whole domain, shape (2, steps, cells)."""
    shape = stream.domain.sizes
    tables = []
    for codes in (stream.inserts, stream.deletes or (stream.inserts[0][:0],) * len(stream)):
        flat = [np.ravel_multi_index(step.T, shape) for step in codes]
        tables.append([np.bincount(cells, minlength=math.prod(shape)) for cells in flat])
    return np.array(tables)


@pytest.mark.parametrize("subject", ALL, ids=lambda subject: subject.name)
def test_pairs_are_as_many_events_apart_as_they_say(subject):
    scene, replaced = subject.scene, "replace" in subject.name
    for pair in scene.pairs:
        difference = joint(scene.streams[pair.second]) - joint(scene.streams[pair.first])
        assert np.abs(difference).sum() == pair.events * (2 if replaced else 1)
        assert (difference.sum() == 0) == replaced
        # Every event is at one step, and of one kind.
        assert np.count_nonzero(np.abs(difference).sum(axis=2)) == pair.events


def test_what_is_audited():
    """First and last steps, borders of blocks and trees, empty and crowded, deletions, both relations, zCDP."""
    honest = [pair for subject in stream_subjects() for pair in subject.scene.pairs]
    assert 20 <= len(honest) <= 40
    assert 40 * (1 - STREAMS_CONFIDENCE) <= 1e-6 * (1 + 1e-6)
    assert len({subject.name for subject in ALL}) == len(ALL)
    assert {subject.scene.pairs[0].name for subject in ALL} >= {
        "canary at step 1",
        "record replaced at step 1",
    }
    assert (
        named("tree counters").scene.pairs[-1].name == f"canary at step {len(named('tree counters').scene)}"
    )
    assert {type(subject.budget).__name__ for subject in ALL} == {"PureDP", "ZCDP"}
    assert sum(subject.control for subject in ALL) == len(stream_controls())


def test_a_variation_goes_on_from_the_shared_beginning():
    subject = named("with deletions")
    outputs = run_scene(subject.mechanism, subject.workload.cliques, subject.scene, 3, Randomness.seeded(1))
    assert outputs.values.shape == (3, 3, 4, 2 * 4 + 1)
    base, inserted, gone = outputs.values
    assert np.array_equal(base[:, 0], inserted[:, 0])
    assert np.array_equal(base[:, 0], gone[:, 0])
    for other in (inserted, gone):
        assert all(np.any(base[run, 1:] != other[run, 1:]) for run in range(3))
    # Runs differ from each other.
    assert len(np.unique(base.reshape(3, -1), axis=0)) == 3


@pytest.mark.parametrize(
    ("counter", "steps", "at"), [("simple", 3, 2), ("block", 5, 4), ("tree", 5, 1), ("tree", 5, 5)]
)
@pytest.mark.parametrize("kind", ["epsilon", "rho", "replace"])
def test_the_evidence_is_the_likelihood_ratio(counter, steps, at, kind):
    """Against the probabilities of the draws that the counter would have needed on either stream."""
    amount = {"rho": "1/2"} if kind == "rho" else {"epsilon": 2}
    unit = Event("replace") if kind == "replace" else Event()
    plan = DPStabs(Workload.all_k_way(TWO, 2), counter=counter).calibrate(**amount, unit=unit, horizon=steps)
    make = Scene.replaced if kind == "replace" else Scene.inserted
    scene = make(crowded(TWO, steps, 3), (1, 0), (at,))
    outputs = run_scene(plan, ((0, 1),), scene, 12, Randomness.seeded(f"{counter}{kind}"))
    law = plan.counter.materialize(steps)
    first, second, names = features(outputs, scene, scene.pairs[0], law)
    assert first.shape[1] == second.shape[1] == len(names)
    truth = [np.cumsum(joint(stream)[0], axis=0) for stream in scene.streams]
    back = np.linalg.inv(law.decoder)
    for number, table in enumerate((first, second)):
        measured = outputs.values[number, :, :, 4:8]
        likelihoods = []
        for stream in (0, 1):
            draws = np.rint(np.einsum("nt,rtc->rnc", back, measured - truth[stream])).astype(np.int64)
            logs = [np.log(noise.pmf(draws[:, i])).sum(axis=1) for i, noise in enumerate(law.scales)]
            likelihoods.append(np.sum(logs, axis=0))
        assert table[:, -1] == pytest.approx(likelihoods[0] - likelihoods[1], abs=1e-8)
    if kind != "rho":
        # The worst case is what the plan claims, and is met where the canary is in all the noisy sums it pays for.
        assert np.abs(first[:, -1]).max() <= 2 + 1e-9
    if (counter, kind) == ("simple", "epsilon"):
        assert set(np.abs(first[:, -1]).round(9)) == {2.0}


@pytest.mark.parametrize(
    ("part", "runs", "least"),
    [
        ("2/3 of the noise", 2500, 1.0),
        ("once per counter", 1200, 1.0),
        ("exact total", 200, 1.5),
        ("1/4", 800, 2.8),
    ],
)
def test_controls_are_caught(part, runs, least):
    """With fewer runs than an audit takes: the seeds are fixed."""
    subject = named(part)
    assert runs <= subject.runs
    (finding,) = audit_stream(subject, runs, Randomness.seeded(part))
    assert finding.control
    assert finding.caught
    assert finding.passed
    assert finding.found > max(least, finding.claimed)


def test_the_same_streams_without_the_fault_pass():
    """The exact total's own plan, as it is: less than the claim is found, but something is."""
    subject = named("exact total")
    assert isinstance(subject.mechanism, ExactTotal)
    honest = type(subject)(**{**subject.__dict__, "mechanism": subject.mechanism.plan, "control": False})
    (finding,) = audit_stream(honest, 800, Randomness.seeded(5))
    assert finding.passed
    assert 0.2 < finding.found <= 1.0
    assert "at 95 % alone" in finding.detail


def test_claims():
    """Two events may lose twice as much; rho is stated as the (epsilon, delta) it implies."""
    findings = list(audit_stream(named("with deletions"), 30, Randomness.seeded(1)))
    assert [finding.claimed for finding in findings] == [3, 3, 6]
    assert "for 2 events" in findings[2].detail
    assert len({finding.runs for finding in findings}) == 1
    (zcdp,) = audit_stream(named("DP-STabS, zCDP"), 30, Randomness.seeded(1))
    assert zcdp.claimed == pytest.approx(zcdp_to_epsilon(pure_to_zcdp(PureDP.of(1)), "0.01"))
    assert "0.01)-DP" in zcdp.detail
    assert zcdp.unit == "epsilon"


def test_ticks_are_told():
    seen = []
    scene = Scene.inserted(empty(TWO, 1), (0, 0), (1,))
    plan = DPStabs(Workload.all_k_way(TWO, 1)).calibrate(epsilon=1)
    run_scene(plan, ((0,), (1,)), scene, 5, Randomness.seeded(1), lambda: seen.append(1))
    assert len(seen) == 5
    assert scene.pairs == (Pair("canary at step 1", 0, 1),)


codes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=30)


@given(st.lists(codes, min_size=2, max_size=2), st.lists(codes, min_size=2, max_size=2))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_published_byte_depends_on_a_record(left, right):
    plan = DPStabs(Workload.all_k_way(Domain(("place", "paid"), (3, 2)), 2)).calibrate(epsilon=1)
    parts = (plan.recipe, plan.budget, plan.unit, plan.horizon, plan.counter, plan.selector)
    streams = [[np.array(step, np.int32).reshape(-1, 2) for step in stream] for stream in (left, right)]
    first, second = (published_bytes(BlindPlan(*parts), stream) for stream in streams)
    assert first == second
    assert {"catalogue.json", "codebook.json", "step-000002/manifest.json"} <= first.keys()
    if [bool(len(step)) for step in streams[0]] != [bool(len(step)) for step in streams[1]]:
        leaking = [published_bytes(LeakyPlan(*parts), stream) for stream in streams]
        assert leaking[0] != leaking[1]


def test_published_files_as_findings():
    honest, control = audit_published()
    assert (honest.found, honest.claimed, honest.passed) == (0.0, 0.0, True)
    assert (control.found, control.caught, control.passed) == (math.inf, True, True)
