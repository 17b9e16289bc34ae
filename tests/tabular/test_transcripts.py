"""Exact privacy check of whole streams on transcripts (see ``dpstream.tools.audit.door``).

The ratio must stay within the budget for every transcript; a plan that draws 2/3 of the noise must not, and a stream
that lets something exact through must lose everything.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from door_runs import run_loss

from dpstream.core.counters import SimpleCounter
from dpstream.core.privacy import Event, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import DPStabs, DPStabsPlan
from dpstream.mechanisms import ModelSynthesis
from dpstream.tools.audit.door import stream_run

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
STEPS = 3


def batch_of(plan, inserts, deletes):
    return EncodedBatch(DOMAIN, inserts, deletes if plan.recipe.deletions else None)


def one_loss(plan, codes, record, at, side, seed):
    """Of one random transcript, between a stream and its neighbour at step ``at``.

    The neighbour has ``record`` more (add/remove), or in place of its first one (replace), among the inserts
    (side 0) or the deletes (side 1).
    """
    changed = [list(pair) for pair in codes]
    kept = changed[at][side][1:] if plan.unit.relation == "replace" else changed[at][side]
    changed[at][side] = np.vstack([kept, record])
    base = [batch_of(plan, *pair) for pair in codes]
    more = [batch_of(plan, *pair) for pair in changed]
    # Transcripts are typical ones of fixed words; the bound holds for every one of them.
    runs = stream_run(plan, base), stream_run(plan, more)
    loss = run_loss(*runs, Randomness.seeded(seed), pure=isinstance(plan.budget, PureDP))
    return loss.chosen, loss.measured


def losses(plan, repeats):
    generator = np.random.default_rng(11)

    def draw(rows):
        return np.column_stack([generator.integers(0, s, size=rows) for s in DOMAIN.sizes]).astype(np.int32)

    found = []
    for seed in range(repeats):
        codes = [(draw(4), draw(2)) for _ in range(STEPS)]
        side = int(generator.integers(0, len(plan.recipe.sides)))
        found.append(one_loss(plan, codes, draw(1)[0], int(generator.integers(0, STEPS)), side, seed))
    return np.array(found)


def recipe_of(**options):
    return DPStabs(
        Workload.all_k_way(DOMAIN, 2), **{"k": 2, "select_share": "1/2", "iterations": 5} | options
    )


@pytest.mark.parametrize("unit", [Event(), Event("replace")], ids=["add-remove", "replace"])
@pytest.mark.parametrize("deletions", [False, True], ids=["inserts", "deletions"])
@pytest.mark.parametrize(
    ("past", "score"), [("literal", "mean-cells"), ("predicted", "sum-cells"), ("predicted", "sum-noise")]
)
def test_no_transcript_costs_more_than_the_budget(past, score, deletions, unit):
    plan = recipe_of(past=past, score=score, deletions=deletions).calibrate(epsilon="1", unit=unit)
    found = losses(plan, 60)
    assert np.abs(found.sum(axis=1)).max() <= 1.0 + 1e-9
    # Each half keeps to its own share, and the counters' half is reached (for replace: both cells must agree in
    # sign for that, which is rarer): nothing is wasted.
    assert np.abs(found[:, 0]).max() <= 0.5 + 1e-9
    assert np.abs(found[:, 1]).max() <= 0.5 + 1e-9
    assert np.abs(found[:, 1]).max() > (0.5 - 1e-9 if unit == Event() else 0.3)


@pytest.mark.parametrize("counter", ["tree", "unbounded-block", "hybrid", "block"])
def test_counters_that_count_a_record_several_times(counter):
    """A record is in several noisy sums; all of them together keep to the counters' share."""
    plan = recipe_of(counter=counter, k=3).calibrate(epsilon="1", horizon=STEPS)
    found = losses(plan, 40)
    assert np.abs(found[:, 1]).max() <= (1.0 if plan.selector is None else 0.5) + 1e-9
    assert np.abs(found[:, 1]).max() > 0.3


def test_two_thirds_of_the_noise_is_caught():
    """Negative control: counters calibrated for 3/2 of their share."""
    plan = recipe_of().calibrate(epsilon="1")
    weak = SimpleCounter().calibrate(PureDP(Fraction(1, 4) * Fraction(3, 2)), Event())
    found = losses(replace(plan, counter=weak), 60)
    assert np.abs(found[:, 1]).max() > 0.5 + 0.1


@pytest.mark.parametrize("leak", ["total", "total's error", "measured", "more measured"])
def test_what_a_release_says_of_its_errors_is_looked_at(leak):
    """Negative controls: selections and counters are sound, and what a release says beside them is not."""

    class Leaking(DPStabsPlan):
        def step(self, state, batch, randomness):
            exact = batch.count(self.cells.cliques)
            released = super().step(state, batch, randomness)
            if leak == "total":
                return ModelSynthesis(released.models, float(exact[0].sum()), released.errors)
            if leak == "total's error":
                return replace(released, total_error=float(exact[0].sum()))
            clique = self.cells.cliques[0]
            if leak == "more measured" and exact[0].sum() == 4:
                return replace(released, errors={}, counts={})
            counts = exact[0] if leak == "measured" else np.zeros_like(exact[0])
            return replace(released, errors={clique: 1.0}, counts={clique: counts})

    plan = recipe_of().calibrate(epsilon="1")
    leaking = Leaking(plan.recipe, plan.budget, plan.unit, plan.horizon, plan.counter, plan.selector)
    assert np.isinf(losses(leaking, 2)[:, 1]).all()


@pytest.mark.parametrize("counter", ["simple", "toeplitz"])
def test_no_transcript_costs_more_rho_than_the_budget(counter):
    """Outputs of a counter in two halves are decoded from what passed the door."""
    plan = recipe_of(counter=counter).calibrate(rho="0.5", horizon=STEPS)
    assert 0.2 < losses(plan, 40).sum(axis=1).max() <= 0.5 + 1e-9


@pytest.mark.parametrize("share", [1, Fraction(3, 2)], ids=["as calibrated", "control"])
def test_noise_that_is_drawn_ahead_is_measured_when_its_sum_ends(share):
    """Least-squares trees draw noise before its sum is there; the door sees both, and all of it costs the budget."""
    plan = recipe_of(counter="optimal-tree", k=3).calibrate(epsilon="1", horizon=STEPS)
    weak = plan.counter.recipe.calibrate(PureDP(plan.counter.budget.epsilon * share), Event())
    found = losses(replace(plan, counter=weak), 40)[:, 1]
    assert (found.max() <= 1 + 1e-9) == (share == 1)
    assert found.max() == pytest.approx(float(share))
