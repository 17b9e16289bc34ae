"""Many equal counters of different widths, each with its own clock, stepped together.

Counters of one recipe and budget which are at the same tick do the same thing to their cells. The bank
lays all cells side by side and steps the counters of each clock in one call with one draw of noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import (
    CalibratedCounter,
    CounterState,
    check_count,
    check_increment,
    check_size,
    check_tick,
)
from dpstream.core.errors import ConfigError, StoreDamagedError

if TYPE_CHECKING:
    from dpstream.core.privacy.randomness import Randomness

#: Named int64 arrays, changed in place: "t" (a clock for each counter), the counter's own arrays with the
#: cells of all counters side by side on the last axis, and for each array with rows "rows/NAME": how many
#: rows each counter has in use. Copying the arrays saves the bank. It holds private sums.
BankState = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class CounterBank:
    """``len(widths)`` counters of one calibrated recipe.

    Guarantee: each counter by itself has the guarantee of ``counter``; noises of different counters are
    independent. An event that enters several of them pays for each: adding that up is the caller's part.
    Which counters are stepped is public (it must follow from released values).

    Args:
        counter: the calibrated counter that each of them is.
        widths: cells of each.

    Cost: where all counters are stepped at one clock, that of one counter as wide as all of them together;
    else also a copy of the state of those that are stepped, once in and once out.
    """

    counter: CalibratedCounter
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        checked = tuple(
            check_count(width, what="the number of cells", least=1, most=2**31) for width in self.widths
        )
        if not checked:
            raise ConfigError("a bank of no counters", where="counter bank", allowed="1 width or more")
        object.__setattr__(self, "widths", checked)

    @property
    def cells(self) -> int:
        """Cells of all counters together."""
        return int(self._starts[-1])

    def part(self, index: int) -> slice:
        """Where the cells of a counter are among those of all."""
        return slice(int(self._starts[index]), int(self._starts[index + 1]))

    def init(self) -> BankState:
        """Fresh states of all counters."""
        state = self.counter.init(self.cells)
        count = len(self.widths)
        rows = {
            f"rows/{name}": np.full(count, a.shape[0], np.int64) for name, a in state.items() if a.ndim > 1
        }
        return {**state, **rows, "t": np.zeros(count, np.int64)}

    def step(
        self,
        state: BankState,
        increments: NDArray[np.int64],
        randomness: Randomness,
        chosen: Sequence[int] | None = None,
    ) -> NDArray[np.int64]:
        """One tick of some counters: their noisy running sums.

        Args:
            state: changed in place.
            increments: int64, the cells of the chosen counters one after the other.
            chosen: which counters tick, in the order of ``increments``; None: all.

        Returns:
            int64 of the shape of ``increments``, in the same order.

        Errors (all before anything is drawn or changed):
            ConfigError: a counter that does not exist, or is chosen twice.
            DataError, LimitError, HorizonError: as ``CalibratedCounter.step``, for any of the counters.
        """
        everyone = range(len(self.widths))
        picked = list(everyone) if chosen is None else self._check_chosen(chosen)
        check_increment(increments, sum(self.widths[i] for i in picked))
        if not picked:
            return increments.copy()
        check_size(increments, self.counter.name)
        # All clocks before the first draw: a bank never ticks in part.
        check_tick(int(state["t"][picked].max()) + 1, self.counter.horizon, self.counter.name)
        if picked == list(everyone) and (state["t"] == state["t"][0]).all():
            return self._step_all(state, increments, randomness)
        result = np.empty_like(increments)
        for group, places in self._groups(state, picked):
            own = self._gather(state, group)
            result[places] = self.counter.step(own, increments[places], randomness)
            self._scatter(state, group, own)
        return result

    def state_of(self, state: BankState, index: int) -> CounterState:
        """A copy of one counter's state, as ``CalibratedCounter.step`` takes it."""
        return self._gather(state, [index])

    def check_state(self, state: BankState) -> None:
        """Raise StoreDamagedError unless ``state`` can be a state of this bank."""
        fresh, count = self.init(), len(self.widths)
        damaged = StoreDamagedError(
            "the state is unusable: its arrays are not those of this bank", where="bank"
        )
        if set(state) != set(fresh):
            raise damaged
        for name, array in state.items():
            width = count if name == "t" or name.startswith("rows/") else self.cells
            if array.dtype != np.int64 or array.ndim != fresh[name].ndim or array.shape[-1] != width:
                raise damaged
        for name in self._with_rows(state):
            if not ((state[f"rows/{name}"] >= 0) & (state[f"rows/{name}"] <= state[name].shape[0])).all():
                raise damaged
        for index, width in enumerate(self.widths):
            self.counter.check_state(self.state_of(state, index), width)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.widths)]).astype(np.int64)

    def _check_chosen(self, chosen: Sequence[int]) -> list[int]:
        most = len(self.widths) - 1
        picked = [check_count(i, what="the counter's number", least=0, most=most) for i in chosen]
        if len(set(picked)) < len(picked):
            raise ConfigError("a counter is chosen twice for one tick", where="counter bank", allowed="once")
        return picked

    @staticmethod
    def _with_rows(state: BankState) -> list[str]:
        return [name for name in state if f"rows/{name}" in state]

    def _step_all(
        self, state: BankState, increments: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """All at one clock: the bank is one wide counter."""
        own = {name: array for name, array in state.items() if not name.startswith("rows/")}
        for name in self._with_rows(state):
            # There may be more rows, from when one of the counters was ahead and needed them.
            own[name] = own[name][: int(state[f"rows/{name}"][0])]
        own["t"] = state["t"][:1].copy()
        result = self.counter.step(own, increments, randomness)
        state["t"][:] = own.pop("t")[0]
        state.update(own)
        for name in self._with_rows(state):
            state[f"rows/{name}"][:] = state[name].shape[0]
        return result

    def _groups(self, state: BankState, picked: list[int]) -> Iterator[tuple[list[int], NDArray[np.int64]]]:
        """The chosen counters by clock, and where their cells are in the increments."""
        clocks = state["t"][picked]
        starts = np.concatenate([[0], np.cumsum([self.widths[i] for i in picked])])
        for clock in np.unique(clocks):
            slots = np.flatnonzero(clocks == clock)
            places = np.concatenate([np.arange(starts[j], starts[j + 1]) for j in slots])
            yield [picked[j] for j in slots], places

    def _gather(self, state: BankState, group: list[int]) -> CounterState:
        """The joined state of counters at one clock; they have equally many rows in use."""
        own = {"t": state["t"][group[:1]]}
        for name, array in state.items():
            if name == "t" or name.startswith("rows/"):
                continue
            rows = f"rows/{name}"
            used = array[: int(state[rows][group[0]])] if rows in state else array
            own[name] = np.concatenate([used[..., self.part(i)] for i in group], axis=-1)
        return own

    def _scatter(self, state: BankState, group: list[int], own: CounterState) -> None:
        state["t"][group] = own["t"][0]
        ends = np.cumsum([self.widths[i] for i in group])
        for name, joined in own.items():
            if name == "t":
                continue
            if f"rows/{name}" in state:
                state[f"rows/{name}"][group] = joined.shape[0]
                missing = joined.shape[0] - state[name].shape[0]
                if missing > 0:
                    padding = ((0, missing), *(((0, 0),) * (joined.ndim - 1)))
                    state[name] = np.pad(state[name], padding)
            target = state[name][: joined.shape[0]] if joined.ndim > 1 else state[name]
            for i, end in zip(group, ends, strict=True):
                target[..., self.part(i)] = joined[..., end - self.widths[i] : end]
