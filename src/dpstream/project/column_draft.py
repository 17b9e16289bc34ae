"""Drafts ``[schema]`` from data: what each column seems to hold, its bins, and what stands out about it.

A draft reads private data, so whatever it says is private until the owner has confirmed it. Nothing else guesses.

Trusted base: owner (drafts from private records).
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.schema import Boolean, Categorical, Column, Integer, Ordered, Real, arrow
from dpstream.core.schema.dates import Date, DateTime, read_date, read_time
from dpstream.project.schema_file import toml_key, toml_value

#: Rows that are looked at.
_ROWS = 100_000
#: Columns with so many different values are compared in pairs, and so many columns.
_VALUES, _COLUMNS = range(2, 1001), 40
#: Rows for each value from which on a rule counts; the share of rows that keep to it; and the most that a
#: column may be of one value, since everything seems to decide such a column.
_ROWS_EACH, _KEEP, _COMMON = 10, 0.99, 0.95
#: A column of fewer rows, or with a smaller share of different values, does not look like an identifier.
_FEW, _UNIQUE = 100, 0.9
#: Words for those who have records, and what goes with them in the name of a column.
_PERSONS = re.compile(
    "account|citizen|client|customer|driver|employee|guest|household|member|participant|passenger|patient|person|pupil|"
    "respondent|student|subject|tenant|user|visitor|worker"
)
_IDS = re.compile("id|key|number|no|nr|code")
#: So many different values, rows for each of them, and pairs of rows at one time that would have one value by chance,
#: count as a rule.
_NAMES, _EACH, _MEETINGS = 20, 2, 20
_LATITUDE, _LONGITUDE = ("lat", "latitude", "y"), ("lon", "lng", "long", "longitude", "x")


def is_text(column: Any) -> bool:
    """Whether an Arrow column or array holds texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def may_identify(column: Any) -> bool:
    """Whether a column holds texts or whole numbers."""
    import pyarrow as pa

    return is_text(column) or bool(pa.types.is_integer(column.type))


def words_in(name: str) -> list[str]:
    """The words in the name of a column, in small letters.

    >>> words_in("endYear"), words_in("pickup_lat")
    (['end', 'year'], ['pickup', 'lat'])
    """
    spaced = re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return "".join(c if c.isalnum() else " " for c in spaced.lower()).split()


def whose_column(table: Any, names: Sequence[str], time_column: str | None) -> str | None:
    """A column that may say whose a record is: its name says so, or its values come again over time and never twice at
    one time; None where there is none."""
    import pyarrow.compute as pc

    def may_be(name: str) -> bool:
        column = table.column(name)
        if name == time_column or column.null_count or not may_identify(column):
            return False
        different = len(column.unique())
        if different * _EACH > len(column):
            return False
        words = re.sub("id$", " id", " ".join(words_in(name))).split()
        persons = [word for word in words if _PERSONS.fullmatch(word)]
        if persons and all(word in persons or _IDS.fullmatch(word) for word in words):
            return True
        if "id" in words and different > _FEW:
            return True
        if time_column is None or different < _NAMES:
            return False
        times = np.asarray(pc.value_counts(table.column(time_column)).field(1), dtype=np.float64)
        if (times * (times - 1)).sum() < 2 * _MEETINGS * different:
            return False
        pairs = table.select([name, time_column]).group_by([name, time_column]).aggregate([])
        return bool(pairs.num_rows == table.num_rows)

    return next((name for name in names if may_be(name)), None)


