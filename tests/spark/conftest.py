"""One small local session for all tests of Spark; without PySpark or Java they skip, and say so."""

from __future__ import annotations

import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session as dpstream makes one, in which little work is done quickly: one thread (each has Python workers,
    see ``warm_daemon``), and a Java that does not compile for long lives."""
    pytest.importorskip("pyspark", reason="PySpark is not installed (make spark)")
    if shutil.which("java") is None:
        pytest.skip("there is no Java (make spark)")
    from dpstream.spark import session

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "2",
        "spark.default.parallelism": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.python.daemon.module": "warm_daemon",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        patched.setenv("PYTHONPATH", paths)  # Java hands it on to the workers
        warnings.simplefilter("ignore")
        made = session("local[1, 2]", memory="640m", settings=settings)
        yield made
        _says_that_it_is_gone(made)


def _says_that_it_is_gone(session: Any) -> None:
    """Stop the session; whoever still holds a frame of it is told."""
    from spark_cases import SCHEMA, WANTED

    from dpstream.io.sources import UnreadableError
    from dpstream.spark import batch

    frame = session.range(1).selectExpr("'a' AS zip", "true AS paid", "1 AS rent")
    granted = batch(frame).grant(WANTED)
    session.stop()
    for use in (lambda: granted.rows.fingerprint(WANTED.key), lambda: batch(frame).problems(SCHEMA, "x")):
        with pytest.raises(UnreadableError, match="the Spark session has ended"):
            use()


@pytest.fixture
def made(spark: Any, tmp_path: Path) -> Callable[[Any], Any]:
    """Makes a Spark data frame of an Arrow table, over a file."""
    import pyarrow.parquet as pq

    numbers = iter(range(1000))

    def frame(table: Any) -> Any:
        path = tmp_path / f"frame{next(numbers)}.parquet"
        pq.write_table(table, path)
        return spark.read.parquet(str(path))

    return frame


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Released tables of more than 40 rows are drawn in blocks."""
    from dpstream.stream.release import table_blocks

    monkeypatch.setattr(table_blocks, "BLOCK", 40)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tasks run in this process: each on what it would be sent, twice, and the last part first."""
    seen: list[int] = []

    def run(_: object, step: int, task: Any, count: int) -> list[Any]:
        seen.append(count)
        sent, numbers = pickle.dumps(task), iter(range(10**6))
        monkeypatch.setattr("dpstream.spark.release_tables.attempt", lambda: next(numbers))
        given = []
        for part in reversed(range(count)):
            pickle.loads(sent).write(part)  # noqa: S301 (a task that was tried before; its file belongs to nobody)
            given.append(pickle.loads(sent).write(part))  # noqa: S301
        return given[::-1]

    from dpstream.spark.release_tables import SparkTables

    monkeypatch.setattr(SparkTables, "_in_executors", run)
    return seen
