"""The exact audit of the sparse counter, which is not linear and has no certificate.

The releases of a cell depend on the noise of its segment's threshold and on that of each test. The running code shows
which pairs of them say yes at which count: all pairs are cells of one step. It also shows whether a new threshold noise
is drawn after a no and after a yes. This gives the probability of every pattern of releases, for all tiny streams and
their neighbours. The certificate of the counter of segments is added.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.checks import NoiseTape, certify
from dpstream.core.counters import CounterState, SimpleCounter, SparseCounter
from dpstream.core.counters.sparse_counter import CalibratedSparseCounter
from dpstream.core.privacy import DiscreteLaplace, Event, Noise, PureDP, Randomness
from dpstream.lab.audits.finding import AuditFinding, AuditProgress, Largest

_TICKS = 3
#: The increments of the tiny streams.
_VALUES = (0, 1, 3)
#: Noise beyond so many scales is left out on both inputs, a part of ``exp(-45)``.
_REACH = 45

Stream = tuple[int, ...]


def audit_sparse(progress: AuditProgress) -> Iterator[AuditFinding]:
    """The sparse counter at two budgets and thresholds, then three broken ones."""
    progress("sparse counter, all noise")
    low = SparseCounter(_TICKS + 1, SimpleCounter(), Fraction(1, 2))
    for epsilon in (1, 3):
        counter = low.calibrate(PureDP.of(epsilon), Event())
        for threshold in (-6, counter.threshold):
            subject = f"counter sparse, epsilon {epsilon}, threshold {threshold}"
            yield exact_sparse(replace(counter, threshold=threshold), subject)
    progress("controls of the sparse counter")
    counter = replace(low.calibrate(PureDP.of(1), Event()), threshold=-6)
    quiet = replace(counter, noise=DiscreteLaplace(counter.noise.scale * Fraction(2, 3)))
    yield exact_sparse(quiet, "counter sparse with 2/3 of the tests' noise", control=True)
    for broken in (BrokenKeptNoise, BrokenFreshNoise):
        facts = (counter.recipe, counter.budget, counter.unit, counter.noise, counter.segments, 0)
        yield exact_sparse(broken(*facts), f"counter sparse, {broken.WORDS}", control=True)


def exact_sparse(counter: CalibratedSparseCounter, subject: str, *, control: bool = False) -> AuditFinding:
    """The largest log-ratio of a pattern of releases, plus the certified loss of the counter of segments."""
    began, cell = time.perf_counter(), _Cell(counter)
    worst = Largest()
    for stream in itertools.product(_VALUES, repeat=_TICKS):
        for tick in range(_TICKS):
            other = tuple(value + (place == tick) for place, value in enumerate(stream))
            loss = float(np.abs(np.log(cell.law(stream) / cell.law(other))).max())
            worst.see(loss, f"increments {stream} against {other}")
    return AuditFinding.exact(
        began,
        subject=f"{subject}, all noise",
        claimed=float(counter.budget.amount),
        found=worst.loss + certify(counter.segments, _TICKS).certified,
        control=control,
        detail=f"patterns of releases {worst.loss:.4g}, most at {worst.where}; the rest: their sums",
    )


class _Cell:
    """Computes the distribution of one cell's releases from the running code."""

    def __init__(self, counter: CalibratedSparseCounter) -> None:
        self._counter = counter
        tape = NoiseTape()
        counter.step(counter.init(1), np.zeros(1, np.int64), tape)
        (self._kept, self._weights), (self._tests, self._odds) = map(_support, tape.laws[:2])
        after_no, after_yes = (self._shift_after(yes) for yes in (False, True))
        self._renewed = (after_no != 0, after_yes != 0)
        self._known: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self._laws: dict[Stream, NDArray[np.float64]] = {}

    def law(self, stream: Stream) -> NDArray[np.float64]:
        """The probability of each pattern of no (0) and yes (1)."""
        if stream not in self._laws:
            patterns = itertools.product((0, 1), repeat=len(stream))
            self._laws[stream] = np.array([self._probability(stream, pattern) for pattern in patterns])
        return self._laws[stream]

    def _probability(self, stream: Stream, pattern: Stream) -> float:
        alive, pending, total = self._weights, 0, 1.0
        for arrived, ended in zip(stream, pattern, strict=True):
            pending += arrived
            alive = alive * self._answers(pending)[ended]
            if self._renewed[ended]:
                total, alive = total * float(alive.sum()), self._weights
            pending = 0 if ended else pending
        return total * float(alive.sum())

    def _answers(self, pending: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For each noise of the threshold, the probabilities of no and of yes when so many records are pending."""
        if pending not in self._known:
            shifts, tests = (grid.ravel() for grid in np.meshgrid(self._kept, self._tests, indexing="ij"))
            state = self._counter.init(len(shifts))
            increment = np.full(len(shifts), pending)
            self._counter.step(state, increment, NoiseTape(np.concatenate([shifts, tests])))
            ended = (state["inner/t"] > 0).reshape(len(self._kept), len(self._tests))
            # Not one minus the other, which would lose the digits of a small probability.
            self._known[pending] = (~ended @ self._odds, ended @ self._odds)
        return self._known[pending]

    def _shift_after(self, yes: bool) -> int:
        """The threshold's noise after a test, where the first draw gives 0 and draws after the test give 7."""
        state = self._counter.init(1)
        test = (1 if yes else -1) * 10**6
        self._counter.step(state, np.zeros(1, np.int64), NoiseTape(np.array([0, test, *[7] * 9])))
        return int(state["shift"][0])


def _support(law: Noise) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    assert isinstance(law, DiscreteLaplace)
    reach = math.ceil(_REACH * law.scale)
    values = np.arange(-reach, reach + 1, dtype=np.int64)
    return values, np.asarray(law.pmf(values), dtype=np.float64)


class BrokenKeptNoise(CalibratedSparseCounter):
    """BROKEN: one threshold noise for all segments."""

    WORDS = "one threshold noise for all segments"

    def step(
        self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """The honest step, but with the threshold noise of the first segment."""
        first, kept = not state["t"][0], state["shift"].copy()
        recorded = _Recorded(randomness)
        estimate = super().step(state, increment, recorded)
        assert recorded.first is not None
        state["shift"][:] = recorded.first if first else kept
        return estimate


class BrokenFreshNoise(CalibratedSparseCounter):
    """BROKEN: new threshold noise for each test."""

    WORDS = "fresh threshold noise at each test"

    def step(
        self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """The honest step, and then new threshold noise."""
        estimate = super().step(state, increment, randomness)
        state["shift"][:] = randomness.draw(self.noise, len(increment))
        return estimate


class _Recorded(Randomness):
    """Keeps the first draw."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(bytes)
        self._inner = inner
        self.first: NDArray[np.int64] | None = None

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """Draw from ``inner``; keep the first values."""
        drawn = self._inner.draw(noise, size)
        self.first = drawn.copy() if self.first is None else self.first
        return drawn
