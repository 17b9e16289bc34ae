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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema.column import Column
from dpstream.core.schema.constraints import Constraints, domain_of
from dpstream.core.schema.dates import Date, DateTime, day_number, microseconds
from dpstream.core.schema.discrete import Boolean, Categorical
from dpstream.core.schema.domain import Mask
from dpstream.core.schema.numeric import Integer, Real

_Ordered = Integer | Real | Date | DateTime


@dataclass(frozen=True)
class Literal:
    """A value as it was written; ``quoted`` tells 'text' from a number."""

    text: str
    quoted: bool

    @property
    def is_number(self) -> bool:
        """Neither a text nor a truth value."""
        return not self.quoted and self.text not in ("true", "false")


@dataclass(frozen=True, eq=False)
class _Intervals:
    """Where the values of ordinary bins lie on an ordered line.

    Attributes:
        kind: what the line is of; only values of one kind have an order.
        lowest, highest: exact ends of each bin.
        is_open: whether the highest end belongs to the next bin.
    """

    kind: str
    lowest: NDArray[np.object_]
    highest: NDArray[np.object_]
    is_open: Mask

    @classmethod
    def of_values(cls, kind: str, values: Sequence[Decimal]) -> _Intervals:
        """Bins of one value each."""
        ends = np.array(values, dtype=object)
        return cls(kind, ends, ends, np.zeros(len(ends), dtype=np.bool_))


def _intervals(column: Column) -> _Intervals | None:
    """The bins of a column; None where they have no order."""
    if isinstance(column, Categorical) and isinstance(column.values[0], int):
        return _Intervals.of_values("number", [Decimal(value) for value in column.values])
    if not isinstance(column, _Ordered):
        return None
    lowest = [Decimal(left) for left in column.lower.tolist()]
    is_real = isinstance(column, Real)
    # Nothing is subtracted from real ends: that would round them to the digits of the decimal context.
    highest = [*(left if is_real else left - 1 for left in lowest[1:]), Decimal(column.last)]
    is_open = np.array([is_real] * (len(lowest) - 1) + [False])
    kind = "date" if isinstance(column, Date) else "number"
    if isinstance(column, DateTime):
        kind = "time" if column.timezone is None else "time with a zone"
    return _Intervals(kind, np.array(lowest, dtype=object), np.array(highest, dtype=object), is_open)


def _order(left: _Intervals, operator: str, right: _Intervals) -> tuple[Mask, Mask]:
    """For each bin on the left and each on the right: whether all pairs of their values have the order, and whether
    none has. Neither holds where the order depends on the values."""
    low, high, is_open = left.lowest[:, None], left.highest[:, None], left.is_open[:, None]
    if operator in ("<", ">="):
        below = (high < right.lowest) | ((high == right.lowest) & is_open)
        above = low >= right.highest
    else:
        below = high <= right.lowest
        above = (low > right.highest) | ((low == right.highest) & right.is_open)
    yes, no = (below, above) if operator in ("<", "<=") else (above, below)
    return yes.astype(np.bool_), no.astype(np.bool_)


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
    bins = _intervals(column)
    if bins is None or not isinstance(column, _Ordered):
        raise _wrong(column, f"{value.text!r} is outside its values", _some(labels))
    point = _point(column, value)
    inside = np.flatnonzero((bins.lowest <= point) & (point <= bins.highest))
    if len(inside) and bins.lowest[inside[-1]] == bins.highest[inside[-1]]:
        return np.asarray(codes == inside[-1])
    what = "is part of a bin" if len(inside) else "is outside its bins"
    raise _wrong(column, f"{value.text!r} {what}", _some(labels))


def order_mask(column: Column, operator: str, value: Literal) -> Mask:
    """The codes that ``column < value`` (``<=``, ``>``, ``>=``) means; never ``missing`` or ``other``.

    Errors:
        ConfigError: the column has no order, or the value lies inside a bin.
    """
    bins = _intervals(column)
    if bins is None:
        raise _wrong(column, f"{operator} needs an order", "=, != and in")
    yes, no = _order(bins, operator, _Intervals.of_values(bins.kind, [_point(column, value)]))
    if not (yes | no).all():
        label = column.labels()[int(np.argmin(yes | no))]
        raise _wrong(column, f"{operator} {value.text} cuts through the bin {label!r}", "a bin's border")
    return np.append(yes, np.zeros(column.size - column.bins, dtype=np.bool_))


def compare_columns(column: Column, operator: str, other: Column) -> Mask:
    """The pairs of codes that ``column < other`` (``<=``, ``>``, ``>=``) means; never ``missing`` or ``other`` of one.

    Errors:
        ConfigError: columns without a common order, or bins that do not say which value is larger.
    """
    left, right = _intervals(column), _intervals(other)
    if left is None or right is None or left.kind != right.kind:
        raise _wrong(column, f"has no order with {other.name!r}", "two columns of numbers, dates or times")
    yes, no = _order(left, operator, right)
    unclear = np.argwhere(~(yes | no))
    if len(unclear):
        i, j = unclear[0].tolist()
        raise _wrong(
            column,
            f"values in its bin {column.labels()[i]!r} and in the bin {other.labels()[j]!r} of "
            f"{other.name!r} overlap",
            "bins that are apart, or the same single values",
        )
    mask = np.zeros((column.size, other.size), dtype=np.bool_)
    mask[: column.bins, : other.bins] = yes
    return mask


