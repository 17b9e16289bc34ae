"""Questions such as ``non_payment = 1 and zip = '94103'``: a small grammar, evaluated on bins.

::

    expression  = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" expression ")" | comparison
    comparison  = column, if it is boolean: it is true
                | column ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
                | column ("<" | "<=" | ">" | ">=") column
                | column ["not"] "in" "(" value { "," value } ")"
    column      = name | "name in double quotes"
    value       = number | 'text in single quotes' | true | false

A value is first a label of the column (bins, ``other`` and ``missing`` included), then a value of its
type. Logic is two-valued: ``missing`` and ``other`` are bins like any other, so ``not`` includes them.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema.column import Column
from dpstream.core.schema.constraints import Constraints
from dpstream.core.schema.dates import Date, DateTime
from dpstream.core.schema.discrete import Boolean, Categorical
from dpstream.core.schema.domain import Domain, Mask
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


_MAX_LENGTH = 10_000
_MAX_DEPTH = 50

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")+"|[^\W\d]\w*)
    | (?P<symbol><=|>=|<>|!=|==|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
_KEYWORDS = ("and", "or", "not", "in", "true", "false")
_OPERATORS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

#: The truth of a node on the cells of some columns, given each column's axis.
_Node = Callable[[dict[int, int]], Mask]


class Declared(Protocol):
    """The columns that a question is about; a ``Schema`` is one."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The measured columns."""

    @property
    def domain(self) -> Domain:
        """Their names and sizes."""

    @property
    def constraints(self) -> Constraints | None:
        """Columns that follow from them, among other things."""


@dataclass(frozen=True)
class Predicate:
    """A parsed question: the columns it reads (sorted), and its truth on each cell of their domain."""

    columns: tuple[int, ...]
    shape: tuple[int, ...]
    _root: _Node

    def mask(self) -> Mask:
        """True where a cell satisfies the question; one axis per column."""
        axes = {column: axis for axis, column in enumerate(self.columns)}
        return np.ascontiguousarray(np.broadcast_to(self._root(axes), self.shape))


def parse_predicate(text: str, schema: Declared) -> Predicate:
    """Read a question about ``schema``'s columns. One about a column that follows from others is one about these.

    Errors:
        ConfigError: the text is not in the grammar, a column or value is unknown, or a comparison cuts
            through a bin. The message says where and what is allowed.

    Cost: proportional to the text; ``mask`` costs the cells of the columns together.
    """
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(
            "the question is empty", where="answer", allowed="such as \"paid = 1 and zip = '94103'\""
        )
    if len(text) > _MAX_LENGTH:
        raise ConfigError("the question is too long", where="answer", allowed=f"{_MAX_LENGTH} characters")
    parser = _Parser(_tokens(text), schema)
    root = parser.expression(0)
    parser.finish()
    columns = tuple(sorted(parser.columns))
    return Predicate(columns, schema.domain.shape(columns), root)


@dataclass(frozen=True, eq=False)
class _Asked:
    """A column of a question: the measured columns that it is read off, and its code in each of their cells."""

    column: Column
    places: tuple[int, ...]
    shape: tuple[int, ...]
    codes: NDArray[np.int64]

    def node(self, truth: Mask) -> _Node:
        """A node with the truth on the column's codes."""
        return _leaf(self.places, truth[self.codes].reshape(self.shape))


@dataclass(frozen=True)
class _Token:
    kind: str  # number, text, name, symbol, word, end
    text: str
    position: int


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None or match.lastgroup is None:
            raise ConfigError(
                f"cannot read {stripped[position : position + 20]!r} at character {position + 1}",
                where="answer",
                allowed="column names, numbers, 'text', = != < <= > >=, in, and, or, not, ( )",
            )
        kind, raw = match.lastgroup, match.group(match.lastgroup)
        if kind == "name" and raw.startswith('"'):
            raw = raw[1:-1].replace('""', '"')
        elif kind == "name" and raw.lower() in _KEYWORDS:
            kind, raw = "word", raw.lower()
        elif kind == "text":
            raw = raw[1:-1].replace("''", "'")
        tokens.append(_Token(kind, raw, match.start(match.lastgroup) + 1))
        position = match.end()
    tokens.append(_Token("end", "the end", len(stripped) + 1))
    return tokens


