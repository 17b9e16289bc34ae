"""Fifty random lives under random faults, and the control that the same judge finds a wrong order."""

from __future__ import annotations

from collections import Counter

import pytest
from torture import KINDS, torture

POINTS = 50


@pytest.mark.slow
def test_fifty_lives_keep_every_promise() -> None:
    interruptions: Counter[str] = Counter()
    for point in torture(4, range(1, POINTS + 1)):
        assert point.violations == [], (point.number, point.settings)
        interruptions += point.interruptions
    assert set(interruptions) == set(KINDS)
    assert interruptions.total() > POINTS


def test_publishing_before_the_commit_is_found() -> None:
    found = [
        point
        for point in torture(1, range(1, 11), kinds=("kill", "kill_after"), wrong_order=True)
        if point.violations
    ]
    assert found
    assert all("published" in " ".join(point.violations) for point in found)
