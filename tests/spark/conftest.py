"""One small local session for all tests of Spark; without PySpark or Java they skip, and say so."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "streams")]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session as dpstream makes one, with two partitions for each shuffle."""
    pytest.importorskip("pyspark", reason="PySpark is not installed (make spark)")
    if shutil.which("java") is None:
        pytest.skip("there is no Java (make spark)")
    from dpstream.spark import session

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "2",
        "spark.default.parallelism": "2",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session("local[2, 2]", memory="640m", settings=settings)
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
    for use in (
        lambda: granted.rows.fingerprint(WANTED.key),
        lambda: batch(frame).problems(SCHEMA, "x"),
    ):
        with pytest.raises(UnreadableError, match="the Spark session is gone"):
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
