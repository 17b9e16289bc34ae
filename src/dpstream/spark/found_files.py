"""The files behind Spark data frames, held against what they were: one pass over them is compared with no other.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dpstream.core.errors import DataError
from dpstream.io.sources.file_opening import UnreadableError, readable
from dpstream.spark.sessions import shielded_from_spark

_STAYS = "a table that stays during a step (a snapshot or version)"
Facts = frozenset[tuple[str | int, ...]]


class FoundFiles:
    """Names, sizes and times of the files that some data frames read. A record that another writer moves from one file
    to another during a pass would be counted twice or never.

    Tables without files, and those whose format has versions, are as whole as Spark's reading of them.
    """

    def __init__(self, frames: Sequence[Any], where: str) -> None:
        self._frames, self._where = frames, where
        self._before = self._facts()

    def check(self) -> None:
        """After a pass.

        Errors:
            UnreadableError: a file has changed, come or gone. Nothing of the pass may be used.
        """
        if self._facts() != self._before:
            raise changed_records(self._where)

    def _facts(self) -> Facts:
        with shielded_from_spark(self._where):
            return frozenset().union(*(_facts(frame, self._where) for frame in self._frames))


class AlikeFiles:
    """A look at the columns of each file of a folder, which Spark takes from one of them: what another file lacks
    would be null, what it has besides would be passed over, and bytes would be texts."""

    def __init__(self, kind: str, ignored: frozenset[str], where: str) -> None:
        """
        Args:
            kind: parquet or orc.
            ignored: names of columns that are not compared.
        """
        self._kind, self._ignored, self._where = kind, ignored, where
        self._first: frozenset[tuple[str, str]] | None = None
        self._seen: Facts = frozenset()

    def check(self, frame: Any) -> None:
        """Look at the files that are new or changed since the last look.

        Errors:
            UnreadableError: one cannot be read. DataError: one has other columns than the first one.
        """
        with shielded_from_spark(self._where):
            facts = _facts(frame, self._where)
            for fact in sorted(facts - self._seen, key=str):
                found = self._columns(frame.sparkSession, str(fact[0]))
                columns = frozenset(one for one in found if one[0].partition(".")[0] not in self._ignored)
                self._first = self._first or columns
                if columns != self._first:
                    raise DataError(
                        "files differ in columns, or hold bytes where others hold texts",
                        where=self._where,
                        allowed="the same columns in all files",
                    )
            self._seen = facts

    def _columns(self, spark: Any, path: str) -> frozenset[tuple[str, str]]:
        if self._kind == "parquet" and path.startswith("/"):
            import pyarrow.parquet as pq

            file = Path(path)
            with readable(file, self._kind), pq.ParquetFile(file) as opened:
                found = [opened.schema.column(i) for i in range(len(opened.schema.names))]
                plain = [
                    one.physical_type == "BYTE_ARRAY" and one.logical_type.type == "NONE" for one in found
                ]
                return frozenset(
                    (one.path, "bytes" if bare else "") for one, bare in zip(found, plain, strict=True)
                )
        read = spark.read.format(self._kind).option("__globPaths__", "false").load(path)
        kinds = [(field.name, field.dataType.typeName()) for field in read.schema.fields]
        return frozenset((name, "bytes" if kind == "binary" else "") for name, kind in kinds)


def changed_records(where: str) -> DataError:
    """The refusal of a table that changes while it is read."""
    return UnreadableError(
        "the records changed while the step was read",
        where=where,
        allowed=f"{_STAYS}, and a query that repeats its rows; then run again",
    )


def _facts(frame: Any, where: str) -> Facts:
    from pyspark.errors import AnalysisException

    urls, spark = sorted(set(frame.inputFiles())), frame.sparkSession
    if not urls:
        return frozenset()
    if hasattr(spark, "_jsc") and all(url.startswith("file:") for url in urls):
        return frozenset(_status(unquote(urlsplit(url).path), where) for url in urls)
    try:
        # Of other file systems Spark alone knows sizes and times. The contents are not read.
        there = (
            spark.read.format("binaryFile").option("__globPaths__", "false").load(list(map(unquote, urls)))
        )
        rows = there.select("path", "length", "modificationTime").toArrow().to_pylist()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise _gone_file(where) from None
    return frozenset((row["path"], row["length"], row["modificationTime"].isoformat()) for row in rows)


def _status(path: str, where: str) -> tuple[str | int, ...]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise _gone_file(where) from None
    # Of two files that exchange their names, size and time of writing may be the same.
    return path, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _gone_file(where: str) -> DataError:
    return UnreadableError(
        "a file was removed while the step was read", where=where, allowed=f"{_STAYS}; then run again"
    )
