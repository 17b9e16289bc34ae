"""Records with keys, step by step: change feeds and snapshots, read through a source that does not know keys.

The source beneath cuts rows into steps. It reads the key column as its column of users, because keys and user ids have
the same form in all formats: texts or whole numbers. This module reads the operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpstream.core.errors import DataError
from dpstream.core.tables import KeyedBatch, Snapshot
from dpstream.io.sources.keyed_operations import UPDATE, KeyedOperations
from dpstream.io.sources.keyed_options import key_rules
from dpstream.io.sources.operations import Operations
from dpstream.io.sources.source import Source
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput

_WITHOUT_KEY: Mapping[str, Any] = {
    "key_column": None,
    "shape": "changes",
    "delete_time_column": None,
    "updates": "rows",
    "unknown": "error",
    "known": None,
    "repeated": None,
    "shrinks": 0.1,
    "insert_only": False,
    "op_column": None,
    "op_values": Operations(),
}


def plain_options(options: SourceOptions, **others: Any) -> SourceOptions:
    """The options of the source beneath: without the keys about keyed records, and with the record's key as its user.

    Args:
        others: more options to replace.
    """
    drops = options.can_have_late("drop-and-count-nothing")
    own = {**_WITHOUT_KEY, "user_column": options.key_column, "drops_late": drops}
    return replace(options, **{**own, **others})


def with_key(rows: Any, keys: Any, key_column: str) -> Any:
    """Append the keys to the rows as the column ``key_column``."""
    return rows.append_column(key_column, keys)


def free_name(wanted: str, names: Sequence[str]) -> str:
    """``wanted``, with underscores appended until it is none of ``names``."""
    while wanted in names:
        wanted += "_"
    return wanted


class KeyedSource(Source):
    """Changes by key, or snapshots, made from the steps of another source.

    Guarantee: that of the source beneath. The operation of a row depends on that row alone.

    Errors: those of the source beneath; DataError, at its step: there is no operation column, or it holds a null or an
    unknown word.
    """

    def __init__(self, options: SourceOptions, beneath: Source) -> None:
        self.options = options
        self.beneath = beneath
        self._empty_is_null = False

    @property
    def position(self) -> dict[str, int]:
        """The position of the source beneath."""
        return self.beneath.position

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        self._empty_is_null = self.options.updates == "changed" and _reads_csv(self.beneath)
        for entry in self.beneath.steps(start_step, seen=seen, key=key):
            yield StepInput(entry.step, entry.batch_id, entry.period, None, None, keyed=self._keyed(entry))

    def committed(self, position: Mapping[str, int]) -> None:
        """See ``Source``."""
        self.beneath.committed(position)

    def resume(self, step: int, position: Mapping[str, int]) -> None:
        """See ``Source``."""
        self.beneath.resume(step, position)

    def signature(self) -> Any:
        """See ``Source``."""
        return self.beneath.signature()

    def _keyed(self, entry: StepInput) -> KeyedBatch | Snapshot:
        assert entry.users is not None  # plain_options names a column of users
        key, rules = str(self.options.key_column), key_rules(self.options)
        rows = with_key(entry.inserts, entry.users[0], key)
        if self.options.shape == "snapshots":
            return Snapshot(rows, key, rules)
        column = self.options.op_column
        if column is None:
            return KeyedBatch(rows, key, rules=rules)
        rows = self._read_operations(rows, column, f"step {entry.batch_id}")
        return KeyedBatch(
            rows, key, column, "null-keeps" if self.options.updates == "changed" else None, rules
        )

    def _read_operations(self, rows: Any, column: str, where: str) -> Any:
        """The rows that are not ignored, with their operations in the words of ``KeyedBatch``."""
        if column not in rows.column_names:
            raise DataError(f"there is no column {column!r}", where=where, allowed="a column of the data")
        words = self.options.op_values
        assert isinstance(words, KeyedOperations)  # SourceOptions
        meaning, keep = words.read(rows.column(column), name=column, where=where)
        rows = rows.drop_columns([column]).filter(keep)
        if self._empty_is_null:
            rows = _nulls_for_empty(rows, meaning, str(self.options.key_column))
        return rows.append_column(column, meaning)


def _reads_csv(source: Source) -> bool:
    """Whether the source has a csv file, where a cell cannot be null."""
    from dpstream.io.sources.file_opening import file_format
    from dpstream.io.sources.files import FileSource

    return isinstance(source, FileSource) and any(file_format(path) == "csv" for path in source.files())


def _nulls_for_empty(rows: Any, meaning: Any, key_column: str) -> Any:
    """Replace empty texts in updates by nulls, which keep the old value: a csv file has no nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    updates = pc.equal(meaning, UPDATE)
    for number, name in enumerate(rows.column_names):
        column = rows.column(name)
        if name != key_column and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            empty = pc.and_(updates, pc.fill_null(pc.equal(column, ""), False))
            rows = rows.set_column(number, name, pc.if_else(empty, pa.scalar(None, column.type), column))
    return rows
