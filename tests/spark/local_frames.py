"""Data frames that run Spark's tasks in this process, with partitions, repeated tasks, and failures on demand.

They have the few methods that the engine uses, and promise what Spark promises: a task may be run several times, in any
order and with its rows in any order, and one of its results is taken. What a real session does, a few tests of
``test_spreading.py`` show; here are the many cases that would take minutes there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dpstream.spark import sessions

Tables = Callable[[], list[list[pa.RecordBatch]]]


class LocalSession:
    """Counts attempts, and decides what happens to each of them.

    Args:
        tasks: partitions after a shuffle.
        repeats: how often each task is run at least; the result of a random one of them is taken.
        fails: a task (by the number of its attempt) that is run to its half, and again.
    """

    def __init__(self, tasks: int = 3, repeats: int = 1, seed: int = 1, fails: float = 0.0) -> None:
        self.tasks, self.repeats, self.fails = tasks, repeats, fails
        self.random = random.Random(seed)
        self.attempts = 0
        self.conf = self

    def get(self, name: str, default: str = "") -> str:
        """A setting."""
        settings = {
            "spark.io.encryption.enabled": "true",
            "spark.master": "local[2]",
            **sessions._CONNECTIONS,
            **{name: values[0] for name, values in sessions._READING.items()},
        }
        return str(self.tasks) if name == "spark.sql.shuffle.partitions" else settings.get(name, default)

    def range(self, start: int, end: int, step: int, tasks: int) -> LocalFrame:
        """Whole numbers in the column ``id``."""
        numbers = pa.table({"id": pa.array(range(start, end, step), pa.int64())})
        return LocalFrame.of(self, numbers, tasks)

    def run(self, task: Any, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """All attempts at one task; gives one result."""
        results = []
        while len(results) < self.repeats:
            self.attempts += 1
            given = list(batches)
            self.random.shuffle(given)
            if self.random.random() < self.fails:
                for _ in zip(range(1), task(iter(given)), strict=False):
                    pass  # it dies when it has given something, and perhaps written a file
                continue
            results.append(list(task(iter(given))))
        return self.random.choice(results)


class LocalFrame:
    """A data frame: partitions of record batches, made when they are asked for."""

    def __init__(self, session: LocalSession, kinds: pa.Schema, tables: Tables) -> None:
        self.sparkSession, self._kinds, self._tables = session, kinds, tables

    @classmethod
    def of(cls, session: LocalSession, table: pa.Table, partitions: int, skewed: bool = False) -> LocalFrame:
        """The rows of a table in so many partitions; skewed: all in the first one, the others are empty."""
        rows = -(-table.num_rows // partitions) if not skewed else table.num_rows
        parts = [table.slice(i * rows, rows).to_batches(max_chunksize=50) for i in range(partitions)]
        return cls(session, table.schema, lambda: parts)

    @property
    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._kinds)

    @property
    def columns(self) -> list[str]:
        return list(self._kinds.names)

    def inputFiles(self) -> list[str]:
        return []

    def select(self, *names: str) -> LocalFrame:
        plain = [name.strip("`") for name in names]
        kinds = pa.schema([self._kinds.field(name) for name in plain])
        return LocalFrame(
            self.sparkSession, kinds, lambda: [[b.select(plain) for b in part] for part in self._tables()]
        )

    def mapInArrow(self, task: Any, kinds: str) -> LocalFrame:
        run = self.sparkSession.run
        return LocalFrame(
            self.sparkSession, pa.schema([]), lambda: [run(task, part) for part in self._tables()]
        )

    def unionAll(self, other: LocalFrame) -> LocalFrame:
        return LocalFrame(self.sparkSession, self._kinds, lambda: [*self._tables(), *other._tables()])

    def repartition(self, number: int, column: str) -> LocalFrame:
        def parts() -> list[list[pa.RecordBatch]]:
            found: list[list[pa.RecordBatch]] = [[] for _ in range(number)]
            for part in self._tables():
                for batch in part:
                    for row, key in enumerate(batch.column(column).to_pylist()):
                        found[key % number].append(batch.slice(row, 1))
            return found

        return LocalFrame(self.sparkSession, self._kinds, parts)

    def toArrow(self) -> Any:
        from pyspark.errors import PythonException

        from dpstream.spark.tasks import TaskFailure

        try:
            batches = [batch for part in self._tables() for batch in part]
        except (TaskFailure, OSError) as error:
            raise PythonException(str(error)) from error
        return _Collected(batches)


class _Collected:
    """What came to the driver."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def to_batches(self) -> list[pa.RecordBatch]:
        return self._batches


# The engine recognises frames by their class.
LocalFrame.__name__ = "DataFrame"
LocalFrame.__module__ = "pyspark.sql.local"
