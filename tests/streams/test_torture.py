"""Random lives under random faults, in files and on a server, and the control that the judge finds a wrong order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torture_life
from torture import KINDS, SERVER_KINDS, torture

from dpstream.project import base
from dpstream.stream.release import render
from dpstream.stream.release.outlet import ReleasePublisher

if TYPE_CHECKING:
    from postgres_server import Cluster

#: The seed draws every kind at least twice. `.ci/run` goes through hundreds of lives more.
SEED, POINTS, ON_A_SERVER = 2142, 14, 4


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
    lives = torture(5, range(1, 101), kinds=("kill", "kill_after"), wrong_order=True)
    found = next((point.violations for point in lives if point.violations), [])
    assert any("published and not committed" in text for text in found)


KEPT = "has the changes since step"
AWAY = "the stream does not open while a place is away"


@pytest.mark.parametrize(
    ("kind", "where", "mend", "instead", "words"),
    [
        ("taken", render.Renderer, "_readers_follow", lambda *_: True, KEPT),
        ("taken", ReleasePublisher, "_instead_of_changes", lambda *_: None, KEPT),
        ("away", ReleasePublisher, "begin", lambda self: self.publish(skip=True), AWAY),
    ],
    ids=["no changes after it", "its successor's changes go", "a place that is away is asked later"],
)
def test_without_its_mend_each_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: str, where: Any, mend: str, instead: Any, words: str
) -> None:
    monkeypatch.setattr(where, mend, instead)
    lives = torture(2, range(1, 41), kinds=(kind,))
    found = next((point.violations for point in lives if point.violations), [])
    assert any(words in text for text in found), found


def test_streams_that_are_summed_without_care_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mend taken out: nobody looks whether a base went on."""
    monkeypatch.setattr(base, "broken_borders", lambda *_, **__: ())
    missed = {"statement", "ledger verify", "run goes on", "after"}
    for point in torture(2, range(1, 41), kinds=("base_goes_on",)):
        missed -= {word for word in missed if word in "; ".join(point.violations)}
        if not missed:
            return
    raise AssertionError(missed)
