"""The certificate of every linear counter by name: every horizon to 64, some to 1,500; and planted bugs."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.checks import certify, read_cell, read_map
from dpstream.checks.certificate import Echelon, IntegerSystem, run_on_tape
from dpstream.core.counters import (
    COUNTER_NAMES,
    ZCDP_COUNTER_NAMES,
    CalibratedCounter,
    OptimalEpochsCounter,
    OptimalTreeCounter,
    SimpleCounter,
    TreeCounter,
    counter_by_name,
)
from dpstream.core.counters.counter import FactoredCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.randomness import Randomness

PURE, RHO = PureDP.of("0.7"), ZCDP.of("1/3")
HORIZONS = (100, 257, 1500)
#: The first ticks at which the claim is reached, where that is not the first tick.
REACHED = {
    "unbounded-block": {1: Fraction(1, 2)},
    "unbounded-block-closed": {1: Fraction(1, 3), 2: Fraction(2, 3), 3: Fraction(2, 3)},
}


def calibrated(name: str, horizon: int, budget: Budget, unit: Event) -> CalibratedCounter | None:
    """None where the counter does not take this kind of budget."""
    recipe = counter_by_name(name, horizon=horizon)
    try:
        return recipe.calibrate(budget, unit)
    except BudgetError:
        return None


#: Noise drawn ahead: the outputs do not tell every noise, which needs elimination and programs: shorter horizons.
AHEAD = ("optimal-tree", "optimal-epochs")


def horizons_for(name: str) -> tuple[int, ...]:
    return (*range(1, 65), 300) if name in AHEAD else (*range(1, 65), *HORIZONS)


def reached_after(counter: CalibratedCounter, horizon: int) -> Fraction:
    """The part of the claim that the first ticks can cost; "blt" reaches its own only in the limit."""
    if counter.name == "blt":
        return counter.materialize(horizon).loss(counter.unit) / counter.budget.amount
    return REACHED.get(counter.name, {}).get(horizon, Fraction(1))


def test_every_counter_takes_some_budget() -> None:
    for name in COUNTER_NAMES:
        assert calibrated(name, 8, PURE, Event()) or calibrated(name, 8, RHO, Event()), name


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


# --- planted bugs at long horizons, through the quick way ----------------------------------------------


class Louder(CalibratedIntervalCounter):
    """Noise of another part of the budget than the counter pays; which, by ``factor``."""

    factor = Fraction(1)

    def noise(self, share: Fraction) -> Noise:
        return super().noise(share * self.factor)


class WrongScale(Louder):
    factor = Fraction(3, 2)


class OffByOneShare(CalibratedIntervalCounter):
    """A tree of L levels whose nodes get 1/(L - 1) each."""

    def noise(self, share: Fraction) -> Noise:
        return super().noise(1 / (1 / share - 1) if share < 1 else share)


class OneCell(CalibratedIntervalCounter):
    """Forgets that a replacement moves two cells (for Gaussian noise: that sqrt 2 is missing)."""

    def noise(self, share: Fraction) -> Noise:
        return noise_for(self.budget.scaled(share), 1, 1)


class Doubled(Randomness):
    """Draws noise of half the scale and doubles it: all noise is even."""

    def __init__(self, inner: Randomness) -> None:
        self.inner = inner

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        return 2 * self.inner.draw(noise, size)


class Epochs(Randomness):
    """The noise of an epoch again in the next one."""

    def __init__(self, inner: Randomness) -> None:
        self.inner = inner
        self.kept: dict[int, NDArray[np.int64]] = {}
        self.tick = 0

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        self.tick += 1
        place = (self.tick - 1) % 400
        if place not in self.kept or len(self.kept[place]) != size:
            self.kept[place] = self.inner.draw(noise, size)
        return self.kept[place].copy()


class OverTape(CalibratedIntervalCounter):
    """A counter whose noise goes through a broken source, one for each run."""

    broken: Callable[[Randomness], Randomness]

    def init(self, width):  # type: ignore[no-untyped-def]
        object.__setattr__(self, "source", None)
        return super().init(width)

    def step(self, state, increment, randomness):  # type: ignore[no-untyped-def]
        if self.source is None:
            object.__setattr__(self, "source", type(self).broken(randomness))
        return super().step(state, increment, self.source)


class Parity(OverTape):
    broken = Doubled


class ReusedAcrossEpochs(OverTape):
    broken = Epochs


@pytest.mark.parametrize("ticks", [8, 300])
def test_bugs_are_found_at_any_horizon(ticks: int) -> None:
    levels = (ticks & -ticks).bit_length()  # of the last and smallest tree: worst
    add, replaced = Event(), Event("replace")
    for budget in (PureDP.of(1), ZCDP.of(1)):
        for counter, truth in (
            (WrongScale(SimpleCounter(), budget, add), 1.5),
            (WrongScale(TreeCounter(ticks), budget, replaced), 1.5),
            (OffByOneShare(TreeCounter(ticks), budget, add), levels / (levels - 1)),
            (OneCell(TreeCounter(ticks), budget, replaced), 2.0),
            (Parity(SimpleCounter(), budget, add), math.inf),
            (Parity(TreeCounter(ticks), budget, add), math.inf),
        ):
            proof = certify(counter, ticks)
            assert not proof.holds, proof
            assert proof.certified == pytest.approx(truth, rel=1e-6), (type(counter).__name__, proof)
            assert certify(CalibratedIntervalCounter(counter.recipe, budget, counter.unit), ticks).holds


def test_noise_that_comes_again_in_a_later_epoch_is_found() -> None:
    counter = ReusedAcrossEpochs(SimpleCounter(), PureDP.of(1), Event())
    assert certify(counter, 400).holds  # not reached yet: a certificate speaks of the ticks that were run
    proof = certify(counter, 401)
    assert proof.certified == math.inf
    assert not proof.holds


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


def test_numbers_of_ticks_that_are_too_many() -> None:
    class Broadcast(CalibratedIntervalCounter):
        def step(self, state, increment, randomness):  # type: ignore[no-untyped-def]
            class One(Randomness):
                def __init__(self) -> None: ...

                def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
                    return np.repeat(randomness.draw(noise, 1), size)

            return super().step(state, increment, One())

    simple = SimpleCounter().calibrate(PURE, Event())
    with pytest.raises(ConfigError, match="ticks to certify"):
        certify(simple, 2049)
    with pytest.raises(ConfigError, match="in pairs"):
        certify(simple, 513, pairs=True)
    with pytest.raises(ConfigError, match="ticks to certify"):
        certify(Broadcast(SimpleCounter(), PURE, Event()), 513)


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


# --- counters in two halves ----------------------------------------------------------------------------


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
