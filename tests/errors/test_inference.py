"""Intervals of statistics take in what was measured of their columns together; where nothing was, there is none."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.schema import Boolean, Integer, Schema
from dpstream.core.schema.domain import Domain
from dpstream.tools.errors import difference, least_squares, mean
from dpstream.tools.errors.additions import Grouping
from dpstream.tools.errors.invented_tables import changes_of, departures_of
from dpstream.tools.errors.relations import Relation, known_together

SCHEMA = Schema(
    (Integer("rent", edges=(0, 10, 20, 40)), Integer("rooms", edges=(0, 1, 2, 3, 5)), Boolean("paid"))
)
DOMAIN = Domain(("a", "b"), (2, 3))


def table(rows: int = 4000) -> np.ndarray:
    """Columns that depend on each other, with every combination of their values."""
    generator = np.random.default_rng(0)
    rooms = generator.integers(0, 4, rows)
    rent = np.clip(rooms - generator.integers(-2, 4, rows), 0, 2)
    return np.column_stack([rent, rooms, generator.random(rows) < 0.2 + 0.2 * rent]).astype(np.int32)


def asked():
    stream = SimpleNamespace(config=SimpleNamespace(schema=lambda: SCHEMA))
    return {
        "mean": mean(stream, "rent", "paid"),
        "difference": difference(stream, "rent", "paid", "not paid"),
        "overlapping": difference(stream, "rent", "rooms = 0", "paid"),
        "regression": least_squares(stream, "rent", ["rooms", "paid"]),
        "another order": least_squares(stream, "paid", ["rooms", "rent"]),
    }


@pytest.mark.parametrize("which", list(asked()))
def test_what_a_change_of_a_relation_does_to_a_statistic(which: str) -> None:
    """Weight is moved so that each column keeps its counts, and two columns together do not: the change of the
    statistic is what its influences say."""
    kinds, many = np.unique(table(), axis=0, return_counts=True)
    statistic, weights = asked()[which], many.astype(float)
    before, influences = statistic.compute(kinds, weights), statistic.influence(kinds, weights)
    place = {tuple(kind): i for i, kind in enumerate(kinds.tolist())}
    moved = 0
    for one, far in itertools.permutations(kinds.tolist(), 2):
        for first, second in itertools.combinations(range(3), 2):
            # Four cells: two values of one column, two of another one, the rest alike.
            corners = np.array([one] * 4)
            corners[[1, 3], first], corners[[2, 3], second] = far[first], far[second]
            if one[first] == far[first] or one[second] == far[second] or one > far:
                continue
            steps = np.array([1.0, -1.0, -1.0, 1.0]) * 1e-4
            after = weights.copy()
            np.add.at(after, [place[tuple(corner)] for corner in corners.tolist()], steps)
            told = np.zeros(len(before))
            for clique, own in influences:
                cells = np.ravel_multi_index(tuple(corners[:, list(clique)].T), SCHEMA.domain.shape(clique))
                told += own[:, cells] @ steps
            change = statistic.compute(kinds, after) - before
            assert np.allclose(change, told, rtol=1e-3, atol=1e-10), (one, far)
            moved += bool(np.abs(told).max() > 1e-9)
    assert moved > 10


def counts(columns: list[str], first: int, last: int, scale: int = 10, **more: object) -> NoisyCounts:
    cells = int(np.prod([DOMAIN.sizes[DOMAIN.names.index(name)] for name in columns]))
    draw, noise = f"{columns} {first} {last} {more}", DiscreteLaplace(scale)
    kind = str(more.pop("counted", "inserts"))
    values = np.full(cells, int(more.pop("each", 0)))
    return NoisyCounts(draw, kind, first, last, marginal_query(columns), values, noise, **more)  # type: ignore[arg-type]


def test_how_much_was_measured_together() -> None:
    rows = {1: 100.0, 2: 200.0, 4: 400.0}
    both, one = (0, 1), (0,)
    published = [counts(["a"], 1, 4), counts(["a", "b"], 2, 3), counts(["a", "b"], 2, 3, 20)]
    single = counts(["a"], 1, 4).variance
    assert known_together(published, rows, DOMAIN, [both, one, (1,)], 4) == [
        Relation(both, 0.5, single),  # the more precise one of the two
        Relation(one, 1.0, single),
        Relation((1,), 0.5, 2 * single),  # each cell is the sum of two
    ]
    assert known_together(published, rows, DOMAIN, [both], 2)[0].share == 0.0, "published later"
    assert known_together([], rows, DOMAIN, [one], 4)[0].share == 0.0
    deletes = [counts(["a", "b"], 1, 4, counted="deletes")]
    assert known_together(deletes, rows, DOMAIN, [both], 4)[0].share == 0.0


def test_records_that_are_present_are_shared_out_by_their_own_counts() -> None:
    rows = {1: 100.0, 4: 100.0}
    published = [
        counts(["a"], 1, 3, counted="present", each=45, as_of=4),
        counts(["a", "b"], 4, 4, counted="present", each=5, as_of=4),
    ]
    assert known_together(published, rows, DOMAIN, [(0, 1)], 4)[0].share == pytest.approx(0.25)
    assert known_together(published, rows, DOMAIN, [(0,)], 4)[0].share == pytest.approx(1.0)


def test_less_is_known_of_a_relation_that_was_measured_of_fewer_records() -> None:
    influence, cells = np.array([[0.01, -0.01]]), np.array([300.0, 100.0])
    noise = Relation((0, 1), 1.0, 50.0).spread(influence, cells)
    assert noise == pytest.approx(0.01 * np.sqrt(2 * 50.0))
    half = Relation((0, 1), 0.5, 50.0).spread(influence, cells)
    assert half == pytest.approx(0.01 * np.sqrt(4 * 2 * 50.0 + 400.0))


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
