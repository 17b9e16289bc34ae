"""Makes the desk's helpers importable by name, and those of the streams' fault tests (tests are no packages)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postgres_server import Cluster

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "streams")]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A server of the tests' own; without PostgreSQL on the machine the test skips."""
    from postgres_server import own_server

    with own_server() as cluster:
        yield cluster
