"""The counter with the smallest predicted error. Everything here is public: no data, no randomness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from dpstream.core.counters.counter import MAX_TICKS, CalibratedCounter, Counter, check_count
from dpstream.core.counters.factored import FactoredCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.counters.names import COUNTER_NAMES, counter_by_name
from dpstream.core.errors import BudgetError, ConfigError, HorizonError, LimitError
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.unit import Event

#: Ticks that are expected where neither a number nor a horizon is given: a year of working days, five of weeks.
EXPECTED_TICKS = 250
#: State that a chosen counter may need by default.
MAX_BYTES = 2**30

#: Up to so many ticks the mean is over all of them, beyond over so many.
_SAMPLES = 1024
_GOLDEN = (math.sqrt(5) - 1) / 2
#: What errors are compared: of the running sums, or of what a running sum gains at one tick.
Judged = Literal["sums", "gains"]

#: A counter that is later in the list of names has to be better by this part: figures closer than that are no reason.
_MARGIN = 0.01


@dataclass(frozen=True)
class Candidate:
    """One counter under consideration.

    Attributes:
        name: as in configuration files.
        deviation: root mean square, over the expected ticks, of the standard deviation of a cell's running sum (or of
            its gain at a tick); None where the counter was not considered.
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
        judged: what was compared.
        candidates: all counters by name: those compared first, by rising error.
    """

    recipe: Counter
    ticks: int
    judged: Judged
    candidates: tuple[Candidate, ...]

    @property
    def name(self) -> str:
        """The chosen counter's name."""
        return self.recipe.name

    @property
    def deviation(self) -> float:
        """Its predicted error."""
        return next(one.deviation for one in self.candidates if one.name == self.name and one.deviation)

    def __str__(self) -> str:
        """In words."""
        compared = [one for one in self.candidates if one.deviation is not None and one.name != self.name]
        others = "; ".join(f"{one.name} {one.deviation:.4g}" for one in compared) or "none"
        left_out = "; ".join(f"{one.name}: {one.why_not}" for one in self.candidates if one.why_not)
        what = "a running sum" if self.judged == "sums" else "what a running sum gains at a tick"
        return (
            f"{self.name}: over {self.ticks} expected ticks {what} has a predicted standard deviation of "
            f"{self.deviation:.4g} (root mean square). Others: {others}."
            + (f" Not considered: {left_out}." if left_out else "")
        )


def best(
    budget: Budget,
    unit: Event | None = None,
    *,
    horizon: int | None = None,
    expected_ticks: int | None = None,
    width: int = 1,
    judged: Judged = "sums",
    max_bytes: int = MAX_BYTES,
) -> Choice:
    """The counter by name whose running sums have the smallest predicted error.

    The prediction is a formula (``CalibratedCounter.variance``), so choosing costs no budget and may be done before
    any data are there. A later version may know better counters and choose otherwise: a stream that goes on should
    be given the chosen counter by its name.

    Args:
        budget: what all outputs together may cost; counters of another kind of budget are not considered.
        unit: by default one record inserted or deleted.
        horizon: the largest number of ticks; without it, counters that need one are not considered.
        expected_ticks: how many ticks the mean error is taken over; by default the horizon, else 250. Counters
            must go on after it (up to the horizon), but their errors there are not looked at.
        width: cells.
        judged: ``sums``, what a counter is for; or ``gains``, for whoever learns from single increments (the gains of
            a counter that shares noise among its sums are noisier than its sums).
        max_bytes: counters whose state would be larger are not considered.

    Cost: some hundred evaluations of formulas for each counter, remembered.

    Errors:
        ConfigError: numbers that are no numbers of ticks or cells. LimitError: no counter can be used.

    >>> from dpstream.core.privacy import PureDP
    >>> best(PureDP.of(1), expected_ticks=8).name
    'simple'
    """
    most = check_count(horizon, what="the horizon", least=1, most=MAX_TICKS) if horizon is not None else None
    ticks = (most or EXPECTED_TICKS) if expected_ticks is None else expected_ticks
    ticks = check_count(ticks, what="the number of expected ticks", least=1, most=MAX_TICKS)
    if most is not None and ticks > most:
        raise ConfigError(
            f"{ticks} ticks are expected of a counter with a horizon of {most}",
            where="expected_ticks",
            allowed="up to the horizon",
        )
    width = check_count(width, what="the number of cells", least=1, most=2**31)
    if judged not in get_args(Judged):
        raise ConfigError(f"judged = {judged!r}", where="counter", allowed=", ".join(get_args(Judged)))
    return _answer(_Question(budget, unit or Event(), most, ticks, width, judged, max_bytes))


