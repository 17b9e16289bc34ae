"""``url``: the PostgreSQL servers that keep a stream's store and its source."""

from __future__ import annotations

import os
import re

from dpstream.core.errors import ConfigError
from dpstream.project.reader import Section
from dpstream.stream import PostgresServer
from dpstream.stream.store.postgres import schema_name

_HOST = r"(?:[A-Za-z0-9_.%-]*|\[[0-9a-fA-F:.%]+\])(?::[0-9]+)?"
#: No password can hide in what this lets through: no second part before the host, no other sign.
_URL = re.compile(rf"postgres(?:ql)?://(?:[^\s:@/?#]+@)?{_HOST}(?:,{_HOST})*(?:/[^\s?#@:]*)?(?:\?[^\s#@]*)?")
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_HOLDS = "the URL holds a password, or signs that need %XX (it is not shown here)"
_ELSEWHERE = (
    "postgresql://user@host:5432/database; the password in PGPASSWORD, ~/.pgpass, a service file "
    "(postgresql:///?service=name), or the whole URL in the variable that {url_env} names"
)


def read_server(section: Section, stream: str) -> PostgresServer | None:
    """``url`` or ``url_env``; None where the store is a file.

    A password may come from PGPASSWORD, a password file, a service file or the variable that ``url_env``
    names; the configuration is a public file, so a URL with a password in it is refused, and not shown.

    Errors:
        ConfigError: a URL that is none, one with a password, or a variable that is not set.
    """
    url, name = section.raw("url"), section.raw("url_env")
    if url is not None and name is not None:
        raise section.wrong("url_env", "url says it already", "one of url and url_env")
    if name is not None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise section.wrong("url_env", "this is not the name of an environment variable")
        url = os.environ.get(name, "")
        if not url:
            raise section.wrong("url_env", f"the environment variable {name} is not set")
        section.note("url_env", name, default=False)
        return PostgresServer(url, schema_name(stream))
    if url is None:
        return None
    check_url(section)
    section.note("url", url, default=False)
    return PostgresServer(url, schema_name(stream))


def is_url(given: object) -> bool:
    """Whether this is the URL of a PostgreSQL server, by its beginning."""
    return isinstance(given, str) and given.startswith(("postgresql://", "postgres://"))


def check_url(section: Section) -> None:
    """Refuse a ``url`` that is none, or that holds a password (ConfigError); it is not shown then."""
    url = section.raw("url")
    if not isinstance(url, str) or not is_url(url):
        raise section.wrong("url", "this is not the URL of a PostgreSQL database")
    if _may_hold_password(url):
        raise section.wrong("url", _HOLDS, _ELSEWHERE.format(url_env="url_env"))


def refuse_password(url: str, where: str, url_env: str = "url_env") -> None:
    """Refuse a URL that would stand in a public file and may hold a password (ConfigError); it is not shown then.

    Args:
        url_env: how the variable with the whole URL is named where ``url`` was given.
    """
    if _may_hold_password(url):
        raise ConfigError(_HOLDS, where=where, allowed=_ELSEWHERE.format(url_env=url_env))


def _may_hold_password(url: str) -> bool:
    return not _URL.fullmatch(url) or "password" in url.lower()
