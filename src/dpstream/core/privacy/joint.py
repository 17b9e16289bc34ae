"""Exact integer noise for several histograms of the same records at once.

Guarantee: samples follow the stated law exactly, for every rational scale. Proof: docs/theory/joint-noise.md.

Balls: how many integer vectors lie in them, and sums of squares over them, exactly. A vector has a block for each
histogram, and all blocks have the same sum ``s``. Its norm is the largest L1 norm of a block; where the sum is 0
(``level``), half of that, which is then a whole number. With ``p`` and ``n`` the positive and negative sums of a
block, ``p - n = s`` and its L1 norm is ``|s| + 2 min(p, n)``: so a block in a ball of radius R with sum ``s >= 0``
has a negative sum up to ``(R - s) // 2``.

The balls are dilations of a polytope whose corners are lattice vectors (plus and minus what one record adds), so
their numbers of vectors are a polynomial in R whose series has whole, non-negative numerators (Ehrhart, Stanley).

Trusted base: kernel (joint noise of histograms).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy._samplers import (
    WORD_BITS,
    Distribution,
    InversionTable,
    Sampler,
    WordSource,
    build_geometric,
    capped_float,
    exp_bounds,
    uniform_below,
)
from dpstream.core.privacy.cube import MAX_DIMENSION, CubeNoise
from dpstream.core.privacy.noise import (
    MAX_SCALE,
    DiscreteGaussian,
    DiscreteLaplace,
    Noise,
    exact_parameter,
    sample_cells,
)

#: Arrays of Python integers.
_Integers = NDArray[np.object_]


def dimension_of(sizes: tuple[int, ...], *, level: bool) -> int:
    """Dimension of the vectors whose blocks have the same sum (``level``: the sum 0)."""
    return sum(sizes) - len(sizes) + (0 if level else 1)


@lru_cache(maxsize=64)
def _coefficients(cells: int) -> tuple[tuple[int, int, int], ...]:
    """``(f, a, factor)`` of the terms in ``block_vectors``."""
    return tuple(
        (f, a, comb(cells, f) * comb(a + f - 1, f - 1)) for f in range(1, cells) for a in range(cells - f)
    )


def block_vectors(cells: int, total: int, most: int) -> int:
    """Number of blocks with the sum ``total >= 0`` and a negative sum up to ``most``, in closed form.

    With k positive cells and ``f = cells - k`` others, a negative sum n has ``C(p-1, k-1) C(n+f-1, f-1)`` blocks,
    ``p = total + n``; by Vandermonde's identity the sum over n is one of products of two binomials.

    >>> block_vectors(3, 0, 1), block_vectors(2, 5, 0), block_vectors(3, 1, 10**6)
    (7, 6, 3000006000003)
    """
    if most < 0:
        return 0
    if total == 0:
        return sum(comb(cells - 1, j) ** 2 * comb(most + cells - 1 - j, cells - 1) for j in range(cells))
    ways = [comb(total - 1, b) for b in range(cells)]
    return ways[cells - 1] + sum(
        factor * ways[cells - f - 1 - a] * comb(most + f, a + f) for f, a, factor in _coefficients(cells)
    )


@dataclass(frozen=True)
class BallSeries:
    """Numerators of power series in the radius: ``sum_R q^R f(R) = sum_j numerators[j] q^j / (1 - q)^power``.

    Attributes:
        vectors: f(R) the number of vectors of the ball, ``power`` = dimension + 1.
        squares: for each size of a block, f(R) the sum of squares of one of its cells; ``power`` = dimension + 3.
        sums: f(R) the sum of squares of the common sum, in the same way.
    """

    vectors: tuple[int, ...]
    squares: dict[int, tuple[int, ...]]
    sums: tuple[int, ...]


@lru_cache(maxsize=64)
def ball_series(sizes: tuple[int, ...], *, level: bool) -> BallSeries:
    """All series of one vector of blocks.

    Cost: grows with the square of the dimension: some milliseconds for 25, about a second for 512.
    """
    dimension = dimension_of(sizes, level=level)
    radii = dimension + 3
    blocks = Counter(sizes)
    tables = {cells: _tables(cells, radii) for cells in blocks}
    whole: _Integers | int = 1
    for cells, many in blocks.items():
        whole = whole * tables[cells][0] ** many
    assert not isinstance(whole, int)
    squares = {}
    for cells, (vectors, own) in tables.items():
        others: Any = vectors ** (blocks[cells] - 1)
        for other, many in blocks.items():
            if other != cells:
                others = others * tables[other][0] ** many
        squares[cells] = _numerators(_balls(others * own, level=level), dimension + 3)
    weights = np.array([s * s for s in range(radii)], dtype=object)[:, None]
    return BallSeries(
        _numerators(_balls(whole, level=level)[: dimension + 1], dimension + 1),
        squares,
        _numerators(_balls(whole * weights, level=level), dimension + 3),
    )


def _tables(cells: int, radii: int) -> tuple[_Integers, _Integers]:
    """By sum ``s`` and largest negative sum ``t``: numbers of blocks, and sums of squares of a cell."""
    size = 2 * radii
    other = np.zeros((size, size), dtype=object)  # by positive and negative sum, of cells but one
    other[0, 0] = 1
    for _ in range(cells - 1):
        other = _with_cell(other)
    # A cell v > 0 counts v^2: the series x (1 + x) / (1 - x)^3, on either side.
    squares = np.zeros_like(other)
    for axis in (0, 1):
        moved = np.moveaxis(other, axis, 0)
        for _ in range(3):
            moved = np.cumsum(moved, axis=0)
        own = np.zeros_like(moved)
        own[1:] += moved[:-1]
        own[2:] += moved[:-2]
        squares += np.moveaxis(own, 0, axis)
    return _along(_with_cell(other), radii), _along(squares, radii)


def _with_cell(table: _Integers) -> _Integers:
    """One cell more: zero or positive, or negative."""
    found: _Integers = np.cumsum(table, axis=0)
    found[:, 1:] += np.cumsum(table, axis=1)[:, :-1]
    return found


def _along(table: _Integers, radii: int) -> _Integers:
    """Entry (s, t): the sum over negative sums n up to t of the entries (s + n, n)."""
    s, n = np.ogrid[:radii, :radii]
    found: _Integers = np.cumsum(table[s + n, n], axis=1)
    return found


def _balls(table: _Integers, *, level: bool) -> list[int]:
    """Sums over the ball of each radius; sums ``-s`` have as many vectors as ``s``."""
    radii = len(table)
    if level:
        return [int(table[0, t]) for t in range(radii)]
    return [
        int(table[0, radius // 2] + 2 * sum(table[s, (radius - s) // 2] for s in range(1, radius + 1)))
        for radius in range(radii)
    ]


def _numerators(values: list[int], power: int) -> tuple[int, ...]:
    """``values`` as a series, times ``(1 - q)^power``."""
    for _ in range(power):
        values = [b - a for a, b in zip([0, *values], values, strict=False)]
    return tuple(values)


#: Sums of ``MAX_DIMENSION`` geometric numbers of the largest scale stay far below it.
_LARGEST = 1 << 60


@dataclass(frozen=True)
class HistogramsNoise:
    """Noise for histograms of ``sizes`` cells, laid end to end: ``Pr[z] ~ exp(-norm(z) / scale)``.

    The integer vectors z are those whose blocks all have the same sum, and the norm is the largest L1 norm of a block.
    With ``level`` that sum is 0, and the norm is half the largest L1 norm.

    Guarantee: pure DP with ``epsilon = 1 / scale`` for one record of the histograms' table: one that is there or not
    (not ``level``), or one whose values are replaced (``level``; the number of records is then public). A record is in
    one cell of each block, so it moves the norm by at most 1; and it keeps the sums of the blocks equal.

    >>> HistogramsNoise(Fraction(1), (3,) * 12).describe()
    'jointly drawn noise on 12 histograms of 36 cells, of scale 1 (standard deviations 7.529)'
    """

    scale: Fraction
    sizes: tuple[int, ...]
    level: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", exact_parameter(self.scale, "scale", MAX_SCALE))
        object.__setattr__(self, "sizes", tuple(self.sizes))
        least = 2 if self.level else 1
        if not self.sizes or min(self.sizes) < least:
            raise ConfigError(
                "a histogram has too few cells for joint noise",
                where="sizes",
                allowed=f"{least} or more each",
            )
        if self.dimension > MAX_DIMENSION:
            raise ConfigError(
                f"histograms of {sum(self.sizes)} cells cannot be drawn together",
                where="sizes",
                allowed=f"{MAX_DIMENSION} dimensions",
            )

    @property
    def cells(self) -> int:
        """Of one draw."""
        return sum(self.sizes)

    @property
    def dimension(self) -> int:
        """Of the vectors that may be drawn."""
        return dimension_of(self.sizes, level=self.level)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each block begins."""
        return tuple(accumulate(self.sizes, initial=0))[:-1]

    def variance_of(self, cells: int) -> float:
        """Of one cell of a block of so many cells."""
        return self._variances[cells]

    @cached_property
    def _variances(self) -> dict[int, float]:
        series = ball_series(self.sizes, level=self.level)
        return {cells: self._moment(own) for cells, own in series.squares.items()}

    @cached_property
    def sum_variance(self) -> float:
        """Of the sum of a block, which is the same of all blocks."""
        return 0.0 if self.level else self._moment(ball_series(self.sizes, level=self.level).sums)

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """Of a cell of each block."""
        return tuple(map(self.variance_of, self.sizes))

    @cached_property
    def variance(self) -> float:
        """Of a cell, on average over all cells."""
        own = sum(c * v for c, v in zip(self.sizes, self.variances, strict=True))
        return own / sum(self.sizes)

    def covariance_within(self, cells: int) -> float:
        """Of two cells of one block of so many cells."""
        if cells == 1:
            return 0.0
        return (self.sum_variance - cells * self.variance_of(cells)) / (cells * (cells - 1))

    def describe(self) -> str:
        """The law in words, for plans and manifests."""
        errors = sorted({float(f"{v**0.5:.4g}") for v in self.variances})
        told = f"{errors[0]:.4g}" if len(errors) == 1 else f"{errors[0]:.4g} to {errors[-1]:.4g}"
        public = ", whose sums are public" if self.level else ""
        return (
            f"jointly drawn noise on {len(self.sizes)} histograms of {sum(self.sizes)} cells{public}, of scale "
            f"{self.scale} (standard deviations {told})"
        )

    def check(self, exact: NDArray[np.int64]) -> None:
        """That a vector may get this noise: the guarantee needs histograms of the same records.

        Errors:
            ConfigError: another length, or blocks with different sums. Says no count.
        """
        if exact.shape != (sum(self.sizes),):
            raise ConfigError("counts and joint noise differ in cells", where="noise")
        sums = np.add.reduceat(exact, self.starts)
        if (sums != sums[0]).any():
            raise ConfigError("joint histograms must count the same records", where="noise")

    def norm(self, moved: NDArray[np.int64]) -> int:
        """Of a vector; its loss, where noise moves by it, is at most the norm over the scale."""
        largest = int(np.add.reduceat(np.abs(moved), self.starts).max())
        return -(-largest // 2) if self.level else largest

    def sample(self, words: WordSource) -> NDArray[np.int64]:
        """One exact draw of the whole vector; mechanisms call ``Randomness.measure``."""
        return _sampler(self.scale, self.sizes, self.level).sample(words)

    def _moment(self, numerators: Sequence[int]) -> float:
        """The mean of what was summed over balls, from its series and the vectors'."""
        rate = capped_float(1 / self.scale)
        vectors = ball_series(self.sizes, level=self.level).vectors
        return math.exp(_log_series(numerators, rate) - _log_series(vectors, rate)) / math.expm1(-rate) ** 2


@dataclass(frozen=True)
class HistogramCells:
    """The noise of one histogram that was drawn with others: ``cells`` of ``drawn``."""

    drawn: HistogramsNoise
    cells: int

    @property
    def variance(self) -> float:
        """Of one cell."""
        return self.drawn.variance_of(self.cells)

    @property
    def inner_variance(self) -> float:
        """Of a cell less that of the histogram's mean, as independent noise of this variance would have it."""
        return self.variance - self.drawn.covariance_within(self.cells)

    def variance_of_sum(self, squares: float, total: float) -> float:
        """Of a weighted sum of cells, by the sum of the squared weights and the sum of the weights."""
        own = self.inner_variance * (squares - total**2 / self.cells)
        return own + (total / self.cells) ** 2 * self.drawn.sum_variance


#: Independent in every cell, or a vector that is drawn as a whole.
AnyNoise = Noise | CubeNoise | HistogramsNoise


def sample(law: AnyNoise, size: int, words: WordSource) -> NDArray[np.int64]:
    """``size`` exact samples, or one of a whole vector of this size; mechanisms call ``Randomness.measure`` instead."""
    if isinstance(law, DiscreteLaplace | DiscreteGaussian):
        return sample_cells(law, size, words)
    if size != law.cells:
        raise ConfigError(f"a vector of {size} cells", where="joint noise", allowed=f"{law.cells} cells")
    return law.sample(words)


def _log_series(numerators: Sequence[int], rate: float) -> float:
    """The logarithm of ``sum_j numerators[j] q^j``; numerators may be beyond all floats."""
    logs = [math.log(h) - j * rate for j, h in enumerate(numerators) if h]
    return max(logs) + math.log(math.fsum(math.exp(log - max(logs)) for log in logs))


@lru_cache(maxsize=64)
def _sampler(scale: Fraction, sizes: tuple[int, ...], level: bool) -> _HistogramsSampler:
    return _HistogramsSampler(scale, sizes, level=level)


class _HistogramsSampler:
    """A radius R with ``Pr[R] ~ V(R) q^R``, V(R) the number of vectors of its ball; then a uniform vector of the ball.

    A vector of norm r is in all balls with ``R >= r``, each time with weight ``q^R``: together ``q^r / (1 - q)``. As
    ``V(R) = sum_j h_j C(R - j + D, D)`` with integers ``h_j >= 0``, j is drawn with weight ``h_j q^j``, and R is j plus
    the sum of ``D + 1`` geometric numbers. Then the common sum, the negative sum of each block, the number of its
    positive cells, which these are, and how sums are divided among cells: each by exact numbers of vectors.
    """

    def __init__(
        self, scale: Fraction, sizes: tuple[int, ...], *, level: bool, word_bits: int = WORD_BITS
    ) -> None:
        self.sizes, self.level = sizes, level
        self._dimension = dimension_of(sizes, level=level)
        self._first = InversionTable(_shares(1 / scale, ball_series(sizes, level=level).vectors), word_bits)
        self._geometric: Sampler = build_geometric(scale, word_bits)

    def sample(self, words: WordSource) -> NDArray[np.int64]:
        return self.in_ball(self.radius(words), words)

    def radius(self, words: WordSource) -> int:
        """Of the ball to draw from."""
        radius: int = int(self._first.sample(words(1), words)[0])
        radius += sum(int(g) for g in self._geometric.sample(self._dimension + 1, words).tolist())
        if radius >= _LARGEST:
            raise LimitError("noise beyond 64-bit integers", where="noise")
        return radius

    def in_ball(self, radius: int, words: WordSource) -> NDArray[np.int64]:
        """A uniform vector of a ball."""
        total = 0 if self.level else _common_sum(self.sizes, radius, words)
        most = radius if self.level else (radius - abs(total)) // 2
        block = [_block(cells, abs(total), most, words) for cells in self.sizes]
        value = np.array([cell for cells in block for cell in cells], dtype=np.int64)
        return -value if total < 0 else value


def _shares(rate: Fraction, numerators: Sequence[int]) -> Distribution:
    """``Pr[j] ~ numerators[j] q^j`` with ``q = exp(-rate)``, enclosed in integers. ``numerators[0]`` is 1."""
    # The sum is at least 1, so that errors of the terms, in units of 2^-work, only need their number of bits more.
    lost = sum(numerators).bit_length() + len(numerators).bit_length()

    def bounds(bits: int) -> Iterator[tuple[int, int]]:
        work = bits + lost + 64
        one, end = 1 << work, 1 << bits
        low, high = exp_bounds(rate, work)
        power_low = power_high = one
        lows, highs = [], []
        for numerator in numerators:
            lows.append(numerator * power_low)
            highs.append(numerator * power_high)
            power_low = power_low * low >> work
            power_high = (power_high * high >> work) + 1
        whole_low, whole_high = sum(lows), sum(highs)
        for at_low, at_high in zip(accumulate(lows[:-1]), accumulate(highs[:-1]), strict=True):
            yield (at_low << bits) // whole_high, min(-(-(at_high << bits) // whole_low), end)
        yield end, end

    return bounds


def _common_sum(sizes: tuple[int, ...], radius: int, words: WordSource) -> int:
    """The sum of every block of a uniform vector of the ball.

    Sums of one parity, from 1 on, have numbers of vectors that are a polynomial of degree ``dimension - 1``: its
    differences give numbers of vectors up to any sum, which are searched by bisection.
    """
    blocks = Counter(sizes)

    def vectors(total: int) -> int:
        most, found = (radius - total) // 2, 1
        for cells, many in blocks.items():
            found *= block_vectors(cells, total, most) ** many
        return found

    ladders = [_Ladder(vectors, first, radius, dimension_of(sizes, level=True)) for first in (1, 2)]
    at_zero, halves = vectors(0), [ladder.whole for ladder in ladders]
    place = uniform_below(at_zero + 2 * sum(halves), words)
    if place < at_zero:
        return 0
    place, negative = divmod(place - at_zero, 2)
    ladder, place = (ladders[0], place) if place < halves[0] else (ladders[1], place - halves[0])
    total = ladder.find(place)
    return -total if negative else total


_Points = Callable[[int], int]


class _Ladder:
    """Numbers of vectors with the sums ``first, first + 2, ...`` up to a radius, added up."""

    def __init__(self, vectors: _Points, first: int, radius: int, degree: int) -> None:
        self._first = first
        self._many = max(0, (radius - first) // 2 + 1)
        given = [vectors(first + 2 * i) for i in range(min(self._many, degree + 1))]
        self._sums = list(accumulate(given))
        self._differences: list[int] = []
        if self._many > len(given):
            while given:
                self._differences.append(given[0])
                given = [b - a for a, b in pairwise(given)]
        self.whole = self._upto(self._many - 1) if self._many else 0

    def find(self, place: int) -> int:
        """The sum that the vector number ``place`` has."""
        low, high = 0, self._many - 1
        while low < high:
            middle = (low + high) // 2
            if self._upto(middle) > place:
                high = middle
            else:
                low = middle + 1
        return self._first + 2 * low

    def _upto(self, i: int) -> int:
        if i < len(self._sums):
            return self._sums[i]
        ways, found = i + 1, 0
        for k, difference in enumerate(self._differences):
            found += difference * ways
            ways = ways * (i - k) // (k + 2)
        return found


def _block(cells: int, total: int, most: int, words: WordSource) -> list[int]:
    """A uniform block with the sum ``total >= 0`` and a negative sum up to ``most``."""
    place = uniform_below(block_vectors(cells, total, most), words)
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if block_vectors(cells, total, middle) > place:
            high = middle
        else:
            low = middle + 1
    negative, positive = low, low + total
    if positive == 0:
        return [0] * cells
    # With a negative sum at least one cell is not positive.
    many = range(1, min(cells if negative == 0 else cells - 1, positive) + 1)
    ways = [math.comb(cells, k) * math.comb(positive - 1, k - 1) * _shared(negative, cells - k) for k in many]
    place = uniform_below(sum(ways), words)
    count = many[next(i for i, upto in enumerate(accumulate(ways)) if upto > place)]
    above = _subset(cells, count, words)
    gains = _parts(positive - count, count, words)
    losses = _parts(negative, cells - count, words)
    chosen = set(above)
    return [gains.pop() + 1 if i in chosen else -losses.pop() for i in range(cells)]


def _shared(total: int, cells: int) -> int:
    """In how many ways a sum is divided among cells, some of which may get nothing."""
    return math.comb(total + cells - 1, cells - 1) if cells else int(total == 0)


def _parts(total: int, cells: int, words: WordSource) -> list[int]:
    """A sum divided among cells, each way with the same probability: bars between stars."""
    if cells == 0:
        return []
    bars = [-1, *_subset(total + cells - 1, cells - 1, words), total + cells - 1]
    return [after - before - 1 for before, after in pairwise(bars)]


def _subset(size: int, many: int, words: WordSource) -> list[int]:
    """A uniform subset of ``0 .. size - 1`` (Floyd), in order."""
    chosen: set[int] = set()
    for last in range(size - many, size):
        place = uniform_below(last + 1, words)
        chosen.add(last if place in chosen else place)
    return sorted(chosen)
