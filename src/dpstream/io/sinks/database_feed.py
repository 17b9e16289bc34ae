"""The newest release as a table of a DuckDB or PostgreSQL database.

Guarantee: a release and its row in ``<table>_steps`` (whose primary key is the step) become visible in one transaction.
Publishing the same release again changes nothing. What was written is read back over another connection before a
release counts as published. Public data only.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.core.paths import sha256_hex
from dpstream.io.libpq import connection_settings, failure, quoted
from dpstream.io.sinks.change_tables import DELETE, ID, INSERT, OP, UPDATE, content_sha256
from dpstream.io.sinks.target import MANIFEST, Comparison, Differences, StepFiles, TakesTables, Target

#: Seconds that PostgreSQL waits for a table that another session has locked.
LOCK_SECONDS = 10
#: The bytes that mark a DuckDB file, and where they are.
_WRITES = "a database that accepts writes"
_MAGIC, _MAGIC_AT = b"DUCK", 8


class DatabaseFeed(Target):
    """Keeps ``table`` equal to the newest release. Where records persist, only changed rows are written.

    ``<table>_steps`` has a row for every step, with the hash of its manifest and its ``state``: ``current`` (the table
    holds this step), ``past``, ``withdrawn``, or ``waiting`` (the release has changes only, and the table does not hold
    the step before; the next full release fills it).

    Errors (all methods):
        StoreError: the database cannot be used. StoreDamagedError: it holds another stream, or another release of a
        step. ConfigError: the driver is not installed.
    """

    takes: TakesTables = "whole"
    #: The extra of the package that installs the driver: ``dpstream[...]``.
    extra: str

    def __init__(self, where: str, table: str) -> None:
        self._where = where
        self._name = table
        self._table = f'"{table}"'
        self._steps = f'"{table}_steps"'

    @abstractmethod
    def _connect(self, *, read_only: bool = False) -> Any:
        """A connection that commits only on an explicit COMMIT."""

    @abstractmethod
    def _failures(self) -> type[Exception]:
        """The driver's base exception."""

    def _why(self, error: Exception) -> tuple[str, str]:
        """The reason for a message, and what to do: without the driver's own text, which may quote a password or a
        cell."""
        return f"database error: {type(error).__name__}", _WRITES

    @abstractmethod
    def _replace(self, db: Any, rows: Any) -> None:
        """Make the table hold the rows of a pyarrow Table, and nothing else."""

    @abstractmethod
    def _insert(self, db: Any, rows: Any) -> None:
        """Add the rows of a pyarrow Table to the table."""

    @abstractmethod
    def _change(self, db: Any, rows: Any) -> None:
        """Give records of the table, by their ids, the values of a pyarrow Table."""

    @abstractmethod
    def _rows(self, db: Any, schema: Any) -> Any:
        """The table as a pyarrow Table of this schema, with rows in any order.

        Raises pyarrow's errors where values have other types.
        """

    def _exists(self) -> bool:
        return True

    def _run(self, db: Any, text: str, values: Sequence[Any] = ()) -> Any:
        return db.execute(text, list(values)) if values else db.execute(text)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._connected() as db:
            self._run(db, "BEGIN")
            self._run(
                db,
                f"CREATE TABLE IF NOT EXISTS {self._steps} (step BIGINT PRIMARY KEY, stream_id TEXT NOT NULL, "
                "manifest_sha256 TEXT NOT NULL, state TEXT NOT NULL)",
            )
            yield db
            durable.commit(db)

    @contextmanager
    def _connected(self, *, read_only: bool = False) -> Iterator[Any]:
        try:
            db = self._connect(read_only=read_only)
            try:
                yield db
            finally:
                db.close()  # without a commit nothing took effect
        except ImportError:
            raise ConfigError(
                "database driver missing",
                where="output",
                allowed=f"pip install 'dpstream[{self.extra}]'",
            ) from None
        except self._failures() as error:
            what, allowed = self._why(error)
            raise StoreError(what, where=self._where, allowed=allowed) from None

    def have(self, stream_id: str) -> dict[int, str]:
        """See ``Target``: all steps in ``<table>_steps``."""
        if not self._exists():
            return {}
        with self._transaction() as db:
            rows = self._run(db, f"SELECT step, stream_id, manifest_sha256 FROM {self._steps}").fetchall()
        self._require_owner(stream_id, {row[1] for row in rows})
        return {int(step): str(digest) for step, _, digest in rows}

    def put(self, files: StepFiles, *, mend: bool = False) -> None:
        """See ``Target``: write the release in one transaction, and read it back over another connection.

        A step that the database lost is put back unless a later one is recorded. Its whole table is, unless the table
        holds the step before: so no earlier step is needed, and earlier ones may be withdrawn.
        """
        if mend and self._known(f"WHERE state <> 'withdrawn' AND step >= {int(files.step)}"):
            return
        self._write(files, mend)
        self._read_back(files, mend)

    def compare(self, asked: Comparison) -> Differences:
        """See ``Target``: check that the newest step is recorded, that hashes agree, and that the table is as it should
        be."""
        differences: Differences = {}
        newest = max(asked.committed, default=0)
        known = self._known(read_only=True) if newest else {}
        what = f"table {self._name} of the database"
        for step, (digest, state) in known.items():
            if step not in asked.committed:
                continue
            files = asked.committed[step]
            if digest != asked.digests[step][MANIFEST]:
                differences[step, what] = "changed"
            elif state == "current":
                table = files.whole() if asked.deep else None
                if not self._holds(files.manifest.get("rows_in_table") if table is None else table):
                    differences[step, what] = "changed"
        if newest and newest not in known:
            differences[newest, what] = "missing"
        return differences

    def _write(self, files: StepFiles, mend: bool) -> None:
        digest = sha256_hex(files.manifest_bytes)
        stream_id = str(files.manifest["stream_id"])
        with self._transaction() as db:
            known = self._row(db, "WHERE step = ?", files.step)
            newest = self._row(db, "WHERE state <> 'withdrawn' ORDER BY step DESC LIMIT 1")
            self._require_owner(stream_id, {row[1] for row in (known, newest) if row is not None})
            if known is not None:
                if known[2] != digest:
                    raise StoreDamagedError(
                        f"the database has another release of step {files.step}",
                        where=self._where,
                        allowed="the database of this stream, or another table",
                    )
                return
            # A step that was approved late: the table holds a newer release already.
            newer = newest is not None and newest[0] > files.step
            before = self._row(db, "WHERE step = ?", files.step - 1)
            follows = before is not None and before[3] == "current"
            state = "past" if newer else self._update(db, files, follows, mend)
            if state == "current":
                self._run(
                    db,
                    f"UPDATE {self._steps} SET state = 'past' WHERE step = "
                    f"(SELECT max(step) FROM {self._steps} WHERE state = 'current')",
                )
            self._run(
                db, f"INSERT INTO {self._steps} VALUES (?, ?, ?, ?)", (files.step, stream_id, digest, state)
            )

    def withdraw(self, step: int, gone: Collection[str], staying: Mapping[str, bytes]) -> None:
        """See ``Target``: record a withdrawn step as such, and empty the table if it holds this step. A table that
        expired was replaced by a newer one before."""
        if not staying:
            return
        manifest = staying[MANIFEST]
        with self._transaction() as db:
            row = self._row(db, "WHERE step = ?", step)
            if row is None:
                digest, stream_id = (
                    sha256_hex(manifest),
                    str(json.loads(manifest)["stream_id"]),
                )
                values = (step, stream_id, digest, "withdrawn")
                self._run(db, f"INSERT INTO {self._steps} VALUES (?, ?, ?, ?)", values)
            elif row[3] == "current":
                self._run(db, f"DELETE FROM {self._table}")
            self._run(db, f"UPDATE {self._steps} SET state = 'withdrawn' WHERE step = ?", (step,))

    def _read_back(self, files: StepFiles, mend: bool) -> None:
        """Check over another connection that the release is in the database (StoreError)."""
        known = self._known(f"WHERE step = {int(files.step)}").get(files.step)
        stored = known is not None and known[0] == sha256_hex(files.manifest_bytes)
        if stored and known is not None and known[1] == "current":
            table = files.whole() if mend else files.part("table")
            if table is not None:
                stored = self._holds(table)
            else:  # a release of changes has only the hash of the table after them
                there = self._stored(files.part("changes").drop_columns([OP]).schema)
                digest = files.manifest.get("records", {}).get("content_sha256")
                stored = there is not None and digest in (None, content_sha256(there.sort_by(ID)))
        if not stored:
            raise StoreError(
                f"another connection does not find step {files.step}",
                where=self._where,
                allowed="a database that keeps writes; then run again",
            )

    def _known(self, which: str = "", *, read_only: bool = False) -> dict[int, tuple[str, str]]:
        """The manifest's hash and the state of every recorded step, or of those that a WHERE clause selects."""
        if not self._exists():
            return {}
        with self._connected(read_only=read_only) as db:
            if not self._columns(db, f"{self._name}_steps"):
                return {}
            rows = self._run(db, f"SELECT step, manifest_sha256, state FROM {self._steps} {which}").fetchall()
        return {int(step): (str(digest), str(state)) for step, digest, state in rows}

    def _columns(self, db: Any, table: str) -> set[str]:
        """The columns of a table; empty where the table is missing."""
        where = "table_schema = current_schema() AND table_name = ?"
        rows = self._run(db, f"SELECT column_name FROM information_schema.columns WHERE {where}", (table,))
        return {str(name) for (name,) in rows.fetchall()}

    def _holds(self, expected: Any) -> bool:
        """Whether the table holds what is expected: the rows of a pyarrow Table in any order, a number of rows, or
        (None) anything."""
        if expected is None or isinstance(expected, int):
            with self._connected(read_only=True) as db:
                if not self._columns(db, self._name):
                    return False
                [(rows,)] = self._run(db, f"SELECT count(*) FROM {self._table}").fetchall()
            return expected in (None, rows)
        stored, names = self._stored(expected.schema), expected.column_names
        order = [(name, "ascending") for name in ([ID] if ID in names else names)]
        return stored is not None and bool(stored.sort_by(order).equals(expected.sort_by(order)))

    def _stored(self, schema: Any) -> Any:
        """The table's rows; None where it has other columns or types."""
        import pyarrow as pa

        with self._connected(read_only=True) as db:
            if self._columns(db, self._name) != set(schema.names):
                return None
            try:
                return self._rows(db, schema)
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                return None

    def _row(self, db: Any, which: str, *values: int) -> tuple[int, str, str, str] | None:
        """One row of ``<table>_steps``: step, stream, hash, state. A step reads single rows only; ``published``, at the
        opening of a stream, reads all."""
        rows = self._run(
            db, f"SELECT step, stream_id, manifest_sha256, state FROM {self._steps} {which}", values
        ).fetchall()
        return rows[0] if rows else None

    def _update(self, db: Any, files: StepFiles, follows: bool, mend: bool) -> str:
        # A new period of a panel changes every person's row, so the whole table is rewritten.
        changes = files.part("changes") if follows and not files.has_periods else None
        if changes is not None:
            import pyarrow as pa

            ops, rows = changes.column(OP).to_pylist(), changes.drop_columns([OP])
            gone, changed, come = (
                rows.filter(pa.array([op == word for op in ops], pa.bool_()))  # a step may change nothing
                for word in (DELETE, UPDATE, INSERT)
            )
            if gone.num_rows:
                ids = gone.column(ID).to_pylist()
                self._run(db, f"DELETE FROM {self._table} WHERE {ID} = ANY(?)", (ids,))
            if changed.num_rows:
                self._change(db, changed)
            self._insert(db, come)
            return "current"
        table = files.whole() if mend else files.part("table")
        if table is None:
            return "waiting"
        self._replace(db, table)
        return "current"

    def _create(self, db: Any, schema: Any) -> None:
        columns = ", ".join(f"{quoted(field.name)} {_sql_type(field)}" for field in schema)
        self._run(db, f"CREATE TABLE {self._table} ({columns})")

    def _require_owner(self, stream_id: str, owners: set[str]) -> None:
        if owners - {stream_id}:
            raise StoreDamagedError(
                "the table belongs to another stream",
                where=self._where,
                allowed="the state that made it, or a table for each stream",
            )


