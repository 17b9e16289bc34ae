"""How many records are present: what censuses and counts of departures say of each level. Public post-processing.

Each level has a bank of hazards: rates at which a record may leave, around the owner's guess and far from it. Each
hazard follows the number of records by itself, so that what a wrong one took off comes back; noisy counts of departures
correct the numbers, and say how likely each hazard is. So do the newcomers whom censuses count: under each hazard
a filter follows how many come in a step, whose drift is chosen by likelihood.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
#: A number, or one under each hazard.
_N = TypeVar("_N", float, NDArray[np.float64])

#: A mean stay that is assumed where none is declared.
LONG_STAY = 1000
#: Hazards that may be true, in parts of the guessed one, and the logarithms of these.
_FACTORS: _Floats = 10.0 ** (np.arange(-16, 17) / 6.0)
_LOGARITHMS: _Floats = np.log(_FACTORS)
#: Standard deviation of a hazard's logarithm at the start, and the part of the probability that is alike for all.
_UNSURE, _FLAT = 0.55, 0.1
#: The part of a hazard's probability that moves to its neighbours while a record is expected to leave once.
_HAZARD_DRIFT = 0.14
#: Departures differ from what a hazard says by about this part: records of one age do not leave independently.
_CLUMPED = 0.15
#: This part of the counts of departures follows from no hazard: a clearance, a reload.
_OUTLIERS = 0.02
#: The model's number of records may be so many standard errors of the counted one away from it.
_FARTHEST = 3.0
#: A guess is far off where the hazards within this factor of it have no more than this probability together.
_NEAR, _DECISIVE = 1.5, 0.05
#: The least probability of a hazard: each may come back.
_LEAST = 1e-12
#: Records that a census finds, so many standard deviations from what is expected, are a burst: a reload, an export that
#: was not whole.
_BURST = 4.0
#: Newcomers since the last census are expected to within this part: beside records of lower levels; alone.
_RATE_UNSURE, _RATE_UNSURE_ALONE = 0.25, 0.15
#: As many records come as leave: at the start so far within this part, which is a standard deviation.
_GUESS = 0.5
#: How far the rate may drift in a step: variances, in parts of the rate.
DRIFTS: NDArray[np.float64] = np.concatenate(([0.0], 10.0 ** np.arange(-4.0, 0.5, 0.5)))
#: What the logarithm of a drift's likelihood begins with, for each smaller one.
_CALM = -0.5


@dataclass
class LevelTotal:
    """One level's records.

    Attributes:
        turnover: steps that a record stays, as it was guessed.
        sizes: how many are present if a hazard of the bank is the true one, with their ``variances``.
        chances: the probability of each hazard.
        counted: what its censuses counted less the counted departures since it was last emptied, without any model;
            and the variance of the noise in that, ``counted_variance``.
    """

    turnover: float
    sizes: _Floats
    variances: _Floats
    chances: _Floats
    counted: float = 0.0
    counted_variance: float = 0.0

    @classmethod
    def fresh(cls, turnover: float) -> LevelTotal:
        """No records, which leave after ``turnover`` steps on average."""
        near = np.exp(-0.5 * (_LOGARITHMS / _UNSURE) ** 2)
        chances = (1.0 - _FLAT) * near / near.sum() + _FLAT / len(near)
        return cls(turnover, np.zeros(len(near)), np.zeros(len(near)), chances)

    @property
    def size(self) -> float:
        """How many are present."""
        return float(self.chances @ self.sizes)

    @property
    def variance(self) -> float:
        """Of ``size``."""
        return self.predicted(0)[1]

    @property
    def stay(self) -> float:
        """Steps that a record stays."""
        return self.turnover * math.exp(-float(self.chances @ _LOGARITHMS))

    @property
    def decided(self) -> float:
        """Steps that a record stays: the guess, unless the counts say that it is far off."""
        near = self.chances[np.abs(_LOGARITHMS) < math.log(_NEAR)].sum()
        return self.turnover if near > _DECISIVE else self.stay

    @property
    def hazards(self) -> _Floats:
        """Of the bank."""
        return _FACTORS / self.turnover

    def judge(self, fits: _Floats) -> None:
        """Take in logarithms of the hazards' likelihoods, of which a part follows from no hazard."""
        likelihoods = np.exp(fits - fits.max())
        self._learn(likelihoods + _OUTLIERS, np.zeros_like(fits))

    def staying(self, steps: float) -> float:
        """The part that is still present after so many steps."""
        return self.predicted(steps)[0] / self.size if self.size > 0.0 else 1.0

    def exposure(self, steps: float) -> float:
        """Hazard times steps."""
        return steps / self.stay

    def count(self, steps: int, found: float, noise_variance: float) -> float:
        """Take in a count of the records that left in so many steps; gives the part that stays."""
        before, (stays, own) = self.size, self._leaving(steps)
        self.counted -= found
        self.counted_variance += noise_variance
        # Where nobody is there, and no noise is drawn, nobody can have left: any variance will do.
        seen = np.maximum((1.0 - stays) ** 2 * self.variances + own + noise_variance, _LEAST)
        surprise = found - (1.0 - stays) * self.sizes
        likely = (1.0 - _OUTLIERS) * np.exp(-0.5 * surprise**2 / seen) / np.sqrt(2.0 * math.pi * seen)
        # An outlier may be any number up to all records; it is believed up to its noise.
        outlier = _OUTLIERS / (1.0 + before + 4.0 * np.sqrt(seen))
        regular = likely / (likely + outlier)
        gain = (stays * (1.0 - stays) * self.variances - own) / seen
        sizes, variances = (
            stays * self.sizes + gain * surprise,
            stays**2 * self.variances + own - gain**2 * seen,
        )
        apart = sizes - (self.sizes - found)
        variances = regular * variances + (1.0 - regular) * (self.variances + noise_variance)
        self.variances = np.maximum(variances + regular * (1.0 - regular) * apart**2, 0.0)
        self.sizes = np.maximum(self.sizes - found + regular * apart, 0.0)
        self._learn(likely + outlier, _HAZARD_DRIFT * (1.0 - stays))
        return self.size / before if before > 0.0 else 1.0

    def _leaving(self, steps: float) -> tuple[_Floats, _Floats]:
        """Under each hazard the part that stays for so many steps, and the variance of how many leave of all there."""
        stays = np.exp(-steps / self.turnover * _FACTORS)
        left = self.sizes * (1.0 - stays)
        return stays, left * stays + (_CLUMPED * left) ** 2

    def _learn(self, likelihoods: _Floats, moving: _Floats) -> None:
        """Probabilities after evidence, of which a part moves to the neighbours."""
        chances = self.chances * likelihoods
        moved = 0.5 * moving * chances
        chances -= 2.0 * moved
        chances[1:] += moved[:-1]
        chances[:-1] += moved[1:]
        chances = np.maximum(chances / chances.sum(), _LEAST)
        self.chances = chances / chances.sum()

    def add(self, number: tuple[_N, _N], counted: tuple[float, float]) -> None:
        """Take in the records of a census: their number as it is believed (under each hazard), and as it was counted;
        with variances."""
        self.sizes = self.sizes + number[0]
        self.variances = self.variances + number[1]
        self.counted += counted[0]
        self.counted_variance += counted[1]

    def empty(self) -> None:
        """Another level's census has counted these records."""
        self.sizes, self.variances = np.zeros_like(self.sizes), np.zeros_like(self.sizes)
        self.counted = self.counted_variance = 0.0

    def keep_to_counted(self) -> float:
        """Believe the counted number where the model is further from it than noise explains; gives what the records'
        number is multiplied by."""
        size, before = max(self.counted, 0.0), self.size
        if before <= 0.0 or abs(before - self.counted) <= _FARTHEST * math.sqrt(self.counted_variance):
            return 1.0
        self.sizes = np.full_like(self.sizes, size)
        self.variances = np.full_like(self.sizes, self.counted_variance)
        return size / before

    def predicted(self, steps: float) -> tuple[float, float]:
        """How many are present so many steps after the last count, and the variance of that."""
        stays, own = self._leaving(steps)
        return mixed(self.chances, stays * self.sizes, stays**2 * self.variances + own)


