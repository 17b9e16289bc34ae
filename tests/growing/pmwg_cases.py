"""What the tests of questions share: counts as a batch, plans that are small, noise from a tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.core.schema import Boolean, Categorical, Integer, Schema
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.growing.asker import Asker
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.pmwg import PMWG
from dpstream.families.growing.pmwg_plan import PMWGPlan

SCHEMA = Schema(
    [
        Categorical("city", ["Bern", "Basel", "Chur"]),
        Boolean("smoker"),
        Integer("age", edges=[0, 18, 65, 121]),
    ]
)
DOMAIN = SCHEMA.domain
CELLS = 3 * 2 * len(SCHEMA.columns[2].labels())


class Arrived:
    """A batch that is given as counts of all cells."""

    declares_deletes = False

    def __init__(self, counts: Sequence[int] | NDArray[np.int64]) -> None:
        self.counts = np.asarray(counts, dtype=np.int64)

    def count(
        self, cliques: Sequence[Clique], part: Literal["net", "inserts", "deletes"] = "net"
    ) -> list[NDArray[np.int64]]:
        assert len(cliques) == 1
        assert part == "inserts"
        return [self.counts]


def plan(domain: Domain = DOMAIN, *, start: int = 100, epsilon: Any = 1, **options: Any) -> PMWGPlan:
    amounts = {name: options.pop(name) for name in ("rho", "delta") if name in options}
    budget = amounts if "rho" in amounts else {"epsilon": epsilon, **amounts}
    return PMWG(domain, options.pop("alpha", "0.1"), start, **options).calibrate(**budget)


def asker(which: PMWGPlan, counts: Sequence[int], seed: int = 1) -> Asker:
    made = Asker(which, SCHEMA, Randomness.seeded(seed))
    made.arrive(Arrived(counts))
    return made


def query(*cells: int, width: int = CELLS, domain: Domain = DOMAIN) -> LinearQuery:
    values = np.zeros(width)
    values[list(cells)] = 1
    return LinearQuery(tuple(range(len(domain))), values)


def silent(noise: DiscreteLaplace) -> int:
    """No noise: not private."""
    return 0
