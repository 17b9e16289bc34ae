"""A published release, read from the public folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, DataError, StoreDamagedError
from dpstream.core.tables.predicate import parse_predicate
from dpstream.io.sinks.release_reader import (
    Frame,
    as_released,
    read_manifest,
    read_table,
    readable_steps,
    released_alike,
    released_schema,
)
from dpstream.stream.release.release import Answer
from dpstream.stream.release.release_words import release_html, spent_of

if TYPE_CHECKING:
    from dpstream.core.privacy import Budget

__all__ = ["PublicRelease", "read"]

_NOTE = (
    "counted in the released table. An interval is computed from what the mechanism measured, which the table alone "
    "does not tell: whoever holds the stream gets it from Stream.release"
)


class PublicRelease:
    """What the releases folder says about one step, and about the others. Every file is checked against its hash.

    Attributes:
        folder: where the releases are.
        step: the step that ``table``, ``manifest`` and ``answer`` are about where no other one is asked for.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self.folder = folder
        self.step = step

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps whose tables can be read, in order."""
        return readable_steps(self.folder)

    @property
    def spent(self) -> Budget:
        """What all releases up to and including this one cost one unit of protection."""
        return spent_of(self.manifest())

    def manifest(self, step: int | None = None) -> dict[str, Any]:
        """What was published about a step: guarantee, spending, accuracy, how the table was made.

        Errors:
            ConfigError: no such step. StoreDamagedError: files that differ from the published hashes.
        """
        return read_manifest(self.folder, self._step(step))

    def table(self, step: int | None = None, *, frame: Frame = "arrow", ids: bool = False) -> Any:
        """The released table; arguments and errors as of ``dpstream.io.sinks.read_table``."""
        return read_table(self.folder, self._step(step), frame=frame, ids=ids)

    def answer(self, question: str, step: int | None = None) -> Answer:
        """How many records satisfy a question such as ``"paid = 1"``, counted in the released table.

        It is an estimate: ``note`` says what is known about its error. Where the table was cut at a number of
        rows, the count is scaled to the released number of records.

        Errors:
            ConfigError, SchemaError: the question cannot be read, or cuts through a bin; releases that are no tables
            of records. StoreDamagedError: files that differ from the published hashes.
        """
        manifest = self.manifest(step)
        schema = released_schema(self.folder, manifest)
        asked = parse_predicate(question, schema)
        table = self.table(step)
        satisfied = asked.mask()
        columns = [schema.columns[i] for i in asked.columns]
        for axis, column in enumerate(columns):
            alike = satisfied.take([-2, -1], axis=axis)  # other, then missing
            cells = table.column(column.name)
            if released_alike(column) and cells.null_count and (alike.min(axis) != alike.max(axis)).any():
                raise ConfigError(
                    f"column {column.name!r} shows {column.other!r} and {column.missing!r} both as null, and the "
                    "question tells them apart",
                    where="question",
                    allowed="both, or neither of the two; or an answer of Stream.release, which knows the model",
                )
        try:
            codes = tuple(as_released(column).encode(table.column(column.name)) for column in columns)
        except DataError:
            raise StoreDamagedError(
                "the released table holds values that its codebook does not declare", where=str(self.folder)
            ) from None
        count = float(satisfied[codes].sum()) if columns else 0.0
        scale = manifest["rows"] / table.num_rows if table.num_rows else 1.0
        words = manifest["accuracy"].get("words")
        return Answer(count * scale, None, f"{_NOTE}. {words}" if words else _NOTE)

    def __repr__(self) -> str:
        return f"PublicRelease({str(self.folder)!r}, step={self.step})"

    def _repr_html_(self) -> str:
        return release_html(self.manifest(), self.table())

    def _step(self, step: int | None) -> int:
        if step is None:
            return self.step
        if isinstance(step, bool) or not isinstance(step, int):
            raise ConfigError(f"{step!r} is no step", where="step", allowed="a whole number from 1")
        return step


def read(folder: str | Path, step: int | None = None) -> PublicRelease:
    """A published release; needs the releases folder and nothing else.

    Args:
        folder: the releases.
        step: which one; the last one whose table can be read by default.

    Errors:
        ConfigError: no folder of releases, no such step, or one whose table was withdrawn or dropped.
        StoreDamagedError: files that differ from the published hashes.
    """
    if not isinstance(folder, str | Path):
        raise ConfigError(f"a {type(folder).__name__} is no folder", where="read", allowed="a path")
    root = Path(folder)
    if isinstance(step, bool) or not isinstance(step, int | None):
        raise ConfigError(f"{step!r} is no step", where="read", allowed="a whole number from 1")
    there = readable_steps(root)
    if step is None and there:
        step = there[-1]
    if step is None or step not in there:
        read_table(root, step)  # says why not
        raise ConfigError(f"step {step} cannot be read", where=str(root), allowed="another step")
    return PublicRelease(root, step)
