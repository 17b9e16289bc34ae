"""Records that were read and wait for their step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.errors import DataError
from dpstream.schema.cells import as_cells, is_cells

__all__ = ["Pieces"]


class Pieces:
    """Small tables per step, in the order of the files; inserts and deletes apart."""

    def __init__(self, empty: Any) -> None:
        self._empty = empty
        self._waiting: dict[tuple[int, bool], list[tuple[int, Any]]] = {}

    def add(
        self, table: Any, deletes: NDArray[np.bool_], *, steps: NDArray[np.int64], source: int = 0
    ) -> None:
        """Sort a block's records by step and operation; ``source`` is the number of their file."""
        if not len(steps):
            return
        order = np.lexsort((deletes, steps))
        borders = np.flatnonzero(np.diff(steps[order]) | np.diff(deletes[order])) + 1
        for rows in np.split(order, borders):
            key = (int(steps[rows[0]]), bool(deletes[rows[0]]))
            # take copies, so a waiting record does not keep its whole block alive
            self._waiting.setdefault(key, []).append((source, table.take(rows)))

    def take(self, step: int) -> tuple[Any, Any]:
        """Inserts and deletes of a step, which then are forgotten."""
        return self._take(step, False), self._take(step, True)

    def _take(self, step: int, deletes: bool) -> Any:
        import pyarrow as pa

        # Files may be read ahead of each other; their order is restored here (the sort is stable).
        waiting = sorted(self._waiting.pop((step, deletes), []), key=lambda piece: piece[0])
        tables = _alike([self._empty, *(table for _, table in waiting)])
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException:
            # The message of pyarrow names types only, but not the column that has them.
            column = next(name for name in self._empty.column_names if not _fits(tables, name))
            raise DataError(
                f"the column {column!r} has different types in different files",
                where="[source]",
                allowed="one type for a column",
            ) from None


def _alike(tables: list[Any]) -> list[Any]:
    """Where one file's cells keep their own kinds (NDJSON), those of the others do too."""
    for number, name in enumerate(tables[0].column_names):
        kinds = [is_cells(table.schema.field(number).type) for table in tables]
        if any(kinds) and not all(kinds):
            found = [table.column(number).combine_chunks() for table in tables]
            made = [as_cells(array) for array in found]
            tables = [
                table if cells is None else table.set_column(number, name, cells)
                for table, cells in zip(tables, made, strict=True)
            ]
    return tables


def _fits(tables: list[Any], name: str) -> bool:
    import pyarrow as pa

    try:
        pa.unify_schemas(
            [pa.schema([table.schema.field(name)]) for table in tables], promote_options="permissive"
        )
    except pa.ArrowException:
        return False
    return True
