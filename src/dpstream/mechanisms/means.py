"""Means as headlines: sums of numbers, which are whole steps between two public ends, measured once a period.

A column whose mean is asked for is read in finer bins: one a step. Its declared codes follow from these.

Trusted base: kernel (counts and measures numbers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Headline, Periods, ends
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import Budget, Event, Noise, Randomness, noise_for
from dpstream.core.schema import Clique, Codes, Column, Domain, Integer, Real, Schema
from dpstream.core.schema.domain import Impossible, pack_mask
from dpstream.core.tables.counting import check_cells
from dpstream.mechanisms.run_outputs import RunOutput

#: The part of a budget that all means get together.
MEAN_SHARE = Fraction(1, 20)
#: Most steps between the ends of a column.
MOST_STEPS = 1_000
_NAME = re.compile(r"mean\((.+)\)")
_WHERE = "[accuracy] headline"


@dataclass(frozen=True, eq=False)
class Scale:
    """The numbers of a column as steps from its lower end.

    Attributes:
        fine: the column in finer bins. starts: the first fine code of each declared code.
        places: of each fine code, its number of steps; -1: it holds no numbers.
        unit: the length of a step; ``steps``: how many there are; ``error``: the largest distance of a number from
            the place that stands for it.
    """

    fine: Column
    starts: NDArray[np.int64]
    places: NDArray[np.int64]
    low: float
    unit: float
    steps: int
    error: float

    @cached_property
    def declared(self) -> NDArray[np.int64]:
        """The declared code of each fine one."""
        return np.searchsorted(self.starts, np.arange(self.fine.size), side="right") - 1

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, column: Integer | Real) -> Scale:
        """That of a column: one step for every whole number where there are not too many. Public."""
        low, high = column.limits()
        fine: Integer | Real = column
        unit, steps = (high - low) / MOST_STEPS, MOST_STEPS
        if isinstance(column, Real):
            cuts = {low + unit * (place + 0.5) for place in range(MOST_STEPS)}
            fine = replace(column, edges=tuple(sorted({*column.edges, *cuts})))
        else:
            unit = -((low - high) // MOST_STEPS)
            steps = -((low - high) // unit)
            if column.edges is not None and unit == 1:
                fine = replace(column, edges=None, min=low, max=high)
            elif column.edges is not None:
                whole = range(low + unit - unit // 2, high, unit)
                fine = replace(column, edges=tuple(sorted({*column.edges, *whole})))
        lower, upper = fine.lower.astype(np.float64), fine.upper.astype(np.float64)
        places = np.clip(np.rint(((lower + upper) / 2.0 - low) / unit), 0, steps)
        numbers = low + unit * places
        error = max(float(np.abs(upper - numbers).max()), float(np.abs(lower - numbers).max()))
        others = np.arange(fine.bins, fine.size)
        starts = np.concatenate([np.searchsorted(fine.lower, column.lower), others])
        held = np.concatenate([places, np.full(len(others), -1)]).astype(np.int64)
        return cls(fine, starts, held, float(low), float(unit), steps, error)


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of a column among all records, or those of each group."""

    column: str
    groups: tuple[str, ...]
    scale: Scale

    @property
    def names(self) -> tuple[str, ...]:
        """As a headline has them."""
        return (*self.groups, f"mean({self.column})")


def marginals_of(headline: Headline) -> Headline:
    """The headlines that are counts."""
    return tuple(names for names in headline if not any(map(_NAME.fullmatch, names)))


