"""The staging table of a structured streaming query: each micro-batch once, whatever is repeated or lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fault_harness import faulty, full_disk, in_child, kill, lying_commit
from spark_cases import table

from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.io.sources import UnreadableError
from dpstream.spark import sink
from dpstream.spark.staging import Staged, open_staged


def run(spark: Any, folder: Path) -> None:
    """A query over a folder of files, one file a batch, until all are read."""
    stream = spark.readStream.schema("zip string, paid boolean, rent bigint").option("maxFilesPerTrigger", 1)
    frame = stream.parquet(str(folder / "in"))
    query = frame.writeStream.foreachBatch(sink(folder / "staged")).trigger(availableNow=True)
    started = query.option("checkpointLocation", str(folder / "checkpoint")).start()
    started.awaitTermination()


def rows(spark: Any, folder: Path) -> int:
    return int(open_staged(spark, folder / "staged", "x").count())


def test_a_query_is_staged_once_whatever_is_lost(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        pq.write_table(table(10 * number, number), tmp_path / "in" / f"{number}.parquet")
        # Spark takes files by their times, in thousandths of a second.
        os.utime(tmp_path / "in" / f"{number}.parquet", (number, number))
    with pytest.raises(ConfigError, match="staging table missing"):
        open_staged(spark, tmp_path / "staged", "x")
    run(spark, tmp_path)
    assert [one["batch"] for one in Staged(tmp_path / "staged").batches()] == [0, 1]
    assert rows(spark, tmp_path) == 30
    # A crash before Spark noted that batch 1 was done: it comes again, with the same rows.
    kept = tmp_path / "checkpoint" / "commits" / "1"
    for path in (kept, kept.with_name(".1.crc")):
        path.unlink(missing_ok=True)
    run(spark, tmp_path)
    assert rows(spark, tmp_path) == 30
    # A crash before the batch's own file: what was written of it is thrown away, and written again.
    for path in (kept, kept.with_name(".1.crc"), tmp_path / "staged/batches/000000000001.json"):
        path.unlink(missing_ok=True)
    assert rows(spark, tmp_path) == 10
    run(spark, tmp_path)
    assert rows(spark, tmp_path) == 30
    # A lost checkpoint: batch 0 is another one.
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="another checkpoint fed the staging table"):
        run(spark, tmp_path)
    assert rows(spark, tmp_path) == 30


def test_other_rows_gaps_and_damage_are_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter("ab")
    monkeypatch.setattr("dpstream.spark.staging._checkpoint", lambda *_: "one")

    def frame(number: int) -> Any:
        path = tmp_path / f"{next(names)}.parquet"
        pq.write_table(table(number), path)
        return spark.read.parquet(str(path))

    first, other = frame(20), frame(21)
    take = sink(tmp_path / "staged")
    take(first, 0)
    take(first.repartition(3), 0)
    for changed in (other, first.unionAll(first.limit(1))):
        with pytest.raises(StepError, match="a staged batch returns with other rows"):
            take(changed, 0)
    with pytest.raises(StepError, match="the staging table ends before batch 1"):
        take(first, 2)
    take(first.limit(0), 1)
    assert rows(spark, tmp_path) == 20
    file = tmp_path / "staged/batches/000000000000.json"
    entry = json.loads(file.read_text(encoding="utf-8"))
    next(iter((tmp_path / "staged/rows/000000000000").glob("*.parquet"))).unlink()
    with pytest.raises(DataError, match="missing or damaged"):
        rows(spark, tmp_path)
    assert entry["checkpoint"] == "one"


def test_a_frame_outside_a_query_is_no_batch(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a batch of a streaming query"):
        sink(tmp_path / "staged")(spark.range(1), 0)
    (tmp_path / "empty" / "batches").mkdir(parents=True)
    with pytest.raises(UnreadableError, match="nothing is staged yet"):
        open_staged(spark, tmp_path / "empty", "x")


class File:
    """A micro-batch that a driver can write without Spark."""

    def __init__(self, rows: int) -> None:
        self.rows, self.write = rows, self

    def parquet(self, folder: str) -> None:
        Path(folder).mkdir()
        pq.write_table(table(self.rows), Path(folder) / "part-0.parquet")


@pytest.mark.parametrize("fault", [kill, full_disk, lying_commit])
def test_a_driver_that_stops_at_any_durability_call_stages_each_batch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    """Two batches; the driver dies before (or a call fails at) its N-th durability call, and Spark sends the batches
    that it does not know to be done again."""
    pytest.importorskip("pyspark")
    repeated: list[int] = []
    monkeypatch.setattr("dpstream.spark.staging._checkpoint", lambda *_: "one")
    monkeypatch.setattr(Staged, "_compare", lambda _, frame, entry, where: repeated.append(entry["batch"]))

    def life(folder: Path, at: int | None) -> int:
        with faulty(at, fault) as calls:
            for batch in (0, 1):
                Staged(folder).take(File(3 + batch), batch)
        return len(calls)

    total = life(tmp_path / "whole", None)
    assert total > 10
    for at in range(1, total + 1):
        folder = tmp_path / str(at)
        in_child(lambda folder=folder, at=at: life(folder, at))  # type: ignore[misc]
        staged = Staged(folder)
        before = [one["batch"] for one in staged.batches()]
        repeated.clear()
        life(folder, None)
        assert repeated == before
        assert [one["batch"] for one in staged.batches()] == [0, 1]
        assert [pq.read_table(path).num_rows for path in staged.paths()] == [3, 4]
