"""What holds in every test: noise that repeats itself, and Hypothesis judged by what it finds, not by its speed.

A test draws its noise from a source that depends on its name only, so that none fails by chance. A statistical test
of the operating system's own randomness says so, and how often it fails although all is right::

    @pytest.mark.entropy("false alarms below 1e-6: 1500 squares, seven standard deviations")

``pytest --fresh-noise`` draws from the operating system in all tests. Programs that a test starts always do.

Files of tests are in memory where that is possible (``TMPDIR`` says otherwise).
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dpstream.core import compiling
from dpstream.core.privacy import Randomness
from dpstream.core.privacy.entropy import Entropy

# Helpers of several folders are imported by their names.
_FOLDERS = ("cli", "config", "evaluate", "faults", "growing", "project", "sources", "spark", "streams")
_HELPERS = (*_FOLDERS, "service/desk", "service/pages", "service/releases")
sys.path[:0] = [str(Path(__file__).parent / folder) for folder in (".", *_HELPERS)]
# What makes pages of the documentation is tested, too, and what measures.
sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("docs", "benchmarks")]

# Whether compiled code was kept must not show in what a test compares.
compiling._said.update({"core.tables", "core.graphical", "io.sources", "families.panel"})

# Tests commit thousands of times, and a killed process (unlike a lost power supply) leaves every written byte behind:
# a disk would only cost time.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 2**30:
    os.environ["TMPDIR"], tempfile.tempdir = str(_MEMORY), None

# A busy machine is no failure. Single tests set other numbers of examples and keep these two.
settings.register_profile("dpstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dpstream")


class Repeated:
    """Bytes that depend on the name of a test or fixture, on what was drawn before, and on the process.

    A forked child and its parent never share noise, as with the operating system's: tests of crashes find out by
    it that something was drawn again.
    """

    name = "no test"
    sources = 0
    process = ""

    def __init__(self) -> None:
        Repeated.sources += 1
        self._key = f"{self.name}/{self.sources}"
        self._calls = 0

    def __call__(self, n: int) -> bytes:
        self._calls += 1
        return hashlib.shake_256(f"{self._key}/{self.process}/{self._calls}".encode()).digest(n)


def _forked(side: str) -> None:
    Repeated.process += side


os.register_at_fork(after_in_parent=lambda: _forked("p"), after_in_child=lambda: _forked("c"))
_FRESH = Entropy.__dict__["system"]


def _repeated(cls: type[Randomness]) -> Randomness:
    return cls(Repeated(), secure=True)


def _name(name: str) -> tuple[str, int, str]:
    """Begin the noise of ``name``; gives what was in force."""
    before = Repeated.name, Repeated.sources, Repeated.process
    Repeated.name, Repeated.sources, Repeated.process = name, 0, ""
    return before


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fresh-noise", action="store_true", help="noise of the operating system in all tests")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server of the tests' own; without PostgreSQL on the machine the test skips."""
    from postgres_server import own_server

    with own_server() as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without the cyclic garbage collector, which took half of the time and found next to nothing.

    It does not look at what is there then: neither in every full round, nor in each child that a test forks.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(not mark.args for mark in item.iter_markers("entropy")):
            raise pytest.UsageError(f"{item.nodeid}: the mark 'entropy' needs the rate of false alarms")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    fresh = item.get_closest_marker("entropy") or item.config.getoption("--fresh-noise")
    _name(item.nodeid)
    Randomness.system = _FRESH if fresh else classmethod(_repeated)  # type: ignore[method-assign, assignment]
    try:
        return (yield)
    finally:
        Randomness.system = _FRESH  # type: ignore[method-assign]


class SharedNoise:
    """A fixture that several tests share has the same noise whichever of them comes first.

    A plugin of its own: hooks of this file are not called for a session's fixtures, which belong to the folder above.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: Any, request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before = _name(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param', '')}]")
        try:
            return (yield)
        finally:
            Repeated.name, Repeated.sources, Repeated.process = before


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SharedNoise())
