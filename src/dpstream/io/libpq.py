"""Drivers of databases, and sessions with a PostgreSQL server: no message repeats a password or a stored value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.foreign import from_extra

#: Classes of SQLSTATE in which the surroundings fail, and trying again later may work.
_SURROUNDINGS = ("25", "28", "40", "53", "54", "55", "57", "58")
_REASONS = (
    ("password authentication failed", "password refused"),
    ("no password supplied", "password missing"),
    ("does not exist", "unknown database or role"),
    ("no pg_hba.conf entry", "role refused from here"),
    ("too many clients", "too many connections"),
    ("starting up", "starting up"),
    ("shutting down", "shutting down"),
    ("timeout", "no answer in time"),
)


def connection_settings(url: str, where: str) -> dict[str, Any]:
    """The connection parameters in a URL of libpq, with time limits that notice a dead network in about a minute.

    Errors:
        ConfigError: the URL cannot be read. The message does not repeat it, because it may hold a password.
    """
    with from_extra("postgres", where):
        import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = dict(conninfo_to_dict(url))
        [
            int(port) for port in str(given.get("port") or 0).split(",") if port
        ]  # libpq looks at it on connecting only
    except (psycopg.Error, ValueError):
        raise ConfigError(
            "unreadable database URL (write @ : / in names as %40 %3A %2F)",
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


def quoted(name: str) -> str:
    """Quote an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


#: Of a server that is not reached, a connection that is lost, a right that is denied, surroundings that fail, all else:
#: the exception, its words ({} stands for the name of the error), and what is allowed.
How = Literal["unreached", "lost", "denied", "away", "unreadable"]
Refusals = Mapping[How, tuple[type[DpstreamError], str, str | None]]


def refusal(refusals: Refusals, how: How, name: str, where: str) -> DpstreamError:
    """The exception for an error of a server, in words of dpstream's."""
    kind, what, allowed = refusals[how]
    return kind(what.format(name), where=where, allowed=allowed)


class PostgresSession:
    """One connection. Its errors repeat no message of libpq or of the server, for these quote values."""

    refusals: ClassVar[Refusals]

    def __init__(self, url: str, where: str, key: str, settings: Sequence[str]) -> None:
        """
        Args:
            where: names the database in messages; holds no password.
            key: of the configuration that has the URL.
            settings: statements that every session begins with.
        """
        self.where = where
        with from_extra("postgres", key):
            import psycopg
        self._driver: Any = psycopg
        parameters = connection_settings(url, key)
        try:
            self._connection: Any = self._driver.connect(**parameters, autocommit=True)
        except self._driver.Error as error:
            raise self._refusal("unreached", failure(error)) from None
        try:
            with self.errors():
                for setting in settings:
                    self._connection.execute(setting.encode())
                self._set_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate the server's errors into dpstream's, without their texts."""
        try:
            yield
        except self._driver.Error as error:
            raise self._translated(error) from None

    def _set_up(self) -> None:
        """Look at the server, once its settings are made."""

    def _translated(self, error: Any) -> DpstreamError:
        state = error.sqlstate or ""
        name = f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__
        if self._connection.closed or state.startswith(("08", "57P")):
            return self._refusal("lost", name)
        if state == "42501":
            return self._refusal("denied", name)
        return self._refusal("away" if not state or state.startswith(_SURROUNDINGS) else "unreadable", name)

    def _refusal(self, how: How, name: str) -> DpstreamError:
        return refusal(self.refusals, how, name, self.where)
