"""What happened to keyed records in one step, as sources hand it to a stream: events by key, or the whole table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from dpstream.core.errors import ConfigError

#: The words of an operation column. Without such a column every row is an upsert.
OPERATIONS = ("insert", "update", "delete")

_Unknown = Literal["error", "drop"]
_Known = Literal["error", "update"]
_Repeated = Literal["error", "last"]


@dataclass(frozen=True)
class KeyRules:
    """What becomes of events that do not fit. Each rule looks at one key alone, so that no record moves another's.

    Null keys are always an error. Under ``error`` nothing of the step is spent or reserved. What a key is that comes
    back after an absence says the unit (``Record.returns``).

    Args:
        unknown: a delete or an update of a key that is not there. ``drop``: it is left out.
        known: an insert of a key that is there. ``update``: it gives the record new values, and no new stay.
        repeated: several rows of one key in a step. ``last``: each is applied in the order of the source, so that the
            last one says what holds at the end; of a snapshot's rows the last one counts.
        shrinks: a snapshot that has less than this share of the records that are present, or none at all, halts the
            stream until its owner has confirmed it. 0: an empty one only.

    Errors:
        ConfigError: an unknown word, or a share outside 0 to 1.
    """

    unknown: _Unknown = "error"
    known: _Known = "update"
    repeated: _Repeated = "last"
    shrinks: float = 0.1

    def __post_init__(self) -> None:
        for name, words in (("unknown", _Unknown), ("known", _Known), ("repeated", _Repeated)):
            if getattr(self, name) not in get_args(words):
                raise ConfigError(
                    f"unknown rule {name} = {getattr(self, name)!r}",
                    where="rules of keyed records",
                    allowed=", ".join(get_args(words)),
                )
        share = self.shrinks
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise ConfigError(
                f"shrinks = {share!r} is not a share", where="rules of keyed records", allowed="0 to 1"
            )


@dataclass(frozen=True, repr=False)
class KeyedBatch:
    """What happened to keyed records in one step, in the order of the source.

    Args:
        events: a table (pandas, Polars, pyarrow, a dict of arrays): the schema's columns and the key column. Of a
            delete only its key is read. None: nothing happened.
        key: name of the key column, which the schema does not have.
        operation: name of the column with ``insert``, ``update`` or ``delete``; None: every row is an upsert (an
            update where the key is there, else an insert).
        changed: None: an update gives the whole row. ``null-keeps``: a null cell of an update (or of an upsert of a
            key that is there) keeps the value that the record has. An insert always gives the whole row.

    Errors:
        ConfigError: names that cannot be told apart, or an unknown ``changed``.
    """

    events: Any
    key: str
    operation: str | None = None
    changed: Literal["null-keeps"] | None = None
    rules: KeyRules = KeyRules()

    def __post_init__(self) -> None:
        if self.changed not in (None, "null-keeps"):
            raise ConfigError(f"unknown changed = {self.changed!r}", where="step", allowed="None, null-keeps")
        if self.key == self.operation:
            raise ConfigError(
                f"the column {self.key!r} is the key and the operation",
                where="step",
                allowed="a column of its own for each",
            )

    def __repr__(self) -> str:
        return f"KeyedBatch(key={self.key!r}, records hidden)"


@dataclass(frozen=True, repr=False)
class Snapshot:
    """The whole table as it is at the end of the step.

    Args:
        rows: a table as in ``KeyedBatch.events``; a record whose key is not in it has left. None: no record.
        key: name of the key column, which the schema does not have.
        rules: ``repeated`` and ``shrinks`` count; a snapshot has no unknown or known keys.
        confirmed: the owner has confirmed that so many records left.
    """

    rows: Any
    key: str
    rules: KeyRules = KeyRules()
    confirmed: bool = False

    def __repr__(self) -> str:
        return f"Snapshot(key={self.key!r}, records hidden)"
