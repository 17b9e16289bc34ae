"""Invented tables: they end as the released one, and as many records leave as were counted."""

from __future__ import annotations

import numpy as np

from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.schema.domain import Domain
from dpstream.tools.errors.invented_tables import Grouping, changes_of, departures_of

DOMAIN = Domain(("a", "b"), (2, 3))


def counts(columns: list[str], first: int, last: int, scale: int = 10, **more: object) -> NoisyCounts:
    cells = int(np.prod([DOMAIN.sizes[DOMAIN.names.index(name)] for name in columns]))
    draw, noise = f"{columns} {first} {last} {more}", DiscreteLaplace(scale)
    kind = str(more.pop("counted", "inserts"))
    values = np.full(cells, int(more.pop("each", 0)))
    return NoisyCounts(draw, kind, first, last, marginal_query(columns), values, noise, **more)  # type: ignore[arg-type]


def grouping(codes: np.ndarray) -> list[tuple[np.ndarray, int]]:
    cells = np.ravel_multi_index(codes.T, (4, 4))
    return [(codes[:, 0], 4), (codes[:, 1], 4), (cells, 16)]


GROUPING: Grouping = grouping


def dependent(rows: int, seed: int) -> np.ndarray:
    first = np.random.default_rng(seed).integers(0, 4, rows)
    return np.column_stack([first, first])


def test_an_invented_table_ends_as_the_released_one() -> None:
    """The first releases know nothing of two columns that are equal in the last one, and that is not lost."""
    generator = np.random.default_rng(1)
    targets = {
        1: generator.integers(0, 4, (100, 2)),
        2: generator.integers(0, 4, (200, 2)),
        3: dependent(400, 0),
    }
    steps = list(changes_of(targets, np.array([100, 200, 400]), GROUPING, falling=False, seed=0))
    *_, (_, _, _, last) = steps
    assert sorted(map(tuple, last)) == sorted(map(tuple, targets[3]))
    assert [len(there) for _, _, _, there in steps] == [100, 200, 400]
    assert sum(len(left) for _, left, _, _ in steps) == 0
    assert all((there[:, 0] == there[:, 1]).all() for _, _, _, there in steps), "subsets of the last table"


def test_as_many_records_leave_as_were_counted() -> None:
    targets = {step: dependent(200, step) for step in range(1, 6)}
    totals, leaving = np.array([200, 190, 200, 200, 205]), np.array([0, 30, 30, 0, 15])
    there = np.zeros((0, 2), np.int64)
    for step, (come, left, gone, after) in enumerate(
        changes_of(targets, totals, GROUPING, falling=True, seed=0, departures=leaving), start=1
    ):
        assert len(left) == len(gone) == leaving[step - 1]
        assert (there[gone] == left).all()
        there = np.concatenate([np.delete(there, gone, axis=0), come])
        assert (there == after).all()
        assert len(after) == totals[step - 1]


def test_departures_are_read_from_what_was_measured() -> None:
    of = [
        counts(["a"], 1, 2, counted="deletes", each=10),
        counts(["a", "b"], 1, 2, counted="deletes", each=100),  # more noise in its sum
        counts(["a"], 3, 3, counted="deletes", each=-3),
    ]
    assert departures_of(of, 4).tolist() == [10, 7, 0, 2]
    assert departures_of([], 3).tolist() == [0, 0, 0]
    left = [
        counts(["a"], 1, 1, counted="present", each=50),
        counts(["a"], 1, 1, counted="left", each=4, as_of=3),
        counts(["a"], 2, 3, counted="left", each=2, as_of=3),
    ]
    assert departures_of(left, 3).tolist() == [0, 6, 6]
