"""Whole conversations on neighbouring databases: the noise that makes them the same costs no more than was charged.

The proof, played on the running code. A conversation is held with some noise. Then the same questions are put to a
database in which one record's value, early or late, is another one, with the noise moved as the proof moves it: the
threshold's up by the run's D, a yes's up by twice that, a number's by as much as the number moves. Every answer has to
be the same to the last digit, histogram included; so only the noise's odds can tell the two databases apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pmwg_cases import CELLS, DOMAIN, Arrived, plan

from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.families.growing.answers import QueryAnswer
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.numeric_sparse import Books, Draw, NumericSparse, SparseRun
from dpstream.families.growing.pmwg_plan import PMWGPlan


@dataclass(frozen=True)
class Recorded(NumericSparse):
    """Writes down what is tested and given, and what tests say."""

    values: list[int] = field(default_factory=list)
    said: list[bool] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)

    def start(self, books: Books, t: int, draw: Draw) -> Books:
        self.moves.append(self._moved(self.noise.units(t), t))
        return super().start(books, t, draw)

    def above(self, run: SparseRun, t: int, share: int, bits: int, draw: Draw) -> bool:
        found = super().above(run, t, share, bits, draw)
        self.said.append(found)
        return found

    def _scaled(self, units: int, t: int, share: int, bits: int) -> int:
        value = super()._scaled(units, t, share, bits)
        self.values.append(value)
        return value


def recorded(which: PMWGPlan) -> tuple[PMWGPlan, Recorded]:
    """The plan anew, with its sparse part watched."""
    fresh = PMWGPlan(**{one.name: getattr(which, one.name) for one in fields(which)})
    watched = Recorded(which.budget, which.noise, which.sparse.threshold)
    fresh.__dict__["sparse"] = watched
    return fresh, watched


Events = list[NDArray[np.int64] | LinearQuery]


def talk(which: PMWGPlan, events: Events, draw: Draw) -> tuple[list[QueryAnswer], NDArray[np.float64]]:
    """All answers, and the histogram at the end."""
    state = which.start()
    answers = []
    for event in events:
        if isinstance(event, LinearQuery):
            answers.append(which.ask(state, event, draw))
        else:
            which.arrive(state, Arrived(event))
    return answers, state.y


def conversation(seed: int, early: bool) -> tuple[Events, Events]:
    """Random arrivals and questions, and the same with one record replaced, in the first batch or the last."""
    rng = np.random.default_rng(seed)
    shape = rng.dirichlet(np.full(CELLS, 0.2))
    events: Events = [rng.multinomial(40, shape)]
    for _ in range(25):
        if rng.random() < 0.3:
            events.append(rng.multinomial(5, shape))
        else:
            weights = rng.random(CELLS) ** 0.3 * (rng.random(CELLS) < 0.4)
            events.append(LinearQuery((0, 1, 2), weights))
    events.append(rng.multinomial(5, shape))
    events += [query for query in events[:8] if isinstance(query, LinearQuery)]
    places = [i for i, event in enumerate(events) if not isinstance(event, LinearQuery)]
    at = places[0 if early else -1]
    batch = events[at]
    assert not isinstance(batch, LinearQuery)
    moved = batch.copy()
    moved[int(np.argmax(batch))] -= 1
    moved[int(rng.integers(CELLS))] += 1
    return events, [*events[:at], moved, *events[at + 1 :]]


@pytest.mark.parametrize("amounts", [{"epsilon": 20}, {"rho": 50}], ids=["pure", "zCDP"])
@given(seed=st.integers(0, 2**32 - 1), early=st.booleans(), learning=st.sampled_from(["text", "matching"]))
@settings(max_examples=40, deadline=None)
def test_the_same_conversation_costs_no_more_than_its_charges(
    amounts: dict[str, int], seed: int, early: bool, learning: str
) -> None:
    base = plan(DOMAIN, start=40, alpha="0.2", hard_questions=4, learning=learning, **amounts)
    events, neighbours = conversation(seed, early)
    first, heard = recorded(base)
    random = Randomness.seeded(seed)
    tape: list[tuple[DiscreteLaplace, int]] = []

    def draw(noise: DiscreteLaplace) -> int:
        tape.append((noise, int(random.draw(noise, 1)[0])))
        return tape[-1][1]

    answers, histogram = talk(first, events, draw)
    second, seen = recorded(base)
    place, costs = 0, [Fraction(0)]

    def again(noise: DiscreteLaplace) -> int:
        nonlocal place
        law, drawn = tape[place]
        assert noise == law
        place += 1
        if law == heard.threshold_noise:
            costs.append(Fraction(seen.moves[-1]) / law.scale)
            return drawn + seen.moves[-1]
        if law == heard.question_noise:
            more = 2 * seen.moves[-1] if heard.said[len(seen.said)] else 0
            costs[-1] += Fraction(more) / law.scale
            return drawn + more
        move = heard.values[len(seen.values) - 1] - seen.values[-1]
        costs.append(Fraction(abs(move)) / law.scale)
        return drawn + move

    repeated, y = talk(second, neighbours, again)
    assert repeated == answers
    assert np.array_equal(y, histogram)
    spent = sum(costs) if "epsilon" in amounts else sum(cost**2 / 2 for cost in costs)
    assert spent <= answers[-1].spent <= base.budget.amount
    assert {"easy", "hard"} & {answer.kind for answer in answers}
