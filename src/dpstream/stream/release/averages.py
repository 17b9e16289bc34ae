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
from dpstream.stream.release.estimates import Estimate, Missing, Published
from dpstream.stream.release.fieller import MeasuredCells
from dpstream.stream.release.released_verdicts import clipped_words
from dpstream.stream.release.showing import codes_of

_Floats = NDArray[np.float64]
_HOLDS = "the interval holds the noise, the number of records, and all places in bins"
_SUM_HOLDS = "from measured sums: the interval holds their noise"


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
        counts: what was measured of the bins (or of sums) and of the condition's columns; or why nothing was.
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
        counts: Estimate | Published | None,
        *,
        sums: bool = False,
    ) -> Numbers:
        """Those of a column.

        Args:
            where: a condition such as ``"carrier = 'AA'"``; None: all records.
            table: gives the released one. counts: what was measured; an estimate stands for the table. sums: whether
                sums that were measured stand for the table, too.

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
        mean = f"mean({name})"
        if sums and isinstance(counts, Published) and (known := counts.sums([mean])) and name not in own:
            summed = known.estimate([mean if one == name else one for one in names])
            counts = summed if isinstance(summed, Estimate) else counts
        check_cells(schema.domain, tuple(map(schema.names.index, names)), "mean")
        values: _Floats | None = None
        measured: Estimate | Missing | None
        if isinstance(counts, Estimate):
            columns = tuple(name if one == mean else one for one in counts.columns)
            if not {*names} <= {*columns}:
                what = f"the estimate is of {' x '.join(counts.columns) or 'the number of records'}"
                raise ConfigError(
                    what, where="of", allowed=f"one of {' x '.join(names)}, such as release.flow"
                )
            names, measured = columns, counts
        else:
            rows, measured = table(), None if counts is None else counts.estimate(names)
            values = rows.column(name).to_numpy().astype(np.float64)
            if asked is not None and own:
                values = values[asked.mask()[tuple(codes_of(schema[one], rows) for one in own)]]
            values = values[~np.isnan(values)]
        measured_sizes = measured.values.shape if isinstance(measured, Estimate) else ()
        sizes = measured_sizes or tuple(schema[one].size for one in names)
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
            value = self._measured.mean(*self._places())
        return self._said(value, self._mean_ends)

    def quantile(self, share: float) -> Average:
        """The number that this share of them does not exceed.

        Errors:
            ConfigError: a share that is not above 0 and below 1.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share < 1.0:
            raise ConfigError(f"share = {share!r}", where="quantile", allowed="above 0 and below 1")
        if isinstance(self.counts, Estimate) and self.counts.ends is not None:
            raise ConfigError(
                "expected counts of bins, got sums",
                where="of",
                allowed=f'release.flow(["{self.column.name}"])',
            )
        if self.values is not None:
            value = float(np.quantile(self.values, share)) if len(self.values) else None
        else:
            ends = [float(self.column.lower[0]), *self.column.upper.astype(np.float64).tolist()]
            sums = [
                self._measured.sum(np.arange(self.column.bins) < many) for many in range(self.column.bins + 1)
            ]
            up_to = np.maximum.accumulate(sums)
            value = float(np.interp(share * up_to[-1], up_to, ends)) if up_to[-1] > 0.0 else None
        return self._said(value, partial(self._quantile_ends, share))

    def _places(self) -> tuple[_Floats, _Floats]:
        """Between which numbers lies what each code of the column stands for."""
        if isinstance(self.counts, Estimate) and self.counts.ends is not None:
            return self.counts.places
        return self.column.lower.astype(np.float64), self.column.upper.astype(np.float64)

    def _said(self, value: float | None, ends: Callable[[float], tuple[float, float]]) -> Average:
        counted, measured = clipped_words(self.column), self.counts
        if isinstance(measured, Estimate) and not measured.chosen:
            when = f"as of step {measured.as_of}" if measured.span is None else f"of {measured.span}"
            about = measured.about or f"the {measured.records} {when}"
            holds = _HOLDS if measured.ends is None else _SUM_HOLDS
            note = "; ".join(filter(None, [counted, f"{holds}; it is about {about}"]))
            return Average(value, note, measured.as_of, measured.span, ends)
        why = (
            f"no interval: {measured.reason.rstrip('.')}"
            if isinstance(measured, Missing)
            else "no interval is known"
        )
        return Average(value, "; ".join(filter(None, [counted, why])))

    @property
    def _measured(self) -> MeasuredCells:
        assert isinstance(self.counts, Estimate)
        counts = self.counts
        return MeasuredCells(counts.values, counts.law, self.axis, self.cells, counts.ends is not None)

    def _stands(self, each: NDArray[Any], confidence: float) -> bool:
        """Whether the true sum of a number for each bin may be 0 or more."""
        return self._measured.stands(each, confidence)

    def _mean_ends(self, confidence: float) -> tuple[float, float]:
        return self._measured.mean_ends(*self._places(), confidence)

    def _quantile_ends(self, share: float, confidence: float) -> tuple[float, float]:
        """The outer ends of the bins that measured counts do not refute: with the true counts, the quantile's bin and
        those below it hold the share of all records, and those below it alone do not."""
        bins = self.column.bins
        up_to = [(np.arange(bins) < many) - share for many in range(1, bins)]
        first = next((i for i, each in enumerate(up_to) if self._stands(each, confidence)), bins - 1)
        last = next((i for i in range(bins - 1, 0, -1) if self._stands(-up_to[i - 1], confidence)), 0)
        return float(self.column.lower[first]), float(self.column.upper[max(first, last)])
