"""What a counter is: a recipe, a calibrated counter, its state, and its matrix.

A counter takes increments ``z_1, z_2, ...`` (whole histograms, possibly negative) and gives after
each an estimate of the running sum. Its clock counts its own invocations ("ticks"): a counter that
is not invoked at a step does not notice the step.

Counters in two halves: integers leave the private side, and decoding them is post-processing.

At each tick ``measure`` gives whole numbers that are an exact linear function of increments and noise;
they are all that leaves the private side. ``decode`` makes the estimate of them with public
arrays only, in floating point where it helps. The guarantee is one of the integers: it does not depend on
how exactly anything is computed afterwards.

Trusted base: kernel (the cost of a counter).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import (
    BudgetError,
    ConfigError,
    DataError,
    HorizonError,
    LimitError,
    StoreDamagedError,
    UnitError,
)
from dpstream.core.privacy import Budget, DiscreteGaussian, DiscreteLaplace, Noise, Noisy, PureDP, Randomness
from dpstream.core.privacy.law import Law, NoiseSum, WeightedLaplace
from dpstream.core.privacy.unit import Event

#: Declared bounds. 2^28 increments of 2^32 stay below 2^60; 2^28 draws of noise stay below 2^60
#: unless one of them passes 64 times the largest scale (probability below e^-64 each). The bounds
#: are public, so that no refusal depends on a private sum.
MAX_INCREMENT = 2**32
MAX_TICKS = 2**28
MAX_NOISE_SCALE = 2**26
#: Most cells of one counter.
MAX_WIDTH = 2**31
#: Most ticks that ``materialize`` gives.
_MAX_MATRIX = 4096
#: Variance that rounding to whole numbers adds.
_ROUNDING = 1 / 12

#: Named int64 arrays, changed in place by ``step``: "t" (one element, the number of ticks so far)
#: and what the counter needs. Copying the arrays saves the state; the copy continues exactly. Release from one copy
#: only: counters that draw noise ahead would use the same noise in both, and the difference could be exact.
CounterState = dict[str, NDArray[np.int64]]


class Counter(ABC):
    """A recipe: options without data or budget. Implementations are frozen dataclasses."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in configuration files (see ``counter_by_name``)."""

    #: The largest horizon that the counter can be built for.
    most_ticks: ClassVar[int] = MAX_TICKS

    def __post_init__(self) -> None:
        """Check the horizon of a counter that has one.

        Errors:
            ConfigError: it is not a number of ticks.
        """
        if hasattr(self, "horizon") and self.horizon is not None:
            check_count(self.horizon, what="the horizon", least=1, most=self.most_ticks)

    @property
    def tick_limit(self) -> int | None:
        """The number of ticks the counter is built for (its field ``horizon``); None where there is none."""
        return getattr(self, "horizon", None)

    @abstractmethod
    def describe(self) -> str:
        """The counter in one sentence, for plans and manifests."""

    @abstractmethod
    def calibrate(self, budget: Budget, unit: Event) -> CalibratedCounter:
        """Fix every noise scale so that all outputs together cost one ``unit`` at most ``budget``.

        Errors:
            UnitError: the unit is not an event.
            LimitError: the budget is so small that the noise does not fit 64-bit sums.
        """


