"""Streams with a season, and measurements that are put together over marginals: all of it reads outputs only."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Measurement
from dpstream.core.privacy import PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular import Pooled, PooledPlan
from dpstream.families.tabular.pooled import PooledState
from dpstream.families.tabular.pooled_estimates import Epoch, Estimates, waves, with_margins
from dpstream.mechanisms.followed_cells import MeasuredCells
from dpstream.mechanisms.table_model import fit_table
from dpstream.stream.templates import paragraphs, said
from dpstream.tools.audit.transcripts import audit_subject
from dpstream_lab.audits.pooled_audit import pooled_subject

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))
PAIRS = Workload.all_k_way(DOMAIN, 2)
#: As the audit's streams have them.
AUDITED = Workload.all_k_way(Domain(("a", "b", "c"), (2, 3, 2)), 2)


def test_waves_vanish_over_whole_seasons_and_have_one_length_at_every_single_step() -> None:
    steps = range(1, 25)
    single = waves(12.0, [step - 1 for step in steps], steps)
    np.testing.assert_allclose(waves(12.0, [0, 5], [12, 29])[0], 0.0, atol=1e-12)
    np.testing.assert_allclose(single[:12], single[12:], atol=1e-12)
    assert np.ptp((single**2).sum(axis=1)) < 1e-12
    assert waves(None, [0], [3]).shape == (1, 0)


def seasonal(season: float | None, noise: float) -> tuple[Estimates, np.ndarray, np.ndarray]:
    """One column of three values and a rate that swing over 12 steps, for four seasons; the truth of 6 steps more."""
    cells = MeasuredCells(Workload.parse(Domain(("a",), (3,)), [["a"]])).cells
    generator, estimates = np.random.default_rng(8), Estimates.fresh(cells, season)
    turn = 2 * np.pi * (np.arange(54) + 0.5) / 12
    shares = np.column_stack([0.4 + 0.2 * np.cos(turn), 0.3 - 0.2 * np.cos(turn), np.full(54, 0.3)])
    rates = 400 * (1 + 0.5 * np.sin(turn))
    for begin in range(0, 48, 3):
        counts = (rates[begin : begin + 3, None] * shares[begin : begin + 3]).sum(axis=0)
        values = counts + noise * generator.normal(size=3)
        estimates.add(
            Epoch(values, np.full(1, noise**2), np.ones(1, dtype=bool), float(values.sum())),
            begin + 3,
            3 * noise**2,
        )
    return estimates, rates[48:], shares[48:]


def test_a_season_is_followed_and_one_of_another_length_is_not_believed() -> None:
    """Fixed noise; a season of 5 steps is the control, and must not be worse than the rate of all steps by much."""
    error = {}
    for season in (12.0, 5.0):
        estimates, rates, shares = seasonal(season, 20.0)
        found = estimates.expected_rates(range(49, 55)), estimates.expected_columns(np.ones(3), range(49, 55))
        error[season] = np.abs(found[0] / rates - 1).mean(), np.abs(found[1] - shares).mean()
        np.testing.assert_allclose(found[1].sum(axis=1), 1.0)
    usual = np.abs(400 / rates - 1).mean(), np.abs(shares.mean(axis=0) - shares).mean()
    assert error[12.0][0] < 0.3 * usual[0]
    assert error[12.0][1] < 0.3 * usual[1]
    assert error[5.0][0] > 0.6 * usual[0]
    assert error[5.0][1] > 0.6 * usual[1]


def test_the_sum_of_a_swinging_column_is_no_worse_than_what_was_measured() -> None:
    estimates, _, _ = seasonal(12.0, 60.0)
    exact, _, _ = seasonal(12.0, 0.0)
    found, variances, steady, _ = estimates.answer(np.ones(3))
    measured = np.abs(estimates.sums - exact.sums).mean()
    assert np.abs(found - exact.sums).mean() < 1.1 * measured
    assert 0.0 < variances[0] < 16 * 60.0**2 * 1.1
    assert not steady


def test_damaged_estimates_of_a_season_are_refused() -> None:
    estimates, _, _ = seasonal(12.0, 20.0)
    with pytest.raises(StoreDamagedError):
        replace(estimates, spreads=[0.0, 0.0]).check()


def test_a_column_is_the_mean_by_precision_of_all_that_tells_of_it() -> None:
    cells = MeasuredCells(PAIRS).cells
    pair = cells.cliques.index((0, 1))
    column = Measurement((0,), np.array([10.0, 20.0]), 6.0)
    both = Measurement((0, 1), np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 4.0)
    found = with_margins(cells, {0: column, pair: both}, ())
    assert sorted(found) == [0, 1, pair]
    assert found[0].variance == pytest.approx(4.0)  # 6 and 3 * 4
    np.testing.assert_allclose(found[0].values, (np.array([10.0, 20.0]) * 2 + np.array([6.0, 15.0])) / 3)
    np.testing.assert_allclose(found[1].values, [5.0, 7.0, 9.0])
    assert found[1].variance == pytest.approx(8.0)
    # A pair that was made from its columns' sums tells nothing new of them.
    alone = with_margins(cells, {0: column, pair: both}, (pair,))
    assert sorted(alone) == [0, pair]
    assert alone[0].variance == 6.0
    np.testing.assert_allclose(alone[0].values, column.values)


def test_a_marginal_moves_the_table_only_as_far_as_noise_does_not_explain() -> None:
    followed = MeasuredCells(Workload.parse(Domain(("a", "b"), (4, 4)), [["a", "b"]]))
    truth = np.full(16, 100.0)
    apart = np.kron([1.0, -1.0, 1.0, -1.0], [1.0, -1.0, 1.0, -1.0])
    values = np.concatenate([np.full(8, 400.0), truth + 20.0 * apart])
    variances = np.full(3, 20.0**2 / 1.8 * 16 / 9)  # the distance is 1.8 times what noise explains
    moved = {}
    pair = len(followed.cells.cliques) - 1
    for name, volatile in (("stays", ()), ("drifts", [pair])):
        model, _ = fit_table(
            followed, values, variances, 1600.0, iterations=300, max_cells=1000, volatile=volatile
        )
        moved[name] = float((model.marginals([(0, 1)])[0] - truth) @ apart) / 16
    assert 4.0 < moved["stays"] < 9.0  # of 20: 4/9 of the distance, but for what the fit has not reached
    # It does not enter at all below twice its noise.
    assert moved["drifts"] == pytest.approx(0.0, abs=0.1)


def test_the_plan_tells_of_its_season() -> None:
    plan = Pooled(PAIRS, season=Fraction(1461, 28)).calibrate(epsilon="1")
    assert "1461/28" in " ".join(said(paragraphs(plan, "further", **plan.facts())))


class Peeking(PooledPlan):
    """Control: what is expected of the open epoch follows its private counts."""

    def _synthesis(self, state: PooledState):
        if state.ahead is not None and state.step > state.closed:
            private = float(state.sides[0].counts[self.cells.part(0)].sum())
            state.ahead = replace(state.ahead, events=np.full_like(state.ahead.events, private))
        return super()._synthesis(state)


def test_no_transcript_of_such_a_stream_costs_more_than_the_budget() -> None:
    """Exact, so no false alarms."""
    recipe = Pooled(AUDITED, select_share=Fraction(1, 2), iterations=5, season=Fraction(3))
    plan = recipe.calibrate(PureDP.of(1), horizon=12)
    found = audit_subject(pooled_subject(plan, "season"), 1, Randomness.seeded(3))
    assert 0.9 < found.found <= 1 + 1e-9
    broken = Peeking(**{one.name: getattr(plan, one.name) for one in fields(plan)})
    assert math.isinf(audit_subject(pooled_subject(broken, "peeking"), 1, Randomness.seeded(3)).found)
