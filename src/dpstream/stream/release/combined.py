"""Published noisy counts put together into a marginal, with the weights of their noise: sums, means, least squares.

The page docs/theory/measurements.md says what holds, and why.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import LimitError, StoreDamagedError
from dpstream.core.privacy import CubeNoise, HistogramCells
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace, WeightedSum, has_law
from dpstream.core.schema.trees import Fitted, Tree

# What single measurements say of a marginal, and the weights with which their noise enters its cells.

#: A marginal of more columns of two values is not put together from sums of signs.
_MAX_SIGNS = 10
#: Smaller weights are what rounding left of those that cancelled.
_CANCELLED = 1e-12
#: Some of a marginal's axes.
Axes = tuple[int, ...]


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


class Part(Protocol):
    """The contribution of one draw to an estimated marginal."""

    @property
    def source(self) -> NoisyCounts:
        """The draw."""
        ...

    @property
    def key(self) -> Any:
        """Parts with equal keys are multiples of the same noise."""
        ...

    def scaled(self, weight: float) -> Any:
        """Its part in a weighted sum."""
        ...

    def plus(self, other: Any) -> Any:
        """The sum of two parts with equal keys; None where they cancel."""
        ...

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """How its noise enters the sum of some cells, or of all cells times numbers that are given in their place."""
        ...


class _Weighted:
    """A part whose multiple has another weight."""

    weight: float

    def scaled(self, weight: float) -> Self:
        """See ``Part``."""
        return replace(self, weight=self.weight * weight)  # type: ignore[type-var]

    def plus(self, other: Self) -> Self | None:
        """See ``Part``."""
        weight = self.weight + other.weight
        return replace(self, weight=weight) if abs(weight) > _CANCELLED else None  # type: ignore[type-var]


class _OfPart:
    """What follows from another part."""

    part: Part

    @property
    def source(self) -> NoisyCounts:
        """What was measured."""
        return self.part.source

    def scaled(self, weight: float) -> Self:
        """See ``Part``."""
        return replace(self, part=self.part.scaled(weight))  # type: ignore[type-var]

    def plus(self, other: Self) -> Self | None:
        """See ``Part``."""
        part = self.part.plus(other.part)
        return None if part is None else replace(self, part=part)  # type: ignore[type-var]


@dataclass(frozen=True)
class CellsOf(_Weighted):
    """Cells of a measured marginal: ``each`` of them make one cell of the estimate."""

    source: NoisyCounts
    weight: float
    each: int

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """See ``Part``."""
        sizes, counts = np.unique(np.abs(cells[cells != 0]), return_counts=True)
        pairs = [
            (abs(self.weight) * float(size), count * self.each)
            for size, count in zip(sizes, counts.tolist(), strict=True)
        ]
        return Coefficients(self.source, tuple(pairs), self.weight * self.each * float(cells.sum()))

    @property
    def key(self) -> Any:
        """See ``Part``."""
        return self.source.draw, self.source.columns, self.each


@dataclass(frozen=True)
class Interactions:
    """How one draw enters some interactions of an estimate (least squares, below).

    Attributes:
        common: the axes of the estimate whose columns the draw measured, where it is a marginal.
        shares: by interaction: its share in the weighted mean.
    """

    source: NoisyCounts
    common: Axes
    shares: tuple[tuple[Axes, float], ...]

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """See ``Part``."""
        found = Counter[float]()
        if self.source.columns is None:
            for axes, share in self.shares:
                sign = float((sign_pattern(cells.ndim, axes) * cells).sum())
                found[abs(share * sign) / cells.size] += 1
            return Coefficients(self.source, tuple(found.items()))
        shape = [size if axis in self.common else 1 for axis, size in enumerate(cells.shape)]
        entering = np.zeros(shape)
        for axes, share in self.shares:
            entering += share * _interaction(cells.astype(np.float64), axes)
        each = self.source.values.size // entering.size
        sizes, counts = np.unique(np.round(np.abs(entering), 12), return_counts=True)
        return Coefficients(
            self.source,
            tuple((size, count * each) for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)),
            float(entering.sum()) * each,
        )

    @property
    def key(self) -> Any:
        """See ``Part``."""
        return self.source.draw, self.source.columns, self.common

    def scaled(self, weight: float) -> Interactions:
        """See ``Part``."""
        return replace(self, shares=tuple((axes, weight * share) for axes, share in self.shares))

    def plus(self, other: Interactions) -> Interactions | None:
        """See ``Part``."""
        summed = Counter[Axes]()
        for axes, share in (*self.shares, *other.shares):
            summed[axes] += share  # type: ignore[assignment]
        left = tuple((axes, share) for axes, share in summed.items() if abs(share) > _CANCELLED)
        return replace(self, shares=left) if left else None


@dataclass(frozen=True)
class TreeCells(_Weighted):
    """How the noise of one level's draw enters the estimates of a level (``trees``).

    Attributes:
        measured, estimated: the levels, the top being 0.
        each: so many measured cells make a node.
    """

    source: NoisyCounts
    fitted: Fitted
    measured: int
    estimated: int
    weight: float = 1.0
    each: int = 1

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """See ``Part``. Of many different weights the small ones are rounded up, so that no interval is too short."""
        weights = self.weight * self.fitted.weights(self.estimated, cells.reshape(-1))[self.measured]
        sizes, counts = np.unique(np.round(np.abs(weights), 12), return_counts=True)
        small = sizes[:-_EXACT_WEIGHTS][sizes[:-_EXACT_WEIGHTS] > 0.0]
        if len(small):
            at = slice(len(sizes) - _EXACT_WEIGHTS - len(small), len(sizes) - _EXACT_WEIGHTS)
            sizes[at] = np.exp2(np.ceil(np.log2(small) * _STEPS_OF_2) / _STEPS_OF_2)
        found = Counter[float]()
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            found[size] += count * self.each
        return Coefficients(self.source, tuple(found.items()), float(weights.sum()) * self.each)

    @property
    def key(self) -> Any:
        """See ``Part``."""
        return self.source.draw, self.source.columns, self.fitted, self.estimated


@dataclass(frozen=True)
class OfTop(_Weighted, _OfPart):
    """How what others say of a tree's top enters the estimates of a level: ``part`` is of the number of records."""

    part: Part
    fitted: Fitted
    estimated: int
    weight: float = 1.0

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """See ``Part``."""
        weight = self.weight * float(self.fitted.weights(self.estimated, cells.reshape(-1))[0][0])
        found: Coefficients = self.part.scaled(weight).coefficients(np.ones((), dtype=np.bool_))
        return found

    @property
    def key(self) -> Any:
        """See ``Part``."""
        return self.part.key, self.fitted, self.estimated


