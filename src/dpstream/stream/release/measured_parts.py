"""What single measurements say of a marginal, and the weights with which their noise enters its cells."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import StoreDamagedError
from dpstream.core.privacy._histogram_law import has_law
from dpstream.core.privacy.cube import CubeNoise
from dpstream.core.privacy.joint import HistogramCells
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace
from dpstream.core.privacy.weighted_law import WeightedSum

#: A marginal of more columns of two values is not put together from sums of signs.
_MOST_SIGNS = 10


@dataclass(frozen=True)
class Coefficients:
    """How the noise of one draw enters a number.

    Attributes:
        weights: (absolute weight, number of values that have it).
        total: the sum of all weights, with their signs; it matters where the values' noise is not independent.
    """

    source: NoisyCounts
    weights: tuple[tuple[float, int], ...]
    total: float = 0.0


class Part(ABC):
    """The contribution of one draw to an estimated marginal."""

    @abstractmethod
    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """How its noise enters the sum of some cells."""


@dataclass(frozen=True)
class CellsOf(Part):
    """Cells of a measured marginal: ``each`` of them make one cell of the estimate."""

    source: NoisyCounts
    weight: float
    each: int

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        many = int(cells.sum()) * self.each
        return Coefficients(self.source, ((self.weight, many),), self.weight * many)


@dataclass(frozen=True)
class _Terms(Part):
    """Sums of signs of one draw: each is about the signs of some of the estimate's axes."""

    source: NoisyCounts
    weight: float
    axes: tuple[tuple[int, ...], ...]

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        found = Counter[float]()
        for axes in self.axes:
            sums = abs(float((sign_pattern(cells.ndim, axes) * cells).sum()))
            found[self.weight * sums / cells.size] += 1
        return Coefficients(self.source, tuple(found.items()))


@dataclass(frozen=True, eq=False)
class SumOf(Part):
    """The sum of some cells of an estimate, as a number of its own."""

    part: Part
    cells: NDArray[np.bool_]

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        return self.part.coefficients(self.cells if cells.all() else np.zeros_like(self.cells))


@dataclass(frozen=True)
class Way:
    """One way to know a marginal: independent of any other that shares no draw with it.

    Attributes:
        variance: of one cell.
    """

    values: NDArray[np.float64]
    variance: float
    parts: tuple[CellsOf | _Terms, ...]

    @property
    def shared(self) -> set[str]:
        """Draws, or series whose values share draws."""
        return {identity(part.source) for part in self.parts}


@dataclass(frozen=True)
class Combined:
    """An estimate from the measurements of some steps.

    Attributes:
        variance: of one cell.
        chosen: whether it rests on measurements that were chosen.
    """

    values: NDArray[np.float64]
    variance: float
    parts: tuple[Part, ...]
    chosen: bool

    @classmethod
    def mean(cls, ways: Sequence[Way]) -> Combined:
        """The mean of independent estimates, weighted by the inverse of their variances."""
        certain = [way for way in ways if way.variance == 0.0]
        ways = certain[:1] or ways
        precision = np.array([1.0 if certain else 1.0 / way.variance for way in ways])
        weights = (precision / precision.sum()).tolist()
        values = np.zeros(ways[0].values.shape)
        parts = list[Part]()
        for weight, way in zip(weights, ways, strict=True):
            values += weight * way.values
            parts += [replace(part, weight=part.weight * weight) for part in way.parts]
        variance = sum(w**2 * way.variance for w, way in zip(weights, ways, strict=True))
        return cls(values, float(variance), tuple(parts), False)

    def negative(self) -> Combined:
        """The same, to be taken away: the noise is symmetric."""
        return replace(self, values=-self.values)


def identity(one: NoisyCounts) -> str:
    """Two measurements with different ones are independent."""
    return f"draw {one.draw}" if one.series is None else f"series {one.series}"


def misfit(one: NoisyCounts) -> StoreDamagedError:
    """The error of noisy counts whose number is not that of their cells."""
    return StoreDamagedError(
        f"the noisy counts of {one.draw!r} do not fit the codebook", where="measurements"
    )


def was_chosen(one: NoisyCounts, term: Sequence[str] | None = None) -> bool:
    """Whether a marginal, or a sum of signs, was measured because of what was measured before."""
    chosen = one.query.get("chosen", False)
    if term is None or isinstance(chosen, bool):
        return bool(chosen)
    return any(set(term) == set(other) for other in chosen)


