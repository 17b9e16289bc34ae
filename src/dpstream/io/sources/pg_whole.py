"""All rows of a PostgreSQL table, view or query as they are when it is read, in one transaction that only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dpstream.core.errors import ConfigError, DataError, DpstreamError, counted
from dpstream.core.schema.arrow import first_repeated
from dpstream.io.sources.pg_session import Session, quoted, text_schema, text_table
from dpstream.io.sources.query import split_records
from dpstream.io.sources.source_options import SourceOptions

_QUERY = "[source] query"
_WRITES = "25006"
#: Classes of SQLSTATE in which the text of a query is wrong; no row was read yet.
_BAD_QUERY = ("42", "0A")
#: A role without the right to read.
_DENIED = "42501"
#: Types of columns whose largest value is called infinity, and what their cells are as text.
_TIMES = {
    1082: "NULLIF({0}, 'infinity')::text",  # date
    1114: "NULLIF({0}, 'infinity')::text",  # timestamp
    1184: "(NULLIF({0}, 'infinity') AT TIME ZONE 'UTC')::text",  # timestamp with time zone
}


class WholeTable:
    """What ``[source]`` names on a PostgreSQL server: ``table`` (also a view), or the answer to ``query``.

    Guarantee: every row that is committed when the transaction begins is read, and nothing is written.

    Errors: those of ``Session``. ConfigError: the query is no single SELECT, has parameters that nobody
    has a value for, or names what is not there. DataError: a column is missing.
    """

    def __init__(
        self, options: SourceOptions, columns: Sequence[str], *, parameters: Sequence[int], allowed: str
    ) -> None:
        """
        Args:
            columns: those of the schema; only these, the key and the times leave the server. Empty: all do.
            parameters: how many parameters the query may have.
            allowed: the sentence that says so.
        """
        self._options = options
        self._times = [name for name in (options.time_column, options.delete_time_column) if name is not None]
        self._marks = [*self._times, str(options.key_column)]
        self._columns, self._counts, self._allowed = columns, parameters, allowed

    @property
    def where(self) -> str:
        """What is read, for messages."""
        options = self._options
        return "PostgreSQL, query" if options.table is None else f"PostgreSQL, table {options.table}"

    def look(self) -> None:
        """That the table and its columns are there, and that the query can be asked, without reading a row."""
        with _QuerySession(self._options, self._allowed) as session, session.transaction():
            self._asked(session)

    def rows(self, after: str = "") -> Any:
        """All rows, every value as text. In a column of times, ``infinity`` is a null: it has no end.

        Args:
            after: the value of the query's parameter, if it has one.
        """
        with _QuerySession(self._options, self._allowed) as session, session.transaction():
            query, names, parameters = self._asked(session)
            schema = text_schema(names)
            tables = (text_table(block, schema) for block in session.answer(query, [after] * parameters))
            return split_records(schema.empty_table(), tables, self._options, session.where)[0]

    def _asked(self, session: _QuerySession) -> tuple[str, list[str], int]:
        """The SELECT, the names of its columns, and how many parameters it has."""
        options = self._options
        if options.query is None:
            relation = session.relation(str(options.table))
            types, parameters, source, what = relation.types, 0, relation.name, "table"
        else:
            types, parameters = session.describe(options.query)
            source, what = _as_table(options.query), "answer"
            if parameters not in self._counts:
                raise ConfigError(
                    f"the query has {counted(parameters, 'parameter')}", where=_QUERY, allowed=self._allowed
                )
        names = list(dict.fromkeys([*self._columns, *self._marks] if self._columns else types))
        for name in [*names, *self._marks]:
            if name not in types:
                raise DataError(
                    f"there is no column {name!r}",
                    where=session.where,
                    allowed=f"a column of the {what}, which has {counted(len(types), 'column')}",
                )
        return (
            f"SELECT {', '.join(self._cell(name, types[name]) for name in names)} FROM {source}",
            names,
            parameters,
        )

    def _cell(self, name: str, kind: int) -> str:
        return cell_as_text(quoted(name), kind if name in self._times else None)


class _QuerySession(Session):
    """A session that is asked the owner's own query."""

    def __init__(self, options: SourceOptions, allowed: str) -> None:
        self._query, self._allowed = options.query, allowed
        super().__init__(options)

    def describe(self, query: str) -> tuple[dict[str, int], int]:
        """What a query would answer, without running it: name -> type number of each column, and how many
        parameters it has. Inside ``transaction``."""
        self.rows("SELECT set_config('search_path', 'pg_catalog, public', true)")
        with self.errors():
            self._call("prepare", b"", query.encode())
            try:
                self._call("prepare", b"", f"SELECT * FROM {_as_table(query)}".encode())
            except self._driver.Error as error:
                if not (error.sqlstate or "").startswith(_BAD_QUERY):
                    raise
                raise ConfigError(
                    "the query is no SELECT, or it writes", where=_QUERY, allowed=self._allowed
                ) from None
            answer = self._call("describe_prepared", b"")
        names = [answer.fname(number).decode() for number in range(answer.nfields)]
        if first_repeated(names) is not None:
            raise ConfigError(
                "two columns have the same name", where=_QUERY, allowed="each name once (AS gives another)"
            )
        return {name: answer.ftype(number) for number, name in enumerate(names)}, answer.nparams

    def answer(
        self, statement: str, texts: Sequence[str], size: int = 2**14
    ) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of one SELECT in blocks, with values for ``$1``, ...; inside ``transaction``.

        libpq's extended protocol takes a single statement, whatever its text says, and a cursor takes a SELECT only.
        """
        with self.errors():
            declare = f"DECLARE dpstream NO SCROLL CURSOR FOR {statement}".encode()
            self._call("exec_params", declare, [text.encode() for text in texts])
            fetch = f"FETCH FORWARD {size} FROM dpstream".encode()
            while block := self._connection.execute(fetch).fetchall():
                yield block

    def _call(self, name: str, *arguments: Any) -> Any:
        """A call of libpq that psycopg has no method for, with psycopg's errors."""
        answer = getattr(self._connection.pgconn, name)(*arguments)
        words = self._driver.pq
        if answer.status not in (words.ExecStatus.COMMAND_OK, words.ExecStatus.TUPLES_OK):
            state = (answer.error_field(words.DiagnosticField.SQLSTATE) or b"").decode()
            try:
                raise self._driver.errors.lookup(state)()
            except KeyError:  # no number: the connection was lost
                raise self._driver.OperationalError() from None
        return answer

    def _translated(self, error: Any) -> DpstreamError:
        state = error.sqlstate or ""
        if state == _WRITES:
            return ConfigError("what is asked for would write", where=_QUERY, allowed=self._allowed)
        if self._query is not None and state.startswith(_BAD_QUERY) and state != _DENIED:
            name = f"{type(error).__name__}, SQLSTATE {state}"
            return ConfigError(
                f"PostgreSQL refuses the query ({name}); run it there to see why",
                where=_QUERY,
                allowed=self._allowed,
            )
        return super()._translated(error)


def cell_as_text(column: str, kind: int | None) -> str:
    """SQL for the cells of a column as texts; of a type of times, ``infinity`` is a null: there is no end.

    Args:
        column: its name, quoted.
        kind: the number of its type; None: whatever type, without times.
    """
    pattern = "{0}::text" if kind is None else _TIMES.get(kind, "{0}::text")
    return pattern.format(column)


def _as_table(query: str) -> str:
    """A query as a table that another one reads."""
    return f"(\n{query.strip().rstrip(';')}\n) AS answer"
