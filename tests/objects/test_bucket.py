"""Releases in an object store: the same files, a step at once for readers, whatever stops the writing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from second_place import contents
from small_configs import KIND, ZIP, new_key, write_config, write_rows

import dpstream as dp
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.core.foreign import arrow_input
from dpstream.io.objects import ObjectPath, object_path
from dpstream.io.sinks import Bucket, Publisher, StepFiles
from dpstream.io.sinks.release_reader import check_signed
from dpstream.io.sinks.signing import Signer, signed_folder
from dpstream.io.sinks.table_files import StagedFile

Place = tuple[str, str]


def project(folder: Path, bucket: Place, more: str = "") -> Path:
    """Three steps of some records, and where the releases go, which are signed."""
    if not (folder / "key").exists():
        new_key(folder, "key")
    lines = [f"{step},{'ab'[i % 2]},{'xy'[i % 3 == 0]}" for step in (1, 2, 3) for i in range(60)]
    write_rows(folder, "1.csv", "step,zip,kind", lines)
    output = f'[output]\nsink = "bucket"\ndatabase = "{bucket[0]}/shop{bucket[1]}"\nsign = "key"\n{more}'
    return write_config(folder, columns=ZIP + KIND, budget='epsilon = "2"\nhorizon = 9', rest=output)


def root(bucket: Place) -> ObjectPath:
    return object_path(f"{bucket[0]}/shop{bucket[1]}")


def objects(bucket: Place) -> dict[str, bytes]:
    place = root(bucket)
    return {name: (place / name).read_bytes() for name in place.below()}


def files(folder: Path) -> dict[str, bytes]:
    return contents(folder / "releases")


def run(config: Path, until: int) -> None:
    list(dp.run(config, until=until))


@contextlib.contextmanager
def no_bucket_yet(config: Path) -> Iterator[None]:
    """Releases go into the folder only."""
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("bucket", "folder", 1).replace("database", "#"), encoding="utf-8")
    yield
    config.write_text(text, encoding="utf-8")


def withdraw(config: Path, step: int, reason: str) -> None:
    with dp.Config.load(config).open_stream() as stream:
        stream.withdraw(step, reason)


def test_a_bucket_has_the_files_of_the_folder(tmp_path: Path, bucket: Place) -> None:
    """Also when it comes later, when objects were lost, and when a table is withdrawn or expires."""
    config = project(tmp_path, bucket, more="keep = 2")
    with no_bucket_yet(config):
        run(config, 2)
        withdraw(config, 1, "too early")
        assert objects(bucket) == {}
    run(config, 3)
    assert "step-000001/withdrawn.json" in objects(bucket)
    assert objects(bucket) == files(tmp_path)
    (root(bucket) / "step-000002/table.parquet").unlink()
    (root(bucket) / "codebook.json").unlink()
    run(config, 4)
    assert objects(bucket) == files(tmp_path)
    assert "step-000002/table.parquet" not in files(tmp_path), "kept are two"
    url = f"{bucket[0]}/shop{bucket[1]}"
    here, there = dp.read(tmp_path / "releases"), dp.read(url, key=Signer(tmp_path / "key").public)
    assert there.steps == here.steps == (3, 4)
    assert there.table().equals(here.table())
    assert there.measurements() == here.measurements()
    assert there.columns == here.columns
    withdraw(config, 4, "sent twice")
    assert objects(bucket) == files(tmp_path)
    assert "step-000004/withdrawn.json" in objects(bucket)
    with pytest.raises(ConfigError, match="sent twice"):
        dp.read(url, 4).table()


def test_a_table_that_goes_is_not_copied_first(
    tmp_path: Path, bucket: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket is named after the only step was published, and that step is withdrawn before a run."""
    config = project(tmp_path, bucket)
    with no_bucket_yet(config):
        run(config, 1)
    put, real = [], Bucket._put

    def noted(self: Bucket, place: Any, content: Any) -> None:
        put.append(str(place))
        real(self, place, content)

    monkeypatch.setattr(Bucket, "_put", noted)
    withdraw(config, 1, "too early")
    assert any(name.endswith("step-000001/manifest.json") for name in put)
    assert not any("table" in name for name in put)
    assert "step-000001/withdrawn.json" in objects(bucket)
    run(config, 1)  # brings what explains the folder
    assert objects(bucket) == files(tmp_path)


