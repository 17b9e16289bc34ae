"""Released records as they stand in the state: a whole table, and what changed since, in segments. Public data only.

A step adds a segment with its changes, and earlier ones stay as they were, so that they need not be written again. A
segment that is at least half as large as the one before it is joined with it: there are at most as many as the
logarithm of the number of records, and each record is written again as often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StoreDamagedError
from dpstream.core.schema.domain import Codes

_Ids = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Rows:
    """Records: ids that ascend, their codes, and their typed values (a pyarrow Table)."""

    ids: _Ids
    codes: Codes
    table: Any


@dataclass(frozen=True, repr=False)
class Segment:
    """Records that go, and then records that come, as arrays that are stored.

    Attributes:
        gone: ids; of records that are updated, too.
        ids: of the records that come.
        codes: in the smallest integers that hold them.
        table: the bytes of an Arrow stream.
    """

    gone: _Ids
    ids: _Ids
    codes: NDArray[Any]
    table: NDArray[np.uint8]

    @classmethod
    def of(cls, rows: Rows, gone: _Ids | None = None) -> Segment:
        """The changes that take the records ``gone`` away and bring ``rows``."""
        kind = np.uint8 if not rows.codes.size or rows.codes.max() < 256 else np.int32
        none = np.zeros(0, dtype=np.int64)
        table = _to_bytes(rows.table)
        return cls(none if gone is None else gone, rows.ids, rows.codes.astype(kind), table)

    @property
    def size(self) -> int:
        """How many records it speaks of."""
        return len(self.gone) + len(self.ids)

    def rows(self) -> Rows:
        """The records that come."""
        try:
            table = _from_bytes(self.table)
        except (TypeError, ValueError):
            raise StoreDamagedError("the records of the last release cannot be read", where="state") from None
        if not len(self.codes) == len(self.ids) == table.num_rows:
            raise StoreDamagedError("the records of the last release contradict themselves", where="state")
        return Rows(self.ids.astype(np.int64), self.codes.astype(np.int32), table)


def grown(segments: tuple[Segment, ...], change: Segment, after: Rows) -> tuple[Segment, ...]:
    """The segments after one more step.

    Args:
        after: all records that there are then.
    """
    if not change.size:
        return segments
    found = [*segments, change]
    while len(found) > 2 and 2 * found[-1].size >= found[-2].size:
        last = found.pop()
        gone = np.union1d(found[-1].gone, last.gone)
        found[-1] = Segment.of(_followed(found[-1].rows(), last), gone)
    if len(found) == 2 and 2 * found[1].size >= found[0].size:
        found = [Segment.of(after)]
    return tuple(found)


def whole(segments: tuple[Segment, ...]) -> Rows:
    """All records that the segments lead to.

    Errors:
        StoreDamagedError: a segment contradicts itself.
    """
    rows = segments[0].rows()
    for segment in segments[1:]:
        rows = _followed(rows, segment)
    return rows


def pack_segments(segments: tuple[Segment, ...]) -> dict[str, NDArray[Any]]:
    """All arrays, by the number of their segment and their name."""
    return {
        f"{number}/{name}": getattr(segment, name)
        for number, segment in enumerate(segments)
        for name in ("gone", "ids", "codes", "table")
    }


def unpack_segments(arrays: dict[str, NDArray[Any]], number: int | None) -> tuple[Segment, ...]:
    """The inverse of ``pack_segments``.

    Args:
        number: of segments; None for a table that was stored whole, before there were segments.
    """
    if number is None:
        none = np.zeros(0, dtype=np.int64)
        return (Segment(none, arrays["ids"].astype(np.int64), arrays["codes"], arrays["table"]),)
    names = ("gone", "ids", "codes", "table")
    return tuple(Segment(*(arrays[f"{one}/{name}"] for name in names)) for one in range(number))


def _followed(rows: Rows, segment: Segment) -> Rows:
    """Records after the changes of a segment."""
    import pyarrow as pa

    come = segment.rows()
    stays = np.flatnonzero(~np.isin(rows.ids, segment.gone))
    ids = np.concatenate([rows.ids[stays], come.ids])
    order = np.argsort(ids, kind="stable")
    place = np.concatenate([stays, len(rows.ids) + np.arange(len(come.ids))])[order]
    table = pa.concat_tables([rows.table, come.table]).combine_chunks().take(pa.array(place))
    return Rows(ids[order], np.concatenate([rows.codes, come.codes])[place], table.combine_chunks())


def _to_bytes(table: Any) -> NDArray[np.uint8]:
    import pyarrow as pa

    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def _from_bytes(data: NDArray[np.uint8]) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(np.ascontiguousarray(data))) as reader:
        return reader.read_all().combine_chunks()