def projected(names: Sequence[str], one: NoisyCounts, sizes: Mapping[str, int]) -> Way:
    """A marginal from a measured one that has its columns."""
    columns = one.columns or ()
    table = one.values.reshape([sizes[name] for name in columns])
    others = tuple(axis for axis, name in enumerate(columns) if name not in names)
    kept = [name for name in columns if name in names]
    values = table.sum(axis=others).transpose([kept.index(name) for name in names])
    each = one.values.size // max(1, values.size)
    variance = each * one.variance
    if isinstance(one.noise, HistogramCells):
        variance = one.noise.variance_of_sum(each, each)
    return Way(values.astype(np.float64), variance, (CellsOf(one, 1.0, each),))


def sign_pattern(axes: int, chosen: Sequence[int]) -> NDArray[np.float64]:
    """The product of the signs of some axes, in the cells of a table of two values an axis."""
    sign = np.ones((1,) * axes)
    for axis in chosen:
        shape = [1] * axes
        shape[axis] = 2
        sign = sign * np.array([-1.0, 1.0]).reshape(shape)
    return sign


def decoded(names: Sequence[str], counts: Sequence[NoisyCounts], number: int | None) -> list[Way]:
    """A marginal of columns of two values from sums of products of their signs that were not chosen; nothing where one
    of them is missing.

    Args:
        number: of records, where it is public.
    """
    if len(names) > _MOST_SIGNS:
        return []
    values = np.zeros((2,) * len(names))
    variance, terms = 0.0, dict[str, tuple[NoisyCounts, list[tuple[int, ...]]]]()
    for size in range(len(names) + 1):
        for axes in itertools.combinations(range(len(names)), size):
            if not axes and number is not None:
                values += number / values.size
                continue
            wanted = {names[axis] for axis in axes}
            able = [
                (one, place)
                for one in counts
                for place, term in enumerate(one.query["terms"])
                if set(term) == wanted and not was_chosen(one, term)
            ]
            if not able:
                return []
            one, place = min(able, key=lambda found: found[0].variance)
            values = values + sign_pattern(len(names), axes) * float(one.values[place]) / values.size
            variance += one.variance / values.size**2
            terms.setdefault(one.draw, (one, []))[1].append(axes)
    if not terms and number is not None and names:
        return []
    parts = tuple(_Terms(one, 1.0, tuple(axes)) for one, axes in terms.values())
    return [Way(values, variance, parts)]


def add_up(found: Iterable[Coefficients]) -> WeightedSum:
    """The law of the sum of independent contributions."""
    parts, joint = Counter[tuple[object, float]](), Counter[tuple[CubeNoise, tuple[float, ...]]]()
    histograms = Counter[tuple[HistogramCells, int, float]]()
    loose = laplace = 0.0
    for one in found:
        weights = [(weight, count) for weight, count in one.weights if weight and count]
        noise = one.source.noise
        if isinstance(noise, CubeNoise):
            every = tuple(sorted(itertools.chain.from_iterable([w] * n for w, n in weights)))
            joint[noise, every] += 1
            continue
        if isinstance(noise, HistogramCells):
            if len(weights) == 1 and has_law(noise, many := weights[0][1]):
                weight = weights[0][0]
                if math.isclose(abs(one.total), weight * many):  # none of them is taken away
                    histograms[noise, many, weight] += 1
                    continue
            squares = sum(count * weight**2 for weight, count in weights)
            loose += noise.variance_of_sum(squares, one.total)
            continue
        law = one.source.law
        for weight, count in weights:
            if isinstance(law, WeightedLaplace):
                laplace += weight**2 * count * law.variance
            elif isinstance(law, NoiseSum):
                for draw, many in law.parts:
                    parts[draw, weight] += many * count
            else:
                loose += weight**2 * count * one.source.variance
    return WeightedSum(
        tuple((noise, weight, count) for (noise, weight), count in parts.items()),  # type: ignore[misc]
        tuple((noise, weights, count) for (noise, weights), count in joint.items() if weights),
        loose,
        laplace,
        tuple((noise, many, weight, count) for (noise, many, weight), count in histograms.items()),
    )
