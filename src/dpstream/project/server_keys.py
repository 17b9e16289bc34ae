"""The keys of ``[source]`` that read a PostgreSQL server."""

from __future__ import annotations

from dpstream.core.contracts import Key
from dpstream.core.contracts.options import TEXT

__all__ = ["SERVER_KEYS"]

_BOTH = "only for kind = postgres and postgres-changes"
_TABLE = "only for kind = postgres"
_CHANGES = "only for kind = postgres-changes"

SERVER_KEYS: tuple[Key, ...] = (
    Key(
        "source",
        "url",
        "a URL of libpq without a password, such as postgresql://user@host:5432/database",
        "not set",
        _BOTH,
        "The server with the private table. A password is in PGPASSWORD, a password file or a service file.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "url_env",
        "the name of an environment variable, in the place of url",
        "not set",
        _BOTH,
        "The variable that holds the URL; there it may hold a password.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "table",
        "a name as the catalog has it, with its schema where that is not public",
        "not set",
        _BOTH,
        "The table, or (kind = postgres) a view.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "wait",
        '"0 minutes", "30 minutes", "6 hours"',
        "10 minutes",
        _TABLE,
        "How long a reading waits for transactions that were open when it began. After that the run stops, and "
        "nothing was spent.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "xid_column",
        "a column of the type xid8 with DEFAULT pg_current_xact_id()",
        "not set",
        _TABLE,
        "The number of the transaction that added a row. Without it the server's own number is used, which "
        'changes when a row or the table is rewritten; so `late = "next-step"` needs the column.',
        fragment=TEXT,
    ),
    Key(
        "source",
        "slot",
        "the name of a logical replication slot of the plugin pgoutput",
        "not set",
        _CHANGES,
        "Keeps the changes until they are in durable steps. Nobody else may use it.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "publication",
        "the name of a publication that sends the table",
        "not set",
        _CHANGES,
        "Says what the server sends: inserts, updates, deletes and truncations of the table.",
        fragment=TEXT,
    ),
)
