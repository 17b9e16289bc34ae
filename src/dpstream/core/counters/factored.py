"""Counters in two halves: integers leave the private side, and decoding them is post-processing.

At each tick ``measure`` gives whole numbers that are an exact linear function of increments and noise;
they are all that leaves the private side. ``decode`` makes the estimate of them with public
arrays only, in floating point where it helps. The guarantee is one of the integers: it does not depend on
how exactly anything is computed afterwards.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import (
    MAX_WIDTH,
    CalibratedCounter,
    CounterState,
    check_count,
    check_increment,
    check_size,
)

if TYPE_CHECKING:
    from dpstream.core.privacy.randomness import Randomness


class FactoredCounter(CalibratedCounter):
    """A counter that measures in integers and decodes in public.

    Guarantee: that of the integers which ``measure`` gives, all ticks together. They are ``A z + L n`` with integer
    matrices and fresh integer noise ``n`` of scales that are fixed beforehand; wherever ``L s = -A d`` has an
    integer solution ``s`` for each change ``d``, the cost of that shift of the noise bounds the loss
    (``docs/theory/counters.md``), for adaptively chosen increments too. ``decode`` sees nothing else.

    State: int64 arrays whose last axis is the cells, besides "t". Those named by ``public_arrays`` hold nothing
    but functions of what was measured; floats are kept in them bit by bit (``as_integers``).

    A subclass gives ``public_arrays``, ``measure``, ``decode``, and the rest of ``CalibratedCounter``.
    ``variance(t)`` is that of the estimate before it is rounded to a whole number; rounding adds about 1/12, and never
    more than 1/2 to the standard deviation.
    """

    @property
    @abstractmethod
    def public_arrays(self) -> frozenset[str]:
        """Names of the arrays that ``decode`` reads and changes."""

    @abstractmethod
    def measure(
        self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """The private half of a tick: int64 of shape (m, width), ``m`` depending on the tick only.

        Checks first (``begin_tick``), then changes "t" and private arrays and draws. Errors: as ``step``.
        """

    @abstractmethod
    def decode(self, state: CounterState, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """The public half: int64 of shape (width,). Reads "t" and changes public arrays, and needs no others."""

    def step(
        self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """See ``CalibratedCounter.step``."""
        coordinates = self.measure(state, increment, randomness)
        public = {name: state[name] for name in self.public_arrays | {"t"}}
        estimate = self.decode(public, coordinates)
        state.update(public)
        return estimate

    def begin_tick(self, state: CounterState, increment: NDArray[np.int64]) -> int:
        """All checks of a tick; its number. Nothing is changed."""
        check_increment(increment, self._width(state))
        check_size(increment, self.name)
        t = int(state["t"][0]) + 1
        self.check_tick(t)
        return t

    def check_state(self, state: Mapping[str, NDArray[np.int64]], width: int) -> None:
        """See ``CalibratedCounter.check_state``; by the shapes of ``shapes``."""
        t = self.check_arrays(state, {"t", *self.shapes(0, width)})
        if any(state[name].shape != shape for name, shape in self.shapes(t, width).items()):
            raise self.damaged("an array has the wrong shape")

    @abstractmethod
    def shapes(self, t: int, width: int) -> dict[str, tuple[int, ...]]:
        """Shape of each array but "t" after ``t`` ticks."""

    def init(self, width: int) -> CounterState:
        """See ``CalibratedCounter.init``: zeros."""
        width = check_count(width, what="the number of cells", least=1, most=MAX_WIDTH)
        arrays = {name: np.zeros(shape, np.int64) for name, shape in self.shapes(0, width).items()}
        return {"t": np.zeros(1, np.int64), **arrays}

    @staticmethod
    def _width(state: CounterState) -> int:
        return int(next(array.shape[-1] for name, array in state.items() if name != "t"))


def as_floats(array: NDArray[np.int64]) -> NDArray[np.float64]:
    """A view of the floats that ``as_integers`` put away (the same memory)."""
    return array.view(np.float64)


def as_integers(array: NDArray[np.float64]) -> NDArray[np.int64]:
    """The same bits as int64: how a state keeps floats, so that a copy continues exactly."""
    return np.ascontiguousarray(array).view(np.int64)
