"""What a user hands to one step: frames of inserted and deleted records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpstream.core.contracts.engine_frames import engine_batch, engine_keyed
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema.code_blocks import CodeBlocks
from dpstream.core.schema.domain import Codes
from dpstream.core.tables import EncodedBatch, KeyedBatch, Snapshot

if TYPE_CHECKING:
    from dpstream.core.contracts import EngineBatch
    from dpstream.core.schema import Schema


@dataclass(frozen=True, repr=False)
class Batch:
    """The private records of one step.

    Args:
        inserts: records that arrive: a dict of arrays, a pyarrow table, a pandas, Polars or DuckDB frame,
            or an int32 array of codes (records x columns) that is already encoded. None: no record.
        deletes: records that leave, in the same form. None: no record.
        users: whose records they are, with the unit ``user`` only: the name of a column of both frames, or the ids
            of the inserts (texts or whole numbers, one for each record), or a pair of those of the inserts and
            those of the deletes.

    Both may be empty. The representation never shows a value or a number of records.

    >>> Batch({"zip": ["94102"], "paid": [True]})
    Batch(records hidden)
    """

    inserts: Any = None
    deletes: Any = None
    users: Any = None

    def __repr__(self) -> str:
        return "Batch(records hidden)"


def as_batch(
    given: Any, deletes: Any = None, users: Any = None
) -> Batch | EngineBatch | KeyedBatch | Snapshot:
    """A batch as it is; or a batch made of a frame of inserts, by the engine whose frame it is.

    Errors:
        ConfigError: a batch, and deletes or users beside it.
    """
    # By its class: a frame may have a column of any name.
    engine = callable(getattr(type(given), "grant", None))
    if not engine and not isinstance(given, (Batch, KeyedBatch, Snapshot)):
        return engine_batch(given, deletes, users) or Batch(given, deletes, users)
    if deletes is not None or users is not None:
        raise ConfigError(
            "deletes or users are given beside a batch, which has its own",
            where="step",
            allowed="dpstream.Batch(inserts, deletes, users), or a frame with deletes and users beside it",
        )
    if isinstance(given, (KeyedBatch, Snapshot)):
        return engine_keyed(given, given.events if isinstance(given, KeyedBatch) else given.rows) or given
    return cast("Batch | EngineBatch", given)


def encode_batch(
    batch: Batch, schema: Schema, *, where: str = "step", kind: type[EncodedBatch] = EncodedBatch
) -> tuple[EncodedBatch, Codes, Codes]:
    """The batch as a plan reads it, and its codes as int32 arrays.

    Errors:
        DataError: values that do not fit the schema (columns are named, no values). Nothing was spent.
    """
    encoded, inserts, deletes = encode_blocks(batch, schema, where=where, kind=kind)
    return encoded, inserts.whole(), deletes.whole()


def encode_blocks(
    batch: Batch, schema: Schema, *, where: str = "step", kind: type[EncodedBatch] = EncodedBatch
) -> tuple[EncodedBatch, CodeBlocks, CodeBlocks]:
    """As ``encode_batch``, with codes in blocks of their narrowest type."""
    inserts = _codes(batch.inserts, schema, f"{where}, inserts")
    deletes = _codes(batch.deletes, schema, f"{where}, deletes")
    # "None" and "no rows" differ: a source without deletions declares none, whatever the step holds.
    declared = None if batch.deletes is None else deletes
    if kind is not EncodedBatch:  # who reads records reads them as one array
        inserts = CodeBlocks(inserts.columns, [inserts.whole()])
    return kind(schema.domain, inserts, declared), inserts, deletes


def _codes(frame: Any, schema: Schema, where: str) -> CodeBlocks:
    if frame is None:
        return CodeBlocks(len(schema.domain), ())
    if not isinstance(frame, np.ndarray):
        return schema.encode_blocks(frame, where=where)
    if frame.ndim != 2 or frame.dtype != np.int32:
        raise DataError(
            "an array of codes needs type int32 and two dimensions",
            where=where,
            allowed="records x columns",
        )
    if frame.shape[1] == len(schema.domain):  # whoever counts says it of another number of columns
        schema.require_possible(frame, where)
    return CodeBlocks(len(schema.domain), [frame])