def means_of(headline: Headline, schema: Schema | None) -> tuple[Mean, ...]:
    """The headlines that are means: ``mean(delay)``, and with other columns beside it for each group of these.

    Errors:
        ConfigError: two means in a headline, or a mean twice; a column without numbers, or one that others follow from;
            a group that is not declared, or whose values are discovered.
    """
    found, columns, listed = list[Mean](), dict[str, Column](), list[str]()
    if schema is not None:
        columns = {column.name: column for column in schema.columns}
        listed = [name for name in columns if name not in schema.open_columns]
        for one in () if schema.constraints is None else schema.constraints.derived:
            columns = {name: column for name, column in columns.items() if name not in one.sources}
    for names in headline:
        means = [match[1] for match in map(_NAME.fullmatch, names) if match]
        if not means:
            continue
        column, groups = columns.get(means[0]), tuple(name for name in listed if name in names)
        single = isinstance(column, Integer | Real) and column.limits()[0] < column.limits()[1]
        twice = means[0] in groups or any((one.column, one.groups) == (means[0], groups) for one in found)
        if not single or twice or len(groups) + 1 != len(names):
            needs = "groups of listed values, each headline once" if single else "a column of numbers"
            allowed = 'such as ["mean(delay)", "carrier"]; nothing may follow from the column of numbers'
            raise ConfigError(f"{' x '.join(names)}: expected {needs}", where=_WHERE, allowed=allowed)
        assert isinstance(column, Integer | Real)
        found.append(Mean(means[0], groups, Scale.of(column)))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums for means, measured once a period, at its end: of each group two.

    Guarantee: ``budget`` for an event. A number of k steps adds ``steps - k`` to one sum of its group and k to the
    other: an event more or less moves both by ``steps`` together, and by its square at most in squares; one without a
    number moves neither. Replaced events move twice as much. An event is in one period, whose sums one measurement
    reads, and the next period's sums start again at nothing. Periods, ends and steps are public.

    Attributes:
        domain: of the declared columns. budget: of an event's period, for all means together, in equal parts.
    """

    periods: Periods
    means: tuple[Mean, ...]
    domain: Domain
    budget: Budget
    unit: Event

    @cached_property
    def scales(self) -> dict[int, Scale]:
        """By the place of their column."""
        return {self.domain.index(mean.column): mean.scale for mean in self.means}

    @cached_property
    def read_domain(self) -> Domain:
        """The codes of a batch."""
        sizes = list(self.domain.sizes)
        for place, scale in self.scales.items():
            sizes[place] = scale.fine.size
        return replace(self.domain, sizes=tuple(sizes), impossible=())

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """What is counted of a batch."""
        return tuple(self.domain.clique((mean.column, *mean.groups)) for mean in self.means)

    @cached_property
    def sizes(self) -> list[int]:
        """How many sums each mean has."""
        shapes = zip(self.means, self.cliques, strict=True)
        return [
            2 * self.domain.cells(clique) // self.domain.sizes[self.domain.index(m.column)]
            for m, clique in shapes
        ]

    @cached_property
    def noises(self) -> list[Noise]:
        """Of each mean's sums."""
        each, times = self.budget.scaled(Fraction(1, len(self.means))), self.unit.changed_cells
        steps = [mean.scale.steps for mean in self.means]
        return [noise_for(each, times * many, times * many**2) for many in steps]

    def check(self, cliques: Sequence[Clique]) -> None:
        """Refuse marginals that have too many cells as they are counted (LimitError)."""
        try:
            check_cells(self.read_domain, cliques)
        except LimitError as error:
            raise LimitError(error.what, where=_WHERE, allowed="fewer means") from None

    def ends(self, step: int, *last: int | None) -> bool:
        """Whether a period ends with a step; ``last``: the stream's last steps, as planned at any time."""
        return step in last or ends(self.periods, step)

    def declared(self, counts: Mapping[Clique, NDArray[np.int64]]) -> dict[Clique, NDArray[np.int64]]:
        """A batch's counts in declared codes. Private."""
        return {clique: self._coarse(counts[clique], clique).reshape(-1) for clique in counts}

    def _coarse(self, cells: NDArray[np.int64], clique: Clique, fine: int | None = None) -> NDArray[np.int64]:
        """A marginal in declared codes, with an axis for each column; that of ``fine`` stays as it was read."""
        table = cells.reshape(self.read_domain.shape(clique))
        for axis, place in enumerate(clique):
            if place in self.scales and place != fine:
                table = np.add.reduceat(table, self.scales[place].starts, axis=axis)
        return table

    def codes(self, read: Codes) -> Codes:
        """Declared codes of those of a batch."""
        found = read.copy()
        for place, scale in self.scales.items():
            found[:, place] = scale.declared[read[:, place]]
        return found

    def read(self, counts: Mapping[Clique, NDArray[np.int64]]) -> NDArray[np.int64]:
        """The sums of a batch's counts. Private. Of each group the sum of steps to the upper end, and to the lower."""
        sums = list[NDArray[np.int64]]()
        for mean, clique in zip(self.means, self.cliques, strict=True):
            places, column = mean.scale.places, self.domain.index(mean.column)
            down, up = np.where(places < 0, 0, mean.scale.steps - places), np.maximum(places, 0)
            table = np.moveaxis(self._coarse(counts[clique], clique, column), clique.index(column), -1)
            sums.append(table.dot(np.column_stack([down, up])).reshape(-1))
        return np.concatenate(sums)

    def of(self, columns: Sequence[str], record: Codes) -> NDArray[np.int64]:
        """What a record adds to the sums of a mean, by the columns of its query."""
        place, cells = [mean.names for mean in self.means].index(tuple(columns)), self.read_domain
        counts = {clique: np.zeros(cells.cells(clique), dtype=np.int64) for clique in self.cliques}
        for clique, table in counts.items():
            table[np.ravel_multi_index(tuple(record[list(clique)]), cells.shape(clique))] = 1
        return np.split(self.read(counts), np.cumsum(self.sizes))[place]

    def measure(self, sums: NDArray[np.int64], randomness: Randomness) -> list[RunOutput]:
        """Spend the period's budget once: all sums with noise, as they are published."""
        outputs, at = list[RunOutput](), 0
        for mean, size, noise in zip(self.means, self.sizes, self.noises, strict=True):
            query = {
                "kind": "mean",
                "columns": list(mean.names),
                "ends": [mean.scale.low, mean.scale.low + mean.scale.unit * mean.scale.steps],
                "error": mean.scale.error,
                "period": self.periods.name,
            }
            values = randomness.measure(sums[at : at + size], noise)
            outputs.append(RunOutput(f"headline {' x '.join(mean.names)}", query, values, noise))
            at += size
        return outputs

    def reading(self, schema: Schema) -> Schema:
        """The columns whose codes stand for private records."""
        scales, own = {mean.column: mean.scale for mean in self.means}, schema.constraints
        if own is not None:
            excluded = []
            for one in own.excluded:
                places = self.domain.clique(one.columns)
                mask = Impossible(places, one.cells).mask(self.domain).reshape(self.domain.shape(places))
                for axis, name in enumerate(one.columns):
                    mask = np.take(mask, scales[name].declared, axis=axis) if name in scales else mask
                excluded.append(replace(one, cells=pack_mask(mask)))
            own = replace(own, excluded=tuple(excluded))
        columns = (scales[c.name].fine if c.name in scales else c for c in schema.columns)
        return replace(schema, columns=tuple(columns), constraints=own)
