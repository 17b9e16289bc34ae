"""Certificates: every linear counter by name, planted bugs, and the suite that rejects a counter for what is wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.checks import certify, read_cell, read_map
from dpstream.checks.certificate import Echelon, IntegerSystem, run_on_tape, shift_costs
from dpstream.core.counters import (
    COUNTER_NAMES,
    ZCDP_COUNTER_NAMES,
    BlockCounter,
    CalibratedCounter,
    Counter,
    OptimalEpochsCounter,
    OptimalTreeCounter,
    SimpleCounter,
    TreeCounter,
    UnboundedBlockCounter,
    counter_by_name,
)
from dpstream.core.counters.counter import FactoredCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter, Interval, IntervalCounter
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy import DiscreteGaussian, DiscreteLaplace, Event, Noise, Randomness, noise_for
from dpstream.core.privacy.budget import ZCDP, Budget, PureDP
from dpstream_lab.conformance import check_counter

ONE, ADD = PureDP.of(1), Event()
State = dict[str, NDArray[np.int64]]
#: (t, exact sum so far, this increment, state, draw(divisor of the scale)) -> estimate
Rule = Callable[[int, NDArray, NDArray, State, Callable[[int], NDArray]], NDArray]
PURE, RHO = PureDP.of("0.7"), ZCDP.of("1/3")
HORIZONS = (100, 257, 1500)
#: The first ticks at which the claim is reached, where that is not the first tick.
REACHED = {
    "unbounded-block": {1: Fraction(1, 2)},
    "unbounded-block-closed": {1: Fraction(1, 3), 2: Fraction(2, 3), 3: Fraction(2, 3)},
}
#: Noise drawn ahead: the outputs do not tell every noise, which needs elimination and programs: shorter horizons.
AHEAD = ("optimal-tree", "optimal-epochs")


# --- every counter by name ---


def calibrated(name: str, horizon: int, budget: Budget, unit: Event) -> CalibratedCounter | None:
    """None where the counter does not take this kind of budget."""
    recipe = counter_by_name(name, horizon=horizon)
    try:
        return recipe.calibrate(budget, unit)
    except BudgetError:
        return None


def horizons_for(name: str) -> tuple[int, ...]:
    return (*range(1, 65), 300) if name in AHEAD else (*range(1, 65), *HORIZONS)


def reached_after(counter: CalibratedCounter, horizon: int) -> Fraction:
    """The part of the claim that the first ticks can cost."""
    return REACHED.get(counter.name, {}).get(horizon, Fraction(1))


@pytest.mark.parametrize("budget", [PURE, RHO], ids=["pure", "zCDP"])
@pytest.mark.parametrize("name", COUNTER_NAMES)
def test_the_claim_is_certified_at_every_horizon(name: str, budget: Budget) -> None:
    for horizon in horizons_for(name):
        counter = calibrated(name, horizon, budget, Event())
        if counter is None:
            return
        if counter.horizon is None and 16 < horizon < 63:
            continue  # the same counter: its first ticks are those of the longer run
        proof = certify(counter, horizon)
        assert proof.holds, proof
        assert proof.exact, proof
        reached = reached_after(counter, horizon)
        assert proof.certified == pytest.approx(float(reached * budget.amount), rel=1e-6), proof


@pytest.mark.parametrize("budget", [PURE, RHO], ids=["pure", "zCDP"])
@pytest.mark.parametrize("name", COUNTER_NAMES)
def test_replacement_and_pairs(name: str, budget: Budget) -> None:
    """A replacement costs the claim; a unit moved between two ticks at most that of a group of two."""
    for horizon in (1, 2, 9) if name in AHEAD else (1, 2, 9, 33, 64):
        counter = calibrated(name, horizon, budget, Event("replace"))
        if counter is None:
            return
        proof = certify(counter, horizon)
        assert (proof.holds, proof.relation) == (True, "replace")
        reached = reached_after(counter, horizon)
        assert proof.certified == pytest.approx(float(reached * budget.amount), rel=1e-6), proof
        if horizon > 1:
            moved = certify(counter, horizon, pairs=True)
            assert moved.holds, moved
            assert len(moved.per_step) == math.comb(horizon, 2)


def test_the_two_ways_of_reading_a_counter_agree() -> None:
    for name in COUNTER_NAMES:
        for budget in (PURE, RHO):
            counter = calibrated(name, 17, budget, Event())
            if counter is None:
                continue
            cell, slow = read_cell(counter, 17), read_map(counter, 17)
            assert cell is not None
            np.testing.assert_array_equal(cell.noise_map, slow.noise_map)
            np.testing.assert_array_equal(cell.inputs_map, slow.inputs_map)
            assert cell.laws == slow.laws


# --- planted bugs ---


class Through(Randomness):
    """Another source of noise, by ``rule(inner, noise, size)``."""

    def __init__(self, inner: Randomness, rule: Callable[[Randomness, Noise, int], NDArray]) -> None:
        self.inner, self.rule = inner, rule

    def draw(self, noise: Noise, size: int) -> NDArray:
        return self.rule(self.inner, noise, size)


def doubled(inner: Randomness, noise: Noise, size: int) -> NDArray:
    """Noise of half the scale, doubled: all of it is even."""
    return 2 * inner.draw(noise, size)


def broadcast(inner: Randomness, noise: Noise, size: int) -> NDArray:
    """One draw for all cells hides nothing from whoever subtracts two cells."""
    return np.repeat(inner.draw(noise, 1), size)


def thinner(inner: Randomness, noise: Noise, size: int) -> NDArray:
    """Two thirds of the noise asked for."""
    if isinstance(noise, DiscreteLaplace):
        return inner.draw(DiscreteLaplace(noise.scale * Fraction(2, 3)), size)
    assert isinstance(noise, DiscreteGaussian)
    return inner.draw(DiscreteGaussian(noise.sigma_squared * Fraction(4, 9)), size)


ORIGINAL = CalibratedIntervalCounter


def altered(recipe: Any, budget: Budget = ONE, unit: Event = ADD, **methods: Any) -> CalibratedCounter:
    """The calibrated counter of a recipe, some of whose methods are replaced."""
    made: CalibratedCounter = type("Altered", (ORIGINAL,), methods)(recipe, budget, unit)
    return made


def over(rule: Callable[[Randomness, Noise, int], NDArray]) -> Callable[..., NDArray]:
    """A counter's step on another source of noise."""
    return lambda self, state, increment, source: ORIGINAL.step(self, state, increment, Through(source, rule))


