"""Connections to a PostgreSQL server, and messages about failed ones that repeat no password and no stored value."""

from __future__ import annotations

from typing import Any

from dpstream.core.errors import ConfigError

_REASONS = (
    ("password authentication failed", "the server refuses the password"),
    ("no password supplied", "the server wants a password, and none was given"),
    ("does not exist", "the server knows no such database or role"),
    ("no pg_hba.conf entry", "the server does not let this role in from here"),
    ("too many clients", "the server has no connection left"),
    ("starting up", "the server is starting up"),
    ("shutting down", "the server is shutting down"),
    ("timeout", "the server did not answer in time"),
)


def driver(where: str) -> Any:
    """The module psycopg.

    Errors:
        ConfigError: it is not installed.
    """
    try:
        import psycopg
    except ImportError:
        raise ConfigError(
            "PostgreSQL needs the package psycopg", where=where, allowed="pip install 'dpstream[postgres]'"
        ) from None
    return psycopg


def connection_settings(url: str, where: str) -> dict[str, Any]:
    """The connection parameters in a URL of libpq, with time limits that notice a dead network in about a minute.

    Errors:
        ConfigError: the URL cannot be read. The message does not repeat it, because it may hold a password.
    """
    psycopg = driver(where)
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = dict(conninfo_to_dict(url))
        [
            int(port) for port in str(given.get("port") or 0).split(",") if port
        ]  # libpq looks at it on connecting only
    except (psycopg.Error, ValueError):
        raise ConfigError(
            "the URL of the database cannot be read (signs such as @ : / in names are written as %40 %3A %2F)",
            where=where,
            allowed="postgresql://user@host:5432/database",
        ) from None
    return {
        "connect_timeout": 10,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,  # what was sent and not acknowledged: keepalives do not look at it
        "application_name": "dpstream",
        **given,
        "client_encoding": "utf8",
    }


def failure(error: Exception) -> str:
    """Why a server could not be reached, in one of dpstream's own sentences, never in libpq's text."""
    text = str(error)
    return next((ours for theirs, ours in _REASONS if theirs in text), "the server cannot be reached")
