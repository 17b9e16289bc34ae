"""Spark counts and hashes what the in-process engine counts and hashes, however the records are spread."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from spark_cases import CLIQUES, EVERY_CALL, KEY, SCHEMA, SECRET, WANTED, in_process, same, table

import dpstream as dp
from dpstream.core.errors import ConfigError, DataError, LimitError
from dpstream.core.schema import Categorical, Schema
from dpstream.io.sources.operations import Operations
from dpstream.spark import SparkBatch, batch, passes
from dpstream.spark.passes import require_room
from dpstream.spark.sessions import require_protected
from dpstream.spark.tasks import EventColumns

Made = Callable[[Any], Any]
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.mark.parametrize("spread", ["few", "skewed", "most are empty", "no record"])
def test_counts_and_hashes_are_those_in_process(spark: Any, made: Made, spread: str) -> None:
    """Partitions of any size, nulls, undeclared values, deletes; without a row there is no part."""
    rows = {"most are empty": 60, "no record": 0}.get(spread)
    came, went = table(3000 if rows is None else rows), table(400, seed=2) if rows is None else None
    frame = made(came)
    parted = {
        "few": lambda: frame.repartition(3),
        "skewed": lambda: frame.repartitionByRange(4, frame.rent > 1995),
        "most are empty": lambda: frame.repartition(1000 if EVERY_CALL else 60, "rent"),
        "no record": lambda: frame,
    }[spread]()
    given = batch(parted) if went is None else batch(parted, made(went).coalesce(1))
    same(given.grant(WANTED), in_process(came, went))


def test_a_column_of_operations_and_columns_in_another_order(spark: Any, made: Made) -> None:
    import pyarrow as pa

    came, went = table(500), table(300, seed=2)
    words = Operations.parse({"insert": ["c"], "delete": ["d", "x"]})
    op = pa.array(["c"] * 500 + ["d"] * 150 + ["x"] * 150)
    mixed = pa.concat_tables([came, went]).append_column("op", op).select(["op", "rent", "zip", "paid"])
    frame = made(mixed)
    found = SparkBatch(((frame, EventColumns(operations=("op", words))),), True).grant(WANTED)
    same(found, in_process(came, went))
    bad = made(
        mixed.slice(0, 3)
        .append_column("more", op[:3])
        .drop_columns(["op"])
        .rename_columns(["rent", "zip", "paid", "op"])
    )
    other = SparkBatch(((bad, EventColumns(operations=("op", Operations()))),), True).grant(WANTED)
    with pytest.raises(DataError, match="column 'op' holds a null or unknown operation") as caught:
        other.rows.fingerprint(KEY)
    assert "'c'" not in str(caught.value)


def test_what_was_not_known_is_counted_in_another_pass(
    spark: Any, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass for all that the plan is known to ask; a second one only for more."""
    runs: list[Any] = []
    real = passes.Passes._collect
    monkeypatch.setattr(
        passes.Passes, "_collect", lambda one, *given: runs.append(given[0]) or real(one, *given)
    )
    came = table(200)
    granted = batch(made(came)).grant(WANTED)
    same(granted, in_process(came))
    assert runs == [CLIQUES]
    assert granted.view is not None
    same(granted, in_process(came), [(2,), (0,), (2,)])
    assert runs == [CLIQUES, ((2,),)]


def test_only_counts_leave(spark: Any, made: Made) -> None:
    frame = made(table(1))
    view = batch(frame).grant(WANTED).view
    assert view is not None
    assert (view.records, view.marks, view.present) == (None, None, None)
    for reads, words in (
        ("records", "; only counts leave Spark's executors"),
        ("reports", "; only counts leave Spark's executors"),
        ("present", r"the mechanism needs keys of the present records"),
    ):
        with pytest.raises(ConfigError, match=words):
            batch(frame).grant(replace(WANTED, reads=reads))  # type: ignore[arg-type]


def test_a_driver_without_room_is_refused_before_anything_is_read() -> None:
    wide = Schema(tuple(Categorical(f"c{i}", tuple(map(str, range(500)))) for i in range(9)))
    pairs = [(i, j) for i in range(9) for j in range(i)]
    with pytest.raises(LimitError, match="which need 687 MiB of the Spark driver's 512"):
        require_room(wide.domain, pairs * 2, has_deletes=False, memory="512m", where="x")
    with pytest.raises(LimitError, match="more than the limit of"):
        require_room(wide.domain, pairs * 8, has_deletes=False, memory="900g", where="x")
    require_room(wide.domain, pairs, has_deletes=False, memory="512m", where="x")


