"""Banks: many counters stepped together are the counters stepped one by one."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.counters import (
    COUNTER_NAMES,
    PURE_COUNTER_NAMES,
    CounterBank,
    FactoredCounter,
    OptimalEpochsCounter,
    counter_by_name,
)
from dpstream.core.counters.counter import MAX_INCREMENT, MAX_TICKS
from dpstream.core.counters.forest import Tree
from dpstream.core.errors import (
    ConfigError,
    DataError,
    DpstreamError,
    HorizonError,
    LimitError,
    StoreDamagedError,
)
from dpstream.core.privacy import ZCDP, Event, PureDP
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.randomness import Randomness

WIDTHS = (3, 1, 5, 2)
HORIZON = 12


class ByLaw(Randomness):
    """Every value is a function of its law: a bank and single counters see the same noise, in whatever order."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        self.sizes.append(size)
        return np.full(size, round(1000 * noise.variance) % 997, np.int64)


class Serial(Randomness):
    """No value twice."""

    def __init__(self) -> None:
        self.next = 1

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        self.next += size
        # Far apart even where noise is in small units.
        return np.arange(self.next - size, self.next, dtype=np.int64) ** 2 << 24


def bank_of(name: str) -> CounterBank:
    budget = PureDP.of(1) if name in PURE_COUNTER_NAMES else ZCDP.of(1)
    return CounterBank(counter_by_name(name, horizon=HORIZON).calibrate(budget, Event()), WIDTHS)


subsets = st.lists(
    st.permutations(range(len(WIDTHS))).flatmap(lambda p: st.integers(0, 4).map(lambda n: p[:n]))
)


@pytest.mark.parametrize("name", COUNTER_NAMES)
@settings(max_examples=25, deadline=None)
@given(subsets.map(lambda steps: steps[:HORIZON]), st.integers(0, 2**32))
def test_a_bank_is_its_counters(name: str, steps: list[list[int]], seed: int) -> None:
    """Whichever are stepped, in whatever order, saved and restored after every step."""
    bank, rng = bank_of(name), np.random.default_rng(seed)
    state = bank.init()
    singles = [bank.counter.init(width) for width in WIDTHS]
    for chosen in steps:
        parts = [rng.integers(-50, 50, WIDTHS[i]) for i in chosen]
        flat = np.concatenate([np.zeros(0, np.int64), *parts])
        noise = ByLaw()
        together = bank.step(state, flat, noise, chosen)
        if not isinstance(
            bank.counter, FactoredCounter
        ):  # these draw ahead: several at one tick, none at another
            assert len(noise.sizes) == len({int(singles[i]["t"][0]) for i in chosen})  # a draw for each clock
        apart = [bank.counter.step(singles[i], p, ByLaw()) for i, p in zip(chosen, parts, strict=True)]
        np.testing.assert_array_equal(together, np.concatenate([np.zeros(0, np.int64), *apart]))
        bank.check_state(state)
        state = {key: array.copy() for key, array in state.items()}
    for i, single in enumerate(singles):
        mine = bank.state_of(state, i)
        assert mine.keys() == single.keys()
        assert all(np.array_equal(mine[key], single[key]) for key in single)


@dataclass(frozen=True)
class Shrinking(OptimalEpochsCounter):
    """Needs fewer rows in its second tree than in the first, as epochs do when they get another level."""

    def trees(self) -> tuple[Tree, ...]:
        half, third = Fraction(1, 2), Fraction(1, 3)
        return (
            Tree(0, 9, (9,), (half, half)),
            Tree(9, 4, (2, 2), (third,) * 3),
            Tree(13, MAX_TICKS, (MAX_TICKS,), (half, half)),
        )


def test_a_counter_that_was_ahead_leaves_no_rows() -> None:
    bank = CounterBank(Shrinking().calibrate(PureDP.of(1), Event()), (1, 2))
    state = bank.init()
    for chosen, width in ((0, 1), (1, 2)):
        for _ in range(10):
            bank.step(state, np.ones(width, np.int64), ByLaw(), [chosen])
    for _ in range(3):
        bank.step(state, np.ones(3, np.int64), ByLaw())
        bank.check_state(state)


@pytest.mark.parametrize("name", COUNTER_NAMES)
def test_cells_of_a_bank_share_no_noise(name: str) -> None:
    bank = bank_of(name)
    for chosen in (None, [2, 0], [1, 2, 3]):
        state = bank.init()
        width = bank.cells if chosen is None else sum(WIDTHS[i] for i in chosen)
        first = bank.step(state, np.zeros(width, np.int64), Serial(), chosen)
        assert len(set(first.tolist())) == width


def test_a_bank_refuses_before_it_draws() -> None:
    bank = bank_of("block")
    state = bank.init()
    for _ in range(HORIZON):
        bank.step(state, np.ones(WIDTHS[1], np.int64), ByLaw(), [1])
    before = {key: array.copy() for key, array in state.items()}
    ones = np.ones(bank.cells, np.int64)
    huge = ones.copy()
    huge[-1] = MAX_INCREMENT + 1
    refused: list[tuple[type[DpstreamError], NDArray, list[int] | None]] = [
        (HorizonError, ones, None),  # one of them is at its end: none of them ticks
        (LimitError, huge[-5:], [0, 3]),
        (DataError, ones[:2], [0]),
        (DataError, ones[:3].astype(float), [0]),
        (ConfigError, ones[:6], [0, 0]),
        (ConfigError, ones[:1], [4]),
        (ConfigError, ones[:1], [-1]),
    ]
    for error, increments, chosen in refused:
        noise = ByLaw()
        with pytest.raises(error):
            bank.step(state, increments, noise, chosen)
        assert not noise.sizes
        assert all(np.array_equal(before[key], state[key]) for key in state)
    for widths in ((), (0,), (3, -1), (2.5,)):
        with pytest.raises(ConfigError):
            CounterBank(bank.counter, widths)  # type: ignore[arg-type]


def test_damage_to_a_bank_is_seen() -> None:
    bank = bank_of("tree")
    state = bank.init()
    for _ in range(5):
        bank.step(state, np.ones(bank.cells, np.int64), ByLaw())
    bank.check_state(state)
    for key, broken in (
        ("t", state["t"] + HORIZON),
        ("t", state["t"][:2]),
        ("settled", state["settled"][1:]),
        ("pending", state["pending"].astype(float)),
        ("rows/noise", state["rows/noise"] + 99),
    ):
        with pytest.raises(StoreDamagedError):
            bank.check_state({**state, key: broken})
    with pytest.raises(StoreDamagedError):
        bank.check_state({key: array for key, array in state.items() if key != "noise"})