class CalibratedCounter(ABC):
    """A counter with its noise fixed; frozen, holds no data, may be shared by many states.

    Guarantee: the outputs of all ticks together, for increments chosen adaptively, satisfy
    ``budget`` for one ``unit``: one cell of one increment changed by 1 (``add-remove``), or one
    increment changed by +1 in one cell and -1 in another (``replace``).
    """

    recipe: Counter
    budget: Budget
    unit: Event

    def __str__(self) -> str:
        return self.describe()

    @property
    def horizon(self) -> int | None:
        """The number of ticks the counter pays for; None where it is unbounded."""
        return self.recipe.tick_limit

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.recipe.name

    @abstractmethod
    def describe(self) -> str:
        """Rule, budget and noise in words."""

    @abstractmethod
    def init(self, width: int) -> CounterState:
        """A fresh state for histograms of ``width`` cells.

        Errors:
            ConfigError: ``width`` is not a positive integer.
        """

    @abstractmethod
    def step(self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness) -> Noisy:
        """One tick: the noisy running sum after ``increment``, int64 of shape (width,).

        The state is changed in place; the result is a fresh array.

        Errors (all before anything is drawn or changed):
            DataError: not an int64 array of shape (width,).
            LimitError: a cell beyond ``MAX_INCREMENT``, or more than ``MAX_TICKS`` ticks.
            HorizonError: the horizon is used up.
        """

    @abstractmethod
    def variance(self, t: int) -> float:
        """Variance of one cell's estimate after ``t`` ticks (exact up to float rounding).

        Errors:
            HorizonError: ``t`` lies beyond the horizon. ConfigError: ``t`` is not a number of ticks.
        """

    def gain_variance(self, t: int) -> float:
        """Variance of one cell's gain at tick ``t``: its estimate after ``t`` less the one after ``t - 1``.

        Here an upper bound, for any two estimates; a counter that knows how much noise they share says less.

        Errors:
            As ``variance``.
        """
        return 2.0 * (self.variance(t) + self.variance(t - 1)) if t > 1 else self.variance(t)

    def law(self, t: int, sides: int) -> Law | None:
        """The law of one cell's noise after ``t`` ticks, on so many sides together; None where it is not known."""
        return None

    def gain_law(self, t: int) -> Law | None:
        """The law of the noise in what one cell gained at tick ``t``; None where it is not known."""
        return None

    @abstractmethod
    def materialize(self, n: int) -> LinearMap:
        """The first ``n`` ticks of one cell as matrices.

        Errors:
            HorizonError: ``n`` lies beyond the horizon. LimitError: ``n`` above 4,096.
        """

    @abstractmethod
    def check_state(self, state: Mapping[str, NDArray[np.int64]], width: int) -> None:
        """Raise StoreDamagedError unless ``state`` can be a state of this counter."""

    def check_tick(self, t: int) -> None:
        """HorizonError or LimitError unless the counter has a tick ``t``."""
        if self.horizon is not None and t > self.horizon:
            raise HorizonError(
                f"tick {t} lies beyond the horizon",
                where=f"counter {self.name}",
                allowed=f"up to {self.horizon} ticks",
            )
        if t > MAX_TICKS:
            raise LimitError(
                f"tick {t} may exceed 64-bit sums",
                where=f"counter {self.name}",
                allowed=f"up to {MAX_TICKS} ticks",
            )

    def check_ticks(self, t: int) -> int:
        """``t`` as a number of ticks that the counter can have made; errors as of ``variance``."""
        t = check_count(t, what="number of ticks", least=0, most=MAX_TICKS)
        self.check_tick(t)
        return t

    def check_matrix(self, n: int) -> int:
        """``n`` as a number of ticks that ``materialize`` can give."""
        n = check_count(n, what="number of ticks", least=1, most=MAX_TICKS)
        self.check_tick(n)
        if n > _MAX_MATRIX:
            raise LimitError(
                f"a matrix of {n} ticks is too large",
                where="materialize",
                allowed=f"up to {_MAX_MATRIX} ticks",
            )
        return n

    def damaged(self, what: str) -> StoreDamagedError:
        """The error of a state that cannot be one of this counter."""
        return StoreDamagedError(f"unusable state: {what}", where=f"counter {self.name}")


