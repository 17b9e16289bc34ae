"""Records that were read and wait for their step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.foreign import shielded
from dpstream.core.schema.encoded_table import BlockEncoder, EncodedBlock, EncodedTable
from dpstream.io.sources.joining import join

_WHERE = "[source]"


class Pieces:
    """Keeps small tables for each step, in the order of the files, with inserts and deletes apart.

    Args:
        empty: an Arrow table without rows, with the columns of the records.
        encoder: what encoded the pieces that are no tables; steps are then ``EncodedTable``.
    """

    def __init__(self, empty: Any, encoder: BlockEncoder | None = None) -> None:
        self._empty = empty
        self._encoder = encoder
        self._waiting: dict[tuple[int, bool], list[tuple[int, Any]]] = {}

    def add(
        self, table: Any, deletes: NDArray[np.bool_], *, steps: NDArray[np.int64], source: int = 0
    ) -> None:
        """Sort a block's records by step and operation.

        Args:
            table: the records: an Arrow table, or an ``EncodedBlock``.
            deletes: bool[records].
            steps: int64[records].
            source: the number of their file.
        """
        if not len(steps):
            return
        if (steps == steps[0]).all() and (deletes == deletes[0]).all():
            self._keep(int(steps[0]), bool(deletes[0]), source, table)
            return
        order = np.lexsort((deletes, steps))
        borders = np.flatnonzero(np.diff(steps[order]) | np.diff(deletes[order])) + 1
        for rows in np.split(order, borders):
            # take copies, so a waiting record does not keep its whole block alive
            self._keep(int(steps[rows[0]]), bool(deletes[rows[0]]), source, table.take(rows))

    def _keep(self, step: int, deletes: bool, source: int, piece: Any) -> None:
        self._waiting.setdefault((step, deletes), []).append((source, piece))

    def take(self, step: int) -> tuple[Any, Any]:
        """The inserts and the deletes of a step, which are forgotten then.

        Errors:
            DataError: the types of a column have no common type.
        """
        return self._take(step, False), self._take(step, True)

    def _take(self, step: int, deletes: bool) -> Any:
        # One file may be read further ahead than another; a stable sort restores the order of the files.
        waiting = sorted(self._waiting.pop((step, deletes), []), key=lambda piece: piece[0])
        pieces = [piece for _, piece in waiting]
        with shielded("the records of a step cannot be joined", where=_WHERE, allowed="sound files"):
            if self._encoder is None:
                return join([self._empty, *pieces], _WHERE)
            return self._encoded(self._encoder, pieces)

    def _encoded(self, encoder: BlockEncoder, pieces: list[Any]) -> EncodedTable:
        """What is encoded as it is, the rest with the types that it has in common with all."""
        rest: list[Any] = [self._empty]
        kept: list[Any] = [self._empty.select(encoder.kept)]
        parts: list[Any] = []
        for piece in pieces:
            if isinstance(piece, EncodedBlock):
                parts.append(piece.codes)
                kept.append(piece.kept)
                if not piece.empty.schema.equals(rest[-1].schema):
                    rest.append(piece.empty)
            else:
                parts.append(piece.num_rows)
                kept.append(piece.select(encoder.kept))
                rest.append(piece)
        columns = join(kept, _WHERE) if encoder.kept else None
        constraints = None if encoder.rules is None else encoder.rules.constraints
        together = join(rest, _WHERE)
        return EncodedTable(
            encoder.columns, encoder.null_values, tuple(parts), together, columns, constraints
        )
