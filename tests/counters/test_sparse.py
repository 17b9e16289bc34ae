"""The sparse counter: exact transcripts of tiny streams, the running code against their law, errors, refusals."""

from __future__ import annotations

import itertools
import math
from collections import Counter as Tally
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.checks import NoiseTape, certify
from dpstream.core.counters import SimpleCounter, SparseCounter, TreeCounter, counter_by_name
from dpstream.core.counters.sparse_counter import CalibratedSparseCounter
from dpstream.core.errors import (
    BudgetError,
    ConfigError,
    DataError,
    HorizonError,
    LimitError,
    StoreDamagedError,
)
from dpstream.core.privacy import ZCDP, DiscreteLaplace, Event, Noise, PureDP, Randomness

ONE = PureDP.of(1)
TICKS = 4
Pattern = tuple[int, ...]


def short(epsilon: int) -> CalibratedSparseCounter:
    """A threshold so low that all patterns of releases are likely."""
    return SparseCounter(TICKS, SimpleCounter(), Fraction(1, 2)).calibrate(PureDP.of(epsilon), Event())


# --- the law of when a cell is released ------------------------------------------------------------------


def at_least(scale: float, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """``Pr[V >= k]`` of discrete Laplace noise, summed up from its probabilities."""
    reach = int(60 * scale) + 60
    values = np.arange(-reach, reach + 1)
    mass = np.exp(-np.abs(values) / scale)
    tail = np.cumsum(mass[::-1])[::-1] / mass.sum()
    return np.where(k <= -reach, 1.0, tail[np.clip(k + reach, 0, 2 * reach)])


def law(z: Pattern, threshold: int, scales: tuple[float, float], fault: str = "") -> dict[Pattern, float]:
    """Probability of every pattern of releases, segment by segment.

    With a ``fault`` the threshold's noise is drawn for each test, or once for all segments.
    """
    kept, fresh = scales
    reach = int(45 * kept) + 45
    shifts = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(shifts) / kept)
    weights /= weights.sum()
    yes = [at_least(fresh, threshold + shifts - pending) for pending in range(sum(z) + 1)]
    result = {}
    for pattern in itertools.product((0, 1), repeat=len(z)):
        alive, pending, total = weights, 0, 1.0
        for arrived, ended in zip(z, pattern, strict=True):
            pending += arrived
            alive = alive * (yes[pending] if ended else 1 - yes[pending])
            if fault == "each test" or (ended and fault != "once"):
                total *= float(alive.sum())
                alive = weights
            if ended:
                pending = 0
        result[pattern] = total * float(alive.sum())
    return result


def worst(threshold: int, scales: tuple[float, float], fault: str = "") -> float:
    """The largest log-ratio of a pattern's probabilities over all streams of 0, 1, 3 and their neighbours."""
    laws = {}

    def of(z: Pattern) -> dict[Pattern, float]:
        if z not in laws:
            laws[z] = law(z, threshold, scales, fault)
        return laws[z]

    largest = 0.0
    for z in itertools.product((0, 1, 3), repeat=3):
        for tick in range(3):
            other = tuple(value + (place == tick) for place, value in enumerate(z))
            one, two = of(z), of(other)
            largest = max(largest, *(abs(math.log(one[p] / two[p])) for p in one))
    return largest


def test_tests_cost_half_the_budget_and_no_more() -> None:
    """Every pattern of releases of every tiny stream, both ways; wrong noise costs more than was paid."""
    for epsilon in (1, 3):
        counter = short(epsilon)
        b = float(counter.noise.scale)
        assert b == 2 / epsilon
        claim = epsilon / 2
        found = max(worst(threshold, (b, b)) for threshold in (-6, counter.threshold))
        assert 0.99 * claim < found <= claim + 1e-9
        assert worst(-6, (2 * b / 3, b)) > 1.4 * claim
        assert worst(8, (b, 2 * b / 3)) > 1.4 * claim
        assert worst(0, (b, b), "each test") > 2 * claim
        assert worst(0, (b, b), "once") > 1.5 * claim


