"""One service for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from offices import Office, make_office


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service whose stream has released four steps and holds two; its state and its data are gone.

    This fixture's name makes its noise, by which every column is measured at steps 4 and 5: a test asks for that.
    """
    return make_office(tmp_path_factory.mktemp("office") / "office")


@pytest.fixture
def office(released: Path, tmp_path: Path) -> Iterator[Office]:
    """The same, of this test alone, served on this machine."""
    made = Office.of(released, tmp_path / "office")
    yield made
    made.close()
