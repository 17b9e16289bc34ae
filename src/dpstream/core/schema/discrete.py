"""Columns whose values are listed: boolean and categorical.

Trusted base: kernel (encodes private values).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema import arrow
from dpstream.core.schema.column import NULL, OUTSIDE, UNREADABLE, Column
from dpstream.core.schema.domain import Codes
from dpstream.core.schema.pattern import MAX_BYTES, Pattern

_TRUE = ("true", "yes", "t", "y", "1", "1.0")
_FALSE = ("false", "no", "f", "n", "0", "0.0")
_WHOLE = r"-?(?:0|[1-9][0-9]*)"
#: How a whole number in a column of doubles is written; longer ones have an exponent, or cannot be labels.
_WRITTEN_FLOAT = r"^-?(?:0|[1-9][0-9]{0,15})\.0+$"
#: What ``values`` of a column is whose values are discovered.
DISCOVER = "discover"
#: Texts that are never discovered: what ``may_enter`` excludes, nothing, cells outside of Unicode, and whole numbers
#: that doubles may round.
_NEVER = "^$|[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\x{FFFD}]|^-?[0-9]{16,}$"


@dataclass(frozen=True)
class Found:
    """A value that was discovered. Public.

    Attributes:
        first: the first step whose records have its code; before, they are in ``other``.
        count: the noisy count that published it, of the steps before.
    """

    value: str
    first: int
    count: int


@dataclass(frozen=True)
class Boolean(Column):
    """True or false: code 0 is false, code 1 is true.

    Reads booleans, the numbers 0 and 1, and the texts true/false, yes/no, t/f, y/n, 1/0 in any case.
    Any other number or text is outside the domain. Decodes to Arrow ``bool``; ``other`` becomes null.

    >>> Boolean("paid", missing="missing").labels()
    ('false', 'true', 'missing')
    """

    type_name: ClassVar[str] = "boolean"
    expects: ClassVar[str] = "true or false (also 1/0, yes/no, t/f, y/n)"

    def _validate(self) -> None:
        for label in (self.other, self.missing):
            if label is not None and label.strip().lower() in _TRUE + _FALSE:
                raise self._wrong(f"the label {label!r} reads as true or false", allowed="another label")

    def bin_labels(self) -> tuple[str, ...]:
        return ("false", "true")

    def describe(self) -> str:
        return "true or false"

    def _codes_of_array(self, chunk: Any) -> Codes | None:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = chunk.type
        if pa.types.is_boolean(kind):
            flags = pc.fill_null(chunk, False).to_numpy(zero_copy_only=False)
            return np.asarray(flags, dtype=np.int32)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            return None
        values = arrow.floats_of(chunk)
        codes = np.where(values == 1.0, 1, np.where(values == 0.0, 0, OUTSIDE)).astype(np.int32)
        codes[np.isnan(values)] = NULL
        return codes

    def _codes_of_text(self, texts: Any) -> Codes:
        return np.array([_truth(text) for text in texts.to_pylist()], dtype=np.int32)

    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.bool_()

    def _draw(self, codes: Codes, generator: np.random.Generator, empty: NDArray[np.bool_] | None) -> Any:
        import pyarrow as pa

        return pa.array(codes.astype(np.bool_), pa.bool_(), mask=empty)


def _truth(text: str) -> int:
    word = text.strip().lower()
    if word in _TRUE:
        return 1
    return 0 if word in _FALSE else UNREADABLE


@dataclass(frozen=True)
class Categorical(Column):
    """A list of public values: all texts, or all whole numbers; code ``i`` is ``values[i]``.

    Values are compared as text, exactly (case and blanks count): 7 and "7" are the same value, "07" is another one.
    Labels of ``other`` and ``missing`` in the data mean those bins. "7.0" means the whole number unless it is declared.
    Declared texts that are whole numbers from 2^53 on are read from text only.
    Decodes to text, and to int64 when the values are numbers and no ``other`` bin needs a label.

    With ``values = "discover"`` the values in ``known`` are there from the beginning, and frequent ones join them at
    public steps (``Found``). Codes: the known values, ``other``, ``missing``, then what was found, in its order.

    >>> zips = Categorical("zip", ["94102", "94103"], other="other")
    >>> zips.size, zips.labels()
    (3, ('94102', '94103', 'other'))
    >>> Categorical("zip", "discover", known=["94102"], other="other", found=(Found("94110", 9, 120),)).labels()
    ('94102', 'other', '94110')
    """

    type_name: ClassVar[str] = "categorical"
    expects: ClassVar[str] = "text or whole numbers"

    values: tuple[str, ...] | tuple[int, ...] | str = ()
    known: tuple[str, ...] | None = field(default=None, kw_only=True)
    pattern: tuple[str, ...] | None = field(default=None, kw_only=True)
    found: tuple[Found, ...] = field(default=(), kw_only=True)

    @property
    def is_open(self) -> bool:
        """Whether values are discovered."""
        return self.values == DISCOVER

    def _validate(self) -> None:
        if self.is_open:
            self._validate_open()
            return
        if self.known is not None or self.pattern is not None:
            raise self._wrong('known and pattern are for values = "discover"', allowed="a list of values")
        allowed = "a list of texts or of whole numbers, at least one"
        if isinstance(self.values, str) or not hasattr(self.values, "__iter__"):
            raise self._wrong("values: expected a list", allowed=allowed)
        values: tuple[Any, ...] = tuple(self.values)
        if not values:
            raise self._wrong("values are missing", allowed=allowed)
        self.check_size(len(values))
        numbers = [isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in values]
        if not all(numbers) and not all(isinstance(v, str) for v in values):
            raise self._wrong("values must be all texts or all whole numbers", allowed=allowed)
        if all(numbers):
            values = tuple(int(v) for v in values)
            if any(abs(v) >= 2**62 for v in values):
                raise self._wrong("a value is too large", allowed="between -2**62 and 2**62")
        object.__setattr__(self, "values", values)

    def _validate_open(self) -> None:
        if self.other is None:
            raise self._wrong('values = "discover" needs a bin for the rest', allowed='other = "other"')
        for key in ("known", "pattern"):
            given = getattr(self, key)
            if given is None:
                continue
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise self._wrong(f"{key}: expected a list of texts", allowed="a list")
            texts = tuple(str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in given)
            if not all(isinstance(text, str) and text for text in texts):
                raise self._wrong(f"{key}: expected a list of texts", allowed="texts with characters")
            object.__setattr__(self, key, texts or None)
        if self.pattern is not None:
            Pattern(self.pattern)

    def inexact(self) -> int | None:
        """The first declared whole number that is too large."""
        values = () if self.is_open else self.values
        return next((v for v in values if isinstance(v, int) and abs(v) >= arrow.INEXACT), None)

    @cached_property
    def _text_only(self) -> bool:
        """Whether a label is a whole number that a column of doubles could not hold."""
        values = (self.known or ()) if self.is_open else self.values
        texts = [text for text in (*values, self.other, self.missing) if isinstance(text, str)]
        return any(re.fullmatch(_WHOLE, text) and arrow.is_inexact(text) for text in texts)

    def reads(self) -> str:
        """What the column reads: text only, where a label is too long a number."""
        return "text, as a declared value reaches 2^53" if self._text_only else self.expects

    def bin_labels(self) -> tuple[str, ...]:
        if self.is_open:
            return (*(self.known or ()), *(one.value for one in self.found))
        return tuple(str(value) for value in self.values)

    @property
    def other_code(self) -> int | None:
        return len(self.known or ()) if self.is_open else super().other_code

    @property
    def missing_code(self) -> int | None:
        if not self.is_open or self.missing is None:
            return super().missing_code
        return len(self.known or ()) + 1

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        if not self.is_open:
            return super()._labels
        known = len(self.known or ())
        bins = [text for text in (self.other, self.missing) if text is not None]
        return (*self.bin_labels()[:known], *bins, *self.bin_labels()[known:])

    def spec(self) -> dict[str, Any]:
        """The declaration alone: what was found stands beside it."""
        spec = super().spec()
        del spec["found"]
        return spec

    def describe(self) -> str:
        if self.is_open:
            return "texts; frequent values are discovered"
        labels = self.bin_labels()
        if len(labels) <= 8:
            return ", ".join(labels)
        return f"{', '.join(labels[:8])}, ... ({len(labels)} in all)"

    def _codes_of_array(self, chunk: Any) -> Codes | None:
        import pyarrow as pa

        kind = chunk.type
        if pa.types.is_boolean(kind):
            return self._codes_of_whole(chunk)
        if self._text_only:
            # Whole numbers become doubles as soon as one of them is null: what is read may not depend on that.
            return None
        if pa.types.is_integer(kind):
            return self._codes_of_whole(chunk)
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._codes_of_floats(arrow.floats_of(chunk))
        return None

    def _codes_of_whole(self, chunk: Any) -> Codes:
        """Whole numbers and booleans, by their text."""
        import pyarrow as pa

        distinct, positions = arrow.dictionary_parts(chunk)
        table = np.full(len(distinct) + 1, NULL, dtype=np.int32)
        table[:-1] = self._codes_of_distinct(distinct.cast(pa.string()), ())
        return table[positions]

    def _codes_of_floats(self, values: NDArray[np.float64]) -> Codes:
        """Whole numbers that a reader turned into floats because some rows are null; decimals likewise."""
        import pyarrow as pa

        codes = np.full(len(values), OUTSIDE, dtype=np.int32)
        codes[np.isnan(values)] = NULL
        whole = (np.abs(values) < arrow.INEXACT) & (np.trunc(values) == values)
        codes[whole] = self._codes_of_whole(pa.array(values[whole].astype(np.int64)))
        return codes

    def _codes_of_text(self, texts: Any) -> Codes:
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = np.full(len(texts), OUTSIDE, dtype=np.int32)
        as_float = pc.match_substring_regex(texts, _WRITTEN_FLOAT)
        if pc.any(as_float).as_py():
            floats = texts.filter(as_float).cast(pa.float64()).to_numpy(zero_copy_only=False)
            codes[as_float.to_numpy(zero_copy_only=False)] = self._codes_of_floats(floats)
        return codes

    @property
    def is_numeric(self) -> bool:
        """Whether decoded values are numbers."""
        return self.other is None and isinstance(self.values[0], int)

    def undiscovered(self, values: Any, null_values: tuple[str, ...]) -> tuple[Any, NDArray[np.int32]]:
        """The texts of an Arrow (chunked) array that may be discovered, each once, and which of them each record has
        (-1: none). Private. A value counts by its label: 7.0 is "7"."""
        import pyarrow as pa
        import pyarrow.compute as pc

        chunks = [self._as_labels(arrow.plain(chunk)) for chunk in getattr(values, "chunks", [values])]
        texts, many = [pa.array([], pa.large_string())], 0
        places = np.full(sum(map(len, chunks)), -1, np.int32)
        for rows, part in arrow.apart(chunks, MAX_BYTES):
            distinct, positions = arrow.dictionary_parts(part)
            may = self.codes_of_dictionary(distinct, null_values)[:-1] == OUTSIDE
            may &= ~pc.match_substring_regex(distinct, _NEVER).to_numpy(zero_copy_only=False)
            if self.pattern is not None:
                forms = f"^(?:{'|'.join(self.pattern)})$"
                may &= pc.match_substring_regex(distinct, forms).to_numpy(zero_copy_only=False)
            place = np.full(len(distinct) + 1, -1, np.int32)
            place[:-1][may] = many + np.arange(int(may.sum()), dtype=np.int32)
            places[rows] = place[positions]
            texts.append(distinct.filter(pa.array(may)))
            many += len(texts[-1])
        del chunks  # as large as the step
        pa.default_memory_pool().release_unused()
        return pa.concat_arrays(texts), places

    def _as_labels(self, chunk: Any) -> Any:
        """The labels that values would have, as texts; null where there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(chunk.type):
            return self._as_labels(chunk.dictionary).take(chunk.indices)
        kind, text = chunk.type, pa.large_string()
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
            return chunk.cast(text)
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            numbers = arrow.floats_of(chunk)
            whole = (np.abs(numbers) < arrow.INEXACT) & (np.trunc(numbers) == numbers)
            whole &= ~chunk.is_null().to_numpy(zero_copy_only=False)
            return pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole).cast(text)
        texts = arrow.valid_text(chunk).cast(text)
        as_float = pc.match_substring_regex(texts, _WRITTEN_FLOAT)
        if not pc.any(as_float).as_py():
            return texts
        return pc.if_else(as_float, pc.replace_substring_regex(texts, r"\.0+$", ""), texts)

    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.int64() if self.is_numeric else pa.string()

    def texts(self, codes: Codes) -> Any:
        """What ``decode`` gives of a column of texts, as an Arrow dictionary: each text once.

        Errors: ``DataError`` for codes outside the domain.
        """
        import pyarrow as pa

        self._require_known(codes)
        missing = None if self.missing_code is None else codes == self.missing_code
        places = pa.array(codes, pa.int32(), mask=missing)
        last = self.missing_code == self.size - 1
        return pa.DictionaryArray.from_arrays(places, self.labels()[: self.size - last])

    def _decode_values(self, codes: Codes, generator: np.random.Generator) -> Any:
        import pyarrow as pa

        values: list[str | int | None] = list(self.labels())
        if self.is_numeric:
            values[: self.bins] = self.values
        if self.missing_code is not None:
            values[self.missing_code] = None
        return pa.array(values, self.arrow_type()).take(pa.array(codes))

    def _draw(self, codes: Codes, generator: np.random.Generator, empty: NDArray[np.bool_] | None) -> Any:
        return self._decode_values(codes, generator)
