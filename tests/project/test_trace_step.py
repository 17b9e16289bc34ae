"""A step runs in few modules, and they can be read one after the other: no two call each other."""

from __future__ import annotations

import pytest

trace_step = pytest.importorskip("trace_step", reason="the benchmarks are not here (an installed package)")


@pytest.mark.parametrize("mechanism", list(trace_step.RECIPES))
def test_a_step_runs_in_few_modules_that_do_not_call_each_other(mechanism: str) -> None:
    trace = trace_step.step_of(mechanism)
    assert len(trace.modules) <= 40
    assert trace.pairs == []
    assert ("core.privacy.randomness", "Randomness.measure") in trace.functions


def test_modules_that_call_each_other_are_seen() -> None:
    arrows = frozenset({("a", "b"), ("b", "a"), ("a", "c")})
    assert trace_step.Trace(3, frozenset(), arrows).pairs == [("a", "b")]
