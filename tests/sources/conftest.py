"""A PostgreSQL server with logical replication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postgres_server import Cluster


@pytest.fixture(scope="session")
def server(postgres: Cluster) -> Cluster:
    """The server of the tests, whose log can be read."""
    postgres.execute("ALTER SYSTEM SET wal_level = logical")
    postgres.stop("fast")
    postgres.start()
    return postgres
