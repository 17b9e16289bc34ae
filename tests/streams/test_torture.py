"""Random lives under random faults, in files and on a server, and the control that the judge finds a wrong order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torture_life
from torture import KINDS, SERVER_KINDS, torture
from torture_places import PLACES

from dpstream.stream.release import produce
from dpstream.stream.release.outlet import Outlet

if TYPE_CHECKING:
    from postgres_server import Cluster

#: The seed draws every kind at least three times. `.ci/run` goes through hundreds of lives more.
SEED, POINTS, ON_A_SERVER = 194, 25, 8


@pytest.mark.slow
def test_lives_under_every_fault_keep_every_promise() -> None:
    interruptions: Counter[str] = Counter()
    for point in torture(SEED, range(1, POINTS + 1)):
        assert point.violations == [], (point.number, point.settings)
        interruptions += point.interruptions
    assert set(interruptions) == set(KINDS)
    assert interruptions.total() > POINTS


@pytest.mark.slow
def test_lives_on_a_server_keep_every_promise(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are cut at random statements, besides all that happens to files."""
    monkeypatch.setenv(torture_life.URL, postgres.url)
    interruptions: Counter[str] = Counter()
    for point in torture(2, range(1, ON_A_SERVER + 1), share=1):
        assert point.violations == [], (point.number, point.settings)
        interruptions += point.interruptions
    assert set(interruptions) <= set(SERVER_KINDS)
    assert interruptions["cut"] > 0


def test_publishing_before_the_commit_is_found() -> None:
    lives = torture(1, range(1, 101), kinds=("kill", "kill_after"), wrong_order=True)
    found = next((point.violations for point in lives if point.violations), [])
    assert any("published and not committed" in text for text in found)


@pytest.mark.parametrize(
    ("kind", "mend", "words"),
    [
        ("taken", "no changes after it", "has the changes since step"),
        ("taken", "its successor's changes go", "has the changes since step"),
        ("away", "a place that is away is asked later", "the stream does not open while a place is away"),
    ],
)
def test_without_its_mend_each_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: str, mend: str, words: str
) -> None:
    assert kind in PLACES
    if mend == "no changes after it":
        monkeypatch.setattr(produce, "_readers_follow", lambda *_: True)
    elif mend == "its successor's changes go":
        monkeypatch.setattr(Outlet, "_instead_of_changes", lambda *_: None)
    else:
        monkeypatch.setattr(Outlet, "begin", lambda self: self.publish(skip=True))
    found = next(
        (point.violations for point in torture(5, range(1, 41), kinds=(kind,)) if point.violations), []
    )
    assert any(words in text for text in found), found
