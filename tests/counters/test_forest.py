"""Counters whose noise is drawn ahead, against dense least squares and against listings."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.checks import NoiseTape
from dpstream.checks.certificate import measured_on_tape, run_on_tape
from dpstream.core.counters import Counter, OptimalEpochsCounter, OptimalTreeCounter
from dpstream.core.counters.counter import MAX_INCREMENT, MAX_TICKS
from dpstream.core.counters.forest import CalibratedForest, epochs, optimal_trees
from dpstream.core.errors import BudgetError, ConfigError, LimitError
from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness
from dpstream.stream.stream import WatchedRandomness

PURE = PureDP.of(1)


def recipes(horizon: int) -> list[Counter]:
    return [OptimalTreeCounter(horizon), OptimalEpochsCounter()]


def known_at(counter: CalibratedForest, t: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is drawn by tick ``t``, from the description of the trees: which ticks each node covers, its variance."""
    ends = [tree.start + tree.ticks for tree in counter.trees if tree.start < t]
    covers, variances = [], []
    for tree in counter.trees[: len(ends)]:
        for level, share in enumerate(tree.shares):
            above = math.prod(tree.branching[: level + 1])
            span = math.prod(tree.branching[:level])
            for number in range(-(-tree.ticks // span)):
                begin = tree.start + number * span
                parent = tree.start if level == len(tree.branching) else begin - (begin - tree.start) % above
                if share and parent < t:
                    row = np.zeros(ends[-1])
                    row[begin : min(begin + span, tree.start + tree.ticks)] = 1
                    covers.append(row)
                    variances.append(counter.noise(share).variance)
    return np.array(covers), np.array(variances)


def least_variance(counter: CalibratedForest, t: int) -> float:
    """Of all unbiased linear estimates of the running sum, by the normal equations of everything drawn."""
    covers, variances = known_at(counter, t)
    sums = np.zeros(covers.shape[1])
    sums[:t] = 1
    root = np.sqrt(variances)
    weights = np.linalg.lstsq((covers / root[:, None]).T, sums, rcond=None)[0]
    assert np.allclose((covers / root[:, None]).T @ weights, sums)
    return float(weights @ weights)


def test_the_decoder_is_least_squares() -> None:
    """Brute force: no unbiased linear estimate of what is drawn has a smaller variance, at any tick."""
    for recipe in (
        *(OptimalTreeCounter(horizon) for horizon in (1, 2, 7, 29, 40, 130)),
        OptimalEpochsCounter(),
    ):
        counter = recipe.calibrate(PURE, Event())
        assert isinstance(counter, CalibratedForest)
        for t in range(1, (counter.horizon or 90) + 1, 1 if (counter.horizon or 90) < 100 else 7):
            assert counter.variance(t) == pytest.approx(least_variance(counter, t), rel=1e-9), (recipe, t)


def hidden(counter: CalibratedForest, ticks: int) -> tuple[bool, float]:
    """Whether noise alone makes what is measured of random increments, and what one change costs at most.

    The noise of each node goes up by the increments below it: ``A z + L n = L (n + R z)``, ``z`` at random. A wrong
    map is missed with probability 2^-32. What an increment costs is that of moving the nodes above it by 1.
    """
    rng = np.random.default_rng(9)
    z = rng.integers(-MAX_INCREMENT, MAX_INCREMENT, ticks, endpoint=True)
    sums, moved, costs = np.concatenate([[0], z.cumsum()]), [], np.zeros(ticks + 1)
    for t in range(1, ticks + 1):
        place = counter.place(t)
        for _, count, level in counter.drawn(place):
            span, rate = place.tree.spans[level], 1 / float(counter.noise(place.tree.shares[level]).scale)
            for begin in range(t - 1, t - 1 + count * span, span):
                end = min(begin + span, place.tree.start + place.tree.ticks, ticks)
                moved.append(sums[end] - sums[min(begin, end)])
                costs[min(begin, ticks)] += rate
                costs[end] -= rate
    noise = rng.integers(-(2**30), 2**30, len(moved))
    tapes = NoiseTape(noise), NoiseTape(noise + np.array(moved))
    seen = measured_on_tape(counter, z[:, None], tapes[0])
    said = measured_on_tape(counter, np.zeros((ticks, 1), np.int64), tapes[1])
    complete = all(len(tape.laws) == len(moved) for tape in tapes)
    return complete and np.array_equal(seen, said), float(costs.cumsum().max())


def test_changes_are_hidden_at_long_horizons() -> None:
    """Where certificates take too long; with an exact count that leaks at the last tick of all for a control."""
    ticks = 3_500
    for recipe in recipes(ticks):
        counter = recipe.calibrate(PURE, Event())
        assert isinstance(counter, CalibratedForest)
        same, cost = hidden(counter, ticks)
        assert same, recipe
        assert cost == pytest.approx(1.0, rel=1e-9)

    class Leaks(CalibratedForest):
        def measure(self, state, increment, randomness):  # type: ignore[no-untyped-def]
            measured = super().measure(state, increment, randomness)
            return measured + (increment % 997 if state["t"][0] == ticks else 0)

    assert not hidden(Leaks(OptimalEpochsCounter(), PURE, Event()), ticks)[0]


def test_simulated_errors_are_as_predicted() -> None:
    """Whole runs at horizons where several levels and trees are in use; false alarm below 1e-7 (eight deviations).

    The negative control: noise of two thirds of the scale has four ninths of the variance.
    """
    cells = 4000
    for recipe, ticks in ((OptimalTreeCounter(300), 300), (OptimalEpochsCounter(), 200)):
        counter = recipe.calibrate(PURE, Event())
        z = np.full((ticks, cells), MAX_INCREMENT)
        errors = run_on_tape(counter, z, Randomness.seeded(5)) - z.cumsum(axis=0)
        seen = (errors.astype(np.float64) ** 2).mean(axis=1)
        said = np.array([counter.variance(t) for t in range(1, ticks + 1)])
        # A fourth moment of at most 6 variances squared: a relative deviation of at most sqrt(5/cells).
        band = 8 * math.sqrt(5 / cells)
        assert ((seen - 1 / 12) / said).max() < 1 + band
        assert ((seen - 1 / 12) / said).min() > 1 - band
        assert (seen * 4 / 9 / said).max() < 1 - band


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2), st.integers(1, 300))
def test_nothing_is_lost_at_large_sums(which: int, horizon: int) -> None:
    """Estimates less running sums do not depend on the increments, up to sums near 2^60."""
    counter = recipes(horizon)[which - 1].calibrate(PURE, Event())
    ticks = min(horizon, 60)
    rng = np.random.default_rng(horizon)
    z = rng.integers(-MAX_INCREMENT, MAX_INCREMENT, (ticks, 2))
    state, plain = counter.init(2), counter.init(2)
    state["sum"] += 2**60
    for t, row in enumerate(z):
        large = counter.step(state, row.copy(), Randomness.seeded(t))
        small = counter.step(plain, np.zeros(2, np.int64), Randomness.seeded(t))
        np.testing.assert_array_equal(large - 2**60 - z[: t + 1].sum(axis=0), small)


