"""A released table in the columns of another schema: what a successor stream begins with. All of it is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import count_marginals


@dataclass(frozen=True)
class ColumnSource:
    """Where one column comes from.

    Attributes:
        codes: of the old column, one per record; all 0 for a column that the old table does not have.
        shares: row ``i`` says how the records with old code ``i`` are spread over the new codes; shape (old codes,
            new codes), nothing below 0, every row adds up to 1.
    """

    codes: NDArray[np.int32]
    shares: NDArray[np.float64]

    @property
    def certain(self) -> bool:
        """Whether every old code becomes one new code."""
        return bool((self.shares.max(axis=1) == 1.0).all())


@dataclass(frozen=True)
class MappedTable:
    """The table with the declared shares: a ``StartTable``.

    Marginals are exact linear maps of the released table's: a record whose value is split counts with its shares
    in every cell, so that nothing is drawn. Splits of different columns are independent, given the old record.

    Attributes:
        domain: the new columns.
        columns: one source per new column.
        total, total_error: the number of records, and its standard error. The table may have been cut.
        seed: public; ``records`` has to draw where a value is split.

    >>> halves = ColumnSource(np.array([0, 0, 1], np.int32), np.array([[0.5, 0.5, 0], [0, 0, 1]]))
    >>> table = MappedTable(Domain(("zip",), (3,)), (halves,), 3.0, None, 1)
    >>> table.marginals([(0,)])[0].tolist()
    [1.0, 1.0, 1.0]
    """

    domain: Domain
    columns: tuple[ColumnSource, ...]
    total: float
    total_error: float | None
    seed: int

    @cached_property
    def _codes(self) -> NDArray[np.int32]:
        """The records: columns whose old codes each become one new code are mapped; the others keep their old codes."""
        mapped = [
            column.shares.argmax(axis=1)[column.codes] if column.certain else column.codes
            for column in self.columns
        ]
        return np.asfortranarray(np.column_stack(mapped).astype(np.int32))

    @cached_property
    def _half(self) -> Domain:
        """The domain of ``_codes``."""
        sizes = (
            size if column.certain else len(column.shares)
            for column, size in zip(self.columns, self.domain.sizes, strict=True)
        )
        return Domain(self.domain.names, tuple(sizes))

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """See ``StartTable``. Cost: one count of the table, and a product per column that is split."""
        rows = len(self._codes)
        scale = self.total / rows if rows else 0.0
        marginals = []
        for clique, counted in zip(cliques, count_marginals(self._codes, self._half, cliques), strict=True):
            values = counted.astype(np.float64).reshape(self._half.shape(clique))
            for axis, position in enumerate(clique):
                column = self.columns[position]
                if not column.certain:
                    values = np.moveaxis(np.tensordot(values, column.shares, axes=(axis, 0)), -1, axis)
            marginals.append(scale * values.ravel())
        return marginals

    def records(self) -> NDArray[np.int32]:
        """The table's records, split values drawn by their shares."""
        generator = np.random.default_rng(self.seed)
        codes = self._codes.copy()
        for position, column in enumerate(self.columns):
            if not column.certain:
                ends = column.shares.cumsum(axis=1)
                ends[:, -1] = np.inf  # sums of shares may end a rounding error below 1
                places = generator.random(len(codes))
                codes[:, position] = (places[:, None] >= ends[column.codes]).sum(axis=1)
        return codes
