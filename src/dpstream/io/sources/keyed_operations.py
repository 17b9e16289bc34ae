"""The words of a change feed by key: what each row does to the record that its key names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.foreign import shielded
from dpstream.core.schema.cells import is_cells, texts
from dpstream.io.sources.operations import Operations, read_words

__all__ = ["DELETE", "INSERT", "UPDATE", "KeyedOperations"]

_WHERE = "[source] op_values"
_ALLOWED = 'such as {insert = ["c", "r"], update = "u", delete = "d"}, and ignore = [...] for rows that say nothing new'
#: What a row does, as the stream is told.
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_LISTS = (INSERT, UPDATE, DELETE, "ignore")


@dataclass(frozen=True)
class KeyedOperations(Operations):
    """The words of an operation column where records have keys.

    An update is one row with the new values, and the key says whose they are. A row with the old values says nothing
    that the stream does not know (``ignore``).

    >>> KeyedOperations.parse({"insert": ["c", "r"], "update": "u", "delete": "d"}).update
    ('u',)
    """

    insert: tuple[str, ...] = ("insert",)
    delete: tuple[str, ...] = ("delete",)
    update: tuple[str, ...] = ("update", "update-after")
    ignore: tuple[str, ...] = ("update-before",)

    @classmethod
    def parse(cls, table: object) -> Self:
        """Read ``op_values``; a list that is left out is empty.

        Errors:
            ConfigError: other keys, no words at all, or a word in two lists.
        """
        if not isinstance(table, Mapping) or not table or not set(table) <= set(_LISTS):
            raise ConfigError("not the words of inserts, updates and deletes", where=_WHERE, allowed=_ALLOWED)
        lists = {name: read_words(table[name], _ALLOWED) if name in table else () for name in _LISTS}
        words = [word for found in lists.values() for word in dict.fromkeys(found)]
        twice = sorted({word for word in words if words.count(word) > 1})
        if twice:
            raise ConfigError(
                f"the word {twice[0]!r} stands in two lists", where=_WHERE, allowed="each word once"
            )
        return cls(**lists)

    def pinned(self) -> dict[str, list[str]]:
        """JSON-able, one spelling per meaning."""
        return {name: sorted(set(getattr(self, name))) for name in _LISTS}

    def read(self, column: Any, *, name: str, where: str) -> tuple[Any, Any]:
        """What each row does, and which rows do anything.

        Args:
            column: an Arrow array, chunked or not.

        Returns:
            A string array of ``insert``, ``update``, ``delete`` for the rows that are kept, and a boolean array over
            all rows that says which these are.

        Errors:
            DataError: a null, or a word that is not declared; the message does not say which.
        """
        allowed = ", ".join([*self.insert, *self.update, *self.delete, *self.ignore])
        place = f"{where}, column {name!r}"
        with shielded("the operations cannot be read", where=place, allowed=allowed):
            return self._read(column, place, allowed)

    def _read(self, column: Any, where: str, allowed: str) -> tuple[Any, Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = plain_texts(column, numbers=False)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            raise DataError("the operation is not a text", where=where, allowed=allowed)
        meaning = pa.nulls(len(values), pa.string())
        for name in _LISTS:
            words = getattr(self, name)
            if words:
                meant = pc.is_in(values, pa.array(words, values.type))
                meaning = pc.if_else(meant, pa.scalar(name), meaning)
        if meaning.null_count:
            raise DataError("unknown operation", where=where, allowed=allowed)
        keep = pc.not_equal(meaning, "ignore")
        return meaning.filter(keep), keep


def plain_texts(column: Any, *, numbers: bool) -> Any:
    """A column as one array: the cells of NDJSON as texts (whole numbers too, if ``numbers``), all others as they are;
    a column that holds nothing at all as texts."""
    import pyarrow as pa

    if is_cells(column.type):
        return texts(column.to_pylist(), numbers=numbers)
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):  # no chunk at all
        values = pa.array([], column.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string()) if pa.types.is_null(values.type) else values
