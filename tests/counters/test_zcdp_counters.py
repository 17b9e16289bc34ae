"""The counters by weights in bins (square-root Toeplitz, BLT): encoder, sensitivity, variance, arithmetic."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.checks import NoiseTape, read_cell
from dpstream.core.counters import BLTCounter, Counter, ToeplitzCounter, binned_noise, counter_by_name
from dpstream.core.counters.binned import (
    CalibratedBinnedCounter,
    LagBins,
    Weights,
    design_of,
)
from dpstream.core.counters.binned_noise import NoiseTable
from dpstream.core.errors import BudgetError, ConfigError, LimitError
from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness

RHO = ZCDP.of("1/2")
UNITS = [Event(), Event("replace")]


@dataclass(frozen=True)
class CoarseToeplitz(ToeplitzCounter):
    """With bins of any tolerance: more means fewer bins and a larger error, 0 keeps all increments."""

    tolerance: float = 0.3  # type: ignore[assignment,misc]


@dataclass(frozen=True)
class CoarseBLT(BLTCounter):
    """As ``CoarseToeplitz``."""

    tolerance: float = 0.3  # type: ignore[assignment,misc]


RECIPES: list[Counter] = [
    ToeplitzCounter(1),
    CoarseToeplitz(2, tolerance=0.5),
    ToeplitzCounter(150),
    CoarseToeplitz(150),
    CoarseToeplitz(70, tolerance=0.0),
    BLTCounter(1000),
    CoarseBLT(1000),
    BLTCounter(10_000),
    BLTCounter(1000, 13),
    CoarseBLT(1000, 150),
]


def calibrated(recipe: Counter, budget: ZCDP = RHO, unit: Event | None = None) -> CalibratedBinnedCounter:
    counter = recipe.calibrate(budget, unit or Event())
    assert isinstance(counter, CalibratedBinnedCounter)
    return counter


# --- bins ------------------------------------------------------------------------------------------------


def greedy_matrix(bins: LagBins, weights: NDArray[np.int64], ticks: int) -> NDArray[np.int64]:
    """The bins from their definition: lists of increments, two of one size made one when it is time."""
    starts = [int(start) for start in bins._starts]
    held: list[tuple[int, int]] = []  # (first increment, level)
    result = np.zeros((ticks, ticks), np.int64)
    for tick in range(ticks):
        held.append((tick, 0))
        for level in range(len(starts) - 1, 0, -1):
            pair = [(tick - starts[level], level - 1), (tick - starts[level] + (1 << level - 1), level - 1)]
            if pair[0][0] >= 0 and pair[0][0] % (1 << level) == 0 and set(pair) <= set(held):
                held = [one for one in held if one not in pair] + [(pair[0][0], level)]
        for first, level in held:
            lag = tick - first
            result[tick, first : first + (1 << level)] = weights[lag] if lag < len(weights) else 0
    return result


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 90),
    st.sampled_from([0.0, 0.02, 0.1, 0.5]),
    st.sampled_from([2, 16, 256]),
    st.floats(0.2, 1.5),
)
def test_bins_and_their_norms_are_what_they_should_be(
    length: int, tolerance: float, grid: int, power: float
) -> None:
    """Rows in use, matrix and norms against lists; weights of any decreasing sequence, cut off or not."""
    weights = Weights.on_grid((1 + np.arange(length)) ** -power, grid)
    bins = LagBins(weights.rounded, weights.exact, tolerance)
    ticks = 2 * length + 7
    matrix = bins.matrix(ticks)
    np.testing.assert_array_equal(matrix, greedy_matrix(bins, weights.rounded, ticks))
    for known in (ticks, length):
        norms = bins.squared_norms(np.arange(known), known)
        np.testing.assert_array_equal(norms, (matrix[:known, :known] ** 2).sum(axis=0))
    endless = bins.squared_norms(np.arange(length))
    np.testing.assert_array_equal(endless, (bins.matrix(3 * length)[:, :length] ** 2).sum(axis=0))
    assert endless[0] == endless.max() == bins.squared_norm == (weights.rounded**2).sum()
    # By rows: sums of bins of random increments, as a counter keeps them.
    z = np.random.default_rng(0).integers(-9, 9, ticks)
    sums = np.zeros(bins.rows, np.int64)
    for tick in range(ticks):
        for row, older, newer in bins.merges(tick):
            sums[row] = sums[older] + sums[newer]
        sums[bins.newest(tick)] = z[tick]
        assert not sums[bins.rows_at(tick) :].any()
        assert bins.coefficients(tick) @ sums == matrix[tick] @ z


def test_designs_are_pinned() -> None:
    """A stored state belongs to its weights and bins: a change here, or on another machine, is another counter."""
    for recipe, pinned in (
        (ToeplitzCounter(1000), "cdaa6023b93f35b7"),
        (ToeplitzCounter(100_000), "7fc781dec758efd4"),
        (BLTCounter(1000), "59c7d8483722fe29"),
        (BLTCounter(10_000), "28ec184e6e2004c5"),
        (BLTCounter(1_000_000), "57c260aaab02d909"),
    ):
        design = design_of(recipe)
        some = np.arange(200) * (5001 if recipe.tick_limit is None else recipe.tick_limit // 200)
        facts = (design.weights.rounded, design.bins.matrix(200), design.bins.squared_norms(some))
        assert hashlib.sha256(b"".join(fact.tobytes() for fact in facts)).hexdigest()[:16] == pinned, recipe


# --- sensitivity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize("recipe", RECIPES, ids=repr)
def test_the_measurements_are_the_matrix_and_cost_the_claim(recipe: Counter, unit: Event) -> None:
    ticks = min(recipe.tick_limit or 150, 150)
    counter = calibrated(recipe, ZCDP.of("1/3"), unit)
    matrix = counter.materialize(ticks)
    read = read_cell(counter, ticks)
    assert read is not None
    np.testing.assert_array_equal(read.inputs_map, matrix.encoder)
    np.testing.assert_array_equal(read.noise_map, np.eye(ticks, dtype=np.int64))
    assert set(read.laws) == {counter.noise} == set(matrix.scales)
    assert counter.noise.sigma_squared == Fraction(unit.changed_cells * counter.design.squared_norm) * 3 / 2
    losses = matrix.losses(unit)
    assert max(losses) == losses[0] <= Fraction(1, 3)
    if recipe.tick_limit == ticks:
        assert losses[0] == Fraction(1, 3)
        assert min(losses) > Fraction(1, 3) * Fraction(99, 100)  # no increment wastes a hundredth


def test_an_endless_counter_costs_the_claim_and_no_more_for_ever() -> None:
    """Column norms over all ages: reached by the first increment, not passed by others near and far."""
    counter = calibrated(CoarseBLT(1000, tolerance=0.2))
    design = counter.design
    length = len(design.weights.rounded)
    numbers = np.concatenate([np.arange(5000), 2**27 + np.arange(500), [2**28 - 1]])
    norms = design.bins.squared_norms(numbers)
    costs = [design.multiplier(int(s)) ** 2 * int(norm) for s, norm in zip(numbers, norms, strict=True)]
    assert max(costs) == costs[0] == design.squared_norm
    assert min(costs) > 0.995 * design.squared_norm
    ticks = length + 300
    squares = (design.bins.matrix(ticks) * design.multipliers(ticks)) ** 2
    assert squares[:, 0].sum() == design.squared_norm
    assert squares[:, :300].sum(axis=0).max() == design.squared_norm
    assert [int(x) for x in squares[:, :300].sum(axis=0)] == costs[:300]


# --- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [ToeplitzCounter(4000), BLTCounter(1000)], ids=repr)
def test_far_variances_are_close(recipe: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the exact part cut at 1,024 ticks and the formula at 2,048: within 3 % of the exact recursion."""
    design = design_of(recipe)

    def table() -> NoiseTable:
        return NoiseTable(
            design.bins, design.multiplier, design.grid, design.weights.exact, recipe.tick_limit
        )

    exact = {
        t: (table_exact.variance(t), table_exact.gain(t))
        for table_exact in [table()]
        for t in (1025, 1500, 3333, 4000)
    }
    monkeypatch.setattr(binned_noise, "_EXACT_TICKS", 1024)
    monkeypatch.setattr(binned_noise, "_LONGEST", 2048)
    far = table()
    for t, (variance, gain) in exact.items():
        assert far.variance(t) == pytest.approx(variance, rel=0.03)
        assert far.gain(t) == pytest.approx(gain, rel=0.03)


