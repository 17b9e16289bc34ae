"""A table of a DuckDB file, for ``dpstream init``: its first rows, and the query that the draft writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.io.sources.duckdb_file import open_database
from dpstream.project.keyed_draft import Recognised

_WHERE = "table"


@dataclass(frozen=True)
class DatabaseTable:
    """A table or view of a DuckDB file.

    Attributes:
        sample: its first rows; private.
        ordered: whether its rows have an order, which views have not.
    """

    name: str
    sample: Any
    ordered: bool

    def source(
        self, source: Mapping[str, Any], keyed: Recognised | None, calendar: Mapping[str, Any]
    ) -> dict[str, Any]:
        """``[source]`` with a query that reads the table: the rows of each step, or all.

        Args:
            source: the same for a file.
            calendar: periods, where the table is read whole once a step.

        Errors:
            ConfigError: nothing says what of the table is in a step.
        """
        when, columns = source.get("time_column"), self.sample.column_names
        found = {"kind": "duckdb", "database": source["path"]}
        others = {key: value for key, value in source.items() if key != "path"}
        if keyed is not None and keyed.shape != "changes":
            return found | {"query": self.query(columns)} | others | (dict(calendar) if when is None else {})
        if when is None:
            raise no_steps()
        del others["time_column"]
        shown = [name for name in columns if name != when]
        numbers = "every" not in source
        query = self.query(shown, time_column=when, numbers=numbers, by_key=keyed is not None)
        return found | {"query": query} | others

    def query(
        self,
        columns: Sequence[str],
        *,
        time_column: str | None = None,
        numbers: bool = False,
        by_key: bool = False,
    ) -> str:
        """The SELECT of these columns, of all rows or of the rows of a step.

        Args:
            time_column: says which rows are of a step; None: all are.
            numbers: whether it holds step numbers.
            by_key: the order of the rows of a step counts.
        """
        import pyarrow as pa

        text = f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(self.name)}"
        if time_column is None:
            return text
        when = _quoted(time_column)
        kind = self.sample.schema.field(time_column).type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            when = f"CAST({when} AS {'BIGINT' if numbers else 'TIMESTAMP'})"
        text += f" WHERE {when} >= $1 AND {when} < $2"
        return text + (f" ORDER BY {when}{', rowid' if self.ordered else ''}" if by_key else "")


def read_table(path: str | Path, name: str | None, rows: int) -> DatabaseTable:
    """The first rows of a table; of the only one where none is named.

    Errors:
        ConfigError: there is no such table, or several and none is named; duckdb is not installed.
        UnreadableError: the file is damaged, or another process writes to it. DataError: a view that fails.
    """
    with open_database(Path(path)) as connection:
        found = dict(
            connection.execute(
                "SELECT table_name, table_type = 'BASE TABLE' FROM information_schema.tables "
                "WHERE table_schema = 'main' AND table_catalog = current_database() ORDER BY table_name"
            ).fetchall()
        )
        if name is None and len(found) == 1:
            (name,) = found
        if name is None or name not in found:
            what = (
                f"the database has {counted(len(found), 'table')}"
                if name is None
                else f"there is no table {name!r}"
            )
            raise ConfigError(what, where=_WHERE, allowed="--table NAME, one of the database's own")
        import duckdb

        try:
            answer = connection.sql(f"SELECT * FROM {_quoted(name)} LIMIT {rows}")
            # Older versions of DuckDB have the other name.
            read = getattr(answer, "to_arrow_table", None) or answer.fetch_arrow_table
            return DatabaseTable(name, read(), found[name])
        except duckdb.Error as error:
            # Their messages quote values.
            raise DataError(
                f"the table cannot be read ({type(error).__name__}); DuckDB itself says why",
                where=str(path),
                allowed="a table or view of the file",
            ) from None


def no_steps() -> ConfigError:
    """Nothing says what of a database's table is in a step."""
    return ConfigError(
        "nothing says which rows of the table are in a step",
        where="time column",
        allowed="--time-column COLUMN; or --key-column COLUMN, for the whole table, read once a step",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
