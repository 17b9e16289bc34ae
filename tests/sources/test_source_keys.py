"""Each key of ``[source]`` is declared once: reader, kinds, table of keys and JSON Schema agree."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from dpstream.core.errors import ConfigError
from dpstream.io.sources.source_keys import KINDS, SourceKeys, keys_of_kind
from dpstream.io.sources.source_options import SourceOptions
from dpstream.project.json_schema import json_schema
from dpstream.project.keys import keys_of
from dpstream.spark.spark_source import SparkKeys

_OF_OTHER_SECTIONS = ("continues", "own", "same_unit")


def test_the_fields_are_the_table_and_the_json_schema() -> None:
    names = [one.name for one in fields(SourceKeys) if one.name not in _OF_OTHER_SECTIONS]
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
DAYS = {"every": "day", "start": "2026-01-05", "end": "today"}
DUCKDB = {"kind": "duckdb", "database": "d", "query": "SELECT 1 WHERE ? < ?", **DAYS}
POSTGRES = {"kind": "postgres", "url_env": "U", "table": "t", "time_column": "at", **DAYS}
MYSQL = {"kind": "mysql", "url": "mysql://reader@host/shop", "table": "t", "time_column": "at", **DAYS}
KEYED = {"key_column": "id", "time_column": None}
SECRET = "hunter2"


@pytest.mark.parametrize(
    ("given", "changes", "message"),
    [
        # Keys and values by themselves.
        (FILES, {"evry": "week"}, "unknown key 'evry' (allowed: kind, path, database"),
        (FILES, {"kind": "oracle"}, "unknown kind = 'oracle'"),
        (FILES, {"late": "drop"}, "unknown late = 'drop' (allowed: error, next-step"),
        (FILES, {"time_column": 7}, "time_column is not a text, or is empty (allowed: a column of the data"),
        (FILES, {"path": []}, "there is no path"),
        (FILES, {"path": 7}, "path is not a text"),
        (FILES, {"path": ["-", "a.csv"]}, "cannot be mixed"),
        (FILES, {"path": "-", "eof": "maybe"}, "unknown eof"),
        (FILES, {"rows": 0, "time_column": None, "end": None}, "rows = 0 is not a whole number from 1 (allowed: a"),
        (FILES, {"op_column": "when"}, "the same column"),
        (POSTGRES, {"wait": "soon"}, "not a length of time"),
        # With what a key means something.
        (FILES, {"rows": 50}, "time_column has no meaning with rows: records are taken in the order of the files"),
        (FILES, {"every": "files"}, 'time_column has no meaning with every = "files": records are taken'),
        (FILES, {"every": "week", "rows": 5, "time_column": None, "end": None}, "every has no meaning with rows"),
        (FILES, {"lag": "1 day"}, "lag has no meaning with step numbers: there is no calendar"),
        (FILES, {"path": "-", "lag": "1 day"}, 'lag has no meaning with kind = "standard input"; it is a key of files'),
        (FILES, {"op_values": {"insert": "c", "delete": "d"}}, "op_column is missing, which op_values needs"),
        (FILES, {"unknown": "drop"}, 'unknown = "drop" has no meaning with records without key_column'),
        (POSTGRES, {"slot": "s"}, 'slot has no meaning with kind = "postgres"; it is a key of postgres-changes'),
        (POSTGRES, {**KEYED, "shape": "snapshots", "wait": "6 hours"}, 'wait has no meaning with shape = "snapshots"'),
        # Where steps begin and end.
        (FILES, {"every": "week"}, "start is missing: periods are counted from a public first day"),
        (FILES, {**WEEKS, "end": None}, "end is missing: the number of steps"),
        (FILES, {"end": None}, 'allowed: a last step number (977), "data"'),
        (FILES, {"end": "today"}, "end is not a step number"),
        (FILES, {**WEEKS, "end": 7}, "end = 7 is not a day"),
        (FILES, {**WEEKS, "start": "soon"}, "start = 'soon' is not a day"),
        (FILES, {**WEEKS, "end": "1996-01-01"}, "end is before start"),
        (FILES, {"start": 5, "end": 4}, "end is before start"),
        (FILES, {**WEEKS, "every": "fortnight"}, "unknown every = 'fortnight' (allowed: \"day\""),
        (FILES, {**WEEKS, "every": "0 days"}, "unknown every"),
        (FILES, {"every": "month", "start": "1997-01-31"}, "a day from 1 to 28"),
        (FILES, {"start": "1997-01-02"}, "without every the time column holds step numbers"),
        (FILES, {"time_column": None, "end": None}, "nothing says where a step ends"),
        (DUCKDB, {"every": "files", "start": None, "end": None}, "without files"),
        (DUCKDB, {"end": "data"}, "which periods are read must be public"),
        (FILES, {**STAYS, "end": "data"}, "may be an end in the future"),
        # What a database needs, and what its rows can be.
        (DUCKDB, {"query": None}, "query is missing"),
        (DUCKDB, {"time_column": "day"}, "time_column has no meaning for a query"),
        (DUCKDB, {"late": "next-step"}, "cannot tell late records"),
        (POSTGRES, {"table": None}, "table is missing"),
        (POSTGRES, {"every": None, "end": 3, "start": None}, "every is missing"),
        (POSTGRES, {"late": "next-step"}, "xid_column is missing"),
        (POSTGRES, {"url": "postgresql://h/d"}, "both given"),
        (POSTGRES, {"query": "TABLE t"}, "query has no meaning for a table that grows"),
        (POSTGRES, {**KEYED, "shape": "snapshots", "table": None}, "one of table and query"),
        (POSTGRES, {**KEYED, "shape": "snapshots", "table": None, "query": " "}, "query is not a text, or is empty"),
        (MYSQL, {"query": "SELECT 1 WHERE ? = ?"}, "table and query are both missing, or both given"),
        (MYSQL, {"time_column": None}, "time_column is missing"),
        (MYSQL, {"key_column": "id"}, "no order"),
        (MYSQL, {"table": None, "time_column": None, "query": "SELECT 1"}, "0 parameters"),
        (MYSQL, {**STAYS, "end": "2026-01-09", "table": None, "query": "SELECT ?"}, "1 parameter"),
        (MYSQL, {"url": f"mysql://reader:{SECRET}@host/shop"}, "holds a password"),
        (MYSQL, {"url": f"mysql://host/shop?password={SECRET}"}, "holds a password"),
        (MYSQL, {"url": "postgresql://host/shop"}, "none of a MySQL server"),
        # Records with keys.
        (FILES, {**STAYS, "delete_time_column": None}, "delete_time_column is missing"),
        (FILES, {**STAYS, "late": "drop-and-count-nothing"}, "its record would stay for ever"),
        (FILES, {**STAYS, "known": "update"}, "would end the other stays of its key"),
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
    assert SECRET not in str(caught.value)
