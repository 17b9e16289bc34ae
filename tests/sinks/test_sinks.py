"""Released files: whole steps, nothing overwritten, everything checked when read, equal however they are drawn."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from small_streams import small_frame, small_schema, small_stream

from dpstream.core import durable
from dpstream.core.errors import ConfigError, DataError, StoreDamagedError, StoreFormatError
from dpstream.core.graphical import Model, junction_tree
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.core.schema.arrow import to_table
from dpstream.io.sinks import Publisher, StepFiles, read_catalogue, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.io.sinks.change_tables import LABEL
from dpstream.io.sinks.table_files import (
    FORMATS,
    BlockWriter,
    Format,
    StagedFile,
    blocks_of,
    from_bytes,
    to_bytes,
)
from dpstream.mechanisms.table_release import ModelSynthesis
from dpstream.stream.release.manifest import descriptor
from dpstream.stream.release.table_blocks import drawing, whole_table, write_blocks
from dpstream.stream.store.staging import Staging


def edit(path: Path, entry: int = 0, **changes: Any) -> None:
    catalogue = json.loads(path.read_text())
    if changes:
        catalogue["steps"][entry].update(changes)
    else:
        del catalogue["steps"][entry]
    path.write_text(json.dumps(catalogue))


@pytest.mark.parametrize("form", FORMATS)
def test_published_steps_are_read_back(tmp_path: Path, form: str) -> None:
    root = tmp_path / "releases"
    with small_stream(tmp_path, steps=4, output={"format": form}) as stream:
        assert read(root, 2).equals(stream.release(2).sample())
        assert read(root).equals(stream.release(4).sample()), "the last one by default"
    assert read(root).column_names == list(small_schema().names)
    assert read_manifest(root, 1)["step"] == 1
    for step in (5, 0):
        with pytest.raises(ConfigError, match=f"unknown step {step}.*allowed: steps 1-4"):
            read(root, step)
    for _ in range(2):
        edit(root / "catalogue.json", 1)
    with pytest.raises(ConfigError, match="allowed: steps 1, 4"):
        read(root, 2)
    with pytest.raises(ConfigError, match="allowed: arrow, pandas, polars"):
        read(root, 1, frame="spark")  # type: ignore[arg-type]


def test_damage_and_states_have_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no releases found"):
        read(tmp_path / "nowhere")
    small_stream(tmp_path, steps=1, output={"format": "csv"}).close()
    root = tmp_path / "releases"
    catalogue, stream_id = root / "catalogue.json", read_manifest(root, 1)["stream_id"]
    good = catalogue.read_text()
    for changes, words in (
        ({"kept": False}, "the keep policy dropped"),
        ({"state": "withdrawn", "reason": "wrong week"}, "was withdrawn: wrong week"),
        ({"state": "change"}, "step 1 is a change, and step 0 before it is missing"),
    ):
        edit(catalogue, **changes)
        with pytest.raises(ConfigError, match=words):
            read(root, 1)
        with pytest.raises(ConfigError, match="no step has a full table"):
            read(root)
        catalogue.write_text(good)
    catalogue.write_text(json.dumps({**json.loads(good), "format": 3}))
    with pytest.raises(StoreFormatError, match="format 3"):
        read_catalogue(root)
    catalogue.write_text("[]")
    with pytest.raises(StoreDamagedError, match="unreadable catalogue"):
        read(root)
    catalogue.write_text(good)
    (root / "codebook.json").rename(root / "book")
    with pytest.raises(StoreDamagedError, match="codebook"):
        read(root)
    (root / "book").rename(root / "codebook.json")
    data = root / "step-000001" / "table.csv"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(StoreDamagedError, match="published hash"):
        read(root)
    data.unlink()
    with pytest.raises(StoreDamagedError, match="file missing"):
        read(root)
    (root / "step-000001" / "manifest.json").unlink()
    with pytest.raises(StoreDamagedError, match="manifest missing"):
        Publisher(root).published(stream_id)


def test_of_two_who_publish_a_step_at_once_the_first_wins_whole(tmp_path: Path) -> None:
    """The second publishes while the first is between two files; what an interrupted attempt left goes."""
    (tmp_path / ".publishing.tmp" / "0123").mkdir(parents=True)
    first, second = (Publisher(tmp_path, format="csv") for _ in range(2))
    tables = [to_table(small_frame(small_schema().names, step), "test") for step in (1, 2)]
    mine, other = ({**first.render(one), "manifest.json": bytes([n])} for n, one in enumerate(tables))
    real, begun = durable.write_file, threading.Event()

    def slow(path: Path, data: bytes, *, mode: int) -> None:
        real(path, data, mode=mode)
        if not begun.is_set():
            begun.set()
            second.put(StepFiles.of(2, other))

    for seconds, wins in ((slow, other), (real, mine)):
        shutil.rmtree(tmp_path / "step-000002", ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(durable, "write_file", seconds)
            with contextlib.suppress(StoreDamagedError, OSError):
                first.put(StepFiles.of(2, mine))
        assert {path.name: path.read_bytes() for path in (tmp_path / "step-000002").iterdir()} == wins
        first.put(StepFiles.of(2, wins))
        assert [path.name for path in tmp_path.iterdir()] == ["step-000002"]


def test_folders_are_not_for_everybody_to_write_to(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        small_stream(tmp_path, steps=1).close()
        Publisher(tmp_path / "releases").index("catalogue/1.json", b"{}")
    finally:
        os.umask(mask)
    folders = [path for path in (tmp_path / "releases").rglob("*") if path.is_dir()]
    assert len(folders) > 1
    assert {path.stat().st_mode & 0o777 for path in [tmp_path / "releases", *folders]} == {0o755}


def test_what_is_no_folder_and_what_is_no_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'got a URL .* sink = "bucket"'):
        Publisher("s3://bucket/releases")
    with pytest.raises(ConfigError, match="allowed: parquet, csv"):
        Publisher(tmp_path, format="xlsx")  # type: ignore[arg-type]


# Tables in blocks


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
