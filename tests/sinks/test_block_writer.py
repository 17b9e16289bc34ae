"""Tables written in blocks: readers get what they get of a table that is written at once, whatever the threads."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.graphical import Model, junction_tree
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.io.sinks import Publisher
from dpstream.io.sinks.change_tables import LABEL
from dpstream.io.sinks.table_files import BlockWriter, Format, StagedFile, blocks_of, from_bytes, to_bytes
from dpstream.mechanisms.table_release import ModelSynthesis
from dpstream.stream.release.codebook import descriptor
from dpstream.stream.release.table_blocks import drawing, whole_table, write_blocks
from dpstream.stream.store.staging import Staging

SCHEMA = Schema(
    [
        Categorical("zip", ["094102", 'with "quotes", and comma', "füü"], other="other", missing="missing"),
        Categorical("plain", ["a", "b"]),
        Categorical("class", [10, 20], missing="missing"),
        Boolean("paid", missing="missing"),
        Integer("age", edges=[0, 18, 65, 120], missing="missing", other="other"),
        Real("rent", [0, 500, 1000.5], missing="missing"),
        Real("wide", [-1e300, 0, 1e300]),
        Date("day", start="2024-01-01", end="2024-12-15", every="month", missing="missing"),
        DateTime("at", edges=["2024-01-01T00:00", "2024-01-02T00:00"], timezone="Europe/Zurich"),
        DateTime("left", start="2024-01-01", end="2024-01-09", every="day", missing="missing"),
    ]
)
FIELDS = descriptor(SCHEMA)["resources"][0]["schema"]["fields"]
FORMS: list[Format] = ["parquet", "csv"]


def codes(rows: int) -> Any:
    generator = np.random.default_rng(1)
    return np.stack([generator.integers(0, size, rows) for size in SCHEMA.domain.sizes], axis=1)


def written(blocks: list[Any], schema: Any, form: Format) -> bytes:
    parts: list[bytes] = []
    writer = BlockWriter(schema, form, lambda data: parts.append(bytes(data)))
    for prepared in [writer.prepare(block) for block in reversed(blocks)][::-1]:
        writer.write(prepared)
    writer.close()
    return b"".join(parts)


def test_texts_as_dictionaries_are_the_same_values_of_the_same_draw() -> None:
    given = codes(300)
    plain, coded = SCHEMA.decode(given, 7), SCHEMA.decode(given, 7, dictionaries=True)
    assert [pa.types.is_dictionary(kind) for kind in coded.schema.types] == [True, True] + [False] * 8
    assert coded.cast(plain.schema).equals(plain)
    given[0, 1] = 2
    with pytest.raises(DataError, match="unknown codes"):
        SCHEMA.decode(given, 7, dictionaries=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "size"), [(250, 1), (250, 100), (250, 1000), (1, 1), (0, 1)])
def test_readers_get_the_same_table_and_the_same_types(form: Format, rows: int, size: int) -> None:
    table = SCHEMA.decode(codes(rows), 7)
    assert to_bytes(table, form) == to_bytes(SCHEMA.decode(codes(rows), 7), form), "equal bytes"
    null = pa.table({"paid": pa.array([True, None, None])})  # alone in its row
    for one, fields in ((table, FIELDS), (null, [{"name": "paid", "type": "boolean"}])):
        assert from_bytes(to_bytes(one, form), form, fields).equals(one)
    schema = table.schema.with_metadata({LABEL: b'{"title": "one"}'})
    whole = SCHEMA.decode(codes(rows), 7, dictionaries=True)
    blocks = [whole.slice(first, size) for first in range(0, rows, size)]
    data = written(blocks, schema, form)
    read = from_bytes(data, form, FIELDS)
    assert read.equals(table)
    assert read.schema.equals(schema if form == "parquet" else table.schema, check_metadata=True)
    assert pa.Table.from_batches(blocks_of(data, form, FIELDS), table.schema).equals(table)
    if form == "csv":
        assert data == to_bytes(table, "csv")
    else:
        groups = pyarrow.parquet.ParquetFile(pa.BufferReader(data)).metadata.num_row_groups
        assert groups == len(blocks)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown format"):
        BlockWriter(SCHEMA.arrow_schema(), "xml", print)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_a_mixture_of_models_has_the_same_bytes_for_one_two_and_four_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    domain = SCHEMA.domain
    tree = junction_tree(domain, [(i, i + 1) for i in range(len(domain) - 1)])
    generator = np.random.default_rng(3)
    models = tuple(Model(tree, generator.normal(0.0, 1.0, tree.parameters), 1.0) for _ in range(3))
    mixture = ModelSynthesis(models, 1.0, weights=(0.5, 0.3, 0.2))
    contents = []
    for threads in ("1", "2", "4"):
        monkeypatch.setenv("DPSTREAM_THREADS", threads)
        (folder := tmp_path / threads).mkdir()
        sink = Publisher(folder / "releases", format=form)
        drawn = drawing(mixture, SCHEMA, 5000, 11, 256, {"title": "t", "words": "w"})
        files = write_blocks(sink, Staging(folder), 1, drawn)
        staged = files[sink.table_name]
        assert isinstance(staged, StagedFile)
        data = staged.path.read_bytes()
        assert (staged.sha256, staged.size) == (hashlib.sha256(data).hexdigest(), len(data))
        contents.append((data, sorted(files)))
    assert contents[0] == contents[1] == contents[2]
    assert contents[0][1] == (
        ["table.parquet"] if form == "parquet" else ["table.csv", "table.csv-metadata.json"]
    )
    table = from_bytes(contents[0][0], form, FIELDS)
    assert table.num_rows == 5000
    assert table.equals(whole_table(drawn))