def test_both_parts_add_up_to_the_budget() -> None:
    for unit in (Event(), Event("replace")):
        counter = SparseCounter(20).calibrate(PureDP.of("0.3"), unit)
        tests = unit.changed_cells / counter.noise.scale  # e/2 for each changed cell's tests
        assert tests + certificate_of(counter) == Fraction(3, 10)
        assert counter.segments.unit == unit


def certificate_of(counter: CalibratedSparseCounter) -> Fraction:
    proof = certify(counter.segments, 20)
    assert proof.exact
    assert proof.holds
    return counter.segments.budget.amount


# --- the running code ------------------------------------------------------------------------------------


class Listing:
    """Algorithm 2 for one cell, line by line, with the noise of a list."""

    def __init__(self, threshold: int, noise: list[int]) -> None:
        self.threshold, self.noise = threshold, iter(noise)
        self.shift: int | None = None
        self.pending = self.released = self.segments = 0

    def tick(self, arrived: int) -> int:
        if self.shift is None:
            self.shift = next(self.noise)
        self.pending += arrived
        if self.pending + next(self.noise) >= self.threshold + self.shift:
            self.released += self.pending + next(self.noise)
            self.pending, self.shift = 0, next(self.noise)
        return self.released


def test_the_code_is_the_listing() -> None:
    """One cell, the same noise in the same order; the counter of segments is a plain sum with noise."""
    rng = np.random.default_rng(1)
    counter = SparseCounter(60, SimpleCounter(), Fraction(1, 4)).calibrate(ONE, Event())
    for _ in range(30):
        noise = rng.integers(-4, 5, 300)
        listing, tape = Listing(counter.threshold, noise.tolist()), NoiseTape(noise)
        state = counter.init(1)
        for arrived in rng.integers(-1, 3, 60):
            assert counter.step(state, np.array([arrived]), tape)[0] == listing.tick(int(arrived))
        assert state["inner/t"][0] > 3


class Lean(Randomness):
    """Two thirds of every noise."""

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        assert isinstance(noise, DiscreteLaplace)
        return super().draw(DiscreteLaplace(noise.scale * Fraction(2, 3)), size)


def test_the_code_follows_the_law() -> None:
    """40,000 cells are as many runs: patterns against their probabilities (1e-7); two thirds of the noise fail."""
    from scipy.stats import chi2

    counter, cells, z = short(1), 40_000, (1, 0, 2, 1)
    b = float(counter.noise.scale)
    expected = {p: cells * q for p, q in law(z, counter.threshold, (b, b)).items()}
    for source, fits in ((Randomness.seeded(3), True), (Lean.seeded(3), False)):
        state, before = counter.init(cells), np.zeros(cells, np.int64)
        ended = np.zeros((TICKS, cells), np.int64)
        for tick, arrived in enumerate(z):
            counter.step(state, np.full(cells, arrived), source)
            ended[tick] = state["inner/t"] - before
            before = state["inner/t"].copy()
        seen = Tally(map(tuple, ended.T.tolist()))
        statistic = sum((seen[p] - mean) ** 2 / mean for p, mean in expected.items())
        assert min(expected.values()) > 50
        assert (statistic < chi2.isf(1e-7, len(expected) - 1)) == fits


def test_without_noise_a_release_is_the_sum() -> None:
    counter = SparseCounter(50, TreeCounter(50)).calibrate(ONE, Event())
    state, z = counter.init(3), np.array([[1, 4, 0]] * 50)
    z[10, 2] = counter.threshold + 5
    for tick, row in enumerate(z):
        estimate = counter.step(state, row, NoiseTape())
        sums = z[: tick + 1].sum(axis=0)
        assert ((estimate == sums) | (sums - estimate < counter.threshold)).all()
        assert (estimate + state["pending"] == sums).all()
    assert estimate[2] == counter.threshold + 5


