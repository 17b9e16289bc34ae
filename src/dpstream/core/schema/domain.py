"""Domains and cliques: the vocabulary that counting, models and mechanisms share."""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import SchemaError

#: Sorted positions of attributes in a domain. Names appear only where users see them.
Clique = tuple[int, ...]
#: Codes of records, or of one column of them.
Codes = NDArray[np.int32]
#: One truth value for each record, or for each code.
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Impossible:
    """Cells of a clique that no record is in, publicly.

    Attributes:
        cells: the packed bits of a mask over the clique's cells in C order.
    """

    clique: Clique
    cells: bytes

    def mask(self, domain: Domain) -> Mask:
        """True where no record is, flat."""
        bits = np.frombuffer(self.cells, dtype=np.uint8)
        return np.unpackbits(bits, count=domain.cells(self.clique)).astype(np.bool_)


def pack_mask(mask: Mask) -> bytes:
    """The bits of a mask over a clique's cells, flat or with an axis for each column."""
    return np.packbits(mask.reshape(-1)).tobytes()


def pack_impossible(domain: Domain) -> dict[str, Any]:
    """What a packed domain says of impossible cells, JSON-able; nothing where there are none."""
    packed = [[list(one.clique), base64.b64encode(one.cells).decode()] for one in domain.impossible]
    return {"impossible": packed} if packed else {}


def unpack_impossible(meta: Mapping[str, Any]) -> tuple[Impossible, ...]:
    """The inverse of ``pack_impossible``. KeyError, TypeError, ValueError."""
    return tuple(
        Impossible(tuple(map(int, clique)), base64.b64decode(cells, validate=True))
        for clique, cells in meta.get("impossible", ())
    )


@dataclass(frozen=True)
class Follows:
    """An attribute that follows from others, publicly: ``codes`` are those for each of their cells in C order, packed
    as int32."""

    name: str
    size: int
    sources: Clique
    codes: bytes


@dataclass(frozen=True, eq=False)
class Fold:
    """A marginal with attributes that follow from others, as sums of cells of a marginal of these.

    Attributes:
        clique: in ``Domain.released``. source: in the domain itself.
        cells: for each cell of the source, the cell that it is a part of; None: both are the same.
    """

    clique: Clique
    source: Clique
    size: int
    cells: NDArray[np.int64] | None = None

    def of(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The marginal's counts, from those of the source: a record is in one cell of either."""
        if self.cells is None:
            return counts
        found = np.zeros(self.size, dtype=np.int64)
        np.add.at(found, self.cells, counts)
        return found


@dataclass(frozen=True)
class Domain:
    """Finite public domains: attribute ``i`` has codes ``0 .. sizes[i] - 1``.

    ``impossible``: cells of some cliques that no record is in; models give them no mass.
    ``derived``: attributes that follow from these. ``trees``: names of levels, with their attributes, the finest last.

    >>> domain = Domain(("zip", "paid"), (29, 2))
    >>> domain.clique(["paid", "zip"]), domain.cells((0, 1)), domain.label((0, 1))
    ((0, 1), 58, 'zip x paid')
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    impossible: tuple[Impossible, ...] = ()
    derived: tuple[Follows, ...] = field(default=(), compare=False, repr=False)
    trees: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes):
            raise SchemaError("names and sizes differ in number", where="domain")
        if not self.names:
            raise SchemaError("columns are missing", where="domain", allowed="one or more")
        if len(set(self.names)) != len(self.names):
            raise SchemaError("a column name occurs twice", where="domain")
        for name, size in zip(self.names, self.sizes, strict=True):
            if size < 1:
                raise SchemaError("empty domain", where=f"column {name!r}")

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Position of a column."""
        try:
            return self.names.index(name)
        except ValueError:
            raise SchemaError(
                f"unknown column {name!r}", where="domain", allowed=", ".join(self.names)
            ) from None

    def clique(self, names: Iterable[str]) -> Clique:
        """The clique of some columns (sorted, without repetition)."""
        return tuple(sorted({self.index(name) for name in names}))

    @cached_property
    def released(self) -> Domain:
        """These attributes and those that follow from them."""
        names = (*self.names, *(one.name for one in self.derived))
        return Domain(names, (*self.sizes, *(one.size for one in self.derived))) if self.derived else self

    def fold(self, names: Iterable[str]) -> Fold:
        """The marginal of some attributes, of which some may follow from others."""
        clique, many = self.released.clique(names), len(self)
        size = self.released.cells(clique)
        followed = [self.derived[place - many] for place in clique if place >= many]
        if not followed:
            return Fold(clique, clique, size)
        read = {source for one in followed for source in one.sources} | {i for i in clique if i < many}
        source = tuple(sorted(read))
        at = dict(zip(source, np.indices(self.shape(source)), strict=True))
        cells = np.zeros(self.shape(source), dtype=np.int64)
        for place in clique:
            codes = at[place] if place < many else self._codes(self.derived[place - many], at)
            cells = cells * self.released.sizes[place] + codes
        return Fold(clique, source, size, cells.reshape(-1))

    def _codes(self, one: Follows, at: Mapping[int, NDArray[np.int64]]) -> NDArray[np.int32]:
        table = np.frombuffer(one.codes, dtype=np.int32).reshape(self.shape(one.sources))
        return np.asarray(table[tuple(at[source] for source in one.sources)])

    def has(self, clique: Clique) -> bool:
        """Whether these are increasing positions of columns."""
        inside = not clique or (clique[0] >= 0 and clique[-1] < len(self))
        return inside and all(a < b for a, b in itertools.pairwise(clique))

    def label(self, clique: Clique) -> str:
        """A clique for people."""
        return " x ".join(self.names[i] for i in clique)

    def shape(self, clique: Sequence[int]) -> tuple[int, ...]:
        """Sizes of a clique's attributes, in the clique's order."""
        return tuple(self.sizes[i] for i in clique)

    def cells(self, clique: Sequence[int]) -> int:
        """Number of cells of a clique's marginal (1 for the empty clique)."""
        return math.prod(self.sizes[i] for i in clique)