def expected_stay(hazard: _N, steps: int) -> _N:
    """Steps that a newcomer of the last so many steps is expected to have stayed, all of them together."""
    stay: _N = -np.expm1(-hazard * steps) / hazard
    return stay


def blend(measured: tuple[float, float], predicted: tuple[_N, _N]) -> tuple[_N, _N]:
    """Two values with their variances, by precision."""
    part = predicted[1] / (predicted[1] + measured[1])
    return part * measured[0] + (1.0 - part) * predicted[0], part * measured[1]


def mixed(chances: _Floats, numbers: _Floats, variances: _Floats) -> tuple[float, float]:
    """The mean and the variance of numbers with these probabilities."""
    number = float(chances @ numbers)
    return number, float(chances @ (variances + (numbers - number) ** 2))


def is_jump(measured: tuple[float, float], predicted: tuple[float, float]) -> bool:
    """Whether a value is so far from what was predicted that the prediction says nothing of it; both with variances."""
    return (measured[0] - predicted[0]) ** 2 > _BURST**2 * (measured[1] + predicted[1])


@dataclass
class NewcomersRate:
    """How many records come in a step, if a hazard of level 0's bank is the true one.

    Attributes:
        rates, variances: for each drift of ``DRIFTS`` and each hazard; empty before anything was measured.
        fits: logarithms of their likelihoods.
    """

    rates: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    variances: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    fits: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def guess(self, number: tuple[float, float], bank: LevelTotal) -> None:
        """Begin as if as many came as leave of so many records; with the variance of that number."""
        leaving = np.tile(bank.hazards, (len(DRIFTS), 1))
        self.rates, self.fits = number[0] * leaving, _CALM * np.indices(leaving.shape)[0]
        self.variances = _GUESS**2 * (number[0] ** 2 + number[1]) * leaving**2

    def present(self, bank: LevelTotal, steps: int, *, alone: bool = False) -> tuple[_Floats, _Floats]:
        """Newcomers of the last so many steps that are present, and the variance of that, under each hazard.

        Args:
            alone: whether no records of lower levels are counted with them.
        """
        stays, drifts = expected_stay(bank.hazards, steps), DRIFTS[self.fits.argmax(axis=0)]
        rates = np.maximum(self._likeliest(self.rates), 0.0)
        variances = self._likeliest(self.variances) + drifts * rates**2 * steps
        unsure = _RATE_UNSURE_ALONE if alone else _RATE_UNSURE
        numbers = rates * stays
        return numbers, numbers + (unsure * numbers) ** 2 + variances * stays**2

    def expected(self, bank: LevelTotal, steps: int) -> tuple[float, float]:
        """The same beside records of lower levels, whichever hazard it is."""
        return mixed(bank.chances, *self.present(bank, steps))

    def _likeliest(self, values: _Floats) -> _Floats:
        """Those of each hazard's likeliest drift."""
        found: _Floats = values[self.fits.argmax(axis=0), np.arange(len(_FACTORS))]
        return found

    def add(self, number: tuple[float, float], bank: LevelTotal, steps: int, *, burst: bool = False) -> None:
        """Take in a census of the newcomers of the last so many steps: their number, and the variance of its noise.

        Args:
            bank: learns from it, too.
            burst: whether far more came than expected: the rate then stays, and this adds the squared surprise to
                its variance: the next census says whether so many go on coming.
        """
        stays = expected_stay(bank.hazards, steps)
        found = number[0] / stays
        expected = np.maximum(self.rates, 1.0 / stays)
        before = self.variances + DRIFTS[:, None] * expected**2 * steps
        seen = before + (number[1] + expected * stays) / stays**2
        surprise = found - self.rates
        if burst:
            self.variances = before + surprise**2
            return
        fits = -0.5 * (np.log(seen * stays**2) + surprise**2 / seen)
        bank.judge(self._likeliest(fits))
        self.fits = self.fits + fits
        self.fits -= self.fits.max(axis=0)
        self.rates = self.rates + before / seen * surprise
        self.variances = before * (1.0 - before / seen)
