"""Certificates: the truth for planted bugs, loose claims and counters with more noise than outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.checks import certify, read_map
from dpstream.checks.certificate import IntegerSystem, shift_costs, unique_solutions
from dpstream.core.counters import CalibratedCounter, LinearMap, SimpleCounter, TreeCounter
from dpstream.core.counters.intervals import (
    BlockCounter,
    CalibratedIntervalCounter,
    Interval,
    UnboundedBlockCounter,
)
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import ZCDP, Budget, PureDP
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event

ONE = PureDP.of(1)
ADD = Event()
State = dict[str, NDArray[np.int64]]
#: (t, exact sum so far, this increment, state, draw(divisor of the scale)) -> estimate
Rule = Callable[[int, NDArray, NDArray, State, Callable[[int], NDArray]], NDArray]


@dataclass(frozen=True)
class Planted(CalibratedCounter):
    """A counter that runs any rule and claims ``budget``."""

    rule: Rule
    budget: Budget = ONE
    unit: Event = ADD

    name = "planted"
    horizon = None

    def describe(self) -> str:
        return "planted"

    def init(self, width: int) -> State:
        return {"t": np.zeros(1, np.int64), "sum": np.zeros(width, np.int64)}

    def step(self, state: State, increment: NDArray, randomness: Randomness) -> NDArray:
        state["t"][0] += 1
        state["sum"] += increment
        width = len(increment)
        cells = self.unit.changed_cells

        def draw(share: object = 1) -> NDArray:
            return randomness.draw(noise_for(self.budget.scaled(Fraction(share)), cells, cells), width)

        return self.rule(int(state["t"][0]), state["sum"].copy(), increment, state, draw)

    def variance(self, t: int) -> float:
        return 0.0

    def materialize(self, n: int) -> LinearMap:
        raise ConfigError("no matrix")

    def check_state(self, state: Mapping[str, NDArray], width: int) -> None:
        return None


def kept(state: State, name: str, like: NDArray) -> NDArray:
    return state.setdefault(name, np.zeros_like(like))


def accumulate(noise_of_tick: Callable[[int, Callable[..., NDArray]], NDArray]) -> Rule:
    """Running sum plus the running sum of whatever noise the tick draws."""

    def rule(t, total, increment, state, draw):
        noise = kept(state, "noise", total)
        noise += noise_of_tick(t, draw)
        return total + noise

    return rule


def true_loss(rule: Rule, ticks: int = 8, **options) -> float:
    return certify(Planted(rule, **options), ticks).certified


# --- planted bugs ------------------------------------------------------------------------------------


def test_a_tree_of_one_tick_with_no_level_has_no_noise() -> None:
    assert true_loss(lambda t, total, z, state, draw: total, ticks=1) == math.inf


def test_a_block_counter_that_reuses_a_sample() -> None:
    """The block's sum reuses the noise of the block's first tick: a difference of outputs is exact."""

    def rule(t, total, increment, state, draw):
        settled, inner, first = (kept(state, key, total) for key in ("settled", "inner", "first"))
        if t % 4 == 0:
            settled += first
            inner[:] = 0
            return total + settled
        fresh = draw(Fraction(1, 2))
        if t % 4 == 1:
            first[:] = fresh
        inner += fresh
        return total + settled + inner

    assert true_loss(rule) == math.inf


def test_a_counter_that_draws_once_and_keeps_the_sample() -> None:
    def rule(t, total, increment, state, draw):
        if "kept" not in state:
            state["kept"] = draw()
        return total + state["kept"]

    proof = certify(Planted(rule), 6)
    # A change at tick 1 moves every output and is hidden; a later one leaves the earlier outputs in place.
    assert proof.per_step[0] == 1.0
    assert proof.certified == math.inf
    assert proof.worst_step == 2


def test_parity_is_seen_although_the_linear_program_sees_half() -> None:
    doubled = accumulate(lambda t, draw: 2 * draw())
    for budget in (ONE, ZCDP.of(1)):
        assert true_loss(doubled, budget=budget) == math.inf
    # With a second, odd coordinate parity is hidden again.
    assert true_loss(accumulate(lambda t, draw: 2 * draw() + draw())) < math.inf


def test_a_tick_with_half_the_noise_or_none_is_found() -> None:
    half = certify(Planted(accumulate(lambda t, draw: draw(2 if t == 5 else 1))), 12)
    assert half.per_step == tuple(2.0 if t == 5 else 1.0 for t in range(1, 13))
    silent = accumulate(lambda t, draw: draw() * 0 if t == 7 else draw())
    assert true_loss(silent, ticks=12) == math.inf
    assert true_loss(silent, ticks=6) == 1.0


def test_cells_that_share_noise() -> None:
    """One draw for all cells hides nothing from whoever subtracts two cells."""

    class Broadcast(CalibratedIntervalCounter):
        def step(self, state, increment, randomness):
            return super().step(state, increment, One(randomness))

    class One(Randomness):
        def __init__(self, inner: Randomness) -> None:
            self.inner = inner

        def draw(self, noise: Noise, size: int) -> NDArray:
            return np.repeat(self.inner.draw(noise, 1), size)

    for unit in (Event(), Event("replace")):
        assert certify(Broadcast(SimpleCounter(), ONE, unit), 4).certified == math.inf


def test_three_levels_on_two_shares() -> None:
    @dataclass(frozen=True)
    class TwoShares(UnboundedBlockCounter):
        close_partitions: bool = True

        def interval(self, t: int) -> Interval:
            return Interval(super().interval(t).level, Fraction(1, 2))

    proof = certify(TwoShares().calibrate(ONE, Event()), 13)
    assert proof.certified == pytest.approx(1.5, rel=1e-12)


def test_loose_claims_show_the_wasted_budget() -> None:
    loose = certify(Planted(accumulate(lambda t, draw: draw(Fraction(2, 3)))), 6)
    assert loose.holds
    assert loose.wasted == pytest.approx(1 / 3)
    early = certify(TreeCounter(64).calibrate(ONE, Event()), 16)  # levels not reached yet: 5 of 7
    assert early.wasted == pytest.approx(2 / 7)


# --- counters that cannot be certified ---------------------------------------------------------------


def test_what_is_not_linear_is_refused() -> None:
    def rounds(t, total, increment, state, draw):
        return (total + draw()) // 5 * 5

    def looks(t, total, increment, state, draw):
        return total + draw() if total[0] > 3 else total + draw() + draw()

    for rule, message in ((rounds, "not a linear map"), (looks, "depends on the data")):
        with pytest.raises(ConfigError, match=message):
            certify(Planted(rule), 3)

    class Words(CalibratedIntervalCounter):
        def step(self, state, increment, randomness):
            return increment + int(randomness.coins("a control")[0]) % 2

    with pytest.raises(ConfigError, match="uniform random words"):
        certify(Words(SimpleCounter(), ONE, Event()), 3)


def test_noise_of_the_other_kind_is_refused() -> None:
    class Gaussian(CalibratedIntervalCounter):
        def noise(self, share: Fraction) -> Noise:
            return DiscreteGaussian(Fraction(100))

    with pytest.raises(ConfigError, match="other kind"):
        certify(Gaussian(SimpleCounter(), ONE, Event()), 3)


def test_numbers_of_ticks() -> None:
    counter = SimpleCounter().calibrate(ONE, Event())
    for bad in (0, -1, 1.5, 10**6):
        with pytest.raises(ConfigError, match="ticks to certify"):
            certify(counter, bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="two ticks"):
        certify(counter, 1, pairs=True)


# --- more noise than outputs: programs, and exact brute force ----------------------------------------


def test_spare_noise_is_not_counted_twice() -> None:
    """z + n1 + n2: under Laplace noise the loss in the tails is that of one."""
    proof = certify(Planted(accumulate(lambda t, draw: draw() + draw())), 3)
    assert (proof.certified, proof.exact) == (1.0, True)
    # Unequal scales: the wider noise decides.
    wider = certify(Planted(accumulate(lambda t, draw: draw() + draw(Fraction(1, 4)))), 3)
    assert (wider.certified, wider.exact) == (0.25, True)
    # Gaussian: between the loss of the sum of the variances and that of one integer shift.
    two = certify(Planted(accumulate(lambda t, draw: draw() + draw()), ZCDP.of(1)), 3)
    assert two.certified == pytest.approx(1.0)
    assert two.lower == pytest.approx(0.5)
    assert two.holds
    assert not two.exact


def test_an_integer_program_where_the_linear_one_is_not_integral() -> None:
    """z + 2 n1 + 3 n2: real shifts cost 1/3, the cheapest integer one is (1, -1)."""
    proof = certify(Planted(accumulate(lambda t, draw: 2 * draw() + 3 * draw())), 2)
    assert proof.certified == pytest.approx(2.0)
    assert proof.lower == pytest.approx(1 / 3)
    assert not proof.exact


small = st.integers(-3, 3)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_shift_costs_against_brute_force(rows: int, columns: int, data: st.DataObject) -> None:
    """All integer shifts in a box: none in the box is cheaper, and the cost found is real."""
    matrix = np.array(
        data.draw(st.lists(st.lists(small, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    )
    target = np.array(data.draw(st.lists(small, min_size=rows, max_size=rows)))
    scales = data.draw(st.lists(st.integers(1, 4), min_size=columns, max_size=columns))
    box = np.array(list(itertools.product(range(-6, 7), repeat=columns)))
    hits = box[(box @ matrix.T == target).all(axis=1)]
    for laplace in (True, False):
        laws: tuple[Noise, ...]
        if laplace:
            laws = tuple(DiscreteLaplace(Fraction(b)) for b in scales)
            costs = (np.abs(hits) / np.array(scales)).sum(axis=1)
        else:
            laws = tuple(DiscreteGaussian(Fraction(b)) for b in scales)
            costs = (hits**2 / (2 * np.array(scales))).sum(axis=1)
        found = shift_costs(matrix, laws, target[:, None])[0]
        assert found.lower <= found.upper + 1e-9
        if len(costs):
            assert found.lower <= costs.min() + 1e-9
            assert found.upper < math.inf
        if laplace and len(costs) and costs.min() < 6 / max(scales):
            assert found.upper == pytest.approx(costs.min(), abs=1e-9)  # the box holds every cheaper shift
        if found.upper == math.inf:
            assert not len(costs)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_integer_systems(rows: int, columns: int, data: st.DataObject) -> None:
    entry = st.integers(-6, 6)
    matrix = np.array(
        data.draw(st.lists(st.lists(entry, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    )
    hidden = np.array(data.draw(st.lists(entry, min_size=columns, max_size=columns)))
    system = IntegerSystem(matrix)
    solution = system.solve(matrix @ hidden)
    assert solution is not None
    assert (matrix.astype(object) @ solution == matrix @ hidden).all()
    assert not (matrix.astype(object) @ system.kernel).any()
    rank = np.linalg.matrix_rank(matrix)
    assert system.kernel.shape[1] == columns - rank
    unique = unique_solutions(matrix, (matrix @ hidden)[:, None])
    assert (unique is None) == (rank < columns)
    if unique is not None:
        assert unique[1][0]
        assert (unique[0][:, 0] == hidden).all()
    # Odd targets of an even matrix have no integer solution, though they may have a real one.
    assert IntegerSystem(2 * matrix).solve(np.ones(rows, np.int64)) is None


# --- pairs of ticks ----------------------------------------------------------------------------------


def test_pairs_of_ticks() -> None:
    """One unit moved between ticks: at most a group of two, less where both are in one noisy sum."""
    simple = certify(SimpleCounter().calibrate(ONE, Event()), 6, pairs=True)
    assert (simple.claimed, simple.certified) == (2.0, 2.0)
    assert simple.relation == "pairs"
    assert len(simple.per_step) == 15
    block = certify(BlockCounter(4, 4).calibrate(ONE, Event()), 4, pairs=True)
    assert block.certified == pytest.approx(1.0)  # the block's sum does not move
    assert (block.worst_step, block.worst_partner) == (1, 2)
    gaussian = certify(SimpleCounter().calibrate(ZCDP.of(1), Event()), 4, pairs=True)
    assert (gaussian.claimed, gaussian.certified) == (4.0, 2.0)
    replace = certify(SimpleCounter().calibrate(ONE, Event("replace")), 4, pairs=True)
    assert (replace.claimed, replace.certified) == (1.0, 1.0)


def test_the_map_of_a_simple_counter() -> None:
    recorded = read_map(SimpleCounter().calibrate(ONE, Event()), 3, width=2)
    ones = np.kron(np.tril(np.ones((3, 3), np.int64)), np.eye(2, dtype=np.int64))
    assert (recorded.noise_map == ones).all()
    assert (recorded.inputs_map == ones).all()
    assert recorded.laws == (DiscreteLaplace(Fraction(1)),) * 6
