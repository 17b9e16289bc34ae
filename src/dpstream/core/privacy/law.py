"""The law of a sum of independent draws of exact noise, and intervals from it. Public arithmetic only.

The law of a sum is found from its characteristic function on a grid (a discrete Fourier transform), not from
a normal limit: one draw of Laplace noise has heavier tails than a normal number of the same variance, and
where the noise is below about one record the sum takes few values.

In this order: sums of draws; a cell of one histogram that was drawn with others, and sums of its cells; weighted sums
of independent draws, which are means of measurements and sums of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.privacy._samplers import capped_float
from dpstream.core.privacy.cube import CubeNoise
from dpstream.core.privacy.joint import HistogramCells, dimension_of
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise

#: Beyond, the tail is of the order of rounding errors.
MAX_CONFIDENCE = 1 - 1e-6

#: Sums of a larger standard deviation are computed on a grid that is coarser than the integers.
_FINEST = 1024.0
#: Half of the grid, in standard deviations. A symmetric log-concave law has less than e^-30 beyond.
_REACH = 32


def check_confidence(confidence: float) -> float:
    """A confidence above 0 and up to ``MAX_CONFIDENCE``, or ConfigError."""
    number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not number or not 0.0 < confidence <= MAX_CONFIDENCE:
        raise ConfigError(
            f"confidence = {confidence!r}", where="interval", allowed=f"above 0 and up to {MAX_CONFIDENCE}"
        )
    return float(confidence)


@dataclass(frozen=True)
class NoiseSum:
    """A sum of independent draws: ``parts`` are (noise, number of draws).

    >>> two = NoiseSum(((DiscreteLaplace(Fraction(1)), 2),))
    >>> round(two.variance, 3), two.half_width(0.95)
    (3.683, 4.0)
    """

    parts: tuple[tuple[Noise, int], ...]

    @property
    def variance(self) -> float:
        """The variances of all draws together."""
        return float(sum(count * noise.variance for noise, count in self.parts))

    def times(self, number: int) -> NoiseSum:
        """The sum of ``number`` independent copies, such as of as many cells of one marginal."""
        return NoiseSum(tuple((noise, count * number) for noise, count in self.parts if count * number))

    def half_width(self, confidence: float) -> float:
        """The smallest ``h`` with ``Pr[|sum| <= h] >= confidence``, in records.

        Exact (a whole number) up to a standard deviation of 1,024; beyond, up to a grid step of a 1,024th of
        it more. On integers the probability of ``h`` can be well above ``confidence`` where the noise is small.

        Errors:
            ConfigError: a confidence outside of 0 to ``MAX_CONFIDENCE``.

        Cost: one Fourier transform of 65,536 numbers at most; remembered.
        """
        return _half_width(self, check_confidence(confidence))

    def pack(self) -> list[list[Any]]:
        """JSON-able and exact."""
        return [
            ["laplace", str(noise.scale), count]
            if isinstance(noise, DiscreteLaplace)
            else ["gaussian", str(noise.sigma_squared), count]
            for noise, count in self.parts
        ]

    @classmethod
    def unpack(cls, packed: Sequence[Sequence[Any]]) -> NoiseSum:
        """The inverse of ``pack``."""
        kinds: dict[str, type[Noise]] = {"laplace": DiscreteLaplace, "gaussian": DiscreteGaussian}
        return cls(tuple((kinds[kind](Fraction(amount)), int(count)) for kind, amount, count in packed))


@dataclass(frozen=True)
class WeightedLaplace:
    """A sum of independent Laplace draws with unknown real weights, rounded to a whole number: its variance is known.

    Such a sum is a normal number whose variance is itself random, and less so than that of a single Laplace draw.
    Small confidences are missed most by the normal law, large ones by a single draw, so the wider of the two is
    taken. Just between (near 91 %) sums of a few equal draws are wider by up to 5 in 10,000, which the factor covers
    (docs/theory/errors.md).

    >>> round(WeightedLaplace(Fraction(10_000)).half_width(0.95), 1)
    212.8
    """

    total: Fraction

    #: Over the wider of the two laws.
    MARGIN: ClassVar[float] = 1.002

    @property
    def variance(self) -> float:
        """The variance, that of rounding included."""
        return float(self.total)

    def times(self, number: int) -> WeightedLaplace:
        """The sum of ``number`` independent copies."""
        return WeightedLaplace(self.total * number)

    def half_width(self, confidence: float) -> float:
        """A width ``h`` with ``Pr[|sum| <= h] >= confidence``, in records; half a record is for rounding.

        Errors:
            ConfigError: a confidence outside of 0 to ``MAX_CONFIDENCE``.
        """
        check_confidence(confidence)
        normal = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
        single = -math.log1p(-confidence) / math.sqrt(2.0)
        return self.MARGIN * max(normal, single) * math.sqrt(self.variance) + 0.5

    def pack(self) -> list[list[Any]]:
        """JSON-able and exact."""
        return [["weighted laplace", str(self.total), 1]]


Law = NoiseSum | WeightedLaplace


def unpack_law(packed: Sequence[Sequence[Any]]) -> Law:
    """The inverse of ``pack``."""
    if packed and packed[0][0] == "weighted laplace":
        return WeightedLaplace(Fraction(packed[0][1]))
    return NoiseSum.unpack(packed)


@lru_cache(maxsize=1024)
def _half_width(law: NoiseSum, confidence: float) -> float:
    deviation = math.sqrt(law.variance)
    if deviation == 0.0:
        return 0.0
    step = max(1.0, deviation / _FINEST)
    knots = 1 << max(10, math.ceil(math.log2(2 * _REACH * deviation / step)))
    angles = np.linspace(0.0, math.pi, knots // 2 + 1)
    # A grid coarser than the integers keeps the low frequencies, which hold all but about 1e-6 of the law.
    logarithm = sum(
        (count * log_characteristic(noise, angles / step) for noise, count in law.parts),
        np.zeros_like(angles),
    )
    probabilities = np.fft.irfft(np.exp(logarithm), knots)[: knots // 2]
    inside = 2.0 * np.cumsum(probabilities) - probabilities[0]
    reached = int(np.searchsorted(inside, confidence - 1e-12))
    # Between two points of a coarse grid: the outer one, and one more for what the grid cannot see.
    return float(reached) if step == 1.0 else (reached + 1) * step


def log_characteristic(noise: Noise, angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of ``E cos(angle X)``, which is positive for both noises; angles from 0 to pi."""
    if isinstance(noise, DiscreteLaplace):
        # (1 - q)^2 / (1 - 2 q cos a + q^2), with the variance 2 q / (1 - q)^2.
        laplace: NDArray[np.float64] = -np.log1p(2.0 * noise.variance * np.sin(angles / 2.0) ** 2)
        return laplace
    sigma_squared = float(noise.sigma_squared)
    if sigma_squared < 1.0:
        k = np.arange(1, 41)
        weights = 2.0 * np.exp(-(k**2) / (2.0 * max(sigma_squared, 1e-300)))
        small: NDArray[np.float64] = np.log1p(np.cos(np.outer(angles, k)) @ weights) - np.log1p(weights.sum())
        return small
    # Poisson summation: the characteristic function is a sum of normal ones, 2 pi apart.
    j = 2.0 * math.pi * np.array([-2.0, -1.0, 1.0, 2.0])
    others = np.exp(-sigma_squared * (np.outer(angles, 2.0 * j) + j**2) / 2.0).sum(axis=1)
    at_zero = np.exp(-sigma_squared * j**2 / 2.0).sum()
    result: NDArray[np.float64] = -sigma_squared * angles**2 / 2.0 + np.log1p(others) - math.log1p(at_zero)
    return result


