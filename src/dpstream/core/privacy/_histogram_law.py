"""The law of a cell of one histogram that was drawn with others, and of sums of its cells. Public arithmetic only."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy._exact import capped_float
from dpstream.core.privacy._histogram_balls import dimension_of
from dpstream.core.privacy.joint import HistogramCells

_Floats = NDArray[np.float64]
#: Blocks of more cells have numbers of vectors beyond floating point.
_LARGEST_BLOCK = 32
#: Laws of larger scales are those of this one, stretched.
_FINEST = 400.0
#: Radii, common sums and values that are looked at.
_RADII, _SUMS, _VALUES = 40, 80, 401
_RARE = 40.0


def has_law(noise: HistogramCells, many: int) -> bool:
    """Whether ``law_of_sum`` knows the law of the sum of so many cells."""
    small = max(noise.drawn.sizes) <= _LARGEST_BLOCK and noise.cells > 1
    return small and many in (1, noise.cells - 1, noise.cells)


@lru_cache(maxsize=64)
def law_of_sum(noise: HistogramCells, many: int) -> tuple[float, _Floats, _Floats]:
    """The sum of ``many`` cells (one, all but one, or all): a step, values (multiples of it), and probabilities.

    Where noise is small these are all values with their probabilities, up to floating-point errors; where it is large,
    as many as tell the law to about a thousandth of the noise.

    Cost: up to a second.
    """
    drawn = noise.drawn
    scale = min(capped_float(drawn.scale), _FINEST)
    stretch = capped_float(drawn.scale) / scale
    power = dimension_of(drawn.sizes, level=drawn.level)
    middle, spread = power * scale, (math.sqrt(power) + 1.0) * scale
    low = max(0, math.floor(middle - 9.0 * spread))
    radii = _nodes(low, math.ceil(middle + 11.0 * spread + _RARE * scale) + 3, _RADII)
    sums = np.zeros(1) if drawn.level else _nodes(0, math.ceil(14.0 * _reach(noise, stretch)) + 3, _SUMS)
    weights = _weights(noise, scale, radii, sums)
    values = _nodes(0, math.ceil(14.0 * math.sqrt(noise.variance) / stretch) + 3, _VALUES)
    step = float(values[1] - values[0])
    values = np.concatenate([-values[:0:-1], values])
    total = np.zeros(2 * (len(values) + math.ceil(float(sums[-1]) / step)) + 1)
    centre = len(total) // 2
    for i, radius in enumerate(radii.tolist()):
        for j, common in enumerate(sums.tolist()):
            if weights[i, j] < 1e-14:
                continue
            rest = np.abs(common - values)
            if drawn.level:
                left = radius - np.abs(values)
            else:
                left = np.floor((radius - np.abs(values) - rest) / 2.0)
            own = _vectors(noise.cells - 1, rest, left)
            own *= weights[i, j] / own.sum() if own.sum() > 0 else 0.0
            if many == noise.cells:
                _put(total, centre, np.array([common]) / step, np.array([own.sum()]))
            elif many == 1:
                _put(total, centre, values / step, own)
            else:
                _put(total, centre, (common - values) / step, own)
    both: _Floats = total + total[::-1]
    places: _Floats = (np.arange(len(both), dtype=np.float64) - centre) * (step * stretch)
    shares: _Floats = both / both.sum()
    return step * stretch, places, shares


def _put(total: _Floats, centre: int, where: _Floats, shares: _Floats) -> None:
    """Add shares at places between grid points, divided between the two."""
    low = np.floor(where + 1e-9)
    part = np.clip(where - low, 0.0, 1.0)
    at = np.clip(low.astype(np.int64) + centre, 0, len(total) - 2)
    np.add.at(total, at, shares * (1.0 - part))
    np.add.at(total, at + 1, shares * part)


def _nodes(low: int, high: int, most: int) -> _Floats:
    """Whole numbers from ``low`` on, so many at most, at equal distances."""
    step = max(1, math.ceil((high - low) / (most - 1)))
    nodes: _Floats = np.arange(low, high + step, step, dtype=np.float64)
    return nodes


def _reach(noise: HistogramCells, stretch: float) -> float:
    return math.sqrt(noise.drawn.sum_variance) / stretch + 1.0


def _weights(noise: HistogramCells, scale: float, radii: _Floats, sums: _Floats) -> _Floats:
    """Probabilities of radius and common sum (from 0 on)."""
    radius, common = radii[:, None], sums[None, :]
    left = radius + 0.0 * common if noise.drawn.level else np.floor((radius - common) / 2.0)
    logs = -radius / scale + np.where(common > 0.0, math.log(2.0), 0.0)
    for cells, many in Counter(noise.drawn.sizes).items():
        with np.errstate(divide="ignore"):
            logs = logs + many * np.log(_vectors(cells, common + 0.0 * radius, left))
    shares: _Floats = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares


def _vectors(cells: int, total: _Floats, most: _Floats) -> _Floats:
    """``block_vectors`` in floating point."""
    if cells == 1:
        return (most >= 0.0).astype(np.float64)
    at = np.maximum(most, 0.0)
    zero = np.zeros_like(at)
    for j in range(cells):
        zero += math.comb(cells - 1, j) ** 2 * _binomial(at + cells - 1 - j, cells - 1)
    found = _binomial(total - 1.0, cells - 1)
    for f in range(1, cells):
        own = np.zeros_like(at)
        for a in range(cells - f):
            factor = math.comb(cells, f) * math.comb(a + f - 1, f - 1)
            own += factor * _binomial(total - 1.0, cells - f - 1 - a) * _binomial(at + f, a + f)
        found = found + own
    return np.where(most < 0.0, 0.0, np.where(total == 0.0, zero, found))


def _binomial(n: _Floats, k: int) -> _Floats:
    """``C(n, k)`` for whole ``n``; 0 where ``n < k``."""
    found = np.ones_like(n)
    for i in range(k):
        found = found * np.maximum(n - i, 0.0) / (i + 1)
    return found
