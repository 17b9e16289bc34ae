"""Releases as a table of Spark: the records that one process would have drawn, whole partitions or none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_stream import make
from fault_harness import faults_in, full_disk, kill, lying_commit
from small_configs import rewrite
from spark_cases import EVERY_CALL, SCHEMA, table
from toy_stream import SCHEMA as TOY
from toy_stream import ToyPlan
from toy_stream import batch as toy_batch

import dpstream as dp
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.core.privacy import Randomness
from dpstream.core.tables import Workload
from dpstream.io.sinks import Publisher, read_manifest, read_table
from dpstream.project import Config
from dpstream.spark import release_tables
from dpstream.spark.release_tables import SparkTables
from dpstream.stream import Publishing, Stream, open_stream

PLAN = dp.tabular.DPStabs(Workload.all_k_way(SCHEMA.domain, 1)).calibrate(epsilon=1)
ROWS = 2000
pytestmark = pytest.mark.usefixtures("small_blocks")


def opened(home: Path, *, blocks: int = 20, seed: int | None = 1, **policy: Any) -> Stream:
    sink = Publisher(home / "releases", beside=SparkTables(home / "tables", blocks=blocks))
    return open_stream(
        PLAN,
        SCHEMA,
        home / "state",
        randomness=Randomness.system() if seed is None else Randomness.seeded(seed),
        publish_to=sink,
        publishing=Publishing(**policy),
    )


def in_one_process(home: Path) -> bytes:
    sink = Publisher(home / "releases")
    with open_stream(
        PLAN, SCHEMA, home / "state", randomness=Randomness.seeded(1), publish_to=sink
    ) as stream:
        stream.step(table(ROWS), "1")
    return (home / "releases/step-000001/table.parquet").read_bytes()


def drawn(home: Path, step: int) -> pa.Table:
    parts = sorted((home / f"tables/synthetic/step={step}").glob("part-*.parquet"))
    return pa.concat_tables([pq.ParquetFile(part).read() for part in parts])


def left_behind(home: Path) -> list[str]:
    return [path.name for path in (home / "tables").iterdir() if path.name != "synthetic"]


@pytest.mark.parametrize(("blocks", "parts"), [(100, 1), (20, 3), (1, 50)])
def test_the_same_seed_gives_the_records_of_one_process_however_many_parts(
    tmp_path: Path, here: list[int], blocks: int, parts: int
) -> None:
    """In the same order, block by block; of one part, the same bytes. The driver alone decides which files count."""
    expected = in_one_process(tmp_path / "plain")
    with opened(tmp_path, blocks=blocks) as stream:
        release = stream.step(table(ROWS), "1")
        assert release.sample().equals(drawn(tmp_path, 1))
    assert abs(here[0] - parts) <= parts // 20
    files = sorted((tmp_path / "tables/synthetic/step=1").glob("part-*"))
    assert len(files) == here[0]
    if parts == 1:
        assert files[0].read_bytes() == expected
    assert drawn(tmp_path, 1).equals(read_table(tmp_path / "plain/releases", 1))
    assert left_behind(tmp_path) == []
    folder = {path.name for path in (tmp_path / "releases/step-000001").iterdir()}
    assert folder == {"manifest.json", "measurements.ndjson", "model.json", "table.json"}
    with pytest.raises(ConfigError, match=r"elsewhere .*partition step=1"):
        read_table(tmp_path / "releases", 1)


def test_small_tables_and_kinds_that_only_one_process_draws_are_one_part(tmp_path: Path) -> None:
    """The toy's blocks cannot be sent anywhere; a small table is drawn at once, as ever. No session is needed."""
    for name, rows in (("small", 20), ("toy", 0)):
        home = tmp_path / name
        sink = Publisher(home / "releases", beside=SparkTables(home / "tables", blocks=2))
        plan, schema = (PLAN, SCHEMA) if rows else (ToyPlan(), TOY)
        with open_stream(
            plan,
            schema,
            home / "state",
            randomness=Randomness.seeded(4),
            publish_to=sink,
            publishing=Publishing(max_rows=rows or 100),
        ) as stream:
            release = stream.step(table(50) if rows else toy_batch(1), "1")
            assert drawn(home, 1).equals(release.sample())
        assert [path.name for path in (home / "tables/synthetic/step=1").glob("part*")] == [
            "part-000000.parquet"
        ]


