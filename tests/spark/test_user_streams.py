"""Streams whose counters of users are files: whole lives, damage, another key, and a driver that stops anywhere."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fault_harness import faulty, full_disk, in_child, kill
from local_frames import LocalFrame, LocalSession
from spark_cases import EVERY_CALL, stops
from toy_stream import SCHEMA, ToyPlan

from dpstream.core.errors import ConfigError, DataError, StoreLockedError
from dpstream.core.privacy import Randomness, User
from dpstream.spark import batch, passes
from dpstream.stream import Batch, StateKey, Stream, open_stream
from dpstream.stream.inspection import check_store
from dpstream.stream.store.archive import export_store
from dpstream.stream.store.upkeep import rekey_store

pytest.importorskip("pyspark", reason="PySpark is not installed (make spark)")
pytest.importorskip("cryptography")
BOUND, STEPS = 3, 3


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SHARDS", 4)


def start(home: Path, **options: Any) -> Stream:
    plan = ToyPlan(unit=User(BOUND))  # type: ignore[arg-type]
    return open_stream(plan, SCHEMA, home / "state", randomness=Randomness.seeded(1), **options)


def rows_of(step: int, rows: int = 60) -> pa.Table:
    """More events than there is room for, of users that come back."""
    generator = np.random.default_rng(step)
    zips = np.array(["94102", "94103", "94110"])[generator.integers(0, 3, rows)]
    who = generator.integers(0, 20, rows)
    columns = {"zip": zips, "paid": [True] * rows, "rent": [1] * rows, "who": [f"u{one}" for one in who]}
    return pa.table(columns)


def in_spark(step: int, rows: int = 60) -> Any:
    session = LocalSession(tasks=2)
    table = rows_of(step, rows)
    gone = LocalFrame.of(session, table.slice(0, rows // 6), 2)
    return batch(LocalFrame.of(session, table, 3), gone, users="who")


def in_process(step: int) -> Batch:
    table = rows_of(step)
    return Batch(table, table.slice(0, 10), users="who")


def run_all(home: Path, given: Callable[[int], Any] = in_spark, steps: int = STEPS, **options: Any) -> None:
    for step in range(1, steps + 1):
        with start(home, **options) as stream:
            stream.step(given(step), f"b{step}")


def content(home: Path, **options: Any) -> tuple[list[int], Counter[int], int]:
    """True counts, how many users have how many events, and how many were left out."""
    from dpstream.core.tables.counter_files import read_shard

    with start(home, **options) as stream:
        store, counts = stream._store, Counter[int]()
        if (home / "state" / "users").exists():
            folder, shards = store.counter_files()
            assert shards is not None
            for files in shards.files.values():
                newest: dict[tuple[int, ...], int] = {}
                for ids, events in read_shard(folder, files).parts:
                    newest |= dict(zip(map(tuple, ids.tolist()), events.tolist(), strict=True))
                counts.update(newest.values())
            assert {path.name for path in folder.iterdir()} == {file.name for file in shards.all_files()}
        else:
            db = sqlite3.connect(home / "state" / "stream.sqlite")
            counts.update(
                int.from_bytes(events, "little") for (events,) in db.execute("SELECT value FROM users")
            )
            db.close()
        return stream._stored_state().true.tolist(), counts, stream.dropped_events


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[str], Path]:
    """New streams with one key: which events are chosen depends on it."""
    (tmp_path / "first").mkdir()
    start(tmp_path / "first").close()

    def make(name: str) -> Path:
        shutil.copytree(tmp_path / "first" / "state", tmp_path / name / "state")
        (tmp_path / name / "state").chmod(0o700)
        return tmp_path / name

    return make


def test_a_life_in_spark_is_that_of_frames(fresh: Callable[[str], Path]) -> None:
    plain, spark = fresh("plain"), fresh("spark")
    run_all(plain, in_process)
    run_all(spark)
    assert content(spark) == content(plain)
    assert content(spark)[1][BOUND] > 0
    with start(spark) as stream:  # a repetition is known, and other users are other records
        assert stream.step(in_spark(3), "b3").step == 3
        assert stream.last_step == STEPS
    assert check_store(spark / "state", None).problems == ()


def test_a_stream_keeps_its_counters_where_they_began(tmp_path: Path) -> None:
    for name, first, second, words in (
        ("rows", in_process, in_spark, "are in its store"),
        ("files", in_spark, in_process, "are files, which Spark's executors"),
    ):
        (tmp_path / name).mkdir()
        with start(tmp_path / name) as stream:
            stream.step(first(1), "b1")
            with pytest.raises(ConfigError, match=words):
                stream.step(second(2), "b2")
            assert stream.last_step == 1
            stream.step(first(2), "b2")  # nothing was reserved for the other one
    with pytest.raises(ConfigError, match="files beside the store, which an archive does not hold"):
        export_store(tmp_path / "files" / "state", tmp_path / "out.dpstore")


def test_a_step_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a step that stopped are never read, and the next one removes them."""
    with start(tmp_path) as stream:
        stream.step(in_spark(1), "b1")
        folder, _ = stream._store.counter_files()
        before = set(folder.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(passes, "missing_files", lambda *_: ["one"])
            with pytest.raises(ConfigError, match="does not see"):
                stream.step(in_spark(2), "b2")
        assert set(folder.iterdir()) > before
        nobody = rows_of(2).drop_columns(["who"]).append_column("who", pa.array([""] * 60))
        with pytest.raises(DataError, match="without a user id"):
            stream.step(batch(LocalFrame.of(LocalSession(), nobody, 1), users="who"), "b2")
        stream.step(in_spark(3), "b2")
    assert check_store(tmp_path / "state", None).problems == ()
    content(tmp_path)


def test_another_key_needs_no_other_files(tmp_path: Path) -> None:
    """The files' keys are in the row, which is sealed anew; a new step has a new key."""
    old, new = StateKey.generate(), StateKey.generate()
    with start(tmp_path) as stream:
        stream.step(in_spark(1), "b1")
    before = content(tmp_path)
    rekey_store(tmp_path / "state", old=None, new=old)
    assert content(tmp_path, key=old) == before
    rekey_store(tmp_path / "state", old=old, new=new)
    with start(tmp_path, key=new) as stream:
        stream.step(in_spark(2), "b2")
        _, shards = stream._store.counter_files()
        assert shards is not None
        assert len({file.key for file in shards.all_files()}) == 2
    data = b"".join(path.read_bytes() for path in (tmp_path / "state").glob("stream.sqlite*"))
    assert not any(file.key in data for file in shards.all_files())


def test_the_folder_may_be_a_link_to_shared_storage(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o700)
    start(tmp_path).close()
    (tmp_path / "state" / "users").symlink_to(tmp_path / "shared")
    with start(tmp_path) as stream:
        stream.step(in_spark(1), "b1")
    assert len(list((tmp_path / "shared").iterdir())) == 1
    (tmp_path / "shared" / "of somebody else").write_text("stays")
    with start(tmp_path) as stream:
        stream.step(in_spark(2), "b2")
    assert (tmp_path / "shared" / "of somebody else").exists()
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "shared").glob("*/*")} == {0o600}


