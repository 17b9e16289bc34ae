"""Bad files and bad options: one sentence with file and place, and never a value. Each key of ``[source]`` is declared
once: reader, kinds, table of keys and JSON Schema agree."""

from __future__ import annotations

import gzip
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from row_files import source_of

from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.io.sources import SourceOptions, read_table
from dpstream.io.sources.source_keys import KINDS, SourceKeys, keys_of_kind
from dpstream.project.config_draft import draft_config
from dpstream.project.json_schema import json_schema
from dpstream.project.keys import keys_of
from dpstream.spark.spark_source import SparkKeys

SECRET = "Q7731"
GOOD = f"when,op,zip\n1,insert,{SECRET}\n"
OPTIONS: dict[str, Any] = {"path": "*", "time_column": "when", "end": "data", "op_column": "op"}


DAYS = {"every": "day", "start": "2026-01-05", "end": "today"}
DUCKDB = {"kind": "duckdb", "database": "d", "query": "SELECT 1 WHERE ? < ?", **DAYS}


def failure(folder: Path, *, reveal: bool = False, **changes: Any) -> str:
    source = source_of({**OPTIONS, **changes}, base=folder, reveal=reveal)
    with pytest.raises((DataError, StepError)) as caught:
        list(source.steps())
    message = str(caught.value)
    assert SECRET not in message
    assert caught.value.__cause__ is None
    return message


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    rows = 20_000
    table = pa.table(
        {"when": [1] * rows, "op": ["insert"] * rows, "zip": [f"{SECRET}{i}" for i in range(rows)]}
    )
    pyarrow.parquet.write_table(table, sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.csv.gz", gzip.compress(GOOD.encode() * 5000, mtime=0)[:-40], "b.csv.gz: the file cannot be read as csv"),
        ("b.parquet", parquet_bytes()[:-100], "b.parquet: the file cannot be read as parquet"),
        ("b.csv", b"", "b.csv: empty file"),
        ("b.csv", b'when,op,zip\n1,insert,a\n\n1,insert,"two\nlines"\n', "b.csv, line 4: a line ends inside a quote"),
        ("b.ndjson", b"", "b.ndjson: empty file"),
        ("b.csv", f"{GOOD}2,insert\n".encode(), "a line has 2 columns, the first line 3"),
        ("b.csv", f"{GOOD}2,insert,caf\xe9\n".encode("latin-1"), "iconv -f LATIN1 -t UTF-8"),
        ("b.csv", f"{GOOD}2,insert,\u201ca\u201d\n".encode("cp1252"), "found Windows-1252"),
        ("b.csv", GOOD.encode("utf-16"), "found UTF-16 (allowed: convert: iconv"),
        ("b.csv", f"{GOOD}2,insert,\xe9".encode() + b"\n3,insert,\xe9\n", "some bytes are not UTF-8"),
        ("b.ndjson", b'{"when": 1, "zip": "1", "zip": "2"}\n', "line 1: expected JSON objects"),
        ("b.csv", b"when,op\n1,insert\n", "b.csv: the file lacks the column 'zip'"),
        ("b.csv", b"when,op,zip,rent\n", "b.csv: the file has the extra column 'rent'"),
        ("b.csv", b"when,op,zip,zip\n", "b.csv: the column 'zip' occurs twice"),
        ("b.csv", f"{GOOD}{SECRET},insert,1\n".encode(), "b.csv, column 'when', record 2: expected step numbers"),
        ("b.csv", f"{GOOD}2,{SECRET},1\n".encode(), "b.csv, column 'op', record 2: unknown operation"),
        ("b.csv", f"{GOOD}2,update,1\n".encode(), "a delete with the old values, then an insert with the new ones"),
        ("b.ndjson", b'{"when": 1, "op": "insert", "zip": "1"}\n{"when"', "b.ndjson, line 2: expected JSON objects"),
        ("b.ndjson", b'{"when": 1, "op": "insert", "zip": NaN}\n', "b.ndjson, line 1: expected JSON objects"),
        ("b.ndjson", b'{"when": null, "op": "insert", "zip": "1"}\n', "column 'when', record 1: a time is missing"),
        ("b.ndjson", b'{"when": 1.5, "op": "insert", "zip": "1"}\n', "column 'when', record 1: expected step numbers"),
        ("b.ndjson", b'{"when": 1, "op": 7, "zip": "1"}\n', "column 'op', record 1: unknown operation"),
        ("b.xlsx", b"", "b.xlsx: unknown file format (allowed: .csv"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / name).write_bytes(content)
    assert message in failure(tmp_path, reveal=True)
    # Where it is, is a lower bound of the number of records.
    assert not re.search(r"(?<!first )(record|lines?) \d|line has \d", failure(tmp_path))


@pytest.mark.parametrize(
    ("sign", "name"), [(";", "semicolons (';')"), ("\t", "tabs"), ("|", "vertical bars")]
)
def test_another_separator_is_named_with_what_makes_a_file_that_can_be_read(
    tmp_path: Path, sign: str, name: str
) -> None:
    (tmp_path / "a.csv").write_text(GOOD.replace(",", sign))
    said = failure(tmp_path)
    assert f"unknown column 'when': columns are separated by {name}" in said
    assert "all_varchar = true)) TO 'data.parquet'" in said
    with pytest.raises(DataError, match="columns are separated by"):
        draft_config(tmp_path / "a.csv", "when")


def test_damage_that_only_the_second_pass_meets(tmp_path: Path) -> None:
    """The time column is sound, another column's pages are not."""
    data = bytearray(parquet_bytes())
    at = data.index(SECRET.encode())
    data[at - 400 : at + 20_000] = b"\xff" * 20_400
    (tmp_path / "a.parquet").write_bytes(bytes(data))
    assert "cannot be read as parquet" in failure(tmp_path)


def test_missing_things(tmp_path: Path) -> None:
    assert "no file matches" in failure(tmp_path)
    (tmp_path / "a.csv").write_text(GOOD)
    assert "unknown column 'file_date' (allowed: a column of the file, which has 3 columns)" in failure(
        tmp_path, time_column="file_date"
    )
    with pytest.raises(StepError, match="unknown step 0"):
        source_of(OPTIONS, base=tmp_path).steps(0)
    with pytest.raises(DataError, match="file missing"):
        read_table(tmp_path / "nothing.csv")


@pytest.mark.parametrize(
    "text", ["02/01/1997", "1997-02-30", "1997-13-01", "1997-01-01T25:00", "19970102", SECRET]
)
def test_bad_dates(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(f"when,op,zip\n{text},insert,1\n")
    message = failure(tmp_path, every="day", start="1997-01-01")
    assert "a.csv, column 'when'" in message
    assert "such as 2026-01-31" in message
    assert text not in message


def test_what_is_declared_public_is_said() -> None:
    for cut, said in (
        (OPTIONS, 'falls is declared public (end = "data")'),
        ({**OPTIONS, "end": 9, "late": "next-step"}, 'finds it (late = "next-step")'),
        ({"path": "*", "rows": 50}, "number of records is declared public (steps of 50 records"),
        ({"path": "*", "every": "files"}, "which files exist"),
        ({**OPTIONS, "path": "-"}, "period that has not begun"),
        (DUCKDB, "answer that has changed stops the stream"),
    ):
        plain = {key: value for key, value in cut.items() if key != "op_column"}
        without = SourceOptions.parse(plain).declared_public()
        *others, operations = SourceOptions.parse({**plain, "op_column": "op"}).declared_public()
        assert tuple(others) == without
        assert any(said in sentence for sentence in without)
        assert "a null, \"update\" or unknown operation stops the stream in column 'op'" in operations


# Keys and options


def test_the_fields_are_the_table_and_the_json_schema() -> None:
    of_others = ("continues", "own", "same_unit")
    names = [one.name for one in fields(SourceKeys) if one.name not in of_others]
    names += [one.name for one in fields(SparkKeys)]  # a kind with keys of its own, as another package's has
    assert list(keys_of("source")) == names
    assert list(json_schema()["properties"]["source"]["properties"]) == names
    for row in keys_of("source").values():
        assert all((row.allowed, row.default, row.reason, row.meaning, row.fragment)), row.name


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_of_another_kind_is_refused(kind: str) -> None:
    own = keys_of_kind(kind)
    others = {key for other in KINDS for key in keys_of_kind(other)} - set(own)
    assert others
    for key in others:
        value = {"rows": 1, "path": "*"}.get(key, "x")
        with pytest.raises(ConfigError, match=f"{key}.* has no meaning with kind") as caught:
            SourceOptions.parse({"kind": kind, key: value})
        assert caught.value.allowed == ", ".join(own)


FILES = {"path": "*", "time_column": "when", "end": "data"}
WEEKS = {"every": "week", "start": "1997-01-02"}
STAYS = {"time_column": "a", "delete_time_column": "b", "key_column": "id", "shape": "stays", "end": 3}
POSTGRES = {"kind": "postgres", "url_env": "U", "table": "t", "time_column": "at", **DAYS}
MYSQL = {"kind": "mysql", "url": "mysql://reader@host/shop", "table": "t", "time_column": "at", **DAYS}
KEYED = {"key_column": "id", "time_column": None}
PASSWORD = "hunter2"


@pytest.mark.parametrize(
    ("given", "changes", "message"),
    [
        # Keys and values by themselves.
        (FILES, {"evry": "week"}, "unknown key 'evry' (allowed: kind, path, database"),
        (FILES, {"kind": "oracle"}, "unknown kind = 'oracle'"),
        (FILES, {"late": "drop"}, "unknown late = 'drop' (allowed: error, next-step"),
        (FILES, {"time_column": 7}, "time_column: expected a text (allowed: a column outside"),
        (FILES, {"path": []}, "path is missing"),
        (FILES, {"path": ["-", "a.csv"]}, "path mixes standard input and files"),
        (FILES, {"path": "-", "eof": "maybe"}, "unknown eof"),
        (FILES, {"rows": 0, "time_column": None, "end": None}, "rows = 0: expected a whole number from 1"),
        (FILES, {"op_column": "when"}, "name one column"),
        (POSTGRES, {"wait": "soon"}, "expected a length of time"),
        # With what a key means something.
        (FILES, {"rows": 50}, "time_column has no meaning with rows"),
        (FILES, {"lag": "1 day"}, "lag has no meaning with step numbers"),
        (FILES, {"path": "-", "lag": "1 day"}, 'lag has no meaning with kind = "standard input", only with files'),
        (FILES, {"op_values": {"insert": "c", "delete": "d"}}, "op_column is missing, which op_values needs"),
        (FILES, {"unknown": "drop"}, 'unknown = "drop" has no meaning with records without key_column'),
        (POSTGRES, {**KEYED, "shape": "snapshots", "wait": "6 hours"}, 'wait has no meaning with shape = "snapshots"'),
        # Where steps begin and end.
        (FILES, {"every": "week"}, "start is missing: step borders must be public"),
        (FILES, {**WEEKS, "end": None}, "end is missing: the number of steps"),
        (FILES, {"end": None}, "allowed: a day, a step number, today (all periods that are over), data"),
        (FILES, {"end": "today"}, "end must be a step number"),
        (FILES, {**WEEKS, "end": 7}, "end = 7: expected a day"),
        (FILES, {**WEEKS, "start": "soon"}, "start = 'soon': expected a day"),
        (FILES, {**WEEKS, "end": "1996-01-01"}, "end precedes start"),
        (FILES, {**WEEKS, "every": "fortnight"}, "unknown every = 'fortnight' (allowed: \"day\""),
        (FILES, {"every": "month", "start": "1997-01-31"}, "day 1 to 28"),
        (FILES, {"start": "1997-01-02"}, "start: expected a step number"),
        (FILES, {"time_column": None, "end": None}, "the end of a step is undefined"),
        (DUCKDB, {"every": "files", "start": None, "end": None}, "without files"),
        (DUCKDB, {"end": "data"}, "end = \"data\" has no meaning without files"),
        (FILES, {**STAYS, "end": "data"}, 'end = "data" has no meaning with shape = "stays"'),
        # What a database needs, and what its rows can be.
        (DUCKDB, {"query": None}, "query is missing"),
        (DUCKDB, {"time_column": "day"}, "time_column has no meaning with query"),
        (DUCKDB, {"late": "next-step"}, 'late = "next-step" has no meaning with kind = "duckdb"'),
        (POSTGRES, {"table": None}, "table is missing"),
        (POSTGRES, {"every": None, "end": 3, "start": None}, "every is missing"),
        (POSTGRES, {"late": "next-step"}, "xid_column is missing"),
        (POSTGRES, {"url": "postgresql://h/d"}, "give either url or url_env"),
        (POSTGRES, {"query": "TABLE t"}, "query has no meaning for a growing table"),
        (POSTGRES, {**KEYED, "shape": "snapshots", "table": None}, "one of table or query"),
        (POSTGRES, {**KEYED, "shape": "snapshots", "table": None, "query": " "}, "query: expected a text"),
        (MYSQL, {"query": "SELECT 1 WHERE ? = ?"}, "give either table or query"),
        (MYSQL, {"time_column": None}, "time_column is missing"),
        (MYSQL, {"key_column": "id"}, "unordered rows"),
        (MYSQL, {"table": None, "time_column": None, "query": "SELECT 1"}, "0 parameters"),
        (MYSQL, {**STAYS, "end": "2026-01-09", "table": None, "query": "SELECT ?"}, "1 parameter"),
        (MYSQL, {"url": f"mysql://reader:{PASSWORD}@host/shop"}, "without password"),
        (MYSQL, {"url": "postgresql://host/shop"}, "expected a MySQL URL without password"),
        # Records with keys.
        (FILES, {"key_column": "id", "shape": "stay"}, "unknown shape"),
        (FILES, {**STAYS, "delete_time_column": None}, "delete_time_column is missing"),
        (FILES, {**STAYS, "late": "drop-and-count-nothing"}, "and shape = \"stays\" (allowed: error, next-step)"),
        (FILES, {**STAYS, "known": "update"}, 'known = "update" has no meaning with late = "error"'),
        (FILES, {**STAYS, "shrinks": 0.5}, "shrinks has no meaning"),
        (FILES, {"key_column": "id", "shape": "snapshots", "time_column": None, "end": None}, 'every = "files"'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(given: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    keys = {key: value for key, value in {**given, **changes}.items() if value is not None}
    SourceOptions.parse({key: value for key, value in given.items() if value is not None})
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse(keys)
    assert message in str(caught.value)
    assert caught.value.allowed
    assert PASSWORD not in str(caught.value)
