"""What black boxes release: distributions over records that answer every linear query. All of it is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError
from dpstream.core.graphical import Model
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import count_marginals
from dpstream.families.growing.blackbox import LinearQuery, ReleasedTable


def answer(table: ReleasedTable, query: LinearQuery) -> float:
    """``<f, y>``: a share of the records.

    Errors:
        ConfigError: the query has another number of values than its columns have cells.
    """
    cells = table.domain.cells(query.clique)
    if len(query.weights) != cells:
        raise ConfigError(
            f"the query has {len(query.weights)} values for {cells} cells", where="query", allowed=str(cells)
        )
    return float(query.weights @ table.shares([query.clique])[0])


@dataclass(frozen=True)
class ModelTable:
    """A graphical model."""

    model: Model

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.model.domain

    def shares(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """See ``ReleasedTable.shares``."""
        return self.model.with_total(1.0).marginals(cliques)

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """See ``ReleasedTable.sample``."""
        return self.model.sample(rows, seed)

    def pack(self) -> Packed:
        """See ``Released.pack``."""
        packed = self.model.pack()
        return Packed({"kind": "model", "model": packed.meta}, packed.arrays)


@dataclass(frozen=True)
class WeightsTable:
    """A probability for every cell of the universe, in C order of the columns."""

    domain: Domain
    weights: NDArray[np.float64]

    def shares(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """See ``ReleasedTable.shares``."""
        cube = self.weights.reshape(self.domain.sizes)
        return [
            cube.sum(axis=tuple(i for i in range(cube.ndim) if i not in clique)).ravel() for clique in cliques
        ]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """See ``ReleasedTable.sample``."""
        steps = np.cumsum(self.weights)
        places = np.random.default_rng(seed).random(rows) * steps[-1]
        cells = np.minimum(np.searchsorted(steps, places, side="right"), len(steps) - 1)
        return np.column_stack(np.unravel_index(cells, self.domain.sizes)).astype(np.int32)

    def pack(self) -> Packed:
        """See ``Released.pack``."""
        return Packed({"kind": "weights", **_columns(self.domain)}, {"weights": self.weights})


@dataclass(frozen=True)
class RowsTable:
    """Records as codes, shape (records, columns), each as likely as the others."""

    domain: Domain
    codes: NDArray[np.int32]

    def shares(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """See ``ReleasedTable.shares``."""
        return [counts / len(self.codes) for counts in count_marginals(self.codes, self.domain, cliques)]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Whole copies of the table as far as they go, and some of its records; in random order."""
        generator = np.random.default_rng(seed)
        whole = np.tile(np.arange(len(self.codes)), rows // len(self.codes))
        rest = generator.permutation(len(self.codes))[: rows % len(self.codes)]
        drawn: NDArray[np.int32] = self.codes[generator.permutation(np.concatenate([whole, rest]))]
        return drawn

    def pack(self) -> Packed:
        """See ``Released.pack``."""
        return Packed({"kind": "rows", **_columns(self.domain)}, {"codes": self.codes})


AnyTable = ModelTable | WeightsTable | RowsTable


def unpack_table(packed: Packed) -> AnyTable:
    """The inverse of ``pack``, whichever kind it was."""
    meta = packed.meta
    if meta["kind"] == "model":
        return ModelTable(Model.unpack(Packed(meta["model"], packed.arrays)))
    domain = Domain(tuple(meta["names"]), tuple(meta["sizes"]))
    if meta["kind"] == "weights":
        return WeightsTable(domain, packed.arrays["weights"])
    return RowsTable(domain, packed.arrays["codes"])


def _columns(domain: Domain) -> dict[str, Any]:
    return {"names": list(domain.names), "sizes": list(domain.sizes)}