def louder(self, share):
    """Two thirds of the scale that the counter pays for."""
    return ORIGINAL.noise(self, share * Fraction(3, 2))


def off_by_one(self, share):
    """A tree of L levels whose nodes get 1/(L - 1) each."""
    return ORIGINAL.noise(self, 1 / (1 / share - 1) if share < 1 else share)


def one_cell(self, share):
    """Forgets that a replacement moves two cells (for Gaussian noise: that sqrt 2 is missing)."""
    return noise_for(self.budget.scaled(share), 1, 1)


def kept(state: State, name: str, like: NDArray) -> NDArray:
    return state.setdefault(name, np.zeros_like(like))


def accumulate(noise_of_tick: Callable[[int, Callable[..., NDArray]], NDArray]) -> Rule:
    """Running sum plus the running sum of whatever noise the tick draws."""

    def rule(t, total, increment, state, draw):
        noise = kept(state, "noise", total)
        noise += noise_of_tick(t, draw)
        return total + noise

    return rule


def planted(rule: Rule, budget: Budget = ONE) -> CalibratedCounter:
    """A counter that runs any rule and claims ``budget``."""

    def init(self, width):
        return {"t": np.zeros(1, np.int64), "sum": np.zeros(width, np.int64)}

    def step(self, state, increment, randomness):
        state["t"][0] += 1
        state["sum"] += increment

        def draw(share: object = 1) -> NDArray:
            return randomness.draw(noise_for(budget.scaled(Fraction(share)), 1, 1), len(increment))

        return rule(int(state["t"][0]), state["sum"].copy(), increment, state, draw)

    return altered(SimpleCounter(), budget, init=init, step=step)


def reused(t, total, increment, state, draw):
    """A block's sum reuses the noise of the block's first tick: a difference of outputs is exact."""
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


def one_sample(t, total, increment, state, draw):
    """Draws once. A change at tick 1 moves every output and is hidden; a later one leaves the earlier outputs."""
    if "kept" not in state:
        state["kept"] = draw()
    return total + state["kept"]


def epochs(t, total, increment, state, draw):
    """The noise of an epoch of 400 ticks comes again in the next one."""
    name = f"place {(t - 1) % 400}"
    if name not in state:
        state[name] = draw()
    noise = kept(state, "noise", total)
    noise += state[name]
    return total + noise