def test_a_copy_of_the_state_takes_no_files_from_under_the_other(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    (tmp_path / "shared").mkdir(mode=0o700)
    start(home).close()
    (home / "state" / "users").symlink_to(tmp_path / "shared")
    with start(home) as stream:
        stream.step(in_spark(1), "b1")
    shutil.copytree(home, copy, symlinks=True)
    with start(home) as stream:
        before = sorted((tmp_path / "shared").rglob("*"))
        with pytest.raises(StoreLockedError, match="a copy of this state is open"):
            start(copy)
        assert sorted((tmp_path / "shared").rglob("*")) == before
        stream.step(in_spark(2), "b2")


@pytest.mark.parametrize(("fault", "stride"), [(kill, 3), (full_disk, 7)], ids=["kill", "full disk"])
def test_a_driver_or_task_that_stops_anywhere_counts_nothing_twice_and_loses_nothing(
    fresh: Callable[[str], Path], fault: Any, stride: int
) -> None:
    """Stopped before every commit, rename, removal and fsync of a folder, and every third write and fsync of a file (a
    full disk: every seventh call), those of the executors included."""
    calm = fresh("calm")
    with faulty(None, fault) as calls:
        run_all(calm, steps=2)
    expected = content(calm)
    assert {"commit", "write", "sync_file", "sync_directory", "unlink"} <= set(calls)
    for at in stops(calls, stride) if fault is kill or EVERY_CALL else range(1, len(calls) + 1, stride):
        home = fresh(str(at))

        def stopped(home: Path = home, at: int = at) -> None:
            with faulty(at, fault):
                run_all(home, steps=2)

        status = in_child(stopped)
        assert status == -signal.SIGKILL if fault is kill else status != 0
        assert in_child(lambda home=home: run_all(home, steps=2)) == 0
        assert content(home) == expected
        shutil.rmtree(home)
