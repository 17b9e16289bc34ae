"""Averages and quantiles of a column of numbers: from the released table, with an interval from published counts.

Only the bins of numbers are known. So an interval holds the noise of all counts that enter, the number of records, and
every place that a number may have inside its bin. Public values only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.privacy.law import check_confidence
from dpstream.core.schema import Integer, Real, Schema, parse_predicate
from dpstream.stream.release.answers import check_cells
from dpstream.stream.release.estimates import Estimate, Missing
from dpstream.stream.release.released_verdicts import clipped_words
from dpstream.stream.release.showing import codes_of

_Floats = NDArray[np.float64]
#: Halvings of the range in which the end of an interval lies.
_HALVINGS = 12
_HOLDS = "the interval holds the noise, the number of records, and all places in bins"


@dataclass(frozen=True)
class Average:
    """A mean or a quantile of a column of numbers.

    Attributes:
        value: of the released table, or from measured counts and the middles of bins; None where there are none.
        note: as what numbers beyond the ends count, and what the interval holds.
        as_of: the step that the interval is about; None where there is none.
        span: of a flow: its steps, with their first and last day.
    """

    value: float | None
    note: str
    as_of: int | None = None
    span: Any = None
    #: Confidence -> both ends.
    _ends: Callable[[float], tuple[float, float]] | None = field(default=None, repr=False, compare=False)

    def interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """What the records as of step ``as_of`` gave lies between these with that probability or more; None where
        their counts were not measured. ``value`` may lie outside.

        Errors:
            ConfigError: a confidence that is not above 0 and below 1 (up to 0.999999).
        """
        check_confidence(confidence)
        return None if self._ends is None else self._ends(confidence)


def columns_of(schema: Schema, name: str, where: str | None) -> list[str]:
    """A column, and those that a condition reads, in the schema's order."""
    own = () if where is None else parse_predicate(where, schema).columns
    return sorted({name, *(schema.names[i] for i in own)}, key=list(schema.names).index)


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers of some records.

    Attributes:
        values: of the released table; None: what was measured stands for them.
        counts: what was measured of the bins and of the condition's columns; or why nothing was.
        axis: of the column in them. cells: those of the condition.
    """

    column: Integer | Real
    values: _Floats | None
    counts: Estimate | Missing | None
    axis: int
    cells: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        schema: Schema,
        name: str,
        where: str | None,
        table: Callable[[], Any],
        counts: Estimate | Callable[[Sequence[str]], Estimate | Missing | None],
    ) -> Numbers:
        """Those of a column.

        Args:
            where: a condition such as ``"carrier = 'AA'"``; None: all records.
            table: gives the released one. counts: what was measured of some columns; an estimate stands for the table.

        Errors:
            ConfigError, SchemaError: a column without numbers; a condition that cannot be read, or is about other
            columns than the estimate. LimitError: the columns have too many cells.
        """
        found = next((one for one in schema.columns if one.name == name), None)
        if not isinstance(found, Integer | Real):
            numeric = [column.name for column in schema.columns if isinstance(column, Integer | Real)]
            allowed = ", ".join(numeric) or "a schema with integer or real columns"
            raise ConfigError(f"expected a column of numbers, got {name!r}", where="mean", allowed=allowed)
        asked = None if where is None else parse_predicate(where, schema)
        own = [] if asked is None else [schema.names[i] for i in asked.columns]
        names: Sequence[str] = columns_of(schema, name, where)
        check_cells(schema.domain, tuple(map(schema.names.index, names)), "mean")
        values: _Floats | None = None
        measured: Estimate | Missing | None
        if isinstance(counts, Estimate):
            if not {*names} <= {*counts.columns}:
                what = f"the estimate is of {' x '.join(counts.columns) or 'the number of records'}"
                raise ConfigError(
                    what, where="of", allowed=f"one of {' x '.join(names)}, such as release.flow"
                )
            names, measured = counts.columns, counts
        else:
            rows, measured = table(), counts(names)
            values = rows.column(name).to_numpy().astype(np.float64)
            if asked is not None and own:
                values = values[asked.mask()[tuple(codes_of(schema[one], rows) for one in own)]]
            values = values[~np.isnan(values)]
        sizes = [schema[one].size for one in names]
        cells = np.ones((1,) * len(names), dtype=np.bool_)
        if asked is not None:
            order = [own.index(one) for one in names if one in own]
            shape = [size if one in own else 1 for one, size in zip(names, sizes, strict=True)]
            cells = asked.mask().transpose(order).reshape(shape)
        return cls(found, values, measured, list(names).index(name), np.broadcast_to(cells, sizes))

    def mean(self) -> Average:
        """Their average."""
        if self.values is not None:
            value = float(self.values.mean()) if len(self.values) else None
        else:
            number = self._sum(np.ones(self.column.bins))
            middles = (self.column.lower + self.column.upper) / 2.0
            value = self._sum(middles) / number if number > 0.0 else None
        return self._said(value, self._mean_ends)

    def quantile(self, share: float) -> Average:
        """The number that this share of them does not exceed.

        Errors:
            ConfigError: a share that is not above 0 and below 1.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share < 1.0:
            raise ConfigError(f"share = {share!r}", where="quantile", allowed="above 0 and below 1")
        if self.values is not None:
            value = float(np.quantile(self.values, share)) if len(self.values) else None
        else:
            ends = [float(self.column.lower[0]), *self.column.upper.astype(np.float64).tolist()]
            sums = [self._sum(np.arange(self.column.bins) < many) for many in range(self.column.bins + 1)]
            up_to = np.maximum.accumulate(sums)
            value = float(np.interp(share * up_to[-1], up_to, ends)) if up_to[-1] > 0.0 else None
        return self._said(value, partial(self._quantile_ends, share))

    def _said(self, value: float | None, ends: Callable[[float], tuple[float, float]]) -> Average:
        counted, measured = clipped_words(self.column), self.counts
        if isinstance(measured, Estimate) and not measured.chosen:
            when = f"as of step {measured.as_of}" if measured.span is None else f"of {measured.span}"
            about = measured.about or f"the {measured.records} {when}"
            note = "; ".join(filter(None, [counted, f"{_HOLDS}; it is about {about}"]))
            return Average(value, note, measured.as_of, measured.span, ends)
        why = (
            f"no interval: {measured.reason.rstrip('.')}"
            if isinstance(measured, Missing)
            else "no interval is known"
        )
        return Average(value, "; ".join(filter(None, [counted, why])))

    def _spread(self, each: NDArray[Any]) -> _Floats:
        """A number for each bin, in all cells of the condition."""
        weights = np.zeros(self.cells.shape[self.axis])
        weights[: len(each)] = each
        shape = [-1 if axis == self.axis else 1 for axis in range(self.cells.ndim)]
        return weights.reshape(shape) * self.cells

    def _sum(self, each: NDArray[Any]) -> float:
        """The measured sum of a number for each bin over the records."""
        assert isinstance(self.counts, Estimate)
        return float((self._spread(each) * self.counts.values).sum())

    def _stands(self, each: NDArray[Any], confidence: float) -> bool:
        """Whether the true sum may be 0 or more."""
        assert isinstance(self.counts, Estimate)
        width = self.counts.law(self._spread(each)).half_width(confidence)
        return self._sum(each) + width >= 0.0

    def _mean_ends(self, confidence: float) -> tuple[float, float]:
        """Fieller's interval, by the law of the noise: means that measured sums do not refute.

        With the true counts, the sum of (right end - mean) over the records is not negative, nor that of (mean - left
        end). What may be added to a measured sum is convex in the mean: so one of the range is refuted from some place
        on, or nowhere.
        """
        low, high = float(self.column.lower[0]), float(self.column.last)
        number, found = self._sum(np.ones(self.column.bins)), []
        for ends, side, outer in ((self.column.lower, -1.0, low), (self.column.upper, 1.0, high)):
            inner = min(max(self._sum(ends) / number, low), high) if number > 0.0 else outer
            if not self._stands(side * (ends - outer), confidence):
                for _ in range(_HALVINGS):
                    middle = (inner + outer) / 2.0
                    stands = self._stands(side * (ends - middle), confidence)
                    inner, outer = (middle, outer) if stands else (inner, middle)
            found.append(outer)
        return found[0], found[1]

    def _quantile_ends(self, share: float, confidence: float) -> tuple[float, float]:
        """The outer ends of the bins that measured counts do not refute: with the true counts, the quantile's bin and
        those below it hold the share of all records, and those below it alone do not."""
        bins = self.column.bins
        up_to = [(np.arange(bins) < many) - share for many in range(1, bins)]
        first = next((i for i, each in enumerate(up_to) if self._stands(each, confidence)), bins - 1)
        last = next((i for i in range(bins - 1, 0, -1) if self._stands(-up_to[i - 1], confidence)), 0)
        return float(self.column.lower[first]), float(self.column.upper[max(first, last)])