def test_nothing_is_drawn_before_it_may_be_read(
    tmp_path: Path, here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held steps are in the state only; a rejected one is never drawn; a withdrawn one is dropped, and what is old."""
    with opened(tmp_path, approve=True) as stream:
        for name in "123":
            stream.step(table(ROWS), name)
        assert here == []
        assert not (tmp_path / "tables").exists()
        stream.withdraw(1, "a mistake")
        stream.approve([2, 3])
        assert len(here) == 2
        stream.withdraw(3, "another one")
    assert sorted(path.name for path in (tmp_path / "tables/synthetic").iterdir()) == ["step=2"]
    assert left_behind(tmp_path) == []
    assert not (tmp_path / "releases/step-000003/table.json").exists()
    with opened(tmp_path / "kept", keep=1) as stream:
        for name in "12":
            stream.step(table(ROWS), name)
    assert [path.name for path in (tmp_path / "kept/tables/synthetic").iterdir()] == ["step=2"]


def test_a_partition_that_is_gone_is_drawn_again_and_one_that_was_changed_stops_the_stream(
    tmp_path: Path, here: list[int]
) -> None:
    with opened(tmp_path) as stream:
        stream.step(table(ROWS), "1")
    folder = tmp_path / "tables/synthetic/step=1"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shutil.rmtree(folder)
    with opened(tmp_path) as stream:
        assert stream.publish_again() == [1]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "part-000000.parquet").write_bytes(b"x")
    with opened(tmp_path) as stream, pytest.raises(StoreDamagedError, match="differs from the committed"):
        stream.publish_again()
    (folder / "_parts.json").unlink()
    with pytest.raises(StoreDamagedError, match=r"_parts\.json is missing or damaged"):
        opened(tmp_path)
    # Another stream's partition is nobody's to go on with, nor is one of a state that was rolled back.
    (folder / "_parts.json").write_bytes(before["_parts.json"])
    shutil.rmtree(tmp_path / "state")
    shutil.rmtree(tmp_path / "releases")
    with pytest.raises(StoreDamagedError, match=r"another stream|rolled back"):
        opened(tmp_path, seed=7)


def test_a_table_that_cannot_be_drawn_leaves_a_committed_step_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: list[int]
) -> None:
    """No noise is drawn again, and nobody has to decide anything."""
    good = SparkTables._in_executors

    def fails(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SparkTables, "_in_executors", fails)
    with opened(tmp_path, seed=None) as stream, pytest.raises(StoreError, match="No space left"):
        stream.step(table(ROWS), "1")
    monkeypatch.setattr(SparkTables, "_in_executors", lambda *given: good(*given)[:-1])
    # A place that does not answer does not stop the opening, which a withdrawal needs; it stops the next step.
    with opened(tmp_path, seed=None) as stream, pytest.raises(StoreError, match="Spark lost parts of step"):
        stream.step(table(ROWS), "2")
    monkeypatch.setattr(SparkTables, "_in_executors", good)
    with opened(tmp_path, seed=None) as stream:
        manifest = stream.release(1).manifest
        assert stream.last_step == 1
        assert drawn(tmp_path, 1).equals(stream.release(1).sample())
    assert read_manifest(tmp_path / "releases", 1) == manifest


@pytest.mark.parametrize("fault", [kill, full_disk, lying_commit])
def test_a_stop_at_any_durability_call_leaves_a_whole_partition_or_none(
    tmp_path: Path, here: list[int], fault: Any
) -> None:
    """A step, and its withdrawal; then another process, with other noise, goes on."""

    def life(home: Path) -> None:
        with suppress(StoreError), opened(home, seed=1, max_rows=1500) as stream:
            stream.step(table(ROWS), "1")
            stream.withdraw(1, "a mistake")

    calls = slice(1, None, 1 if EVERY_CALL else 4 if fault is kill else 11)
    for home, _ in faults_in(tmp_path, life, fault=fault, calls=calls):
        before = SparkTables(home / "tables").have(stream_id(home))
        for folder in (home / "tables/synthetic").glob("*"):
            told = json.loads((folder / "_parts.json").read_bytes())
            sizes = {path.name: path.stat().st_size for path in folder.glob("part*")}
            assert {one["name"]: one["bytes"] for one in told["parts"]} == sizes
        with opened(home, seed=2, max_rows=1500) as stream:
            assert stream._undecided is None
            gone = stream.last_step == 1 and not stream.is_given(1)
            release = stream.step(table(ROWS), "1")
            assert gone or drawn(home, 1).equals(release.sample())
            there = SparkTables(home / "tables").have(stream_id(home))
            assert there.keys() == (set() if gone else {1})
            assert gone or before.get(1, there[1]) == there[1], "it was drawn from other noise before"
        assert left_behind(home) == []


def stream_id(home: Path) -> str:
    """As the manifest says it; none is published before one is."""
    path = home / "releases/step-000001/manifest.json"
    return str(json.loads(path.read_bytes())["stream_id"]) if path.exists() else ""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('sink = "spark"', 'sink = "spark"\nrecords = "persistent"', "draws each table anew"),
        ('sink = "spark"', 'sink = "spark"\nformat = "csv"', "are Parquet"),
        ('sink = "spark"', 'sink = "spark"\ndatabase = "state/tables"', "lie inside each other"),
        ("columns.zip", "columns.Step", "sink = 'spark' needs the name of column 'Step'"),
        ('sink = "spark"', 'sink = "spark"\ntable = "a/b"', "cannot be used"),
    ],
)
def test_what_a_table_of_spark_cannot_be_is_said_before_anything_starts(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = make(tmp_path, 0, end=2, mechanism='name = "dpstabs"\nworkload = "all-1-way"')
    rewrite(path, 'format = "csv"', 'sink = "spark"', old, new)
    with pytest.raises(ConfigError, match=words):
        Config.load(path).publisher()
    sink = Publisher(tmp_path / "releases", beside=SparkTables(tmp_path / "tables"))
    with pytest.raises(ConfigError, match="records persist; the sink draws anew"):
        open_stream(
            PLAN, SCHEMA, tmp_path / "s", publish_to=sink, publishing=Publishing(records="persistent")
        )


def test_executors_draw_the_table_that_spark_reads(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Spark's own processes, from what is sent to them; a reader of Spark sees the steps as partitions."""
    with opened(tmp_path) as stream:
        first = stream.step(table(ROWS), "1")
        stream.step(table(ROWS), "2")
        assert drawn(tmp_path, 1).equals(first.sample())
        found = spark.read.parquet(str(tmp_path / "tables/synthetic"))
        assert set(found.columns) == {*SCHEMA.names, "step"}
        assert found.where("step = 1").count() == first.rows
        stream.withdraw(1, "a mistake")
        left = spark.read.parquet(str(tmp_path / "tables/synthetic"))
        assert [row.step for row in left.select("step").distinct().collect()] == [2]
    # Executors that cannot write: the step is committed, and waits.
    good: Callable[..., Any] = release_tables.DrawingParts
    monkeypatch.setattr(release_tables, "DrawingParts", lambda version, *rest: good("0.0", *rest))
    with opened(tmp_path) as stream, pytest.raises(StoreError, match="table of step 3 could not be drawn"):
        stream.step(table(ROWS), "3")
    monkeypatch.setattr(release_tables, "DrawingParts", good)
    with opened(tmp_path) as stream:
        assert drawn(tmp_path, 3).num_rows == stream.release(3).rows