@pytest.mark.parametrize(
    ("rule", "ticks", "truth"),
    [
        (lambda t, total, z, state, draw: total, 1, math.inf),
        (reused, 8, math.inf),
        (one_sample, 1, 1.0),
        (one_sample, 6, math.inf),
        (accumulate(lambda t, draw: draw() * 0 if t == 7 else draw()), 6, 1.0),
        (accumulate(lambda t, draw: draw() * 0 if t == 7 else draw()), 12, math.inf),
        (accumulate(lambda t, draw: draw(2 if t == 5 else 1)), 12, 2.0),
        (epochs, 400, 1.0),  # not reached yet: a certificate speaks of the ticks that were run
        (epochs, 401, math.inf),
    ],
)
def test_planted_rules(rule: Rule, ticks: int, truth: float) -> None:
    proof = certify(planted(rule), ticks)
    assert (proof.certified, proof.holds) == (truth, truth == 1.0)
    if truth == 2.0:
        assert proof.per_step == tuple(2.0 if t == 5 else 1.0 for t in range(1, 13))
    if rule is one_sample:
        assert proof.per_step[0] == 1.0
        assert ticks == 1 or proof.worst_step == 2


@pytest.mark.parametrize("ticks", [8, 300])
def test_bugs_are_found_at_any_horizon(ticks: int) -> None:
    levels = (ticks & -ticks).bit_length()  # of the last and smallest tree: worst
    simple, tree, replaced = SimpleCounter(), TreeCounter(ticks), Event("replace")
    for budget in (ONE, ZCDP.of(1)):
        for recipe, unit, method, truth in (
            (simple, ADD, {"noise": louder}, 1.5),
            (tree, replaced, {"noise": louder}, 1.5),
            (tree, ADD, {"noise": off_by_one}, levels / (levels - 1)),
            (tree, replaced, {"noise": one_cell}, 2.0),
            (simple, ADD, {"step": over(doubled)}, math.inf),
            (tree, ADD, {"step": over(doubled)}, math.inf),
        ):
            proof = certify(altered(recipe, budget, unit, **method), ticks)
            assert not proof.holds, proof
            assert proof.certified == pytest.approx(truth, rel=1e-6), (method, proof)
            assert certify(ORIGINAL(recipe, budget, unit), ticks).holds


def test_a_second_odd_draw_hides_parity() -> None:
    assert certify(planted(accumulate(lambda t, draw: 2 * draw() + draw())), 8).certified < math.inf


def test_three_levels_on_two_shares() -> None:
    @dataclass(frozen=True)
    class TwoShares(UnboundedBlockCounter):
        close_partitions: bool = True

        def interval(self, t: int) -> Interval:
            return Interval(super().interval(t).level, Fraction(1, 2))

    proof = certify(TwoShares().calibrate(ONE, Event()), 13)
    assert proof.certified == pytest.approx(1.5, rel=1e-12)


def test_loose_claims_show_the_unused_budget() -> None:
    loose = certify(planted(accumulate(lambda t, draw: draw(Fraction(2, 3)))), 6)
    assert loose.holds
    assert loose.certified == pytest.approx(2 / 3 * loose.claimed)
    early = certify(TreeCounter(64).calibrate(ONE, Event()), 16)  # levels not reached yet: 5 of 7
    assert early.certified == pytest.approx(5 / 7 * early.claimed)


def test_gaussian_noise_that_is_used_before_its_increments_is_no_proof() -> None:
    """Its rho is the claim for a change that is fixed beforehand; with a tick picked while watching it is more."""
    for recipe in (OptimalTreeCounter(30), OptimalEpochsCounter()):
        ahead = type(recipe.calibrate(PURE, Event()))(recipe, RHO, Event())  # type: ignore[arg-type]
        proof = certify(ahead, 9)
        assert proof.certified == pytest.approx(1 / 3, rel=1e-9)
        assert (proof.adaptive, proof.holds) == (False, False)
        assert "fixed beforehand" in str(proof)
        assert certify(recipe.calibrate(PURE, Event()), 9).adaptive

    for name in ZCDP_COUNTER_NAMES:
        assert certify(counter_by_name(name, horizon=9).calibrate(RHO, Event()), 9).adaptive


# --- what cannot be certified ---


