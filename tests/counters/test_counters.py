"""Every counter through the conformance suite and against literal listings of the algorithms; and which one is best."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.checks import NoiseTape
from dpstream.checks.certificate import run_on_tape
from dpstream.core.counters import (
    COUNTER_NAMES,
    PURE_COUNTER_NAMES,
    ZCDP_COUNTER_NAMES,
    BlockCounter,
    BLTCounter,
    Counter,
    SimpleCounter,
    best,
    counter_by_name,
)
from dpstream.core.counters.binned import design_of
from dpstream.core.counters.counter import MAX_INCREMENT, MAX_TICKS
from dpstream.core.counters.intervals import _partition
from dpstream.core.errors import (
    BudgetError,
    ConfigError,
    HorizonError,
    LimitError,
    StoreDamagedError,
    UnitError,
)
from dpstream.core.privacy import ZCDP, Budget, Event, Individual, PureDP, Randomness
from dpstream_lab.conformance import check_counter

UNITS = [Event(), Event("replace")]
#: int64 values a cell that the state may hold after t ticks.
PROMISES: dict[str, Callable[[int], int]] = {
    "simple": lambda t: 2,
    "block": lambda t: 4,
    "unbounded-block": lambda t: 4,
    "unbounded-block-closed": lambda t: 5,
    "tree": lambda t: 4 + int(math.log2(t)),
    "hybrid": lambda t: 4 + int(math.log2(t)),
    "optimal-tree": lambda t: 40,
    "optimal-epochs": lambda t: 24 + 3 * math.isqrt(t),
    "toeplitz": lambda t: 2 * design_of(counter_by_name("toeplitz", horizon=30)).bins.rows_at(t - 1) + 3,
    "blt": lambda t: 2 * design_of(counter_by_name("blt", horizon=30)).bins.rows_at(t - 1) + 3,
}
#: One noise a tick, for an interval that ends with it.
INTERVAL_NAMES = tuple(PROMISES)[:6]
#: Every name with each kind of budget that it takes.
TAKEN = [(name, PureDP.of("0.7")) for name in PURE_COUNTER_NAMES]
TAKEN += [(name, ZCDP.of("1/3")) for name in ZCDP_COUNTER_NAMES]


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.name)
@pytest.mark.parametrize(("name", "budget"), TAKEN, ids=str)
def test_conformance(name: str, budget: Budget, unit: Event) -> None:
    """That claims are tight at every horizon: ``tests/checks/test_certificates_of_all.py``."""
    recipe = counter_by_name(name, horizon=30)
    report = check_counter(recipe, budget=budget, unit=unit, ticks=30, arrays=PROMISES[name])
    assert report.passed, str(report)


BLOCKS: list[Counter] = [BlockCounter(600, size) for size in (1, 2, 600, 601)]


@pytest.mark.parametrize(
    ("recipe", "budget"),
    [(counter_by_name(name, horizon=600), budget) for name, budget in TAKEN]
    + [(block, budget) for block in BLOCKS for budget in (PureDP.of(1), ZCDP.of(1))],
    ids=str,
)
def test_variances_gains_and_losses_over_a_long_run(recipe: Counter, budget: Budget) -> None:
    """The closed forms against the matrix, and no column above the claim, at 600 ticks."""
    counter = recipe.calibrate(budget, Event("replace"))
    matrix = counter.materialize(600)
    noise = np.array([law.variance for law in matrix.scales])
    gains = np.diff(matrix.decoder, axis=0, prepend=0) ** 2 @ noise
    np.testing.assert_allclose([counter.variance(t) for t in range(1, 601)], matrix.variances(), rtol=1e-10)
    np.testing.assert_allclose([counter.gain_variance(t) for t in range(1, 601)], gains, rtol=1e-10)
    losses = matrix.losses(Event("replace"))
    assert max(losses) <= budget.amount
    assert max(losses) == budget.amount


# --- the listings of the literature, one noise per tick from the same tape ---------------------------


def algorithm_4(z: list[int], noise: list[int]) -> list[int]:
    """Kumar, Strohmer, Vershynin, DP-STabS, Algorithm 4, line by line."""
    size, partition = 2, 4
    last, true, synthetic, changed = 0, 0, 0, 0
    out = []
    for t, (f, n) in enumerate(zip(z, noise, strict=True), start=1):
        delta = t - changed
        true += f
        if delta % size == 0:
            last += true + n
            true = synthetic = 0
            out.append(last)
            if delta == partition:
                changed, size = t, size + 1
                partition = size * size
        else:
            synthetic += f + n
            out.append(last + synthetic)
    return out


def closed_partitions(z: list[int], noise: list[int]) -> list[int]:
    """Algorithm 4 with a third level: at a partition's end its noisy sum replaces its blocks'."""
    size, start = 2, 0
    partitions, blocks, inner, block_true, partition_true = 0, 0, 0, 0, 0
    out = []
    for t, (f, n) in enumerate(zip(z, noise, strict=True), start=1):
        block_true += f
        partition_true += f
        position = t - start
        if position == size * size:
            partitions += partition_true + n
            blocks = inner = block_true = partition_true = 0
            start, size = t, size + 1
        elif position % size == 0:
            blocks += block_true + n
            inner = block_true = 0
        else:
            inner += f + n
        out.append(partitions + blocks + inner)
    return out


def binary_mechanism(z: list[int], noise: list[int]) -> list[int]:
    """Chan, Shi and Song 2010, Algorithm 2: p-sums alpha_i, noisy p-sums by binary digits."""
    alpha, noisy = [0] * 40, [0] * 40
    out = []
    for t, (f, n) in enumerate(zip(z, noise, strict=True), start=1):
        i = (t & -t).bit_length() - 1
        alpha[i] = sum(alpha[:i]) + f
        alpha[:i] = noisy[:i] = [0] * i
        noisy[i] = alpha[i] + n
        out.append(sum(noisy[j] for j in range(40) if t >> j & 1))
    return out


def hybrid_mechanism(z: list[int], noise: list[int]) -> list[int]:
    """A binary mechanism in each [2^i, 2^(i+1)), whose last tick adds the interval's own noisy sum."""
    out: list[int] = []
    finished, i = 0, 0
    while len(out) < len(z):
        inner, shocks = z[2**i - 1 : 2 ** (i + 1) - 1], noise[2**i - 1 : 2 ** (i + 1) - 1]
        tree = binary_mechanism(inner[: 2**i - 1], shocks[: 2**i - 1])
        out += [finished + value for value in tree]
        if len(inner) == 2**i:
            finished += sum(inner) + shocks[-1]
            out.append(finished)
        i += 1
    return out


