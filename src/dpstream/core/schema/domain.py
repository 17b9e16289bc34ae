"""Domains and cliques: the vocabulary that counting, models and mechanisms share."""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
class Domain:
    """Finite public domains: attribute ``i`` has codes ``0 .. sizes[i] - 1``.

    ``impossible``: cells of some cliques that no record is in; models give them no mass.

    >>> domain = Domain(("zip", "paid"), (29, 2))
    >>> domain.clique(["paid", "zip"]), domain.cells((0, 1)), domain.label((0, 1))
    ((0, 1), 58, 'zip x paid')
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    impossible: tuple[Impossible, ...] = ()

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
