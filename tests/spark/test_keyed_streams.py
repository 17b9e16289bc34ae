"""Streams whose present records are files: lives beside those of one process, and a driver that stops anywhere."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fault_harness import faulty, in_child, kill
from local_frames import LocalFrame, LocalSession
from spark_cases import stops
from toy_keyed import KeyedPlan, batch, start

from dpstream.core.errors import ConfigError, DataError, StepError, StoreDamagedError
from dpstream.core.privacy import Randomness, Record
from dpstream.core.tables import KeyedBatch, PresentTable, Workload
from dpstream.core.tables.counter_files import read_present_shard
from dpstream.families.census import Census
from dpstream.io.sources import UnreadableError
from dpstream.spark import keyed_batch, passes
from dpstream.spark.passes import SparkPresent
from dpstream.spark.sessions import gone
from dpstream.stream import StateKey, Stream
from dpstream.stream.inspection import check_store
from dpstream.stream.store.archive import export_store
from dpstream.stream.store.upkeep import rekey_store

pytest.importorskip("pyspark", reason="PySpark is not installed (make spark)")
pytest.importorskip("cryptography")
STEPS = 3


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SHARDS", 4)


def in_spark(step: int) -> Any:
    """The events of ``batch``, in any order, with a column that says theirs."""
    given = batch(step)
    rows = pa.table(given.events)
    rows = rows.append_column("at", pa.array(range(len(rows)), pa.int64()))
    mixed = rows.take(pa.array(np.random.default_rng(step).permutation(len(rows))))
    frame = LocalFrame.of(LocalSession(tasks=2), mixed, 3)
    return keyed_batch(frame, "id", operation="op", order="at", rules=given.rules)


def run(home: Path, given: Callable[[int], Any] = in_spark, steps: int = STEPS, **options: Any) -> None:
    """Each step in a process of its own, as it were, with the noise of that step."""
    for step in range(1, steps + 1):
        with start(home, randomness=Randomness.seeded(step), **options) as stream:
            stream.step(given(step), f"b{step}")


def present(stream: Stream) -> PresentTable:
    """The records in the files."""
    domain = stream.plan.domain
    folder, shards = stream._store.present_files()
    assert shards is not None
    assert {path.name for path in folder.iterdir()} == {file.name for file in shards.all_files()}
    tables = [PresentTable.empty(domain)]
    tables += [read_present_shard(folder, files, domain)[0] for files in shards.files.values()]
    keys, first, codes = (
        np.concatenate([getattr(one, name) for one in tables]) for name in ("keys", "first", "codes")
    )
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    return PresentTable(domain, keys[order], first[order], codes[order])


def content(home: Path, **options: Any) -> tuple[Any, ...]:
    """The records by their keys, and what the mechanism saw last."""
    with start(home, **options) as stream:
        files = (home / "state" / "users").exists()
        table = present(stream) if files else stream._store.present(stream.plan.domain)
        state = stream.plan.pack_state(stream._stored_state())
        saw = {name: array.tolist() for name, array in state.arrays.items()}
        return table.keys.tolist(), table.first.tolist(), table.codes.tolist(), saw


def released(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.glob("releases/**/*"))
        if path.is_file() and path.name != ".head.json"  # the log behind it has the times of its entries
    }


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[..., Path]:
    """New streams with one id and one key, so that hashes and manifests are the same."""

    def make(name: str, **options: Any) -> Path:
        first = tmp_path / "first"
        if not first.exists():
            first.mkdir()
            start(first, **options).close()
        shutil.copytree(first, tmp_path / name)
        (tmp_path / name / "state").chmod(0o700)
        return tmp_path / name

    return make


CENSUS = Census(Workload.all_k_way(KeyedPlan().domain, 2), turnover=2, levels=2, iterations=2).calibrate(
    epsilon=20, horizon=6
)


@pytest.mark.parametrize("plan", [KeyedPlan(), CENSUS, None], ids=["toy", "census", "key that ends"])
def test_a_life_in_spark_is_that_of_one_process(fresh: Callable[..., Path], plan: Any) -> None:
    """Manifests, tables, state, records: the same bytes for the same noise. Repetitions are known."""
    final = plan is None
    plan = plan or KeyedPlan(unit=Record(returns="refuse"))
    steps = 1 if final else 5
    plain, spark = fresh("plain", plan=plan), fresh("spark", plan=plan)
    run(plain, batch, steps, plan=plan)
    run(spark, in_spark, steps, plan=plan)
    assert content(spark, plan=plan) == content(plain, plan=plan)
    assert released(spark) == released(plain)
    assert len(released(plain)) > steps
    with start(spark, plan=plan) as stream:
        assert stream.step(in_spark(steps), f"b{steps}").step == steps
        with pytest.raises(StepError, match="other records"):
            stream.step(in_spark(steps + 1), f"b{steps}")
        if final:
            with pytest.raises(DataError, match="a key comes back after it was absent"):
                [stream.step(in_spark(step), f"b{step}") for step in range(2, 8)]
    assert check_store(spark / "state", None).problems == ()


def test_a_stream_keeps_its_records_where_they_began(tmp_path: Path) -> None:
    for name, first, second, words in (
        ("rows", batch, in_spark, "are in its store"),
        ("files", in_spark, batch, "are files, which Spark's executors"),
    ):
        (tmp_path / name).mkdir()
        with start(tmp_path / name) as stream:
            stream.step(first(1), "b1")
            with pytest.raises(ConfigError, match=words):
                stream.step(second(2), "b2")
            assert stream.last_step == 1
            stream.step(first(2), "b2")  # nothing was reserved for the other one
    with pytest.raises(ConfigError, match="files beside the store, which an archive does not hold"):
        export_store(tmp_path / "files" / "state", tmp_path / "copy.dpstore")


def test_refused_events_leave_nothing(tmp_path: Path) -> None:
    tmp_path.joinpath("home").mkdir()
    strict = KeyedBatch(batch(2).events, "id", "op")  # has deletes of keys that are not there
    with start(tmp_path / "home") as stream:
        stream.step(in_spark(1), "b1")
        before = present(stream)
        given = in_spark(2)
        with pytest.raises(DataError, match="has a key that is not there"):
            stream.step(type(given)(given.frame, strict, given.words, given.order), "b2")
        assert stream._store.reservation() is None
        stream.step(in_spark(2), "b2")
        assert present(stream).keys.tolist() != before.keys.tolist()


def test_damage_another_key_and_a_lost_file(tmp_path: Path) -> None:
    home, secret = tmp_path / "home", StateKey.generate()
    home.mkdir()
    run(home, steps=2)
    expected = content(home)
    _, shards = start_files(home)
    path = home / "state" / "users"
    file = next(path.rglob(shards.all_files()[0].name))
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert any("was changed" in one for one in check_store(home / "state", None).problems)
    with pytest.raises(StoreDamagedError, match="was changed"):
        start(home)
    file.unlink()
    with pytest.raises(StoreDamagedError, match="missing, or was cut short"):
        start(home)
    file.write_bytes(data)
    file.chmod(0o600)
    assert content(home) == expected
    rekey_store(home / "state", old=None, new=secret)
    assert content(home, key=secret) == expected


def start_files(home: Path) -> Any:
    with start(home) as stream:
        return stream._store.present_files()


def test_a_cluster_that_is_lost_while_it_counts_leaves_nothing_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A census counts before it draws anything; the step can be taken again."""
    (tmp_path / "home").mkdir()
    failed = []
    real = SparkPresent.count

    def lost(*given: Any) -> Any:
        failed.append(given)
        raise gone("x")

    with start(tmp_path / "home", plan=CENSUS) as stream:
        for step in range(1, 6):  # each is a census
            monkeypatch.setattr(SparkPresent, "count", lost)
            with pytest.raises(UnreadableError, match="the Spark session is gone"):
                stream.step(in_spark(step), f"b{step}")
            assert stream._undecided is None
            assert stream._store.reservation() is None
            monkeypatch.setattr(SparkPresent, "count", real)
            stream.step(in_spark(step), f"b{step}")
    assert len(failed) == 5


def test_a_driver_or_task_that_stops_anywhere_changes_nothing_twice_and_loses_nothing(
    fresh: Callable[..., Path],
) -> None:
    """Killed before every (or every third) commit, write, fsync and rename, those of the executors included."""
    calm = fresh("calm", publish=False)
    with faulty(None, kill) as calls:
        run(calm, steps=2, publish=False)
    expected = content(calm, publish=False)
    assert {"commit", "write", "sync_file", "sync_directory", "unlink"} <= set(calls)
    for at in stops(calls, 4):
        home = fresh(str(at))

        def stopped(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                run(home, steps=2, publish=False)

        assert in_child(stopped) == -signal.SIGKILL
        assert in_child(lambda home=home: run(home, steps=2, publish=False)) == 0
        assert content(home, publish=False) == expected
        shutil.rmtree(home)
