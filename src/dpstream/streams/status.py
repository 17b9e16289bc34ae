"""A look at a stream's state without taking its lock: for ``status`` while a run goes on."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstream.errors import ConfigError, StoreDamagedError
from dpstream.streams.database import connect, sqlite_errors, verify_structure
from dpstream.streams.store import DATABASE

__all__ = ["StreamStatus", "read_status"]


@dataclass(frozen=True)
class StreamStatus:
    """Where a stream stands. Everything but ``reserved`` and ``failed`` is public.

    Attributes:
        plan: the facts that the stream is pinned to (mechanism, options, budget, unit, schema).
        last_step: number of committed steps.
        spent: the largest step's cost, exact: what all releases together cost one unit.
        unpublished: committed steps whose files are not in place yet.
        reserved: a step that was begun and not committed (running now, or stopped).
        failed: the exception that stopped the reserved step after it had drawn noise; it waits for the
            owner's decision (``Stream.discard_reservation``).
        made_with_test_seed: some step used predictable noise.
    """

    plan: dict[str, Any]
    last_step: int
    spent: Fraction
    unpublished: tuple[int, ...]
    reserved: int | None
    failed: str | None
    made_with_test_seed: bool


def read_status(path: str | Path) -> StreamStatus:
    """Read the state in ``path``; changes nothing and needs no lock.

    Errors:
        ConfigError: there is no stream. StoreDamagedError, StoreFormatError: the store cannot be read.
    """
    database = Path(path) / DATABASE
    if not database.is_file():
        raise ConfigError("there is no stream", where=str(path), allowed="a state directory that a run made")
    connection = connect(database, read_only=True)
    try:
        with sqlite_errors(database):
            connection.execute("BEGIN")  # one consistent view, whatever a running stream commits meanwhile
            verify_structure(connection, database)
            plan = connection.execute("SELECT value FROM meta WHERE key = 'plan'").fetchone()
            spent = [Fraction(row[0]) for row in connection.execute("SELECT DISTINCT spent FROM ledger")]
            (last,) = connection.execute("SELECT coalesce(max(step), 0) FROM ledger").fetchone()
            pending = connection.execute("SELECT step FROM steps WHERE publication = 'pending' ORDER BY step")
            unpublished = tuple(step for (step,) in pending)
            reserved = connection.execute("SELECT step FROM reservation").fetchone()
            failed = _failed(connection)
            (seeded,) = connection.execute("SELECT coalesce(max(test_seed), 0) FROM steps").fetchone()
            facts = json.loads(plan[0])
    except (ValueError, TypeError):
        raise StoreDamagedError("the plan or the ledger cannot be read", where=str(database)) from None
    finally:
        connection.close()
    return StreamStatus(
        plan=facts,
        last_step=last,
        spent=max(spent, default=Fraction(0)),
        unpublished=unpublished,
        reserved=None if reserved is None else reserved[0],
        failed=failed,
        made_with_test_seed=bool(seeded),
    )


def _failed(connection: sqlite3.Connection) -> str | None:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'failures'").fetchone():
        return None  # written in the first format, and not opened since
    row = connection.execute("SELECT kind FROM failures WHERE decided = 0 ORDER BY id DESC").fetchone()
    return None if row is None else str(row[0])