class _Parser:
    """Recursive descent; ``columns`` collects what is read."""

    def __init__(self, tokens: list[_Token], schema: Declared) -> None:
        self._tokens = tokens
        self._next = 0
        self._schema = schema
        self.columns: set[int] = set()

    def expression(self, depth: int) -> _Node:
        terms = [self._conjunction(depth)]
        while self._accept("word", "or"):
            terms.append(self._conjunction(depth))
        return _joined(terms, np.logical_or)

    def finish(self) -> None:
        if self._peek.kind != "end":
            raise self._unexpected("and, or, or the end")

    def _conjunction(self, depth: int) -> _Node:
        terms = [self._negation(depth)]
        while self._accept("word", "and"):
            terms.append(self._negation(depth))
        return _joined(terms, np.logical_and)

    def _negation(self, depth: int) -> _Node:
        if depth > _MAX_DEPTH:
            raise ConfigError(
                "the question is nested too deeply", where="answer", allowed=f"{_MAX_DEPTH} levels"
            )
        if self._accept("word", "not"):
            inner = self._negation(depth + 1)
            return lambda axes: ~inner(axes)
        if self._accept("symbol", "("):
            inner = self.expression(depth + 1)
            self._expect(")")
            return inner
        return self._comparison()

    def _comparison(self) -> _Node:
        if self._peek.kind != "name":
            raise self._unexpected("a column name, not, or (")
        asked = self._column()
        column, leaf = asked.column, asked.node
        if isinstance(column, Boolean) and self._at_the_end_of_a_term:
            return leaf(equal_mask(column, Literal("true", False)))
        negated = self._accept("word", "not")
        if self._accept("word", "in"):
            mask = np.logical_or.reduce([equal_mask(column, value) for value in self._values()])
            return leaf(~mask if negated else mask)
        token = self._peek
        if negated or token.kind != "symbol" or token.text not in _OPERATORS:
            raise self._unexpected("in" if negated else "= != < <= > >= or in")
        operator = _OPERATORS[self._take().text]
        if self._peek.kind == "name" and operator not in ("=", "!="):
            return self._order_of_columns(asked, operator, self._column())
        value = self._value()
        if operator in ("=", "!="):
            equal = equal_mask(column, value)
            return leaf(~equal if operator == "!=" else equal)
        return leaf(order_mask(column, operator, value))

    def _order_of_columns(self, one: _Asked, operator: str, other: _Asked) -> _Node:
        if set(one.places) & set(other.places):
            raise ConfigError(
                f"{one.column.name!r} and {other.column.name!r} are the same column, or one follows from the other",
                where="answer",
                allowed="an order of two measured columns",
            )
        truth = compare_columns(one.column, operator, other.column)[np.ix_(one.codes, other.codes)]
        return _leaf(one.places + other.places, truth.reshape(one.shape + other.shape))

    def _column(self) -> _Asked:
        name = self._take().text
        domain, constraints = self._schema.domain, self._schema.constraints
        for one in () if constraints is None else constraints.derived:
            if one.column.name == name:
                places = tuple(map(domain.index, one.sources))
                self.columns.update(places)
                return _Asked(one.column, places, domain.shape(places), np.array(one.codes))
        position = domain.index(name)
        self.columns.add(position)
        column = self._schema.columns[position]
        return _Asked(column, (position,), (column.size,), np.arange(column.size))

    def _values(self) -> list[Literal]:
        self._expect("(")
        values = [self._value()]
        while self._accept("symbol", ","):
            values.append(self._value())
        self._expect(")")
        return values

    def _value(self) -> Literal:
        token = self._peek
        if token.kind in ("number", "text"):
            return Literal(self._take().text, token.kind == "text")
        if token.kind == "word" and token.text in ("true", "false"):
            return Literal(self._take().text, False)
        raise self._unexpected("a number, 'text in quotes', true or false")

    @property
    def _at_the_end_of_a_term(self) -> bool:
        token = self._peek
        return token.kind == "end" or (token.kind, token.text) in (
            ("word", "and"),
            ("word", "or"),
            ("symbol", ")"),
        )

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek
        self._next += 1
        return token

    def _accept(self, kind: str, text: str) -> bool:
        accepted = self._peek.kind == kind and self._peek.text == text
        self._next += accepted
        return accepted

    def _expect(self, symbol: str) -> None:
        if not self._accept("symbol", symbol):
            raise self._unexpected(symbol)

    def _unexpected(self, allowed: str) -> ConfigError:
        token = self._peek
        return ConfigError(
            f"unexpected {token.text!r} at character {token.position}", where="answer", allowed=allowed
        )


def _leaf(columns: tuple[int, ...], truth: Mask) -> _Node:
    """A node with the truth on the cells of some columns, one axis each."""

    def node(axes: dict[int, int]) -> Mask:
        order = sorted(range(len(columns)), key=lambda k: axes[columns[k]])
        sizes = {axes[columns[k]]: truth.shape[k] for k in order}
        return truth.transpose(order).reshape([sizes.get(axis, 1) for axis in range(len(axes))])

    return node


def _joined(terms: list[_Node], operation: np.ufunc) -> _Node:
    if len(terms) == 1:
        return terms[0]

    def node(axes: dict[int, int]) -> Mask:
        result = terms[0](axes)
        for term in terms[1:]:
            result = operation(result, term(axes))
        return result

    return node
