"""A table of a PostgreSQL server, for ``dpstream init``: its first rows, and the source that the draft names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpstream.core.errors import ConfigError, counted
from dpstream.io.sources.pg_session import Session, quoted, text_schema, text_table
from dpstream.io.sources.pg_whole import cell_as_text
from dpstream.project.database_draft import no_steps
from dpstream.project.keyed_draft import Recognised
from dpstream.project.server_url import refuse_password

_TABLES = """
SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1, 2 LIMIT 2
"""


@dataclass(frozen=True)
class _Server:
    """What a session has to know."""

    url: str | None
    url_env: str | None
    table: str | None
    wait: str | None = None


@dataclass(frozen=True)
class ServerTable:
    """A table or view of a PostgreSQL server.

    Attributes:
        sample: its first rows, as the server gives them; every value is a text. Private.
        address: ``url`` or ``url_env`` of ``[source]``.
    """

    name: str
    sample: Any
    address: Mapping[str, str]

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
        if keyed is not None and keyed.shape == "changes":
            raise ConfigError(
                "the table is a feed of changes by key, and the rows of a PostgreSQL table have no order",
                where="table",
                allowed='the table that the changes are of (kind = "postgres-changes" reads its log); or --mechanism '
                "pooled, which takes each row as a record of its own",
            )
        found = {"kind": "postgres", **self.address, "table": self.name}
        others = {key: value for key, value in source.items() if key != "path"}
        when = source.get("time_column")
        if when is None and keyed is None:
            raise no_steps()
        if when is None:
            return found | others | dict(calendar)
        if keyed is None and "every" not in source:
            raise ConfigError(
                f"column {when!r} holds numbers, and a PostgreSQL table is cut into steps by a calendar",
                where="time column",
                allowed="a column of dates or times",
            )
        return found | others


def read_server_table(url: str | None, url_env: str | None, name: str | None, rows: int) -> ServerTable:
    """The first rows of a table, as the server gives them; of the only table where none is named.

    Errors:
        ConfigError: a URL with a password, no such table, or several and none is named; psycopg is not installed.
        UnreadableError: the server cannot be reached. DataError: a view that fails.
    """
    import pyarrow as pa

    if url is not None:
        refuse_password(url, "init", "--url-env NAME")
    with Session(_Server(url, url_env, name)) as session, session.transaction():
        if name is None:
            tables = session.rows(_TABLES)
            if len(tables) != 1:
                many = counted(len(tables), "table") if len(tables) < 2 else "several tables"
                raise ConfigError(
                    f"the database has {many}",
                    where="table",
                    allowed="--table NAME, with its schema where that is not public",
                )
            name = tables[0][1] if tables[0][0] == "public" else ".".join(tables[0])
        relation = session.relation(name)
        schema = text_schema(list(relation.types))
        cells = ", ".join(cell_as_text(quoted(one), kind) for one, kind in relation.types.items())
        query = f"SELECT {cells} FROM {relation.name} LIMIT {int(rows)}"
        blocks = [text_table(block, schema) for block in session.stream(query)]
    address = {"url": url} if url is not None else {"url_env": str(url_env)}
    return ServerTable(name, pa.concat_tables([schema.empty_table(), *blocks]), address)
