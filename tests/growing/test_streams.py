"""Schedulers and improvers as streams: when they run, what they say, what they refuse."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_batches import drawn_batches
from small_streams import small_frame, small_schema, small_stream

import dpstream
from dpstream import ZCDP, Categorical, DpstreamError, Event, PureDP, Schema, Workload
from dpstream.core.contracts import Packed
from dpstream.core.errors import BudgetError, ConfigError, LimitError, StoreDamagedError, UnitError
from dpstream.core.privacy import Budget, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.families.growing import (
    BBImprover,
    BBScheduler,
    Counts,
    Database,
    MWEMPGMBox,
    OwnMechanism,
    PowerLaw,
    SmallDB,
)
from dpstream.io.sinks import read_measurements
from dpstream.mechanisms import MWEMPGM
from dpstream.stream import open_stream
from dpstream.stream.templates import paragraphs, said, words

DOMAIN = Domain(("a", "b"), (2, 3))
PAIR = Workload.all_k_way(DOMAIN, 2)


class Recorder:
    """A mechanism that gives the truth, and remembers what it was given. For tests of the schedule only."""

    def __init__(self) -> None:
        self.seen: list[tuple[Budget, int, NDArray[np.int64]]] = []

    def __call__(self, budget: Budget, data: Database, randomness: Randomness) -> NDArray[np.float64]:
        self.seen.append((budget, data.t, data.counts[0].copy()))
        with pytest.raises(ValueError, match="read-only"):
            data.counts[0][0] = 5
        weights: NDArray[np.float64] = data.counts[0] / data.t
        return weights


def recorded(**more: Any) -> tuple[Recorder, OwnMechanism]:
    recorder = Recorder()
    box = OwnMechanism(
        recorder, Counts(DOMAIN, PAIR.cliques), "recorder 1", definitions=("pure", "zcdp"), **more
    )
    return recorder, box


def batch(rows: int, seed: int = 0) -> EncodedBatch:
    return drawn_batches(DOMAIN, 1, rows, seed=seed)[0]


@settings(max_examples=40, deadline=None)
@given(st.booleans(), st.lists(st.integers(0, 120), min_size=1, max_size=25))
def test_it_runs_when_an_epoch_begins_on_everything_so_far(growing: bool, sizes: list[int]) -> None:
    recorder, box = recorded()
    recipe = BBScheduler(box, 50, gamma="1/10") if growing else BBImprover(box, 50)
    plan = recipe.calibrate(rho=1)
    state, so_far, t, done = plan.start(), np.zeros(6, np.int64), 0, -1
    for number, rows in enumerate(sizes):
        before = len(recorder.seen)
        arrived = batch(rows, number)
        so_far += arrived.count(PAIR.cliques)[0]
        t += rows
        synthesis = plan.step(state, arrived, Randomness.seeded(1))
        due = plan.schedule.due(done, t)
        assert len(recorder.seen) - before == (due is not None)
        if due is not None:
            done = due.last
            budget, seen, counts = recorder.seen[-1]
            assert (budget, seen) == (due.budget, t)
            assert np.array_equal(counts, so_far)
            assert np.allclose(synthesis.marginals(PAIR.cliques)[0], so_far)
        assert synthesis.total == t
        if not recorder.seen:
            assert synthesis.made is None
            assert "The first run is at 50 records" in words(plan, "accuracy", **synthesis.accuracy())
            assert np.allclose(synthesis.table.shares([(1,)])[0], 1 / 3)
        else:
            assert synthesis.made is not None
            assert synthesis.made.t == recorder.seen[-1][1]
            assert synthesis.made.number == len(recorder.seen)
            assert synthesis.stale == pytest.approx(1 - synthesis.made.t / t)
            assert synthesis.next_run > t
        again = plan.unpack_synthesis(synthesis.pack())
        assert again.accuracy() == synthesis.accuracy()
        state = plan.unpack_state(plan.pack_state(state))
    spent = sum((plan.schedule.run(0, done, max(t, 50)).cost,), Fraction(0)) if done >= 0 else Fraction(0)
    assert (0 if state.made is None else state.made.spent) <= min(
        plan.budget.amount, spent * Fraction(1001, 1000)
    )


def test_a_box_that_knows_pure_budgets_only_is_given_the_root_of_twice_rho() -> None:
    recorder, box = recorded()
    pure = OwnMechanism(recorder, box.reads, "recorder 1")
    plan = BBImprover(pure, 10).calibrate(rho="1/2")
    plan.step(plan.start(), batch(10), Randomness.seeded(1))
    (given_budget, _, _) = recorder.seen[0]
    assert isinstance(given_budget, PureDP)
    cost = plan.schedule.run(0, 0, 10).cost
    assert cost * (1 - Fraction(1, 10**6)) < given_budget.epsilon**2 / 2 <= cost


def test_parts_are_the_first_runs_and_all_later_ones() -> None:
    _, box = recorded()
    for recipe, amounts in (
        (BBScheduler(box, 1000, gamma="1/10"), {"epsilon": "2/3"}),
        (BBScheduler(box, 1000, gamma="1/10"), {"rho": "0.1"}),
        (BBImprover(box, 1000), {"epsilon": "1/2", "delta": "1e-6"}),
    ):
        plan = recipe.calibrate(**amounts)  # type: ignore[attr-defined]
        assert sum(part.total for part in plan.parts()) == plan.budget.amount
        assert [part.name for part in plan.parts()][-1] == "all later runs"
        assert "sequential over runs" in words(plan, "composition")
        assert any("runs are scheduled by it" in sentence for sentence in said(paragraphs(plan, "declared")))
        upto = [run.t for run in plan.runs(1300)]
        assert upto == [run.t for run in itertools.islice(plan.runs(), len(upto))]
        assert upto[-1] <= 1300 < plan.schedule.time(plan.schedule.epoch(1300) + 1)


def test_a_part_that_gives_back_is_refused(tmp_path: Path) -> None:
    """The last part is the rest: runs that cost more than the whole would hide in a negative one."""
    _, box = recorded()
    plan = BBImprover(box, 10).calibrate(epsilon="1/2", delta="1e-6")
    schema = Schema((Categorical("a", ("x", "y")), Categorical("b", ("p", "q", "r"))))
    with pytest.raises(BudgetError, match="is not positive"):
        open_stream(replace(plan, budget=ZCDP.of("1e-6")), schema, tmp_path / "state")


@pytest.mark.parametrize("rule", ["improver", "crossing", "size"])
def test_smalldb_promises_what_its_table_can_hold(rule: str) -> None:
    """Half of the records in each of two cells: a table of one record is half off, at any size of the database. Each
    promise may fail with probability beta = 0.05 over all time. Before, an improver promised 0.22 at 256,000 records.
    """
    workload = Workload.all_k_way(Domain(("a",), (2,)), 1)
    sizes, size = [1000 * 2**i for i in range(9)], 0
    if rule == "improver":
        plan: Any = BBImprover(SmallDB(workload), 1000).calibrate(rho=1)
    else:
        box = SmallDB(workload, size=1 if rule == "size" else None)
        plan = BBScheduler(box, 3000, gamma="1/2").calibrate(epsilon=1)
        sizes = [3000, 4500, 100_000, 101_000, 1_000_000]
    state, randomness, promises = plan.start(), Randomness.seeded(rule), []
    for now in sizes:
        arrived = EncodedBatch(workload.domain, (np.arange(now - size) % 2).astype(np.int32)[:, None])
        step, size = plan.step(state, arrived, randomness), now
        if step.promise is not None:
            assert np.abs(step.table.shares([(0,)])[0] - 0.5).max() <= step.promise
            promises.append(step.promise)
    assert promises
    assert plan.box.size == (2 if rule == "crossing" else 1)


def test_where_theory_promises_nothing_it_is_said() -> None:
    _, box = recorded(accuracy=PowerLaw(1 / 3, 50.0))
    plan = BBScheduler(box, 100, gamma="1/10").calibrate(epsilon=1)
    synthesis = plan.step(plan.start(), batch(100), Randomness.seeded(1))
    assert synthesis.promise is None
    assert "Theory promises nothing here" in words(plan, "accuracy", **synthesis.accuracy())
    assert plan.promise(next(plan.runs())) is None
    _, silent = recorded()
    plan = BBScheduler(silent, 100, gamma="1/10").calibrate(epsilon=1)
    facts = plan.step(plan.start(), batch(100), Randomness.seeded(1)).accuracy()
    assert "The mechanism promises no accuracy" in words(plan, "accuracy", **facts)


# Refusals.

CASES: list[tuple[str, Any, dict[str, Any], type[DpstreamError], str]] = [
    ("gamma 1", lambda b: BBScheduler(b, 10, gamma=1), {"epsilon": 1}, ConfigError, "newer than the last"),
    ("gamma tiny", lambda b: BBScheduler(b, 10, gamma="1/2000"), {"epsilon": 1}, ConfigError, "too frequent"),
    ("no gamma", lambda b: BBScheduler(b, 10), {"epsilon": 1}, ConfigError, "gamma cannot be derived for"),
    ("c large", lambda b: BBImprover(b, 1, c="3/4"), {"rho": 1}, ConfigError, "1/1000 to 1/2"),
    ("c large, n large", lambda b: BBImprover(b, 100, c=5), {"rho": 1}, ConfigError, "1/1000 to 1 "),
    ("improver pure", lambda b: BBImprover(b, 10), {"epsilon": 1}, BudgetError, "no finite sum"),
    ("n", lambda b: BBImprover(b, 0), {"rho": 1}, ConfigError, "n = 0"),
    ("beta", lambda b: BBImprover(b, 5, beta=1), {"rho": 1}, ConfigError, "beta = 1"),
    ("add-remove", lambda b: BBImprover(b, 10), {"rho": 1, "unit": Event()}, UnitError, "'event'"),
]


@pytest.mark.parametrize(
    ("make", "amounts", "kind", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_what_cannot_be_promised_is_refused(
    make: Any, amounts: dict[str, Any], kind: type[DpstreamError], words: str
) -> None:
    _, box = recorded()
    with pytest.raises(kind, match=words):
        make(box).calibrate(**amounts)


def test_a_budget_that_pays_for_no_run_is_refused_before_the_first_step() -> None:
    with pytest.raises(DpstreamError, match="noise too large for 64-bit counts"):
        BBScheduler(MWEMPGMBox(PAIR), 100, gamma="1/2").calibrate(epsilon="1e-11")


def test_too_few_records_for_a_derived_gamma_say_how_many_would_do() -> None:
    box = SmallDB(Workload.all_k_way(Domain(("a",), (3,)), 1))
    with pytest.raises(ConfigError, match=r"100 records are too few.*n above (\d+)") as told:
        BBScheduler(box, 100).calibrate(epsilon=1)
    enough = int(str(told.value).split("n above ")[1].split(",")[0])
    assert BBScheduler(box, enough + 1).calibrate(epsilon=1).schedule.options() == {"gamma": "499/500"}
    wide = SmallDB(Workload.all_k_way(Domain(("a", "b"), (4, 4)), 2))
    with pytest.raises(LimitError, match=r"SmallDB would compare .* databases of"):
        BBScheduler(wide, 10**6).calibrate(epsilon=1)


def test_a_state_that_contradicts_itself_is_refused() -> None:
    _, box = recorded()
    plan = BBImprover(box, 10).calibrate(rho=1)
    state = plan.start()
    plan.step(state, batch(12), Randomness.seeded(1))
    packed = plan.pack_state(state)
    wrong = {**packed.arrays, "state/counts": packed.arrays["state/counts"] + 1}
    with pytest.raises(StoreDamagedError, match="contradict each other"):
        plan.unpack_state(Packed(packed.meta, wrong))


# What is published.


def test_a_reader_gets_intervals_as_of_the_last_run(tmp_path: Path) -> None:
    """40 records a step; runs at the third step and the fourth. All marginals are measured, so none is chosen."""
    workload = Workload.all_k_way(small_schema("zip", "paid").domain, 1)
    recipe = BBScheduler(MWEMPGMBox(workload, MWEMPGM(k=2)), 100, gamma="1/4")
    with small_stream(tmp_path, "growing", 4, mechanism=recipe) as stream:
        assert "at every run, 5 numbers" in words(stream.plan, "further", **stream.plan.facts())
    release = dpstream.read(tmp_path / "releases")
    counts = read_measurements(tmp_path / "releases")
    assert [(one.last, "chosen" in one.query) for one in counts] == [(3, False), (4, False)]
    zips = release.measured(["zip"])
    assert (zips.as_of, zips.epochs, zips.exact) == (4, ((1, 4),), True)
    low, high = zips.interval(0.999999)
    true = sum(small_frame(("zip", "paid"), step)["zip"].count("94102") for step in range(1, 5))
    assert low[0] <= true <= high[0]  # false alarms: 1e-6
    assert release.measured(["zip"], as_of=3).epochs == ((1, 3),)
    number = release.measured([])
    assert (float(number.values), number.standard_error, number.as_of) == (160.0, 0.0, 4)
    assert release.measured(["paid"]).interval() is not None
