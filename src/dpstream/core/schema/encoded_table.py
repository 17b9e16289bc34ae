"""Records that were encoded while they were read, so that their text need not wait in memory.

What a record's codes are depends on that record and the declaration alone, so it does not matter in which block it is
encoded. Whether a *step* can be encoded, and what is said where it cannot, is decided when its records are together: a
block with any cell without a code stays as it was read, and an error is the one that the whole table gives.

Trusted base: kernel (holds encoded private records).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpstream.core.schema.code_blocks import AnyCodes, CodeBlocks, narrow_type
from dpstream.core.schema.column import Column, Problem, Remembered
from dpstream.core.schema.constraints import Constraints, Rules
from dpstream.core.schema.domain import Codes

Rows = NDArray[Any]


@dataclass(frozen=True, repr=False)
class EncodedBlock:
    """Some records, encoded. Private.

    Attributes:
        codes: rows x columns of the schema, column-major, in the schema's narrow type.
        kept: columns that are not encoded; None where there are none.
        empty: the block as it was read, without its rows: names and types.
    """

    codes: AnyCodes
    kept: Any
    empty: Any

    @property
    def num_rows(self) -> int:
        """The number of records."""
        return len(self.codes)

    def take(self, rows: Rows) -> EncodedBlock:
        """Some of the records, by number or by a mask."""
        chosen = np.empty((len(rows), self.codes.shape[1]), self.codes.dtype, order="F")
        np.take(self.codes, rows, axis=0, out=chosen, mode="clip")
        return EncodedBlock(chosen, None if self.kept is None else self.kept.take(rows), self.empty)


class BlockEncoder:
    """Encodes blocks of records; several threads may use one.

    Args:
        columns, null_values: those of the schema.
        kept: names of columns that stay as they are.
        rules: the schema's public constraints.
        unread: names of other columns that a block may have.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        null_values: tuple[str, ...],
        kept: Sequence[str] = (),
        rules: Rules | None = None,
        unread: Sequence[str] = (),
    ) -> None:
        self.columns = tuple(columns)
        self.null_values = null_values
        self.rules = rules
        self._read = (*self.columns, *(() if rules is None else rules.read))
        self.names = frozenset(column.name for column in self._read)
        self.kept = tuple(kept)
        self._declared = self.names.union(kept, unread)
        self._type = narrow_type([column.size for column in columns])
        self._remembered = [Remembered() for _ in self._read]
        self._empty: Any = None

    def codes(
        self, table: Any, kind: DTypeLike = np.int32, *, reveal: bool = False, keep_null: bool = False
    ) -> tuple[AnyCodes, list[Codes], list[Problem]]:
        """Codes of the measured columns, of those that follow and are read, and what has none. See ``Column.fill``."""
        codes = np.empty((table.num_rows, len(self.columns)), kind, order="F")
        derived: list[Codes] = [np.empty(table.num_rows, np.int32) for _ in self._read[len(self.columns) :]]
        problems = []
        for column, out, remembered in zip(self._read, (*codes.T, *derived), self._remembered, strict=True):
            problems += column.fill(
                table.column(column.name),
                out,
                null_values=self.null_values,
                reveal=reveal,
                remembered=remembered,
                keep_null=keep_null,
            )
        return codes, derived, problems

    def encode(self, table: Any) -> EncodedBlock | None:
        """A block's codes; None where a column is not there or not declared, or a cell has no code."""
        if not self.names <= set(table.column_names) <= self._declared:
            return None
        codes, derived, problems = self.codes(table, self._type)
        if problems or (self.rules is not None and self.rules.settle(codes, derived)):
            return None
        codes.flags.writeable = False
        kept = table.select(self.kept) if self.kept else None
        return EncodedBlock(codes, kept, self._without_rows(table))

    def gives_codes_of(
        self, columns: Sequence[Column], null_values: tuple[str, ...], constraints: Constraints | None
    ) -> bool:
        """Whether a schema with these has the same codes."""
        known = None if self.rules is None else self.rules.constraints
        return (self.columns, self.null_values, known) == (tuple(columns), null_values, constraints)

    def _without_rows(self, table: Any) -> Any:
        import pyarrow as pa

        # A slice would keep the block's values alive; nulls can be made of every type.
        if self._empty is None or not self._empty.schema.equals(table.schema):
            columns = [pa.nulls(0, column.type) for column in table.columns]
            self._empty = pa.table(columns, schema=table.schema)
        return self._empty


@dataclass(frozen=True, repr=False)
class EncodedTable:
    """The records of a step, most of them encoded: what a source hands out that was given a schema. Private.

    ``Schema.encode`` takes it like any other frame, with the same schema only.

    Attributes:
        encoder: what encoded them.
        parts: codes, or a number of rows of ``rest`` that come at this place.
        rest: the records that are not encoded, with the names and the common types of all.
        kept: columns that are not encoded, of all records; None where there are none.
    """

    encoder: BlockEncoder
    parts: tuple[AnyCodes | int, ...]
    rest: Any
    kept: Any = None
    _dropped: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(records hidden)"

    @property
    def num_rows(self) -> int:
        """The number of records."""
        return sum(part if isinstance(part, int) else len(part) for part in self.parts)

    @property
    def column_names(self) -> list[str]:
        """The names of all columns, as they were read."""
        return [name for name in self.rest.column_names if name not in self._dropped]

    def column(self, name: str) -> Any:
        """A column that is not encoded."""
        return self.kept.column(name)

    def drop_columns(self, names: Sequence[str]) -> EncodedTable:
        """The table without some columns that are not encoded."""
        return replace(self, _dropped=(*self._dropped, *names))

    def remaining(self) -> Any:
        """The records that are not encoded."""
        return self.rest.select(self.column_names)

    def blocks(self, rest: Codes) -> CodeBlocks:
        """The codes of all records.

        Args:
            rest: those of ``remaining``.
        """
        placed: list[AnyCodes] = []
        done = 0
        for part in self.parts:
            if isinstance(part, int):
                placed.append(rest[done : done + part])
                done += part
            else:
                placed.append(part)
        return CodeBlocks.joined(len(self.encoder.columns), placed)
