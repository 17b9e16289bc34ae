"""Stores of a test on a server, or on each database in turn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postgres_server import Cluster


@pytest.fixture
def on_postgres(postgres: Cluster) -> Iterator[Cluster]:
    """Every store of the test lives on the server, in a schema for its state directory."""
    import fault_harness

    from dpstream.stream.store import place, store
    from dpstream.stream.store.postgres import PostgresBackend, PostgresServer

    def schema(path: Path) -> str:
        return f"t_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:20]}"

    def backend(path: Path, _: object = None) -> PostgresBackend:
        return PostgresBackend(PostgresServer(postgres.url, schema(path)))

    def reader(home: Path) -> object:
        name = schema(home / "state")
        there = postgres.execute("SELECT to_regclass(%s)", f"{name}.steps")
        return postgres.connect(name) if there[0][0] else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "backend_for", backend)
        patch.setattr(place, "backend_for", backend)
        patch.setattr(fault_harness, "open_database", reader)
        yield postgres


@pytest.fixture
def small_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts so small that every loop over rows with a sum goes round, and ends with a part that is not full."""
    from dpstream.stream.store import sqlite, summed_rows

    monkeypatch.setattr(summed_rows, "_CHUNK", 3)
    monkeypatch.setattr(summed_rows, "_PAGE", 4)
    monkeypatch.setattr(sqlite, "_ROWS", 3)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are drawn in several blocks."""
    from dpstream.stream.release import table_blocks

    monkeypatch.setattr(table_blocks, "BLOCK", 8)


@pytest.fixture(params=["sqlite", "postgres"])
def each_database(request: pytest.FixtureRequest) -> None:
    """The test runs with its stores in files, and again with all of them on the server."""
    if request.param == "postgres":
        request.getfixturevalue("on_postgres")
