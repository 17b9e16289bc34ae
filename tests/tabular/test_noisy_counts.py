"""Streams of tables publish what they drew, all of it and nothing else, and it adds up to the truth."""

from __future__ import annotations

import numpy as np
import pytest
from door_runs import drawn_and_published
from small_batches import drawn_batches

from dpstream.core.contracts import NoisyCounts
from dpstream.core.counters import counter_by_name
from dpstream.core.privacy import ZCDP, CubeNoise, Event, PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import DPStabs, Pooled
from dpstream.stream.templates import words

DOMAIN = Domain(("zip", "paid", "late"), (3, 2, 2))
PAIRS = Workload.all_k_way(DOMAIN, 2)


def batches(steps: int, rows: int = 300, *, deletes: bool = False) -> list[EncodedBatch]:
    return drawn_batches(DOMAIN, steps, rows, seed=4, deletes=rows // 3 if deletes else None)


def exact(one: NoisyCounts, stream: list[EncodedBatch]) -> np.ndarray:
    """What a query says of the records themselves."""
    part, everything = "net" if one.counted == "net" else one.counted, tuple(range(len(DOMAIN)))
    counts = [batch.count([everything], part)[0] for batch in stream[one.first - 1 : one.last]]
    table = np.sum(counts, axis=0).reshape(DOMAIN.sizes)
    signs = one.query["kind"] == "signs"
    names = one.query["terms"] if signs else one.query["columns"]
    names = [names] if one.columns is not None else names
    answers = []
    for term in names:
        own = [DOMAIN.names.index(name) for name in term]
        marginal = table.sum(axis=tuple(i for i in everything if i not in own))
        assert own == sorted(own)
        if signs:
            for _ in own:
                marginal = marginal[1] - marginal[0]
        answers.append(np.ravel(marginal))
    return np.concatenate(answers)


def test_names_of_draws_say_what_was_measured_and_queries_mean_it() -> None:
    plan = Pooled(PAIRS, iterations=5, deletions=True).calibrate(PureDP.of(900), horizon=12)
    stream = [batch.without_cancelled() for batch in batches(12, deletes=True)]
    _, counts = drawn_and_published(plan, stream, Randomness.seeded(1))
    for one in counts:
        assert np.abs(one.values - exact(one, stream)).max() <= 2  # nearly without noise
    drawn = {one.draw: one for one in counts}
    assert drawn["step 11, deletes, zip"].first == 10
    joint = drawn["step 11, inserts, signs"]
    assert joint.query == {"kind": "signs", "terms": [["paid"], ["late"], ["paid", "late"], []]}
    assert isinstance(joint.noise, CubeNoise)
    assert "step 12, inserts, zip x paid" in drawn


def test_a_plan_says_how_many_numbers_it_publishes() -> None:
    plan = Pooled(PAIRS, iterations=5).calibrate(epsilon="1", horizon=8)
    said = plan.facts()["noisy_counts"]
    _, counts = drawn_and_published(plan, batches(8, 0), Randomness.seeded(1))
    assert said["first"] == sum(len(one.values) for one in counts if one.last == 1) == 6
    assert said["most"] == 3 + 3 + 1 + 6 + 6
    told = words(plan, "further", **plan.facts())
    assert "6 numbers at first, and at most 19" in told
    wide = Pooled(PAIRS, deletions=True).calibrate(epsilon="4", horizon=12).facts()["noisy_counts"]
    assert (wide["first"], wide["most"]) == (12, 38)


@pytest.mark.parametrize("counter", ["simple", "block", "tree", "hybrid", "unbounded-block-closed"])
def test_what_an_interval_counter_gains_has_the_exact_law(counter: str) -> None:
    """Against the matrices of the counter: a gain is a difference of two rows of its decoder."""
    own = counter_by_name(counter, horizon=12).calibrate(PureDP.of(1), Event())
    matrices = own.materialize(12)
    for tick in range(1, 13):
        row = matrices.decoder[tick - 1] - (matrices.decoder[tick - 2] if tick > 1 else 0)
        wanted = sorted(noise.scale for weight, noise in zip(row, matrices.scales, strict=True) if weight)
        law = own.gain_law(tick)
        assert sorted(noise.scale for noise, count in law.parts for _ in range(count)) == wanted
        assert law.variance == pytest.approx(own.gain_variance(tick))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("budget", [PureDP.of(3), ZCDP.of("1/8")])
def test_dpstabs_publishes_what_its_counters_release(k: int, budget) -> None:
    plan = DPStabs(PAIRS, k=k, deletions=True, iterations=5).calibrate(budget, horizon=6)
    stream, state, sums = [b.without_cancelled() for b in batches(6, deletes=True)], plan.start(), k == 3
    before = [side.estimates.copy() for side in state.sides]
    for step, batch in enumerate(stream, 1):
        made = plan.step(state, batch, Randomness.seeded(step)).noisy_counts
        assert len(made) == 2 * k
        for one in made:
            number = plan.recipe.sides.index(one.counted)
            part = plan.cells.part(plan.cells.cliques.index(DOMAIN.clique(one.columns)))
            output = state.sides[number].estimates[part]
            np.testing.assert_array_equal(one.values, output if sums else output - before[number][part])
            assert (one.first, one.last) == (1 if sums else step, step)
            # Of gains by a simple counter no two share a draw, and which marginals there are was chosen.
            assert one.series == (f"{one.counted}, {' x '.join(one.columns)}" if sums else None)
            assert ("chosen" in one.query) == (not sums)
            assert np.abs(one.values - exact(one, stream)).max() < 8 * one.variance**0.5
        said = plan.facts()["noisy_counts"]
        assert said["first"] <= sum(len(one.values) for one in made) <= said["most"]
        before = [side.estimates.copy() for side in state.sides]
