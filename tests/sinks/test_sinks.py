"""Released files: whole steps, nothing overwritten, everything checked when read."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from small_streams import small_frame, small_schema, small_stream

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreFormatError
from dpstream.core.schema.arrow import to_table
from dpstream.io.sinks import Publisher, StepFiles, read_catalogue, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.io.sinks.table_files import FORMATS


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