_Floats = NDArray[np.float64]
#: Blocks of more cells have numbers of vectors beyond floating point.
_MAX_BLOCK = 32
#: Laws of larger scales are those of this one, stretched.
_LARGEST_SCALE = 400.0
#: Grid points of one axis; how far laws are looked at: radii in scales, sums in standard deviations.
_POINTS, _FURTHEST, _DEVIATIONS = 600, 40.0, 14.0


def has_law(noise: HistogramCells, many: int) -> bool:
    """Whether ``law_of_sum`` knows the law of the sum of so many cells."""
    small = max(noise.drawn.sizes) <= _MAX_BLOCK and noise.cells > 1
    return small and many in (1, noise.cells - 1, noise.cells)


#: A series of periods asks for some hundred laws, again and again.
@lru_cache(maxsize=1024)
def law_of_sum(noise: HistogramCells, many: int) -> tuple[float, _Floats, _Floats]:
    """The absolute sum of ``many`` cells (one, all but one, or all): a step, its multiples, and their probabilities.

    Where noise is small these are all values with their probabilities, up to floating-point errors; where it is large,
    as many as tell the law to about a hundredth of the noise.

    Cost: up to a second.
    """
    # A vector is drawn from a ball, its common sum s is taken from 0 on, and M is the largest negative sum that a block
    # may have: half of what s leaves of the radius. Radii that differ by 2 have the same law as a function of M, which
    # may be coarse; odd and even radii differ. Given s and M, blocks are independent and uniform.
    drawn = noise.drawn
    scale = min(capped_float(drawn.scale), _LARGEST_SCALE)
    stretch = capped_float(drawn.scale) / scale
    power = dimension_of(drawn.sizes, level=drawn.level)
    furthest = scale * (power + 11.0 * (math.sqrt(power) + 1.0) + _FURTHEST) + 3.0
    furthest = furthest if drawn.level else furthest / 2.0
    sum_reach, rest_reach = (
        _DEVIATIONS * (math.sqrt(variance) / stretch + 1.0)
        for variance in (drawn.sum_variance, noise.variance_of_sum(noise.cells - 1, noise.cells - 1))
    )
    step = max(1, math.ceil(max(furthest, sum_reach, rest_reach) / _POINTS))
    most, rests = (np.arange(0.0, reach + step, step) for reach in (furthest, rest_reach))
    sums = np.zeros(1) if drawn.level else np.arange(0.0, sum_reach + step, step)
    logs = np.where(sums > 0.0, math.log(2.0), 0.0)[:, None]
    logs = logs - (most if drawn.level else sums[:, None] + 2.0 * most) / scale
    logs[:, 0] += math.log((step + 1) / (2 * step))  # the end of a sum that is made in steps
    inside = np.s_[: len(sums), : len(most)]
    blocks = {cells: np.log(_vectors_in_steps(cells, step)[inside]) for cells in set(drawn.sizes)}
    for cells in drawn.sizes:
        logs = logs + blocks[cells]
    if many == noise.cells:
        found = np.asarray(np.exp(logs - logs.max()).sum(axis=1), dtype=np.float64)
    else:
        logs = logs - blocks[noise.cells]
        rest = _vectors_in_steps(noise.cells - 1, step)[: len(rests), : len(most)]
        found = _law_of_cell(np.exp(logs - logs.max()), rest, many)
    shares: _Floats = found / found.sum()
    places = np.arange(len(shares), dtype=np.float64) * (step * stretch)
    return step * stretch, places, shares


