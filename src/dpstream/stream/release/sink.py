"""Where committed releases go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from dpstream.io.sinks.drawing import Drawing
from dpstream.io.sinks.publisher import Differences, Publisher
from dpstream.io.sinks.table_files import Content
from dpstream.stream.store.place import viewed
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.store import publication_states, published_files
from dpstream.stream.store.store_database import file_errors


class Sink(Protocol):
    """Where committed releases go (``dpstream.io.sinks.Publisher``). Calls may be repeated after a crash."""

    @property
    def directory(self) -> Path: ...

    @property
    def folder(self) -> Publisher:
        """The folder alone, without what stands beside it; itself where nothing does. It renders the tables."""
        ...

    @property
    def table_name(self) -> str:
        """Name of the table's file, for the codebook."""
        ...

    @property
    def reads_whole(self) -> bool:
        """Whether it has a whole table in memory, also one that is made in blocks."""
        ...

    @property
    def draws_tables(self) -> bool:
        """Whether it draws the tables itself (``draw_from``), and the folder has none."""
        ...

    def draw_from(self, drawing: Callable[[int], Drawing]) -> None:
        """Called once, before anything is published: what gives the ``Drawing`` of a committed step."""
        ...

    def published(self, stream_id: str) -> Mapping[int, str]:
        """SHA-256 of the manifest of every step that is there."""
        ...

    def publish(self, step: int, files: Mapping[str, Content]) -> None:
        """Put all files of a step in place, durably and at once; the same bytes again are fine. Files that wait on the
        disk are left there.

        What can be read is read back before this returns: a step that was not stored must not count as published.

        Errors:
            StoreError: what was written is not there.
        """
        ...

    def compare(
        self, committed: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int] = ()
    ) -> Differences:
        """What is missing or changed in published steps, or still there of withdrawn ones; writes nothing.

        Args:
            committed: the SHA-256 of every file of every published step, by its name.
            deep: read everything. Else the last few steps are read, and of the others only looked whether their
                files are there.
            withdrawn: steps whose folders may hold nothing but the manifest, the notice and the measurements.
        """
        ...

    def restore(
        self,
        step: int,
        names: Collection[str],
        make: Callable[[str], Content],
        withdrawn: Mapping[int, str] | None = None,
    ) -> None:
        """Put back what is missing of a published step, and leave what is there alone; readers of a pipe
        get nothing twice.

        Args:
            step: a step in the state ``published``.
            names: its committed files.
            make: a file from the store; under ``table_name`` also of a step that was published as changes.
            withdrawn: steps that were withdrawn, with the SHA-256 of their manifests.
        """
        ...

    def expire(self, step: int, names: Sequence[str]) -> None:
        """Remove a step's table and keep its manifest."""
        ...

    def withdraw(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None:
        """Remove a step's table and put ``files`` (its manifest, and why it is gone) in place; a place that fails stops
        no other."""
        ...

    def write_public(self, name: str, data: bytes) -> None:
        """Write the catalogue or the codebook (readers see the old file or the new one)."""
        ...


def compare_releases(
    path: str | Path, sink: Sink, *, server: PostgresServer | None = None, deep: bool = False
) -> tuple[dict[int, dict[str, str]], Differences]:
    """Every published step with the SHA-256 of its files as the store knows them, and what of them is missing or
    changed, or is there although it was withdrawn. Changes nothing and needs no lock.

    Args:
        deep: read everything, and not only the last few steps.

    Errors:
        StoreDamagedError, StoreFormatError: the store cannot be read. StoreError: a place of releases cannot be read.
    """
    before: Differences = {}
    for _ in range(2):  # a run may publish, drop or withdraw a step between two looks: what stays is told
        with viewed(Path(path), server) as db:
            committed = {} if db is None else published_files(db)
            states = {} if db is None else publication_states(db)
        withdrawn = [step for step, state in states.items() if state == "withdrawn"]
        with file_errors("the releases could not be read", sink.directory):
            differences = sink.compare(committed, deep=deep, withdrawn=withdrawn)
        if not differences or differences == before:
            break
        before = differences
    return committed, differences
