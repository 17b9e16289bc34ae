"""The operation column of a change feed: which words mean insert, update and delete.

Trusted base: source (reads private records).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.foreign import shielded

_WHERE = "[source] op_values"
WORDS_ALLOWED = 'such as {insert = ["c", "after"], delete = ["d", "before"]}'
_KEYED_WORDS = 'such as {insert = ["c", "r"], update = "u", delete = "d"}, ignore = [...]'
#: What to write instead of an update that lacks the old row.
UPDATE_ADVICE = "a delete with the old values, then an insert with the new ones (update-before, update-after)"
#: The operations as ``KeyedBatch`` spells them.
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_LISTS = (INSERT, UPDATE, DELETE, "ignore")


@dataclass(frozen=True)
class Operations:
    """Which words of the operation column mean insert, update, delete and ignore.

    Where records have keys, an update is one row with the key and the new values. A feed may also write a row with the
    old values; its word belongs under ``ignore``, and such rows are left out. Without keys an update is two records:
    the old row is a delete, and the new row is an insert. Nothing checks that both are there, because what happens to
    one record must not depend on another.

    >>> Operations.parse({"insert": "c", "delete": ["d", "before"]}).delete
    ('d', 'before')
    >>> Operations.parse({"insert": ["c", "r"], "update": "u", "delete": "d"}, keyed=True).update
    ('u',)
    """

    insert: tuple[str, ...] = ("insert", "update-after")
    delete: tuple[str, ...] = ("delete", "update-before")
    update: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    @classmethod
    def parse(cls, table: object, *, keyed: bool = False) -> Self:
        """Read ``op_values``; with keys, a list that is left out is empty.

        Errors:
            ConfigError: other keys, no words at all, a word in two lists, or without keys the word ``update``.
        """
        allowed = _KEYED_WORDS if keyed else WORDS_ALLOWED
        given = set(table) if isinstance(table, Mapping) else set()
        if not isinstance(table, Mapping) or not (
            given and given <= {*_LISTS} if keyed else given == {INSERT, DELETE}
        ):
            lists = _LISTS if keyed else (INSERT, DELETE)
            raise ConfigError(f"expected lists of words: {', '.join(lists)}", where=_WHERE, allowed=allowed)
        read = cls(**{name: _words(table[name], allowed) if name in table else () for name in _LISTS})
        words = [word for name in _LISTS for word in dict.fromkeys(getattr(read, name))]
        twice = sorted({word for word in words if words.count(word) > 1})
        if twice:
            raise ConfigError(
                f"the word {twice[0]!r} stands in two lists", where=_WHERE, allowed="each word once"
            )
        if UPDATE in words and not keyed:
            raise ConfigError("an 'update' row lacks the old row", where=_WHERE, allowed=UPDATE_ADVICE)
        return read

    @property
    def words(self) -> tuple[str, ...]:
        """All of them, list by list."""
        return tuple(word for name in _LISTS for word in getattr(self, name))

    def pinned(self) -> dict[str, list[str]]:
        """The lists as JSON values, sorted and without repetitions, so that equal settings are equal."""
        return {name: sorted(set(getattr(self, name))) for name in _LISTS if getattr(self, name)}

    def read(self, column: Any, *, name: str, where: str, before: int | None = None) -> NDArray[np.str_]:
        """What each row of a column does: ``insert``, ``update``, ``delete`` or ``ignore``.

        Args:
            column: an Arrow array, chunked or not.
            name, where, before: as of ``times_of``, for messages.

        Errors:
            DataError: a null, or an unlisted word. The message does not repeat the word; where lists lack
                updates, it says for ``update`` what to write instead.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        where, allowed = f"{where}, column {name!r}", ", ".join(self.words)
        with shielded("unreadable operations", where=where, allowed=allowed):
            values = plain_texts(column)
            if not len(values):
                return np.zeros(0, "U6")
            if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
                raise DataError("expected operations as texts", where=where, allowed=allowed)
            values = pc.fill_null(values, "")
            if not self.update:
                refuse_rows(
                    pc.equal(values, UPDATE), "an update lacks the old row", where, before, UPDATE_ADVICE
                )
            place = pc.index_in(values, pa.array(self.words, values.type))
            refuse_rows(place.is_null(), "unknown operation", where, before, allowed)
            meaning = np.repeat(_LISTS, [len(getattr(self, listed)) for listed in _LISTS])
            chosen: NDArray[np.str_] = meaning[place.to_numpy(zero_copy_only=False)]
            return chosen

    def deletes(self, column: Any, *, name: str, where: str, before: int | None = None) -> NDArray[np.bool_]:
        """Whether each row of a column is a delete; arguments and errors as of ``read``."""
        deletes: NDArray[np.bool_] = self.read(column, name=name, where=where, before=before) == DELETE
        return deletes


#: What is meant where records have keys and nothing else is said.
BY_KEY = Operations(("insert",), ("delete",), ("update", "update-after"), ("update-before",))


def _words(value: Any, allowed: str) -> tuple[str, ...]:
    """One word or a list of words (ConfigError where it is neither, or a word is empty or cannot be printed)."""
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list | tuple)
        or not words
        or not all(isinstance(word, str) and word.strip() and word.isprintable() for word in words)
    ):
        raise ConfigError("expected a text or texts", where=_WHERE, allowed=allowed)
    return tuple(words)


def plain_texts(column: Any) -> Any:
    """A column as one Arrow array; a column of nulls only becomes one of texts."""
    import pyarrow as pa

    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):  # no chunk at all
        values = pa.array([], column.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string()) if pa.types.is_null(values.type) else values


def refuse_rows(bad: Any, what: str, where: str, before: int | None, allowed: str) -> None:
    """Refuse the first row that is bad (DataError).

    Args:
        bad: bool for each row, an Arrow array.
        before: how many records come before these, so that the message can name the record; None: it does not.
    """
    rows = np.flatnonzero(bad.to_numpy(zero_copy_only=False))
    if rows.size:
        place = "" if before is None else f", record {before + int(rows[0]) + 1}"
        raise DataError(what, where=f"{where}{place}", allowed=allowed)
