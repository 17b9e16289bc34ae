"""The words of a change feed: which of them say that a row arrives, and which that one leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dpstream.core.errors import ConfigError

__all__ = ["UPDATE_ADVICE", "Operations", "read_words"]

_WHERE = "[source] op_values"
_ALLOWED = 'such as {insert = ["c", "after"], delete = ["d", "before"]}'

#: What to do about a word that says that a row changed and not what it was.
UPDATE_ADVICE = (
    "two records instead: delete with the old values, then insert with the new ones (in a change feed: "
    "update-before, update-after)"
)


@dataclass(frozen=True)
class Operations:
    """The words of an operation column.

    An update is two records, its old row and its new row, and each counts by itself: the old one as a
    delete, the new one as an insert. Whether both are there is not checked, for what happens to one record
    must not depend on another.

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
            raise ConfigError("not the words of inserts and deletes", where=_WHERE, allowed=_ALLOWED)
        insert, delete = read_words(table["insert"]), read_words(table["delete"])
        twice = sorted(set(insert) & set(delete))
        if twice:
            raise ConfigError(
                f"the word {twice[0]!r} is an insert and a delete", where=_WHERE, allowed="one of the two"
            )
        if "update" in insert + delete:
            raise ConfigError(
                "the word 'update' does not say what the old row was", where=_WHERE, allowed=UPDATE_ADVICE
            )
        return cls(insert, delete)

    def pinned(self) -> dict[str, list[str]]:
        """JSON-able, one spelling per meaning."""
        return {"insert": sorted(set(self.insert)), "delete": sorted(set(self.delete))}


def read_words(value: Any, allowed: str = _ALLOWED) -> tuple[str, ...]:
    """One word or a list of them (ConfigError where it is neither)."""
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list | tuple)
        or not words
        or not all(isinstance(word, str) and word.strip() and word.isprintable() for word in words)
    ):
        raise ConfigError("not a text or a list of texts", where=_WHERE, allowed=allowed)
    return tuple(words)
