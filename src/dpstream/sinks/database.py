"""The newest release as a table of a database: DuckDB and PostgreSQL.

Guarantee: a release and the note that it is there (its step is the primary key of ``<table>_steps``) become
visible in one transaction; the same release again changes nothing. Public data only.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpstream import durable
from dpstream.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.sinks.feed import Piece
from dpstream.tables.changes import DELETE, ID, INSERT, OP

__all__ = ["DatabaseFeed", "DuckDBFeed", "PostgresFeed"]


class DatabaseFeed(ABC):
    """Keeps ``table`` equal to the newest release. Where records persist, only what changes is written.

    ``<table>_steps`` says for every step which release it was and its ``state``: ``current`` (the table holds it),
    ``past``, ``waiting`` (changes came without the table before them: the table follows with the next full one)
    or ``withdrawn``.

    Errors (all methods):
        StoreError: the database cannot be used. StoreDamagedError: it holds another stream, or another release.
        ConfigError: the driver is not installed.
    """

    #: What is installed with ``dpstream[...]``.
    extra: str

    def __init__(self, where: str, table: str) -> None:
        self._where = where
        self._table = f'"{table}"'
        self._steps = f'"{table}_steps"'

    @abstractmethod
    def _connect(self) -> Any:
        """A connection that commits only where it is told to."""

    @abstractmethod
    def _failures(self) -> type[Exception]:
        """The driver's base exception."""

    @abstractmethod
    def _insert(self, db: Any, rows: Any) -> None:
        """Add the rows of a pyarrow Table to the table."""

    def _exists(self) -> bool:
        return True

    def _run(self, db: Any, text: str, values: Sequence[Any] = ()) -> Any:
        return db.execute(text, list(values)) if values else db.execute(text)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        try:
            db = self._connect()
            try:
                self._run(db, "BEGIN")
                self._run(
                    db,
                    f"CREATE TABLE IF NOT EXISTS {self._steps} (step BIGINT PRIMARY KEY, stream_id TEXT NOT NULL, "
                    "manifest_sha256 TEXT NOT NULL, state TEXT NOT NULL)",
                )
                yield db
                durable.commit(db)
            finally:
                db.close()  # without a commit nothing took effect
        except ImportError:
            raise ConfigError(
                "the database's driver is not installed",
                where="output",
                allowed=f"pip install 'dpstream[{self.extra}]'",
            ) from None
        except self._failures() as error:
            raise StoreError(
                f"the database could not be used: {_first_line(error)}", where=self._where
            ) from error

    def published(self, stream_id: str) -> dict[int, str]:
        """Every step it was given."""
        if not self._exists():
            return {}
        with self._transaction() as db:
            rows = self._run(db, f"SELECT step, stream_id, manifest_sha256 FROM {self._steps}").fetchall()
        self._require_owner(stream_id, {row[1] for row in rows})
        return {int(step): str(digest) for step, _, digest in rows}

    def publish(self, piece: Piece) -> None:
        """Make the table hold this release."""
        digest = hashlib.sha256(piece.manifest_bytes).hexdigest()
        stream_id = str(piece.manifest["stream_id"])
        with self._transaction() as db:
            known = self._row(db, "WHERE step = ?", piece.step)
            newest = self._row(db, "ORDER BY step DESC LIMIT 1")
            self._require_owner(stream_id, {row[1] for row in (known, newest) if row is not None})
            if known is not None:
                if known[2] != digest:
                    raise StoreDamagedError(
                        f"another release of step {piece.step} is in the database", where=self._where
                    )
                return
            newer = (
                newest is not None and newest[0] > piece.step
            )  # approved late: the table holds a newer release
            before = self._row(db, "WHERE step = ?", piece.step - 1)
            follows = before is not None and before[3] == "current"
            state = "past" if newer else self._update(db, piece, follows)
            if state == "current":
                self._run(
                    db,
                    f"UPDATE {self._steps} SET state = 'past' WHERE step = "
                    f"(SELECT max(step) FROM {self._steps} WHERE state = 'current')",
                )
            self._run(
                db, f"INSERT INTO {self._steps} VALUES (?, ?, ?, ?)", (piece.step, stream_id, digest, state)
            )

    def withdraw(self, step: int) -> None:
        """Empty the table where it holds this step."""
        with self._transaction() as db:
            row = self._row(db, "WHERE step = ?", step)
            if row is None:
                return
            if row[3] == "current":
                self._run(db, f"DELETE FROM {self._table}")
            self._run(db, f"UPDATE {self._steps} SET state = 'withdrawn' WHERE step = ?", (step,))

    def _row(self, db: Any, which: str, *values: int) -> tuple[int, str, str, str] | None:
        """One note: step, stream, hash, state. No more of them are read at a step, however many there are; opening
        looks at all (``published``)."""
        found = self._run(
            db, f"SELECT step, stream_id, manifest_sha256, state FROM {self._steps} {which}", values
        ).fetchall()
        return found[0] if found else None

    def _update(self, db: Any, piece: Piece, follows: bool) -> str:
        # The table of a panel is wide: a new period is a new column, and the table is written anew.
        changes = piece.part("changes") if follows and not piece.is_panel else None
        if changes is not None:
            rows = changes.to_pydict()
            gone = [one for one, op in zip(rows[ID], rows[OP], strict=True) if op == DELETE]
            self._delete(db, gone)
            come = [op == INSERT for op in rows[OP]]
            self._insert(db, changes.filter(come).drop_columns([OP]))
            return "current"
        table = piece.part("table")
        if table is None:
            return "waiting"
        self._run(db, f"DROP TABLE IF EXISTS {self._table}")
        columns = ", ".join(f"{_quoted(field.name)} {_sql_type(field)}" for field in table.schema)
        self._run(db, f"CREATE TABLE {self._table} ({columns})")
        self._insert(db, table)
        return "current"

    def _delete(self, db: Any, ids: list[int]) -> None:
        if ids:
            self._run(db, f"DELETE FROM {self._table} WHERE {ID} = ANY(?)", (ids,))

    def _require_owner(self, stream_id: str, owners: set[str]) -> None:
        if owners - {stream_id}:
            raise StoreDamagedError(
                "the table belongs to another stream",
                where=self._where,
                allowed="the state it was made from, or a table of its own for each stream",
            )


