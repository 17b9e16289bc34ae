"""Releases as a table of Spark: a partition for each step, drawn in executors after the step was committed.

::

    tables/synthetic/step=17/part-000000.parquet    the records, a few million in a part
    tables/synthetic/step=17/_parts.json            its parts with their hashes, and the manifest that it belongs to
    tables/.synthetic.staged/                       what is being written, or leaves

A partition appears whole, by one rename, and goes by one. What lies in the folder of staged files is never believed:
the next call removes it. Driver and executors see the folder under one path, on a file system whose renames are atomic.

Executors get the numbers of records that were dealt to the cells of the noisy model, the public schema, and the seed
that is printed in the manifest. All of it follows from what the step has released; of the records, the budget, the
state and the noise they get nothing. A part is a pure function of these, so that one that is tried again or run twice
gives the same file, under a name of its own: the driver takes the one that Spark names, and no other.

Nothing is drawn before the step is committed. So a driver that dies, or a disk that is full, leaves a step that waits
to be published, and never a second draw of noise; and a step that is held for approval exists in the state only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.contracts import Dealing
from dpstream.core.errors import InputError, StoreDamagedError, StoreError
from dpstream.core.paths import parse_json, read_bytes, sha256_hex
from dpstream.io.sinks.drawing import Drawing
from dpstream.io.sinks.table_files import FileToStage, file_sha256
from dpstream.io.sinks.target import Comparison, Differences, SinkKind, StepFiles, TakesTables, Target
from dpstream.spark.sessions import session, shielded_from_spark
from dpstream.spark.tasks import attempt, require_version

_FORMAT = 1
_PARTS = "_parts.json"
_PARTITION = re.compile(r"step=(\d+)")
#: Blocks of a part: about four million rows. Whatever the cluster is: a table has the same files wherever it is drawn.
BLOCKS = 16
#: The columns of what a task gives back, as Spark names types.
DRAWN_TYPE = "part int, name string, rows bigint, bytes bigint, sha256 string"
_AGAIN = "run again: the step is committed"
_AWAY = "move the partition away and run again"


class SparkTables(Target):
    """One table, whose partitions are the steps.

    Guarantee: post-processing. What executors get follows from what the step released.

    Args:
        folder: of tables; made if it is not there.
        table: its name.
        blocks: how many blocks of rows a part has.

    Errors (of all methods):
        StoreDamagedError: a partition is not the one that was published, or another stream's. StoreError: Spark could
        not draw the table; the step is committed, and the same call goes on. OSError: the disk is full or fails.

    Cost: the driver holds the integers of the model's cells, whatever the number of rows; it sends them to each task.
    """

    takes: TakesTables = "drawn"

    def __init__(self, folder: str | Path, table: str = "synthetic", *, blocks: int = BLOCKS) -> None:
        self._table = Path(folder) / table
        self._staged = Path(folder) / f".{table}.staged"
        self._blocks = blocks

    def have(self, stream_id: str) -> dict[int, str]:
        """See ``Target``."""
        hashes = {}
        for step, folder in self._partitions():
            facts = _told(folder)
            if facts["stream_id"] != stream_id:
                raise StoreDamagedError(
                    "the partition belongs to another stream",
                    where=str(folder),
                    allowed="another [output] table",
                )
            hashes[step] = str(facts["manifest_sha256"])
        return hashes

    def put(self, files: StepFiles, *, mend: bool = False) -> None:
        """See ``Target``. A partition that is there is compared with the step, and not drawn again."""
        final = self._partition(files.step)
        if mend and final.exists():
            return
        self._sweep()
        if not final.exists():
            place = self._new_place(files.step)
            for folder in (place / "attempts", place / "table"):
                folder.mkdir(parents=True)
            parts = self._drawn(files.step, files.drawing, place / "attempts")
            for part in parts:
                durable.rename(place / "attempts" / part.name, place / "table" / _file(part.part))
            durable.write_file(place / "table" / _PARTS, _entry(files, parts), mode=0o644)
            durable.sync_directory(place / "table")
            self._table.mkdir(parents=True, exist_ok=True)
            durable.sync_directory(self._table.parent)
            durable.rename(place / "table", final)
        durable.sync_directory(self._table)
        if self._difference(files, deep=False) is not None:
            raise StoreDamagedError(
                f"the partition of step {files.step} differs from the committed bytes",
                where=str(final),
                allowed=_AWAY,
            )
        self._sweep()

    def compare(self, asked: Comparison) -> Differences:
        """See ``Target``. Without ``deep`` only the sizes of the files are compared."""
        differences: Differences = {}
        for step, files in asked.committed.items():
            how = self._difference(files, deep=asked.deep)
            if how is not None:
                differences[step, f"{self._table.name}/step={step}"] = how
        return differences

    def withdraw(self, step: int, gone: Collection[str], staying: Mapping[str, bytes]) -> None:
        """Drop the partition of a step, at once."""
        final = self._partition(step)
        if final.exists():
            place = self._new_place(step)
            place.mkdir(parents=True)
            durable.rename(final, place / "table")
            durable.sync_directory(self._table)
        self._sweep()

    # Inside

    def _drawn(self, step: int, drawing: Drawing, folder: Path) -> list[Part]:
        """The parts of a table, in order."""
        from dpstream.core.version import __version__

        task = DrawingParts(__version__, drawing, str(folder.absolute()), self._blocks)
        blocks, count = drawing.blocks, 1
        if drawing.block is not None and isinstance(blocks, Dealing):
            count = -(-drawing.rows // (drawing.block * self._blocks))
            sent = replace(task, drawing=replace(drawing, blocks=blocks.dealt()))
            parts = self._in_executors(step, sent, count)
        else:  # small, or of a kind that only this process draws: one part
            parts = [replace(task, blocks=drawing.rows + 1).write(0)]
        if [one.part for one in parts] != list(range(count)) or sum(
            one.rows for one in parts
        ) != drawing.rows:
            raise StoreError(
                f"Spark lost parts of step {step}",
                where=str(self._table),
                allowed=_AGAIN,
            )
        return parts

    def _in_executors(self, step: int, task: DrawingParts, count: int) -> list[Part]:
        try:
            spark = session()
            with shielded_from_spark(str(self._table), doing="draw it"):
                # No lambda: Spark sends the object and the name of its class, and no code.
                numbers = spark.range(0, count, 1, count)
                found = numbers.mapInArrow(task.__call__, DRAWN_TYPE).toArrow().to_pylist()
        except InputError as error:
            why = error.what
        else:
            return sorted((Part(**one) for one in found), key=lambda one: one.part)
        raise StoreError(
            f"the table of step {step} could not be drawn: {why}",
            where=str(self._table),
            allowed=f"a running Spark session whose executors can write there; then {_AGAIN}",
        )

    def _difference(self, files: StepFiles, *, deep: bool) -> Any:
        """How the partition of a step differs from what was published; None where it does not."""
        folder = self._partition(files.step)
        if not folder.is_dir():
            return "missing"
        facts = _told(folder)
        names = {path.name: path for path in folder.iterdir() if path.name != _PARTS}
        listed = {str(one["name"]): one for one in facts["parts"]}
        same = (
            facts["stream_id"] == files.manifest["stream_id"]
            and facts["manifest_sha256"] == sha256_hex(files.manifest_bytes)
            and names.keys() == listed.keys()
            and all(path.stat().st_size == listed[name]["bytes"] for name, path in names.items())
        )
        if same and deep:
            same = all(file_sha256(path) == listed[name]["sha256"] for name, path in names.items())
        return None if same else "changed"

    def _partitions(self) -> Iterator[tuple[int, Path]]:
        for folder in sorted(self._table.iterdir()) if self._table.is_dir() else ():
            found = _PARTITION.fullmatch(folder.name)
            if found is not None:
                yield int(found[1]), folder

    def _partition(self, step: int) -> Path:
        return self._table / f"step={step}"

    def _new_place(self, step: int) -> Path:
        """A folder that no earlier attempt knows: its executors may still be writing."""
        return self._staged / f"step-{step}-{os.urandom(8).hex()}"

    def _sweep(self) -> None:
        """Remove what attempts have left; where one of their executors is still writing, the next call does."""
        shutil.rmtree(self._staged, ignore_errors=True)


def _file(part: int) -> str:
    return f"part-{part:06}.parquet"


def _entry(files: StepFiles, parts: list[Part]) -> bytes:
    """What a partition says about itself. Public."""
    facts = {
        "format": _FORMAT,
        "stream": files.manifest["stream"],
        "stream_id": files.manifest["stream_id"],
        "step": files.step,
        "manifest_sha256": sha256_hex(files.manifest_bytes),
        "parts": [
            {"name": _file(one.part), "rows": one.rows, "bytes": one.bytes, "sha256": one.sha256}
            for one in parts
        ],
    }
    return (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode()


def _told(folder: Path) -> dict[str, Any]:
    """What a partition says about itself.

    Errors:
        StoreDamagedError: it says nothing, or something else.
    """
    try:
        facts: dict[str, Any] = parse_json(read_bytes(folder / _PARTS))
        if facts["format"] == _FORMAT and f"step={facts['step']}" == folder.name:
            facts["stream_id"], facts["manifest_sha256"]  # raises KeyError where one is missing
            for one in facts["parts"]:
                one["name"], one["bytes"], one["sha256"]
            return facts
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise StoreDamagedError(f"{_PARTS} is missing or damaged", where=str(folder), allowed=_AWAY)


@dataclass(frozen=True)
class Part:
    """A part that was written.

    Attributes:
        part: its number, from 0.
        name: of its file.
    """

    part: int
    name: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, repr=False)
class DrawingParts:
    """Draws parts of a table. Spark's ``mapInArrow`` calls it with batches of numbers of parts.

    Attributes:
        version: of the package on the driver; executors with another one refuse.
        folder: where the files go.
        blocks: how many blocks a part has.
    """

    version: str
    drawing: Drawing
    folder: str
    blocks: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write the parts, and tell their names and hashes.

        Errors:
            TaskFailure: another version. OSError: the disk is full or fails; Spark tries again.
        """
        import pyarrow as pa

        require_version(self.version)
        kinds = [pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.string()]
        kind = pa.schema(zip(Part.__dataclass_fields__, kinds, strict=True))
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist([vars(self.write(part))], schema=kind)

    def write(self, part: int) -> Part:
        """Write one part; it is on the disk when this returns."""
        name = f"part-{part:06}-{attempt()}.parquet"
        with FileToStage(Path(self.folder) / name, 0o644) as file:
            rows = self.drawing.write(part * self.blocks, (part + 1) * self.blocks, file.put)
            written = file.finish()
        return Part(part, name, rows, written.size, written.sha256)


def _open(database: str | None, table: str) -> SparkTables:
    return SparkTables(Path(database or SINK.folder), table)


SINK = SinkKind(_open, folder="tables", reserved=("step",), draws_tables=True)