class DuckDBFeed(DatabaseFeed):
    """A table of a DuckDB file. The file is open only while a release is written, so readers can open it in between."""

    extra = "duckdb"

    def __init__(self, path: Path, *, table: str = "synthetic") -> None:
        super().__init__(str(path), table)
        self._path = path
        self._refuse_others()

    def _exists(self) -> bool:
        return self._path.exists()

    def _refuse_others(self) -> None:
        """Refuse a file of another format (ConfigError): DuckDB would open a CSV, JSON or Parquet file as a database in
        memory, and store nothing."""
        if not self._path.exists():
            return
        start = b""
        if self._path.is_file():
            with self._path.open("rb") as file:
                start = file.read(_MAGIC_AT + len(_MAGIC))
        if start[_MAGIC_AT:] != _MAGIC:
            raise ConfigError(
                "the file has another format",
                where=self._where,
                allowed="a DuckDB file, or a new path",
            )

    def _connect(self, *, read_only: bool = False) -> Any:
        import duckdb

        self._refuse_others()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return duckdb.connect(str(self._path), read_only=read_only)

    def _failures(self) -> type[Exception]:
        import duckdb

        failures: type[Exception] = duckdb.Error
        return failures

    def _replace(self, db: Any, rows: Any) -> None:
        # Not by deletes and inserts: DuckDB refuses to insert a primary key that the same transaction deleted.
        self._run(db, f"DROP TABLE IF EXISTS {self._table}")
        self._create(db, rows.schema)
        self._insert(db, rows)

    def _insert(self, db: Any, rows: Any) -> None:
        db.register("incoming", rows)
        self._run(db, f"INSERT INTO {self._table} SELECT * FROM incoming")
        db.unregister("incoming")

    def _change(self, db: Any, rows: Any) -> None:
        # Not a delete and an insert: DuckDB refuses to insert a primary key that the same transaction deleted.
        columns = [quoted(name) for name in rows.column_names if name != ID]
        values = ", ".join(f"{name} = incoming.{name}" for name in columns)
        db.register("incoming", rows)
        self._run(
            db, f"UPDATE {self._table} SET {values} FROM incoming WHERE {self._table}.{ID} = incoming.{ID}"
        )
        db.unregister("incoming")

    def _rows(self, db: Any, schema: Any) -> Any:
        names = ", ".join(quoted(name) for name in schema.names)
        return db.sql(f"SELECT {names} FROM {self._table}").to_arrow_table().cast(schema)


