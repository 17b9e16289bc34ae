"""What the tests of questions share: counts as a batch, plans that are small, noise from a tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import AnyNoise, Randomness
from dpstream.core.schema import Boolean, Categorical, Clique, Domain, Integer, Schema
from dpstream.families.growing import PMWG, LinearQuery, PMWGPlan
from dpstream.families.growing.pmwg_facts import QueryAnswer, Question, Standing, linear_query

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
    options.setdefault("learning", "text")
    return PMWG(domain, options.pop("alpha", "0.1"), start, **options).calibrate(**budget)


class Asker:
    """A growing database in memory that answers linear queries, each time anew."""

    def __init__(self, plan: PMWGPlan, randomness: Randomness) -> None:
        self._plan, self._state, self._noise = plan, plan.start(), randomness

    def arrive(self, counts: Sequence[int]) -> None:
        """Count records that arrive together."""
        self._plan.arrive(self._state, Arrived(counts))

    def ask(self, question: Question) -> QueryAnswer:
        """Answer one question."""
        return self._plan.ask(self._state, linear_query(question, SCHEMA), self._noise)

    @property
    def standing(self) -> Standing:
        """How many questions were asked so far, and what they cost."""
        return self._plan.standing(self._state)


class Drawing(Randomness):
    """Every single sample comes from a function of its law."""

    def __init__(self, sample: Callable[[AnyNoise], int]) -> None:
        super().__init__(bytes)
        self.sample = sample

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        return np.array([self.sample(law) for _ in range(size)], np.int64)


def asker(which: PMWGPlan, counts: Sequence[int], seed: int = 1) -> Asker:
    made = Asker(which, Randomness.seeded(seed))
    made.arrive(counts)
    return made


def query(*cells: int, width: int = CELLS, domain: Domain = DOMAIN) -> LinearQuery:
    values = np.zeros(width)
    values[list(cells)] = 1
    return LinearQuery(tuple(range(len(domain))), values)


silent = Drawing(lambda _: 0)