#: Of a tree's weights so many are exact; the others are rounded up, to so many sizes between a number and its double.
_EXACT_WEIGHTS, _STEPS_OF_2 = 32, 8


@dataclass(frozen=True, eq=False)
class SumOf(_OfPart):
    """The sum of some cells of an estimate, as a number of its own."""

    part: Part
    cells: NDArray[np.bool_]

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """See ``Part``."""
        return self.part.coefficients(self.cells if cells.all() else np.zeros_like(self.cells))

    @property
    def key(self) -> Any:
        """See ``Part``."""
        return self.part.key, self.cells.tobytes()


@dataclass(frozen=True, eq=False)
class Inside(_OfPart):
    """What a draw says of the first cells of a marginal: values that were discovered later had no cell yet."""

    part: Part
    shape: tuple[int, ...]

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """See ``Part``."""
        return self.part.coefficients(cells[tuple(slice(size) for size in self.shape)])

    @property
    def key(self) -> Any:
        """See ``Part``."""
        return self.part.key


@dataclass(frozen=True)
class Combined:
    """What the measurements of some steps say of a marginal.

    Attributes:
        variance: of one cell.
        chosen: whether it rests on measurements that were chosen.
        kinds: where cells differ in their errors: those of one kind do not.
    """

    values: NDArray[np.float64]
    variance: float
    parts: tuple[Part, ...]
    chosen: bool = False
    kinds: NDArray[np.int64] | None = None

    @property
    def shared(self) -> set[str]:
        """Draws, or series whose values share draws: what has none in common is independent."""
        return {identity(part.source) for part in self.parts}

    @classmethod
    def mean(cls, ways: Sequence[Combined]) -> Combined:
        """The mean of independent estimates, weighted by the inverse of their variances."""
        certain = [way for way in ways if way.variance == 0.0]
        ways = certain[:1] or ways
        precision = np.array([1.0 if certain else 1.0 / way.variance for way in ways])
        weights = (precision / precision.sum()).tolist()
        values = np.zeros(ways[0].values.shape)
        parts = list[Part]()
        for weight, way in zip(weights, ways, strict=True):
            values += weight * way.values
            parts += [part.scaled(weight) for part in way.parts]
        variance = sum(w**2 * way.variance for w, way in zip(weights, ways, strict=True))
        return cls(values, float(variance), tuple(parts))

    @classmethod
    def sum(cls, found: Sequence[Combined]) -> Combined:
        """The sum of independent estimates."""
        values = np.sum([one.values for one in found], axis=0)
        parts = itertools.chain.from_iterable(one.parts for one in found)
        return cls(values, sum(one.variance for one in found), tuple(parts))

    def scaled(self, weight: float) -> Combined:
        """So many times the same."""
        parts = tuple(part.scaled(weight) for part in self.parts)
        return replace(self, values=weight * self.values, variance=weight**2 * self.variance, parts=parts)