def test_readers_see_whole_steps_wherever_the_writing_stops(
    tmp_path: Path, bucket: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket is away from each write on in turn. What a reader is told of by the catalogue, it can read; the next
    run goes on."""
    config = project(tmp_path, bucket)
    write, seen, stops = ObjectPath.write, 0, 0
    url = f"{bucket[0]}/shop{bucket[1]}"
    for at in range(1, 40):
        seen = 0

        def fail(self: ObjectPath, buffer: Any, at: int = at) -> None:
            nonlocal seen
            seen += 1
            if seen >= at:
                # As a server does that takes a part of it.
                raise OSError("AWS Error: no")
            write(self, buffer)

        with monkeypatch.context() as patch:
            patch.setattr(ObjectPath, "write", fail)
            # An opening puts off a bucket that does not answer, and a run with no further step ends so.
            with contextlib.suppress(StoreError):
                run(config, 3)
        if seen < at:
            break
        stops += 1
        if (root(bucket) / "signature.json").exists():
            release = dp.read(url, key=Signer(tmp_path / "key").public)
            for step in release.steps:
                assert release.table(step).num_rows >= 0
    assert stops >= 3
    assert objects(bucket) == files(tmp_path)
    assert dp.read(url, key=Signer(tmp_path / "key").public).steps == (1, 2, 3)
    assert check_signed(signed_folder(root(bucket), Signer(tmp_path / "key").public)) > 9
    (root(bucket) / "step-000002/table.parquet").write(arrow_input(b"another").read_buffer())
    with pytest.raises(StoreDamagedError, match=r"step-000002/table\.parquet: the file differs"):
        check_signed(signed_folder(root(bucket), Signer(tmp_path / "key").public))


def test_what_was_left_of_a_step_is_replaced_and_what_was_published_is_not(
    tmp_path: Path, bucket: Place
) -> None:
    place = root(bucket)
    sink = Publisher(tmp_path / "releases", beside=Bucket(f"{bucket[0]}/shop{bucket[1]}"))
    large = tmp_path / "large"
    large.write_bytes(b"rows" * 1000)
    staged = StagedFile(hashlib.sha256(large.read_bytes()).hexdigest(), 4000, large)
    release = {"table.parquet": staged, "manifest.json": b"{}"}
    (place / "step-000001/table.parquet").write(arrow_input(b"half").read_buffer())
    assert sink.published("aa") == {}
    for target in (*sink.targets, *sink.targets):
        target.put(StepFiles.of(1, release))
    assert (place / "step-000001/table.parquet").read_bytes() == large.read_bytes()
    (place / "step-000001/table.parquet").write(arrow_input(b"another").read_buffer())
    with pytest.raises(StoreDamagedError, match=r"table\.parquet differ"):
        sink.targets[1].put(StepFiles.of(1, release))
    hashes = {"table.parquet": staged.sha256}
    assert sink.compared({1: hashes}, deep=False) == {(1, "table.parquet"): "changed"}
    catalogue = {"format": 1, "part_steps": 100, "closed_parts": 0, "stream_id": "bb", "steps": []}
    (place / "catalogue.json").write(arrow_input(json.dumps(catalogue).encode()).read_buffer())
    with pytest.raises(StoreDamagedError, match="another stream"):
        sink.published("aa")


def test_a_store_that_is_away_loses_nothing(tmp_path: Path, bucket: Place) -> None:
    nobody = "?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    with pytest.raises(StoreError, match="cannot be reached"):
        run(project(tmp_path, ("s3://b", nobody)), 1)
    shutil.rmtree(tmp_path / "data")
    run(project(tmp_path, bucket), 1)
    assert objects(bucket) == files(tmp_path)
    with pytest.raises(StoreError, match="cannot be reached"):
        dp.read(f"s3://b/shop{nobody}")
    with pytest.raises(ConfigError, match="no releases found"):
        dp.read(f"{bucket[0]}/elsewhere{bucket[1]}")
