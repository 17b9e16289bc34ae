"""Counters by their names in configuration files, and the one with the smallest predicted error.

Everything here is public: no data, no randomness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from dpstream.core.counters.counter import MAX_TICKS, CalibratedCounter, Counter, ShapedCounter, check_count
from dpstream.core.counters.forest import OptimalEpochsCounter, OptimalTreeCounter
from dpstream.core.counters.intervals import (
    BlockCounter,
    HybridCounter,
    SimpleCounter,
    TreeCounter,
    UnboundedBlockCounter,
)
from dpstream.core.counters.toeplitz import CONSTANTS, BLTCounter, ToeplitzCounter
from dpstream.core.errors import BudgetError, ConfigError, HorizonError, LimitError
from dpstream.core.privacy import Budget, Event

_INTERVALS = ("simple", "block", "unbounded-block", "unbounded-block-closed", "tree", "hybrid")
#: Counters that take a pure budget; noise drawn ahead is for these only.
PURE_COUNTER_NAMES = (*_INTERVALS, "optimal-tree", "optimal-epochs")
#: Counters that take a zCDP budget.
ZCDP_COUNTER_NAMES = (*_INTERVALS, "toeplitz", "blt")
#: All of them.
COUNTER_NAMES = tuple(dict.fromkeys(PURE_COUNTER_NAMES + ZCDP_COUNTER_NAMES))
#: Those without a horizon, and those that need one.
_UNBOUNDED: Mapping[str, Counter] = {
    "simple": SimpleCounter(),
    "unbounded-block": UnboundedBlockCounter(),
    "unbounded-block-closed": UnboundedBlockCounter(close_partitions=True),
    "hybrid": HybridCounter(),
    "optimal-epochs": OptimalEpochsCounter(),
}
_BOUNDED: Mapping[str, Callable[[int], Counter]] = {
    "block": BlockCounter,
    "tree": TreeCounter,
    "optimal-tree": OptimalTreeCounter,
    "toeplitz": ToeplitzCounter,
}


def counter_by_name(name: str, *, horizon: int | None = None, expected_ticks: int | None = None) -> Counter:
    """The counter of that name.

    Args:
        name: one of ``COUNTER_NAMES``.
        horizon: the number of ticks; needed by "block", "tree", "optimal-tree" and "toeplitz", used by "blt".
        expected_ticks: for how many "blt" is best: the horizon by default, else 10,000.

    Errors:
        ConfigError: unknown name, a missing or unusable horizon.

    >>> counter_by_name("tree", horizon=8).describe()
    'binary tree counter: 4 levels, horizon 8'
    """
    if name == "blt":
        expected = expected_ticks or horizon or BLTCounter.ticks
        # The smallest number of ticks with constants that is as large; else the largest.
        best_for = min((ticks for ticks in CONSTANTS if ticks >= expected), default=max(CONSTANTS))
        return BLTCounter(best_for, horizon if (horizon or 0) <= BLTCounter.most_ticks else None)
    if name in _UNBOUNDED:
        return _UNBOUNDED[name]
    if name not in _BOUNDED:
        raise ConfigError(f"unknown counter {name!r}", where="counter", allowed=", ".join(COUNTER_NAMES))
    if horizon is None:
        raise ConfigError(
            f"counter {name!r} needs a horizon",
            where="horizon",
            allowed=f"a number of steps, or a counter without horizon: {', '.join((*_UNBOUNDED, 'blt'))}",
        )
    return _BOUNDED[name](horizon)


#: Ticks that are expected where neither a number nor a horizon is given: a year of working days, five of weeks.
EXPECTED_TICKS = 250
#: State that a chosen counter may need by default.
MAX_BYTES = 2**30

#: Up to so many ticks the mean is over all of them, beyond over so many.
_SAMPLES = 1024
_GOLDEN = (math.sqrt(5) - 1) / 2
#: A counter that is later in the list of names has to be better by this part: closer figures decide nothing.
_MARGIN = 0.01


@dataclass(frozen=True)
class Candidate:
    """One counter under consideration.

    Attributes:
        name: as in configuration files.
        deviation: root mean square, over the expected ticks, of the standard deviation of a cell's running sum; None
            where the counter was not considered.
        last: the same at the last expected tick.
        state_bytes: size of its state by then.
        why_not: why it was not considered; empty where it was.
    """

    name: str
    deviation: float | None
    last: float | None
    state_bytes: int | None
    why_not: str = ""


@dataclass(frozen=True)
class Choice:
    """What ``best`` chose, and what it compared.

    Attributes:
        recipe: the counter.
        ticks: the expected ticks.
        candidates: all counters by name: those compared first, by rising error.
    """

    recipe: Counter
    ticks: int
    candidates: tuple[Candidate, ...]

    @property
    def name(self) -> str:
        """The chosen counter's name."""
        return self.recipe.name

    @property
    def deviation(self) -> float:
        """Its predicted error."""
        return next(one.deviation for one in self.candidates if one.name == self.name and one.deviation)


