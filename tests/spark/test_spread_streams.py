"""Streams whose counters of users or present records are files: lives beside those of one process, damage, another
key, and a driver that stops anywhere."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import toy_keyed
import toy_stream
from fault_harness import faulty, full_disk, in_child, kill
from local_frames import LocalFrame, LocalSession
from spark_cases import EVERY_CALL, stops
from toy_keyed import KeyedPlan
from toy_stream import ToyPlan

from dpstream.core.errors import ConfigError, DataError, StepError, StoreDamagedError, StoreLockedError
from dpstream.core.privacy import Randomness, Record, StepPeriods, User
from dpstream.core.tables import KeyedBatch, Workload
from dpstream.core.tables.counter_files import read_present_shard, read_shard
from dpstream.families.census import Census
from dpstream.io.sources import UnreadableError
from dpstream.spark import batch, keyed_batch, passes
from dpstream.spark.passes import SparkPresent
from dpstream.spark.sessions import gone
from dpstream.stream import Batch, StateKey, Stream
from dpstream.stream.inspection import check_store
from dpstream.stream.store.archive import export_store
from dpstream.stream.store.upkeep import rekey_store

pytest.importorskip("pyspark", reason="PySpark is not installed (make spark)")
pytest.importorskip("cryptography")
BOUND = 3


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SHARDS", 4)


@dataclass(frozen=True)
class Kind:
    """What a step is given in either engine, and what a stream keeps of it."""

    plan: Any
    open: Callable[..., Stream]
    in_process: Callable[[int], Any]
    in_spark: Callable[[int], Any]
    kept: Callable[[Path, Stream], Any]

    def start(self, home: Path, **options: Any) -> Stream:
        return self.open(home, **{"plan": self.plan, **options})

    def run(self, home: Path, given: Callable[[int], Any], steps: int = 3, **options: Any) -> None:
        """Each step in a process of its own, as it were, with the noise of that step."""
        for step in range(1, steps + 1):
            with self.start(home, randomness=Randomness.seeded(step), **options) as stream:
                stream.step(given(step), f"b{step}")

    def content(self, home: Path, **options: Any) -> Any:
        """What is kept, beside what the mechanism saw last."""
        with self.start(home, **options) as stream:
            if (home / "state" / "users").exists():
                folder, shards = files_of(stream)
                assert {path.name for path in folder.iterdir()} == {file.name for file in shards.all_files()}
            state = stream.plan.pack_state(stream._stored_state())
            saw = {name: array.tolist() for name, array in state.arrays.items()}
            return self.kept(home, stream), saw, stream.dropped_events


def files_of(stream: Stream) -> tuple[Path, Any]:
    store = stream._store
    present = stream.plan.reads == "present"
    folder, shards = store.present_files() if present else store.counter_files()
    assert shards is not None
    return folder, shards


def rows_of(step: int) -> pa.Table:
    """More events than there is room for, of users that come back."""
    generator = np.random.default_rng(step)
    zips = np.array(["94102", "94103", "94110"])[generator.integers(0, 3, 60)]
    who = generator.integers(0, 20, 60)
    columns = {"zip": zips, "paid": [True] * 60, "rent": [1] * 60, "who": [f"u{one}" for one in who]}
    return pa.table(columns)


def users_in_spark(step: int) -> Any:
    session, table = LocalSession(tasks=2), rows_of(step)
    gone = LocalFrame.of(session, table.slice(0, 10), 2)
    return batch(LocalFrame.of(session, table, 3), gone, users="who")


def users_in_process(step: int) -> Batch:
    table = rows_of(step)
    return Batch(table, table.slice(0, 10), users="who")


def counters(home: Path, stream: Stream) -> Counter[int]:
    """How many users have how many events."""
    counts = Counter[int]()
    if (home / "state" / "users").exists():
        folder, shards = files_of(stream)
        for files in shards.files.values():
            newest: dict[tuple[int, ...], int] = {}
            for ids, events in read_shard(folder, files).parts:
                newest |= dict(zip(map(tuple, ids.tolist()), events.tolist(), strict=True))
            counts.update(newest.values())
    else:
        db = sqlite3.connect(home / "state" / "stream.sqlite")
        counts.update(int.from_bytes(n, "little") for (n,) in db.execute("SELECT value FROM users"))
        db.close()
    return counts


def records_in_spark(step: int) -> Any:
    """The events of ``batch``, in any order, with a column that says theirs."""
    given = toy_keyed.batch(step)
    rows = pa.table(given.events)
    rows = rows.append_column("at", pa.array(range(len(rows)), pa.int64()))
    mixed = rows.take(pa.array(np.random.default_rng(step).permutation(len(rows))))
    frame = LocalFrame.of(LocalSession(tasks=2), mixed, 3)
    return keyed_batch(frame, "id", operation="op", order="at", rules=given.rules)


def present(home: Path, stream: Stream) -> list[Any]:
    """The records by their keys."""
    if (home / "state" / "users").exists():
        folder, shards = files_of(stream)
        tables = [read_present_shard(folder, one, stream.plan.domain)[0] for one in shards.files.values()]
    else:
        tables = [stream._store.present(stream._schema)]
    rows = (
        zip(*(getattr(one, name).tolist() for name in ("keys", "first", "codes")), strict=True)
        for one in tables
    )
    return sorted(row for found in rows for row in found)


USERS = Kind(ToyPlan(unit=User(BOUND)), toy_stream.start, users_in_process, users_in_spark, counters)  # type: ignore[arg-type]
PER = ToyPlan(unit=User(BOUND, StepPeriods(2)))  # type: ignore[arg-type]
RECORDS = Kind(KeyedPlan(), toy_keyed.start, toy_keyed.batch, records_in_spark, present)
CENSUS = Census(Workload.all_k_way(KeyedPlan().domain, 2), turnover=2, iterations=2).calibrate(
    epsilon=20, horizon=6
)
ONCE = KeyedPlan(unit=Record(returns="refuse"))
KINDS = pytest.mark.parametrize("kind", [USERS, RECORDS], ids=["users", "records"])


def released(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.glob("releases/**/*"))
        if path.is_file() and path.name != ".head.json"  # the log behind it has the times of its entries
    }


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[..., Path]:
    """New streams with one id and one key, so that choices, hashes and manifests are the same."""

    def make(kind: Kind, name: str, **options: Any) -> Path:
        first = tmp_path / "first"
        if not first.exists():
            first.mkdir()
            kind.start(first, **options).close()
        shutil.copytree(first, tmp_path / name)
        (tmp_path / name / "state").chmod(0o700)
        return tmp_path / name

    return make


@pytest.mark.parametrize(
    ("kind", "plan", "steps"),
    [
        (USERS, USERS.plan, 3),
        (USERS, PER, 3),
        (RECORDS, RECORDS.plan, 5),
        (RECORDS, CENSUS, 5),
        (RECORDS, ONCE, 1),
    ],
    ids=["users", "users per period", "records", "census", "key that ends"],
)
def test_a_life_in_spark_is_that_of_one_process(
    fresh: Callable[..., Path], kind: Kind, plan: Any, steps: int
) -> None:
    """Manifests, tables, state, counters, records: the same bytes for the same noise. Repetitions are known."""
    plain, spark = fresh(kind, "plain", plan=plan), fresh(kind, "spark", plan=plan)
    kind.run(plain, kind.in_process, steps, plan=plan)
    kind.run(spark, kind.in_spark, steps, plan=plan)
    assert kind.content(spark, plan=plan) == kind.content(plain, plan=plan)
    assert released(spark) == released(plain)
    assert len(released(plain)) > steps
    assert kind is RECORDS or plan is PER or kind.content(spark, plan=plan)[0][BOUND] > 0
    with kind.start(spark, plan=plan) as stream:
        assert stream.step(kind.in_spark(steps), f"b{steps}").step == stream.last_step == steps
        with pytest.raises(StepError, match="other records"):
            stream.step(kind.in_spark(steps + 1), f"b{steps}")
        if plan is ONCE:
            with pytest.raises(DataError, match="a key returns after an absence, despite returns ="):
                [stream.step(kind.in_spark(step), f"b{step}") for step in range(2, 8)]
    assert check_store(spark / "state", None).problems == ()


@KINDS
def test_a_stream_keeps_its_files_or_rows_where_they_began(tmp_path: Path, kind: Kind) -> None:
    for name, first, second, words in (
        ("rows", kind.in_process, kind.in_spark, "are in the store"),
        ("files", kind.in_spark, kind.in_process, "are files of Spark's executors"),
    ):
        (tmp_path / name).mkdir()
        with kind.start(tmp_path / name) as stream:
            stream.step(first(1), "b1")
            with pytest.raises(ConfigError, match=words):
                stream.step(second(2), "b2")
            assert stream.last_step == 1
            stream.step(first(2), "b2")  # nothing was reserved for the other one
    with pytest.raises(ConfigError, match="beside the store"):
        export_store(tmp_path / "files" / "state", tmp_path / "copy.dpstore")


@KINDS
def test_a_step_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """Files of a step that stopped are never read, and the next one removes them."""
    if kind is USERS:
        nobody = rows_of(2).drop_columns(["who"]).append_column("who", pa.array([""] * 60))
        bad = batch(LocalFrame.of(LocalSession(), nobody, 1), users="who")
    else:
        given, strict = kind.in_spark(2), KeyedBatch(toy_keyed.batch(2).events, "id", "op")
        bad = type(given)(given.frame, strict, given.words, given.order)
    with kind.start(tmp_path) as stream:
        stream.step(kind.in_spark(1), "b1")
        folder, _ = files_of(stream)
        before, kept = set(folder.iterdir()), kind.kept(tmp_path, stream)
        with monkeypatch.context() as patch:
            patch.setattr(passes, "missing_files", lambda *_: ["one"])
            with pytest.raises(ConfigError, match="the driver cannot see the folder where executors write"):
                stream.step(kind.in_spark(2), "b2")
        assert set(folder.iterdir()) > before
        with pytest.raises(DataError, match=r"lacks a user id|an unknown key"):
            stream.step(bad, "b2")
        assert stream._store.reservation() is None
        assert kind.kept(tmp_path, stream) == kept
        stream.step(kind.in_spark(3), "b2")
    assert check_store(tmp_path / "state", None).problems == ()
    assert kind.content(tmp_path)[0] != kept


@KINDS
def test_damage_and_a_lost_file_are_found(tmp_path: Path, kind: Kind) -> None:
    kind.run(tmp_path, kind.in_spark, 2)
    expected = kind.content(tmp_path)
    with kind.start(tmp_path) as stream:
        folder, shards = files_of(stream)
    file = folder / shards.all_files()[0].name
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert any("was changed" in one for one in check_store(tmp_path / "state", None).problems)
    with pytest.raises(StoreDamagedError, match="was changed"):
        kind.start(tmp_path)
    file.unlink()
    with pytest.raises(StoreDamagedError, match="a file of users is missing or cut short"):
        kind.start(tmp_path)
    file.write_bytes(data)
    file.chmod(0o600)
    assert kind.content(tmp_path) == expected


@KINDS
def test_another_key_needs_no_other_files(tmp_path: Path, kind: Kind) -> None:
    """The files' keys are in the row, which is sealed anew; a new step has a new key."""
    old, new = StateKey.generate(), StateKey.generate()
    kind.run(tmp_path, kind.in_spark, 1)
    before = kind.content(tmp_path)
    rekey_store(tmp_path / "state", old=None, new=old)
    assert kind.content(tmp_path, key=old) == before
    rekey_store(tmp_path / "state", old=old, new=new)
    with kind.start(tmp_path, key=new) as stream:
        first = {file.key for file in files_of(stream)[1].all_files()}
        stream.step(kind.in_spark(2), "b2")
        keys = {file.key for file in files_of(stream)[1].all_files()}
    assert len(first) == 1
    assert keys - first
    data = b"".join(path.read_bytes() for path in (tmp_path / "state").glob("stream.sqlite*"))
    assert not any(key in data for key in keys)


