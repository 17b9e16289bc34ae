"""Released files: equal bytes, whole steps, nothing overwritten, everything checked when read."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreFormatError
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.io.sinks import Publisher, StepFiles, read_catalogue, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.io.sinks.table_files import FORMATS, from_bytes, to_bytes
from dpstream.io.sinks.target import NOTICE
from dpstream.stream.release.codebook import descriptor

SCHEMA = Schema(
    [
        Categorical("zip", ["094102", "94103"], missing="missing"),
        Categorical("rooms", [1, 2], missing="missing"),
        Boolean("paid", missing="missing"),
        Integer("age", min=0, max=9, missing="missing"),
        Real("rent", [0, 500, 1000], missing="missing"),
        Date("filed", start=dt.date(2024, 1, 1), end=dt.date(2024, 3, 15), every="month", missing="missing"),
        DateTime("seen", start=dt.date(2024, 1, 1), end=dt.date(2024, 1, 9), every="day", timezone="UTC"),
        DateTime("left", start=dt.date(2024, 1, 1), end=dt.date(2024, 1, 9), every="day", missing="missing"),
    ]
)


def table(rows: int) -> Any:
    generator = np.random.default_rng(rows)
    codes = np.stack([generator.integers(size, size=rows) for size in SCHEMA.domain.sizes], axis=1)
    return SCHEMA.decode(codes, 1)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rows", [0, 1, 200])
def test_tables_come_back_typed(form: Any, rows: int) -> None:
    data = to_bytes(table(rows), form)
    assert data == to_bytes(table(rows), form), "equal tables give equal bytes"
    fields = descriptor(SCHEMA)["resources"][0]["schema"]["fields"]
    assert from_bytes(data, form, fields).equals(table(rows))


def test_a_null_alone_in_a_row_is_a_row() -> None:
    one = pa.table({"paid": pa.array([True, None, None])})
    fields = [{"name": "paid", "type": "boolean"}]
    assert from_bytes(to_bytes(one, "csv"), "csv", fields).equals(one)


def publish(root: Path, form: Any, steps: int, without: tuple[int, ...] = ()) -> Publisher:
    """What a stream does, without a stream."""
    import hashlib

    publisher = Publisher(root, format=form)
    entries = []
    for step in sorted({*range(1, steps + 1)} - {*without}):
        files = publisher.render(table(step))
        hashes = {name: {"sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
        manifest = json.dumps({"format": 1, "step": step, "files": hashes}).encode()
        publisher.put(StepFiles.of(step, {**files, "manifest.json": manifest}))
        digest = hashlib.sha256(manifest).hexdigest()
        entries.append({"step": step, "state": "full", "kept": True, "manifest_sha256": digest})
    book = descriptor(SCHEMA, "test", publisher.table_name)
    publisher.index("codebook.json", json.dumps(book).encode())
    catalogue = {"format": 1, "part_steps": 100, "closed_parts": 0, "stream_id": "ab", "steps": entries}
    publisher.index("catalogue.json", json.dumps(catalogue).encode())
    return publisher


@pytest.mark.parametrize("form", FORMATS)
def test_published_steps_are_read_back(tmp_path: Path, form: Any) -> None:
    publisher = publish(tmp_path, form, 3)
    assert read(tmp_path, 2).equals(table(2))
    assert read(tmp_path).equals(table(3)), "the last one by default"
    pandas = read(tmp_path, 3, frame="pandas")
    polars = read(tmp_path, 3, frame="polars")
    assert list(pandas.columns) == polars.columns == list(SCHEMA.names)
    assert len(pandas) == len(polars) == 3
    assert sorted(publisher.published("ab")) == [1, 2, 3]
    assert read_manifest(tmp_path, 1)["step"] == 1
    for step, words in ((4, "there is no step 4"), (0, "there is no step 0")):
        with pytest.raises(ConfigError, match=f"{words}.*allowed: steps 1-3"):
            read(tmp_path, step)
    publish(tmp_path / "gaps", "csv", 4, without=(2, 3))
    with pytest.raises(ConfigError, match="allowed: steps 1, 4"):
        read(tmp_path / "gaps", 2)
    with pytest.raises(ConfigError, match="allowed: arrow, pandas, polars"):
        read(tmp_path, 1, frame="spark")  # type: ignore[arg-type]


def test_a_step_is_repeated_but_never_changed(tmp_path: Path) -> None:
    publisher = publish(tmp_path, "csv", 1)
    folder = tmp_path / "step-000001"
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    publisher.put(StepFiles.of(1, files))
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    for wrong in (
        {**files, "table.csv": files["table.csv"] + b"\n"},
        {**files, "more.txt": b""},
        {"manifest.json": files["manifest.json"]},
    ):
        with pytest.raises(StoreDamagedError, match="differ from what was committed"):
            publisher.put(StepFiles.of(1, wrong))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def test_half_a_step_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = publish(tmp_path, "csv", 1)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    files = publisher.render(table(7)) | {"manifest.json": b"{}"}
    for name in ("write", "sync_file", "sync_directory", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(durable, name, refuse)
            with pytest.raises(OSError, match="No space"):
                publisher.put(StepFiles.of(2, files))
        assert not (tmp_path / "step-000002").exists()
    publisher.put(StepFiles.of(2, files))
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["step-000001", "step-000002"]


def test_what_is_taken_back_is_nowhere(tmp_path: Path) -> None:
    """Nor is it in what an interrupted attempt left. An expired table leaves its manifest. Both may be repeated."""
    publisher = publish(tmp_path, "csv", 1)
    left = tmp_path / ".publishing.tmp" / "0123"
    left.mkdir(parents=True)
    shutil.copy(tmp_path / "step-000001" / "table.csv", left)
    manifest = tmp_path / "step-000001" / "manifest.json"
    notice = {"manifest.json": manifest.read_bytes(), NOTICE: b"{}"}
    for staying, names in (({}, ["manifest.json"]), (notice, ["manifest.json", NOTICE])):
        for _ in range(2):
            publisher.withdraw(1, ["table.csv"], staying)
            assert sorted(path.name for path in manifest.parent.iterdir()) == sorted(names)
    assert not list(tmp_path.rglob("table.csv"))
    assert sorted(publisher.have("ab")) == [1]


def edit(path: Path, **changes: Any) -> None:
    catalogue = json.loads(path.read_text())
    catalogue["steps"][0].update(changes)
    path.write_text(json.dumps(catalogue))


def test_damage_and_states_have_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are no releases"):
        read(tmp_path / "nowhere")
    publish(tmp_path, "csv", 1)
    catalogue = tmp_path / "catalogue.json"
    good = catalogue.read_text()
    for changes, words in (
        ({"kept": False}, "dropped by the keep policy"),
        ({"state": "withdrawn", "reason": "wrong week"}, "was withdrawn: wrong week"),
        ({"state": "change"}, "is a change, and step 0 before it is not published"),
    ):
        edit(catalogue, **changes)
        with pytest.raises(ConfigError, match=words):
            read(tmp_path, 1)
        with pytest.raises(ConfigError, match="no step has a full table"):
            read(tmp_path)
        catalogue.write_text(good)
    catalogue.write_text(good.replace('"format": 1', '"format": 3'))
    with pytest.raises(StoreFormatError, match="format 3"):
        read_catalogue(tmp_path)
    catalogue.write_text("[]")
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        read(tmp_path)
    catalogue.write_text(good)
    (tmp_path / "codebook.json").rename(tmp_path / "book")
    with pytest.raises(StoreDamagedError, match="codebook"):
        read(tmp_path)
    (tmp_path / "book").rename(tmp_path / "codebook.json")
    data = tmp_path / "step-000001" / "table.csv"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(StoreDamagedError, match="published hash"):
        read(tmp_path)
    data.unlink()
    with pytest.raises(StoreDamagedError, match="is missing"):
        read(tmp_path)
    (tmp_path / "step-000001" / "manifest.json").unlink()
    with pytest.raises(StoreDamagedError, match="manifest is missing"):
        Publisher(tmp_path).published("ab")
    with pytest.raises(ConfigError, match="allowed: parquet, csv"):
        Publisher(tmp_path, format="xlsx")  # type: ignore[arg-type]


def test_of_two_who_publish_a_step_at_once_the_first_wins_whole(tmp_path: Path) -> None:
    """The second publishes while the first is between two files; what an interrupted attempt left goes."""
    (tmp_path / ".publishing.tmp" / "0123").mkdir(parents=True)
    first, second = (Publisher(tmp_path, format="csv") for _ in range(2))
    mine, other = ({**first.render(table(rows)), "manifest.json": bytes([48 + rows])} for rows in (7, 8))
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
        publisher = publish(tmp_path / "releases", "csv", 1)
        publisher.index("catalogue/1.json", b"{}")
    finally:
        os.umask(mask)
    folders = [path for path in (tmp_path / "releases").rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in [tmp_path / "releases", *folders]} == {0o755}


def test_a_url_is_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'got a URL .* sink = "bucket"'):
        Publisher("s3://bucket/releases")
