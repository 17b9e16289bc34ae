"""From one release to the next: as many points stay as their cells may hold, whichever they are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpstream.families.points.points_release import kept


@given(
    st.lists(st.integers(0, 7), max_size=12),
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
    st.integers(0, 9),
)
def test_changes_are_the_fewest(cells: list[int], counts: list[int], seed: int) -> None:
    before = np.array(cells, np.int64)
    stays, added = kept(before, np.array(counts), np.random.default_rng(seed))
    held = np.bincount(before, minlength=8)
    assert stays.sum() == np.minimum(held, counts).sum()
    assert np.bincount(np.concatenate([before[stays], added]), minlength=8).tolist() == counts


def test_every_point_is_as_likely_to_stay() -> None:
    cells, counts = np.repeat(np.arange(4), 10), np.array([5, 15, 10, 12])
    stayed = np.zeros(40)
    for seed in range(2000):
        stays, added = kept(cells, counts, np.random.default_rng(seed))
        assert len(added) == 7
        stayed += stays
    assert (stayed[10:] == 2000).all()
    # Ten binomials of probability 1/2 within seven standard deviations: false alarm below 1e-10.
    assert np.abs(stayed[:10] - 1000).max() < 7 * np.sqrt(500)
