"""A stream of four published steps and one that is held, and a server in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from feed_server import make_stream


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``state`` and ``releases``; nobody changes it."""
    folder = tmp_path_factory.mktemp("feed")
    make_stream(folder)
    return folder


@pytest.fixture
def stream(made: Path, tmp_path: Path) -> Path:
    """The same, for one test."""
    shutil.copytree(made, tmp_path / "stream")
    return tmp_path / "stream"
