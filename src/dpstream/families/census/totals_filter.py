"""How many records are present: what censuses and counts of departures say of each level. Public post-processing.

Each level has a number of records (with a variance) and a hazard: the rate at which a record leaves. Between counts
records are expected to leave at the level's hazard; a noisy count of departures corrects both, with the covariance of
number and hazard. Newcomers' rate is followed by a filter of its own, whose drift is chosen by likelihood.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

#: Variance of a hazard's logarithm at the start.
_UNSURE = 0.3
#: What a hazard's logarithm drifts while a record is expected to leave once.
_HAZARD_DRIFT = 0.02
#: Departures differ from what hazards say by about this part: records of one age do not leave independently.
_CLUMPED = 0.3
#: Departures, or records that a census finds, so many standard deviations from what is expected are a burst: a reload,
#: a clearance, an export that was not whole.
_BURST = 3.0
#: A hazard changes by this factor at most at one count.
_MAX_MOVE = math.log(3.0)
#: Newcomers since the last census are expected to within this part: beside records of lower levels; alone.
_RATE_UNSURE, _RATE_UNSURE_ALONE = 0.25, 0.15
#: Standard deviation of the rate that is guessed from the turnover, in parts of it.
_GUESS = 2.0
#: How far the rate may drift in a step: variances, in parts of the rate.
DRIFTS: NDArray[np.float64] = np.concatenate(([0.0], 10.0 ** np.arange(-4.0, 0.5, 0.5)))


@dataclass
class LevelTotal:
    """One level's records.

    Attributes:
        size: how many are present, with its ``variance``.
        log_hazard: logarithm of the rate at which one leaves in a step, with its ``log_variance``.
        covariance: of number and logarithm.
        counted: what its censuses counted less the counted departures since it was last emptied, without any model;
            and the variance of the noise in that, ``counted_variance``.
    """

    size: float
    variance: float
    log_hazard: float
    log_variance: float
    covariance: float
    counted: float = 0.0
    counted_variance: float = 0.0

    @classmethod
    def fresh(cls, turnover: float) -> LevelTotal:
        """No records, which leave after ``turnover`` steps on average."""
        return cls(0.0, 0.0, -math.log(turnover), _UNSURE, 0.0)

    def staying(self, steps: float) -> float:
        """The part that is still present after so many steps."""
        return math.exp(-self.exposure(steps))

    def exposure(self, steps: float) -> float:
        """Hazard times steps."""
        return math.exp(self.log_hazard) * steps

    def count(self, steps: int, found: float, noise_variance: float) -> float:
        """Take in a count of the records that left in so many steps; gives the part that stays."""
        self.counted -= found
        self.counted_variance += noise_variance
        rate = self.exposure(steps)
        stays = math.exp(-rate)
        expected, slope = self.size * (1.0 - stays), self.size * rate * stays
        self.log_variance += _HAZARD_DRIFT * min(rate, 1.0)
        own = self.size * stays * (1.0 - stays) + (_CLUMPED * expected) ** 2
        # Covariances of the departures with the number before, and with the logarithm.
        with_size = (1.0 - stays) * self.variance + slope * self.covariance
        with_log = slope * self.log_variance + (1.0 - stays) * self.covariance
        spread = slope * with_log + own + (1.0 - stays) * with_size
        seen = spread + noise_variance
        if seen <= 0.0:
            return 1.0  # nobody is there, and nobody can have left
        surprise = found - expected
        burst = surprise**2 > _BURST**2 * seen
        if burst:
            # Nothing that is expected explains it: the count is believed up to its noise, and not the hazard.
            spread, seen = spread + surprise**2 - seen, surprise**2
        gain = spread / seen
        left = min(max(expected + gain * surprise, 0.0), self.size) if noise_variance else found
        move = min(max(with_log / seen * surprise, -_MAX_MOVE), _MAX_MOVE)
        self.log_hazard += move
        missed = 1.0 - gain
        self.variance = max(self.variance - 2.0 * missed * with_size + spread * noise_variance / seen, 0.0)
        self.covariance -= with_log / seen * with_size + missed * with_log
        self.log_variance -= with_log**2 / seen
        if burst and slope > 0.0:
            # Or the hazard was wrong before: then the next count sets it.
            self.log_variance += min(abs(surprise) / slope, _MAX_MOVE) ** 2
        kept = 1.0 - left / self.size if self.size > 0.0 else 0.0
        self.size -= left
        return kept

    def add(self, number: tuple[float, float], counted: tuple[float, float]) -> None:
        """Take in the records of a census: their number as it is believed, and as it was counted; with variances."""
        self.size += number[0]
        self.variance += number[1]
        self.counted += counted[0]
        self.counted_variance += counted[1]

    def empty(self) -> None:
        """Another level's census has counted these records."""
        self.size = self.variance = self.covariance = self.counted = self.counted_variance = 0.0

    def take_counted(self) -> float:
        """Believe the counted number; gives what the records' number is multiplied by."""
        size = max(self.counted, 0.0)
        factor = size / self.size if self.size > 0.0 else 1.0
        if self.size > 0.0:
            self.size, self.variance, self.covariance = size, self.counted_variance, 0.0
        return factor

    def predicted(self, steps: int) -> tuple[float, float]:
        """How many are present so many steps after the last count, and the variance of that."""
        rate = self.exposure(steps)
        stays = math.exp(-rate)
        slope = self.size * rate * stays
        variance = self.variance * stays**2 - 2.0 * stays * slope * self.covariance
        variance += slope**2 * (self.log_variance + _HAZARD_DRIFT * min(rate, 1.0))
        variance += self.size * stays * (1.0 - stays) + (_CLUMPED * self.size * (1.0 - stays)) ** 2
        return self.size * stays, max(variance, 0.0)