def best(
    budget: Budget,
    unit: Event | None = None,
    *,
    horizon: int | None = None,
    expected_ticks: int | None = None,
    width: int = 1,
    max_bytes: int = MAX_BYTES,
) -> Choice:
    """The counter by name whose running sums have the smallest predicted error.

    A formula decides, so choosing costs no budget. A later version may choose otherwise.

    Args:
        budget, unit: what all outputs together may cost, and for whom. horizon: the largest number of ticks.
        expected_ticks: ticks of the mean error; by default the horizon, else 250. width: cells.
        max_bytes: counters whose state would be larger are not considered.

    Errors:
        ConfigError: not a number of ticks or cells. LimitError: every counter is too large.

    >>> from dpstream.core.privacy import PureDP
    >>> best(PureDP.of(1), expected_ticks=8).name
    'simple'
    """
    most = check_count(horizon, what="the horizon", least=1, most=MAX_TICKS) if horizon is not None else None
    ticks = (most or EXPECTED_TICKS) if expected_ticks is None else expected_ticks
    ticks = check_count(ticks, what="the expected ticks", least=1, most=MAX_TICKS)
    if most is not None and ticks > most:
        raise ConfigError(
            f"expected {ticks} ticks, and the counter's horizon is {most}",
            where="expected_ticks",
            allowed="up to the horizon",
        )
    width = check_count(width, what="number of cells", least=1, most=2**31)
    return _compared(budget, unit or Event(), most, ticks, width, max_bytes)


@lru_cache(maxsize=256)
def _compared(
    budget: Budget, unit: Event, horizon: int | None, ticks: int, width: int, max_bytes: int
) -> Choice:
    def recipe(name: str) -> Counter:
        return counter_by_name(name, horizon=horizon, expected_ticks=ticks)

    def candidate(name: str) -> Candidate:
        try:
            counter = recipe(name).calibrate(budget, unit)
            deviation, last = rms_deviation(counter, ticks), math.sqrt(counter.variance(ticks))
        except BudgetError:
            return Candidate(name, None, None, None, "for another kind of budget")
        except LimitError:
            return Candidate(name, None, None, None, "noise beyond 64-bit sums")
        except (ConfigError, HorizonError):
            why = "needs a horizon" if horizon is None else "not for this horizon"
            return Candidate(name, None, None, None, why)
        # An upper bound on the state after so many ticks; 0 for a counter that does not tell.
        shapes = counter.shapes(ticks, width).values() if isinstance(counter, ShapedCounter) else ()
        size = 8 * sum(math.prod(shape) for shape in shapes)
        if size > max_bytes:
            return Candidate(name, None, None, size, f"its state would take {size / 1e6:.0f} MB")
        return Candidate(name, deviation, last, size)

    candidates = [candidate(name) for name in COUNTER_NAMES]
    chosen = None
    for one in candidates:
        if one.deviation is None:
            continue
        if chosen is None or one.deviation < (1 - _MARGIN) * (chosen.deviation or math.inf):
            chosen = one
    if chosen is None:
        raise LimitError(
            "no usable counter: " + "; ".join(f"{one.name}: {one.why_not}" for one in candidates),
            where="counter",
        )
    ordered = sorted(candidates, key=lambda one: math.inf if one.deviation is None else one.deviation)
    return Choice(recipe(chosen.name), ticks, tuple(ordered))


def rms_deviation(counter: CalibratedCounter, ticks: int) -> float:
    """Root mean square of the standard deviation of a cell's running sum over the ticks ``1 .. ticks``.

    Over all of them up to 1,024; beyond, over 1,024 ticks that are spread evenly, but off any power of two.
    """
    chosen = _spread(ticks)
    return math.sqrt(math.fsum(counter.variance(t) for t in chosen) / len(chosen))


def _spread(ticks: int) -> list[int]:
    """One tick in each of 1,024 equal parts, at a place that runs through the part evenly.

    >>> _spread(3), len(set(_spread(10**6))), max(_spread(1025)) <= 1025
    ([1, 2, 3], 1024, True)
    """
    if ticks <= _SAMPLES:
        return list(range(1, ticks + 1))
    places = (part + part * _GOLDEN % 1.0 for part in range(_SAMPLES))
    return [1 + int(place * ticks / _SAMPLES) for place in places]
