"""Values of a question against a column's bins: which codes satisfy ``= value`` or ``< value``."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema.column import Column
from dpstream.core.schema.dates import Date, DateTime
from dpstream.core.schema.discrete import Boolean, Categorical
from dpstream.core.schema.domain import Mask
from dpstream.core.schema.numeric import Integer, Real

_Ordered = Integer | Real | Date | DateTime
_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Literal:
    """A value as it was written; ``quoted`` tells 'text' from a number."""

    text: str
    quoted: bool


def equal_mask(column: Column, value: Literal) -> Mask:
    """The codes that ``column = value`` means.

    Errors:
        ConfigError: the value names no bin (a slip must not answer 0), or is only a part of a bin.
    """
    labels = column.labels()
    codes = np.arange(column.size)
    for text in _spellings(column, value):
        if text in labels:
            return np.asarray(codes == labels.index(text))
    if not isinstance(column, _Ordered):
        raise _wrong(column, f"{value.text!r} is not one of its values", _some(labels))
    point = _point(column, value)
    lowest, highest = _ends(column)
    inside = np.flatnonzero((lowest <= point) & (point <= highest))
    if len(inside) and lowest[inside[-1]] == highest[inside[-1]]:
        return np.asarray(codes == inside[-1])
    what = "is only a part of a bin" if len(inside) else "is outside its bins"
    raise _wrong(column, f"{value.text!r} {what}", _some(labels))


def order_mask(column: Column, operator: str, value: Literal) -> Mask:
    """The codes that ``column < value`` (``<=``, ``>``, ``>=``) means; never ``missing`` or ``other``.

    Errors:
        ConfigError: the column has no order, or the value lies inside a bin.
    """
    if not isinstance(column, _Ordered):
        numeric = isinstance(column, Categorical) and all(isinstance(v, int) for v in column.values)
        if not numeric:
            raise _wrong(column, f"{operator} needs an order", "=, != and in")
        return _order_of_numbers(column, operator, value)
    point = _point(column, value)
    lowest, highest = _ends(column)
    # Whole bins below the point and whole bins above it; what is neither is cut.
    if operator in ("<", ">="):
        below = highest < point
        above = lowest >= point
        if isinstance(column, Real):
            below[:-1] = highest[:-1] <= point  # right ends of real bins are open, the last excepted
    else:
        below = highest <= point
        above = lowest > point
    cut = ~(below | above)
    if cut.any():
        label = column.labels()[int(np.flatnonzero(cut)[0])]
        raise _wrong(
            column, f"{operator} {value.text} cuts through the bin {label!r}", "values on a bin's border"
        )
    mask = np.zeros(column.size, dtype=np.bool_)
    mask[: column.bins] = below if operator in ("<", "<=") else above
    return mask


def compare_columns(column: Column, operator: str, other: Column) -> Mask:
    """The pairs of codes that ``column < other`` (``<=``, ``>``, ``>=``) means; never ``missing`` or ``other`` of one.

    Errors:
        ConfigError: columns without a common order, or bins that do not say which value is larger.
    """
    (lowest, highest, is_open), kind = _intervals(column)
    (other_lowest, other_highest, other_open), other_kind = _intervals(other)
    if kind is None or kind != other_kind:
        raise _wrong(
            column, f"it has no order with {other.name!r}", "two columns of numbers, of dates or of times"
        )
    low, high, right = lowest[:, None], highest[:, None], is_open[:, None]
    if operator in ("<", ">="):
        yes = np.asarray((high < other_lowest) | ((high == other_lowest) & right), dtype=np.bool_)
        no = np.asarray(low >= other_highest, dtype=np.bool_)
    else:
        yes = np.asarray(high <= other_lowest, dtype=np.bool_)
        no = np.asarray((low > other_highest) | ((low == other_highest) & other_open), dtype=np.bool_)
    unclear = np.argwhere(~(yes | no))
    if len(unclear):
        i, j = unclear[0].tolist()
        raise _wrong(
            column,
            f"a value in its bin {column.labels()[i]!r} and one in the bin {other.labels()[j]!r} of {other.name!r} may "
            "have either order",
            "columns whose bins do not overlap, or are the same single values",
        )
    mask = np.zeros((column.size, other.size), dtype=np.bool_)
    mask[: column.bins, : other.bins] = yes if operator in ("<", "<=") else no
    return mask


_Ends = tuple[NDArray[np.object_], NDArray[np.object_], NDArray[np.bool_]]


def _intervals(column: Column) -> tuple[_Ends, str | None]:
    """Lowest and highest value of each bin, whether the highest is outside; and of what kind they are, if ordered."""
    if isinstance(column, _Ordered):
        lowest, highest = _ends(column)
        is_open = np.zeros(len(lowest), dtype=np.bool_)
        is_open[:-1] = isinstance(column, Real)
        if isinstance(column, DateTime):
            return (lowest, highest, is_open), "time" if column.timezone is None else "time with a zone"
        return (lowest, highest, is_open), "date" if isinstance(column, Date) else "number"
    singles = np.array([], dtype=object)
    if isinstance(column, Categorical) and all(isinstance(value, int) for value in column.values):
        singles = np.array([Decimal(label) for label in column.bin_labels()], dtype=object)
    return (singles, singles, np.zeros(len(singles), dtype=np.bool_)), "number" if len(singles) else None


def _order_of_numbers(column: Column, operator: str, value: Literal) -> Mask:
    point = _number(column, value)
    compare = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[operator]
    mask = np.zeros(column.size, dtype=np.bool_)
    mask[: column.bins] = [
        getattr(Decimal(label), compare)(point) for label in column.labels()[: column.bins]
    ]
    return mask


def _spellings(column: Column, value: Literal) -> list[str]:
    """The label that a value may be written as, first as it stands."""
    if isinstance(column, Boolean):
        return [value.text, {"1": "true", "0": "false"}.get(value.text, value.text.lower())]
    if value.quoted or value.text in ("true", "false"):
        return [value.text]
    number = Decimal(value.text)
    return [value.text, str(int(number))] if number == number.to_integral_value() else [value.text]


def _ends(column: _Ordered) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Lowest and highest value of each bin as exact numbers (real bins: the open end)."""
    lowest = [Decimal(x) for x in column.lower.tolist()]
    # Nothing is subtracted from real ends: that would round them to the digits of the decimal context.
    highest = lowest[1:] if isinstance(column, Real) else [x - 1 for x in lowest[1:]]
    highest = [*highest, Decimal(column.last)]
    return np.array(lowest, dtype=object), np.array(highest, dtype=object)


