"""What every column type shares: bins, declared bins for nulls and strangers, codes and labels.

A column with ``n`` ordinary bins has codes ``0 .. n-1``; then comes ``other`` if it is declared, then
``missing`` if it is declared. Which value falls into which bin depends on the public declaration only.

Trusted base: kernel (encodes private values).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError, SchemaError, counted
from dpstream.core.foreign import failures
from dpstream.core.schema import arrow
from dpstream.core.schema.code_blocks import AnyCodes
from dpstream.core.schema.domain import Codes

Style = Literal["value", "label"]

#: Most codes a column may have: a pair of larger columns would pass 2**32 cells, beyond any workload.
MAX_CODES = 65535

# Codes of cells that have no bin of their own; they are resolved by the declared policies.
NULL, OUTSIDE, UNREADABLE = -1, -2, -3
_WORDS = {NULL: "null", OUTSIDE: "outside", UNREADABLE: "unreadable"}
NO_NULLS = 'no nulls, or a declared bin such as missing = "missing"'
#: See ``Problem``.
PROBLEM_KINDS = ("null", "outside", "unreadable", "type", "damaged")
_MAX_SHOWN = 10
#: Distinct values up to which they are compared with those before.
_COMPARED = 4096


class WrongTypeError(Exception):
    """An Arrow type that the column cannot read; always turned into a ``Problem``."""


@dataclass(frozen=True)
class Problem:
    """Why some cells of a column have no code.

    ``kind``: ``null`` (no ``missing`` bin is declared), ``outside`` (outside the domain, no ``other``
    bin), ``unreadable`` (not a number, date, ... at all), ``type`` (the whole column has another type),
    ``damaged`` (cells that a library fails on, such as broken text).
    ``values`` are up to ten of the offending values as text, and stay empty unless the owner asked to
    see them.
    """

    column: str
    kind: str
    what: str
    allowed: str
    values: tuple[str, ...] = ()

    def sentence(self) -> str:
        """For messages: column and what is wrong, and the values only if they were asked for."""
        shown = f": {', '.join(self.values)}" if self.values else ""
        return f"column {self.column!r} {self.what}{shown}"


@dataclass
class Remembered:
    """The last distinct values of a column, and their codes. Private."""

    last: tuple[Any, Codes | None] = (None, None)


@dataclass(frozen=True)
class Column(ABC):
    """One column with a finite public domain.

    Parameters
    ----------
    name : the column's name in the data.
    other : label of a declared bin for every value outside the domain; without it such a value is an error.
    missing : label of a declared bin for nulls; without it a null is an error.

    Errors: ``SchemaError`` when the declaration contradicts itself; ``DataError`` when data do not fit.
    """

    type_name: ClassVar[str]
    #: What an ordinary value looks like, for messages.
    expects: ClassVar[str]
    #: Most codes of a column of this kind.
    most_codes: ClassVar[int] = MAX_CODES

    name: str
    other: str | None = field(default=None, kw_only=True)
    missing: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError("a column needs a name", where="schema", allowed="a text with characters")
        for key in ("other", "missing"):
            label = getattr(self, key)
            if label is not None and (not isinstance(label, str) or not label):
                raise self._wrong(f"{key}: expected a label", allowed="a text with characters")
        self._validate()
        self.check_size(self.size)
        labels = self.labels()
        twice = arrow.first_repeated(labels)
        if twice is not None:
            raise self._wrong(f"the label {twice!r} names two bins", allowed="each label once")

    def check_size(self, codes: int) -> None:
        """Refuse a domain that is too large; before it is built, where its declaration says how large it is."""
        if codes > self.most_codes:
            raise self._wrong(f"the domain has {codes} codes", allowed=f"at most {self.most_codes}")

    def _wrong(self, what: str, allowed: str | None = None) -> SchemaError:
        return SchemaError(what, where=f"column {self.name!r}", allowed=allowed)

    # What a column type defines.

    @abstractmethod
    def _validate(self) -> None:
        """Bring the fields to canonical form and check them; called before anything else."""

    @abstractmethod
    def bin_labels(self) -> tuple[str, ...]:
        """Labels of the ordinary bins."""

    def inexact(self) -> int | None:
        """A declared whole number that a double cannot tell from its neighbours; None where there is none.

        Readers type a column of whole numbers as double as soon as one value is null. With such a number declared,
        one record would change how all others are read; ``Schema.require_exact`` refuses the declaration.
        """
        return None

    def reads(self) -> str:
        """What the column reads, for messages."""
        return self.expects

    @abstractmethod
    def describe(self) -> str:
        """The allowed values in a few words, for messages."""

    @abstractmethod
    def _codes_of_array(self, chunk: Any) -> Codes | None:
        """Raw codes of an array that is neither text nor a dictionary; None if its type does not fit."""

    @abstractmethod
    def _codes_of_text(self, texts: Any) -> Codes:
        """Raw codes of distinct texts that are neither labels nor spellings of null."""

    @abstractmethod
    def arrow_type(self) -> Any:
        """The Arrow type of decoded values."""

    @abstractmethod
    def _draw(self, codes: Codes, generator: np.random.Generator, empty: NDArray[np.bool_] | None) -> Any:
        """One typed value per code of an ordinary bin, as an Arrow array, null where ``empty``."""

    # What follows from it.

    @cached_property
    def bins(self) -> int:
        """Number of ordinary bins."""
        return len(self.bin_labels())

    @property
    def other_code(self) -> int | None:
        """Code of the ``other`` bin."""
        return None if self.other is None else self.bins

    @property
    def missing_code(self) -> int | None:
        """Code of the ``missing`` bin."""
        return None if self.missing is None else self.bins + (self.other is not None)

    @property
    def size(self) -> int:
        """Number of codes, the declared bins included."""
        return self.bins + (self.other is not None) + (self.missing is not None)

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        return self.bin_labels() + tuple(x for x in (self.other, self.missing) if x is not None)

    def labels(self) -> tuple[str, ...]:
        """One text per code."""
        return self._labels

    def ordinary(self) -> list[int]:
        """The codes of the ordinary bins, in their order."""
        return [c for c in range(self.size) if c not in (self.other_code, self.missing_code)]

    def spec(self) -> dict[str, Any]:
        """The declaration without the name, as plain values: what TOML, fingerprint and codebook hold."""
        policies = ("outside", "other", "missing")
        names = [item.name for item in fields(self) if item.name not in ("name", *policies)]
        out: dict[str, Any] = {"type": self.type_name}
        for key in (*names, *policies):
            value = getattr(self, key, None)
            if value is not None:
                out[key] = list(value) if isinstance(value, tuple) else value
        return out

    def raw_codes(self, chunk: Any, null_values: tuple[str, ...]) -> Codes:
        """Codes of one Arrow array; negative where the declaration gives no ordinary bin."""
        import pyarrow as pa

        chunk = arrow.plain(chunk)
        kind = chunk.type
        if pa.types.is_null(kind):
            return np.full(len(chunk), NULL, dtype=np.int32)
        if arrow.is_text(kind):
            distinct, positions = arrow.dictionary_parts(chunk)
            return self.codes_of_dictionary(distinct, null_values)[positions]
        codes = self._codes_of_array(chunk)
        if codes is None:
            raise WrongTypeError(arrow.type_name(kind))
        empty = arrow.null_mask(chunk)
        if empty is not None:
            codes[empty] = NULL
        return codes

    def codes_of_dictionary(self, distinct: Any, null_values: tuple[str, ...]) -> Codes:
        """Raw codes of distinct values, and after them the one of a null."""
        import pyarrow as pa

        distinct = arrow.valid_text(distinct)
        table = np.full(len(distinct) + 1, NULL, dtype=np.int32)
        if pa.types.is_string(distinct.type) or pa.types.is_large_string(distinct.type):
            table[:-1] = self._codes_of_distinct(distinct, null_values)
        elif len(distinct):
            table[:-1] = self.raw_codes(distinct, null_values)
        return table

    def resolve(self, codes: Codes, *, keep_null: bool = False) -> None:
        """Put the declared bins in place of raw codes, where there are such bins."""
        if self.missing_code is not None and not keep_null:
            codes[codes == NULL] = self.missing_code
        if self.other_code is not None:
            codes[codes < NULL] = self.other_code

    @cached_property
    def _label_set(self) -> Any:
        import pyarrow as pa

        return pa.array(self.labels(), pa.large_string())

    def _codes_of_distinct(self, texts: Any, null_values: tuple[str, ...]) -> Codes:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = texts.cast(pa.large_string())
        positions = pc.fill_null(pc.index_in(texts, value_set=self._label_set), NULL)
        codes = np.array(positions.to_numpy(zero_copy_only=False), dtype=np.int32)
        if (codes >= 0).all():
            return codes
        null = pc.is_in(texts, value_set=pa.array(null_values, pa.large_string()))
        unknown = (codes < 0) & ~null.to_numpy(zero_copy_only=False)
        if texts.null_count:
            unknown &= ~texts.is_null().to_numpy(zero_copy_only=False)
        codes[unknown] = self._codes_of_text(texts.filter(pa.array(unknown)))
        return codes

    def fill(
        self,
        values: Any,
        out: AnyCodes,
        *,
        null_values: tuple[str, ...] = ("",),
        reveal: bool = False,
        remembered: Remembered | None = None,
        keep_null: bool = False,
    ) -> list[Problem]:
        """Write the codes of an Arrow (chunked) array into ``out``; return what has no code.

        ``out`` may have any type that holds the codes. Do not use it when problems come back; in int32 (``reveal``
        needs it) cells with a problem are negative.

        Args:
            remembered: the distinct values of the array before, which blocks of one file often share.
            keep_null: leave ``NULL`` in place of nulls, also where there is a bin for them.
        """
        start, wrong = 0, set[int]()
        try:
            for chunk in getattr(values, "chunks", [values]):
                place = out[start : start + len(chunk)]
                wrong |= self._fill_chunk(arrow.plain(chunk), place, null_values, remembered, keep_null)
                start += len(chunk)
        except WrongTypeError as error:
            return [Problem(self.name, "type", f"holds {error} data", f"{self.name}: {self.reads()}")]
        except failures():
            # Times that Arrow cannot convert, ...: its message would quote the cell.
            return [self.problem("damaged")]
        kinds = [kind for kind in _WORDS if kind in wrong and not (keep_null and kind == NULL)]
        return [self._problem(kind, values, out, reveal) for kind in kinds]

    def _fill_chunk(
        self,
        chunk: Any,
        out: AnyCodes,
        null_values: tuple[str, ...],
        remembered: Remembered | None,
        keep_null: bool,
    ) -> set[int]:
        """Codes of one array, and which raw codes are left; of texts by one look-up for each distinct value."""
        if arrow.is_text(chunk.type):
            distinct, positions = arrow.dictionary_parts(chunk)
            last, table = (None, None) if remembered is None else remembered.last
            if last is None or table is None or len(distinct) > _COMPARED or not distinct.equals(last):
                table = self.codes_of_dictionary(distinct, null_values)
                self.resolve(table, keep_null=keep_null)
                if remembered is not None:
                    remembered.last = distinct, table
            if table[: len(distinct) + bool(chunk.null_count)].min(initial=0) >= 0:
                np.take(table.astype(out.dtype), positions, out=out, mode="clip")
                return set()
            codes = table[positions]
        else:
            codes = self.raw_codes(chunk, null_values)
            self.resolve(codes, keep_null=keep_null)
        out[:] = codes
        return set(np.unique(codes[codes < 0]).tolist()) if codes.min(initial=0) < 0 else set()

    def _problem(self, kind: int, values: Any, codes: AnyCodes, reveal: bool) -> Problem:
        shown = _offending(values, codes == kind) if reveal and kind != NULL else ()
        return self.problem(_WORDS[kind], shown)

    def problem(self, kind: str, values: tuple[str, ...] = ()) -> Problem:
        """What is said of cells of one of ``PROBLEM_KINDS``, which may have been found elsewhere.

        Args:
            values: some of them, for the owner's terminal only.
        """
        what = {
            "null": "holds nulls and declares no missing bin",
            "outside": "holds values outside its domain and declares no other bin",
            "unreadable": f"holds values that are not {self.expects} and declares no other bin",
            "type": "holds another type",
            "damaged": "holds unreadable cells",
        }[kind]
        allowed = f'{self.describe()}, or a declared bin such as other = "other"'
        if kind == "null":
            allowed = NO_NULLS
        elif kind in ("type", "damaged"):
            allowed = self.reads()
        return Problem(self.name, kind, what, f"{self.name}: {allowed}", values)

    def encode(
        self,
        values: Any,
        *,
        null_values: tuple[str, ...] = ("",),
        where: str | None = None,
        reveal: bool = False,
    ) -> Codes:
        """int32[n] codes of an Arrow array (or anything ``pyarrow.array`` takes).

        Errors: ``DataError`` for values without a code. Cost: one pass; texts are looked up once per
        distinct value.
        """
        array = arrow.to_table({self.name: values}, where or "column").column(0)
        out: Codes = np.empty(len(array), dtype=np.int32)
        problems = self.fill(array, out, null_values=null_values, reveal=reveal)
        if problems:
            raise problems_error(problems, where)
        return out

    def decode(self, codes: Any, generator: np.random.Generator, style: Style = "value") -> Any:
        """An Arrow array of values drawn uniformly inside each code's bin, or of labels.

        Under ``value`` the ``missing`` bin becomes null; see each type for ``other``.
        Errors: ``DataError`` for codes outside the domain or an unknown style.
        """
        import pyarrow as pa

        codes = np.asarray(codes)
        self._require_known(codes)
        if style == "label":
            return pa.array(self.labels(), pa.string()).take(pa.array(codes, pa.int32()))
        if style != "value":
            raise DataError(f"unknown style {style!r}", where="decode", allowed="value, label")
        return self._shortened(self._decode_values(codes.astype(np.int32, copy=False), generator), codes)

    def _require_known(self, codes: Codes) -> None:
        if codes.size and (codes.min() < 0 or codes.max() >= self.size):
            raise DataError(f"column {self.name!r} holds unknown codes", allowed=f"0 to {self.size - 1}")

    def _shortened(self, values: Any, codes: Codes) -> Any:
        """Drawn values with no more digits than say something."""
        return values

    def _decode_values(self, codes: Codes, generator: np.random.Generator) -> Any:
        empty = codes >= self.bins if self.size > self.bins else None
        return self._draw(codes if empty is None else np.where(empty, 0, codes), generator, empty)


def _offending(values: Any, bad: NDArray[np.bool_]) -> tuple[str, ...]:
    """Up to ten distinct offending values as text: for the owner's terminal only."""
    import pyarrow as pa

    distinct = arrow.valid_text(values.filter(pa.array(bad))).unique()
    shown = [repr(x) for x in distinct[:_MAX_SHOWN].to_pylist()]
    return (*shown, "...") if len(distinct) > _MAX_SHOWN else tuple(shown)


def problems_error(problems: list[Problem], where: str | None) -> DataError:
    """The first problem, and how many more there are; it shows values only if the problem carries them."""
    first, more = problems[0], len(problems) - 1
    others = f"; and {counted(more, 'more problem')}, which dpstream check lists" if more else ""
    error = DataError(first.sentence() + others, where=where, allowed=first.allowed)
    error.outside_domain = any(problem.kind in ("outside", "unreadable") for problem in problems)
    return error
