"""A DuckDB file, opened for reading only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.io.sources.file_opening import UnreadableError

_MAGIC = b"DUCK"


def is_database(path: Path) -> bool:
    """Whether a path is a DuckDB file, by its first bytes.

    Errors:
        UnreadableError: a file that may not be read.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == _MAGIC
    except OSError:
        raise UnreadableError("the file may not be read", where=str(path)) from None


@contextmanager
def open_database(path: Path) -> Iterator[Any]:
    """A connection that only reads, in UTC: otherwise the zone of the process decides which day a moment is on.

    Errors:
        ConfigError: duckdb is not installed, or cannot be set to UTC.
        UnreadableError: the file is not there, is damaged, or another process writes to it.
    """
    try:
        import duckdb
    except ImportError:
        raise ConfigError(
            "the package duckdb is not installed", where=str(path), allowed="pip install 'dpstream[duckdb]'"
        ) from None

    if not path.is_file():
        raise UnreadableError("there is no such file", where=str(path))
    if not is_database(path):
        # DuckDB would try to guess what else it is.
        raise UnreadableError("the file is no DuckDB database", where=str(path), allowed="a DuckDB file")
    try:
        # Nothing is loaded from the network, whatever the query names.
        connection = duckdb.connect(
            str(path), read_only=True, config={"autoinstall_known_extensions": "false"}
        )
    except duckdb.Error:
        raise UnreadableError(
            "the database cannot be opened: it is damaged, or another process writes to it",
            where=str(path),
            allowed="a DuckDB file that nobody has open for writing",
        ) from None
    with closing(connection):
        try:
            connection.execute("SET TimeZone = 'UTC'; SET Calendar = 'gregorian'")
        except duckdb.Error:
            raise ConfigError(
                "this DuckDB cannot read times in UTC",
                where=str(path),
                allowed="DuckDB with its extension icu, as pip installs it",
            ) from None
        yield connection
