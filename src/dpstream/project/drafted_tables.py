"""Tables that ``dpstream init`` drafts from: one of a DuckDB file or of a PostgreSQL server, with the source that the
draft names; and the period columns of a table with one row a person, numbered ones and ones called after dates.

Trusted base: owner (drafts from private records).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.io.libpq import quoted
from dpstream.io.sources.pg_session import Session, cell_as_text, text_schema, text_table
from dpstream.io.sources.query import open_database
from dpstream.io.sources.source_keys import SourceKeys
from dpstream.project.column_draft import is_text, words_in
from dpstream.project.keyed_draft import Recognised
from dpstream.project.reader import refuse_password

_WHERE = "table"


@dataclass(frozen=True)
class DatabaseTable:
    """A table or view of a DuckDB file, or of a PostgreSQL server.

    Attributes:
        sample: its first rows (of a server every value is a text); private.
        address: ``kind`` and ``database``, ``url`` or ``url_env`` of ``[source]``.
        ordered: whether its rows have an order, which those of views and of servers have not.
    """

    name: str
    sample: Any
    address: Mapping[str, str]
    ordered: bool = False

    def source(
        self, source: Mapping[str, Any], keyed: Recognised | None, calendar: Mapping[str, Any]
    ) -> dict[str, Any]:
        """``[source]`` for this table.

        Args:
            source: the same for a file.
            calendar: periods, where the table is read whole once a step.

        Errors:
            ConfigError: nothing says what of the table is in a step, or a feed by key needs an order of the rows.
        """
        when, others = source.get("time_column"), {key: source[key] for key in source if key != "path"}
        server, feed = self.address["kind"] == "postgres", keyed is not None and keyed.shape == "changes"
        if server and feed:
            raise ConfigError(
                "a feed of changes by key needs an order, which rows of PostgreSQL lack",
                where=_WHERE,
                allowed='the changed table (kind = "postgres-changes" reads its log); or --mechanism pooled, where '
                "each row is a record",
            )
        by_rows = keyed is None or feed
        if when is None and by_rows:
            raise ConfigError(
                "nothing says which rows are in a step",
                where="time column",
                allowed="--time-column COLUMN; or --key-column COLUMN, for the whole table at each step",
            )
        numbers = when is not None and "every" not in source
        if server and keyed is None and numbers:
            raise ConfigError(
                f"column {when!r} holds numbers, and a PostgreSQL table needs a calendar",
                where="time column",
                allowed="a column of dates or times",
            )
        if server:
            rows = {"table": self.name}
        elif not by_rows:
            rows = {"query": self._query(self.sample.column_names)}
        else:
            del others["time_column"]
            rows = {"query": self._query_of_step(str(when), numbers=numbers, by_key=feed)}
        return {**self.address, **rows, **others, **(calendar if when is None else {})}

    def _query(self, columns: Sequence[str]) -> str:
        return f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(self.name)}"

    def _query_of_step(self, time_column: str, *, numbers: bool, by_key: bool) -> str:
        """The SELECT of the rows of a step.

        Args:
            time_column: says which rows these are; it holds step ``numbers``, or days.
            by_key: the order of the rows counts.
        """
        text = self._query([name for name in self.sample.column_names if name != time_column])
        when = _quoted(time_column)
        if is_text(self.sample.column(time_column)):
            when = f"CAST({when} AS {'BIGINT' if numbers else 'TIMESTAMP'})"
        order = f" ORDER BY {when}{', rowid' if self.ordered else ''}" if by_key else ""
        return f"{text} WHERE {when} >= $1 AND {when} < $2{order}"


def read_table(path: str | Path, name: str | None, rows: int, shown: str) -> DatabaseTable:
    """The first rows of a table; of the only one where none is named.

    Args:
        shown: what ``[source] database`` says.

    Errors:
        ConfigError: an unknown table, or several of which none is named; duckdb is not installed.
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
                else f"unknown table {name!r}"
            )
            raise ConfigError(what, where=_WHERE, allowed="--table NAME")
        import duckdb

        try:
            answer = connection.sql(f"SELECT * FROM {_quoted(name)} LIMIT {rows}")
            # Older versions of DuckDB have the other name.
            read = getattr(answer, "to_arrow_table", None) or answer.fetch_arrow_table
            return DatabaseTable(name, read(), {"kind": "duckdb", "database": shown}, found[name])
        except duckdb.Error as error:
            # Their messages quote values.
            raise DataError(
                f"the table cannot be read ({type(error).__name__}); DuckDB itself says why",
                where=str(path),
                allowed="a table or view of the file",
            ) from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_TABLES = """
SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1, 2 LIMIT 2
"""