class PostgresFeed(DatabaseFeed):
    """A table of a PostgreSQL database. Readers see the old release or the new one, never a mixture.

    The table stays, and with it what readers have made of it: grants, indexes, views. A release with other columns
    than the one before alters it.
    """

    extra = "postgres"

    def __init__(self, conninfo: str, *, table: str = "synthetic") -> None:
        super().__init__("postgresql", table)
        self._conninfo = conninfo

    def _connect(self, *, read_only: bool = False) -> Any:
        import psycopg

        settings = connection_settings(self._conninfo, "[output] database")
        # ``_transaction`` begins and commits itself, so that the commit goes through ``core.durable``.
        return psycopg.connect(**settings, autocommit=True)

    def _failures(self) -> type[Exception]:
        import psycopg

        return psycopg.Error

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with super()._transaction() as db:
            # A session that waits for a reader would keep all other readers waiting behind it.
            db.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            yield db

    def _why(self, error: Exception) -> tuple[str, str]:
        state = getattr(error, "sqlstate", None)
        again = "then run again: the step is committed"
        if state == "55P03":
            return (
                f"another session locks {self._name} for {LOCK_SECONDS} seconds",
                f"end its transaction (see pg_stat_activity), {again}",
            )
        if state == "2BP01":
            return (
                f"a view of {self._name} uses a column that the release lacks",
                f"drop that view, {again}",
            )
        words = failure(error) if state is None else f"{type(error).__name__}, SQLSTATE {state}"
        return f"database error: {words}", _WRITES

    def _run(self, db: Any, text: str, values: Sequence[Any] = ()) -> Any:
        return db.execute(text.replace("?", "%s"), list(values)) if values else db.execute(text)

    def _replace(self, db: Any, rows: Any) -> None:
        # Rows, not the table: its grants, indexes and views are the readers'. And deleting waits for no reader.
        there = self._columns(db, self._name)
        if not there:
            self._create(db, rows.schema)
        else:
            self._run(db, f"DELETE FROM {self._table}")
            gone = [f"DROP COLUMN {quoted(name)}" for name in sorted(there - set(rows.column_names))]
            new = [field for field in rows.schema if field.name not in there]
            come = [f"ADD COLUMN {quoted(field.name)} {_sql_type(field)}" for field in new]
            if gone or come:
                self._run(db, f"ALTER TABLE {self._table} {', '.join([*gone, *come])}")
        self._insert(db, rows)

    def _insert(self, db: Any, rows: Any) -> None:
        # An altered table has its columns in another order.
        names = ", ".join(quoted(name) for name in rows.column_names)
        with db.cursor() as cursor, cursor.copy(f"COPY {self._table} ({names}) FROM STDIN") as copy:
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                copy.write_row(row)

    def _change(self, db: Any, rows: Any) -> None:
        columns = [name for name in rows.column_names if name != ID]
        values = ", ".join(f"{quoted(name).replace('%', '%%')} = %s" for name in columns)
        changed = zip(*(rows.column(name).to_pylist() for name in (*columns, ID)), strict=True)
        with db.cursor() as cursor:
            cursor.executemany(f"UPDATE {self._table} SET {values} WHERE {ID} = %s", list(changed))

    def _rows(self, db: Any, schema: Any) -> Any:
        import pyarrow as pa

        names = ", ".join(quoted(name) for name in schema.names)
        rows = self._run(db, f"SELECT {names} FROM {self._table}").fetchall()
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        return pa.table(
            [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)], schema=schema
        )


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