def test_an_unprotected_session_is_refused(spark: Any, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cluster's settings are called, they are named; and the owner may declare that they do not matter."""
    frame = made(table(1))

    class Plain:
        """A session into which the settings were written when it was too late."""

        class conf:
            @staticmethod
            def get(name: str, default: str = "") -> str:
                return "true"

        class _sc:
            _jsc = "a context"

            @staticmethod
            def getConf() -> dict[str, str]:
                return {"spark.master": "spark://somewhere:7077"}

    with pytest.raises(ConfigError, match="sends private counts unencrypted or unauthenticated") as caught:
        require_protected(Plain, allow_plain_shuffle=False, where="x")
    for name in ("spark.io.encryption.enabled", "spark.authenticate", "spark.network.crypto.enabled"):
        assert f"{name} = true" in str(caught.value)
    require_protected(Plain, allow_plain_shuffle=True, where="x")
    # Other users of this machine reach the ports of a local session: nobody can allow that.
    monkeypatch.setattr(Plain._sc, "getConf", lambda: {"spark.master": "local[2]"})
    with pytest.raises(ConfigError, match=r"unencrypted or unauthenticated.*spark\.authenticate = true"):
        require_protected(Plain, allow_plain_shuffle=True, where="x")
    require_protected(frame.sparkSession, allow_plain_shuffle=False, where="x")


def test_failed_and_repeated_tasks_change_nothing(spark: Any, made: Made, tmp_path: Any) -> None:
    """A task dies at its first attempt, after it has counted half of its records; its second attempt counts."""
    (tmp_path / "dead").mkdir()
    folder = str(tmp_path / "dead")
    came = table(400)

    def dies_once(batches: Any) -> Any:
        import os

        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.attemptNumber() == 0:
            open(f"{folder}/{context.partitionId()}", "w").close()
            if context.partitionId() == 0:
                os._exit(9)  # the worker process is killed
            raise ValueError("Q7731 dies")

    frame = made(came).repartition(3)
    mortal = frame.mapInArrow(dies_once, frame.schema)
    same(batch(mortal).grant(WANTED), in_process(came))
    assert len(list((tmp_path / "dead").iterdir())) == 3


def test_a_failure_is_told_without_its_words(
    spark: Any, made: Made, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark's exceptions and tracebacks quote what they stumbled over; nothing of it is shown."""
    frame = made(table(50))

    def fails(batches: Any) -> Any:
        raise ValueError("Q7731")
        yield from batches

    for broken in (
        frame.mapInArrow(fails, frame.schema),
        frame.selectExpr("CAST(zip AS INT) AS rent", "zip", "paid"),
    ):
        granted = batch(broken).grant(WANTED)
        with pytest.raises(DataError, match="Spark could not read or count the records") as caught:
            granted.rows.fingerprint(KEY)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in "".join(capfd.readouterr())


def test_a_stream_takes_a_spark_frame(spark: Any, made: Made, tmp_path: Any) -> None:
    """The same noise gives the same releases; a repetition is known; other records are refused; nothing is spent by a
    step that cannot be read."""
    from dpstream.core.privacy import Randomness
    from dpstream.core.tables import Workload
    from dpstream.stream import open_stream

    plan = dp.tabular.DPStabs(Workload.all_k_way(SCHEMA.domain, 2), deletions=True, cancels=False).calibrate(
        epsilon=1
    )
    came, went = table(500), table(100, seed=2)
    frame, gone = made(came).repartition(2), made(went).coalesce(1)
    made = []
    for name in ("frames", "spark"):
        with open_stream(plan, SCHEMA, tmp_path / name, randomness=Randomness.seeded(5)) as stream:
            if name == "frames":
                release = stream.step(came, "1", deletes=went)
            else:
                with pytest.raises(DataError, match=r"could not read"):
                    stream.step(
                        frame.selectExpr("CAST(zip AS INT) AS rent", "zip", "paid"), "1", deletes=gone
                    )
                assert stream.last_step == 0
                release = stream.step(frame, "1", deletes=gone)
                assert stream.step(frame, "1", deletes=gone).manifest == release.manifest
                with pytest.raises(dp.errors.StepError):
                    stream.step(gone, "1", deletes=frame)
                with pytest.raises(DataError, match="has no users"):
                    stream.step(frame, "2", users="zip")
            made.append((release.sample().to_pydict(), release.total))
    assert made[0] == made[1]