def test_a_stream_sees_that_a_tick_rests_on_noise() -> None:
    """At most ticks nothing is drawn. A failure after them is an output all the same, and must not pass for none."""
    for recipe in recipes(30):
        counter, silent = recipe.calibrate(PURE, Event()), 0
        state = counter.init(1)
        for t in range(30):
            tape = NoiseTape()
            watched = WatchedRandomness(tape)
            with pytest.raises(LimitError):
                counter.step(state, np.full(1, MAX_INCREMENT + 1), watched)
            assert not watched.used
            counter.step(state, np.ones(1, np.int64), watched)
            assert watched.used, (recipe, t)
            silent += not tape.laws
        assert silent > 5, recipe


def test_designs_are_pinned() -> None:
    """A stored state belongs to its trees: a change here needs new names."""
    assert [(tree.ticks, tree.branching) for tree in optimal_trees(100)] == [(20, (20,))] * 5
    assert [(tree.ticks, tree.branching) for tree in optimal_trees(1000)] == [
        *[(210, (15, 14))] * 4,
        (160, (15, 14)),
    ]
    assert [tree.shares[-1] for tree in optimal_trees(1000)] == [
        Fraction(n, 1024) for n in (377, 352, 318, 260, 0)
    ]
    assert [tree.branching for tree in epochs()[:9]] == [
        (8,), (8, 8), (15, 15), (23, 23), (32, 32), (42, 42), (53, 53), (16, 16, 16), (18, 18, 18),
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5000))
def test_shares_of_a_path_add_up_to_the_whole(horizon: int) -> None:
    trees = optimal_trees(horizon)
    assert all(sum(tree.shares) == 1 and min(tree.shares) >= 0 for tree in trees)
    assert sum(tree.ticks for tree in trees) == horizon
    assert all(tree.start == before.start + before.ticks for before, tree in itertools.pairwise(trees))


def test_refusals() -> None:
    for horizon in (0, -1, 2.0, True, MAX_TICKS + 1):
        with pytest.raises(ConfigError, match="horizon"):
            OptimalTreeCounter(horizon)  # type: ignore[arg-type]
    for recipe in recipes(50):
        with pytest.raises(LimitError, match="exceeds 64-bit sums"):
            recipe.calibrate(PureDP.of("1e-9"), Event())
        # With an adaptive choice of the tick that changes, zCDP would not hold.
        with pytest.raises(BudgetError, match=r"pure budgets only.*toeplitz.*blt"):
            recipe.calibrate(ZCDP.of("1/2"), Event())
        unbounded = recipe.calibrate(PURE, Event())
        if unbounded.horizon is None:
            assert unbounded.variance(MAX_TICKS) > 0
            with pytest.raises(ConfigError):
                unbounded.variance(MAX_TICKS + 1)