LISTINGS: dict[str, Callable[[list[int], list[int]], list[int]]] = {
    "unbounded-block": algorithm_4,
    "unbounded-block-closed": closed_partitions,
    "tree": binary_mechanism,
    "hybrid": hybrid_mechanism,
}


@pytest.mark.parametrize("name", LISTINGS)
def test_against_the_listing(name: str) -> None:
    ticks = 150
    rng = np.random.default_rng(3)
    z, noise = rng.integers(-9, 10, ticks), rng.integers(-99, 100, ticks)
    counter = counter_by_name(name, horizon=ticks).calibrate(PureDP.of(1), Event())
    given_out = run_on_tape(counter, z[:, None], NoiseTape(noise)).ravel()
    assert given_out.tolist() == LISTINGS[name](z.tolist(), noise.tolist())


# --- invariants --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(1, MAX_TICKS))
def test_partitions_are_4_9_16(t: int) -> None:
    size, position = _partition(t)
    before = sum(k * k for k in range(2, size)) if size < 200 else size * (size - 1) * (2 * size - 1) // 6 - 1
    assert t == before + position
    assert 1 <= position <= size * size


def test_the_state_of_a_simple_counter_is_what_it_released() -> None:
    counter = SimpleCounter().calibrate(PureDP.of(1), Event())
    state = counter.init(4)
    for _ in range(5):
        released = counter.step(state, np.full(4, 7), Randomness.seeded(1))
    assert set(state) == {"t", "settled"}
    assert (state["settled"] == released).all()
    assert not np.shares_memory(state["settled"], released)


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [0, -1, 1.0, "7", True, MAX_TICKS + 1])
def test_unusable_horizons(horizon: object) -> None:
    for name in ("block", "tree"):
        with pytest.raises(ConfigError, match="horizon"):
            counter_by_name(name, horizon=horizon)  # type: ignore[arg-type]