def _law_of_cell(others: _Floats, rest: _Floats, many: int) -> _Floats:
    """Weights of the absolute value of one cell, or of the sum of the others in its block.

    Args:
        others: by s and M, the weight of all blocks but this one. rest: by t and M, how many ways the block's other
            cells have to the sum t with negative sums up to M; to -t there are as many as to t with M less t.
    """
    s, t = np.arange(len(others))[:, None], np.arange(len(rest))
    slid = _slid(rest, others.shape[1] + len(others))
    inside = others @ rest.T  # the cell is s - t, and not negative
    below = _slid(others, slid.shape[1]) @ slid.T  # the cell is s - t, and negative
    above = others @ slid[:, : others.shape[1]].T  # the cell is s + t, and the others are -t
    above[:, 0] = 0.0
    less = np.where(t <= s, inside, below)
    if many > 1:
        return np.asarray((less + above).sum(axis=0), dtype=np.float64)
    places, weights = np.concatenate([np.abs(s - t), s + t]), np.concatenate([less, above])
    return np.bincount(places.ravel(), weights.ravel()).astype(np.float64)


def _slid(table: _Floats, width: int) -> _Floats:
    """Each row moved to the right by its number."""
    places = np.arange(width) - np.arange(len(table))[:, None]
    moved = np.take_along_axis(table, np.clip(places, 0, table.shape[1] - 1), axis=1)
    found: _Floats = np.where((places >= 0) & (places < table.shape[1]), moved, 0.0)
    return found


@lru_cache(maxsize=32)
def _vectors_in_steps(cells: int, step: int) -> _Floats:
    """The same on the largest grid of these steps: many laws have one step."""
    grid = np.arange(_POINTS + 2.0) * step
    return _vectors(cells, grid[:, None], grid)


def _vectors(cells: int, total: _Floats, most: _Floats) -> _Floats:
    """``block_vectors`` in floating point."""
    if cells == 1:
        return ((most >= 0.0) & (total >= 0.0)).astype(np.float64)
    at = np.maximum(most, 0.0)
    of_total = _binomials(total - 1.0, cells - 1)
    zero, ways = np.zeros_like(at), [np.zeros_like(at) for _ in range(cells)]
    for f in range(cells):
        of_most = _binomials(at + f, cells - 1)
        zero += math.comb(cells - 1, f) ** 2 * of_most[cells - 1]
        for a in range(cells - f if f else 0):
            ways[a + f] += math.comb(cells, f) * math.comb(a + f - 1, f - 1) * of_most[a + f]
    found = of_total[cells - 1] + sum(of_total[cells - 1 - many] * own for many, own in enumerate(ways))
    return np.where(most < 0.0, 0.0, np.where(total == 0.0, zero, found))


