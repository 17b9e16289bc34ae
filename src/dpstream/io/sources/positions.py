"""How far files were read, and the step of a record, by its own time and by whether it was read before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError, StepError
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.source_options import SourceOptions

# Keys of a position, besides "a.csv" for the number of records: "bytes:a.csv" and "blake2b:a.csv". Where each file is a
# step: "files:z.csv" for the number of files up to z.csv, and "blake2b:z.csv" for a digest of their names (a list of
# them would grow with every step).
BYTES, DIGEST, FILES = "bytes", "blake2b", "files"

#: Among more files than these it is not looked which one is new: that takes the square of their number.
_MOST_TRIED = 1000

Times = NDArray[np.int64]
#: File (relative path) -> how many of its records were read, and the keys above. Private: keep it with the state.
Position = Mapping[str, int]


class FileNames:
    """Makes the positions in a sequence of files: the last file's name, the number of files, a digest of all names."""

    def __init__(self, key: bytes) -> None:
        self._digest, self._count = hashlib.blake2b(digest_size=16, key=key), 0

    def then(self, name: str) -> dict[str, int]:
        """Add one file; returns the position after it."""
        self._digest.update(hashlib.sha256(name.encode()).digest())
        self._count += 1
        digest = int.from_bytes(self._digest.digest())
        return {f"{FILES}:{name}": self._count, f"{DIGEST}:{name}": digest}


def other_files(name: str) -> StepError:
    """The error for a file that is gone, or that is new among files that were read already."""
    return StepError(
        "the file, or one before it, is gone, or a new one comes before it, but its records are in released steps",
        where=name,
        allowed="new files whose names sort after the old ones",
    )


def still_first(here: Sequence[str], seen: Position, key: bytes) -> bool:
    """Whether a position says which files were read, where each file is a step; they are the first ones then.

    Args:
        here: the names of all files, in order. key: of ``FileNames``.

    Errors:
        StepError: another file is among them, or one of them is gone.
    """
    known = [(name, count) for name, count in seen.items() if name.startswith(f"{FILES}:") and count]
    if not known:
        return False
    name, count = known[0]
    last = name.removeprefix(f"{FILES}:")
    if here[count - 1 : count] == [last] and _after(here[:count], key) == seen:
        return True
    # Names are kept as a digest only: which one is new shows where the others give the digest that is kept.
    if here[count : count + 1] == [last] and count <= _MOST_TRIED:
        for place, new in enumerate(here[:count]):
            if _after([*here[:place], *here[place + 1 : count + 1]], key) == seen:
                raise StepError(
                    "the file sorts before files that are released, and each file is a step: it would be taken as the "
                    "newest one",
                    where=new,
                    allowed="a name that sorts after all released files, or no such file",
                )
    raise other_files(last)


def _after(names: Sequence[str], key: bytes) -> dict[str, int]:
    """The position after some files."""
    digest = FileNames(key)
    return [digest.then(name) for name in names][-1]


class Place:
    """Finds the step of each record, by its own time and by whether it was read before.

    Args:
        start_step: the first step that is not released yet.
        seen: the position at the last released step; None at the first reading.
        reveal: name the record in errors; for the owner's eyes only.

    Attributes:
        newest: the largest step of a record that is not late.
    """

    def __init__(
        self, grid: Grid, start_step: int, seen: Position | None, options: SourceOptions, reveal: bool
    ) -> None:
        self.grid = grid
        self.start_step = start_step
        self.seen = seen
        self.late = options.late
        self.options = options
        self.continues = options.continues
        self.reveal = reveal
        self.newest = start_step - 1

    def steps(self, times: Times, name: str, before: int) -> Times:
        """The step of each record of a block; a record with a step below ``start_step`` is left out.

        Args:
            times: the records' times.
            name: their file.
            before: how many records of the file come before this block.

        Errors:
            DataError: a record is late, and ``late = "error"``.
        """
        steps = self.grid.steps(times)
        if steps.size:
            self.newest = max(self.newest, int(steps.max()))
        passed = steps < self.start_step
        if self.start_step > 1:
            # Records that were read before are in released steps; only new ones can be late.
            known = np.inf if self.seen is None else self.seen.get(name, 0)
            passed &= before + np.arange(steps.size) >= known
        if self.continues:
            # A record before the start is in the stream before this one, and in no step here, whenever it comes.
            passed &= steps >= 1
        if not passed.any() or self.late == "drop-and-count-nothing":
            return steps
        if self.late == "next-step":
            return np.where(passed, self.start_step, steps)
        reason = "before the start" if self.start_step == 1 else "of a step that is already released"
        shown = f", record {before + int(np.flatnonzero(passed)[0]) + 1}" if self.reveal else ""
        raise DataError(
            f"there is a record {reason}",
            where=f"{name}{shown}",
            allowed=self.options.accepts_late,
        )
