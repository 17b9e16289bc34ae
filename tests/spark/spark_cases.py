"""Tables for tests of Spark, and what the in-process engine says of them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from dpstream.core.schema import Boolean, Categorical, Integer, Schema
from dpstream.core.tables import BatchAccess, EncodedBatch, ReadRequest
from dpstream.stream.admission import RecordRows

#: ``make spark-cluster`` stops drivers at every durability call, and spreads rows over more partitions.
EVERY_CALL = bool(os.environ.get("DPSTREAM_SPARK_LONG"))
#: Of these calls there are many alike; of all others each one is a stop.
_ALIKE = ("write", "sync_file")
SECRET = "Q7731"
KEY = bytes(range(32))
SCHEMA = Schema(
    (
        Categorical("zip", ("a", "b", "c"), other="other", missing="missing"),
        Boolean("paid", missing="none"),
        Integer("rent", edges=(0, 500, 1000, 2000), missing="unknown"),
    )
)
CLIQUES = ((), (0,), (0, 1), (1, 2), (0, 1, 2))
WANTED = ReadRequest("counts", SCHEMA, "event", None, KEY, "step 'x'", CLIQUES)


def stops(calls: list[str], stride: int) -> list[int]:
    """Before which of the calls a driver is stopped: each commit, rename, removal and fsync of a folder; of writes and
    fsyncs of files every ``stride``-th (all, where ``EVERY_CALL``)."""
    alike = [at for at, call in enumerate(calls, 1) if call in _ALIKE]
    others = [at for at, call in enumerate(calls, 1) if call not in _ALIKE]
    return sorted(others + alike[:: 1 if EVERY_CALL else stride])


def table(rows: int, seed: int = 1) -> pa.Table:
    """Nulls and undeclared values included."""
    rng = np.random.default_rng(seed)
    zips = np.array(["a", "b", "c", SECRET, None], object)[rng.integers(0, 5, rows)]
    paid = np.array([True, False, None], object)[rng.integers(0, 3, rows)]
    rent = [None if one < 0 else int(one) for one in rng.integers(-200, 2000, rows)]
    return pa.table({"zip": zips, "paid": paid, "rent": rent}, schema=KINDS)


KINDS = pa.schema([("zip", pa.string()), ("paid", pa.bool_()), ("rent", pa.int64())])


def in_process(inserts: pa.Table, deletes: pa.Table | None = None, schema: Schema = SCHEMA) -> BatchAccess:
    """What frames grant."""
    came = schema.encode(inserts)
    went = None if deletes is None else schema.encode(deletes)
    batch = EncodedBatch(schema.domain, came, went)
    return BatchAccess(batch, RecordRows(schema.domain, came, came[:0] if went is None else went))


def same(one: BatchAccess, two: BatchAccess, cliques: Any = CLIQUES) -> None:
    """Counts of all parts, and the content, are equal."""
    assert one.rows.fingerprint(KEY) == two.rows.fingerprint(KEY)
    assert one.view is not None
    assert two.view is not None
    assert one.view.declares_deletes == two.view.declares_deletes
    for part in ("net", "inserts", "deletes"):
        for left, right in zip(one.view.count(cliques, part), two.view.count(cliques, part), strict=True):
            np.testing.assert_array_equal(left, right)
