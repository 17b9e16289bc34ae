"""A PostgreSQL server with logical replication (tests are no packages: its module is made importable by name)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postgres_server import Cluster

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("sources", "streams", "cli")]


@pytest.fixture(scope="session")
def server() -> Iterator[Cluster]:
    """A server of these tests' own; without PostgreSQL on the machine the test skips."""
    from postgres_server import own_server

    with own_server() as cluster:
        cluster.execute("ALTER SYSTEM SET wal_level = logical")
        cluster.stop("fast")
        cluster.start()
        yield cluster
