"""Random lives under random faults, in files and on a server, and the control that the judge finds a wrong order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torture_life
from torture import KINDS, SERVER_KINDS, torture
from torture_places import PLACES

from dpstream.project import base
from dpstream.stream.ledger import account
from dpstream.stream.release import render
from dpstream.stream.release.outlet import ReleasePublisher

if TYPE_CHECKING:
    from postgres_server import Cluster

#: The seed draws every kind at least twice. `.ci/run` goes through hundreds of lives more.
SEED, POINTS, ON_A_SERVER = 2, 24, 6


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
        monkeypatch.setattr(render.Renderer, "_readers_follow", lambda *_: True)
    elif mend == "its successor's changes go":
        monkeypatch.setattr(ReleasePublisher, "_instead_of_changes", lambda *_: None)
    else:
        monkeypatch.setattr(ReleasePublisher, "begin", lambda self: self.publish(skip=True))
    found = next(
        (point.violations for point in torture(5, range(1, 41), kinds=(kind,)) if point.violations), []
    )
    assert any(words in text for text in found), found


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("other_unit", ["told"]),
        (
            "base_goes_on",
            ["statement", "plan", "health", "ledger verify", "run goes on", "step goes on", "after"],
        ),
    ],
)
def test_streams_that_are_summed_without_care_are_found(
    kind: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mends taken out: whom a unit is about is not compared, and nobody looks whether a base went on."""
    monkeypatch.setattr(base, "broken_borders", lambda *_, **__: ())
    for module in (base, account):
        monkeypatch.setattr(module, "require_same_unit", lambda *_: None)
    text = ""
    for point in torture(1, range(1, 41), kinds=(kind,)):
        text += "; ".join(point.violations)
        if all(word in text for word in words):
            return
    raise AssertionError([word for word in words if word not in text])
