"""The audit of what is published: no byte depends on a record, and a total that leaks is seen."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpstream.core.privacy import Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular import DPStabs
from dpstream_lab.audits.published_audit import BlindPlan, LeakyPlan, audit_published, published_bytes
from dpstream_lab.audits.subjects import rebuilt

codes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=30)


@given(st.lists(codes, min_size=2, max_size=2), st.lists(codes, min_size=2, max_size=2))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_published_byte_depends_on_a_record(left, right):
    plan = DPStabs(Workload.all_k_way(Domain(("place", "paid"), (3, 2)), 2)).calibrate(epsilon=1)
    streams = [[np.array(step, np.int32).reshape(-1, 2) for step in stream] for stream in (left, right)]
    first, second = (published_bytes(rebuilt(BlindPlan, plan), stream) for stream in streams)
    assert first == second
    assert {"catalogue.json", "codebook.json", "step-000002/manifest.json"} <= first.keys()
    if [bool(len(step)) for step in streams[0]] != [bool(len(step)) for step in streams[1]]:
        leaking = [published_bytes(rebuilt(LeakyPlan, plan), stream) for stream in streams]
        assert leaking[0] != leaking[1]


def test_published_files_as_findings():
    honest, control = audit_published("short", Randomness.seeded(1), lambda text: None)
    assert (honest.found, honest.claimed, honest.passed) == (0.0, 0.0, True)
    assert (control.found, control.caught, control.passed) == (math.inf, True, True)
