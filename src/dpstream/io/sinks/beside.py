"""A sink that writes to the folder of releases first, and to another place afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from dpstream.core.errors import StoreDamagedError
from dpstream.io.sinks.drawing import Drawing
from dpstream.io.sinks.publisher import Differences, Publisher
from dpstream.io.sinks.staged_file import Content
from dpstream.io.sinks.table_files import BlockWriter


class BesideFolder(ABC):
    """A ``Sink``: what the folder does, and the other place with it.

    Args:
        folder: gets every release first.
    """

    #: What the other place is, for messages.
    _other: ClassVar[str]

    def __init__(self, folder: Publisher) -> None:
        self._folder = folder

    @property
    def directory(self) -> Path:
        """The path of the folder."""
        return self._folder.directory

    @property
    def folder(self) -> Publisher:
        """The folder alone."""
        return self._folder

    @property
    def table_name(self) -> str:
        """The name of the table's file in each step's directory."""
        return self._folder.table_name

    @property
    def reads_whole(self) -> bool:
        """Whether the other place reads back and compares whole tables."""
        return False

    @property
    def draws_tables(self) -> bool:
        """Whether the other place draws the tables."""
        return False

    def draw_from(self, drawing: Callable[[int], Drawing]) -> None:  # noqa: B027 - most get files
        """What gives the ``Drawing`` of a step, for a place that draws the tables."""

    def render(self, table: Any) -> dict[str, bytes]:
        """A table as named files."""
        return self._folder.render(table)

    def render_changes(self, changes: Any) -> dict[str, bytes]:
        """A table of changes as named files."""
        return self._folder.render_changes(changes)

    def block_writer(self, schema: Any, put: Callable[[bytes], None]) -> BlockWriter:
        """Converts a table to bytes block by block."""
        return self._folder.block_writer(schema, put)

    def published(self, stream_id: str) -> dict[int, str]:
        """The hashes of the steps that the folder or the other place has.

        Errors:
            StoreDamagedError: they have different releases of a step.
        """
        hashes = dict(self._folder.published(stream_id))
        for step, digest in self._published_there(stream_id).items():
            if hashes.setdefault(step, digest) != digest:
                raise StoreDamagedError(
                    f"the folder and the {self._other} hold different releases of step {step}",
                    where=str(self.directory),
                    allowed=f"a folder and a {self._other} of the same stream",
                )
        return hashes

    def compare(
        self, committed: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int] = ()
    ) -> Differences:
        """The differences of the folder; if it has none, those of the other place."""
        differences = self._folder.compare(committed, deep=deep, withdrawn=withdrawn)
        return differences or self._compare_there(committed, deep=deep, withdrawn=withdrawn)

    @abstractmethod
    def _published_there(self, stream_id: str) -> Mapping[int, str]: ...

    @abstractmethod
    def _compare_there(
        self, committed: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int]
    ) -> Differences: ...

    @abstractmethod
    def publish(self, step: int, files: Mapping[str, Content]) -> None:
        """Publish to the folder, then to the other place."""

    @abstractmethod
    def restore(
        self,
        step: int,
        names: Collection[str],
        make: Callable[[str], Content],
        withdrawn: Mapping[int, str] | None = None,
    ) -> None:
        """Restore in the folder, then in the other place."""

    @abstractmethod
    def expire(self, step: int, names: Sequence[str]) -> None:
        """Remove files of a step."""

    def withdraw(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None:
        """Withdraw a step from both; either may fail without the other."""
        try:
            self._folder.withdraw(step, names, files)
        finally:
            self._withdraw_there(step, names, files)

    @abstractmethod
    def _withdraw_there(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None: ...

    @abstractmethod
    def write_public(self, name: str, data: bytes) -> None:
        """Write a public file."""