def coordinates(table: Any, names: Sequence[str]) -> tuple[str, str] | None:
    """A column of latitudes and one of longitudes, by their names and their values; None where there are none."""
    found = [
        next(
            (name for name in names if set(words_in(name)) & set(words) and _lies(table.column(name), most)),
            None,
        )
        for words, most in ((_LATITUDE, 90), (_LONGITUDE, 180))
    ]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def followers(table: Any, names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of columns of which the second seems to follow from the first: nearly all rows with one value of the first
    have one value of the second. Each column follows from one other at most, which follows from none itself."""
    codes = {}
    for name in list(names)[:_COLUMNS]:
        own = _codes(table.column(name).slice(0, _ROWS))
        if own is not None:
            codes[name] = own
    found: dict[str, str] = {}
    # The coarser column first: a district follows from a ZIP code rather than from a street.
    sizes = {name: int(own.max()) + 1 for name, own in codes.items()}
    for whole, part in sorted(permutations(codes, 2), key=lambda pair: sizes[pair[0]]):
        free = part not in found and _source(whole, found) != part and sizes[part] <= sizes[whole]
        if free and _follows(codes[whole], codes[part], sizes[whole], sizes[part]):
            found[part] = whole
    return [(_source(whole, found), part) for part, whole in found.items()]


def _source(name: str, follows: Mapping[str, str]) -> str:
    """The column at the end of the chain: where a street follows from a house, and a district from the street."""
    while name in follows:
        name = follows[name]
    return name


def is_nearly_unique(column: Any) -> bool:
    """Whether hardly a value occurs twice, as in a column of identifiers."""
    import pyarrow.compute as pc

    if len(column) < _FEW:
        return False
    return bool(pc.count_distinct(column).as_py() >= _UNIQUE * len(column))


def _lies(column: Any, most: float) -> bool:
    """Whether a column holds numbers with decimal places, of this size at most."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = column.slice(0, _ROWS)
    if is_text(numbers):
        try:
            numbers = pc.cast(numbers, pa.float64())
        except pa.ArrowInvalid:
            return False
    if not pa.types.is_floating(numbers.type):
        return False
    values = numbers.drop_null().to_numpy()
    values = values[np.isfinite(values)]
    return bool(len(values) and np.abs(values).max() <= most and (values != np.round(values)).any())


def _codes(column: Any) -> NDArray[np.int64] | None:
    """The column's values by number; None where it has too many or too few for a rule, or is nearly all one value."""
    import pyarrow as pa

    if not may_identify(column):
        return None
    whole = column.combine_chunks().dictionary_encode(null_encoding="encode")
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if len(whole.dictionary) not in _VALUES or len(whole) < _ROWS_EACH * len(whole.dictionary):
        return None
    codes = whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return None if np.bincount(codes).max() > _COMMON * len(codes) else codes


def _follows(whole: NDArray[np.int64], part: NDArray[np.int64], whole_size: int, part_size: int) -> bool:
    """Whether the commonest value of ``part`` for each of ``whole`` is nearly always right."""
    if whole_size <= 2:
        return False  # flags that exclude each other are not a list of values
    together = np.bincount(whole * part_size + part, minlength=whole_size * part_size)
    return bool(together.reshape(whole_size, part_size).max(1).sum() >= _KEEP * len(whole))


#: A text column with more different values than this is left out of the draft.
MAX_VALUES = 100
#: Whole numbers over a shorter span get one code each, longer spans get bins.
MAX_NUMBERS = 50
#: Words beside at least so many numbers, in at most such a share of the rows, are other values: "unknown", "n/a".
_WORDS, _NUMBERS, _OF_ROWS = 3, 10, 0.1
_FEW_ROWS = 20
#: Bins end at the outer of these shares of the numbers, where those beyond go to the first and last bin.
_OUTER, _INNER = (0.01, 0.99), (*np.arange(1, 10) / 10, 0.95)


@dataclass(frozen=True)
class Guess:
    """A drafted column, or the reason why there is none."""

    column: Column | None
    reason: str = ""


@dataclass(frozen=True)
class _Bins:
    """Labels of the bins that every drafted column gets, whether its edges are the bounds alone, and whether numbers
    beyond them go to the outer bins."""

    missing: str | None
    other: str | None
    bounds_only: bool
    clips: bool

    def edges(self, values: NDArray[np.float64], finest: int = -300) -> list[float]:
        """Drafted edges; what is not needed is not read off the data."""
        found = nice_edges(values, finest, _OUTER if self.clips else (0.0, 1.0))
        return [found[0], found[-1]] if self.bounds_only else found

    @property
    def outside(self) -> str | None:
        """What happens to numbers beyond the edges."""
        return "clip" if self.clips else None


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
        floats = arrow.floats_of(full)
        full = pa.array(floats[np.isfinite(floats)])
    missing = _label(full, "missing") if bins or len(full) < len(flat) else None
    if not len(full):
        return Guess(None, "it holds nothing")
    made = _Bins(missing, _label(full, "other") if bins else None, bounds_only, bins and not bounds_only)
    guess = _by_type(name, full, made)
    if guess.column is None:
        return guess
    clips = "outside" in guess.column.spec()
    return Guess(replace(guess.column, other=None if clips else made.other, missing=made.missing))


def _label(full: Any, word: str) -> str:
    """The word. Where the data have it as a value, that value is the bin (labels in the data mean their bins), unless
    there would be no other value."""
    words = {"missing", "other"}
    return f"({word})" if is_text(full) and set(full.unique().to_pylist()[:3]) <= words else word


def _by_type(name: str, full: Any, bins: _Bins) -> Guess:
    import pyarrow as pa

    kind = full.type
    if pa.types.is_boolean(kind):
        return Guess(Boolean(name))
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
    if is_text(full):
        return _text(name, full.cast(pa.string()), bins)
    return Guess(None, f"data of type {kind} have no column type")


def _text(name: str, full: Any, bins: _Bins) -> Guess:
    import pyarrow as pa
    import pyarrow.compute as pc

    distinct = full.unique()
    words = distinct.to_pylist()
    if {word.lower() for word in words} <= {"true", "false"}:
        return Guess(Boolean(name))
    # A leading zero makes a number a code: ZIP codes, car plates, ids.
    coded = pc.any(pc.match_substring_regex(distinct, r"^[+-]?0\d")).as_py()
    if not coded:
        numbers = full if bins.other is None else _without_words(full)
        bins, full = replace(bins, clips=bins.clips and len(numbers) == len(full)), numbers
        whole, integers, readable, floats = arrow.text_numbers(full)
        if whole.all():
            return _integer(name, integers, bins)
        if readable.all() and np.isfinite(floats).all():
            return _real(name, floats, bins)
    days = [read_date(word) for word in words]
    if None not in days:
        return _dates(name, [day for day in days if day is not None], bins)
    times = [read_time(word) for word in words]
    if all(time is not None and time.tzinfo is None for time in times):
        return _times(name, pa.array(times, pa.timestamp("us")), bins)
    if len(words) > MAX_VALUES:
        return Guess(None, f"it holds text with more than {MAX_VALUES} different values")
    values = tuple(sorted(set(words) - {bins.missing, bins.other}, key=_order))
    return Guess(Categorical(name, values))


def _without_words(full: Any) -> Any:
    """The numbers of a column of texts, where a few words are among them: these go to the bin for other values."""
    import pyarrow as pa

    _, _, numeric, _ = arrow.text_numbers(full)
    words = full.filter(pa.array(~numeric))
    numbers = full.filter(pa.array(numeric))
    few = len(words.unique()) <= _WORDS and len(words) <= _OF_ROWS * len(full)
    return numbers if few and len(numbers.unique()) >= _NUMBERS else full


def _order(word: str) -> tuple[int, int, str]:
    """Numbers by size, then other words by letter."""
    return (0, len(word), word) if word.isdecimal() else (1, 0, word)


def _integer(name: str, values: NDArray[np.int64], bins: _Bins) -> Guess:
    low, high = int(values.min()), int(values.max())
    if low == 0 and high <= 1:
        return Guess(Boolean(name))
    furthest = max(abs(low), abs(high))
    if high - low < MAX_NUMBERS and furthest < arrow.INEXACT:
        return Guess(Integer(name, min=low, max=high))
    if len(values) > _FEW_ROWS and len(np.unique(values)) == len(values):
        return Guess(None, "no number occurs twice: it looks like an identifier")
    if furthest >= arrow.INEXACT // 2:
        return Guess(None, "its numbers are too large for bins")
    edges = tuple(int(edge) for edge in bins.edges(values.astype(np.float64), finest=0))
    return Guess(Integer(name, edges=edges, outside=bins.outside))


def _real(name: str, values: NDArray[np.float64], bins: _Bins) -> Guess:
    if np.abs(values).max() > 1e300:
        return Guess(None, "its numbers are too large for bins")
    return Guess(Real(name, tuple(bins.edges(values)), outside=bins.outside))


def nice_edges(
    values: NDArray[np.float64], finest: int = -300, ends: tuple[float, float] = (0.0, 1.0)
) -> list[float]:
    """Bins near the deciles, and one more near the 95 %, with short edges: multiples of 1, 2 or 5 times a power of ten
    that is finer than half of the way to the next quantile, and of nothing below ``10 ** finest``.

    Args:
        ends: the shares of the numbers at which bins begin and end; by default they hold every number.

    >>> nice_edges(np.linspace(3.07, 96.4, 1000))
    [2.0, 12.0, 22.0, 32.0, 40.0, 50.0, 60.0, 68.0, 78.0, 88.0, 92.0, 98.0]
    """
    marks = np.quantile(values, sorted((ends[0], *_INNER, ends[1])))
    places, gaps = np.unique(marks).tolist(), np.diff(np.unique(marks)).tolist()
    near = [min(pair) for pair in zip([*gaps[:1], *gaps], [*gaps, *gaps[-1:]], strict=True)] or [0.0]
    first = _nice(places[0], near[0], finest, decimal.ROUND_FLOOR)
    last = _nice(places[-1], near[-1], finest, decimal.ROUND_CEILING)
    if 0 < first < (places[-1] - places[0]) / 100:
        first = 0.0
    if first == last:
        last = _next_nice(first, finest)
    edges = [_nice(place, gap, finest) for place, gap in zip(places, near, strict=True)][1:-1]
    return [first, *sorted({edge for edge in edges if first < edge < last}), last]


def _nice(value: float, gap: float, finest: int, rounding: str = decimal.ROUND_HALF_EVEN) -> float:
    """A number near another, short enough that the next one, so far away, has another."""
    size = decimal.Decimal(repr(gap / 2.0 or abs(value) / 10.0))
    with decimal.localcontext(prec=700):
        unit = decimal.Decimal(1).scaleb(max(size.adjusted() if size.is_finite() else finest, finest))
        unit *= next((digit for digit in (5, 2) if size >= digit * unit), 1)
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
    return Guess(Date(name, start=start, end=end, every=every))


def _times(name: str, full: Any, bins: _Bins) -> Guess:
    import pyarrow as pa
    import pyarrow.compute as pc

    zone = full.type.tz
    local = full.cast(pa.timestamp("us", zone), safe=False)
    ends = pc.min_max(pc.local_timestamp(local) if zone else local).as_py()
    if zone is None and not (arrow.integers_of(local) % 86_400_000_000).any():
        return _dates(name, [ends["min"].date(), ends["max"].date()], bins)
    start, end, every = _period(ends["min"].date(), ends["max"].date())
    return Guess(DateTime(name, start=start, end=end, every=every, timezone=zone))


def _period(first: dt.date, last: dt.date) -> tuple[dt.date, dt.date, str]:
    """A start, an end and a period that give a few dozen bins on calendar borders."""
    days = (last - first).days + 1
    if days <= 31:
        return first, last, "day"
    if days <= 200:
        return first - dt.timedelta(days=first.weekday()), last, "week"
    every = "month" if days <= 1_000 else "quarter" if days <= 4_000 else "year"
    return first.replace(month=1, day=1), last.replace(month=12, day=31), every


FILL_IN, CONFIRM = "FILL IN", "CONFIRM"


@dataclass(frozen=True)
class Drafted:
    """A value that the owner has to look at, and why it is proposed.

    Attributes:
        mark: what is to be done about it.
    """

    value: Any = FILL_IN
    why: str = ""
    mark: str = FILL_IN


#: Rows that are looked at; the rest of a long file could still hold values that the draft lacks.
SAMPLE_ROWS = 1_000_000
#: Keys of a column whose values come from the data; of a column that is not public as it stands they are left open,
#: but for the zone, which is part of a type. What stands for a length that is read off a span.
_READ_OFF = ("values", "min", "max", "edges", "start", "end", "timezone")
_OPEN, _LENGTH = frozenset(_READ_OFF) - {"timezone"}, "month"
#: Stands for all columns among those that are public.
ALL = "*"


def guess_columns(
    table: Any, names: Sequence[str], *, bins: bool = True, bounds_only: bool = False
) -> dict[str, Guess]:
    """Columns of an Arrow table; arguments as of ``guess_column``.

    Errors: ``DataError`` for values that cannot be read as what the file says they are.
    """
    return {name: _guessed(name, table, bins, bounds_only) for name in names}


def schema_facts(
    guesses: Mapping[str, Guess],
    pairs: Sequence[tuple[str, str]] = (),
    *,
    public: Collection[str] = (),
    discovers: bool = False,
    bins: bool = True,
    bounds_only: bool = False,
) -> dict[str, Any]:
    """``[schema]`` for the template of a draft.

    Args:
        pairs: as of ``followers``.
        public: columns whose values are publicly known as they occur, and are written.
        discovers: whether the mechanism can publish frequent values that nobody lists.

    Guarantee: none. The text is private until confirmed.
    """
    columns = [
        _column_facts(name, guess, ALL in public or name in public, bins) for name, guess in guesses.items()
    ]
    items = [
        f"that {column['key']} is left out"
        if column["reason"]
        else f"{' and '.join(column['read_off'])} of {column['key']}"
        for column in columns
        if column["reason"] or column["read_off"]
    ]
    return {
        "columns": columns,
        "ignored": [column["name"] for column in columns if column["reason"]],
        "read_off": f"{'; '.join(items) or 'nothing else'}.",
        "pairs": pairs,
        "discovers": discovers,
        "listed": any("values" in column["open"] or column["reason"] for column in columns),
        "bins": bins,
        "bounds_only": bounds_only,
        "edges_from": any("outside" in column["spec"] for column in columns),
    }


def edge_sentences(guesses: Mapping[str, Guess], public: Collection[str]) -> list[str]:
    """Edges near quantiles, for columns whose edges the owner has to fill in: private, for the owner's eyes only."""
    specs = {name: {} if guess.column is None else guess.column.spec() for name, guess in guesses.items()}
    found = [
        f"{name}: edges = {toml_value(spec['edges'])}"
        for name, spec in specs.items()
        if "outside" in spec and not {ALL, name} & {*public}
    ]
    outside = 'edges near quantiles (1 to 99 %) are outside the guarantee: keep edges_from = "data"'
    return [*found, outside] if found else []


def _column_facts(name: str, guess: Guess, public: bool, bins: bool) -> dict[str, Any]:
    spec = {} if guess.column is None else guess.column.spec()
    open_keys = [] if public else [key for key in spec if key in _OPEN]
    spec |= dict.fromkeys(open_keys, FILL_IN)
    if open_keys and "every" in spec:
        spec["every"] = _LENGTH
    if "values" in open_keys:  # labels that keep clear of values would say which values there are
        spec |= {key: key for key in ("other", "missing") if key in spec}
    # Without bins for all columns, one for nulls says that there are some.
    read_off = {*_READ_OFF, *(() if bins else ("missing",)), *(() if open_keys else ("every",))}
    return {
        "name": name,
        "key": toml_key(name),
        "reason": guess.reason,
        "spec": spec,
        "open": open_keys,
        "read_off": [key for key in spec if key in read_off and key not in open_keys],
        "ordered": isinstance(guess.column, Ordered),
    }


def _guessed(column: str, table: Any, bins: bool, bounds_only: bool) -> Guess:
    import pyarrow as pa

    if column.startswith("__"):
        return Guess(None, "a change feed's own column, by its name")
    try:
        return guess_column(column, table.column(column), bins=bins, bounds_only=bounds_only)
    except (pa.ArrowException, OverflowError):
        # A time zone that nobody knows, a day that no calendar has: the reader's message quotes it.
        place = table.column_names.index(column) + 1
        raise DataError(
            "its values cannot be read",
            where=f"column {place} of the file",
            allowed="times of a known zone, days of the years 1 to 9999, texts, numbers",
        ) from None