class DuckDBFeed(DatabaseFeed):
    """A table of a DuckDB file, which is opened for each release only: readers may open it in between."""

    extra = "duckdb"

    def __init__(self, path: Path, *, table: str = "synthetic") -> None:
        super().__init__(str(path), table)
        self._path = path

    def _exists(self) -> bool:
        return self._path.exists()

    def _connect(self) -> Any:
        import duckdb

        self._path.parent.mkdir(parents=True, exist_ok=True)
        return duckdb.connect(str(self._path))

    def _failures(self) -> type[Exception]:
        import duckdb

        failures: type[Exception] = duckdb.Error
        return failures

    def _insert(self, db: Any, rows: Any) -> None:
        db.register("incoming", rows)
        self._run(db, f"INSERT INTO {self._table} SELECT * FROM incoming")
        db.unregister("incoming")


class PostgresFeed(DatabaseFeed):
    """A table of a PostgreSQL database; readers see the old release or the new one, never a mixture."""

    extra = "postgres"

    def __init__(self, conninfo: str, *, table: str = "synthetic") -> None:
        super().__init__("postgresql", table)
        self._conninfo = conninfo

    def _connect(self) -> Any:
        import psycopg

        # Transactions are begun and committed by hand, so that the commit is the one durable call.
        return psycopg.connect(self._conninfo, autocommit=True, connect_timeout=30)

    def _failures(self) -> type[Exception]:
        import psycopg

        return psycopg.Error

    def _run(self, db: Any, text: str, values: Sequence[Any] = ()) -> Any:
        return db.execute(text.replace("?", "%s"), list(values)) if values else db.execute(text)

    def _insert(self, db: Any, rows: Any) -> None:
        with db.cursor() as cursor, cursor.copy(f"COPY {self._table} FROM STDIN") as copy:
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                copy.write_row(row)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sql_type(field: Any) -> str:
    import pyarrow as pa

    if field.name == ID:
        return "BIGINT PRIMARY KEY"
    kind = field.type
    if pa.types.is_integer(kind):
        return "BIGINT"
    if pa.types.is_floating(kind):
        return "DOUBLE PRECISION"
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_date(kind):
        return "DATE"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP WITH TIME ZONE" if kind.tz else "TIMESTAMP"
    return "TEXT"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