def test_saved_and_continued() -> None:
    counter = SparseCounter(40, TreeCounter(40), Fraction(1, 2)).calibrate(ONE, Event("replace"))
    z = np.random.default_rng(5).integers(0, 6, (40, 9))
    state, copy = counter.init(9), counter.init(9)
    for tick, row in enumerate(z):
        expected = counter.step(state, row, Randomness.seeded(tick))
        assert (counter.step(copy, row, Randomness.seeded(tick)) == expected).all()
        counter.check_state(copy, 9)
        copy = {name: array.copy() for name, array in copy.items()}
    assert len(set(state["inner/t"].tolist())) > 1  # clocks of their own


@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_errors_stay_within_the_bound_and_below_the_published_counter(rate: float) -> None:
    """1,000 cells over 1,000 ticks; a bound that fails in one cell of 1,000 may fail in 20 (1e-15)."""
    ticks, cells = 1000, 1000
    rng = np.random.default_rng(7)
    arrivals = rng.poisson(rate, (ticks, cells))
    mean = {}
    for recipe in (SparseCounter(ticks), SparseCounter.published(ticks)):
        counter = recipe.calibrate(ONE, Event())
        state, sums, outside, squares = (
            counter.init(cells),
            np.zeros(cells, np.int64),
            np.zeros(cells, bool),
            0.0,
        )
        bounds = np.array([counter.error_bound(1e-3, s) for s in range(121)])
        source = Randomness.seeded(11)
        for row in arrivals:
            sums += row
            errors = np.abs(counter.step(state, row, source) - sums)
            outside |= errors > bounds[state["inner/t"]]
            squares += float((errors**2).mean()) / ticks
        assert outside.sum() <= 20
        mean[recipe] = math.sqrt(squares)
    ours, published = mean.values()
    tree = TreeCounter(ticks).calibrate(ONE, Event())
    assert ours < 0.9 * math.sqrt(np.mean([tree.variance(t) for t in range(1, ticks + 1)]))
    assert ours < (published if rate < 0.1 else 0.6 * published)


# --- refusals --------------------------------------------------------------------------------------------


def test_refusals() -> None:
    assert isinstance(counter_by_name("sparse", horizon=5), SparseCounter)
    with pytest.raises(ConfigError, match="needs a horizon"):
        counter_by_name("sparse")
    for wrong in (
        lambda: SparseCounter(0),
        lambda: SparseCounter(9, TreeCounter(8)),
        lambda: SparseCounter(9, factor=Fraction(-1)),
        lambda: SparseCounter(9, factor=0.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            wrong()
    with pytest.raises(BudgetError, match="pure"):
        SparseCounter(9).calibrate(ZCDP.of(1), Event())
    counter = SparseCounter(4).calibrate(ONE, Event())
    for call in (counter.variance, counter.gain_variance, counter.materialize):
        with pytest.raises(ConfigError, match="depend on the data"):
            call(1)
    with pytest.raises(ConfigError, match="cannot be certified"):
        certify(counter, 2)
    state, tape = counter.init(2), NoiseTape()
    before = {name: array.copy() for name, array in state.items()}
    refused = [
        (np.array([1, 2**32 // 4 + 1]), LimitError),
        (np.array([-(2**32) // 4 - 1, 0]), LimitError),
        (np.ones(3, np.int64), DataError),
        (np.ones(2), DataError),
    ]
    for increment, error in refused:
        with pytest.raises(error):
            counter.step(state, increment, tape)
        assert not tape.laws
        assert all((state[name] == before[name]).all() for name in state)
    for _ in range(4):  # a segment of all that is allowed fits the counter of segments
        counter.step(state, np.full(2, 2**32 // 4), NoiseTape())
    with pytest.raises(HorizonError):
        counter.step(state, np.zeros(2, np.int64), tape)
    for damage in (
        {"t": np.array([5])},
        {"shift": np.zeros(3, np.int64)},
        {"pending": np.zeros(2)},
        {"inner/t": np.array([5, 0])},
    ):
        with pytest.raises(StoreDamagedError):
            counter.check_state({**state, **damage}, 2)
    for failure, segments in ((0.0, 1), (1.5, 1), (0.1, 5), (0.1, -1)):
        with pytest.raises(ConfigError):
            counter.error_bound(failure, segments)