#: Borders between spans that are put together at most.
_MOST_BORDERS = 1_000


def weights_of_spans(
    known: Mapping[tuple[int, int], Combined], begin: int, end: int
) -> dict[tuple[int, int], float]:
    """The weights of the best linear unbiased estimate of what the steps after ``begin`` up to ``end`` hold, from
    independent sums over spans of steps: spans that meet at a border follow each other, and every way counts. They are
    the currents through a network whose resistances are the variances. Empty where draws are in two spans.
    """
    draws = [one.shared for one in known.values()]
    borders = sorted({border for first, last in known for border in (first - 1, last)})
    independent = sum(map(len, draws)) == len(set[str]().union(*draws))
    if not independent or len(borders) > _MOST_BORDERS or any(o.variance <= 0.0 for o in known.values()):
        return {}
    place = {border: number for number, border in enumerate(borders)}
    network, sent = np.zeros((len(borders), len(borders))), np.zeros(len(borders))
    for (first, last), one in known.items():
        ends = np.array([place[first - 1], place[last]])
        network[ends, ends] += 1.0 / one.variance
        network[ends, ends[::-1]] -= 1.0 / one.variance
    sent[[place[begin], place[end]]] = -1.0, 1.0
    heights = np.linalg.lstsq(network, sent, rcond=None)[0]
    found = {
        (first, last): float(heights[place[last]] - heights[place[first - 1]]) / one.variance
        for (first, last), one in known.items()
    }
    return {span: weight for span, weight in found.items() if abs(weight) > 1e-9}


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
    chosen = one.query.get("chosen", ())
    return bool(chosen) if term is None else any(set(term) == set(other) for other in chosen)


def projected(names: Sequence[str], one: NoisyCounts, sizes: Mapping[str, int]) -> Combined:
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
    return Combined(values.astype(np.float64), variance, (CellsOf(one, 1.0, each),))


def sign_pattern(axes: int, chosen: Sequence[int]) -> NDArray[np.float64]:
    """The product of the signs of some axes, in the cells of a table of two values an axis."""
    sign = np.ones((1,) * axes)
    for axis in chosen:
        shape = [1] * axes
        shape[axis] = 2
        sign = sign * np.array([-1.0, 1.0]).reshape(shape)
    return sign


