"""A place of releases: what every one does, and the files of a step that it gets.

There is always a folder (``Publisher``). It holds the manifests and the catalogue, which readers check, and which show
when a state was rolled back. One more place may stand beside it: a bucket, a database, standard output, a table of
Spark. It gets every release after the folder has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dpstream.core.contracts.plugins import Plugins
from dpstream.io.sinks.change_tables import ID, OP
from dpstream.io.sinks.period_tables import has_periods
from dpstream.io.sinks.table_files import FORMATS, Content, Format, StagedFile, blocks_of, from_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from dpstream.io.sinks.drawing import Drawing

CODEBOOK = "codebook.json"
MANIFEST = "manifest.json"
#: Says why a step was withdrawn.
NOTICE = "withdrawn.json"
#: What a step measured, as noisy counts; it stays when the table goes.
MEASUREMENTS = "measurements.ndjson"
#: What a step's records are drawn from; it goes when the table goes.
MODEL = "model.json"
#: What stays of a step whose table expired or was withdrawn.
STAYING = frozenset({MANIFEST, NOTICE, MEASUREMENTS})
#: (step, file or table) -> how it differs from what was published; "withdrawn": it exists, but the step was withdrawn.
Differences = dict[tuple[int, str], Literal["missing", "changed", "withdrawn"]]
#: Every comparison with the store reads the files of so many of the last published steps.
LAST_COMPARED = 3
#: How a place takes tables: as files, in blocks or whole; ``whole`` in memory; or ``drawn`` by itself after the step
#: was committed (``StepFiles.drawing``), so that the folder holds none.
TakesTables = Literal["files", "whole", "drawn"]
_ADDED = ({"name": ID, "type": "integer"}, {"name": OP, "type": "string"})


def step_name(step: int) -> str:
    """The name of a step's directory.

    >>> step_name(17)
    'step-000017'
    """
    return f"step-{step:06d}"


class StepFiles:
    """The files of one step, each made when it is asked for first; and the tables in them.

    Args:
        digests: SHA-256 of the files by name, where they are to be compared.
        make: gives a file.
        fields: the fields of the codebook, which give the types of CSV files.
        whole: gives the whole table of a step that was published as changes; None where nobody can.
        drawing: what the table is drawn from, for a place that draws it.
    """

    def __init__(
        self,
        step: int,
        names: Collection[str],
        make: Callable[[str], Content],
        *,
        fields: Sequence[Mapping[str, Any]] = (),
        whole: Callable[[], Any] | None = None,
        drawing: Callable[[], Drawing] | None = None,
    ) -> None:
        self.step, self.names = step, sorted(names)
        self._make, self._made = make, dict[str, Content]()
        self._fields = [*fields, *_ADDED]
        self._whole, self._drawing = whole, drawing

    @classmethod
    def of(
        cls, step: int, files: Mapping[str, Content], fields: Sequence[Mapping[str, Any]] = ()
    ) -> StepFiles:
        """Files that are at hand."""
        return cls(step, files, files.__getitem__, fields=fields)

    def file(self, name: str) -> Content:
        """One of the files.

        Errors:
            StoreError: it is gone, and cannot be made again.
        """
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def all(self) -> dict[str, Content]:
        """Every file by its name."""
        return {name: self.file(name) for name in self.names}

    @property
    def manifest_bytes(self) -> bytes:
        """The manifest as it was published."""
        content = self.file(MANIFEST)
        assert isinstance(content, bytes)
        return content

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What the step says about itself."""
        manifest: dict[str, Any] = json.loads(self.manifest_bytes)
        return manifest

    @property
    def has_periods(self) -> bool:
        """Whether its changes are new periods of a panel's people instead of records."""
        return has_periods(self.manifest)

    @property
    def drawing(self) -> Drawing:
        """What the table is drawn from."""
        assert self._drawing is not None
        return self._drawing()

    def part(self, kind: str) -> Any:
        """The ``table`` or the ``changes`` as a pyarrow Table; None where the release has none."""
        found = self._find(kind)
        return None if found is None else from_bytes(*found, self._fields)

    def blocks(self, kind: str) -> Iterator[Any] | None:
        """As ``part``, block by block, as ``pyarrow.RecordBatch``."""
        found = self._find(kind)
        return None if found is None else blocks_of(*found, self._fields)

    def whole(self) -> Any:
        """The whole table, also of a step that was published as changes; None where it cannot be made."""
        table = self.part("table")
        return self._whole() if table is None and self._whole is not None else table

    def _find(self, kind: str) -> tuple[bytes | Path, Format] | None:
        for name in self.names:
            stem, _, form = name.partition(".")
            if stem == kind and form in FORMATS:
                content = self.file(name)
                return content.path if isinstance(content, StagedFile) else content, form
        return None