def expected_stay(hazard: float, steps: int) -> float:
    """Steps that a newcomer of the last so many steps is expected to have stayed, all of them together."""
    return -math.expm1(-hazard * steps) / hazard


def blend(measured: tuple[float, float], predicted: tuple[float, float]) -> tuple[float, float]:
    """Two values with their variances, by precision; one without variance is taken as it is."""
    if measured[1] <= 0.0 or not math.isfinite(predicted[1]):
        return measured
    part = predicted[1] / (predicted[1] + measured[1])
    return part * measured[0] + (1.0 - part) * predicted[0], part * measured[1]


def is_jump(measured: tuple[float, float], predicted: tuple[float, float]) -> bool:
    """Whether a value is so far from what was predicted that the prediction says nothing of it; both with variances."""
    return (measured[0] - predicted[0]) ** 2 > _BURST**2 * (measured[1] + predicted[1])


@dataclass
class NewcomersRate:
    """How many records come in a step.

    Attributes:
        rates, variances: for each drift of ``DRIFTS``; empty before anything was measured.
        fits: logarithms of the drifts' likelihoods.
    """

    rates: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    variances: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    fits: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    @property
    def rate(self) -> float | None:
        """Records a step; None: not known yet."""
        return float(self.rates[self._best]) if len(self.rates) else None

    @property
    def _best(self) -> int:
        return int(self.fits.argmax())

    def guess(self, rate: float) -> None:
        """Begin with a guess that may be far off."""
        self.rates, self.variances = np.full(len(DRIFTS), rate), np.full(len(DRIFTS), (_GUESS * rate) ** 2)
        self.fits = np.zeros(len(DRIFTS))

    def present(self, hazard: float, steps: int, *, alone: bool = False) -> tuple[float, float]:
        """Newcomers of the last so many steps that are present, and the variance of that; (0, inf): not known.

        Args:
            alone: whether no records of lower levels are counted with them.
        """
        if not len(self.rates):
            return 0.0, math.inf
        stay, rate = expected_stay(hazard, steps), max(float(self.rates[self._best]), 0.0)
        variance = float(self.variances[self._best] + DRIFTS[self._best] * rate**2 * steps)
        unsure = _RATE_UNSURE_ALONE if alone else _RATE_UNSURE
        number = rate * stay
        return number, number + (unsure * number) ** 2 + variance * stay**2

    def add(self, number: tuple[float, float], hazard: float, steps: int, *, burst: bool = False) -> None:
        """Take in a census of the newcomers of the last so many steps: their number, and the variance of its noise.

        Args:
            burst: whether far more came than expected: the rate then stays, and this adds the squared surprise to
                its variance: the next census says whether so many go on coming.
        """
        stay = expected_stay(hazard, steps)
        found = number[0] / stay
        expected = np.maximum(self.rates, 1.0 / stay)
        before = self.variances + DRIFTS * expected**2 * steps
        seen = before + (number[1] + expected * stay) / stay**2
        surprise = found - self.rates
        if burst:
            self.variances = before + surprise**2
            return
        self.fits = self.fits - 0.5 * (np.log(seen) + surprise**2 / seen)
        self.fits -= self.fits.max()
        self.rates = self.rates + before / seen * surprise
        self.variances = before * (1.0 - before / seen)