@dataclass(frozen=True)
class _Question:
    """The checked arguments of ``best``."""

    budget: Budget
    unit: Event
    horizon: int | None
    ticks: int
    width: int
    judged: Judged
    max_bytes: int


@lru_cache(maxsize=256)
def _answer(asked: _Question) -> Choice:
    candidates = [_candidate(name, asked) for name in COUNTER_NAMES]
    chosen = None
    for one in candidates:
        if one.deviation is None:
            continue
        if chosen is None or one.deviation < (1 - _MARGIN) * (chosen.deviation or math.inf):
            chosen = one
    if chosen is None:
        raise LimitError(
            "no counter can be used: " + "; ".join(f"{one.name}: {one.why_not}" for one in candidates),
            where="counter",
        )
    ordered = sorted(candidates, key=lambda one: math.inf if one.deviation is None else one.deviation)
    return Choice(_recipe(chosen.name, asked), asked.ticks, asked.judged, tuple(ordered))


def _recipe(name: str, asked: _Question) -> Counter:
    """The recipe of that name. Without a horizon "blt" still needs a number of ticks for which it should be best."""
    hint = asked.ticks if asked.horizon is None and name == "blt" else asked.horizon
    return counter_by_name(name, horizon=hint)


def _candidate(name: str, asked: _Question) -> Candidate:
    try:
        counter = _recipe(name, asked).calibrate(asked.budget, asked.unit)
        deviation = rms_deviation(counter, asked.ticks, asked.judged)
        last = math.sqrt(_law(counter, asked.judged)(asked.ticks))
    except BudgetError:
        return Candidate(name, None, None, None, "made for another kind of budget")
    except LimitError:
        return Candidate(name, None, None, None, "its noise would not fit 64-bit sums")
    except (ConfigError, HorizonError):
        why = "needs a horizon" if asked.horizon is None else "not for this horizon"
        return Candidate(name, None, None, None, why)
    size = _state_bytes(counter, asked.ticks, asked.width)
    if size > asked.max_bytes:
        return Candidate(name, None, None, size, f"its state would take {size / 1e6:.0f} MB")
    return Candidate(name, deviation, last, size)


def rms_deviation(counter: CalibratedCounter, ticks: int, judged: Judged = "sums") -> float:
    """Root mean square of the standard deviation of a cell's running sum (or gain) over the ticks ``1 .. ticks``.

    Over all of them up to 1,024; beyond, over 1,024 ticks that are spread evenly, but off any power of two.
    """
    chosen, variance = _spread(ticks), _law(counter, judged)
    return math.sqrt(math.fsum(variance(t) for t in chosen) / len(chosen))


def _law(counter: CalibratedCounter, judged: Judged) -> Callable[[int], float]:
    return counter.variance if judged == "sums" else counter.gain_variance


def _spread(ticks: int) -> list[int]:
    """One tick in each of 1,024 equal parts, at a place that runs through the part evenly.

    >>> _spread(3), len(set(_spread(10**6))), max(_spread(1025)) <= 1025
    ([1, 2, 3], 1024, True)
    """
    if ticks <= _SAMPLES:
        return list(range(1, ticks + 1))
    places = (part + part * _GOLDEN % 1.0 for part in range(_SAMPLES))
    return [1 + int(place * ticks / _SAMPLES) for place in places]


def _state_bytes(counter: CalibratedCounter, ticks: int, width: int) -> int:
    """An upper bound on the state after so many ticks; 0 for a counter that does not tell."""
    cells = 0
    if isinstance(counter, FactoredCounter):
        cells = sum(math.prod(shape) for shape in counter.shapes(ticks, 1).values())
    elif isinstance(counter, CalibratedIntervalCounter):
        levels = counter.recipe.open_levels
        cells = 2 + min(levels, ticks.bit_length()) if levels else 1
    return 8 * cells * width
