"""The operation column of a change feed: which words mean insert, and which mean delete.

Trusted base: source (reads private records).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.foreign import shielded

_WHERE = "[source] op_values"
_WORDS_ALLOWED = 'such as {insert = ["c", "after"], delete = ["d", "before"]}'

#: What to write instead of an update that lacks the old row.
UPDATE_ADVICE = (
    "two records instead: delete with the old values, then insert with the new ones (in a change feed: "
    "update-before, update-after)"
)


@dataclass(frozen=True)
class Operations:
    """Which words of the operation column mean insert and delete.

    An update is two records: the old row is a delete, and the new row is an insert. Nothing checks that both are there,
    because what happens to one record must not depend on another.

    >>> Operations.parse({"insert": "c", "delete": ["d", "before"]}).delete
    ('d', 'before')
    """

    insert: tuple[str, ...] = ("insert", "update-after")
    delete: tuple[str, ...] = ("delete", "update-before")

    @classmethod
    def parse(cls, table: object) -> Self:
        """Read ``op_values = {insert = [...], delete = [...]}``.

        Errors:
            ConfigError: other keys, no words, a word in both lists, or the word ``update``.
        """
        if not isinstance(table, Mapping) or set(table) != {"insert", "delete"}:
            raise ConfigError(
                "op_values is not a table of two lists of words: insert, delete",
                where=_WHERE,
                allowed=_WORDS_ALLOWED,
            )
        insert, delete = read_words(table["insert"]), read_words(table["delete"])
        twice = sorted(set(insert) & set(delete))
        if twice:
            raise ConfigError(
                f"the word {twice[0]!r} stands in both lists", where=_WHERE, allowed="each word once"
            )
        if "update" in insert + delete:
            raise ConfigError(
                "a row with the word 'update' lacks the old row", where=_WHERE, allowed=UPDATE_ADVICE
            )
        return cls(insert, delete)

    def pinned(self) -> dict[str, list[str]]:
        """The lists as JSON values, sorted and without repetitions, so that equal settings are equal."""
        return {"insert": sorted(set(self.insert)), "delete": sorted(set(self.delete))}


def read_words(value: Any, allowed: str = _WORDS_ALLOWED) -> tuple[str, ...]:
    """Read one word or a list of words.

    Args:
        allowed: what the message says is allowed.

    Errors:
        ConfigError: it is neither, or a word is empty or has characters that cannot be printed.
    """
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list | tuple)
        or not words
        or not all(isinstance(word, str) and word.strip() and word.isprintable() for word in words)
    ):
        raise ConfigError("the words are not a text or a list of texts", where=_WHERE, allowed=allowed)
    return tuple(words)


_KEYED_WORDS = (
    'such as {insert = ["c", "r"], update = "u", delete = "d"}, and ignore = [...] for rows to leave out'
)
#: The operations as ``KeyedBatch`` spells them.
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_LISTS = (INSERT, UPDATE, DELETE, "ignore")


@dataclass(frozen=True)
class KeyedOperations(Operations):
    """Which words of the operation column mean insert, update, delete and ignore, where records have keys.

    An update is one row with the key and the new values. A feed may also write a row with the old values; its word
    belongs under ``ignore``, and such rows are left out.

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
            raise ConfigError(
                "op_values is not a table of lists of words: insert, update, delete, ignore",
                where=_WHERE,
                allowed=_KEYED_WORDS,
            )
        lists = {name: read_words(table[name], _KEYED_WORDS) if name in table else () for name in _LISTS}
        words = [word for listed in lists.values() for word in dict.fromkeys(listed)]
        twice = sorted({word for word in words if words.count(word) > 1})
        if twice:
            raise ConfigError(
                f"the word {twice[0]!r} stands in two lists", where=_WHERE, allowed="each word once"
            )
        return cls(**lists)

    def pinned(self) -> dict[str, list[str]]:
        """The lists as JSON values, sorted and without repetitions, so that equal settings are equal."""
        return {name: sorted(set(getattr(self, name))) for name in _LISTS}

    def read(self, column: Any, *, name: str, where: str) -> tuple[Any, Any]:
        """Translate the words of a column into operations.

        Args:
            column: an Arrow array, chunked or not.

        Returns:
            A string array with ``insert``, ``update`` or ``delete`` for each row that is kept, and a boolean array over
            all rows, true where the row is kept (its word is not under ``ignore``).

        Errors:
            DataError: a null, or a word that is in no list. The message does not repeat the word.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        allowed = ", ".join([*self.insert, *self.update, *self.delete, *self.ignore])
        where = f"{where}, column {name!r}"
        with shielded("the operations cannot be read", where=where, allowed=allowed):
            values = plain_texts(column, numbers=False)
            if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
                raise DataError("an operation is not a text", where=where, allowed=allowed)
            meaning = pa.nulls(len(values), pa.string())
            for operation in _LISTS:
                words = getattr(self, operation)
                if words:
                    listed = pc.is_in(values, pa.array(words, values.type))
                    meaning = pc.if_else(listed, pa.scalar(operation), meaning)
            if meaning.null_count:
                raise DataError("unknown operation", where=where, allowed=allowed)
            keep = pc.not_equal(meaning, "ignore")
            return meaning.filter(keep), keep


def plain_texts(column: Any, *, numbers: bool) -> Any:
    """A column as one Arrow array. NDJSON cells become strings (whole numbers too, if ``numbers``), and so does a
    column of nulls only; every other column keeps its type."""
    import pyarrow as pa

    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):  # no chunk at all
        values = pa.array([], column.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string()) if pa.types.is_null(values.type) else values
