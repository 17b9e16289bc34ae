"""How far files were read, and which step a record goes to by its own time and by whether it was there before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError, StepError
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.source_options import SourceOptions

__all__ = ["BYTES", "DIGEST", "FILES", "FileNames", "Place", "Position", "Times", "other_files"]

# Keys of a position besides the number of records: "bytes:a.csv", "blake2b:a.csv". Where each file is a step:
# "files:z.csv", how many files there are up to the last one, with a digest of their names; a list would grow with
# every step.
BYTES, DIGEST, FILES = "bytes", "blake2b", "files"

Times = NDArray[np.int64]
#: File (relative path) -> number of its records that were read. Private: keep it with the state.
Position = Mapping[str, int]


class FileNames:
    """Positions in a row of files, each by its name, its number, and a digest of all names up to it."""

    def __init__(self, key: bytes) -> None:
        self._digest, self._count = hashlib.blake2b(digest_size=16, key=key), 0

    def then(self, name: str) -> dict[str, int]:
        """The position after one more file."""
        self._digest.update(hashlib.sha256(name.encode()).digest())
        self._count += 1
        digest = int.from_bytes(self._digest.digest())
        return {f"{FILES}:{name}": self._count, f"{DIGEST}:{name}": digest}


def other_files(name: str) -> StepError:
    """The error for files that are not those that were read."""
    return StepError(
        "the file, or one before it, is gone, or a new one comes before it, but its records are in released steps",
        where=name,
        allowed="new files whose names sort after the old ones",
    )


class Place:
    """Which step each record goes to, by its own time and by whether it was there before."""

    def __init__(
        self, grid: Grid, start_step: int, seen: Position | None, options: SourceOptions, reveal: bool
    ) -> None:
        self.grid = grid
        self.start_step = start_step
        self.seen = seen
        self.late = options.late
        self.continues = options.continues
        self.reveal = reveal
        #: Largest step of a record that is not late.
        self.newest = start_step - 1

    def steps(self, times: Times, name: str, before: int) -> Times:
        """The step of each record; below ``start_step``: nothing to do for it any more."""
        steps = self.grid.steps(times)
        if steps.size:
            self.newest = max(self.newest, int(steps.max()))
        passed = steps < self.start_step
        if self.start_step > 1:
            # Old records were released with their steps; only those that came since can be late.
            known = np.inf if self.seen is None else self.seen.get(name, 0)
            passed &= before + np.arange(steps.size) >= known
        if self.continues and self.late == "error":
            passed &= (
                steps >= 1
            )  # by its own time such a record is in the stream before, and in no step of this one
        if not passed.any() or self.late == "drop-and-count-nothing":
            return steps
        if self.late == "next-step":
            return np.where(passed, self.start_step, steps)
        reason = "before the start" if self.start_step == 1 else "of a step that is already released"
        shown = f", record {before + int(np.flatnonzero(passed)[0]) + 1}" if self.reveal else ""
        raise DataError(
            f"there is a record {reason}",
            where=f"{name}{shown}",
            allowed='late = "next-step" or "drop-and-count-nothing" in [source] accepts such records',
        )
