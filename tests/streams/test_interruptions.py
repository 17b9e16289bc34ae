"""Twenty random interruptions of ``dpstream run`` change neither the ledger nor a release, on either database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from interrupted_life import URL, interrupted_life

if TYPE_CHECKING:
    from postgres_server import Cluster

TIMES = 20


@pytest.mark.slow
def test_the_same_ledger_and_releases_in_a_file(tmp_path: Path) -> None:
    life = interrupted_life(tmp_path, TIMES)
    assert life.violations == []
    assert life.interruptions == {"before_a_call": TIMES / 2, "at_a_moment": TIMES / 2}


@pytest.mark.slow
def test_the_same_ledger_and_releases_on_a_server(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, postgres.url)  # taken back afterwards
    life = interrupted_life(tmp_path, TIMES, url=postgres.url)
    assert life.violations == []
    assert life.interruptions.total() == TIMES


def test_publishing_before_the_commit_is_found(tmp_path: Path) -> None:
    """Negative control. A life of twenty kills may miss it; those that find it first save time."""
    found = (
        interrupted_life(tmp_path / str(seed), TIMES, seed, control="publish-first", moments=False).violations
        for seed in (5, 6, *range(1, 11))
    )
    assert any("published and not committed" in text for violations in found for text in violations)


def test_other_noise_is_found(tmp_path: Path) -> None:
    """Negative control: where a step that is computed afresh sees other words, the comparison fails."""
    life = interrupted_life(tmp_path, 4, control="one-entropy", moments=False)
    assert life.violations == ["the ledger is another one", "the releases are others"]
