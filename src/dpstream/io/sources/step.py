"""The private input of one step."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpstream.core.tables import KeyedBatch, Snapshot

if TYPE_CHECKING:
    from dpstream.core.contracts import EngineBatch

#: First day, and the day after the last one.
Period = tuple[datetime.date, datetime.date]


@dataclass(frozen=True, repr=False)
class StepInput:
    """The private records of one step, before they are encoded.

    Attributes:
        step: 1, 2, 3, ... without gaps; a step without records is a step like any other.
        batch_id: public name of the step, the same at every reading: ``1997-W01``, ``1997-01-02``,
            ``1997-01``, ``1997-01-02_P14D``, ``step-17``, ``block-17``, or a file's path.
        period: first day and the day after the last one; None where steps are no calendar periods.
        inserts: ``pyarrow.Table`` of arriving records (maybe without rows); None with ``keyed``.
        deletes: the same for leaving records; None where the source has no operations, and with ``keyed``.
        users: the user ids of ``inserts`` and of ``deletes`` (``pyarrow.ChunkedArray``, or None where ``deletes`` is
            None); None where the source has no user column.
        keyed: the changes or the snapshot of records with keys; None where records have no keys.
        engine: the records, where they stay in an engine that counts them; the fields before are None then.
    """

    step: int
    batch_id: str
    period: Period | None
    inserts: Any
    deletes: Any
    users: tuple[Any, Any] | None = None
    keyed: KeyedBatch | Snapshot | None = None
    engine: EngineBatch | None = None

    def __repr__(self) -> str:
        return f"StepInput(step={self.step}, batch_id={self.batch_id!r}, records hidden)"


def apart_from_users(
    inserts: Any, deletes: Any, column: str | None
) -> tuple[Any, Any, tuple[Any, Any] | None]:
    """Separate the user column from the records.

    Returns:
        ``inserts`` and ``deletes`` (which may be None) without the column, and the column of both; the arguments and
        None where ``column`` is None.
    """
    if column is None:
        return inserts, deletes, None
    users = (inserts.column(column), None if deletes is None else deletes.column(column))
    others = None if deletes is None else deletes.drop_columns([column])
    return inserts.drop_columns([column]), others, users
