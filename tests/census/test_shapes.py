"""What cohorts look like: tracked from census to census, and as values leave sooner than others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Measurement, Model, fit
from dpstream.core.schema import Domain
from dpstream.core.tables import Workload
from dpstream.families.census.census_state import CensusState, Level, pack, unpack
from dpstream.families.census.cohorts import (
    DRIFTS,
    AgedCohort,
    Attrition,
    Expected,
    Shapes,
    ShapeTracker,
    levels_of_cohorts,
    projected,
    raked,
)
from dpstream.families.census.signal import Signal
from dpstream.families.census.totals_filter import LevelTotal
from dpstream.mechanisms.followed_cells import MeasuredCells

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))
FOLLOWED = MeasuredCells(Workload.all_k_way(DOMAIN, 2))
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
        assert (DRIFTS[tracker.fits[:, CELLS.cliques.index((1,))].argmax()] > 1e-3) == drift
    own, last = np.mean(errors, axis=0)
    assert own < (0.9 if drift else 0.2) * last


def least_squares(rows: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """One vector from several noisy readings of it, by brute force."""
    design = np.concatenate([np.eye(len(values)) / np.sqrt(variance) for values, variance in rows])
    read = np.concatenate([values / np.sqrt(variance) for values, variance in rows])
    return np.asarray(np.linalg.lstsq(design, read, rcond=None)[0])


@pytest.mark.parametrize("number", [0, 4, 8])
@pytest.mark.parametrize("moved", [0.0, 1.5])
def test_what_is_expected_is_joined_with_what_is_measured_as_by_least_squares(
    number: int, moved: float
) -> None:
    """Two readings of a column (one of them of a pair that holds it) beside what its cohorts say."""
    generator = np.random.default_rng(6)
    table = shape_of(generator)
    shares = np.concatenate(model_of(table).marginals(CELLS.cliques))
    variances = generator.uniform(1e-4, 1e-3, len(CELLS.cliques))
    tracker, column = ShapeTracker.fresh(CELLS), CELLS.cliques.index((1,))
    pair, own = generator.dirichlet(np.ones(6)), generator.dirichlet(np.ones(3))
    measurements = [Measurement((0, 1), 500.0 * pair, 50.0), Measurement((1,), 500.0 * own, 80.0)]
    tracker.add(9, measurements, 500.0, Expected(shares, variances, moved))
    part = CELLS.part(column)
    expected = shares[part]
    diversity = (1.0 - ((expected**2).sum() - 3 * variances[column])) / 3
    before = variances[column] + DRIFTS[number] * moved * diversity
    readings = [
        (expected, before),
        (pair.reshape(2, 3).sum(axis=0), 2 * 50.0 / 500.0**2),
        (own, 80.0 / 500.0**2),
    ]
    np.testing.assert_allclose(tracker.values[number, part], least_squares(readings), atol=1e-6)
    assert tracker.variances[number, column] == pytest.approx(1.0 / sum(1.0 / v for _, v in readings))


def test_what_is_known_well_outlasts_a_poor_census() -> None:
    """A census of a higher level that measures with large noise leaves what lower levels measured well."""
    generator = np.random.default_rng(7)
    table = shape_of(generator)
    shares = np.concatenate(model_of(table).marginals(CELLS.cliques))
    noisy = 500.0 * table.sum(axis=2).ravel() + generator.laplace(0.0, 60.0, 6)
    tracker = ShapeTracker.fresh(CELLS)
    known = Expected(shares, np.full(len(CELLS.cliques), 1e-6), 0.0)
    tracker.add(9, [Measurement((0, 1), noisy, 7200.0)], 500.0, known)
    values, variances = tracker.estimates(9)
    np.testing.assert_allclose(values, shares, atol=0.002)
    assert (variances < 2e-6).all()


def test_a_pair_that_is_not_measured_again_moves_with_its_columns() -> None:
    table = np.array([[0.3, 0.1, 0.1], [0.1, 0.1, 0.3]])
    now = [np.array([0.7, 0.3]), np.array([0.2, 0.3, 0.5])]
    tracker = ShapeTracker.fresh(CELLS)
    tracker.add(1, [Measurement((0, 1), 1e5 * table.ravel(), 1.0)], 1e5)
    for step in range(2, 60):
        columns = [Measurement((i,), 1e5 * own, 1.0) for i, own in enumerate(now)]
        tracker.add(step, columns, 1e5)
    part = CELLS.part(CELLS.cliques.index((0, 1)))
    found = tracker.estimates(60)[0][part].reshape(2, 3)
    for axis, own in enumerate(now):
        np.testing.assert_allclose(found.sum(axis=1 - axis), own, atol=2e-3)
    # How they depend on each other, as odds ratios, is what it was.
    odds = [t[0, :2] * t[1, 1:] / (t[0, 1:] * t[1, :2]) for t in (found, table)]
    np.testing.assert_allclose(*odds, rtol=1e-3)


def test_a_column_that_has_lost_a_value_can_be_raked_to() -> None:
    found = raked(np.full((2, 6), 1 / 6), (2, 3), [np.array([1.0, 0.0]), np.array([0.0, 0.0, 1.0])])
    np.testing.assert_allclose(found, [[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]] * 2, atol=1e-6)


def test_a_damaged_state_is_refused() -> None:
    tracker = ShapeTracker.fresh(CELLS)
    tracker.add(3, [Measurement((0, 1), np.arange(6.0), 1.0)], 15.0)
    state = CensusState(
        Attrition.fresh(DOMAIN), Signal.fresh(len(DOMAIN)), levels=[Level(LevelTotal.fresh(10.0), tracker)]
    )
    state.newcomers.guess((15.0, 1.0), state.levels[0].total)
    state.step = 3
    packed = pack(state)
    again = unpack(packed, CELLS).levels[0].tracker
    for own, back in zip(tracker.estimates(9), again.estimates(9), strict=True):
        np.testing.assert_array_equal(own, back)
    tracked = ("values", "variances", "steps", "fits")
    for name in (*(f"levels/0/tracker/{name}" for name in tracked), "newcomers/rates"):
        damaged = {**packed.arrays, f"state/{name}": np.zeros(2)}
        with pytest.raises(StoreDamagedError):
            unpack(replace(packed, arrays=damaged), CELLS)


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
        parts = [AgedCohort(model_of(table), 5000.0, 0.7)]
        attrition.learn(parts, [(0, noisy[0], 0.004**2), (1, noisy[1], 0.004**2)])
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