def test_the_folder_may_be_a_link_to_shared_storage(tmp_path: Path) -> None:
    """And a copy of the state takes no files from under the other."""
    home, copy, shared = tmp_path / "home", tmp_path / "copy", tmp_path / "shared"
    shared.mkdir(mode=0o700)
    USERS.start(home).close()
    (home / "state" / "users").symlink_to(shared)
    USERS.run(home, USERS.in_spark, 1)
    assert len(list(shared.iterdir())) == 1
    (shared / "of somebody else").write_text("stays")
    shutil.copytree(home, copy, symlinks=True)
    with USERS.start(home) as stream:
        before = sorted(shared.rglob("*"))
        with pytest.raises(StoreLockedError, match="a copy of this state uses the same files"):
            USERS.start(copy)
        assert sorted(shared.rglob("*")) == before
        stream.step(USERS.in_spark(2), "b2")
    assert (shared / "of somebody else").exists()
    assert {path.stat().st_mode & 0o777 for path in shared.glob("*/*")} == {0o600}


def test_a_cluster_that_is_lost_while_it_counts_leaves_nothing_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A census counts before it draws anything; the step can be taken again."""

    def lost(*_: Any) -> Any:
        raise gone("x")

    with RECORDS.start(tmp_path, plan=CENSUS) as stream:
        for step in range(1, 6):  # each is a census
            with monkeypatch.context() as patch:
                patch.setattr(SparkPresent, "count", lost)
                with pytest.raises(UnreadableError, match="the Spark session has ended"):
                    stream.step(RECORDS.in_spark(step), f"b{step}")
            assert stream._undecided is None
            assert stream._store.reservation() is None
            stream.step(RECORDS.in_spark(step), f"b{step}")


@pytest.mark.parametrize(
    ("kind", "fault", "stride"),
    [(USERS, kill, 3), (USERS, full_disk, 7), (RECORDS, kill, 4)],
    ids=["users, kill", "users, full disk", "records, kill"],
)
def test_a_driver_or_task_that_stops_anywhere_counts_nothing_twice_and_loses_nothing(
    fresh: Callable[..., Path], kind: Kind, fault: Any, stride: int
) -> None:
    """Stopped before every commit, rename, removal and fsync of a folder, and every few writes and fsyncs of a file (a
    full disk: every seventh call), those of the executors included."""

    def life(home: Path) -> None:
        kind.run(home, kind.in_spark, 2, publish=False)

    calm = fresh(kind, "calm", publish=False)
    with faulty(None, fault) as calls:
        life(calm)
    expected = kind.content(calm, publish=False)
    assert {"commit", "write", "sync_file", "sync_directory", "unlink"} <= set(calls)
    for at in stops(calls, stride) if fault is kill or EVERY_CALL else range(1, len(calls) + 1, stride):
        home = fresh(kind, str(at))

        def stopped(home: Path = home, at: int = at) -> None:
            with faulty(at, fault):
                life(home)

        status = in_child(stopped)
        assert status == -signal.SIGKILL if fault is kill else status != 0
        assert in_child(lambda home=home: life(home)) == 0
        assert kind.content(home, publish=False) == expected
        shutil.rmtree(home)
