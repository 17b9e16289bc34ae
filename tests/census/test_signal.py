"""How much of a census's table is released: what fresh noise says of the last release, and Stein's rule."""

from __future__ import annotations

import numpy as np
import pytest
from census_stays import Stay, batches
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.privacy import Randomness, Record
from dpstream.core.schema import Domain
from dpstream.core.tables import Workload
from dpstream.families.census import Census
from dpstream.families.census.signal import agreement, nearest_distribution

DOMAIN, STEPS = Domain(("a", "b"), (4, 5)), 24


@given(st.lists(st.floats(-1.0, 2.0), min_size=2, max_size=6))
def test_no_distribution_is_nearer(values: list[float]) -> None:
    """A point p of a convex set is nearest to y if and only if <y - p, q - p> <= 0 for its corners q."""
    shares = np.array(values)
    nearest = nearest_distribution(shares)
    assert nearest.min() >= 0.0
    assert nearest.sum() == pytest.approx(1.0)
    assert ((np.eye(len(shares)) - nearest) @ (shares - nearest)).max() <= 1e-9


@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_agreement_is_unbiased(spread: float) -> None:
    """False alarms: below 1e-6 (five standard errors). Without what noise adds it is too large: the control."""
    generator, true, even = np.random.default_rng(1), np.array([0.1, 0.2, 0.3, 0.4]), np.full(4, 0.25)
    errors, added = list[float](), list[int]()
    for noise in generator.normal(0.0, spread, (20_000, 4)):
        nearest = nearest_distribution(true + noise)
        found = agreement(true + noise, even, spread**2)[0]
        errors.append(found - float((nearest - even) @ (true - even)) / spread**2)
        added.append(np.count_nonzero(nearest) - 1)
    far = 5.0 * np.std(errors) / len(errors) ** 0.5
    assert abs(np.mean(errors)) < far
    assert np.mean(errors) + np.mean(added) > far


@pytest.mark.parametrize(
    ("records", "epsilon", "least", "most"), [(20, "0.05", 0.0, 0.7), (2000, 5, 1.0, 1.0)]
)
def test_noise_is_not_released_as_signal(records: int, epsilon: object, least: float, most: float) -> None:
    """Few records: mostly uniform. Many: all of what was measured. (No chance: the noise is seeded.)"""
    plan = Census(Workload.all_k_way(DOMAIN, 2), turnover=6).calibrate(epsilon=epsilon, unit=Record())
    generator, state, noise = np.random.default_rng(3), plan.start(), Randomness.seeded("signal")
    stays = [
        Stay(
            key, 1 + key * STEPS // (4 * records), None, {1: tuple(generator.binomial((3, 4), 0.2).tolist())}
        )
        for key in range(records)
    ]
    parts = list[float]()
    for batch in batches(stays, STEPS, DOMAIN):
        made = plan.step(state, batch, noise)
        parts.append(state.signal.part)
        if 0.0 < parts[-1] < 1.0 and made.weights is not None:
            # The rest of it: independent columns, none further from uniform than the estimated one.
            calm = made.models[-1].with_total(1.0)
            assert not calm.cliques
            assert made.weights[-1] == pytest.approx(1.0 - parts[-1])
            others = list(zip(made.weights[:-1], made.models[:-1], strict=True))
            for column, size in enumerate(DOMAIN.sizes):
                whole = [weight * model.with_total(1.0).marginal((column,)) for weight, model in others]
                way, calmer = (
                    shares - 1.0 / size
                    for shares in (np.sum(whole, axis=0) / (1.0 - made.weights[-1]), calm.marginal((column,)))
                )
                share = float(calmer @ way) / float(way @ way)
                assert -1e-9 <= share <= 1.0 + 1e-9
                assert calmer == pytest.approx(share * way, abs=1e-6)
    assert least <= np.mean(parts[STEPS // 2 :]) <= most
