"""What runs in Spark's executors when a released table is drawn: a part of it becomes a file.

Executors get the numbers of records that were dealt to the cells of the noisy model, the public schema, and the seed
that is printed in the manifest. All of it follows from what the step has released; of the records, the budget, the
state and the noise they get nothing. A part is a pure function of these, so that one that is tried again or run twice
gives the same file, under a name of its own: the driver takes the one that Spark names, and no other.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dpstream.core import durable
from dpstream.io.sinks.drawing import Drawing
from dpstream.spark.tasks import attempt, require_version

#: The columns of what a task gives back, as Spark names types.
DRAWN_TYPE = "part int, name string, rows bigint, bytes bigint, sha256 string"
#: Bytes that are written at once.
_CHUNK = 2**20


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
        with _File(Path(self.folder) / name) as file:
            rows = self.drawing.write(part * self.blocks, (part + 1) * self.blocks, file.put)
            file.finish()
        return Part(part, name, rows, file.size, file.digest.hexdigest())


class _File:
    """A new file that is hashed while it is written, a megabyte at a time."""

    def __init__(self, path: Path) -> None:
        self.digest, self.size = hashlib.sha256(), 0
        self._waiting = bytearray()
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def put(self, data: bytes) -> None:
        if self._descriptor is None:
            return  # a writer that is thrown away after a failure writes its end
        self.digest.update(data)
        self.size += len(data)
        self._waiting += data
        if len(self._waiting) >= _CHUNK:
            self._flush(self._descriptor)

    def finish(self) -> None:
        """All of it is on the disk when this returns."""
        assert self._descriptor is not None
        self._flush(self._descriptor)
        durable.sync_file(self._descriptor)

    def _flush(self, descriptor: int) -> None:
        durable.write(descriptor, bytes(self._waiting))
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