@dataclass(frozen=True)
class Comparison:
    """What a place of releases is compared with.

    Attributes:
        digests: of the published steps: step -> file -> SHA-256.
        withdrawn: steps of which only the manifest, the notice and the measurements may be there.
        deep: read everything; otherwise the last few steps only, and of the others whether their files are there.
        committed: the published steps: their manifests in the folder, and their whole tables as readers get them.
    """

    digests: Mapping[int, Mapping[str, str]]
    withdrawn: Collection[int]
    deep: bool
    committed: Mapping[int, StepFiles] = field(default_factory=dict)

    def of_files(
        self, there: Callable[[int], Collection[str]], digest: Callable[[int, str], str | None]
    ) -> Differences:
        """How the files that are somewhere differ from the published ones.

        Args:
            there: the names of a step's files. digest: the SHA-256 of one, None where it is gone.
        """
        differences: Differences = {}
        read = set(self.digests if self.deep else sorted(self.digests)[-LAST_COMPARED:])
        for step, files in self.digests.items():
            names = there(step)
            for name, wanted in files.items():
                if name not in names:
                    differences[step, name] = "missing"
                elif step in read and digest(step, name) != wanted:
                    differences[step, name] = "changed"
        for step in self.withdrawn:
            for name in set(there(step)) - STAYING:
                differences[step, name] = "withdrawn"
        return differences


class Target(Protocol):
    """A place of releases. Calls come in the order of the steps, and may be repeated after a crash.

    A class that is derived from it needs no ``index`` and ``indexed`` where the place has no catalogue.
    """

    #: How it takes tables.
    takes: TakesTables

    def have(self, stream_id: str) -> Mapping[int, str]:
        """The SHA-256 of the manifest of every step that the place has, or remembers.

        Errors:
            StoreDamagedError: the place belongs to another stream.
        """
        ...

    def put(self, files: StepFiles, *, mend: bool = False) -> None:
        """Write a release durably and at once, and read it back if possible. The same release again changes nothing.

        Args:
            mend: the step was published before: put back what is missing, and leave alone what is there.

        Errors:
            StoreError: the release cannot be written or read back. StoreDamagedError: another one is there.
        """
        ...

    def withdraw(self, step: int, gone: Collection[str], staying: Mapping[str, bytes]) -> None:
        """Remove files of a step, if the place has them.

        Args:
            staying: of a step that was withdrawn, what takes its place: manifest, notice and measurements. Empty where
                its table expired, or where changes go with the step before.
        """
        ...

    def index(self, name: str, data: bytes, staying: Callable[[int], Mapping[str, bytes]]) -> None:
        """Replace the codebook, the catalogue or a part of it, where the place has them; readers see the old file or
        the new one.

        Args:
            staying: gives what stays of a listed step that lost its table before the place had it.
        """
        return

    def indexed(self, name: str) -> bytes | None:
        """A file that ``index`` wrote; None where there is none, or the place has none."""
        return None

    def compare(self, asked: Comparison) -> Differences:
        """Find what is missing or changed of published steps, or still there of withdrawn ones. Writes nothing."""
        ...


OWN_SINKS = ("folder", "duckdb", "postgresql", "bucket", "stdout")


@dataclass(frozen=True)
class SinkKind:
    """A sink of another room or package: the object of an entry point of the group ``dpstream.sinks``.

    Attributes:
        open: makes the ``Target`` from ``[output] database`` (None where the file does not have it) and ``table``.
        folder: where ``database`` is a folder: its name, where the file does not have one. Empty: it is a file.
        reserved: names that no released column may have, in lower case.
        draws_tables: whether it draws tables by itself, in which no record persists.
    """

    open: Callable[[str | None, str], Target]
    folder: str = ""
    reserved: tuple[str, ...] = ()
    draws_tables: bool = False


#: Kinds whose room lies above this one: found as those of other packages are.
_ENGINES = {"spark": "dpstream.spark.release_tables:SINK"}
SINKS = Plugins("dpstream.sinks", "the sink", SinkKind, {**dict.fromkeys(OWN_SINKS, ""), **_ENGINES})