@dataclass(frozen=True)
class LinearMap:
    """A counter as a linear map on one cell: ``outputs = decoder @ (encoder @ z + noise)``.

    Attributes:
        encoder: int64 (m, n); row ``i`` says which increments are in noise coordinate ``i``.
        decoder: (n, m); row ``t - 1`` says which coordinates make the estimate after tick ``t``. int64, or float64
            where the estimate is a weighted mean of several (then before it is rounded to a whole number).
        scales: the noise of each of the ``m`` coordinates.

    ``decoder @ encoder`` is the lower triangular matrix of ones (the counter is unbiased), up to float rounding.
    """

    encoder: NDArray[np.int64]
    decoder: NDArray[np.int64] | NDArray[np.floating[Any]]
    scales: tuple[Noise, ...]

    def losses(self, unit: Event) -> tuple[Fraction, ...]:
        """Privacy loss of changing each increment, exactly: epsilon for Laplace, rho for Gaussian noise.

        Under ``replace`` two cells of the same increment change, each with its own noise, so
        the loss of one cell counts twice (epsilons add, and so do rhos).
        """
        per_unit = [_loss_of_one(noise) for noise in self.scales]
        power = 1 if isinstance(self.scales[0], DiscreteLaplace) else 2
        totals = []
        for column in self.encoder.T:
            rows = np.flatnonzero(column)
            total = sum((per_unit[i] * abs(int(column[i])) ** power for i in rows), Fraction(0))
            totals.append(total * unit.changed_cells)
        return tuple(totals)

    def loss(self, unit: Event) -> Fraction:
        """The worst of ``losses``: what the whole output costs one unit."""
        return max(self.losses(unit))

    def variances(self) -> NDArray[np.float64]:
        """Variance of the estimate after each tick, shape (n,)."""
        each = np.array([noise.variance for noise in self.scales], dtype=np.float64)
        result: NDArray[np.float64] = (self.decoder.astype(np.float64) ** 2) @ each
        return result


def _loss_of_one(noise: Noise) -> Fraction:
    if isinstance(noise, DiscreteLaplace):
        return 1 / noise.scale
    return 1 / (2 * noise.sigma_squared)


