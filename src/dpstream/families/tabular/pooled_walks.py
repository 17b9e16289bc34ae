"""One marginal over the epochs: a random walk, and a season where there is one. Public: it reads outputs only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]

#: The drifts that are compared: how far a distribution walks over the whole stream, as the sum of its cells' variances.
_DRIFTS = np.concatenate(([0.0], 10.0 ** np.arange(-3.0, 3.5, 1.0)))
#: The swings that are compared where there is a season: how far it moves a distribution, in the same measure.
_SWINGS = np.array([0.0, 1e-3, 1e-2, 1e-1])
#: Waves of a season: once, twice and three times a season, with parts 1, 1/4 and 1/9 of its swing.
_WAVES = (1, 2, 3)
#: From this drift on, a marginal of several columns says nothing of other epochs.
VOLATILE_DRIFT = 0.01
#: How many rounds estimate how common each drift is.
_DRIFT_ROUNDS = 20
#: Columns are steady if each has a lasting drift, or a season, with less than this probability.
_STEADY_BELOW = 0.5


@dataclass(frozen=True)
class Hypotheses:
    """Drifts and swings that are compared, pair by pair."""

    drifts: _Floats
    swings: _Floats

    @property
    def weights(self) -> _Floats:
        """How likely each is beforehand: as likely with a swing as without; each drift, and each swing, the same."""
        swinging = max(int((np.unique(self.swings) > 0.0).sum()), 1)
        return np.where(self.swings > 0.0, 1.0 / swinging, 1.0)


PLAIN = Hypotheses(_DRIFTS, np.zeros(len(_DRIFTS)))
SEASONAL = Hypotheses(np.tile(_DRIFTS, len(_SWINGS)), np.repeat(_SWINGS, len(_DRIFTS)))


def waves(season: float | None, begins: Sequence[int], ends: Sequence[int]) -> _Floats:
    """Where stretches of steps are in the season: means over their steps of its waves, shape (stretches, waves).

    Args:
        season: its length in steps; None: there is none, and there are no waves.
        begins, ends: the last step before each stretch, and its last step.

    >>> (waves(4.0, [0, 0], [1, 4]).round(3) + 0.0)[:, :2].tolist()
    [[0.632, 0.632], [0.0, 0.0]]
    """
    own = () if season is None else tuple(wave for wave in _WAVES if 2 * wave <= season)
    found = np.zeros((len(ends), 2 * len(own)))
    strength = math.sqrt(sum(1.0 / wave**2 for wave in own)) if own else 1.0
    for row, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        for place, wave in enumerate(own):
            turns = 2.0 * math.pi * wave * (np.arange(begin, end) + 0.5) / (season or 1.0)
            found[row, 2 * place : 2 * place + 2] = np.cos(turns).mean(), np.sin(turns).mean()
            found[row, 2 * place : 2 * place + 2] /= wave * strength
    return found


@dataclass(frozen=True)
class Walk:
    """One marginal's measurements, as distributions less their bases; everything for all drifts at once.

    Attributes:
        at: epochs that measured it; ``noise``: variances there.
        times: the middles of all epochs, as shares of the stream; ``records``: their events.
        diversity: ``1 - sum p^2``: a sampled record's variance, of all cells together.
        season: of all epochs, from ``waves``.
    """

    at: NDArray[np.int64]
    times: _Floats
    apart: _Floats
    noise: _Floats
    records: _Floats
    diversity: float
    hypotheses: Hypotheses
    season: _Floats

    @cached_property
    def sampling(self) -> _Floats:
        """Variance of an epoch's records around their distribution, of one cell on average."""
        return np.asarray(self.diversity / (self.apart.shape[1] * self.records))

    @cached_property
    def walk(self) -> _Floats:
        """The covariance of a walk of drift 1."""
        return np.asarray(np.minimum(self.times[:, None], self.times) / self.apart.shape[1])

    @cached_property
    def swing(self) -> _Floats:
        """The covariance of a season of swing 1."""
        return np.asarray(self.season @ self.season.T / self.apart.shape[1])

    @cached_property
    def inverse(self) -> _Floats:
        """The inverse of the measurements' covariance, for every hypothesis."""
        own, among = np.diag(self.sampling[self.at] + self.noise), self.hypotheses
        moved = among.drifts[:, None, None] * self.walk[np.ix_(self.at, self.at)]
        if among.swings.any():
            moved = moved + among.swings[:, None, None] * self.swing[np.ix_(self.at, self.at)]
        return np.asarray(np.linalg.inv(moved + own))

    @cached_property
    def likelihood(self) -> _Floats:
        """The logarithm of each hypothesis's likelihood, where the walk may begin anywhere."""
        ones = self.inverse.sum(axis=2)
        precision = ones.sum(axis=1)
        apart = self.inverse - ones[:, :, None] * ones[:, None, :] / precision[:, None, None]
        spread = np.log(precision) - np.linalg.slogdet(self.inverse)[1]
        squares = np.einsum("gij,ij->g", apart, self.apart @ self.apart.T)
        return np.asarray(-0.5 * (self.apart.shape[1] * spread + squares))

    def path(self, hypothesis: int) -> tuple[_Floats, float]:
        """The distance from the base in every epoch, and the variance of one cell of its sum over all events."""
        inverse, walk = self.inverse[hypothesis], self.hypotheses.drifts[hypothesis] * self.walk
        if self.hypotheses.swings[hypothesis]:
            walk = walk + self.hypotheses.swings[hypothesis] * self.swing
        shared = walk[:, self.at]
        shared[self.at, np.arange(len(self.at))] += self.sampling[
            self.at
        ]  # an epoch's own sample is in the sum
        ones = inverse.sum(axis=0)
        plain = shared @ inverse
        missing = 1.0 - plain.sum(axis=1)
        weights = plain + np.outer(missing, ones / ones.sum())
        records, together = self.records, self.records @ shared
        variance = (
            records @ walk @ records + (records**2 * self.sampling).sum() - together @ inverse @ together
        )
        variance += (records @ missing) ** 2 / ones.sum()
        return weights @ self.apart, max(float(variance), 0.0)

    def ahead(self, hypothesis: int, times: _Floats, season: _Floats) -> _Floats:
        """The distance from the base at some later times, shape (times, cells); ``season``: from ``waves``."""
        inverse, among = self.inverse[hypothesis], self.hypotheses
        shared = np.minimum(times[:, None], self.times[self.at]) * among.drifts[hypothesis]
        shared = shared + among.swings[hypothesis] * (season @ self.season[self.at].T)
        plain = shared / self.apart.shape[1] @ inverse
        ones = inverse.sum(axis=0)
        weights = plain + np.outer(1.0 - plain.sum(axis=1), ones / ones.sum())
        return np.asarray(weights @ self.apart)


def choose(likelihood: _Floats) -> list[int]:
    """The hypothesis of each marginal: its likelihood times how common each one is (empirical Bayes)."""
    scaled = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    common = np.full(likelihood.shape[1], 1.0 / likelihood.shape[1])
    for _ in range(_DRIFT_ROUNDS):
        own = scaled * common
        # One marginal more in which every hypothesis is as likely.
        counted = (own / own.sum(axis=1, keepdims=True)).sum(axis=0) + 1.0 / len(common)
        common = counted / counted.sum()
    return [int(one) for one in (scaled * common).argmax(axis=1)]


def steady(likelihood: _Floats, among: Hypotheses) -> bool:
    """Whether no column drifts or swings: the data have to say so. With few or noisy epochs any drift is as likely as
    none.

    Every column for itself, all drifts as likely beforehand: the others must not outvote the one that drifts.
    """
    odds = np.exp(likelihood - likelihood.max(axis=1, keepdims=True)) * among.weights
    lasting = (among.drifts >= VOLATILE_DRIFT) | (among.swings > 0.0)
    drifting = odds[:, lasting].sum(axis=1) / odds.sum(axis=1)
    return bool(drifting.max() < _STEADY_BELOW)
