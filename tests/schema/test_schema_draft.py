"""Drafts: every line that was read off the data is marked, and the draft encodes what it was drafted from."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema import Boolean, Categorical, Integer
from dpstream.io.sources import SourceOptions
from dpstream.io.sources.formats import read_sample
from dpstream.project.column_draft import guess_column, nice_edges
from dpstream.project.config_draft import draft_config
from dpstream.project.schema_file import read_schema

GOLDEN = Path(__file__).with_name("golden_draft.toml")


def example() -> dict[str, list[object]]:
    """A small table with a column of every kind, made without any generator."""
    day = dt.date(2024, 1, 1)
    return {
        "file_date": [day + dt.timedelta(days=i) for i in range(240)],
        "zip": [["02139", "94102", "941", None][i % 4] for i in range(240)],
        "paid": [i % 3 == 0 for i in range(240)],
        "rooms": [i % 7 if i % 50 else None for i in range(240)],
        "income": [(i * i) % 97 * 100 for i in range(240)],
        "rent": [((i * 37) % 240) * 12.5 + 0.25 for i in range(240)],
        "lat": [40.5 + ((i * 53) % 240) / 600 for i in range(240)],
        "born": [day - dt.timedelta(days=(i * 97) % 20_000) for i in range(240)],
        "seen at": [dt.datetime(2024, 5, 1, i % 24, 30) + dt.timedelta(days=i % 9) for i in range(240)],
        "id": [10_000 + i for i in range(240)],
        "note": [f"private words {i}" for i in range(240)],
        "empty": [None] * 240,
    }


def test_the_draft_is_the_golden_file() -> None:
    text = draft_config(pa.table(example()), "file_date", name="evictions", path="data/*.parquet")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_a_word_that_stands_for_a_bin_is_that_bin() -> None:
    """The labels of the bins mean them in the data, so that they are no values besides."""
    words = pa.chunked_array([["94102", "missing", "other", "94103"] * 9])
    column = guess_column("zip", words).column
    assert column == Categorical("zip", ["94102", "94103"], other="other", missing="missing")
    only = guess_column("x", pa.chunked_array([["missing", "other"]])).column
    assert only == Categorical("x", ["missing", "other"], other="(other)", missing="(missing)")


@pytest.mark.parametrize("values", [[0, 1, 1], ["0", "1", "1"], [0.0, 1.0, None], ["0", None, "0"]])
def test_zero_and_one_are_a_boolean(values: list[object]) -> None:
    column = guess_column("x", pa.chunked_array([pa.array(values)])).column
    assert column == Boolean("x", other="other", missing="missing")
    assert guess_column("x", pa.chunked_array([pa.array([0, 1, 2])])).column == Integer(
        "x", 0, 2, other="other", missing="missing"
    )


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".ndjson"])
def test_files_of_every_kind_give_the_same_draft(tmp_path: Path, ending: str) -> None:
    table = pa.table({k: v for k, v in example().items() if k not in ("seen at", "empty", "born")})
    path = tmp_path / f"data{ending}"
    write(table, path)
    schema = read_schema(tomllib.loads(draft_config(path, "file_date")))
    typed = read_schema(tomllib.loads(draft_config(table, "file_date")))
    assert schema == typed
    rows = read_sample(path, 10**6).drop_columns(["file_date"])
    codes = schema.encode(rows)
    assert codes.tolist() == typed.encode(table.drop_columns(["file_date"])).tolist()
    # A folder and a pattern name the same file.
    for source in (tmp_path, tmp_path / "*.*"):
        assert read_sample(source, 7).num_rows == 7
        assert read_schema(tomllib.loads(draft_config(source, "file_date"))) == schema


def write(table: pa.Table, path: Path) -> None:
    """One file by its ending; nulls are empty in text files."""
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    rows = table.to_pylist()
    if path.suffix == ".ndjson":
        text = "\n".join(json.dumps(row, default=str) for row in rows)
    else:
        lines = [
            ",".join("" if v is None else str(v).replace("True", "true") for v in r.values()) for r in rows
        ]
        text = "\n".join([",".join(table.column_names), *lines]) + "\n"
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.lists(st.none() | st.floats(-1e300, 1e300), min_size=1, max_size=30),
        st.lists(st.none() | st.integers(-(2**60), 2**60), min_size=1, max_size=30),
        st.lists(st.none() | st.booleans(), min_size=1),
        st.lists(st.none() | st.text(max_size=4), min_size=1, max_size=30),
        st.lists(st.none() | st.dates(), min_size=1, max_size=30),
        st.lists(st.none() | st.datetimes(), min_size=1, max_size=30),
        st.lists(st.none() | st.integers(-999, 999).map(str), min_size=1, max_size=30),
        st.lists(st.none() | st.dates().map(str), min_size=1, max_size=30),
    )
)
def test_a_draft_encodes_what_it_was_drafted_from(values) -> None:
    guess = guess_column("x", pa.chunked_array([pa.array(values)]))
    if guess.column is None:
        assert guess.reason
        return
    schema = read_schema(tomllib.loads(draft_config({"x": values})))
    assert schema.columns == (guess.column,)
    assert schema.problems({"x": values}) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50), st.sampled_from([-300, 0]))
def test_nice_edges_hold_every_value(values: list[float], finest: int) -> None:
    edges = nice_edges(np.array(values), finest)
    assert (np.diff(edges) > 0).all()
    assert edges[0] <= min(values)
    assert max(values) <= edges[-1]
    assert len(edges) <= 11


def test_drafts_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown column 'when' \(allowed: one of the 1 column of the data\)"
    ):
        draft_config({"x": [1]}, "when")
    with pytest.raises(ConfigError, match="no data file"):
        draft_config(tmp_path / "absent.csv")
    for name, content, words in (
        ("a.xls", b"x", "unknown file ending"),
        ("b.csv", b"x,y\n1,2\nhush,3,4\n", r"b\.csv: a line has other columns"),
        ("c.parquet", b"PAR1 half a file", r"c\.parquet: the file cannot be read"),
        ("d.csv", b"", r"d\.csv: empty file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError if name == "a.xls" else DataError, match=words) as caught:
            draft_config(tmp_path / name)
        assert "hush" not in str(caught.value)


def test_a_draft_does_not_say_when_the_calendar_begins() -> None:
    """Read off the data, it would be a private fact; left out, nobody would look for it."""
    text = draft_config(pa.table(example()), "file_date")
    source = tomllib.loads(text)["source"]
    assert (source["start"], source["end"]) == ("YYYY-MM-DD", "YYYY-MM-DD")
    with pytest.raises(ConfigError, match="start = 'YYYY-MM-DD': expected a day"):
        SourceOptions.parse(source)
    SourceOptions.parse({**source, "start": "2026-01-05", "end": "today"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"null\n", "expected JSON objects"),
        (b'{"a": 1}\nnull\n{"a": 2}\n', "expected JSON objects"),
        (b'{"a":' + b"[" * 100_000 + b"\n", "expected JSON objects"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "expected JSON objects"),
        (b"[" * 100_000 + b"]" * 100_000, "expected JSON objects"),
        (b'{"a": 1}\xff\n', "expected UTF-8, found"),
        (b"\n\n", "empty file"),
        (b"{}\n", "empty file"),
    ],
    ids=range(8),
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_that_ended_arrows_reader_is_told(
    tmp_path: Path, content: bytes, message: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / ("a.ndjson" if pack is bytes else "a.ndjson.gz")
    path.write_bytes(pack(content))
    with pytest.raises(DataError, match=message) as caught:
        draft_config(path)
    assert "[[" not in str(caught.value)
    path.write_bytes(path.read_bytes()[:-9])
    if pack is not bytes:
        with pytest.raises(DataError, match=r"cannot be read|expected JSON objects"):
            draft_config(path)


def test_records_of_several_kinds_make_a_draft(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        '{"a": 1, "b": [1]}',
        '{"a": "x", "c": "\\ud800"}',
        "",
        '{"a": 1.5, "d": true}',
        '{"a": 1' + "0" * 5000 + "}",
    ]
    path.write_text("\n".join(lines))
    text = draft_config(path)
    assert 'values = ["1", "1.5", "Infinity", "x"]' in text
    assert "of type list" in text
    assert 'type = "boolean"' in text