def _point(column: _Ordered, value: Literal) -> Decimal:
    if isinstance(column, (Integer, Real)):
        return _number(column, value)
    try:
        if isinstance(column, Date):
            return Decimal(dt.date.fromisoformat(value.text).toordinal() - _EPOCH.toordinal())
        moment = dt.datetime.fromisoformat(value.text)
        if (moment.tzinfo is None) != (column.timezone is None):
            raise ValueError
        epoch = _EPOCH if moment.tzinfo is None else _EPOCH.replace(tzinfo=dt.UTC)
        return Decimal((moment - epoch) // dt.timedelta(microseconds=1))
    except ValueError:
        allowed = (
            "'2026-01-31'"
            if isinstance(column, Date)
            else "'2026-01-31T12:00:00', with an offset if the column has a time zone"
        )
        raise _wrong(column, f"{value.text!r} is not a label or a {column.type_name}", allowed) from None


def _number(column: Column, value: Literal) -> Decimal:
    if value.quoted or value.text in ("true", "false"):
        raise _wrong(column, f"{value.text!r} is not a label or a number", _some(column.labels()))
    if isinstance(column, Real):
        return Decimal(float(value.text))  # the edges are floats: compare like with like
    return Decimal(value.text)


def _wrong(column: Column, what: str, allowed: str) -> ConfigError:
    return ConfigError(what, where=f"answer, column {column.name!r}", allowed=allowed)


def _some(labels: tuple[str, ...]) -> str:
    return ", ".join(labels[:8]) + (f", ... ({len(labels)} in all)" if len(labels) > 8 else "")
