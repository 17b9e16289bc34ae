"""Headline marginals are measured at every border within the budget, published, and kept by the fitted table."""

from __future__ import annotations

import numpy as np
from door_runs import drawn_and_published

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Domain
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
