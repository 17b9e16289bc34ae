"""Headline marginals are measured at every border within the budget, published, and kept by the fitted table."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from door_runs import drawn_and_published, only_drawn

from dpstream.core.privacy import ZCDP, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled

DOMAIN = Domain(("zip", "cause", "paid", "late"), (8, 5, 2, 2))
PAIRS = Workload.all_k_way(DOMAIN, 2)
HEADLINE = (("zip",), ("zip", "cause"))


def stream(steps: int, *, drift: bool, deletes: bool, seed: int) -> list[EncodedBatch]:
    generator, batches = np.random.default_rng(seed), []
    for step in range(steps):
        if drift or step == 0:
            shape = generator.dirichlet(np.full(DOMAIN.cells(range(4)), 0.3))
        cells = generator.choice(len(shape), generator.poisson(400), p=shape)
        codes = np.array(np.unravel_index(cells, DOMAIN.sizes)).T.astype(np.int32)
        batches.append(EncodedBatch(DOMAIN, codes, codes[: len(codes) // 4] if deletes else None))
    return batches


@pytest.mark.parametrize("epsilon", ["1/2", "2"])
def test_the_fitted_table_keeps_to_the_headlines_as_far_as_noise_allows(epsilon: str) -> None:
    """Seeded, so that it cannot fail by chance: within two standard errors in 95 % of the cells, of four streams."""
    within = []
    for drift, deletes in ((False, False), (True, False), (False, True), (True, True)):
        plan = Pooled(PAIRS, headline=HEADLINE, deletions=deletes).calibrate(epsilon=epsilon, horizon=25)
        state, sums, variances = (
            plan.start(),
            dict[tuple[str, ...], np.ndarray](),
            dict[tuple[str, ...], float](),
        )
        for step, batch in enumerate(stream(25, drift=drift, deletes=deletes, seed=2)):
            release = plan.step(state, batch, Randomness.seeded(step))
            for one in release.noisy_counts:
                if "headline" in one.draw:
                    sign = -1 if one.counted == "deletes" else 1
                    sums[one.columns] = sums.get(one.columns, 0) + sign * one.values
                    variances[one.columns] = variances.get(one.columns, 0.0) + one.variance
        assert set(sums) == set(HEADLINE)
        for columns, values in sums.items():
            table = release.marginals([DOMAIN.clique(columns)])[0]
            within.append(np.abs(table - values) <= 2.0 * variances[columns] ** 0.5)
    assert np.concatenate(within).mean() >= 0.95


@pytest.mark.parametrize("budget", [PureDP.of(1), ZCDP.of("1/8")])
def test_every_border_measures_every_headline_with_its_share(budget) -> None:
    plan = Pooled(PAIRS, headline=HEADLINE, headline_share="1/4").calibrate(budget, horizon=12)
    drawn, counts = drawn_and_published(
        plan, stream(12, drift=False, deletes=False, seed=1), Randomness.seeded(1)
    )
    assert only_drawn(drawn, counts)
    noise = plan.runner.noise_of([0], budget.scaled(Fraction(1, 8)))
    for border in (*range(1, 10), 11, 12):
        own = {one.columns: one for one in counts if one.draw.startswith(f"step {border}, net, headline")}
        assert set(own) == set(HEADLINE)
        assert {one.noise for one in own.values()} == {noise}


def test_a_headline_need_not_be_in_the_workload_and_is_never_chosen() -> None:
    own = Workload.of(DOMAIN, [["paid", "late"], ["paid", "cause"]])
    plan = Pooled(own, headline=(("late", "zip"),), iterations=5).calibrate(epsilon="20", horizon=8)
    _, counts = drawn_and_published(plan, stream(8, drift=False, deletes=False, seed=1), Randomness.seeded(1))
    names = [one.draw.split(", ", 2)[2] for one in counts if one.last == 8]
    assert (
        sorted(names) == ["cause", "headline zip x late", "paid x cause", "signs", "zip"] or "signs" in names
    )
    assert sum("zip x late" in name for name in names) == 1
    assert max(np.abs(one.values).max() for one in counts) > 100
