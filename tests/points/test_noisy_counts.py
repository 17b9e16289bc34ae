"""Points publish the noisy counts of cells that they drew, all of them and nothing else, and they are the truth but for
noise of the stated law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from door_runs import only_drawn
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, PrivateBatch
from dpstream.core.privacy import AnyNoise, Event, Noisy, Randomness, Relay
from dpstream.core.schema import Boolean, Real, Schema
from dpstream.core.tables import EncodedRecords
from dpstream.families.points import Points, PointsPlan, PointsState
from dpstream_lab.audits.points_audit import cube_plan

CITY = Schema((Boolean("car"), Real("x", [0, 0.5, 1]), Real("y", [0, 0.5, 1])))
LINE = Schema((Real("x", [0, 0.5, 1]),))
DEPTH = 7
Ints = NDArray[np.int64]


def plan(schema: Schema = CITY, epsilon: int = 8, **options: Any) -> PointsPlan:
    recipe = Points(schema, max_depth=DEPTH, **options)
    return recipe.calibrate(epsilon=epsilon, unit=Event("replace"))


def codes(count: int, seed: int = 1) -> Ints:
    """Cells of depth 7; half of all points are in one of them."""
    generator = np.random.default_rng(seed)
    some = generator.integers(0, 1 << DEPTH, count)
    some[generator.random(count) < 0.5] = 3
    return some


class Leaking(PointsPlan):
    """BROKEN: publishes the exact counts of all cells besides."""

    def _measured(self, state: PointsState) -> list[NoisyCounts]:
        counts, (cells,) = super()._measured(state), state.cells.total[None]
        if not counts:
            return counts
        return [*counts, replace(counts[0], draw="exact", values=cells[2:4])]


class Watched(Relay):
    """Remembers every measurement but those of the sparse counters, which are of one cell each."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(inner)
        self.seen = list[tuple[AnyNoise, Ints]]()

    def measure(self, exact: Ints, law: AnyNoise, drawn: Ints | None = None) -> Noisy:
        values = super().measure(exact, law, drawn)
        if len(exact) > 1:
            self.seen.append((law, values))
        return values


def watched(made: PointsPlan) -> tuple[list[tuple[AnyNoise, Ints]], list[NoisyCounts]]:
    """Everything that was measured outside of the sparse counters (whose segments end), and what is published."""
    state, generator, source = made.start(), np.random.default_rng(2), Watched(Randomness.seeded(1))
    published, ended = list[NoisyCounts](), 0
    for _ in range(12):
        fine = np.column_stack([generator.integers(0, min(size, 64), 400) for size in made.space.sizes])
        batch: PrivateBatch = EncodedRecords(made.reading.domain, fine.astype(np.int32))
        published += made.step(state, batch, source).noisy_counts
        ended += int((state.cells.counted != 0).sum())
    assert ended
    return source.seen, published


@pytest.mark.parametrize("schema", [CITY, LINE], ids=["city", "line"])
def test_a_stream_publishes_its_sums_and_nothing_of_its_tests(schema: Schema) -> None:
    made = plan(schema)
    seen, counts = watched(made)
    assert only_drawn(seen, counts)
    assert all(one.counted == "points" and one.series is None for one in counts)
    assert counts[0].query == {"kind": "cells", "columns": list(schema.names), "depth": 1}
    leaking = Leaking(*(getattr(made, name) for name in made.__dataclass_fields__))
    assert not only_drawn(*watched(leaking))


def judged(errors: NDArray[np.float64]) -> bool:
    """Whether independent errors, each over its stated standard deviation, have mean 0 and variance 1.

    False alarms: below 1e-6. Laplace noise has a kurtosis of 6 at most (narrow discrete noise has more, and is not
    drawn here); both statistics are within six standard deviations.
    """
    mean = abs(float(errors.mean())) < 6.0 / np.sqrt(errors.size)
    return mean and abs(float((errors**2).mean()) - 1.0) < 6.0 * np.sqrt(5.0 / errors.size)


def test_noisy_counts_of_cells_are_unbiased_and_have_the_stated_variance() -> None:
    """False alarms below 1e-6; the control states half of the variance."""
    made, arrived = cube_plan(2, depth=DEPTH, epsilon=4), codes(20_000)
    state, source = made.start(), Randomness.system()
    errors, variances = [], []
    for first in range(0, len(arrived), 1000):
        made.read(state, arrived[first : first + 1000], source)
        for one in state.measured:
            cells = arrived[one.first - 1 : one.last] >> (DEPTH - one.depth)
            errors.append(one.values - np.bincount(cells, minlength=1 << one.depth))
            variances.append(np.full(len(one.values), one.noise.variance))
    stated = np.concatenate(variances)
    assert stated.size > 3000
    assert stated.min() > 4
    assert judged(np.concatenate(errors) / np.sqrt(stated))
    assert not judged(np.concatenate(errors) / np.sqrt(stated / 2))


@pytest.mark.parametrize("variant", ["default", "paper"])
@pytest.mark.parametrize("dimension", [1, 3])
def test_a_plan_says_how_many_numbers_it_publishes(variant: Any, dimension: int) -> None:
    made = cube_plan(dimension, variant, DEPTH, 8)
    state, source, numbers = made.start(), Randomness.seeded(1), 0
    last = made.schedule.start(DEPTH + 2) - 1
    made.read(state, codes(last), source)
    numbers = sum(len(one.values) for one in state.measured)
    assert numbers == sum(made.schedule.measured(level) for level in range(DEPTH + 2))