def _binomials(n: _Floats, most: int) -> list[_Floats]:
    """``C(n, k)`` for whole ``n`` and each ``k`` up to ``most``; 0 where ``n < k``."""
    made = [np.ones_like(n)]
    for i in range(most):
        made.append(made[-1] * np.maximum(n - i, 0.0) / (i + 1))
    return made


#: Grid steps to a standard deviation where weights differ, and half of the grid in standard deviations.
_GRID_STEPS, _GRID_REACH = 1024, 32
#: The grid sees the sum with normal noise of so many steps added; beyond ``_MARGIN`` steps that has less than 1e-7.
_SMOOTH, _MARGIN = 2.0, 11
#: From this logarithm on, a characteristic function is nothing.
_VANISHED = -60.0
#: Radii of joint noise that are looked at, and how far from the most probable one (in powers of e).
_JOINT_RADII, _JOINT_RARE = 512, 45.0
_CHUNK, _APART = 1024, 32


@dataclass(frozen=True)
class WeightedSum:
    """A sum of independent draws, each times a weight; symmetric around 0.

    Attributes:
        parts: (noise, weight, number of such draws).
        joint: (noise, the weights of some coordinates of one draw, number of such draws).
        histograms: (noise of a histogram that was drawn with others, number of its cells that are added up, weight of
            each, number of such draws); ``has_law`` says which sums of cells have a law.
        loose: variance of parts of which nothing else is known.
        laplace: variance of sums of Laplace draws with unknown weights (``WeightedLaplace``).

    >>> noise = NoiseSum.unpack([["laplace", "2", 1]]).parts[0][0]
    >>> half = WeightedSum(((noise, 0.5, 2),))  # the mean of two draws
    >>> round(half.variance, 3), half.half_width(0.95), half.exact
    (3.918, 4.0, True)
    """

    parts: tuple[tuple[Noise, float, int], ...] = ()
    joint: tuple[tuple[CubeNoise, tuple[float, ...], int], ...] = ()
    loose: float = 0.0
    laplace: float = 0.0
    histograms: tuple[tuple[HistogramCells, int, float, int], ...] = ()

    @property
    def variance(self) -> float:
        """Of the sum. Coordinates of a joint draw are not correlated."""
        own = sum(count * weight**2 * noise.variance for noise, weight, count in self.parts)
        own += sum(
            count * noise.variance * sum(w**2 for w in weights) for noise, weights, count in self.joint
        )
        own += sum(
            count * weight**2 * noise.variance_of_sum(many, many)
            for noise, many, weight, count in self.histograms
        )
        return own + self.loose + self.laplace

    @property
    def exact(self) -> bool:
        """Whether intervals are those of the law itself; else they are wider, and hold for every law of this
        variance."""
        return not self.loose and not (self.laplace and (self.parts or self._whole))

    @property
    def _whole(self) -> bool:
        """Whether there are draws of whole vectors."""
        return bool(self.joint or self.histograms)

    def half_width(self, confidence: float) -> float:
        """A width ``h`` with ``Pr[|sum| <= h] >= confidence``, in records.

        Where all weights are equal: the smallest such width, as ``NoiseSum`` gives it. Where they differ, or draws are
        joint: up to about 2 % more. Where only variances are known: by Chebyshev's inequality.

        Errors:
            ConfigError: a confidence outside of 0 to ``MAX_CONFIDENCE``.

        Cost: one Fourier transform of 65,536 numbers at most; with joint draws about a second at most; remembered.
        """
        check_confidence(confidence)
        if self.variance == 0.0:
            return 0.0
        if not self.exact:
            return math.sqrt(self.variance / (1.0 - confidence))
        if self.laplace:
            return WeightedLaplace(Fraction(self.laplace)).half_width(confidence)
        weights = {abs(weight) for _, weight, _ in self.parts}
        if len(weights) == 1 and not self._whole:
            lattice = NoiseSum(tuple((noise, count) for noise, _, count in self.parts))
            return weights.pop() * lattice.half_width(confidence)
        return float(np.interp(confidence, *_widths(self)))