def check_count(value: object, *, what: str, least: int, most: int) -> int:
    """``value`` as an int within public limits, or ConfigError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise ConfigError(
            f"{what} is {value!r}", where="counter", allowed=f"an integer from {least} to {most}"
        )
    return int(value)


def check_event(unit: object) -> Event:
    """``unit`` if it is an event, else UnitError."""
    if not isinstance(unit, Event):
        raise UnitError(
            "a counter protects one change of one increment",
            where="unit",
            allowed="event, event-replace",
        )
    return unit


def check_budget(budget: object) -> Budget:
    """``budget`` if it is one, else BudgetError."""
    if not isinstance(budget, Budget):
        raise BudgetError(f"{budget!r}: expected a budget", where="budget", allowed="PureDP(1), ZCDP(1)")
    return budget


def check_noise(noise: Noise, budget: Budget, name: str) -> None:
    """LimitError unless sums of this noise fit 64 bits."""
    squared = noise.scale**2 if isinstance(noise, DiscreteLaplace) else noise.sigma_squared
    if squared > Fraction(MAX_NOISE_SCALE) ** 2:
        raise too_noisy(budget, name)


def too_noisy(budget: Budget, name: str) -> LimitError:
    """The refusal of a counter whose sums may leave 64 bits."""
    return LimitError(
        f"the noise of {budget} exceeds 64-bit sums",
        where=f"counter {name}",
        allowed=f"a budget with noise of scale up to {MAX_NOISE_SCALE}",
    )


class ShapedCounter(CalibratedCounter):
    """A counter whose state has arrays of shapes that the clock tells: zeros at first."""

    @abstractmethod
    def shapes(self, t: int, width: int) -> dict[str, tuple[int, ...]]:
        """Shape of each array but "t" after ``t`` ticks."""

    def init(self, width: int) -> CounterState:
        """See ``CalibratedCounter.init``: zeros."""
        width = check_count(width, what="number of cells", least=1, most=MAX_WIDTH)
        arrays = {name: np.zeros(shape, np.int64) for name, shape in self.shapes(0, width).items()}
        return {"t": np.zeros(1, np.int64), **arrays}

    def begin_tick(self, state: CounterState, increment: NDArray[np.int64]) -> int:
        """All checks of a tick; its number. Nothing is changed."""
        width = next(array.shape[-1] for name, array in state.items() if name != "t")
        if not isinstance(increment, np.ndarray) or increment.dtype != np.int64:
            raise DataError("expected an increment of 64-bit integers", where="counter")
        if increment.shape != (width,):
            raise DataError(
                f"increment of shape {increment.shape}", where="counter", allowed=f"shape ({width},)"
            )
        if increment.max() > MAX_INCREMENT or increment.min() < -MAX_INCREMENT:
            raise LimitError(
                "an increment's cell exceeds the declared bound",
                where=f"counter {self.name}",
                allowed=f"from -{MAX_INCREMENT} to {MAX_INCREMENT}",
            )
        t = int(state["t"][0]) + 1
        self.check_tick(t)
        return t

    def check_state(self, state: Mapping[str, NDArray[np.int64]], width: int) -> None:
        """See ``CalibratedCounter.check_state``; by the shapes of ``shapes``."""
        if any(not isinstance(array, np.ndarray) or array.dtype != np.int64 for array in state.values()):
            raise self.damaged("expected 64-bit arrays")
        if "t" not in state or state["t"].shape != (1,):
            raise self.damaged("clock missing")
        if set(state) != {"t", *self.shapes(0, width)}:
            raise self.damaged("arrays of another counter")
        t = int(state["t"][0])
        if not 0 <= t <= (self.horizon or MAX_TICKS):
            raise self.damaged("clock out of range")
        if any(state[name].shape != shape for name, shape in self.shapes(t, width).items()):
            raise self.damaged("wrong array shape")


class FactoredCounter(ShapedCounter):
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
    def measure(self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness) -> Noisy:
        """The private half of a tick: int64 of shape (m, width), ``m`` depending on the tick only.

        Checks first (``begin_tick``), then changes "t" and private arrays and draws. Errors: as ``step``.
        """

    @abstractmethod
    def decode(self, state: CounterState, coordinates: Noisy) -> Noisy:
        """The public half: int64 of shape (width,). Reads "t" and changes public arrays, and needs no others."""

    def step(self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness) -> Noisy:
        """See ``CalibratedCounter.step``."""
        coordinates = self.measure(state, increment, randomness)
        public = {name: state[name] for name in self.public_arrays | {"t"}}
        estimate = self.decode(public, coordinates)
        state.update(public)
        return estimate

    def law(self, t: int, sides: int) -> Law:
        """See ``CalibratedCounter.law``.

        The decoder weighs many noises by real numbers and rounds: of its error the variance is known. For zCDP its law
        is then the normal one but for parts that nobody can measure; for pure DP see ``WeightedLaplace``.
        """
        return self._decoded(self.variance(t) + _ROUNDING, sides)

    def gain_law(self, t: int) -> Law:
        """See ``CalibratedCounter.gain_law``; with a bound on the variance: the errors of both estimates may point the
        same way, and both are rounded."""
        return self._decoded(self.gain_variance(t) + 4 * _ROUNDING, 1)

    def _decoded(self, variance: float, sides: int) -> Law:
        exact = Fraction(math.ceil(variance * 2**16), 2**16)
        if isinstance(self.budget, PureDP):
            return WeightedLaplace(exact * sides)
        return NoiseSum(((DiscreteGaussian(exact), sides),))


def as_floats(array: NDArray[np.int64]) -> NDArray[np.float64]:
    """A view of the floats that ``as_integers`` put away (the same memory)."""
    return array.view(np.float64)


def as_integers(array: NDArray[np.float64]) -> NDArray[np.int64]:
    """The same bits as int64: how a state keeps floats, so that a copy continues exactly."""
    return np.ascontiguousarray(array).view(np.int64)
