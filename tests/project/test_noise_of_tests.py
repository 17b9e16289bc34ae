"""The noise of a test is that of its name, whatever ran before it, and no process shares another one's."""

from __future__ import annotations

import os

import pytest

from dpstream.core.privacy import Randomness


@pytest.fixture(autouse=True)
def repeated(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--fresh-noise"):
        pytest.skip("fresh noise was asked for")


@pytest.fixture(scope="module")
def shared() -> int:
    return int(Randomness.system().words(1)[0])


@pytest.mark.parametrize("turn", [1, 2])
def test_it_is_that_of_the_name(turn: int, shared: int) -> None:
    first, second = (int(Randomness.system().words(1)[0]) for _ in range(2))
    assert Randomness.system().secure
    assert (first, shared) == (FIRST[turn], SHARED)
    assert first != second


FIRST = {1: 14889417757696504560, 2: 4651398108332212660}
SHARED = 7094925957597039125


def test_a_child_draws_other_noise() -> None:
    before = Randomness.system()
    before.words(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(source.words(1).tobytes() for source in (before, Randomness.system())))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 16)
    os.close(reader)
    os.close(writer)
    assert len(theirs) == 16
    assert theirs != b"".join(source.words(1).tobytes() for source in (before, Randomness.system()))


@pytest.mark.entropy("none: no words are compared")
def test_marked_tests_draw_from_the_operating_system() -> None:
    assert Randomness.system()._source is os.urandom