def test_what_is_not_linear_is_refused() -> None:
    def rounds(t, total, increment, state, draw):
        return (total + draw()) // 5 * 5

    def looks(t, total, increment, state, draw):
        return total + draw() if total[0] > 3 else total + draw() + draw()

    for rule, message in (
        (rounds, "outputs must be a linear map of increments and noise"),
        (looks, "depends on the data"),
    ):
        with pytest.raises(ConfigError, match=message):
            certify(planted(rule), 3)

    def words(self, state, increment, randomness):
        return increment + int(randomness.coins("a control")[0]) % 2

    with pytest.raises(ConfigError, match="uniform random words"):
        certify(altered(SimpleCounter(), step=words), 3)


def test_noise_of_the_other_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="other kind"):
        certify(altered(SimpleCounter(), noise=lambda self, share: DiscreteGaussian(Fraction(100))), 3)


def test_numbers_of_ticks() -> None:
    simple = SimpleCounter().calibrate(ONE, ADD)
    for bad in (0, 1.5, 2049):
        with pytest.raises(ConfigError, match="ticks to certify"):
            certify(simple, bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ticks to certify"):
        certify(altered(SimpleCounter(), step=over(broadcast)), 513)
    for ticks, message in ((1, "two ticks"), (513, "in pairs|ticks to certify")):
        with pytest.raises(ConfigError, match=message):
            certify(simple, ticks, pairs=True)
    for bad in (0, 1.5, 10**4):
        with pytest.raises(ConfigError, match="ticks to check"):
            check_counter(SimpleCounter(), ticks=bad)  # type: ignore[arg-type]


# --- more noise than outputs: programs, and exact brute force ---


def test_spare_noise_is_not_counted_twice() -> None:
    """z + n1 + n2: under Laplace noise the loss in the tails is that of one."""
    proof = certify(planted(accumulate(lambda t, draw: draw() + draw())), 3)
    assert (proof.certified, proof.exact) == (1.0, True)
    # Unequal scales: the wider noise decides.
    wider = certify(planted(accumulate(lambda t, draw: draw() + draw(Fraction(1, 4)))), 3)
    assert (wider.certified, wider.exact) == (0.25, True)
    # Gaussian: between the loss of the sum of the variances and that of one integer shift.
    two = certify(planted(accumulate(lambda t, draw: draw() + draw()), ZCDP.of(1)), 3)
    assert two.certified == pytest.approx(1.0)
    assert two.lower == pytest.approx(0.5)
    assert two.holds
    assert not two.exact


def test_an_integer_program_where_the_linear_one_is_not_integral() -> None:
    """z + 2 n1 + 3 n2: real shifts cost 1/3, the cheapest integer one is (1, -1)."""
    proof = certify(planted(accumulate(lambda t, draw: 2 * draw() + 3 * draw())), 2)
    assert proof.certified == pytest.approx(2.0)
    assert proof.lower == pytest.approx(1 / 3)
    assert not proof.exact


def matrices(entries: st.SearchStrategy[int], rows: int, columns: int) -> st.SearchStrategy[NDArray]:
    lists = st.lists(entries, min_size=rows * columns, max_size=rows * columns)
    return lists.map(lambda cells: np.array(cells).reshape(rows, columns))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_shift_costs_against_brute_force(rows: int, columns: int, data: st.DataObject) -> None:
    """All integer shifts in a box: none in the box is cheaper, and the cost found is real."""
    matrix = data.draw(matrices(st.integers(-3, 3), rows, columns))
    target = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=rows, max_size=rows)))
    scales = data.draw(st.lists(st.integers(1, 4), min_size=columns, max_size=columns))
    box = np.array(list(itertools.product(range(-6, 7), repeat=columns)))
    hits = box[(box @ matrix.T == target).all(axis=1)]
    for laplace in (True, False):
        law = DiscreteLaplace if laplace else DiscreteGaussian
        laws = tuple(law(Fraction(scale)) for scale in scales)
        costs = (np.abs(hits) / scales if laplace else hits**2 / (2 * np.array(scales))).sum(axis=1)
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
    matrix = data.draw(matrices(entry, rows, columns))
    hidden = np.array(data.draw(st.lists(entry, min_size=columns, max_size=columns)))
    system = IntegerSystem(matrix)
    solution = system.solve(matrix @ hidden)
    assert solution is not None
    assert (matrix.astype(object) @ solution == matrix @ hidden).all()
    assert not (matrix.astype(object) @ system.kernel).any()
    assert system.kernel.shape[1] == columns - np.linalg.matrix_rank(matrix)
    # Odd targets of an even matrix have no integer solution, though they may have a real one.
    assert IntegerSystem(2 * matrix).solve(np.ones(rows, np.int64)) is None


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