def _spellings(column: Column, value: Literal) -> list[str]:
    """The label that a value may be written as, first as it stands."""
    if isinstance(column, Boolean):
        return [value.text, {"1": "true", "0": "false"}.get(value.text, value.text.lower())]
    if value.is_number and Decimal(value.text) == Decimal(value.text).to_integral_value():
        return [value.text, str(int(Decimal(value.text)))]
    return [value.text]


def _point(column: Column, value: Literal) -> Decimal:
    """The value on the line of the column's bins."""
    allowed = _some(column.labels())
    try:
        if isinstance(column, Date):
            allowed = "'2026-01-31'"
            return Decimal(day_number(dt.date.fromisoformat(value.text)))
        if isinstance(column, DateTime):
            allowed = "'2026-01-31T12:00:00', with an offset if the column has a time zone"
            moment = dt.datetime.fromisoformat(value.text)
            if (moment.tzinfo is None) == (column.timezone is None):
                return Decimal(microseconds(moment))
        elif value.is_number:
            # The edges of real columns are floats: compare like with like.
            return Decimal(float(value.text) if isinstance(column, Real) else value.text)
    except ValueError:
        pass
    kind = column.type_name if isinstance(column, Date | DateTime) else "number"
    raise _wrong(column, f"{value.text!r}: expected a label or a {kind}", allowed)


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
    def constraints(self) -> Constraints | None:
        """Columns that follow from them, among other things."""


@dataclass(frozen=True)
class Predicate:
    """A parsed question: the columns it reads (sorted), and its truth on each cell of their domain.

    Attributes:
        terms: where it joins questions by ``and``, these; else itself alone.
    """

    columns: tuple[int, ...]
    shape: tuple[int, ...]
    _root: _Node
    _terms: tuple[Predicate, ...] = ()

    @property
    def terms(self) -> tuple[Predicate, ...]:
        """See above."""
        return self._terms or (self,)

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
        raise ConfigError("empty question", where="answer", allowed="such as \"paid = 1 and zip = '94103'\"")
    if len(text) > _MAX_LENGTH:
        raise ConfigError("question too long", where="answer", allowed=f"{_MAX_LENGTH} characters")
    parser = _Parser(_tokens(text), schema)
    root = parser.expression(0)
    parser.finish()
    terms = parser.terms if len(parser.terms) > 1 else ()
    return parser.predicate(parser.columns, root, tuple(parser.predicate(*term) for term in terms))


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
    """Recursive descent; ``columns`` collects what is read, ``terms`` what ``and`` joins outside all brackets."""

    def __init__(self, tokens: list[_Token], schema: Declared) -> None:
        self._tokens = tokens
        self._next = 0
        self._schema = schema
        self.domain = domain_of(schema.columns)
        self.columns: set[int] = set()
        self.terms: list[tuple[set[int], _Node]] = []

    def predicate(self, read: set[int], root: _Node, terms: tuple[Predicate, ...] = ()) -> Predicate:
        columns = tuple(sorted(read))
        return Predicate(columns, self.domain.shape(columns), root, terms)

    def expression(self, depth: int) -> _Node:
        terms = [self._conjunction(depth)]
        while self._accept("word", "or"):
            terms.append(self._conjunction(depth))
        if depth == 0 and len(terms) > 1:
            self.terms = []
        return _joined(terms, np.logical_or)

    def finish(self) -> None:
        if self._peek.kind != "end":
            raise self._unexpected("and, or, end")

    def _conjunction(self, depth: int) -> _Node:
        terms: list[_Node] = []
        while not terms or self._accept("word", "and"):
            before, self.columns = self.columns, set()
            terms.append(self._negation(depth))
            if depth == 0:
                self.terms.append((self.columns, terms[-1]))
            self.columns = before | self.columns
        return _joined(terms, np.logical_and)

    def _negation(self, depth: int) -> _Node:
        if depth > _MAX_DEPTH:
            raise ConfigError(
                "too deep nesting in the question", where="answer", allowed=f"{_MAX_DEPTH} levels"
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
                f"{one.column.name!r} and {other.column.name!r} are one column, or one determines the other",
                where="answer",
                allowed="two measured columns in order",
            )
        truth = compare_columns(one.column, operator, other.column)[np.ix_(one.codes, other.codes)]
        return _leaf(one.places + other.places, truth.reshape(one.shape + other.shape))

    def _column(self) -> _Asked:
        name, constraints = self._take().text, self._schema.constraints
        derived = () if constraints is None else constraints.derived
        one = next((one for one in derived if one.column.name == name), None)
        places = tuple(map(self.domain.index, (name,) if one is None else one.sources))
        self.columns.update(places)
        column = self._schema.columns[places[0]] if one is None else one.column
        codes = np.arange(column.size) if one is None else np.array(one.codes)
        return _Asked(column, places, self.domain.shape(places), codes)

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
        return token.kind == "end" or (token.kind in ("word", "symbol") and token.text in ("and", "or", ")"))

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
