"""The counter that DP-STabS takes by itself, and streams that began with another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpstream import Batch, Schema
from dpstream.core.counters import best
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Event, PureDP
from dpstream.core.schema import Boolean, Categorical
from dpstream.core.tables import Workload
from dpstream.families.tabular import DPStabs
from dpstream.stream import open_stream

SCHEMA = Schema([Categorical("zip", ["a", "b", "c"]), Boolean("late"), Boolean("paid")])
SINGLES = Workload.all_k_way(SCHEMA.domain, 1)
FRAME = {"zip": ["a", "b"], "late": [True, False], "paid": [True, True]}


def test_where_all_is_measured_running_sums_are_judged() -> None:
    plan = DPStabs(SINGLES).calibrate(epsilon=1, horizon=1000)
    assert plan.choice is not None
    assert plan.choice.ticks == 1000
    assert (
        plan.choice.name == best(PureDP.of("1/3"), Event(), horizon=1000, width=7).name == plan.counter.name
    )
    simple = DPStabs(SINGLES, counter="simple").calibrate(epsilon=1, horizon=1000)
    assert plan.counter.variance(1000) < simple.counter.variance(1000) / 3
    assert simple.choice is None


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"rho": 1}])
def test_where_marginals_take_turns_the_counter_is_simple(budget: dict[str, int]) -> None:
    """As the figures of benchmarks/results/counters_in_dpstabs.txt have it: simple, however long the stream."""
    for horizon in (None, 10, 5000):
        plan = DPStabs(SINGLES, k=2).calibrate(**budget, horizon=horizon)
        assert (plan.choice, plan.counter.name) == (None, "simple")
        named = DPStabs(SINGLES, k=2, counter="simple").calibrate(**budget, horizon=horizon)
        assert plan.options() == named.options()
        assert plan.parts() == named.parts()


def test_a_stream_that_began_with_another_counter_is_told_how_to_go_on(tmp_path: Path) -> None:
    began = DPStabs(SINGLES, counter="simple").calibrate(epsilon=1, horizon=1000)
    with open_stream(began, SCHEMA, tmp_path / "state") as stream:
        stream.step(Batch(inserts=FRAME, deletes=None), name="1")
    chosen = DPStabs(SINGLES).calibrate(epsilon=1, horizon=1000)
    with pytest.raises(ConfigError, match='the counter that it began with: counter = "simple"'):
        open_stream(chosen, SCHEMA, tmp_path / "state")
    with open_stream(began, SCHEMA, tmp_path / "state") as stream:
        assert stream.last_step == 1
    other = DPStabs(SINGLES, counter="simple").calibrate(epsilon=2, horizon=1000)
    with pytest.raises(ConfigError) as caught:
        open_stream(other, SCHEMA, tmp_path / "state")
    assert "the counter that it began with" not in str(caught.value)  # it is another budget
