"""Audits on neighbouring streams: one early, middle or late point, moved near or far."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.families.points import cells, online
from dpstream.families.points.cells import DEFAULT, PAPER, Design, PointCells, Schedule
from dpstream.families.points.estimates import cell_estimates
from dpstream.families.points.online import OnlineCells, public_counts
from dpstream_lab.audits.points_audit import cube_cells

Floats = NDArray[np.float64]
POINTS = np.random.default_rng(12).random((60, 2)) * 0.45
NEIGHBOURS = [(place, moved) for place in (0, 2, 5, 11, 30, 59) for moved in (0.02, 0.5)]


def moved(points: Floats, place: int, far: float) -> Floats:
    """One point is replaced."""
    other = points.copy()
    other[place] = points[place] + far
    return other


# --- the sums of levels: exact ---------------------------------------------------------------------------------


def level_sums(
    plan: OnlineCells, points: Floats, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[NDArray[np.int64], Fraction]]:
    """Every exact count that meets noise outside of the sparse counters, with the noise's scale."""
    seen: list[tuple[NDArray[np.int64], Fraction]] = []
    real = cells.noisy

    def watched(exact: NDArray[np.int64], noise: DiscreteLaplace, randomness: Randomness) -> Floats:
        seen.append((exact.copy(), noise.scale))
        return real(exact, noise, randomness)

    for module in (online, cells):
        monkeypatch.setattr(module, "noisy", watched)
    source = Randomness.seeded(1)
    state = plan.fresh()
    plan.read(state, cube_cells(points, plan.schedule.max_depth), source)
    monkeypatch.undo()
    return seen


def loss(plan: OnlineCells, one: Floats, two: Floats, monkeypatch: pytest.MonkeyPatch) -> Fraction:
    """Exact loss of the sums, and the sparse counters' share of what the two paths pay."""
    pairs = zip(level_sums(plan, one, monkeypatch), level_sums(plan, two, monkeypatch), strict=True)
    total = Fraction(0)
    for (left, scale), (right, other) in pairs:
        assert scale == other, "noise depends on the data"
        total += int(np.abs(left - right).sum()) / scale
    tick = int(np.flatnonzero((one != two).any(axis=1))[0]) + 1
    level = plan.schedule.level_of(tick)
    tests = sum((plan.schedule.spent(j, level) for j in range(1, 9)), Fraction(0)) * plan.design.test_share
    return total + 2 * tests


@pytest.mark.parametrize("design", [PAPER, DEFAULT], ids=["paper", "default"])
@pytest.mark.parametrize("dimension", [1, 2])
def test_sums_of_levels_cost_what_is_said(
    design: Design, dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all neighbours the loss stays within epsilon, and comes near it where the budget is meant to be used up."""
    design = Design(Fraction(4), *list(design.__dict__.values())[1:])
    plan = OnlineCells(Schedule(dimension, Fraction(3), design, 8))
    points = np.random.default_rng(3).random((500, dimension)) * 0.45
    assert len(level_sums(plan, points, monkeypatch)) > 20
    losses = [loss(plan, points, moved(points, 5 * i, far), monkeypatch) for i, far in NEIGHBOURS]
    assert max(losses) <= 3
    assert float(max(losses)) > (0.8 if dimension == 1 and not design.even else 1.5)


def test_sums_with_too_little_noise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls: two thirds of the noise; cells that read a level when they begin and again when it is stored."""
    design = Design(Fraction(4), Fraction(1, 4), Fraction(2), False, Fraction(1), True, True)
    plan = OnlineCells(Schedule(8, Fraction(3), design, 8))
    points = np.random.default_rng(4).random((500, 8)) * 0.45
    spent, reread = type(plan.schedule).spent, type(plan.schedule).reread

    def worst() -> float:
        result = []
        for place, far in NEIGHBOURS:
            with pytest.MonkeyPatch.context() as inner:
                result.append(float(loss(plan, points, moved(points, 5 * place, far), inner)))
        return max(result)

    honest = worst()
    assert honest <= 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(plan.schedule), "spent", lambda s, j, r: spent(s, j, r) * Fraction(3, 2))
        assert worst() == pytest.approx(1.5 * honest, rel=1e-6)
        assert worst() > 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(plan.schedule), "reread", lambda s, j, r: 8 * reread(s, j, r))
        assert worst() > 3


# --- whole releases: lower bounds from many runs ---------------------------------------------------------------

LOW = Design(Fraction(1), Fraction(1, 2), Fraction(1, 2), True, Fraction(0), False, False)
RUNS = 300
#: Of one bound; a correct program fails a run of this file less than once in 10^6.
ALPHA = 1e-9


def outcomes(plan: OnlineCells, points: Floats, target: tuple[Floats, Floats], seed: int) -> list[int]:
    """How much more the released counts see around one point than around the other, over depths and two times."""
    source, result = Randomness.seeded(seed), []
    for _ in range(RUNS):
        state, score = plan.fresh(), 0
        for part in np.split(points, [6]):
            plan.read(state, cube_cells(part, plan.schedule.max_depth), source)
            for both, _ in cell_estimates(plan, public_counts(state)):
                depth = len(both).bit_length() - 1
                at = cube_cells(np.stack(target), depth)
                score += int(both[at[0]] - both[at[1]])
        result.append(score)
    return result


def lower_bound(one: list[int], two: list[int]) -> float:
    """A loss that is exceeded with confidence 1 - ALPHA: best of threshold events, by Clopper and Pearson."""
    from scipy.stats import beta

    best, events = 0.0, np.unique(np.quantile(one + two, np.linspace(0.02, 0.98, 25)).astype(int))
    for left, right in ((np.array(one), np.array(two)), (-np.array(one), -np.array(two))):
        for event in np.unique(np.concatenate([events, -events])):
            hits, misses = int((left > event).sum()), int((right > event).sum())
            if hits:
                low = beta.ppf(ALPHA / 200, hits, len(left) - hits + 1)
                high = beta.isf(ALPHA / 200, misses + 1, len(right) - misses) if misses < len(right) else 1.0
                best = max(best, math.log(low / high))
    return best


@pytest.mark.parametrize("variant", [LOW, DEFAULT])
def test_releases_tell_no_more_than_epsilon(variant: Design) -> None:
    """Early, middle, late; near and far. Control: levels whose sums are exact."""
    design = Design(Fraction(1), *list(variant.__dict__.values())[1:])
    plan = OnlineCells(Schedule(2, Fraction(1), design, 2))
    points = POINTS[:12]
    bounds = []
    for place, far in ((1, 0.5), (6, 0.02), (11, 0.5)):
        other = moved(points, place, far)
        target = (points[place], other[place])
        bounds.append(lower_bound(outcomes(plan, points, target, 1), outcomes(plan, other, target, 2)))
    assert max(bounds) <= 1.0


def test_exact_sums_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = OnlineCells(Schedule(2, Fraction(1), LOW, 2))
    for module in (online, cells):
        monkeypatch.setattr(module, "noisy", lambda exact, noise, randomness: exact.astype(float))
    monkeypatch.setattr(
        PointCells, "_end_segment", lambda self, cell, rule, randomness: self.pending.__setitem__(cell, 0)
    )
    points = POINTS[:12]
    other = moved(points, 5, 0.5)
    target = (points[5], other[5])
    assert lower_bound(outcomes(plan, points, target, 1), outcomes(plan, other, target, 2)) > 1.0