def test_echelon_against_the_general_solver() -> None:
    """Random matrices with columns that begin in different rows, some targets solvable, some not."""
    rng = np.random.default_rng(3)
    kinds = {True: 0, False: 0}
    for _ in range(200):
        columns = int(rng.integers(1, 6))
        rows = columns + int(rng.integers(0, 3))
        matrix = np.tril(rng.integers(-3, 4, (rows, columns)))
        matrix[np.arange(columns), np.arange(columns)] = rng.choice([-2, -1, 1, 2], columns)
        order = rng.permutation(columns)
        matrix = matrix[:, order]
        targets = matrix @ rng.integers(-4, 5, (columns, 6))
        targets[:, 3:] += rng.integers(0, 2, (rows, 3))
        echelon = Echelon(matrix)
        assert echelon.holds
        found = echelon.solve(targets)
        assert found is not None
        for column in range(6):
            truth = IntegerSystem(matrix).solve(targets[:, column])
            kinds[truth is not None] += 1
            assert found[1][column] == (truth is not None)
            if truth is not None:
                assert (truth == found[0][:, column]).all()
    assert min(kinds.values()) > 50
    assert not Echelon(np.array([[1, 1], [0, 1]])).holds
    assert not Echelon(np.zeros((2, 1), np.int64)).holds
    big = Echelon(np.array([[1, 0], [2**40, 1]]))
    assert big.solve(np.array([[2**40], [0]])) is None  # refused, not wrapped around


# --- counters in two halves ---


def halves(horizon: int = 40) -> list[FactoredCounter]:
    """Every counter by name that measures first and decodes then, under each budget that it takes."""
    made = [calibrated(name, horizon, budget, Event()) for name in COUNTER_NAMES for budget in (PURE, RHO)]
    return [counter for counter in made if isinstance(counter, FactoredCounter)]


def garble(state: dict[str, NDArray[np.int64]], names: set[str]) -> dict[str, NDArray[np.int64]]:
    rng = np.random.default_rng(8)
    bad = {name: rng.integers(-(2**60), 2**60, state[name].shape) for name in names}
    return {name: bad.get(name, array).copy() for name, array in state.items()}


def reads_private_arrays(counter: FactoredCounter, ticks: int, width: int = 3) -> str | None:
    """What crosses from the private half to the public one besides the measurements; None if nothing does."""
    rng, source = np.random.default_rng(4), Randomness.seeded(1)
    state = counter.init(width)
    for tick in range(1, ticks + 1):
        public = {name: state[name].copy() for name in counter.public_arrays}
        measured = counter.measure(state, rng.integers(-99, 99, width), source)
        if any(not np.array_equal(state[name], array) for name, array in public.items()):
            return f"measure writes public arrays at tick {tick}"
        private = set(state) - counter.public_arrays - {"t"}
        garbled = garble(state, private)
        kept = {name: garbled[name].copy() for name in private}
        if not np.array_equal(counter.decode(garbled, measured), counter.decode(state, measured.copy())):
            return f"decode reads private arrays at tick {tick}"
        if any(not np.array_equal(garbled[name], kept[name]) for name in private):
            return f"decode writes private arrays at tick {tick}"
    return None


def test_decoding_reads_nothing_but_what_was_measured() -> None:
    assert halves()
    for counter in halves():
        assert reads_private_arrays(counter, 40) is None, counter.describe()


def test_a_decoder_that_looks_at_private_sums_is_found() -> None:
    for counter in halves(8):
        private = set(counter.init(1)) - counter.public_arrays - {"t"}

        class Peeks(type(counter)):  # type: ignore[misc]
            def decode(self, state, coordinates):  # type: ignore[no-untyped-def]
                hidden = set(state) - self.public_arrays - {"t"}
                return super().decode(state, coordinates) + sum(
                    int(state[name].sum()) % 997 for name in hidden
                )

        class Tells(type(counter)):  # type: ignore[misc]
            def measure(self, state, increment, randomness):  # type: ignore[no-untyped-def]
                for name in self.public_arrays:
                    state[name][..., 0] += increment[0]
                return super().measure(state, increment, randomness)

        for broken in (Peeks, Tells):
            copy = broken.__new__(broken)
            copy.__dict__.update(counter.__dict__)
            expected = private if broken is Peeks else counter.public_arrays
            assert (reads_private_arrays(copy, 8) is not None) == bool(expected)
            if broken is Peeks:  # and ``step`` gives it nothing to look at
                z = np.arange(24).reshape(8, 3)
                mine, honest = (run_on_tape(one, z, Randomness.seeded(1)) for one in (copy, counter))
                np.testing.assert_array_equal(mine, honest)


