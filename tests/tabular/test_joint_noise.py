"""Joint noise: what is measured together, what is published of it, and what a reader makes of it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from small_batches import drawn_batches

from dpstream.core.contracts import ExpectedTable, NoisyCounts
from dpstream.core.privacy import Event, HistogramCells, HistogramsNoise, PureDP, Randomness, WeightedSum
from dpstream.core.schema import Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular import Pooled
from dpstream.mechanisms import MWEMPGM
from dpstream.mechanisms.joint_groups import deviations, draw_shares, together
from dpstream.stream.release.combined import add_up, projected

DOMAIN = Domain(tuple("abcdef"), (3,) * 6)
RECIPE = Pooled(Workload.all_k_way(DOMAIN, 2), iterations=5)
SIZES = dict(zip(DOMAIN.names, DOMAIN.sizes, strict=True))


def test_groups_lower_the_summed_noise_as_calculated() -> None:
    """The gains that the theory page states; one large histogram stays alone."""
    for sizes, gain in (([3] * 12, 2.25), ([5] * 20, 1.69), ([16] * 8, 1.16)):
        (group,) = together(sizes, level=False)
        own = deviations([sizes[i] for i in group], level=False)
        assert len(sizes) * 2**0.5 / own[sizes[0]] == pytest.approx(gain, abs=0.01)
    assert together([3, 3, 3, 100], level=False) == [(0, 1, 2), (3,)]
    exact = HistogramsNoise(Fraction(10_000), (2, 3, 5))
    for cells, deviation in deviations((2, 3, 5), level=False).items():
        assert deviation == pytest.approx(exact.variance_of(cells) ** 0.5 / 10_000, rel=1e-6)


def test_no_histogram_has_more_noise_than_by_itself() -> None:
    """200 lists of sizes, both relations; budgets are divided by whole numbers, so up to a thousandth. The control:
    groups that are best in sum, with the shares that are best for them."""
    generator, more = np.random.default_rng(1), 0
    for number in range(200):
        sizes, level = generator.choice([2, 3, 5, 8, 16, 30, 100], 2 + number % 12).tolist(), bool(number % 2)
        alone = len(sizes) * 2**0.5 * (2.0 if level else 1.0)
        shares = draw_shares(sizes, level=level)
        assert sum(share for _, share in shares) == 1
        assert sorted(place for group, _ in shares for place in group) == list(range(len(sizes)))
        for group, share in shares:
            own = [sizes[place] for place in group]
            largest = max(deviations(own, level=level).values()) if len(own) > 1 else alone / len(sizes)
            assert largest / share <= alone * 1.001
        best = deviations(sizes, level=level)
        more += max(best.values()) > alone * 1.1
    assert more > 20


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_headlines_are_drawn_together_within_their_share(relation: str) -> None:
    own = replace(RECIPE, headline=(("a",), ("b",), ("c", "d")), headline_share=Fraction(1, 4))
    unit = Event() if relation == "add-remove" else Event("replace")
    plan = own.calibrate(PureDP.of(1), unit=unit, horizon=5)
    assert sum(part.total for part in plan.parts()) == 1
    (clock,) = plan.clocks
    assert sum(budget.amount for _, budget, _ in clock.draws) == Fraction(1, 4)
    apart = plan.runner.noise_of([0], PureDP.of(Fraction(1, 12)))
    for _, _, noise in clock.draws:
        assert max(getattr(noise, "variances", (noise.variance,))) <= apart.variance * 1.002
    counts = plan.step(
        plan.start(), drawn_batches(DOMAIN, 1, 300, seed=1)[0], Randomness.seeded(8)
    ).noisy_counts
    heads = [one for drawn in counts if "headline" in drawn.draw for one in drawn.marginals]
    assert sorted(one.columns for one in heads) == [("a",), ("b",), ("c", "d")]
    assert plan.facts()["headline"]["standard_deviation"] <= apart.variance**0.5 * 1.001


def test_mwem_measures_a_whole_workload_together() -> None:
    """Where it measures some, nothing changes."""
    workload = Workload.all_k_way(DOMAIN, 1)
    plan = MWEMPGM().calibrate(workload, PureDP.of(1), Event())
    run = plan.run(drawn_batches(DOMAIN, 1, 400, seed=2)[0], "net", Randomness.seeded(4))
    assert run.total_variance == pytest.approx(plan.total_variance())
    (output,) = run.outputs
    assert output.noise == HistogramsNoise(Fraction(1), (3,) * 6)
    assert plan.noise.variance > 3.5 * output.noise.variance
    assert sum(part.total for part in plan.parts()) == 1
    some = MWEMPGM(k=2).calibrate(workload, PureDP.of(1), Event())
    drawn = some.run(drawn_batches(DOMAIN, 1, 400, seed=2)[0], "net", Randomness.seeded(4)).outputs
    assert [one.noise for one in drawn] == [some.noise] * 2


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_a_draw_is_published_whole_and_read_by_marginals(relation: str) -> None:
    unit = Event() if relation == "add-remove" else Event("replace")
    plan = RECIPE.calibrate(PureDP.of(1), unit=unit, horizon=5)
    state = plan.start()
    (counts,) = plan.step(state, drawn_batches(DOMAIN, 1, 50, seed=1)[0], Randomness.seeded(8)).noisy_counts
    assert counts.query == {"kind": "marginals", "columns": [[name] for name in DOMAIN.names]}
    assert isinstance(counts.noise, HistogramsNoise)
    assert NoisyCounts.from_line(counts.line()) == counts
    sums = counts.values.reshape(6, 3).sum(axis=1)
    assert len(set(sums.tolist())) == 1
    if relation == "replace":
        assert sums[0] == 50
    own = counts.marginals
    assert [one.columns for one in own] == [(name,) for name in DOMAIN.names]
    assert {one.draw for one in own} == {counts.draw}
    assert np.array_equal(np.concatenate([one.values for one in own]), counts.values)
    number = projected([], own[0], SIZES)
    assert number.variance == pytest.approx(counts.noise.sum_variance)
    law = add_up([number.parts[0].coefficients(np.ones((), dtype=bool))])
    assert law.exact
    assert law.variance == pytest.approx(number.variance)


def test_what_a_plan_predicts_is_what_a_run_draws() -> None:
    plan = RECIPE.calibrate(PureDP.of(1), horizon=5)
    design = plan.runner.design(0.0, drifts=True)
    ((group, noise),) = plan.runner.column_draws(design)
    assert group == tuple(range(6))
    (counts,) = plan.step(
        plan.start(), drawn_batches(DOMAIN, 1, 50, seed=1)[0], Randomness.seeded(8)
    ).noisy_counts
    assert counts.noise == noise
    assert plan.runner.cell_variance(design) == pytest.approx(noise.variance)
    (told,) = plan.expected_errors([1], ExpectedTable(50, 10, "grows")) or ()
    assert [one.error for one in told.marginals] == pytest.approx([noise.variance**0.5] * 6)
    assert told.total == pytest.approx(noise.sum_variance**0.5)
    assert plan.runner.noise_of([0], PureDP.of(Fraction(1, 6))).variance > 3.0 * noise.variance


@pytest.mark.parametrize("level", [False, True])
def test_intervals_of_cells_and_sums_hold_as_often_as_they_say(level: bool) -> None:
    """2,000 draws: six standard errors (false alarms below 1e-8). Control: intervals of 2/3 of the noise."""
    noise = HistogramsNoise(Fraction(15), (3, 4, 3, 5), level)
    randomness = Randomness.seeded("intervals")
    drawn = np.array([randomness.draw(noise, sum(noise.sizes)) for _ in range(2000)])[:, 3:7]
    own = HistogramCells(noise, 4)
    for many in (1, 3, *(() if level else (4,))):
        law = WeightedSum(histograms=((own, many, 1.0, 1),))
        assert law.variance == pytest.approx(own.variance_of_sum(many, many))
        for confidence in (0.5, 0.9):
            inside = np.abs(drawn[:, :many].sum(axis=1)) <= law.half_width(confidence)
            error = (confidence * (1 - confidence) / len(drawn)) ** 0.5
            assert -6 * error < inside.mean() - confidence < 6 * error + 0.05
            short = np.abs(drawn[:, :many].sum(axis=1)) <= law.half_width(confidence) * 2 / 3
            assert short.mean() < confidence - 6 * error


@pytest.mark.parametrize(("blocks", "scale"), [(3, 1), (12, 3), (6, 6), (2, 15), (1, 30)])
def test_laws_of_blocks_of_two_are_those_of_an_enumeration(blocks: int, scale: int) -> None:
    """With the common sum s and negative sums up to M, a block is one of s + 2 M + 1. Control: 9/10 of each width."""
    most = int(scale * (2 * blocks + 1 + 12 * (2 * blocks + 1) ** 0.5 + 40))
    s, m = np.arange(most)[:, None], np.arange(most // 2)
    logs = blocks * np.log(s + 2 * m + 1.0) - (s + 2 * m) / scale + np.where(s > 0, np.log(2.0), 0.0)
    shares = np.exp(logs - logs.max())
    ends = np.zeros(3 * most)
    np.add.at(ends, most - np.broadcast_to(m, shares.shape), shares / (s + 2 * m + 1))
    np.add.at(ends, most + s + m + 1, -shares / (s + 2 * m + 1))
    cell = np.bincount(np.abs(np.arange(3 * most) - most), np.cumsum(ends))
    noise = HistogramCells(HistogramsNoise(Fraction(scale), (2,) * blocks), 2)
    for many, weights in ((1, cell), (2, shares.sum(axis=1))):
        inside, law = np.cumsum(weights) / weights.sum(), WeightedSum(histograms=((noise, many, 1.0, 1),))
        for confidence in (0.9, 0.95, 0.99, 0.999):
            width = law.half_width(confidence)
            assert inside[int(width)] >= confidence > inside[int(0.9 * width)]
