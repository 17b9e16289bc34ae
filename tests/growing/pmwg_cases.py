"""What the tests of questions share: counts as a batch, plans that are small, noise from a tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PrivateBatch
from dpstream.core.errors import StepError
from dpstream.core.privacy import AnyNoise, Randomness
from dpstream.core.schema import Boolean, Categorical, Integer, Schema
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.pmwg_facts import QueryAnswer, Question, Standing, linear_query
from dpstream.families.growing.pmwg_plan import PMWG, PMWGPlan, PMWGState

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


#: This many samples of one law are drawn at once: one at a time, the calls would cost more than the noise.
_DRAWN_AT_ONCE = 256


class Asker:
    """A growing database in memory that answers linear queries; nothing of it is durable. For tests only."""

    def __init__(self, plan: PMWGPlan, schema: Schema, randomness: Randomness | None = None) -> None:
        self._plan, self._schema = plan, schema
        self._state: PMWGState = plan.start()
        self._noise = _DrawnAhead(randomness or Randomness.system())
        #: What stopped a question after it had drawn noise.
        self._stopped: str | None = None
        #: Answers since the last arrival, by what was asked, not by its words.
        self._answers: dict[bytes, QueryAnswer] = {}

    def arrive(self, batch: PrivateBatch) -> None:
        """Count records that arrive together; free.

        Errors:
            ConfigError: the batch has deletes.
        """
        self._plan.arrive(self._state, batch)
        self._answers.clear()

    def ask(self, question: Question) -> QueryAnswer:
        """Answer one question; see ``PMWGPlan.ask``.

        Between two arrivals a question has one answer, whatever its words: asked again it gives the same answer, and
        its complement gives one minus it. Nothing is drawn or spent then.

        Errors: those of ``PMWGPlan.ask``.
            StepError: an earlier question was stopped after noise was drawn for it. The state is then in between: a
            test may have said yes in a run that goes on, and only one yes a run is paid for.
        """
        if self._stopped is not None:
            raise StepError(
                f"a question was stopped by {self._stopped} after noise was drawn for it",
                where="ask",
                allowed="no further question to this object; open_stream keeps a state that can go on",
            )
        query = linear_query(question, self._schema)
        own, complement = self._plan.question_bytes(query)
        if complement in self._answers and own not in self._answers:
            implied = self._answers[complement].of_complement()
            self._answers[own] = self._plan.with_books(implied, self._state)
        if own in self._answers:
            return self._answers[own]
        handed_out = self._noise.handed_out
        try:
            self._answers[own] = self._plan.ask(self._state, query, self._noise)
        except BaseException as error:
            if self._noise.handed_out > handed_out:
                self._stopped = type(error).__name__
            raise
        return self._answers[own]

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


class _DrawnAhead(Drawing):
    """Samples drawn in blocks and handed out once each."""

    def __init__(self, randomness: Randomness) -> None:
        super().__init__(self._next)
        self._randomness = randomness
        self._drawn: dict[int, list[int]] = {}
        self.handed_out = 0

    def _next(self, noise: AnyNoise) -> int:
        """One sample."""
        self.handed_out += 1
        # Laws are told apart by identity: the plan keeps them, and hashing their fractions would take most of the time.
        ready = self._drawn.get(id(noise))
        if not ready:
            ready = self._randomness.draw(noise, _DRAWN_AT_ONCE).tolist()
            self._drawn[id(noise)] = ready
        return int(ready.pop())


def asker(which: PMWGPlan, counts: Sequence[int], seed: int = 1) -> Asker:
    made = Asker(which, SCHEMA, Randomness.seeded(seed))
    made.arrive(Arrived(counts))
    return made


def query(*cells: int, width: int = CELLS, domain: Domain = DOMAIN) -> LinearQuery:
    values = np.zeros(width)
    values[list(cells)] = 1
    return LinearQuery(tuple(range(len(domain))), values)


silent = Drawing(lambda _: 0)