def test_unusable_options() -> None:
    with pytest.raises(ConfigError, match=r"unknown counter 'wave'.*simple, block"):
        counter_by_name("wave")
    with pytest.raises(ConfigError, match="'tree' needs a horizon"):
        counter_by_name("tree")
    with pytest.raises(ConfigError, match="block size is 0"):
        BlockCounter(5, 0)
    with pytest.raises(UnitError):
        SimpleCounter().calibrate(PureDP.of(1), Individual())  # type: ignore[arg-type]
    with pytest.raises(BudgetError):
        PureDP.of(0)
    for budget in (PureDP.of("1e-9"), ZCDP.of("1e-18"), PureDP.of("1e-30")):
        with pytest.raises(LimitError):
            SimpleCounter().calibrate(budget, Event())
    for width in (0, -1, 2.5):
        with pytest.raises(ConfigError, match="number of cells"):
            SimpleCounter().calibrate(PureDP.of(1), Event()).init(width)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["block", "tree", "optimal-tree", "toeplitz"])
def test_beyond_the_horizon(name: str) -> None:
    budget = ZCDP.of(1) if name == "toeplitz" else PureDP.of(1)
    counter = counter_by_name(name, horizon=3).calibrate(budget, Event())
    state = counter.init(1)
    for _ in range(3):
        counter.step(state, np.ones(1, np.int64), NoiseTape())
    before = {key: array.copy() for key, array in state.items()}
    with pytest.raises(HorizonError, match=r"tick 4.*up to 3"):
        counter.step(state, np.ones(1, np.int64), NoiseTape())
    assert all((state[key] == before[key]).all() for key in before)
    for ask in (counter.variance, counter.gain_variance, counter.materialize):
        with pytest.raises(HorizonError):
            ask(4)
    with pytest.raises(ConfigError):
        counter.variance(-1)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tree", [{"settled": np.zeros(4, np.int64)}, {"settled": np.zeros(3)}]),
        ("tree", [{"noise": np.zeros((9, 3), np.int64)}, {"noise": np.zeros(3, np.int64)}]),
        ("optimal-tree", [{"sum": np.zeros(4, np.int64)}, {"noise": np.zeros((1, 3), np.int64)}]),
        ("optimal-tree", [{"public": np.zeros((1, 3))}, {"t": np.array([0])}]),
        ("toeplitz", [{"part": np.array([-1])}, {"sums": np.zeros((1, 1), np.int64)}]),
    ],
)
def test_damaged_states_are_recognised(name: str, changes: list[dict[str, NDArray[Any]]]) -> None:
    budget = ZCDP.of(1) if name == "toeplitz" else PureDP.of(1)
    counter = counter_by_name(name, horizon=50).calibrate(budget, Event())
    state = counter.init(3)
    for _ in range(11):
        counter.step(state, np.ones(3, np.int64), NoiseTape())
        counter.check_state(state, 3)
    clocks = [{"t": np.array([51])}, {"t": np.array([-1])}, {"extra": np.zeros(1, np.int64)}]
    for damaged in (*({**state, **change} for change in (*clocks, *changes)), {"t": state["t"]}):
        with pytest.raises(StoreDamagedError):
            counter.check_state(damaged, 3)


def test_64_bit_sums_cannot_overflow_and_no_refusal_tells_a_sum() -> None:
    """The bounds are on one increment and on the clock; a sum of the largest increments fits."""
    assert MAX_INCREMENT * MAX_TICKS <= 2**60
    for name in INTERVAL_NAMES:
        counter = counter_by_name(name, horizon=MAX_TICKS).calibrate(PureDP.of(1), Event())
        state = counter.init(2)
        state["t"][0] = MAX_TICKS - 1
        with pytest.raises(LimitError) as caught:
            counter.step(state, np.array([12345, MAX_INCREMENT + 1]), NoiseTape())
        assert "12345" not in str(caught.value)
        assert str(MAX_INCREMENT + 1) not in str(caught.value)
        counter.step(state, np.array([MAX_INCREMENT, -MAX_INCREMENT]), NoiseTape())
        assert counter.variance(MAX_TICKS) > 0
        with pytest.raises((LimitError, HorizonError)):
            counter.step(state, np.array([0, 0]), NoiseTape())


# The best one


BUDGETS: list[Budget] = [PureDP.of(1), PureDP.of("0.05"), ZCDP.of("1/2")]


