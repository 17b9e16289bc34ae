"""Why a draft proposes its mechanism, and which records no source reads as they are."""

from __future__ import annotations

from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.project.keyed_draft import EventFeed, Recognised

_SHAPES = {
    "changes": "the data look like a change feed whose rows have keys",
    "snapshots": "the files look like the same table at several times, with keys",
    "stays": "the rows look like stays, with a key, a start and an end",
}
_ENVELOPE = {"before", "after", "op"}
#: Makes rows of envelopes: the record, what happened to it, and when.
_UNWRAP = (
    "jq -c '(.payload // .) | (.after // .before) + {op, at: ((.ts_ms // 0) / 1000 | todate)}' FILE > "
    "changes.ndjson"
)


def mechanism_reason(
    keyed: Recognised | None,
    feed: EventFeed | None,
    found_person: str | None,
    person_column: str | None,
    *,
    given: bool,
    crowded: bool,
) -> str:
    """Why the drafted mechanism is proposed; empty where the owner named it.

    Args:
        crowded: whether the columns have too many combinations of values for a mechanism that follows people.
    """
    if given:
        return ""
    if keyed is not None:
        return f"{_SHAPES[keyed.shape]}; it follows the records that are there, and protects a record's whole stay"
    if found_person is not None:
        return (
            "each row looks like a person with one column a period; it follows people, and protects all that one "
            "reports"
        )
    if person_column is not None:
        why = "a column says whose a record is, so all records of one person are protected together"
        more = "; the columns have too many combinations of values to follow each person: fewer columns make a panel"
        return f"{why}{more if crowded else ''}"
    if feed is not None:
        return (
            "records come and leave, and no column looks like a key; where one is (--key-column), a mechanism that "
            "follows keys has smaller errors"
        )
    return "nothing in the data looks like a key, a stay or a person, so each record is taken to come and to stay"


def refuse_envelope(table: Any) -> None:
    """Refuse nested change records (Debezium's envelopes): no column of them is one of the table (ConfigError)."""
    import pyarrow as pa

    nested = {name for name in table.column_names if pa.types.is_nested(table.schema.field(name).type)}
    names = set(table.column_names)
    if (names >= _ENVELOPE and nested & _ENVELOPE) or nested >= {"schema", "payload"}:
        raise ConfigError(
            "the records are envelopes of a change feed (before, after, op), and what happened to a row lies inside",
            where="init",
            allowed=f"rows with an operation column; this makes them: {_UNWRAP}",
        )
