"""Whose records a batch of frames holds. Which of them enter the stream: ``core/tables/contribution.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema import arrow
from dpstream.core.tables.contribution import (
    Columns,
)
from dpstream.stream.frames import Batch

if TYPE_CHECKING:
    from dpstream.core.schema import Schema


def separate(batch: Batch, schema: Schema, where: str, unit: str = "user") -> tuple[Batch, Columns]:
    """Split a batch into the batch without its user ids, and the ids of its inserts and deletes as Arrow columns.

    Errors:
        DataError: the batch does not say whose records they are.
        ConfigError: the column of the user ids is an attribute of the schema.
    """
    users = batch.users
    if users is None:
        raise DataError(
            f"the unit is {unit!r}, and the batch does not say whose records they are",
            where=where,
            allowed="Batch(..., users=...)",
        )
    if not isinstance(users, str):
        pair = users if isinstance(users, tuple) else (users, None)
        if len(pair) != 2:
            raise DataError(
                "users is a tuple, and not a pair",
                where=where,
                allowed="(ids of the inserts, ids of the deletes)",
            )
        first, second = (
            None if ids is None else arrow.to_table({"ids": ids}, where).column("ids") for ids in pair
        )
        return batch, (first, second)
    if users in schema.names:
        raise ConfigError(
            f"the column {users!r} of the user ids is declared in the schema as well",
            where=where,
            allowed=f"another column, or a copy of {users!r} under another name",
        )
    inserts, first = _split(batch.inserts, users, where)
    deletes, second = _split(batch.deletes, users, where)
    return Batch(inserts, deletes), (first, second)


def _split(frame: Any, name: str, where: str) -> tuple[Any, Any]:
    if frame is None:
        return None, None
    if isinstance(frame, np.ndarray):
        raise DataError("an array of codes has no column of user ids", where=where, allowed="users as arrays")
    table = arrow.to_table(frame, where)
    if name not in table.column_names:
        raise DataError(f"there is no column {name!r}", where=where, allowed="the column of the user ids")
    return table.drop_columns([name]), table.column(name)
