"""Guesses a column's declaration from private data. Everything here is read off the data."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema import arrow
from dpstream.core.schema.column import Column
from dpstream.core.schema.dates import Date, DateTime, read_date, read_time
from dpstream.core.schema.discrete import Boolean, Categorical
from dpstream.core.schema.numeric import Integer, Real

#: A text column with more different values than this is left out of the draft.
MOST_VALUES = 100
#: Whole numbers over a shorter span get one code each, longer spans get bins.
MOST_NUMBERS = 100
_BINS = 10
_FEW_ROWS = 20


@dataclass(frozen=True)
class Guess:
    """A drafted column, or the reason why there is none."""

    column: Column | None
    reason: str = ""


@dataclass(frozen=True)
class _Bins:
    """Labels of the bins that every drafted column gets, and whether its edges are the bounds alone."""

    missing: str | None
    other: str | None
    bounds_only: bool

    def edges(self, values: NDArray[np.float64], finest: int = -300) -> list[float]:
        """Drafted edges; what is not needed is not read off the data."""
        found = nice_edges(values, finest)
        return [found[0], found[-1]] if self.bounds_only else found


def guess_column(name: str, values: Any, *, bins: bool = True, bounds_only: bool = False) -> Guess:
    """Declaration of one column of a sample (an Arrow chunked array).

    Args:
        bins: with bins for nulls and for other values, whether or not the sample has any: a later value would stop
            the stream. Without: with a bin for nulls where the sample has some.
        bounds_only: with no edges between the first and the last one.
    """
    import pyarrow as pa

    chunks = [arrow.plain(chunk) for chunk in values.chunks]
    flat = pa.concat_arrays([c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in chunks])
    flat = flat if chunks else pa.nulls(0)
    full = flat.drop_null()
    if pa.types.is_floating(full.type):
        full = pa.array(_finite(full))
    missing = _label(full, "missing") if bins or len(full) < len(flat) else None
    if not len(full):
        return Guess(None, "it holds nothing")
    return _by_type(name, full, _Bins(missing, _label(full, "other") if bins else None, bounds_only))


def _finite(full: Any) -> NDArray[np.float64]:
    values = arrow.floats_of(full)
    return values[np.isfinite(values)]


def _label(full: Any, word: str) -> str:
    """The word. Where the data have it as a value, that value is the bin (labels in the data mean their bins), unless
    there would be no other value."""
    import pyarrow as pa

    kind = full.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    words = {"missing", "other"}
    return f"({word})" if text and set(full.unique().to_pylist()[:3]) <= words else word


def _by_type(name: str, full: Any, bins: _Bins) -> Guess:
    import pyarrow as pa

    kind = full.type
    if pa.types.is_boolean(kind):
        return Guess(Boolean(name, other=bins.other, missing=bins.missing))
    if pa.types.is_integer(kind):
        return _integer(name, arrow.integers_of(full), bins)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = arrow.floats_of(full)
        if (np.trunc(values) == values).all() and np.abs(values).max() < arrow.INEXACT:
            return _integer(name, values.astype(np.int64), bins)
        return _real(name, values, bins)
    if pa.types.is_date(kind):
        return _dates(name, full.cast(pa.date32()).unique().to_pylist(), bins)
    if pa.types.is_timestamp(kind):
        return _times(name, full, bins)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text(name, full.cast(pa.string()), bins)
    return Guess(None, f"data of type {kind} have no column type")


def _text(name: str, full: Any, bins: _Bins) -> Guess:
    import pyarrow as pa
    import pyarrow.compute as pc

    distinct = full.unique()
    words = distinct.to_pylist()
    if {word.lower() for word in words} <= {"true", "false"}:
        return Guess(Boolean(name, other=bins.other, missing=bins.missing))
    # A leading zero makes a number a code: ZIP codes, car plates, ids.
    coded = pc.any(pc.match_substring_regex(distinct, r"^[+-]?0\d")).as_py()
    if not coded:
        whole, _, readable, floats = arrow.text_numbers(distinct)
        if whole.all():
            return _integer(name, arrow.text_numbers(full)[1], bins)
        if readable.all() and np.isfinite(floats).all():
            return _real(name, arrow.text_numbers(full)[3], bins)
    days = [read_date(word) for word in words]
    if None not in days:
        return _dates(name, [day for day in days if day is not None], bins)
    times = [read_time(word) for word in words]
    if all(time is not None and time.tzinfo is None for time in times):
        return _times(name, pa.array(times, pa.timestamp("us")), bins)
    if len(words) > MOST_VALUES:
        return Guess(None, f"it holds text with more than {MOST_VALUES} different values")
    values = tuple(sorted(set(words) - {bins.missing, bins.other}, key=_order))
    return Guess(Categorical(name, values, other=bins.other, missing=bins.missing))


def _order(word: str) -> tuple[int, int, str]:
    """Numbers by size, then other words by letter."""
    return (0, len(word), word) if word.isdecimal() else (1, 0, word)


def _integer(name: str, values: NDArray[np.int64], bins: _Bins) -> Guess:
    low, high = int(values.min()), int(values.max())
    if low == 0 and high <= 1:
        return Guess(Boolean(name, other=bins.other, missing=bins.missing))
    furthest = max(abs(low), abs(high))
    if high - low < MOST_NUMBERS and furthest < arrow.INEXACT:
        return Guess(Integer(name, min=low, max=high, other=bins.other, missing=bins.missing))
    if len(values) > _FEW_ROWS and len(np.unique(values)) == len(values):
        return Guess(None, "no whole number occurs twice: it looks like an identifier")
    if furthest >= arrow.INEXACT // 2:
        return Guess(None, "its numbers are too large for bins")
    edges = tuple(int(edge) for edge in bins.edges(values.astype(np.float64), finest=0))
    return Guess(Integer(name, edges=edges, other=bins.other, missing=bins.missing))


def _real(name: str, values: NDArray[np.float64], bins: _Bins) -> Guess:
    if np.abs(values).max() > 1e300:
        return Guess(None, "its numbers are too large for bins")
    return Guess(Real(name, tuple(bins.edges(values)), other=bins.other, missing=bins.missing))


def nice_edges(values: NDArray[np.float64], finest: int = -300) -> list[float]:
    """About ten bins near the deciles, with short decimal edges that hold every value.

    An edge keeps two digits of itself or of the whole span, whichever is finer, and nothing below
    ``10 ** finest``.

    >>> nice_edges(np.linspace(3.07, 96.4, 1000))
    [3.0, 12.0, 22.0, 31.0, 40.0, 50.0, 59.0, 68.0, 78.0, 87.0, 97.0]
    """
    low, high = float(values.min()), float(values.max())
    inner = np.quantile(values, np.arange(1, _BINS) / _BINS).tolist()
    edges = [_nice(edge, high - low, finest) for edge in inner]
    first = _nice(low, high - low, finest, decimal.ROUND_FLOOR)
    last = _nice(high, high - low, finest, decimal.ROUND_CEILING)
    if 0 < first < (high - low) / 100:
        first = 0.0
    if first == last:
        last = _next_nice(first, finest)
    return [first, *sorted({edge for edge in edges if first < edge < last}), last]


def _nice(value: float, span: float, finest: int, rounding: str = decimal.ROUND_HALF_EVEN) -> float:
    sizes = [_exponent(x) - 1 for x in (value, span) if 0 < abs(x) < math.inf]
    exponent = max(min(sizes, default=0), finest)
    with decimal.localcontext(prec=400):
        unit = decimal.Decimal(1).scaleb(exponent)
        steps = (decimal.Decimal(repr(value)) / unit).to_integral_value(rounding)
        return float(steps * unit)


def _next_nice(value: float, finest: int) -> float:
    """A short number above ``value``: the right end of a single bin."""
    step = 10.0 ** max(_exponent(value) - 1 if value else 0, finest)
    return float(decimal.Decimal(repr(value)) + decimal.Decimal(repr(step)))


def _exponent(value: float) -> int:
    return decimal.Decimal(repr(value)).adjusted()


def _dates(name: str, days: list[dt.date], bins: _Bins) -> Guess:
    start, end, every = _period(min(days), max(days))
    return Guess(Date(name, start=start, end=end, every=every, other=bins.other, missing=bins.missing))


def _times(name: str, full: Any, bins: _Bins) -> Guess:
    import pyarrow as pa
    import pyarrow.compute as pc

    zone = full.type.tz
    local = full.cast(pa.timestamp("us", zone), safe=False)
    ends = pc.min_max(pc.local_timestamp(local) if zone else local).as_py()
    if zone is None and not (arrow.integers_of(local) % 86_400_000_000).any():
        return _dates(name, [ends["min"].date(), ends["max"].date()], bins)
    start, end, every = _period(ends["min"].date(), ends["max"].date())
    return Guess(
        DateTime(
            name, start=start, end=end, every=every, timezone=zone, other=bins.other, missing=bins.missing
        )
    )


def _period(first: dt.date, last: dt.date) -> tuple[dt.date, dt.date, str]:
    """A start, an end and a period that give a few dozen bins on calendar borders."""
    days = (last - first).days + 1
    if days <= 31:
        return first, last, "day"
    if days <= 200:
        return first - dt.timedelta(days=first.weekday()), last, "week"
    every = "month" if days <= 1_000 else "quarter" if days <= 4_000 else "year"
    return first.replace(month=1, day=1), last.replace(month=12, day=31), every
