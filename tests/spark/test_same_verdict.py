"""Nasty files, read as files and by Spark: both release the same counts, or both refuse."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_cases import KEY, WANTED

from dpstream.core.errors import DpstreamError
from dpstream.core.schema import Categorical, Integer, Schema
from dpstream.core.tables import EncodedBatch
from dpstream.io.sources import ReadOptions, SourceOptions, open_source
from dpstream.stream.admission import Batch, RecordRows, encode_blocks

SECRET = "Q7731"
SCHEMA = Schema(
    (
        Categorical("zip", ("a", "b"), other="other", missing="missing"),
        Integer("rent", min=0, max=9, missing="unknown"),
    ),
    ignore=("note", "who"),
)
CLIQUES = ((), (0,), (0, 1))
DAY = datetime.date(2026, 1, 5)
ROWS = 8


def rows(**columns: Any) -> pa.Table:
    """Plain rows, with some columns in the place of theirs or besides; None takes one out."""
    plain: dict[str, Any] = {
        "zip": pa.array(["a", "b", None, SECRET] * 2),
        "rent": pa.array([1, 2, None, 3] * 2, pa.int64()),
        "day": pa.array([DAY] * ROWS),
    }
    return pa.table({name: cells for name, cells in (plain | columns).items() if cells is not None})


def moments(unit: str, zone: str | None = None) -> pa.Array:
    return pa.array([datetime.datetime(2026, 1, 5, 23, 30)] * ROWS, pa.timestamp(unit, zone))


def broken(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def texts(*cells: bytes | None) -> pa.Array:
    """As texts, whether they are UTF-8 or not."""
    return pa.array([cells[i % len(cells)] for i in range(ROWS)], pa.binary()).view(pa.string())


#: What a second file holds, beside a plain one; a function writes on it afterwards.
CORPUS: dict[str, tuple[pa.Table, Callable[[Path], None] | None]] = {
    "plain": (rows(), None),
    "no rows": (rows().slice(0, 0), None),
    "a column is lacking": (rows(rent=None), None),
    "a column in capitals": (rows(zip=None, ZIP=pa.array(["a"] * ROWS)), None),
    "a column twice, but for capitals": (rows(ZIP=pa.array(["a"] * ROWS)), None),
    "an undeclared column": (rows(extra=pa.array([1] * ROWS)), None),
    "an ignored column": (rows(note=pa.array([1] * ROWS)), None),
    "ignored lists": (rows(note=pa.array([[1]] * ROWS)), None),
    "other columns in another order": (rows().select(["day", "rent", "zip"]), None),
    "nulls of time": (rows(day=pa.array([DAY, None] * 4)), None),
    "texts that are no UTF-8": (rows(zip=texts(b"a", b"\xff\xfe", b"b\xff", None)), None),
    "texts for numbers": (rows(rent=pa.array(["1", "2"] * 4)), None),
    "numbers for texts": (rows(zip=pa.array([1, 2] * 4)), None),
    "decimals": (rows(rent=pa.array([1, 2] * 4, pa.decimal128(5, 2))), None),
    "halves": (rows(rent=pa.array([1.5, 2.0] * 4)), None),
    "whole floats": (rows(rent=pa.array([1.0, 2.0] * 4)), None),
    "no numbers": (rows(rent=pa.array([float("nan"), float("inf")] * 4)), None),
    "small numbers": (rows(rent=pa.array([1, 2] * 4, pa.int8())), None),
    "large numbers": (rows(rent=pa.array([1, 2**63] * 4, pa.uint64())), None),
    "truths": (rows(rent=pa.array([True, False] * 4)), None),
    "dictionaries": (rows(zip=pa.array(["a", "b"] * 4).dictionary_encode()), None),
    "large texts": (rows(zip=pa.array(["a", "b"] * 4, pa.large_string())), None),
    "bytes": (rows(zip=pa.array([b"a", b"b"] * 4)), None),
    "lists": (rows(zip=pa.array([["a"], ["b"]] * 4)), None),
    "moments for days": (rows(day=moments("us")), None),
    "moments in UTC": (rows(day=moments("us", "UTC")), None),
    "cut off": (rows(), broken),
    "empty": (rows(), lambda path: path.write_bytes(b"")),
}
#: Files where both parts are alike.
ALIKE: dict[str, pa.Table] = {
    "an undeclared column": rows(extra=pa.array([1] * ROWS)),
    "an ignored column": rows(note=pa.array([1] * ROWS)),
    "ignored lists": rows(note=pa.array([[1]] * ROWS)),
    "ignored nanoseconds": rows(note=moments("ns")),
    "ignored halves": rows(note=pa.array([1.0] * ROWS, pa.float16())),
    "ignored times": rows(note=pa.array([datetime.time(1)] * ROWS, pa.time64("ns"))),
    "ignored times in microseconds": rows(note=pa.array([datetime.time(1)] * ROWS, pa.time64("us"))),
    "moments in nanoseconds": rows(day=moments("ns")),
    "moments in UTC": rows(day=moments("us", "UTC")),
    "moments of Tokyo": rows(day=moments("us", "Asia/Tokyo")),
    "texts for numbers": rows(rent=pa.array(["1", "2"] * 4)),
    "texts that are no UTF-8": rows(zip=texts(b"a", b"\xff\xfe", b"b\xff", None)),
    "bytes": rows(zip=pa.array([b"a", b"b"] * 4)),
}
#: Files say in `offsets` that their times have offsets; Spark reads all times in UTC.
OFFSETS = ("moments in UTC", "moments of Tokyo")
#: Types that Spark's reader of Parquet does not know, in any column.
NO_TYPES = (
    *("ignored nanoseconds", "ignored halves", "ignored times", "ignored times in microseconds"),
    "moments in nanoseconds",
)
KEYS = {"time_column": "day", "every": "day", "start": "2026-01-05", "end": "2026-01-05"}


#: Parts of several types: Spark's reader takes the types of one of them, and this program reads each as it is.
STRICTER = ("decimals", "whole floats", "moments for days")


def verdict(folder: Path, **source: Any) -> Any:
    """The hashes and counts of each step, or why the files are refused. No value is told."""
    options = SourceOptions.parse({**KEYS, **source})
    wanted = replace(WANTED, schema=SCHEMA, cliques=CLIQUES)
    steps = []
    try:
        for step in open_source(
            options, ReadOptions(base=folder, columns=SCHEMA.names, ignored=SCHEMA.ignore, schema=SCHEMA)
        ).steps():
            if step.engine is not None:
                granted = step.engine.grant(wanted)
                rows, view = granted.rows, granted.view
            else:
                view, came, gone = encode_blocks(Batch(step.inserts), SCHEMA, where="x", kind=EncodedBatch)
                rows = RecordRows(SCHEMA.domain, came, gone)
            assert view is not None
            steps.append((rows.fingerprint(KEY), [one.tolist() for one in view.count(CLIQUES)]))
    except DpstreamError as error:
        return f"{error.allowed and error}"
    return steps


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize("case", [*CORPUS, *(f"alike: {name}" for name in ALIKE)])
def test_spark_and_files_say_the_same(spark: Any, data: Path, case: str) -> None:
    """Spark refuses what files refuse; where both release, hashes and counts are the same. What Spark alone refuses is
    a list, and the remedy is in its sentence."""
    name = case.removeprefix("alike: ")
    if case != name:
        pq.write_table(ALIKE[name], data / "1.parquet")
    else:
        second, change = CORPUS[case]
        pq.write_table(rows(), data / "1.parquet")
        pq.write_table(second, data / "2.parquet")
        if change is not None:
            change(data / "2.parquet")
    files = verdict(data.parent, path="data/*.parquet", offsets=case != name and name in OFFSETS)
    there = verdict(data.parent, kind="spark", table="parquet.`data`")
    assert SECRET not in f"{files}{there}"
    if name in NO_TYPES:
        assert 'or kind = "files"' in there
    elif case in STRICTER:
        assert isinstance(files, list)
        assert "types" in there
    elif isinstance(files, str):
        assert isinstance(there, str)
    else:
        assert files == there
