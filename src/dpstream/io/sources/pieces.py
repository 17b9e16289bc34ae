"""Records that were read and wait for their step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.foreign import shielded
from dpstream.io.sources.joining import join

__all__ = ["Pieces"]


class Pieces:
    """Keeps small tables for each step, in the order of the files, with inserts and deletes apart.

    Args:
        empty: an Arrow table without rows, with the columns of the records.
    """

    def __init__(self, empty: Any) -> None:
        self._empty = empty
        self._waiting: dict[tuple[int, bool], list[tuple[int, Any]]] = {}

    def add(
        self, table: Any, deletes: NDArray[np.bool_], *, steps: NDArray[np.int64], source: int = 0
    ) -> None:
        """Sort a block's records by step and operation.

        Args:
            table: the records.
            deletes: bool[records].
            steps: int64[records].
            source: the number of their file.
        """
        if not len(steps):
            return
        order = np.lexsort((deletes, steps))
        borders = np.flatnonzero(np.diff(steps[order]) | np.diff(deletes[order])) + 1
        for rows in np.split(order, borders):
            key = (int(steps[rows[0]]), bool(deletes[rows[0]]))
            # take copies, so a waiting record does not keep its whole block alive
            self._waiting.setdefault(key, []).append((source, table.take(rows)))

    def take(self, step: int) -> tuple[Any, Any]:
        """The inserts and the deletes of a step, which are forgotten then.

        Errors:
            DataError: the types of a column have no common type.
        """
        return self._take(step, False), self._take(step, True)

    def _take(self, step: int, deletes: bool) -> Any:
        # One file may be read further ahead than another; a stable sort restores the order of the files.
        waiting = sorted(self._waiting.pop((step, deletes), []), key=lambda piece: piece[0])
        with shielded("the records of a step cannot be joined", where="[source]", allowed="sound files"):
            return join([self._empty, *(table for _, table in waiting)], "[source]")
