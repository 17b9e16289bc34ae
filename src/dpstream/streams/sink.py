"""Where committed releases go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Sink"]


class Sink(Protocol):
    """Where committed releases go (``dpstream.sinks.Publisher``). Calls may be repeated after a crash."""

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
        """Put all files of a step in place, durably and at once; the same bytes again are fine."""
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
