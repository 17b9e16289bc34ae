"""A public prior in a census helps where it is right; what is measured, and estimated later, knows nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from dpstream.core.contracts import PublicPrior
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import PureDP, Randomness, Record
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, KeyedChanges, PresentBatch, PresentTable, PresentView, Workload
from dpstream.families.census import Census, CensusPlan, CensusSynthesis
from dpstream.families.census.census_state import CensusState
from dpstream.families.census.cohorts import PriorEvidence
from dpstream.mechanisms.workload_cells import Cells
from dpstream.stream.templates import words

DOMAIN = Domain(("zip", "district", "paid", "rent", "kind"), (12, 4, 2, 6, 5))
RECIPE = Census(Workload.all_k_way(DOMAIN, 2), turnover=10)
STEPS, SIZE, STAY = 12, 500, 10


def records(rows: int, generator: np.random.Generator) -> np.ndarray:
    """A zip's district is its own in 95 % of the records; rent and kind follow a little."""
    area = generator.choice(12, rows, p=np.arange(12, 0, -1) / 78)
    district = np.where(generator.random(rows) < 0.95, area % 4, generator.integers(0, 4, rows))
    rent = np.clip(area // 3 + generator.integers(0, 3, rows), 0, 5)
    kind = np.where(generator.random(rows) < 0.6, district, generator.integers(0, 5, rows))
    return np.column_stack([area, district, generator.integers(0, 2, rows), rent, kind]).astype(np.int32)


def ends(seed: int, steps: int = STEPS) -> Iterator[tuple[PresentBatch, np.ndarray]]:
    """The table at the end of every step, and its records."""
    generator, table, there = np.random.default_rng(seed), PresentTable.empty(DOMAIN), dict[int, np.ndarray]()
    came = 0
    for step in range(1, steps + 1):
        gone = [key for key in there if generator.random() < 1 / STAY]
        new = records(SIZE if step == 1 else SIZE // STAY, generator)
        for key in gone:
            del there[key]
        there |= {came + i: one for i, one in enumerate(new)}
        keys = sorted([*gone, *range(came, came + len(new))])
        came += len(new)
        held = np.array([key in there for key in keys], np.bool_)
        codes = np.array([there[key] for key in keys if key in there], np.int32)
        named = np.array([[key, 0] for key in keys], np.uint64)
        table, departed = table.after(KeyedChanges(named, held, codes), step)
        yield PresentBatch(PresentView(table, departed)), np.array(list(there.values()), np.int32)


def plan_of(prior: PublicPrior | None) -> CensusPlan:
    return replace(RECIPE, prior=prior).calibrate(PureDP.of(1), Record())


def prior_of(codes: np.ndarray, columns: tuple[int, ...] = (0, 1, 2, 3, 4)) -> PublicPrior:
    return PublicPrior(DOMAIN, columns, codes[:, columns], np.ones(len(codes)), {"sha256": "0"})


KNOWN = records(4000, np.random.default_rng(99))
_OTHER = np.random.default_rng(4)
#: Every column under other names: nothing in it is true. The true columns with false dependences. One wrong column.
RELABELLED, SORTED, ONE_COLUMN = (
    np.column_stack([own(i) for i in range(5)]).astype(np.int32)
    for own in (
        lambda i: _OTHER.permutation(DOMAIN.sizes[i])[KNOWN[:, i]],
        lambda i: np.sort(KNOWN[:, i])[:: 1 if i % 2 else -1],
        lambda i: 3 - KNOWN[:, i] if i == 1 else KNOWN[:, i],
    )
)


def errors(prior: PublicPrior | None, seed: int) -> tuple[float, float]:
    """Total variation of all pairs, and of zip and district: means over the later half of a stream."""
    plan = plan_of(prior)
    state, randomness, found, cliques = plan.start(), Randomness.seeded(seed), [], RECIPE.workload.cliques
    for step, (batch, present) in enumerate(ends(seed), 1):
        made = plan.step(state, batch, randomness).marginals(cliques)
        if step > STEPS // 2:
            truth = EncodedBatch(DOMAIN, present).count(cliques)
            found.append(
                [0.5 * np.abs(a / a.sum() - b / b.sum()).sum() for a, b in zip(truth, made, strict=True)]
            )
    apart = np.mean(found, axis=0)
    return float(apart.mean()), float(apart[cliques.index((0, 1))])


def test_a_right_prior_helps_and_a_wrong_one_hardly_hurts() -> None:
    """Seeded, so that it cannot fail by chance."""
    plain, right, pair, *wrong = (
        np.mean([errors(prior, seed) for seed in range(2)], axis=0)
        for prior in (
            None, prior_of(KNOWN), prior_of(KNOWN, (0, 1)),
            *map(prior_of, (RELABELLED, SORTED, ONE_COLUMN)),
        )
    )  # fmt: skip
    assert right[0] < 0.6 * plain[0]
    assert right[1] < 0.3 * plain[1]
    assert pair[1] < 0.3 * plain[1]
    for own in wrong:
        assert own[0] < 1.1 * plain[0]


def test_what_is_measured_and_estimated_does_not_know_of_the_prior() -> None:
    """The same draws, the same cohorts, the same start of the next census: all that differs is what is released."""
    found = [_whole_life(prior) for prior in (None, prior_of(KNOWN), prior_of(RELABELLED))]
    differs = 0
    for (none, state), *others in zip(*found, strict=True):
        for release, other in others:
            assert release.total == none.total
            assert [one.line() for one in release.noisy_counts] == [one.line() for one in none.noisy_counts]
            differs += not np.array_equal(*(one.marginals([(0, 1)])[0] for one in (release, none)))
            assert (other.newcomers.rates == state.newcomers.rates).all()
            assert (other.attrition.pulls == state.attrition.pulls).all()
            for mine, plain in zip(other.cohorts, state.cohorts, strict=True):
                assert (mine.size, mine.exposure) == (plain.size, plain.exposure)
                assert (mine.shares == plain.shares).all()
                assert (mine.model.potentials == plain.model.potentials).all()
            for mine, plain in zip(other.levels, state.levels, strict=True):
                assert (mine.tracker.values == plain.tracker.values).all()
    assert differs > STEPS // 2  # the right one is believed


def _whole_life(prior: PublicPrior | None) -> Iterator[tuple[CensusSynthesis, CensusState]]:
    plan = plan_of(prior)
    state, randomness = plan.start(), Randomness.seeded(1)
    for batch, _ in ends(1):
        yield plan.step(state, batch, randomness), state
    packed = plan.pack_state(state)
    assert ("state/seen/values" in packed.arrays) == (prior is not None)
    if prior is not None:
        with pytest.raises(StoreDamagedError):
            plan.unpack_state(replace(packed, arrays={**packed.arrays, "state/seen/values": np.zeros(2)}))


def test_all_that_was_measured_of_a_marginal_is_added_up() -> None:
    cells = Cells(Workload.all_k_way(Domain(("a", "b"), (2, 3)), 1))
    seen = PriorEvidence.fresh(cells)
    seen.add((np.array([0.5, 0.5, 9.0, 9.0, 9.0]), np.array([0.01, np.inf])), 10.0)
    seen.add((np.array([0.2, 0.8, 0.1, 0.2, 0.7]), np.array([0.02, 0.03])), 20.0)
    np.testing.assert_allclose(seen.values, [9.0, 21.0, 2.0, 4.0, 14.0])
    np.testing.assert_allclose(seen.variances, [0.01 * 100 + 0.02 * 400, 0.03 * 400])
    np.testing.assert_allclose(seen.records, [30.0, 20.0])


def test_the_plan_is_pinned_to_its_prior_and_tells_of_it() -> None:
    plan = plan_of(prior_of(KNOWN))
    assert plan.options()["prior"] == {"sha256": "0"}
    assert "prior" not in plan_of(None).options()
    assert "public table" in words(plan, "further", **plan.facts())
    other = Domain(("a",), (2,))
    with pytest.raises(ConfigError, match="other columns"):
        plan_of(PublicPrior(other, (0,), np.zeros((1, 1), np.int32), np.ones(1), {}))
