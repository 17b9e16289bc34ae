"""Makes the toy mechanism and the fault harness importable by name (tests are no packages)."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where possible: the tests commit thousands of times, and a killed process (unlike a lost
    power supply) leaves every written byte behind, so a real disk would only cost time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    home = Path(tempfile.mkdtemp(prefix="dpstream-", dir=memory))
    yield home
    shutil.rmtree(home)
