"""Every counter through the conformance suite, and against literal listings of the algorithms."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.checks import NoiseTape, certify, check_counter
from dpstream.checks.certificate import run_on_tape
from dpstream.core.counters import (
    COUNTER_NAMES,
    PURE_COUNTER_NAMES,
    ZCDP_COUNTER_NAMES,
    BlockCounter,
    Counter,
    HybridCounter,
    SimpleCounter,
    TreeCounter,
    UnboundedBlockCounter,
    counter_by_name,
)
from dpstream.core.counters.counter import MAX_INCREMENT, MAX_TICKS
from dpstream.core.counters.intervals import _partition
from dpstream.core.errors import (
    BudgetError,
    ConfigError,
    DataError,
    HorizonError,
    LimitError,
    StoreDamagedError,
    UnitError,
)
from dpstream.core.privacy.budget import ZCDP, Budget, PureDP
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event, Individual

BUDGETS: list[Budget] = [PureDP.of("0.7"), ZCDP.of("1/3")]
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
}
#: One noise a tick, for an interval that ends with it. The others are in test_forest.
INTERVAL_NAMES = tuple(PROMISES)[:6]
#: Names in ``PROMISES`` with each kind of budget that they take.
TAKEN = [(name, BUDGETS[0]) for name in PURE_COUNTER_NAMES] + [(name, BUDGETS[1]) for name in INTERVAL_NAMES]
HORIZONS = [1, 2, 3, 7, 8, 9, 30, 32]


def every_recipe(horizon: int) -> list[Counter]:
    blocks = [BlockCounter(horizon, size) for size in (1, 2, horizon, horizon + 1)]
    return [counter_by_name(name, horizon=horizon) for name in INTERVAL_NAMES] + blocks


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.name)
@pytest.mark.parametrize(("name", "budget"), TAKEN, ids=str)
def test_conformance(name: str, budget: Budget, unit: Event) -> None:
    recipe = counter_by_name(name, horizon=30)
    report = check_counter(recipe, budget=budget, unit=unit, ticks=30, arrays=PROMISES[name])
    assert report.passed, str(report)


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.name)
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: b.as_dict()["definition"])
@pytest.mark.parametrize("horizon", HORIZONS)
def test_the_certificate_returns_the_claim(horizon: int, budget: Budget, unit: Event) -> None:
    """Tight to the last digit, but for the first ticks of the unbounded block counters."""
    for recipe in every_recipe(horizon):
        proof = certify(recipe.calibrate(budget, unit), horizon)
        reached = Fraction(1)
        if recipe.name == "unbounded-block":
            reached = min(Fraction(horizon, 2), Fraction(1))  # in-block noise at 1, block sum at 2
        if recipe.name == "unbounded-block-closed":
            # In-block noise at 1, block sum at 2, partition sum at 4; tick 3 alone uses two thirds.
            reached = {1: Fraction(1, 3), 2: Fraction(2, 3), 3: Fraction(2, 3)}.get(horizon, Fraction(1))
        assert proof.exact
        assert proof.holds
        assert proof.certified == pytest.approx(float(reached * budget.amount), rel=1e-9), recipe


def test_the_first_tick_of_a_tree_is_in_all_its_levels() -> None:
    for horizon in (1, 2, 3, 4, 7, 8, 100):
        matrix = TreeCounter(horizon).calibrate(PureDP.of(1), Event()).materialize(horizon)
        most = int(abs(matrix.encoder).sum(axis=0).max()), int((matrix.encoder**2).sum(axis=0).max())
        assert most == (int(math.log2(horizon)) + 1,) * 2
        assert matrix.scales[0] == DiscreteLaplace(Fraction(int(math.log2(horizon)) + 1))


def test_noise_scales_are_exact_for_each_budget_and_relation() -> None:
    """Scales by hand: levels times D1 over epsilon, levels times D2^2 over 2 rho."""
    third = PureDP.of("1/3")
    assert SimpleCounter().calibrate(third, Event()).materialize(1).scales[0] == DiscreteLaplace(Fraction(3))
    assert SimpleCounter().calibrate(third, Event("replace")).materialize(1).scales[0] == DiscreteLaplace(
        Fraction(6)
    )
    assert (
        BlockCounter(4).calibrate(ZCDP.of("1/5"), Event("replace")).materialize(4).scales
        == (DiscreteGaussian(Fraction(10)),) * 4
    )
    # T = 5 in blocks of 2: the last tick is in no block sum. T = 5 as a tree: a tree of 4 and one of 1.
    assert [n.scale for n in BlockCounter(5, 2).calibrate(PureDP.of(1), Event()).materialize(5).scales] == [
        2, 2, 2, 2, 1,
    ]  # fmt: skip
    assert [n.scale for n in TreeCounter(5).calibrate(PureDP.of(1), Event()).materialize(5).scales] == [
        3, 3, 3, 3, 1,
    ]  # fmt: skip
    closed = UnboundedBlockCounter(close_partitions=True).calibrate(PureDP.of(1), Event())
    assert [n.scale for n in closed.materialize(5).scales] == [3, 3, Fraction(3, 2), 3, 3]
    hybrid = HybridCounter().calibrate(PureDP.of(1), Event())
    assert [n.scale for n in hybrid.materialize(7).scales] == [1, 2, 2, 4, 4, 2, 2]


@pytest.mark.parametrize(("name", "budget"), TAKEN, ids=str)
def test_variance_and_losses_over_a_long_run(name: str, budget: Budget) -> None:
    """The closed form of the variance against the matrix, and no column above the claim, at 600 ticks."""
    counter = counter_by_name(name, horizon=600).calibrate(budget, Event("replace"))
    matrix = counter.materialize(600)
    said = [counter.variance(t) for t in range(1, 601)]
    np.testing.assert_allclose(said, matrix.variances(), rtol=1e-12)
    assert max(matrix.losses(Event("replace"))) == budget.amount


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
@given(
    st.sampled_from(INTERVAL_NAMES),
    st.integers(1, 4),
    st.lists(st.integers(-MAX_INCREMENT, MAX_INCREMENT), min_size=1, max_size=90),
    st.randoms(use_true_random=False),
)
def test_estimates_are_the_exact_sum_plus_the_open_noise(name, width, values, random) -> None:
    """For any increments and any noise: estimate minus running sum is decoder @ noise, cell by cell."""
    z = np.array([[v] + [random.randint(-5, 5) for _ in range(width - 1)] for v in values], np.int64)
    noise = np.array([[random.randint(-1000, 1000) for _ in range(width)] for _ in values], np.int64)
    counter = counter_by_name(name, horizon=90).calibrate(PureDP.of(1), Event())
    out = run_on_tape(counter, z, NoiseTape(noise.ravel()))
    assert (out - z.cumsum(axis=0) == counter.materialize(len(values)).decoder @ noise).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, MAX_TICKS))
def test_partitions_are_4_9_16(t: int) -> None:
    size, position = _partition(t)
    before = sum(k * k for k in range(2, size)) if size < 200 else size * (size - 1) * (2 * size - 1) // 6 - 1
    assert t == before + position
    assert 1 <= position <= size * size


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(COUNTER_NAMES), st.integers(1, 400))
def test_no_increment_pays_more_than_the_budget(name: str, horizon: int) -> None:
    for kind, names in ((PureDP, PURE_COUNTER_NAMES), (ZCDP, ZCDP_COUNTER_NAMES)):
        recipe, budget = counter_by_name(name, horizon=horizon), kind.of("1/7")
        if name in names:
            assert recipe.calibrate(budget, Event()).materialize(horizon).loss(Event()) <= Fraction(1, 7)
        else:
            with pytest.raises(BudgetError, match=f"counter '{name}'"):
                recipe.calibrate(budget, Event())


def test_a_state_saved_to_a_file_continues_exactly() -> None:
    for name in PURE_COUNTER_NAMES:
        counter = counter_by_name(name, horizon=60).calibrate(PureDP.of(1), Event())
        state = counter.init(5)
        z = np.arange(5, dtype=np.int64)
        for tick in range(23):
            counter.step(state, z, Randomness.seeded(tick))
        file = io.BytesIO()
        np.savez(file, **state)
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            restored = {key: stored[key] for key in stored.files}
        counter.check_state(restored, 5)
        for tick in range(23, 60):
            expected = counter.step(state, z, Randomness.seeded(tick))
            assert (counter.step(restored, z, Randomness.seeded(tick)) == expected).all()
        assert all((state[key] == restored[key]).all() for key in state)


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


def test_beyond_the_horizon() -> None:
    for recipe in (BlockCounter(3), TreeCounter(3)):
        counter = recipe.calibrate(PureDP.of(1), Event())
        state = counter.init(1)
        one = np.ones(1, np.int64)
        for _ in range(3):
            counter.step(state, one, NoiseTape())
        with pytest.raises(HorizonError, match=r"tick 4.*up to 3"):
            counter.step(state, one, NoiseTape())
        with pytest.raises(HorizonError):
            counter.variance(4)
        with pytest.raises(HorizonError):
            counter.materialize(4)
        with pytest.raises(ConfigError):
            counter.variance(-1)


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


def test_a_refused_increment_leaves_no_trace() -> None:
    counter = TreeCounter(8).calibrate(PureDP.of(1), Event())
    state = counter.init(3)
    counter.step(state, np.ones(3, np.int64), Randomness.seeded(1))
    before = {key: array.copy() for key, array in state.items()}
    tape = NoiseTape()
    for bad in (np.ones(3), np.ones(2, np.int64), np.array([np.nan, 0, 0]), [1, 1, 1], np.ones(3, np.uint64)):
        with pytest.raises(DataError):
            counter.step(state, bad, tape)  # type: ignore[arg-type]
    assert not tape.laws
    assert all((state[key] == before[key]).all() for key in before)


def test_damaged_states_are_recognised() -> None:
    counter = TreeCounter(8).calibrate(PureDP.of(1), Event())

    def damage(**changes: NDArray[np.int64] | None) -> dict[str, NDArray[np.int64]]:
        state = {**counter.init(3), **changes}
        return {key: array for key, array in state.items() if array is not None}

    counter.check_state(counter.init(3), 3)
    for state in (
        damage(pending=None),
        damage(extra=np.zeros(1, np.int64)),
        damage(settled=np.zeros(4, np.int64)),
        damage(settled=np.zeros(3)),  # type: ignore[arg-type]
        damage(noise=np.zeros((4, 3), np.int64)),
        damage(noise=np.zeros(3, np.int64)),
        damage(t=np.array([9])),
        damage(t=np.array([-1])),
    ):
        with pytest.raises(StoreDamagedError):
            counter.check_state(state, 3)


@pytest.mark.parametrize("name", INTERVAL_NAMES)
def test_many_cells(name: str) -> None:
    """1e5 cells: the state is a few arrays of that width, and all cells have different noise."""
    counter = counter_by_name(name, horizon=8).calibrate(PureDP.of("0.01"), Event())
    state = counter.init(100_000)
    estimate = counter.step(state, np.zeros(100_000, np.int64), Randomness.seeded(2))
    assert len(np.unique(estimate)) > 500
    assert abs(np.corrcoef(estimate[:-1], estimate[1:])[0, 1]) < 0.02  # six standard deviations
    assert sum(array.nbytes for array in state.values()) <= 8 * 100_000 * 5


def test_describe_names_rule_budget_and_noise() -> None:
    for name in PURE_COUNTER_NAMES:
        text = counter_by_name(name, horizon=9).calibrate(PureDP.of("0.5"), Event("replace")).describe()
        assert "epsilon = 0.5 (pure) for event-replace" in text
        assert "discrete Laplace noise of scale" in text


@pytest.mark.parametrize("name", PURE_COUNTER_NAMES)
def test_the_variance_of_a_gain_is_that_of_the_matrix(name: str) -> None:
    counter = counter_by_name(name, horizon=60).calibrate(PureDP.of(1), Event())
    linear = counter.materialize(60)
    rows = np.vstack([np.zeros((1, linear.decoder.shape[1])), linear.decoder])
    noise = np.array([scale.variance for scale in linear.scales])
    expected = (np.diff(rows, axis=0) ** 2) @ noise
    assert [counter.gain_variance(t) for t in range(1, 61)] == pytest.approx(expected.tolist())
