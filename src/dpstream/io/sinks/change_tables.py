"""Tables whose records have ids, and the changes that lead from one to the next. Public data only.

A table of persistent records has the column ``record_id`` first and is sorted by it. A change table has ``op``
(``delete``, ``update`` or ``insert``), ``record_id`` and the columns: deletes carry the values that leave, updates the
whole new row.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError

ID = "record_id"
OP = "op"
INSERT = "insert"
UPDATE = "update"
DELETE = "delete"
#: The key of a released table's label in its metadata.
LABEL = b"dpstream"


def apply_changes(table: Any, changes: Any) -> Any:
    """The table after the changes: deletes leave, updates take the place of their records, inserts are appended;
    sorted by id.

    >>> import pyarrow as pa
    >>> table = pa.table({"record_id": [1, 2], "zip": ["a", "b"]})
    >>> changes = pa.table(
    ...     {"op": ["delete", "update", "insert"], "record_id": [1, 2, 3], "zip": ["a", "d", "c"]}
    ... )
    >>> apply_changes(table, changes).to_pydict()
    {'record_id': [2, 3], 'zip': ['d', 'c']}

    Errors:
        DataError: another operation, a delete of a record that has other values, a delete or an update of one that
            is not there or has another change beside it, an update that changes nothing, an insert of an id that is
            not above all others, columns that differ.
    """
    import pyarrow as pa

    ops = np.array(changes.column(OP).to_pylist(), dtype=object)
    ids = _ids(changes)
    rows = changes.drop_columns([OP])
    if rows.schema.names != table.schema.names or rows.schema.types != table.schema.types:
        raise DataError("changes and table have other columns", where="changes")
    gone, kept, come = (np.flatnonzero(ops == word) for word in (DELETE, UPDATE, INSERT))
    if len(gone) + len(kept) + len(come) != len(ops):
        allowed = f"{DELETE}, {UPDATE}, {INSERT}"
        raise DataError("unknown operation", where="changes", allowed=allowed)
    present = _ids(table)
    named = np.concatenate([gone, kept])
    places = np.searchsorted(present, ids[named])
    known = places < len(present)
    if not known.all() or (present[places] != ids[named]).any():
        raise DataError("a deleted or updated record is missing", where="changes")
    if len(np.unique(places)) != len(named):
        raise DataError("a record changes twice", where="changes")
    left, updated = places[: len(gone)], places[len(gone) :]
    if not table.take(pa.array(left)).equals(rows.take(pa.array(gone))):
        raise DataError("a deleted record has other values", where="changes")
    old, new = table.take(pa.array(updated)), rows.take(pa.array(kept))
    differs = [cells_differ(was, now) for was, now in zip(old.columns, new.columns, strict=True)]
    if not np.any(differs, axis=0).all():
        raise DataError("an update changes nothing", where="changes")
    largest = np.concatenate([present[-1:], ids[come]])
    if (np.diff(largest) <= 0).any():
        raise DataError("new ids must ascend", where="changes")
    stays = np.ones(len(present), dtype=bool)
    stays[left] = False
    source = np.arange(len(present))
    source[updated] = len(present) + kept
    both = pa.concat_tables([table, rows]).combine_chunks()
    return both.take(pa.array(np.concatenate([source[stays], len(present) + come]))).combine_chunks()


def cells_differ(one: Any, other: Any) -> NDArray[np.bool_]:
    """Which cells of two Arrow columns of one type differ; two nulls do not."""
    import pyarrow.compute as pc

    nulls = pc.and_(pc.is_null(one), pc.is_null(other))
    same = pc.or_(pc.fill_null(pc.equal(one, other), False), nulls)
    return ~np.asarray(same.to_numpy(zero_copy_only=False), dtype=bool)


def content_sha256(table: Any) -> str:
    """SHA-256 of names, types and values, whatever file the table came from; nulls are values of their own.

    >>> import pyarrow as pa
    >>> one = pa.table({"a": [1, None]})
    >>> content_sha256(one) == content_sha256(pa.concat_tables([one.slice(0, 1), one.slice(1)]))
    True
    >>> content_sha256(one) == content_sha256(pa.table({"a": [1, 0]}))
    False
    """
    digest = hashlib.sha256()

    def add(data: bytes) -> None:
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)

    for name, column in zip(table.schema.names, table.columns, strict=True):
        add(name.encode())
        add(str(column.type).encode())
        add(len(column).to_bytes(8, "little"))
        add(
            np.asarray(
                column.is_null().combine_chunks().to_numpy(zero_copy_only=False), dtype=np.uint8
            ).tobytes()
        )
        for part in _values(column):
            add(part)
    return digest.hexdigest()


def _values(column: Any) -> list[bytes]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind):
        array = column.fill_null("").combine_chunks()
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        texts = [text.encode() for text in array.to_pylist()]
        lengths = np.array([len(text) for text in texts], dtype="<i8")
        return [lengths.tobytes(), b"".join(texts)]
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0).to_numpy()
    return [np.ascontiguousarray(filled).astype(filled.dtype.newbyteorder("<")).tobytes()]


def _ids(table: Any) -> Any:
    return np.asarray(table.column(ID).to_numpy(), dtype=np.int64)
