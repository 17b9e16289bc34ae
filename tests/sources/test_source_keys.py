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
        (FILES, {"time_column": 7}, "time_column: expected a text (allowed: a column outside"),
        (FILES, {"path": []}, "path is missing"),
        (FILES, {"path": 7}, "path: expected a text or texts"),
        (FILES, {"path": ["-", "a.csv"]}, "path mixes standard input and files"),
        (FILES, {"path": "-", "eof": "maybe"}, "unknown eof"),
        (FILES, {"rows": 0, "time_column": None, "end": None}, "rows = 0: expected a whole number from 1"),
        (FILES, {"op_column": "when"}, "name one column"),
        (POSTGRES, {"wait": "soon"}, "expected a length of time"),
        # With what a key means something.
        (FILES, {"rows": 50}, "time_column has no meaning with rows"),
        (FILES, {"every": "files"}, 'time_column has no meaning with every = "files"'),
        (FILES, {"every": "week", "rows": 5, "time_column": None, "end": None}, "every has no meaning with rows"),
        (FILES, {"lag": "1 day"}, "lag has no meaning with step numbers"),
        (FILES, {"path": "-", "lag": "1 day"}, 'lag has no meaning with kind = "standard input", only with files'),
        (FILES, {"op_values": {"insert": "c", "delete": "d"}}, "op_column is missing, which op_values needs"),
        (FILES, {"unknown": "drop"}, 'unknown = "drop" has no meaning with records without key_column'),
        (POSTGRES, {"slot": "s"}, 'slot has no meaning with kind = "postgres", only with postgres-changes'),
        (POSTGRES, {**KEYED, "shape": "snapshots", "wait": "6 hours"}, 'wait has no meaning with shape = "snapshots"'),
        # Where steps begin and end.
        (FILES, {"every": "week"}, "start is missing: step borders must be public"),
        (FILES, {**WEEKS, "end": None}, "end is missing: the number of steps"),
        (FILES, {"end": None}, "allowed: a day, a step number, today (all periods that are over), data"),
        (FILES, {"end": "today"}, "end must be a step number"),
        (FILES, {**WEEKS, "end": 7}, "end = 7: expected a day"),
        (FILES, {**WEEKS, "start": "soon"}, "start = 'soon': expected a day"),
        (FILES, {**WEEKS, "end": "1996-01-01"}, "end precedes start"),
        (FILES, {"start": 5, "end": 4}, "end precedes start"),
        (FILES, {**WEEKS, "every": "fortnight"}, "unknown every = 'fortnight' (allowed: \"day\""),
        (FILES, {**WEEKS, "every": "0 days"}, "unknown every"),
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
        (MYSQL, {"url": f"mysql://reader:{SECRET}@host/shop"}, "without password"),
        (MYSQL, {"url": f"mysql://host/shop?password={SECRET}"}, "without password"),
        (MYSQL, {"url": "postgresql://host/shop"}, "expected a MySQL URL without password"),
        # Records with keys.
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
    assert SECRET not in str(caught.value)
