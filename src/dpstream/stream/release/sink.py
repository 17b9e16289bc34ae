"""Where committed releases go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

__all__ = ["Differences", "Sink"]

#: (step, what of it) that is not as it was published.
Differences = Mapping[tuple[int, str], Literal["missing", "changed"]]


class Sink(Protocol):
    """Where committed releases go (``dpstream.io.sinks.Publisher``). Calls may be repeated after a crash."""

    @property
    def directory(self) -> Path: ...

    @property
    def table_name(self) -> str:
        """Name of the table's file, for the codebook."""
        ...

    def render(self, table: Any) -> dict[str, bytes]:
        """A table as named files; their names begin with ``table.``."""
        ...

    def render_changes(self, changes: Any) -> dict[str, bytes]:
        """A table of changes as named files; their names begin with ``changes.``."""
        ...

    def published(self, stream_id: str) -> Mapping[int, str]:
        """SHA-256 of the manifest of every step that is there."""
        ...

    def publish(self, step: int, files: Mapping[str, bytes]) -> None:
        """Put all files of a step in place, durably and at once; the same bytes again are fine.

        What can be read is read back before this returns: a step that was not stored must not count as published.

        Errors:
            StoreError: what was written is not there.
        """
        ...

    def compare(self, committed: Mapping[int, Mapping[str, str]], *, deep: bool) -> Differences:
        """What is missing or changed of published steps; writes nothing.

        Args:
            committed: the SHA-256 of every file of every published step, by its name.
            deep: read everything. Else the last few steps are read, and of the others only looked whether their
                files are there.
        """
        ...

    def restore(self, step: int, names: Collection[str], make: Callable[[str], bytes]) -> None:
        """Put back what is missing of a published step; ``make`` gives a file's bytes. Leaves what is there alone,
        and tells nothing twice to readers of a pipe."""
        ...

    def expire(self, step: int, names: Sequence[str]) -> None:
        """Remove a step's table and keep its manifest."""
        ...

    def withdraw(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None:
        """Remove a step's table and put ``files`` (its manifest, and why it is gone) in place."""
        ...

    def write_public(self, name: str, data: bytes) -> None:
        """Write the catalogue or the codebook (readers see the old file or the new one)."""
        ...
