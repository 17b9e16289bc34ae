"""One service for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from offices import Office, make_office


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service whose stream has released four steps and holds two; its state and its data are gone."""
    return make_office(tmp_path_factory.mktemp("office") / "office")


@pytest.fixture
def office(template: Path, tmp_path: Path) -> Iterator[Office]:
    """The same, of this test alone, served on this machine."""
    made = Office.of(template, tmp_path / "office")
    yield made
    made.close()
