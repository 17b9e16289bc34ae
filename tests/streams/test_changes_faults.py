"""Streams that publish changes, hold, approve and withdraw, killed or out of disk at their durability calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_harness import Fault, faulty, full_disk, in_child, kill, outcome
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream.core.privacy import Randomness
from dpstream.io.sinks import Publisher
from dpstream.io.sinks import read_table as read
from dpstream.stream import Publishing, Stream, open_stream

REASON = "sent twice"


def opened(home: Path, step: int, approve: bool) -> Stream:
    """Noise that depends on the step makes a disturbed run comparable with an undisturbed one."""
    policy = Publishing(records="persistent", publish="changes", full_every=3, approve=approve)
    sink = Publisher(home / "releases", format="csv")
    noise = Randomness.seeded(step)
    return open_stream(
        ToyPlan(), SCHEMA, home / "state", randomness=noise, publish_to=sink, keep=3, publishing=policy
    )


def live(home: Path) -> None:
    """Four steps, of which one is withdrawn and the last is held and approved; all of it repeatable."""
    for step in (1, 2, 3, 4):
        with opened(home, step, approve=step == 4) as stream:
            stream.step(batch(step), f"b{step}")
            if step == 3:
                stream.withdraw(2, REASON)
    with opened(home, 5, approve=True) as stream:
        stream.approve()


def begun(home: Path) -> Path:
    """A stream without a step: its public id comes from the noise as well."""
    with opened(home, 99, approve=False):
        return home


def whole(home: Path) -> None:
    """Readers see tables that agree with their hashes, or a sentence."""
    read(home / "releases")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, str]]:
    """How many durability calls an undisturbed life has, and what it leaves."""
    home = begun(tmp_path_factory.mktemp("undisturbed"))
    with faulty(None, kill) as seen:
        live(home)
    whole(home)
    return len(seen), outcome(home)


@pytest.mark.parametrize(("fault", "offset"), [(kill, 1), (full_disk, 5)])
def test_a_disturbed_life_leaves_the_same_files(
    tmp_path: Path, calls: tuple[int, dict[str, str]], fault: Fault, offset: int
) -> None:
    number, expected = calls
    assert number > 80
    assert any("changes" in name for name in expected)
    assert any("withdrawn" in name for name in expected)
    for at in range(offset, number + 1, 9):
        home = tmp_path / str(at)
        home.mkdir()
        begun(home)

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, fault):
                live(home)

        assert in_child(disturbed) != 0, f"call {at} was not reached"
        assert in_child(lambda home=home: live(home)) == 0, f"after call {at}"  # type: ignore[misc]
        assert outcome(home) == expected, f"after call {at}"
        whole(home)