def decoded(names: Sequence[str], counts: Sequence[NoisyCounts], number: int | None) -> list[Combined]:
    """A marginal of columns of two values from sums of products of their signs that were not chosen; nothing where one
    of them is missing.

    Args:
        number: of records, where it is public.
    """
    if len(names) > _MAX_SIGNS:
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
    parts = tuple(Interactions(one, (), tuple((own, 1.0) for own in axes)) for one, axes in terms.values())
    return [Combined(values, variance, parts)]


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


# Least squares over trees of levels that have one top.


def agreeing(
    trees: Sequence[Tree], levels: Sequence[Sequence[Combined]], number: Combined | None
) -> dict[tuple[str, ...], Combined]:
    """The number of records and each level, so that all agree; all that is given is independent.

    Args:
        levels: of each tree, what was measured of its levels, the coarsest first.
        number: what else is known of the number of records.
    """
    found = dict[tuple[str, ...], Combined]()
    alone = [_estimated(tree, own, None, 0) for tree, own in zip(trees, levels, strict=True)]
    for place, (tree, own) in enumerate(zip(trees, levels, strict=True)):
        others = [*([] if number is None else [number]), *alone[:place], *alone[place + 1 :]]
        top = Combined.mean(others) if others else None
        for level, columns in enumerate([(), *((name,) for name in tree.columns)]):
            found[columns] = _estimated(tree, own, top, level)
    return found


def _estimated(tree: Tree, own: Sequence[Combined], top: Combined | None, level: int) -> Combined:
    """A level's estimate from what was measured of all levels, and what is known of the top."""
    fitted = tree.fitted((math.inf if top is None else top.variance, *(one.variance for one in own)))
    values = fitted.estimate(
        [np.zeros(1) if top is None else top.values.reshape(1), *(o.values for o in own)]
    )
    parts: list[Part] = [] if top is None else [OfTop(part, fitted, level) for part in top.parts]
    for measured, one in enumerate(own, 1):
        for part in one.parts:
            assert isinstance(part, CellsOf)
            parts.append(TreeCells(part.source, fitted, measured, level, part.weight, part.each))
    variance = float(fitted.covariances(level, np.arange(tree.sizes[level]) == 0)[level][0])
    shape = (tree.sizes[level],) if level else ()
    kinds = tree.kinds[level] if level else None
    return Combined(values[level].reshape(shape), variance, tuple(parts), kinds=kinds)


# Least squares over the measurements of one epoch that overlap.
#
# A table is the sum of its interactions: of the number of records, of what each column adds to it, of what each pair
# adds to its columns, and so on. A marginal with equal noise in its cells measures the interactions of its columns
# with errors that are not correlated with each other. So the best linear unbiased estimate of an interaction is the
# mean of what all measurements say of it, weighted by the inverse of their variances, and that of a marginal is the
# sum of its interactions. Proof: docs/theory/measurements.md.

#: Of a marginal that is found by least squares: it has 2 to this power interactions.
MAX_COLUMNS = 10


