"""Columns of numbers: whole numbers and real numbers in public bins.

Trusted base: kernel (encodes private numbers).
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema import arrow
from dpstream.core.schema.column import NULL, OUTSIDE, UNREADABLE, Column
from dpstream.core.schema.domain import Codes

#: Largest magnitude of a declared whole number; a margin below 2**63 keeps all arithmetic exact.
MAX_NUMBER = 2**62
#: 10 to this power, and to smaller ones, is a float64 exactly.
_EXACT_POWER = 22


@dataclass(frozen=True)
class Ordered(Column):
    """A column whose bins are consecutive intervals of a line.

    Bin ``i`` holds ``lower[i] <= x < lower[i + 1]``; the last bin also holds its right end ``last``.
    A value below the first or above the last end is outside the domain; with ``outside = "clip"``
    it goes to the first or last bin, which only the steward may decide. Infinities count as outside.
    """

    outside: str | None = field(default=None, kw_only=True)

    #: The values in a word, for messages; and what lies beyond the ends.
    noun: ClassVar[str]
    beyond: ClassVar[tuple[str, str]] = ("less", "more")

    @property
    @abstractmethod
    def lower(self) -> NDArray[Any]:
        """Left ends of the bins, increasing."""

    @property
    @abstractmethod
    def last(self) -> Any:
        """Right end of the last bin, included."""

    @cached_property
    def bins(self) -> int:
        return len(self.lower)

    @cached_property
    def upper(self) -> NDArray[Any]:
        """The largest value of each bin, where values are whole numbers."""
        return np.append(self.lower[1:] - 1, np.int64(self.last))

    def _text(self, value: Any) -> str:
        """A value of the line in labels and messages."""
        return str(value)

    def bin_labels(self) -> tuple[str, ...]:
        """Labels of the bins; where values beyond the ends are in the outer ones, their labels say so."""
        labels = self._spans()
        if self.outside == "clip":
            labels[0] += f" and {self.beyond[0]}"
            labels[-1] += f" and {self.beyond[1]}"
        return tuple(labels)

    def _spans(self) -> list[str]:
        """The bins from end to end."""
        ends = zip(self.lower.tolist(), self.upper.tolist(), strict=True)
        return [self._text(a) if a == b else f"{self._text(a)}..{self._text(b)}" for a, b in ends]

    def _half_open_spans(self) -> list[str]:
        """The same of bins whose right end belongs to the next one."""
        texts = [*map(self._text, self.lower.tolist()), self._text(self.last)]
        inner = [f"[{a}, {b})" for a, b in itertools.pairwise(texts[:-1])]
        return [*inner, f"[{texts[-2]}, {texts[-1]}]"]

    def describe(self) -> str:
        return f"{self.noun} from {self._text(self.lower[0].item())} to {self._text(self.last)}"

    def _validate(self) -> None:
        if self.outside not in (None, "clip"):
            raise self._wrong(f"unknown outside = {self.outside!r}", allowed='"clip", or leave it out')
        if self.outside is not None and self.other is not None:
            raise self._wrong(
                "outside and other contradict each other", allowed='outside = "clip" or other = "..."'
            )
        self._validate_bins()
        for label in (self.other, self.missing):
            if label is not None and self._reads_as_value(label):
                raise self._wrong(f"the label {label!r} reads as a value", allowed="another label")

    def limits(self) -> tuple[Any, Any]:
        """Smallest and largest value of the domain as JSON takes them."""
        return self.lower[0].item(), self.last

    @abstractmethod
    def _validate_bins(self) -> None:
        """Check and canonicalise what declares the bins."""

    def _reads_as_value(self, label: str) -> bool:
        import pyarrow as pa

        return bool((self._codes_of_text(pa.array([label], pa.large_string())) != UNREADABLE)[0])

    def _codes_of_values(self, values: NDArray[Any]) -> Codes:
        """Codes of numbers on the line (NaN is not on it: it becomes the null code)."""
        codes = (np.searchsorted(self.lower, values, side="right") - 1).astype(np.int32)
        if self.outside != "clip":
            codes[values > self.last] = OUTSIDE
            codes[values < self.lower[0]] = OUTSIDE
        else:
            np.maximum(codes, 0, out=codes)
        if values.dtype.kind == "f":
            codes[np.isnan(values)] = NULL
        return codes


@dataclass(frozen=True)
class Integer(Ordered):
    """Whole numbers: one code per number from ``min`` to ``max``, or bins with public ``edges``.

    ``edges = [0, 18, 65, 120]`` gives the bins 0..17, 18..64 and 65..120: a value on the last edge
    belongs to the last bin. Reads integers, floats and decimals that are whole, and texts of such
    numbers; NaN counts as missing; a number that is not whole is unreadable (``other`` takes it, ``clip``
    does not). Decodes to int64, drawn uniformly from the whole numbers of the bin; ``other`` becomes null.

    >>> Integer("age", edges=[0, 18, 65, 120], missing="missing").labels()
    ('0..17', '18..64', '65..120', 'missing')
    >>> Integer("district", min=1, max=3).labels()
    ('1', '2', '3')
    """

    type_name: ClassVar[str] = "integer"
    expects: ClassVar[str] = "whole numbers"
    noun: ClassVar[str] = "whole numbers"

    min: int | None = None
    max: int | None = None
    edges: tuple[int, ...] | None = None

    def _validate_bins(self) -> None:
        if self.edges is not None:
            if self.min is not None or self.max is not None:
                raise self._wrong("give edges or min and max, not both", allowed="one of the two")
            edges = check_edges(self, self.edges, self.noun, _whole)
            object.__setattr__(self, "edges", tuple(int(edge) for edge in edges))
            return
        for key in ("min", "max"):
            number = _whole(getattr(self, key))
            if number is None:
                raise self._wrong(f"{key}: expected a whole number", allowed="min and max, or edges")
            object.__setattr__(self, key, number)
        if self._min > self._max:
            raise self._wrong(f"min = {self.min} exceeds max = {self.max}", allowed="min <= max")

    @property
    def _min(self) -> int:
        return 0 if self.min is None else self.min

    @property
    def _max(self) -> int:
        return 0 if self.max is None else self.max

    @cached_property
    def bins(self) -> int:
        return self._max - self._min + 1 if self.edges is None else len(self.edges) - 1

    @cached_property
    def lower(self) -> NDArray[np.int64]:
        if self.edges is None:
            return np.arange(self._min, self._max + 1, dtype=np.int64)
        return np.array(self.edges[:-1], dtype=np.int64)

    @cached_property
    def last(self) -> int:
        return self._max if self.edges is None else self.edges[-1]

    def inexact(self) -> int | None:
        """An end of the domain that a double cannot tell from its neighbours."""
        ends = (int(self.lower[0]), int(self.last))
        return next((end for end in ends if abs(end) >= arrow.INEXACT), None)

    def _codes_of_array(self, chunk: Any) -> Codes | None:
        import pyarrow as pa

        kind = chunk.type
        if pa.types.is_integer(kind):
            return self._codes_of_integers(arrow.integers_of(chunk))
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._codes_of_floats(arrow.floats_of(chunk))
        return None

    def _codes_of_integers(self, values: NDArray[np.int64]) -> Codes:
        if self.edges is not None:
            return self._codes_of_values(values)
        # One code per number needs no search.
        inside = np.clip(values, self._min, self._max)
        codes = (inside - self._min).astype(np.int32)
        if self.outside != "clip":
            codes[inside != values] = OUTSIDE
        return codes

    def _codes_of_floats(self, values: NDArray[np.float64]) -> Codes:
        empty = np.isnan(values)
        held = np.clip(np.where(empty, 0.0, values), -float(arrow.FAR), float(arrow.FAR))
        codes = self._codes_of_integers(held.astype(np.int64))
        codes[held != np.trunc(held)] = UNREADABLE
        codes[empty] = NULL
        return codes

    def _codes_of_text(self, texts: Any) -> Codes:
        whole, integers, readable, floats = arrow.text_numbers(texts)
        codes = self._codes_of_floats(floats)
        codes[whole] = self._codes_of_integers(integers[whole])
        codes[~readable] = UNREADABLE
        return codes

    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.int64()

    def _draw(self, codes: Codes, generator: np.random.Generator, empty: NDArray[np.bool_] | None) -> Any:
        import pyarrow as pa

        drawn = generator.integers(self.lower[codes], self.upper[codes], endpoint=True)
        return pa.array(np.asarray(drawn, dtype=np.int64), pa.int64(), mask=empty)


@dataclass(frozen=True)
class Real(Ordered):
    """Real numbers in bins with public ``edges``.

    ``edges = [0, 500, 1000]`` gives the bins [0, 500) and [500, 1000]: a value on the last edge belongs
    to the last bin. Reads integers, floats, decimals and texts of numbers; **NaN counts as missing**;
    infinities are outside the domain. Decodes to float64, drawn uniformly inside the bin and cut
    to decimals of about a thousandth of its width (or less); ``other`` becomes null.

    >>> Real("rent", [0, 500, 1000.5], outside="clip").labels()
    ('[0, 500) and less', '[500, 1000.5] and more')
    """

    type_name: ClassVar[str] = "real"
    expects: ClassVar[str] = "numbers"
    noun: ClassVar[str] = "numbers"

    edges: tuple[float, ...] = ()

    def _validate_bins(self) -> None:
        # Compared as floats: distinct whole numbers past 2**53 may meet there.
        edges = tuple(float(edge) for edge in check_edges(self, self.edges, "finite numbers", _finite))
        # -0.0 and 0.0 are the same border; one of them must stand for both in fingerprints.
        object.__setattr__(self, "edges", tuple(edge + 0.0 for edge in edges))

    @cached_property
    def lower(self) -> NDArray[np.float64]:
        return np.array(self.edges[:-1], dtype=np.float64)

    @cached_property
    def last(self) -> float:
        return self.edges[-1]

    @cached_property
    def upper(self) -> NDArray[np.float64]:
        return np.array(self.edges[1:], dtype=np.float64)

    @cached_property
    def _below(self) -> NDArray[np.float64]:
        """Largest number below the right end of each bin."""
        return np.nextafter(self.upper, -np.inf)

    def _spans(self) -> list[str]:
        return self._half_open_spans()

    def _text(self, value: Any) -> str:
        return number_text(value)

    def _codes_of_array(self, chunk: Any) -> Codes | None:
        import pyarrow as pa

        kind = chunk.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._codes_of_values(arrow.floats_of(chunk))
        return None

    def _codes_of_text(self, texts: Any) -> Codes:
        _, _, readable, floats = arrow.text_numbers(texts)
        codes = self._codes_of_values(floats)
        codes[~readable] = UNREADABLE
        return codes

    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.float64()

    def _draw(self, codes: Codes, generator: np.random.Generator, empty: NDArray[np.bool_] | None) -> Any:
        import pyarrow as pa

        low = self.lower[codes]
        high = self.upper[codes]
        share = generator.random(len(codes))
        # A weighted mean, since high - low may overflow; rounding must not leave the bin.
        drawn = np.clip(low * (1.0 - share) + high * share, low, self._below[codes])
        return pa.array(drawn, pa.float64(), mask=empty)

    @cached_property
    def _steps(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """For each bin the power of ten that its values are multiples of, as the whole number 10^d that divides (below
        1) or multiplies it; and which of the two."""
        with np.errstate(all="ignore"):  # where a width, or a step, exceeds float64, values keep their digits
            digits = np.ceil(3.0 - np.log10(self.upper - self.lower))
            digits[~(np.abs(digits) <= _EXACT_POWER)] = np.nan
            # A step has to be well above the spacing of the numbers there, and its power of ten exact.
            fine = np.spacing(np.maximum(np.abs(self.lower), np.abs(self.upper))) * 16
            useless = ~(10.0**-digits >= fine)
        power = 10.0 ** np.abs(digits)
        return np.where(useless, np.nan, power), digits > 0

    def _shortened(self, values: Any, codes: Codes) -> Any:
        import pyarrow as pa

        drawn, filled = values.to_numpy(zero_copy_only=False), np.asarray(values.is_valid())
        bins = np.where(filled, codes, 0)
        powers, divides = self._steps
        power = powers[bins]
        if divides.all():
            cut = np.floor(drawn * power) / power
        else:
            cut = np.where(divides[bins], np.floor(drawn * power) / power, np.floor(drawn / power) * power)
        inside = np.maximum(cut, self.lower[bins]) + 0.0
        return pa.array(np.where(inside < self.upper[bins], inside, drawn), pa.float64(), mask=~filled)


def _whole(value: Any) -> int | None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        return None
    return int(value) if abs(int(value)) <= MAX_NUMBER else None


def _finite(value: Any) -> float | None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def check_edges(column: Column, edges: Any, kind: str, number: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Edges as a tuple: two or more, strictly increasing; or ``SchemaError``.

    ``number`` places an edge on the line, and answers None for anything but an edge.
    """
    allowed = f"two or more {kind}, strictly increasing"
    if isinstance(edges, str) or not isinstance(edges, Iterable):
        raise column._wrong("edges: expected a list", allowed=allowed)
    values = tuple(edges)
    column.check_size(len(values) - 1)
    for value in values:
        if number(value) is None:
            raise column._wrong(f"unusable edge {value!r}", allowed=allowed)
    if len(values) < 2:
        raise column._wrong(f"there are {len(values)} edges", allowed=allowed)
    for before, after in itertools.pairwise(values):
        if not number(before) < number(after):
            raise column._wrong(f"the edge {after!s} follows {before!s}", allowed=allowed)
    return values


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number: 500, 0.1, 1e+20."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
