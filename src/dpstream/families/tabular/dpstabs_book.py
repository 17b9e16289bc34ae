"""What is public of a DP-STabS stream's memory, and what public noise scales say about its errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import UNPACKED
from dpstream.core.counters import CalibratedCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.graphical import Measurement, Model

#: Measurements up to which the total's error is predicted where it is followed one by one (about a second).
MAX_PREDICTED = 100_000
_MOMENTS = 3


@dataclass
class TotalNoise:
    """Variance of the noise in the sum of all estimated arrivals of one side: public bookkeeping.

    At its tick ``s`` counter ``i`` gains ``e(s) - e(s-1)`` of noise, which enters the arrivals with the
    public weight ``w(s)``. An interval counter's gain is its new noise less that of the intervals which the
    new one swallows, so a draw that came with weight ``w`` and is swallowed at weight ``w'`` is left with
    ``w - w'``. Exact for given weights: draws are independent. (Weights follow from which marginals were
    selected, which earlier noise may have influenced; that influence is not in it.)

    Attributes:
        settled: variance of what nothing will swallow any more.
        open: per counter and level, the sums of ``v``, ``v w`` and ``v w^2`` over its open draws of variance
            ``v``; shape (counters, levels seen so far, 3).

    Reference for the intervals: ``dpstream.core.counters.intervals``. Cost: a few operations per measurement.
    """

    counter: CalibratedIntervalCounter = field(metadata=UNPACKED)
    sizes: NDArray[np.int64] = field(metadata=UNPACKED)
    settled: float = 0.0
    open: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, _MOMENTS)))

    @classmethod
    def fresh(cls, counter: CalibratedCounter, sizes: NDArray[np.int64]) -> TotalNoise | None:
        """The bookkeeping before the first step; None for a counter whose noise is not known draw by draw."""
        if not isinstance(counter, CalibratedIntervalCounter):
            return None
        return cls(counter, sizes, 0.0, np.zeros((len(sizes), 0, _MOMENTS)))

    @property
    def variance(self) -> float:
        """The variance of the sum of all arrivals so far."""
        return self.settled + float(self.sizes @ self.open[:, :, 2].sum(axis=1))

    def add(self, measured: Sequence[tuple[int, int, float]]) -> None:
        """Take in one step: (counter, its tick, weight of the sum of its cells in this step's arrivals)."""
        for index, tick, weight in measured:
            level, share = self.counter.recipe.interval(tick)
            variance = self.counter.noise(share).variance
            own = self.open[index]
            swallowed = own if level is None else own[:level]
            moments = swallowed.sum(axis=0)
            left = moments[2] - 2.0 * weight * moments[1] + weight**2 * moments[0]
            self.settled += float(self.sizes[index]) * max(left, 0.0)
            swallowed[:] = 0.0
            if level is None:
                self.settled += float(self.sizes[index]) * weight**2 * variance
                continue
            if level >= self.open.shape[1]:
                grown = np.zeros((len(self.sizes), level + 1, _MOMENTS))
                grown[:, : self.open.shape[1]] = self.open
                self.open = grown
            self.open[index, level] += variance * np.array([1.0, weight, weight**2])


def arrival_weights(increments: Sequence[Measurement]) -> list[float]:
    """The weights with which ``estimate_total`` takes the sums of the measured marginals."""
    return _shares([m.variance * len(m.values) for m in increments])


def total_in_turns(
    counter: CalibratedCounter,
    sizes: NDArray[np.int64],
    rounds: int,
    steps: Sequence[int],
    gain_variance: Callable[[int], float],
    fits: Callable[[Sequence[int]], bool],
) -> dict[int, float]:
    """Variance of one side's noisy total at some steps, if at every step the next ``rounds`` marginals are measured.

    Which ones a stream will measure follows from its data; taking turns is the neutral guess. Exact where all are
    measured at every step: the weights never change then, and the sum of a counter's gains is its output. Elsewhere
    followed step by step, up to ``MAX_PREDICTED`` measurements; later steps are missing in the result. Nothing is
    predicted where marginals of one turn do not fit into one model: how early such a step ends follows from the data.
    """
    count = len(sizes)
    turns_taken = range(count // math.gcd(count, rounds))
    if not all(fits([(turn * rounds + j) % count for j in range(rounds)]) for turn in turns_taken):
        return {}
    if rounds == count:
        precision = float((1.0 / sizes).sum())
        return {step: counter.variance(step) / precision for step in steps}
    noise = TotalNoise.fresh(counter, sizes)
    if noise is None:
        return {}
    variances = {}
    last = max((step for step in steps if step * rounds <= MAX_PREDICTED), default=0)
    for step in range(1, last + 1):
        turns = [divmod((step - 1) * rounds + j, count) for j in range(rounds)]
        weights = _shares([gain_variance(done + 1) * int(sizes[i]) for done, i in turns])
        noise.add([(i, done + 1, weight) for (done, i), weight in zip(turns, weights, strict=True)])
        if step in steps:
            variances[step] = noise.variance
    return variances


def _shares(variances: Sequence[float]) -> list[float]:
    """The weights of an inverse-variance mean."""
    precisions = [1.0 / variance for variance in variances]
    whole = math.fsum(precisions)
    return [precision / whole for precision in precisions]


@dataclass
class PublicSide:
    """What is remembered of one kind of events: all of them, or the inserts, or the deletes.

    Attributes:
        total: noisy number of these events so far.
        rate: smoothed noisy number per step, the prediction for the next one.
        ticks: the invocations of each workload's counter (C_i).
        estimates: the counters' last outputs, all cells.
        remainder: what is booked for the steps at which a workload was not measured (r_i), all cells.
        batch: the model of recent batches; only its distribution matters.
        noise: what is known of the noise in ``total``; None for a counter that does not tell.
    """

    total: float
    rate: float
    ticks: NDArray[np.int64]
    estimates: NDArray[np.int64]
    remainder: NDArray[np.float64]
    batch: Model
    noise: TotalNoise | None

    @property
    def booked(self) -> NDArray[np.float64]:
        """``m_i = C_i + r_i`` of every workload, all cells."""
        return self.estimates + self.remainder


@dataclass
class DPStabsBook:
    """What is public of all that DP-STabS remembers.

    Attributes:
        step: steps done.
        sides: one, or with ``deletions`` two: inserts and deletes.
        models: the models whose equal mixture is the current release (g_t).
        marginals: the release's marginals, all cells (used by the literal reading).
        kept: workloads in the table's model (used by the predicted reading).
        rebuild_at: the step at which ``kept`` is chosen anew.
        with_base: whether the stream began with another one's table, so that counters hold only what came since.
        base_variance: of that table's number of records; None where it is not known.
    """

    step: int
    sides: tuple[PublicSide, ...]
    models: tuple[Model, ...]
    marginals: NDArray[np.float64]
    kept: list[int]
    rebuild_at: int
    with_base: bool = False
    base_variance: float | None = 0.0

    @property
    def total(self) -> float:
        """Noisy number of records: what came less what went."""
        return self.sides[0].total - sum(side.total for side in self.sides[1:])

    @property
    def passed(self) -> tuple[float, float] | None:
        """Noisy numbers of what came and what went; None where they are not followed apart."""
        return (self.sides[0].total, self.sides[1].total) if len(self.sides) == 2 else None

    @property
    def estimates(self) -> NDArray[np.int64]:
        """The counters' last outputs, all cells: of the inserts less of the deletes."""
        return np.asarray(np.subtract.reduce([side.estimates for side in self.sides]))

    @property
    def booked(self) -> NDArray[np.float64]:
        """``m_i`` of the table, all cells: of the inserts less of the deletes."""
        return np.asarray(np.subtract.reduce([side.booked for side in self.sides]))
