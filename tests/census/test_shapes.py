"""What cohorts look like: tracked from census to census, and as values leave sooner than others."""

from __future__ import annotations

import numpy as np
import pytest

from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Measurement, Model, fit
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.families.census.attrition import Aged, Attrition
from dpstream.families.census.cohorts import Shapes, levels_of_cohorts
from dpstream.families.census.shape_tracker import DRIFTS, ShapeTracker, projected
from dpstream.families.tabular.pooled_run import Followed

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))
FOLLOWED = Followed(Workload.all_k_way(DOMAIN, 2))
CELLS = FOLLOWED.cells


def shape_of(generator: np.random.Generator) -> np.ndarray:
    return generator.dirichlet(np.full(24, 2.0)).reshape(2, 3, 4)


def model_of(table: np.ndarray) -> Model:
    return fit(
        DOMAIN, [Measurement((0, 1, 2), 1000.0 * table.ravel(), 1e-3)], total=1000.0, iterations=500
    ).with_total(1.0)


def test_a_union_of_three_columns_tells_of_all_marginals_within_it() -> None:
    table = shape_of(np.random.default_rng(1))
    found = projected(
        CELLS, [Measurement((0, 1, 2), table.ravel(), 2.0), Measurement((), np.array([1.0]), 1.0)]
    )
    assert [index for index, _, _ in found] == list(range(len(CELLS.cliques)))
    for index, values, variance in found:
        clique = CELLS.cliques[index]
        others = tuple(axis for axis in range(3) if axis not in clique)
        np.testing.assert_allclose(values, table.sum(axis=others).ravel())
        assert variance == pytest.approx(2.0 * 24 / DOMAIN.cells(clique))


@pytest.mark.parametrize("drift", [False, True])
def test_a_tracker_is_closer_than_its_last_measurement(drift: bool) -> None:
    """Without drift it averages, with drift it follows; it finds out which it is."""
    generator, errors = np.random.default_rng(2), []
    for _ in range(20):
        tracker, table = ShapeTracker.fresh(CELLS), shape_of(generator)
        for step in range(1, 31):
            if drift:
                table = 0.5 * table + 0.5 * shape_of(generator)
            noisy = 500.0 * table.sum(axis=2).ravel() + generator.laplace(0.0, 6.0, 6)
            tracker.add(step, [Measurement((0, 1), noisy, 72.0)], 500.0)
        values, variances = tracker.estimates(30)
        assert np.isinf(variances[[CELLS.cliques.index((2,)), CELLS.cliques.index((1, 2))]]).all()
        part = CELLS.part(CELLS.cliques.index((0, 1)))
        truth = table.sum(axis=2).ravel()
        errors.append([((values[part] - truth) ** 2).sum(), ((noisy / 500.0 - truth) ** 2).sum()])
        assert (DRIFTS[tracker.fits[:, CELLS.cliques.index((0, 1))].argmax()] > 1e-3) == drift
    own, last = np.mean(errors, axis=0)
    assert own < (0.9 if drift else 0.2) * last


def test_a_level_begins_with_a_copy_and_a_damaged_tracker_is_refused() -> None:
    tracker = ShapeTracker.fresh(CELLS)
    tracker.add(3, [Measurement((0, 1), np.arange(6.0), 1.0)], 15.0)
    other = tracker.copy()
    other.add(4, [Measurement((0, 1), np.zeros(6), 1.0)], 15.0)
    assert not np.array_equal(tracker.values, other.values)
    again = ShapeTracker.of(CELLS, tracker.arrays())
    for own, back in zip(tracker.estimates(9), again.estimates(9), strict=True):
        np.testing.assert_array_equal(own, back)
    with pytest.raises(StoreDamagedError):
        ShapeTracker.of(CELLS, tracker.arrays() | {"fits": np.zeros((1, 2))})


def test_folded_cohorts_are_the_mixture_of_both() -> None:
    generator, shapes = np.random.default_rng(3), Shapes(FOLLOWED, 50, 1000)
    cohorts = []
    for number, size in enumerate((3000.0, 1000.0)):
        shares = np.concatenate(model_of(shape_of(generator)).marginals(CELLS.cliques))
        known = shares, np.full(len(CELLS.cliques), 1e-8)
        cohorts.append(shapes.cohort(0, (number, number + 1), size, known))
    both = shapes.folded(*cohorts)
    assert (both.low, both.high, both.size) == (0, 2, 4000.0)
    expected = [
        0.75 * one + 0.25 * other
        for one, other in zip(
            *(c.model.with_total(1.0).marginals(CELLS.cliques) for c in cohorts), strict=True
        )
    ]
    for found, wanted in zip(both.model.with_total(1.0).marginals(CELLS.cliques), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=0.004)
    first = np.array([0, 1, 2, 3], np.int32)
    assert levels_of_cohorts(cohorts, first).tolist() == [0, 0]
    assert levels_of_cohorts([], first).tolist() == []


def aged_table(table: np.ndarray, pulls: np.ndarray, exposure: float) -> np.ndarray:
    """Who is left of a table, exactly."""
    a, b, c = np.exp(pulls[:2]), np.exp(pulls[2:5]), np.exp(pulls[5:])
    left = table * np.exp(-exposure * a[:, None, None] * b[None, :, None] * c[None, None, :])
    return np.asarray(left / left.sum())


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_it_is_found_which_values_leave_sooner(strength: float) -> None:
    generator = np.random.default_rng(4)
    pulls = strength * np.array([-0.3, 0.3, -0.2, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0])
    attrition = Attrition.fresh(DOMAIN)
    for _ in range(6):
        table = shape_of(generator)
        now = aged_table(table, pulls, 0.7)
        found = [now.sum(axis=tuple(i for i in range(3) if i != column)) for column in range(3)]
        noisy = [own + generator.normal(0.0, 0.004, len(own)) for own in found]
        parts = [Aged(model_of(table), 5000.0, 0.7)]
        attrition.learn(parts, [0, 1, 2], noisy, np.array([0.004**2, 0.004**2, np.inf]))
    best = attrition.pulls[attrition.best]
    if strength == 0.0:
        assert np.abs(best).max() < 0.05
    else:
        assert best[1] - best[0] == pytest.approx(0.6, abs=0.15)
        assert best[4] - best[2] == pytest.approx(0.4, abs=0.15)
        table = shape_of(generator)
        model, truth = model_of(table), aged_table(table, pulls, 0.7).sum(axis=2).ravel()
        aged = attrition.aged(model, 0.7)
        assert aged.total == model.total
        before, after = (np.abs(one.marginal((0, 1)) - truth).sum() for one in (model, aged))
        assert after < 0.4 * before
        assert attrition.aged(model, 0.0) is model