def errors(budget: Budget, horizon: int | None, ticks: int, unit: Event) -> dict[str, float]:
    """Every counter's error over all ticks, one by one."""
    found = {}
    for name in COUNTER_NAMES:
        try:
            counter = counter_by_name(name, horizon=horizon, expected_ticks=ticks).calibrate(budget, unit)
            found[name] = math.sqrt(sum(counter.variance(t) for t in range(1, ticks + 1)) / ticks)
        except (BudgetError, ConfigError):
            continue
    return found


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(BUDGETS),
    st.one_of(st.none(), st.integers(1, 600)),
    st.integers(1, 600),
    st.sampled_from([Event(), Event("replace")]),
)
def test_the_choice_has_the_smallest_error(
    budget: Budget, horizon: int | None, ticks: int, unit: Event
) -> None:
    ticks = ticks if horizon is None else min(ticks, horizon)
    choice = best(budget, unit, horizon=horizon, expected_ticks=ticks)
    truth = errors(budget, horizon, ticks, unit)
    assert {one.name for one in choice.candidates if one.deviation is not None} == set(truth)
    # 1 % for names that come first, 2 % for sampling beyond 256 ticks.
    assert truth[choice.name] <= 1.03 * min(truth.values())
    for one in choice.candidates:
        if one.deviation is not None:
            assert one.deviation == pytest.approx(truth[one.name], rel=1e-12)
    counter = choice.recipe.calibrate(budget, unit)
    assert counter.horizon is None or counter.horizon == horizon


EPSILON, RHO = PureDP.of(1), ZCDP.of(1)
PICKED: dict[str, tuple[Budget, dict[str, Any]]] = {
    "simple": (EPSILON, {"expected_ticks": 8}),
    "block": (RHO, {"horizon": 100, "width": 10**7}),
    "unbounded-block": (RHO, {"width": 4 * 10**7}),
    "unbounded-block-closed": (EPSILON, {"width": 10**7}),
    "tree": (RHO, {"horizon": 1000, "width": 2 * 10**6}),
    "optimal-tree": (EPSILON, {"horizon": 100}),
    "optimal-epochs": (EPSILON, {}),
    "toeplitz": (RHO, {"horizon": 100}),
    "blt": (RHO, {}),
}
#: Kumar, Strohmer and Vershynin, and He, Vershynin and Zhu name the hybrid mechanism.
NAMED = {"hybrid"}


def test_every_counter_is_picked_or_a_paper_names_it() -> None:
    """Decision 0049."""
    assert set(COUNTER_NAMES) == set(PICKED) | NAMED
    assert {name: best(budget, **asked).name for name, (budget, asked) in PICKED.items()} == {
        name: name for name in PICKED
    }


def test_without_a_horizon_constants_are_for_the_expected_ticks() -> None:
    for ticks, constants in ((250, 1000), (1000, 1000), (5000, 10_000), (10**5, 10**6)):
        assert best(ZCDP.of("1/2"), expected_ticks=ticks).recipe == BLTCounter(constants)


def test_what_cannot_be_used_is_not_considered() -> None:
    pure = best(PureDP.of(1), expected_ticks=100)
    why = {one.name: one.why_not for one in pure.candidates}
    assert why["block"] == why["tree"] == "needs a horizon"
    assert why["toeplitz"] in ("for another kind of budget", "needs a horizon")
    assert why["blt"] == "for another kind of budget"
    wide = best(ZCDP.of("1/2"), horizon=1000, width=10**5, max_bytes=10**7)
    assert "MB" in next(one.why_not for one in wide.candidates if one.name == "toeplitz")
    assert wide.name != "toeplitz"
    with pytest.raises(LimitError, match="no usable counter: simple: its state would take"):
        best(PureDP.of(1), width=10**5, max_bytes=1)
    with pytest.raises(LimitError, match="noise beyond 64-bit sums"):
        best(PureDP.of("1e-12"))


def test_bad_numbers() -> None:
    one = PureDP.of(1)
    for arguments in (
        {"horizon": 0},
        {"expected_ticks": 0},
        {"expected_ticks": 2.5},
        {"width": 0},
        {"horizon": 5, "expected_ticks": 6},
    ):
        with pytest.raises(ConfigError):
            best(one, **arguments)  # type: ignore[arg-type]
    assert best(one, horizon=5).ticks == 5
    assert best(one).ticks == 250
