"""The operation column of a change feed: which words mean insert, and which mean delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dpstream.core.errors import ConfigError

_WHERE = "[source] op_values"
_ALLOWED = 'such as {insert = ["c", "after"], delete = ["d", "before"]}'

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
                allowed=_ALLOWED,
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


def read_words(value: Any, allowed: str = _ALLOWED) -> tuple[str, ...]:
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