def read_server_table(url: str | None, url_env: str | None, name: str | None, rows: int) -> DatabaseTable:
    """The first rows of a table, as the server gives them; of the only table where none is named.

    Errors:
        ConfigError: a URL with a password, no such table, or several and none is named; psycopg is not installed.
        UnreadableError: the server cannot be reached. DataError: a view that fails.
    """
    import pyarrow as pa

    if url is not None:
        refuse_password(url, "init", "--url-env NAME")
    with (
        Session(SourceKeys(kind="postgres", url=url, url_env=url_env, table=name)) as session,
        session.transaction(),
    ):
        if name is None:
            tables = session.rows(_TABLES)
            if len(tables) != 1:
                many = counted(len(tables), "table") if len(tables) < 2 else "several tables"
                raise ConfigError(
                    f"the database has {many}",
                    where="table",
                    allowed="--table NAME, or SCHEMA.NAME",
                )
            name = tables[0][1] if tables[0][0] == "public" else ".".join(tables[0])
        relation = session.relation(name)
        schema = text_schema(list(relation.types))
        cells = ", ".join(cell_as_text(quoted(one), kind) for one, kind in relation.types.items())
        query = f"SELECT {cells} FROM {relation.name} LIMIT {int(rows)}"
        blocks = [text_table(block, schema) for block in session.stream(query)]
    address = {"kind": "postgres"} | ({"url": url} if url is not None else {"url_env": str(url_env)})
    return DatabaseTable(name, pa.concat_tables([schema.empty_table(), *blocks]), address)


#: A year; perhaps a quarter, a week or a month of it; perhaps a day.
_DATED = re.compile(
    r"(.*?)(?<![0-9])((?:19|20)[0-9]{2})([-_./ ]?)(Q[1-4]|W[0-5][0-9]|0[1-9]|1[0-2])?(?:\3(0[1-9]|[12][0-9]|3[01]))?"
    r"(?![0-9])(.*)",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,5})([^0-9]*)")
#: So many columns that are called after dates are a panel without anybody saying so.
_MANY = 3


@dataclass(frozen=True)
class Periods:
    """The columns of the periods.

    Attributes:
        columns: their names, in order.
        template: ``[source] period_columns``: a text with ``{period}``, or the names.
        variable: what the released column is called.
    """

    columns: tuple[str, ...]
    template: str | tuple[str, ...]
    variable: str

    def values(self, table: Any) -> Any:
        """What people report, of all periods."""
        import pyarrow as pa

        columns = [table.column(name) for name in self.columns]
        same = [column for column in columns if column.type == columns[0].type]
        return pa.chunked_array([chunk for column in same for chunk in column.chunks], columns[0].type)


def periods_of(table: Any, person_column: str) -> Periods:
    """The longest run of period columns of a table with one row a person.

    Errors:
        ConfigError: there is none.
    """
    names = [name for name in table.column_names if name != person_column]
    runs = [run for run in (*_dated(names), *_numbered(names)) if len(run.columns) > 1]
    single = [run for run in _numbered(names) if run.template != run.columns]
    if not (runs or single):
        raise ConfigError(
            "no columns are named as periods",
            where="person column",
            allowed="columns such as m1, m2, ... or 2005-04, 2005-05, ...; or a time column",
        )
    return max(runs or single, key=lambda run: len(run.columns))


def dated_panel(table: Any, keys: Sequence[str]) -> str | None:
    """The column that says who a row is, of a table whose columns but one are called after dates; else None.

    Args:
        keys: columns that may say it.
    """
    whole = max(_dated(table.column_names), key=lambda run: len(run.columns), default=None)
    if whole is None or len(whole.columns) < _MANY:
        return None
    others = set(table.column_names) - set(whole.columns)
    for key in keys:
        column = table.column(key)
        if others == {key} and not column.null_count and len(column.unique()) == len(column):
            return key
    return None


def _dated(names: Sequence[str]) -> list[Periods]:
    runs: dict[tuple[Any, ...], dict[tuple[str, ...], str]] = {}
    for name in names:
        match = _DATED.fullmatch(name)
        if match:
            before, year, between, part, day, after = match.groups(default="")
            kind = (before, after, between, part[:1].upper() if part[:1].isalpha() else bool(part), bool(day))
            runs.setdefault(kind, {})[year, part.upper(), day] = name
    found = []
    for (before, *_), run in runs.items():
        columns = tuple(run[when] for when in sorted(run))
        found.append(Periods(columns, columns, _variable(before)))
    return found


def _numbered(names: Sequence[str]) -> list[Periods]:
    runs: dict[tuple[str, str], dict[int, str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match:
            runs.setdefault((match[1], match[3]), {})[int(match[2])] = name
    found = []
    for (before, after), run in runs.items():
        columns = tuple(run[number] for number in sorted(run))
        template: str | tuple[str, ...] = columns
        if sorted(run) == list(range(1, len(run) + 1)):
            digits = len(run[1]) - len(before) - len(after)
            period = "{period}" if digits == 1 else f"{{period:0{digits}}}"
            if all(len(run[n]) - len(before) - len(after) == max(digits, len(str(n))) for n in run):
                template = f"{before}{period}{after}"
        found.append(Periods(columns, template, _variable(before)))
    return found


def _variable(before: str) -> str:
    """What stands before the period without what joins them; never the period itself, or a part of it."""
    name = re.sub(r"[^A-Za-z0-9]+$", "", before)
    return name if any(any(c.isalpha() for c in word) for word in words_in(name)) else "value"
