"""Makes the pages' helpers importable by name (tests are no packages), and one service for all tests of pages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from dpstream.service.desk import people

sys.path.insert(0, str(Path(__file__).parent))

from offices import Office, make_office


@contextlib.contextmanager
def cheap_passwords() -> Iterator[None]:
    """Each login of a test would take a good part of a second of CPU; desk's tests have the real cost."""
    people._nobody.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people, "_argon2", lambda: PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        yield
    people._nobody.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def _cheap_passwords() -> Iterator[None]:
    with cheap_passwords():
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service whose stream has released four steps and holds two; its state and its data are gone."""
    with cheap_passwords():
        return make_office(tmp_path_factory.mktemp("office") / "office")


@pytest.fixture
def office(template: Path, tmp_path: Path) -> Iterator[Office]:
    """The same, of this test alone, served on this machine."""
    made = Office.of(template, tmp_path / "office")
    yield made
    made.close()
