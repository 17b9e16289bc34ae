"""A source and a sink of another package, both of SQLite. Found through their entry points only."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from dpstream.core.contracts import option
from dpstream.io.sinks.target import Comparison, Differences, SinkKind, StepFiles, TakesTables, Target
from dpstream.io.sources import Source, SourceOptions, StepInput
from dpstream.io.sources.source_keys import SourceKind


@dataclass(frozen=True)
class OwnKeys:
    """What only this source has."""

    valid: str = option(
        "1", allowed="a condition on a row", reason="every row counts", meaning="Which rows count."
    )
    journal: Literal["wal", "delete"] = option(
        "wal", reason="as files have it", meaning="The journal of the file."
    )


class SqliteSource(Source):
    """The rows of a table, whose column ``step`` says to which step one belongs: that is up to the row alone."""

    def __init__(self, options: SourceOptions, base: Path, columns: Sequence[str]) -> None:
        self.options = options
        self.own: OwnKeys = options.own
        self._file, self._columns = base / str(options.database), list(columns)

    @property
    def position(self) -> dict[str, int]:
        """Nothing: a step can be asked for again."""
        return {}

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """A step without rows is a step, too."""
        asked = (
            f"SELECT {', '.join(self._columns)} FROM {self.options.table} WHERE step = ? AND {self.own.valid}"
        )
        grid = self.options.grid
        with sqlite3.connect(f"file:{self._file}?mode=ro", uri=True) as file:
            for step in range(start_step, (self.options.final_step() or 0) + 1):
                rows = file.execute(asked, (step,)).fetchall()
                table = {name: [row[i] for row in rows] for i, name in enumerate(self._columns)}
                yield StepInput(step, grid.batch_id(step), None, pa.table(table), None)


class SqliteTable(Target):
    """One row for every released record, with its step; and the hash of each step's manifest."""

    takes: TakesTables = "whole"

    def __init__(self, database: str | None, table: str) -> None:
        self._file, self._table = sqlite3.connect(str(database)), table
        self._file.execute(f"CREATE TABLE IF NOT EXISTS {table} (step INTEGER, record TEXT)")
        self._file.execute("CREATE TABLE IF NOT EXISTS steps (step INTEGER PRIMARY KEY, manifest TEXT)")

    def have(self, stream_id: str) -> dict[int, str]:
        """What it remembers."""
        return dict(self._file.execute("SELECT step, manifest FROM steps").fetchall())

    def put(self, files: StepFiles, *, mend: bool = False) -> None:
        """In one transaction; the same step again changes nothing."""
        with self._file:
            self.withdraw(files.step, (), {})
            rows = [(files.step, str(row)) for row in files.part("table").to_pylist()]
            self._file.executemany(f"INSERT INTO {self._table} VALUES (?, ?)", rows)
            digest = hashlib.sha256(files.manifest_bytes).hexdigest()
            self._file.execute("INSERT OR REPLACE INTO steps VALUES (?, ?)", (files.step, digest))

    def compare(self, asked: Comparison) -> Differences:
        """Which steps are missing."""
        return {(step, self._table): "missing" for step in asked.committed if step not in self.have("")}

    def withdraw(self, step: int, gone: Collection[str], staying: Mapping[str, bytes]) -> None:
        """Lose the rows, and keep the hash."""
        self._file.execute(f"DELETE FROM {self._table} WHERE step = ?", (step,))


SOURCE = SourceKind(
    SqliteSource,
    keys=("database", "table", "start", "end"),
    needed=("database", "table"),
    public=("the table is trusted to hold each record in one row, which no other record moves",),
    options=OwnKeys,
    movable=("journal",),
)
SINK = SinkKind(SqliteTable)
