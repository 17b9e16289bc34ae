"""Invented tables end as the released ones, imagined ones are as large and as dependent as they are guessed to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpstream.core.contracts import ExpectedTable, NoisyCounts, marginal_query
from dpstream.core.contracts.expectations import Change
from dpstream.core.privacy import DiscreteLaplace
from dpstream.core.schema import Domain
from dpstream.tools.errors.contract import Guess
from dpstream.tools.errors.invented_tables import (
    Grouping,
    changes_of,
    correlated_columns,
    departures_of,
    foreseen_changes,
    imagined_changes,
    like_records,
    uniform_columns,
)

DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 5, 2))


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


def dependence(codes: Any) -> float:
    """The largest Cramer's V of two columns."""
    found = 0.0
    for i in range(codes.shape[1]):
        for j in range(i):
            table = np.zeros((DOMAIN.sizes[i], DOMAIN.sizes[j]))
            np.add.at(table, (codes[:, i], codes[:, j]), 1)
            expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
            squares = ((table - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
            found = max(found, float(np.sqrt(squares / table.sum() / (min(table.shape) - 1))))
    return found


def skew(codes: Any) -> float:
    """The largest share of a value, times the values of its column."""
    return max(
        float(np.bincount(codes[:, i], minlength=size).max() / len(codes) * size)
        for i, size in enumerate(DOMAIN.sizes)
    )


def test_uniform_columns_are_even_and_independent_and_others_are_not() -> None:
    even = uniform_columns(DOMAIN)(20_000, np.random.default_rng(1))
    assert dependence(even) < 0.05
    assert skew(even) < 1.1
    found = []
    for seed in range(10):
        draw = correlated_columns(DOMAIN, np.random.default_rng(seed))
        codes = draw(20_000, np.random.default_rng(1))
        assert (codes >= 0).all()
        assert (codes.max(axis=0) < DOMAIN.sizes).all()
        found.append((dependence(codes), skew(codes)))
        # The tree is the generator's; other records of it are alike.
        again = draw(20_000, np.random.default_rng(2))
        assert np.abs(again.mean(axis=0) - codes.mean(axis=0)).max() < 0.1
    assert np.median([one for one, _ in found]) > 0.2
    assert np.median([other for _, other in found]) > 1.5
    # Not all alike: some tables are nearly independent, some are not.
    assert min(found)[0] < 0.3 < max(found)[0]


def test_records_like_a_public_table() -> None:
    known = np.array([[1, 2, 4, 0], [0, 0, 0, 1]], np.int32)
    codes = like_records(known)(1000, np.random.default_rng(1))
    assert np.unique(codes, axis=0).tolist() == [[0, 0, 0, 1], [1, 2, 4, 0]]


@pytest.mark.parametrize(
    ("table", "sizes"),
    [
        (ExpectedTable(1000, 100, "grows"), {1: 100, 5: 500, 20: 2000}),
        (ExpectedTable(500, 100, "turns-over"), {1: 100, 5: 500, 20: 500}),
        (ExpectedTable(500, 100, "steady"), {1: 500, 5: 500, 20: 500}),
    ],
)
def test_a_table_is_as_large_as_guessed(table: ExpectedTable, sizes: dict[int, int]) -> None:
    guess = Guess(table, 20, (), "uniform", None, 7)
    came = left = 0
    previous = np.zeros((0, 4), np.int32)
    for step, (come, gone, places, there) in enumerate(
        imagined_changes(guess, uniform_columns(DOMAIN), previous), start=1
    ):
        came, left = came + len(come), left + len(gone)
        assert len(there) == came - left
        assert np.array_equal(previous[places], gone)
        previous = there
        if step in sizes:
            # Seven standard deviations of as many independent arrivals and departures.
            assert abs(len(there) - sizes[step]) < 7 * np.sqrt(came + left)
    assert bool(left) == (table.change != "grows")


def test_what_a_stream_began_with_stays() -> None:
    start = np.full((50, 4), 1, np.int32)
    guess = Guess(ExpectedTable(100, 50, "turns-over"), 10, (), "uniform", None, 7)
    for *_, there in imagined_changes(guess, uniform_columns(DOMAIN), start):
        assert np.array_equal(there[:50], start)


def test_records_that_come_sorted_are_alike_and_as_many() -> None:
    """Of one column at least the first step knows one value only; the records together are those of any order."""

    def steps(ordered: bool) -> list[Any]:
        guess = Guess(ExpectedTable(2000, 100, "grows", ordered, varies=0), 20, (), "uniform", None, 7)
        return [
            come for come, *_ in imagined_changes(guess, uniform_columns(DOMAIN), np.zeros((0, 4), np.int32))
        ]

    for ordered in (True, False):
        found = steps(ordered)
        # Seven standard deviations of a number of independent arrivals.
        assert abs(sum(map(len, found)) - 2000) < 7 * np.sqrt(2000)
        same = [any(len(set(come[:, i])) == 1 for i in range(4)) for come in found]
        assert np.mean(same) > 0.5 if ordered else not any(same)
        # The last kinds of a sorted table may be left over.
        assert len({tuple(row) for come in found for row in come.tolist()}) > 50


def _foreseen(change: Change, season: float | None = None) -> list[tuple[Any, ...]]:
    guess = Guess(ExpectedTable(6000, 600, change, varies=0), 60, (), "foreseen", None, 7)
    return list(foreseen_changes(guess, DOMAIN, season))


@pytest.mark.parametrize("change", ["grows", "turns-over", "steady"])
def test_a_foreseen_table_is_as_large_as_guessed_and_only_followed_records_change(change: Change) -> None:
    steps, before = _foreseen(change), np.zeros((0, 4), np.int32)
    for come, left, gone, there, same in steps:
        assert np.array_equal(before[gone], left)
        assert len(there) == len(before) + len(come) - len(gone)
        # A record that changes keeps all columns but one.
        assert ((come[:same] != left[:same]).sum(axis=1) <= 1).all()
        before = there
    # Seven standard deviations of as many independent arrivals and departures.
    wanted = 60 * 600 if change == "grows" else 6000
    assert abs(len(before) - wanted) < 7 * np.sqrt(2 * 60 * 600)
    changed = sum(same for *_, same in steps)
    turnover = 1 - np.exp(-0.1)
    assert changed == 0 if change != "steady" else abs(changed / (0.5 * turnover * 60 * 6000) - 1) < 0.2
    if change == "steady":
        # Even values of two columns are more common among those who stay than among newcomers.
        new = np.concatenate([come[same:] for come, *_, same in steps])
        even = (before % 2 == 0).mean(axis=0) - (new % 2 == 0).mean(axis=0)
        assert even.max() > 0.05


def test_a_season_moves_arrivals_of_a_foreseen_table() -> None:
    """Correlation with the best wave of twelve steps: chance of 60 independent numbers gives .5 in one of 500."""

    def share(season: float | None) -> float:
        come = np.array([len(step[0]) for step in _foreseen("grows", season)], float)
        waves = np.exp(2j * np.pi * np.arange(60) / 12)
        return float(abs(waves @ (come - come.mean())) / np.sqrt(30) / np.linalg.norm(come - come.mean()))

    assert share(12.0) > 0.9
    assert share(None) < 0.5
