"""Selection scores: exact values and their sensitivity, by brute force over neighbouring batches."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import Event
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.mechanisms.workload_cells import GRID_BITS, SCORES, Cells, Score

DOMAIN = Domain(("a", "b", "c"), (2, 3, 1))
WORKLOADS = (
    Workload.all_k_way(DOMAIN, 2),
    Workload(DOMAIN, ((0, 1), (1, 2)), (Fraction(1, 3), Fraction(5, 2))),
    Workload(DOMAIN, ((0,), (1,), (0, 1)), (Fraction(1), Fraction(1, 2), Fraction(3))),
)


def scores(score: Score, codes: np.ndarray, expected: np.ndarray) -> list[Fraction]:
    batch = EncodedBatch(DOMAIN, codes.astype(np.int32))
    joined = np.concatenate(batch.count(score.cells.cliques))
    numerators, denominators = score.evaluate(joined, expected)
    return [Fraction(int(n), int(d)) / 2**GRID_BITS for n, d in zip(numerators, denominators, strict=True)]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("workload", WORKLOADS, ids=["pairs", "weighted", "with columns"])
def test_the_claimed_sensitivity_is_the_true_one(name, workload):
    """All neighbours of several batches, several models: never above the claim, and the claim is reached."""
    generator = np.random.default_rng(5)
    cells = Cells(workload)
    records = np.array([[a, b, 0] for a in range(2) for b in range(3)])
    for unit in (Event(), Event("replace")):
        score = Score(cells, name, unit, 0.7)
        largest = Fraction(0)
        for _ in range(6):
            codes = records[generator.integers(0, 6, size=generator.integers(1, 5))]
            expected = generator.normal(0.5, 2.0, size=cells.total)
            before = scores(score, codes, expected)
            if unit.relation == "add-remove":
                neighbours = [np.vstack([codes, record]) for record in records]
            else:
                neighbours = [np.vstack([codes[1:], record]) for record in records]
            for neighbour in neighbours:
                after = scores(score, neighbour, expected)
                largest = max([largest, *(abs(x - y) for x, y in zip(before, after, strict=True))])
        assert largest == score.sensitivity, unit


def test_scores_are_what_the_formulas_say():
    cells = Cells(Workload(DOMAIN, ((0, 1),), (Fraction(3, 2),)))
    codes = np.array([[0, 0, 0], [1, 2, 0]])
    expected = np.array([0.25, 0.5, 0.0, 0.0, 0.0, 1.0])
    distance = Fraction(3, 4) + Fraction(1, 2)
    unit = Event()
    assert scores(Score(cells, "mean-cells", unit), codes, expected) == [Fraction(3, 2) * distance / 6 - 6]
    assert scores(Score(cells, "sum-noise", unit, 0.5), codes, expected) == [Fraction(3, 2) * (distance - 3)]
    assert scores(Score(cells, "sum-cells", unit), codes, expected) == [Fraction(3, 2) * (distance - 6)]


def test_bad_scores_are_refused():
    cells = Cells(WORKLOADS[0])
    with pytest.raises(ConfigError, match="unknown score 'median'"):
        Score(cells, "median", Event())  # type: ignore[arg-type]
    with pytest.raises(LimitError, match="too many events"):
        Score(cells, "mean-cells", Event()).evaluate(np.full(cells.total, 1 << 33), np.zeros(cells.total))


@pytest.mark.parametrize("name", SCORES)
def test_extreme_weights_and_large_domains_do_not_wrap_around(name):
    """One record more moves a score by its sensitivity at most, wherever 64-bit products would have overflowed."""
    domain = Domain(("a", "b"), (55, 55))
    for weight in (Fraction("123.000001"), Fraction("999999.999999"), Fraction(1, 10**6)):
        cells = Cells(Workload(domain, ((0, 1), (0,)), (weight, Fraction(1))))
        score = Score(cells, name, Event(), 500.0)
        expected = np.zeros(cells.total)
        for records in (2882, 10**6, 2**31):
            values = []
            for count in (records, records + 1):
                batch = np.zeros(cells.total, dtype=np.int64)
                batch[[0, 55 * 55]] = count
                numerators, denominators = score.evaluate(batch, expected)
                values.append(
                    [Fraction(int(n), int(d)) for n, d in zip(numerators, denominators, strict=True)]
                )
            for before, after in zip(*values, strict=True):
                assert 0 < abs(after - before) <= score.grid_sensitivity