# --- arithmetic ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [ToeplitzCounter(700), ToeplitzCounter(3000), BLTCounter(1000)], ids=repr)
def test_sums_stay_exact_at_the_declared_limits(recipe: Counter) -> None:
    """Without noise the estimates are the sums, with increments of 2^32 and of any sign; also on top of 2^59."""
    counter, ticks = calibrated(recipe), min(recipe.tick_limit or 3000, 3000)
    rng = np.random.default_rng(2)
    z = rng.integers(-(2**32), 2**32, (ticks, 4), endpoint=True)
    z[:, 0], z[:, 1] = 2**32, -(2**32)
    state = counter.init(4)
    state["whole"][3] = 2**59
    for tick, row in enumerate(z):
        estimate = counter.step(state, row, NoiseTape())
        assert np.array_equal(estimate - [0, 0, 0, 2**59], z[: tick + 1].sum(axis=0)), tick


def test_decoding_is_the_rational_solution_rounded() -> None:
    """Against fractions, with noise: never further than 1/2 and a thousandth."""
    counter, ticks = calibrated(CoarseToeplitz(60, tolerance=0.2), ZCDP.of("1/50")), 60
    encoder = counter.design.bins.matrix(ticks)
    multipliers = counter.design.multipliers(ticks)
    source, rng = Randomness.seeded(5), np.random.default_rng(5)
    state = counter.init(1)
    solved: list[Fraction] = []
    total = Fraction(0)
    for tick in range(ticks):
        measured = counter.measure(state, rng.integers(-(2**32), 2**32, 1), source)
        known = sum((int(encoder[tick, s]) * solved[s] for s in range(tick)), Fraction(0))
        solved.append((int(measured[0, 0]) - known) / int(encoder[tick, tick]))
        total += solved[-1] / int(multipliers[tick])
        estimate = counter.decode(state, measured)
        assert abs(int(estimate[0]) - total) < Fraction(501, 1000)


# --- refusals --------------------------------------------------------------------------------------------


def test_refusals() -> None:
    for name in ("toeplitz", "blt"):
        recipe = counter_by_name(name, horizon=10)
        with pytest.raises(BudgetError, match="is Gaussian, and the budget pure"):
            recipe.calibrate(PureDP.of(1), Event())
        with pytest.raises(LimitError, match="exceeds 64-bit sums"):
            recipe.calibrate(ZCDP.of("1e-20"), Event())
        assert "rho = 0.5" in recipe.calibrate(RHO, Event()).describe()
    chosen = [counter_by_name("blt", horizon=horizon) for horizon in (None, 10, 1001, 10**7)]
    assert chosen == [BLTCounter(10_000), BLTCounter(1000, 10), BLTCounter(10_000, 1001), BLTCounter(10**6)]
    with pytest.raises(ConfigError, match="needs a horizon"):
        counter_by_name("toeplitz")
    for wrong in (0, -1, 2**22 + 1, 1.5, True):
        with pytest.raises(ConfigError, match="horizon"):
            ToeplitzCounter(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="constants"):
        BLTCounter(500)
