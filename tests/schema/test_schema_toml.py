"""``[schema]`` in files: strict reading, exact writing."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, InputError, SchemaError
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.project.schema_file import read_schema, write_schema

CONFIG = """
format = 1
[stream]
name = "evictions"
[schema]
ignore = ["address"]
null_values = ["", "NA"]
[schema.columns.zip]
type = "categorical"
values = ["94102", "94103"]
other = "other"
missing = "missing"
[schema.columns.rent]
type = "real"
edges = [0, 500, 1000, 2000, 5000]
outside = "clip"
[schema.columns.paid]
type = "boolean"
[schema.columns.rooms]
type = "integer"
min = 1
max = 9
[schema.columns.filed]
type = "date"
start = 2024-01-01
end = 2024-12-31
every = "14 days"
[schema.columns."first seen"]
type = "datetime"
edges = [2024-01-01T00:00:00, "2024-06-01T12:30:00", 2025-01-01]
timezone = "Europe/Zurich"
"""
SCHEMA = Schema(
    [
        Categorical("zip", ["94102", "94103"], other="other", missing="missing"),
        Real("rent", [0, 500, 1000, 2000, 5000], outside="clip"),
        Boolean("paid"),
        Integer("rooms", 1, 9),
        Date("filed", start=dt.date(2024, 1, 1), end=dt.date(2024, 12, 31), every="14 days"),
        DateTime(
            "first seen",
            [dt.datetime(2024, 1, 1), dt.datetime(2024, 6, 1, 12, 30), dt.datetime(2025, 1, 1)],
            timezone="Europe/Zurich",
        ),
    ],
    ignore=["address"],
    null_values=["", "NA"],
)


def test_reads_the_schema_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "dpstream.toml"
    path.write_text(CONFIG, encoding="utf-8")
    assert read_schema(path) == read_schema(str(path)) == SCHEMA
    assert read_schema(tomllib.loads(CONFIG)) == SCHEMA
    assert read_schema(tomllib.loads(CONFIG)["schema"]) == SCHEMA
    assert read_schema(tomllib.loads(write_schema(SCHEMA))) == SCHEMA


@pytest.mark.parametrize("inside", [True, False])
def test_follows_a_schema_file(tmp_path: Path, inside: bool) -> None:
    (tmp_path / "public").mkdir()
    text = write_schema(SCHEMA)
    alone = text if inside else text.replace("[schema]\n", "").replace("[schema.", "[")
    (tmp_path / "public" / "schema.toml").write_text(alone, encoding="utf-8")
    path = tmp_path / "dpstream.toml"
    path.write_text('format = 1\n[schema]\nfile = "public/schema.toml"\n', encoding="utf-8")
    assert read_schema(path) == SCHEMA
    assert read_schema({"file": "public/schema.toml"}, base=tmp_path) == SCHEMA
    (tmp_path / "public" / "schema.toml").write_text('[schema]\nfile = "dpstream.toml"\n', encoding="utf-8")
    with pytest.raises(SchemaError, match=r"schema\.toml.*leads on to another file"):
        read_schema(path)


awkward = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(awkward, min_size=1, max_size=5, unique=True),
    st.lists(awkward, min_size=1, max_size=3, unique=True),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=5, unique=True),
    st.booleans(),
)
def test_any_text_and_number_survives_the_file(values, names, edges, confirmed) -> None:
    columns = [Categorical(name, values) for name in names]
    columns.append(Real("".join(names) + "!", sorted(edges)))
    schema = Schema(columns, confirmed=confirmed)
    again = read_schema(tomllib.loads(write_schema(schema)))
    assert again == schema
    assert again.confirmed is confirmed


def test_a_draft_must_be_confirmed() -> None:
    draft = Schema([Boolean("a")], confirmed=False)
    with pytest.raises(ConfigError, match=r"my\.toml \[schema\]: the schema is a draft.*confirmed = true"):
        draft.require_confirmed("my.toml")
    Schema([Boolean("a")]).require_confirmed()
    assert read_schema({"confirmed": False, "columns": {"a": {"type": "boolean"}}}) == draft


def _with(line: str, instead_of: str = 'outside = "clip"') -> str:
    assert instead_of in CONFIG
    return CONFIG.replace(instead_of, line)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            _with('outsid = "clip"'),
            ["[schema] column 'rent'", "'outsid' ('clip')", "did you mean 'outside'", "edges"],
        ),
        (_with('outside = "drop"'), ["column 'rent'", "'drop'", '"clip"']),
        (
            _with("edges = [0, 0]", "edges = [0, 500, 1000, 2000, 5000]"),
            ["column 'rent'", "strictly increasing"],
        ),
        (
            _with('type = "reel"', 'type = "real"'),
            ["column 'rent'", "'reel'", "did you mean 'real'", "boolean"],
        ),
        (_with("type = 5", 'type = "real"'), ["column 'rent'", "unknown type = 5"]),
        (_with("", 'type = "real"'), ["column 'rent'", "type is missing"]),
        (_with("colums = 1", 'ignore = ["address"]'), ["[schema]", "'colums' (1)", "did you mean 'columns'"]),
        (_with("ignore = 1", 'ignore = ["address"]'), ["[schema]", "ignore: expected a list"]),
        (_with('ignore = ["zip"]', 'ignore = ["address"]'), ["[schema]", "'zip' is declared and ignored"]),
        (_with('confirmed = "yes"', 'ignore = ["address"]'), ["[schema]", "'yes'", "true, false"]),
        (_with("format = 2", 'ignore = ["address"]'), ["[schema]", "unknown format 2"]),
        (_with('file = "x.toml"', 'ignore = ["address"]'), ["[schema]", "alone"]),
        (_with('every = "sometimes"', 'every = "14 days"'), ["column 'filed'", "'sometimes'", "quarter"]),
        ("[schema]\n", ["[schema]", "columns are missing"]),
        ("schema = 5\n", ["has to be a table"]),
        ("[schema.columns]\na = 5\n", ["column 'a'", "5: expected a table"]),
        ("[schema\n", ["invalid TOML"]),
    ],
)
def test_errors_name_file_key_value_and_what_is_allowed(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_schema(path)
    assert str(caught.value).startswith(str(path))
    assert [part for part in parts if part not in str(caught.value)] == []


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_schema(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="invalid TOML"):
        read_schema(tmp_path / "binary.toml")