@lru_cache(maxsize=256)
def _widths(law: WeightedSum) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probabilities, and the widths that hold them, for a law whose draws do not lie on one lattice."""
    step = math.sqrt(law.variance) / _GRID_STEPS
    knots = 2 * _GRID_REACH * _GRID_STEPS
    angles = np.linspace(0.0, math.pi, knots // 2 + 1)
    logarithm, left = -((_SMOOTH * angles) ** 2) / 2.0, np.arange(len(angles))
    for noise, weight, count in sorted(
        law.parts, key=lambda part: -part[2] * part[1] ** 2 * part[0].variance
    ):
        turned = np.remainder(weight * angles[left] / step, 2.0 * math.pi)
        logarithm[left] += count * log_characteristic(noise, np.minimum(turned, 2.0 * math.pi - turned))
        left = left[logarithm[left] > _VANISHED]
    steps = [(law_of_sum(noise, many)[0], abs(weight)) for noise, many, weight, _ in law.histograms]
    # Points of a coarse grid stand for the values around them.
    values, hidden = np.exp(logarithm), max([0.0, *(own * weight / 2 for own, weight in steps if own > 1.0)])
    for first in range(0, len(angles), _CHUNK):
        part = slice(first, first + _CHUNK)
        if (law.joint or law.histograms) and np.abs(values[part]).max() > 1e-12:
            for cells, many, weight, count in law.histograms:
                own = _histogram_characteristic(cells, many, weight * angles[part] / step)
                values[part] *= own**count
            for joint, weights, count in law.joint:
                values[part] *= _joint_characteristic(joint, weights, angles[part] / step) ** count
            if np.abs(values[part]).max() <= 1e-12:
                # What may come back at higher angles only says that the sum lies on multiples of the weights.
                values[first + _CHUNK :] = 0.0
                hidden = max([0.0, *(abs(weight) for _, weights, _ in law.joint for weight in weights)])
                hidden = max([hidden, *(abs(weight) for _, weight, _ in law.parts)])
                hidden = max([hidden, *(own * weight for own, weight in steps)])
                break
    probabilities = np.fft.irfft(values, knots)[: knots // 2]
    inside = np.maximum.accumulate(2.0 * np.cumsum(probabilities) - probabilities[0]) - 2e-7
    # One step up for the grid, and what the added normal noise may have hidden.
    widths = np.arange(len(inside), dtype=np.float64) + 1.0 + _MARGIN
    return inside, widths * step + hidden


def _histogram_characteristic(noise: HistogramCells, many: int, angles: _Floats) -> _Floats:
    """``E cos(angle * sum of cells)``; angles as of ``_split``."""
    _, values, shares = law_of_sum(noise, many)
    there = shares > 1e-15
    begins, further = (np.exp(1j * np.outer(values[there], own)) for own in _split(angles))
    # Not a matrix product: of tables this small its threads cost more than they save.
    return np.asarray(np.einsum("ka,kb->ab", shares[there, None] * begins, further).real.reshape(-1))


def _split(angles: _Floats) -> tuple[_Floats, _Floats]:
    """A multiple of ``_APART`` angles in even steps, or one, as sums of two: sines of far fewer angles are needed."""
    return angles[::_APART], angles[:_APART] - angles[0]


def _joint_characteristic(noise: CubeNoise, weights: tuple[float, ...], angles: _Floats) -> _Floats:
    """``E cos(angle * sum of weighted coordinates)``, angles as of ``_split``: given the radius, coordinates are
    uniform and independent."""
    rate, m = float(1 / noise.scale), noise.dimension
    middle = max(0.0, m / rate)
    spread = (math.sqrt(m) + 1.0) / rate
    low = max(0, math.floor(middle - 10.0 * spread - 2))
    high = math.ceil(middle + (12.0 * spread + _JOINT_RARE / rate) + 2)
    radii = np.unique(np.round(np.linspace(low, high, min(_JOINT_RADII, high - low + 1))))
    logs = m * np.log1p(2.0 * radii) - rate * radii
    shares = np.exp(logs - logs.max()) * np.gradient(radii) if len(radii) > 1 else np.ones(1)
    shares = shares / shares.sum()
    there = shares >= 1e-15
    turns, product = 2.0 * radii[there, None] + 1.0, shares[there, None]
    for weight in set(weights):
        half = weight * angles / 2.0
        begins, further = (np.exp(1j * turns * own) for own in _split(half))
        whole = np.abs(np.sin(half)) < 1e-9
        inverse = 1.0 / np.where(whole, 1.0, np.sin(half))
        if len(weights) == 1:
            own = np.einsum("ra,rb->ab", product / turns * begins, further).imag.reshape(-1)
            return np.where(whole, 1.0, own * inverse)
        own = (begins[:, :, None] * further[:, None, :]).imag.reshape(len(turns), -1)
        product = product * np.where(whole, 1.0, own * inverse / turns) ** weights.count(weight)
    return np.asarray(product.sum(axis=0))