def least_squares(
    names: Sequence[str], counts: Sequence[NoisyCounts], sizes: Mapping[str, int], number: int | None
) -> Combined | None:
    """The best linear unbiased estimate of a marginal from the measurements of some steps; None where they miss one of
    its interactions.

    Args:
        number: of records, where it is public.

    Errors:
        LimitError: more than ``MAX_COLUMNS`` columns.
    """
    if len(names) > MAX_COLUMNS:
        raise LimitError(f"{len(names)} columns", where="least squares", allowed=f"{MAX_COLUMNS}")
    # Histograms of one joint draw have its name, and are different ones.
    sources = list({(identity(one), one.columns): one for one in counts}.values())
    shape = tuple(sizes[name] for name in names)
    values, cells = np.zeros(shape), math.prod(shape)
    shares: dict[int, list[tuple[Axes, float]]] = {}
    variance, chosen = 0.0, False
    for many in range(len(names) + 1):
        for axes in itertools.combinations(range(len(names)), many):
            if not axes and number is not None:
                values += number / cells
                continue
            told = _tellers([names[axis] for axis in axes], sources, sizes)
            if not told:
                return None
            # Of the cells of the interaction; those without noise know it.
            spreads = np.array([spread for _, _, spread in told])
            precision = (spreads == 0.0).astype(float) if (spreads == 0.0).any() else 1.0 / spreads
            weights = (precision / precision.sum()).tolist()
            others = cells // math.prod(shape[axis] for axis in axes)
            for (place, term, _), weight in zip(told, weights, strict=True):
                values += weight / others * _told(sources[place], term, axes, names, sizes)
                shares.setdefault(place, []).append((axes, weight))
                query = sources[place].query
                chosen |= was_chosen(sources[place], query["terms"][term] if "terms" in query else None)
            free = math.prod(1.0 - 1.0 / shape[axis] for axis in axes)
            variance += free * float(np.square(weights) @ spreads) / others**2
    parts = tuple(
        Interactions(sources[i], _common(names, sources[i]), tuple(own)) for i, own in shares.items()
    )
    return Combined(values, variance, parts, chosen)


def _tellers(
    wanted: Sequence[str], sources: Sequence[NoisyCounts], sizes: Mapping[str, int]
) -> list[tuple[int, int, float]]:
    """Who tells an interaction: (its place, its term where it is a sum of signs, the variance of a cell before the
    means are taken away)."""
    found, cells, summed = [], math.prod(sizes[name] for name in wanted), set[str]()
    for place, one in enumerate(sources):
        if one.columns is not None:
            if set(wanted) <= set(one.columns):
                each, spread = one.values.size // cells, one.variance
                if isinstance(one.noise, HistogramCells):
                    # All histograms of a joint draw have the same sum, with the same error: the first one tells it.
                    if not wanted and one.draw in summed:
                        continue
                    summed.add(one.draw)
                    sum_alone = one.noise.drawn.sum_variance / one.values.size
                    spread = one.noise.inner_variance if wanted else sum_alone
                found.append((place, -1, spread * each))
            continue
        for term, columns in enumerate(one.query["terms"]):
            if set(columns) == set(wanted):
                found.append((place, term, one.variance / cells))
    return found


def _told(
    one: NoisyCounts, term: int, axes: Axes, names: Sequence[str], sizes: Mapping[str, int]
) -> NDArray[np.float64]:
    """An interaction as one draw tells it, as a table that has the estimate's axes."""
    if one.columns is None:
        return sign_pattern(len(names), axes) * (float(one.values[term]) / float(2 ** len(axes)))
    table = one.values.reshape([sizes[name] for name in one.columns]).astype(np.float64)
    own = tuple(one.columns.index(names[axis]) for axis in axes)
    cells = math.prod(sizes[names[axis]] for axis in axes)
    inner = _interaction(table, own) * (one.values.size // cells)
    kept = inner.reshape([sizes[name] for axis, name in enumerate(one.columns) if axis in own])
    kept = kept.transpose([sorted(own).index(axis) for axis in own])
    shaped: NDArray[np.float64] = kept.reshape(
        [sizes[name] if axis in axes else 1 for axis, name in enumerate(names)]
    )
    return shaped


def _common(names: Sequence[str], one: NoisyCounts) -> Axes:
    return tuple(axis for axis, name in enumerate(names) if name in (one.columns or ()))


def _interaction(table: NDArray[np.float64], axes: Axes) -> NDArray[np.float64]:
    """What some axes add, on average over the others (which get the length 1)."""
    others = tuple(axis for axis in range(table.ndim) if axis not in axes)
    found = table.mean(axis=others, keepdims=True) if others else table
    for axis in axes:
        found = found - found.mean(axis=axis, keepdims=True)
    return found
