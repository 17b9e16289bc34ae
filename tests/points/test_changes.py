"""Incremental releases: the counts come out, by the fewest changes and the shortest moves."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError
from dpstream.families.points import changes


def height(a: int, b: int) -> int:
    """How far up the smallest cell lies that holds both."""
    return (a ^ b).bit_length()


def cheapest(cells: list[int], counts: list[int]) -> tuple[int, int]:
    """Oracle, by trying everything: fewest points that do not stay, and the lowest sum of heights of their moves."""
    target = [cell for cell, count in enumerate(counts) for _ in range(count)]
    best = (len(cells) + 1, 0)
    for size in range(len(cells) + 1):
        for stay in combinations(range(len(cells)), size):
            left = list(target)
            try:
                for point in stay:
                    left.remove(cells[point])
            except ValueError:
                continue
            going = [cells[i] for i in range(len(cells)) if i not in stay]
            moves = min(len(going), len(left))
            longer, shorter = (left, going) if len(left) >= len(going) else (going, left)
            rise = min(
                sum(height(a, b) for a, b in zip(shorter, some, strict=True))
                for some in permutations(longer, moves)
            )
            best = min(best, (len(going), rise))
    return best


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 7), max_size=5),
    st.lists(st.integers(0, 2), min_size=8, max_size=8).filter(lambda counts: sum(counts) <= 6),
    st.integers(0, 9),
)
def test_changes_are_the_fewest_and_moves_the_shortest(
    cells: list[int], counts: list[int], seed: int
) -> None:
    found = changes(np.array(cells, np.int64), np.array(counts), np.random.default_rng(seed))
    after = found.apply(np.array(cells, np.int64))
    assert np.bincount(after, minlength=8).tolist() == counts
    gone = sorted([*found.moved[:, 0].tolist(), *found.removed.tolist()])
    assert gone == np.flatnonzero(~found.stays).tolist()
    rise = sum(height(cells[point], cell) for point, cell in found.moved.tolist())
    assert (len(gone), rise) == cheapest(cells, counts)
    # A point is removed only where all that are needed have come from somewhere.
    assert not (len(found.removed) and len(found.added))


def test_a_growing_release_removes_nothing_and_every_point_is_as_likely_to_stay() -> None:
    cells, counts = np.repeat(np.arange(4), 10), np.array([5, 15, 10, 12])
    stayed = np.zeros(40)
    for seed in range(2000):
        found = changes(cells, counts, np.random.default_rng(seed))
        assert (len(found.moved), len(found.removed), len(found.added)) == (5, 0, 2)
        stayed += found.stays
    assert (stayed[10:] == 2000).all()
    # Ten binomials of probability 1/2 within seven standard deviations: false alarm below 1e-10.
    assert np.abs(stayed[:10] - 1000).max() < 7 * np.sqrt(500)


@pytest.mark.parametrize("counts", [[1, 2, 3], [1, -1], [0, 0]])
def test_counts_that_do_not_fit(counts: list[int]) -> None:
    with pytest.raises(ConfigError, match="do not fit"):
        changes(np.array([2]), np.array(counts), np.random.default_rng(1))
