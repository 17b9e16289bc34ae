"""A replicated PostgreSQL table, with days that end when the test says so."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from row_files import source_of

from dpstream.io.sources import SourceOptions, replication

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from postgres_server import Cluster

FIRST_DAY = datetime.date(2026, 1, 5)
FIRST_DAY_NUMBER = (FIRST_DAY - datetime.date(1970, 1, 1)).days


class ReplicatedTable:
    """The table ``f`` with the publication ``p`` and the slot ``s``.

    Args:
        patch: lets the program read days off ``day`` and wait for no open transaction; without it nothing is changed.
        statements: SQL that makes the table and its publication; the slot is made after them.
    """

    def __init__(self, server: Cluster, patch: pytest.MonkeyPatch | None, *statements: str) -> None:
        self.server, self.borders, self.table = server, list[int](), "f"
        self.db = server.connect()
        self.db.execute("DROP PUBLICATION IF EXISTS p")
        self.drop_slot()
        self.db.execute("DROP TABLE IF EXISTS f, other CASCADE")
        for statement in statements:
            self.db.execute(statement.encode())
        self.make_slot()
        if patch is not None:
            patch.setattr(replication, "commit_day", self.day)
            patch.setattr(replication, "_GRACE", 0.0)

    def make_slot(self) -> None:
        self.db.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")

    def drop_slot(self) -> None:
        self.db.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")

    def close(self) -> None:
        self.drop_slot()
        self.db.close()

    def now(self) -> int:
        """The server's clock as a commit time: microseconds since 2000."""
        query = "SELECT (extract(epoch FROM clock_timestamp() - '2000-01-01Z') * 1e6)::bigint"
        return int(self.db.execute(query).fetchone()[0])  # type: ignore[index]

    def end_day(self) -> None:
        """Everything that is committed from now on is of the next day."""
        self.borders.append(self.now())

    def day(self, moment: int) -> int:
        return FIRST_DAY_NUMBER + sum(moment > border for border in self.borders)

    def options(self, **keys: Any) -> SourceOptions:
        """The days of the log, with these keys changed."""
        given = {
            "kind": "postgres-changes",
            "url": self.server.url,
            "table": self.table,
            "slot": "s",
            "publication": "p",
            "every": "day",
            "start": FIRST_DAY,
            "end": "today",
        }
        return SourceOptions.parse({**given, **keys})

    def open(self, options: SourceOptions, columns: Sequence[str]) -> Any:
        """The source, on the day after the last one that has ended."""
        source = source_of(options, columns=columns)
        source.today = FIRST_DAY + datetime.timedelta(len(self.borders))
        return source