# --- the conformance suite ---


def broken(base: IntervalCounter, **methods: Any) -> Counter:
    """``base`` whose calibrated counter has some methods replaced."""

    class Recipe(type(base)):  # type: ignore[misc]
        def calibrate(self, budget: Budget, unit: Event) -> CalibratedCounter:
            return altered(self, budget, unit, **methods)

    return Recipe(*(getattr(base, name) for name in base.__dataclass_fields__))


def cheating_step(self, state, increment, randomness):
    """Honest on a tape, two thirds of the noise otherwise."""
    honest = hasattr(randomness, "laws")
    return ORIGINAL.step(self, state, increment, randomness if honest else Through(randomness, thinner))


def doubling_step(self, state, increment, randomness):
    """Counts the last tick of each block twice."""
    last = (int(state["t"][0]) + 1) % 4 == 0
    return ORIGINAL.step(self, state, increment * 2 if last else increment, randomness)


def hoarding_step(self, state, increment, randomness):
    state["log"] = np.append(state.get("log", np.zeros(0, np.int64)), increment)
    return ORIGINAL.step(self, state, increment, randomness)


def casting_step(self, state, increment, randomness):
    return ORIGINAL.step(self, state, np.asarray(increment).astype(np.int64), randomness)


def forgetful_step(self, state, increment, randomness):
    """Keeps the noise of the last tick in the counter, not in the state."""
    carried = self._noise.setdefault("carried", np.zeros_like(increment))  # type: ignore[call-overload]
    estimate = ORIGINAL.step(self, state, increment, randomness)
    result = estimate + (carried if len(carried) == len(estimate) and state["t"][0] > 1 else 0)
    self._noise["carried"] = estimate - state["settled"]
    return result


BLOCK = BlockCounter(24, 4)
LOOSE = {"check_state": lambda self, state, width: None}


@pytest.mark.parametrize(
    ("recipe", "must_fail", "must_pass"),
    [
        (broken(BLOCK, step=over(thinner)), {"certificate", "matrix", "errors"}, {"exact-sums", "resume"}),
        (broken(BLOCK, step=cheating_step), {"errors"}, {"certificate", "matrix", "exact-sums"}),
        (broken(BLOCK, step=doubling_step), {"exact-sums", "matrix", "errors"}, {"resume", "cells"}),
        (broken(BLOCK, step=hoarding_step, **LOOSE), {"memory"}, {"certificate", "errors", "resume"}),
        (broken(BLOCK, step=casting_step), {"refusals"}, {"certificate", "errors", "resume"}),
        (broken(BLOCK, step=forgetful_step), {"resume", "clock"}, set()),
        (broken(BLOCK, step=over(broadcast)), {"cells", "certificate"}, {"exact-sums", "resume"}),
        (
            broken(BLOCK, variance=lambda self, t: 2 * ORIGINAL.variance(self, t)),
            {"variance"},
            {"certificate", "errors", "matrix"},
        ),
        (
            broken(BLOCK, materialize=lambda self, n: SimpleCounter().calibrate(ONE, Event()).materialize(n)),
            {"matrix", "variance", "errors"},
            {"certificate", "resume"},
        ),
    ],
    ids=["2/3", "2/3-hidden", "biased", "hoards", "casts", "forgets", "broadcasts", "variance", "matrix"],
)
def test_the_suite_rejects(recipe: Counter, must_fail: set[str], must_pass: set[str]) -> None:
    report = check_counter(recipe, ticks=24)
    assert must_fail <= set(report.failures), str(report)
    assert not must_pass & set(report.failures), str(report)
    assert not report.passed
    assert "FAIL" in str(report)


@pytest.mark.parametrize("budget", [ONE, ZCDP.of("1/20"), PureDP.of("1/10")], ids=str)
def test_two_thirds_of_the_noise_is_rejected_by_the_errors_alone(budget: Budget) -> None:
    for base in (SimpleCounter(), TreeCounter(16)):
        report = check_counter(broken(base, step=cheating_step), budget=budget, ticks=16)
        assert report.failures == ("errors",), str(report)
        assert check_counter(base, budget=budget, ticks=16).passed


def test_the_suite_goes_as_far_as_the_horizon() -> None:
    report = check_counter(TreeCounter(5), ticks=100)
    assert report.passed
    assert "5 ticks" in str(report)
