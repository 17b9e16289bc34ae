"""A staging table: where a structured streaming query of Spark puts its micro-batches, each exactly once.

::

    folder/rows/000000000042/part-....parquet    the rows of batch 42
    folder/batches/000000000042.json             written last: batch 42 is there, from which checkpoint, in which files

A batch counts once its file under ``batches`` is there. Nothing else decides it, so that a driver that dies at any
point leaves the batch staged or not staged. The folder is on a file system that the driver and all executors see under
one path, and whose renames are atomic. It holds private records.

No watermark closes a step: a watermark moves with other people's records, and drops late ones silently. Steps are
periods of the calendar, and close by the clock, with a ``lag`` (``table = "staged.`folder`"`` of a source of Spark).

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.io.sources.file_opening import UnreadableError
from dpstream.spark.sessions import shielded_from_spark

_FORMAT = 1
_PROPERTY = "sql.streaming.queryId"
_NAME = re.compile(r"([0-9]{12})\.json")


def sink(folder: str | Path) -> Callable[[Any, int], None]:
    """For ``writeStream.foreachBatch``: append each micro-batch to a staging table, once.

    Args:
        folder: where; made if it is not there. One query with one checkpoint feeds it.

    The function that it gives raises, and so stops the query:

    Errors:
        StepError: a batch that is staged comes again with other rows, batches between are missing, or another
            checkpoint feeds the table. UnreadableError: the session is gone. OSError: the disk failed.

    >>> query = frame.writeStream.foreachBatch(sink("staged")).option(
    ...     "checkpointLocation", "checkpoint"
    ... )  # doctest: +SKIP
    """
    return Staged(Path(folder)).take


@dataclass(frozen=True)
class Staged:
    """A staging table, seen by the driver."""

    folder: Path

    def take(self, frame: Any, batch: int) -> None:
        """Stage one micro-batch; see ``sink``."""
        where = f"{self.folder}, batch {batch}"
        checkpoint = _checkpoint(frame, where)
        for place in (self.folder / "rows", self.folder / "batches"):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = self.batches()
        last = known[-1] if known else None
        if last is not None and last["checkpoint"] != checkpoint:
            raise StepError(
                "another checkpoint fed the staging table",
                where=where,
                allowed="its first checkpoint; or a new folder for later records",
            )
        following = 0 if last is None else last["batch"] + 1
        if batch < following:
            self._compare(frame, known[batch], where)
        elif batch > following:
            raise StepError(
                f"the staging table ends before batch {following}",
                where=where,
                allowed=f"batch {following}, or a new table",
            )
        else:
            self._append(frame, batch, checkpoint, where)

    def batches(self) -> list[dict[str, Any]]:
        """What is staged, in order.

        Errors:
            DataError: a batch is missing among them, or its file is damaged.
        """
        found = []
        folder = self.folder / "batches"
        names = (
            sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name)) if folder.is_dir() else []
        )
        for number, path in enumerate(names):
            try:
                entry = json.loads(path.read_text(encoding="utf-8"))
                fits = (
                    entry["format"] == _FORMAT and entry["batch"] == number and path.stem == f"{number:012}"
                )
                sizes = {name: (self._rows(number) / name).stat().st_size for name in entry["files"]}
                fits = fits and sizes == entry["files"]
            except (OSError, ValueError, KeyError, TypeError):
                fits = False
            if not fits:
                raise DataError(
                    "a staged batch is missing or damaged",
                    where=str(path),
                    allowed="the folder as written",
                )
            found.append(entry)
        return found

    def paths(self) -> list[str]:
        """The files of all staged batches."""
        return [str(self._rows(one["batch"]) / name) for one in self.batches() for name in one["files"]]

    def _rows(self, batch: int) -> Path:
        return (self.folder / "rows" / f"{batch:012}").absolute()

    def _append(self, frame: Any, batch: int, checkpoint: str, where: str) -> None:
        rows = self._rows(batch)
        if rows.exists():
            shutil.rmtree(rows)  # of an attempt that did not get as far as its file under batches
        with shielded_from_spark(where):
            frame.write.parquet(str(rows))
        files = {}
        for path in sorted(rows.glob("*.parquet")):
            with path.open("rb") as file:
                durable.sync_file(file.fileno())
            files[path.name] = path.stat().st_size
        for place in (rows, rows.parent):
            durable.sync_directory(place)
        entry = {"format": _FORMAT, "batch": batch, "checkpoint": checkpoint, "files": files}
        text = json.dumps(entry, indent=1).encode()
        durable.replace_file(self.folder / "batches" / f"{batch:012}.json", text, mode=0o600)

    def _compare(self, frame: Any, entry: dict[str, Any], where: str) -> None:
        """That a batch that comes again has the rows that are staged, as many times each."""
        with shielded_from_spark(where):
            paths = [str(self._rows(entry["batch"]) / name) for name in entry["files"]]
            before = frame.sparkSession.read.schema(frame.schema).parquet(*paths) if paths else frame.limit(0)
            same = frame.exceptAll(before).isEmpty() and before.exceptAll(frame).isEmpty()
        if not same:
            raise StepError(
                "a staged batch returns with other rows",
                where=where,
                allowed="a source that repeats its rows",
            )


def open_staged(spark: Any, folder: Path, where: str) -> Any:
    """The rows of all staged batches as a data frame.

    Errors:
        UnreadableError: nothing is staged yet. DataError: the folder is damaged.
    """
    if not (folder / "batches").is_dir():
        raise ConfigError("staging table missing", where=where, allowed="a folder of dpstream.spark.sink")
    paths = Staged(folder).paths()
    if not paths:
        raise UnreadableError("nothing is staged yet", where=where, allowed="a running query")
    return spark.read.parquet(*paths)


def _checkpoint(frame: Any, where: str) -> str:
    """The id that Spark keeps in the checkpoint of the query that this batch is of."""
    with shielded_from_spark(where):
        found = frame.sparkSession.sparkContext.getLocalProperty(_PROPERTY)
    if not found:
        raise ConfigError(
            "expected a batch of a streaming query",
            where=where,
            allowed="writeStream.foreachBatch(dpstream.spark.sink(...)), in the query's driver",
        )
    return str(found)
