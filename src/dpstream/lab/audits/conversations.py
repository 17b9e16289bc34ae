"""Whole conversations with a growing database (PMWG) on neighbours: noise that hides a record costs what is charged.

The proof, played on the running code. A conversation is held with some noise. Then the same questions are put to a
database in which one record's value, early or late, is another one, with the noise moved as the proof moves it: the
threshold's up by the run's D, a yes's up by twice that, a number's by as much as the number moves. Every answer has to
be the same to the last digit, the public histogram included; so only the odds of the noise tell the two databases
apart. The second conversation is reopened after each event, as a stream is that was stopped there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.privacy import DiscreteLaplace, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.numeric_sparse import Books, Draw, NumericSparse, SparseRun
from dpstream.families.growing.pmwg import PMWG
from dpstream.families.growing.pmwg_plan import PMWGPlan, PMWGState
from dpstream.families.growing.questions import QueryAnswer
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest

_DOMAIN = Domain(("a", "b", "c"), (3, 2, 4))
_CELLS = 24
_START = 40
_CONVERSATIONS: dict[AuditLength, int] = {"short": 12, "long": 200}
_AMOUNTS: tuple[Mapping[str, Any], ...] = ({"epsilon": 20}, {"rho": 50})

#: Arrivals as counts of all cells, and questions.
Events = Sequence[NDArray[np.int64] | LinearQuery]


def audit_conversations(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Both kinds of budget, both ways of learning; then broken ones. Cost: short: about 4 s of a core."""
    many = _CONVERSATIONS[length]
    progress("conversations on neighbours")
    for amounts in _AMOUNTS:
        for learning in ("text", "matching"):
            words = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
            subject = f"conversation, {words}, learning {learning}"
            yield exact_conversations(_plan(learning, amounts), subject, many, randomness)
    honest = _plan("text", _AMOUNTS[0])
    for name, kind in _BROKEN_PLANS.items():
        progress(f"control: {name}")
        yield exact_conversations(_as(kind, honest), f"conversation, {name}", many, randomness, control=True)
    for name, sparse in _BROKEN_TESTS.items():
        progress(f"control: {name}")
        broken = _as(PMWGPlan, honest)
        broken.__dict__["sparse"] = sparse(honest.sparse.budget, honest.sparse.noise, honest.sparse.threshold)
        yield exact_conversations(broken, f"conversation, {name}", many, randomness, control=True)


def _plan(learning: Any, amounts: Mapping[str, Any]) -> PMWGPlan:
    return PMWG(_DOMAIN, "1/5", _START, hard_questions=4, learning=learning).calibrate(**amounts)


def exact_conversations(
    plan: PMWGPlan, subject: str, many: int, randomness: Randomness, *, control: bool = False
) -> AuditFinding:
    """The largest loss of some conversations; infinite where an answer differs."""
    began, worst, kinds = time.perf_counter(), Largest(), set[str]()
    for number in range(many):
        base, neighbour = _events(randomness.below(2**32), early=number % 2 == 0)
        loss, answers = conversation_loss(plan, base, neighbour, randomness)
        kinds |= {answer.kind for answer in answers}
        worst.see(loss, f"a record {'of the first' if number % 2 == 0 else 'of the last'} arrivals")
    return AuditFinding.exact(
        began,
        subject=subject,
        claimed=plan.budget,
        found=worst.loss,
        control=control,
        detail=f"{many} conversations with answers that are {', '.join(sorted(kinds))}; most with {worst.where}",
    )


def conversation_loss(
    plan: PMWGPlan, base: Events, neighbour: Events, randomness: Randomness
) -> tuple[float, list[QueryAnswer]]:
    """The loss of one conversation, in the unit of the budget, and its answers.

    Infinite where the noise of the proof does not make all answers the same, or does not cost what is charged.
    """
    tape: list[tuple[DiscreteLaplace, int]] = []

    def draw(noise: DiscreteLaplace) -> int:
        tape.append((noise, int(randomness.draw(noise, 1)[0])))
        return tape[-1][1]

    try:
        first, heard = _watched(plan)
        answers, histogram = _talk(first, base, draw, reopened=False)
        second, seen = _watched(plan)
        moved = _Moved(tape, heard, seen)
        again, other = _talk(second, neighbour, moved.draw, reopened=True)
    except OtherDrawsError:
        return math.inf, []
    if answers != again or not np.array_equal(histogram, other) or len(moved.costs) != len(tape):
        return math.inf, answers
    pure = isinstance(plan.budget, PureDP)
    runs = list[Fraction]()
    for at, cost in enumerate(moved.costs):
        # The tests of a run and its threshold are one release.
        if tape[at][0] == heard.question_noise and runs:
            runs[-1] += cost
        else:
            runs.append(cost)
    paid = sum(runs) if pure else sum(cost**2 / 2 for cost in runs)
    return (float(paid) if paid <= answers[-1].spent else math.inf), answers


class OtherDrawsError(Exception):
    """The second conversation, or a run of tests, draws otherwise than the proof has it."""


@dataclass
class _Moved:
    """The noise of a tape, moved as the proof moves it, and what each move costs."""

    tape: list[tuple[DiscreteLaplace, int]]
    heard: _Watched
    seen: _Watched
    costs: list[Fraction] = field(default_factory=list)

    def draw(self, noise: DiscreteLaplace) -> int:
        """The next noise of the tape."""
        if len(self.costs) == len(self.tape) or self.tape[len(self.costs)][0] != noise:
            raise OtherDrawsError
        heard, seen = self.heard, self.seen
        if noise == heard.threshold_noise:
            move = seen.moves[-1]
        elif noise == heard.question_noise:
            if len(seen.said) >= len(heard.said):
                raise OtherDrawsError
            move = 2 * seen.moves[-1] if heard.said[len(seen.said)] else 0
        else:
            if len(seen.values) > len(heard.values):
                raise OtherDrawsError
            move = heard.values[len(seen.values) - 1] - seen.values[-1]
        drawn = self.tape[len(self.costs)][1]
        self.costs.append(Fraction(abs(move)) / noise.scale)
        return drawn + move


class _Watched(NumericSparse):
    """Notes what is tested and given, and what tests say; a run has to draw its noise itself."""

    values: list[int]
    said: list[bool]
    moves: list[int]

    def start(self, books: Books, t: int, draw: Draw) -> Books:
        """The start of a run, with one fresh noise of its threshold."""
        self.moves.append(self._moved(self.noise.units(t), t))
        drawn: list[tuple[DiscreteLaplace, int]] = []

        def noted(noise: DiscreteLaplace) -> int:
            drawn.append((noise, draw(noise)))
            return drawn[-1][1]

        opened = super().start(books, t, noted)
        if opened.run is None or drawn != [(self.threshold_noise, opened.run.threshold_noise)]:
            raise OtherDrawsError
        return opened

    def above(self, run: SparseRun, t: int, share: int, bits: int, draw: Draw) -> bool:
        """One test."""
        found = super().above(run, t, share, bits, draw)
        self.said.append(found)
        return found

    def _scaled(self, units: int, t: int, share: int, bits: int) -> int:
        value = super()._scaled(units, t, share, bits)
        self.values.append(value)
        return value


def _watched(plan: PMWGPlan) -> tuple[PMWGPlan, _Watched]:
    """The plan anew, with its tests watched."""
    own = plan.sparse
    kind = type("_WatchedTests", (_Watched, type(own)), {})
    watched: _Watched = kind(own.budget, own.noise, own.threshold, own.grid)
    watched.__dict__.update(values=[], said=[], moves=[])
    fresh = _as(type(plan), plan)
    fresh.__dict__["sparse"] = watched
    return fresh, watched


def _talk(
    plan: PMWGPlan, events: Events, draw: Draw, *, reopened: bool
) -> tuple[list[QueryAnswer], NDArray[np.float64]]:
    """All answers, and the histogram at the end."""
    state, answers = plan.start(), []
    for event in events:
        if isinstance(event, LinearQuery):
            answers.append(plan.ask(state, event, draw))
        else:
            cells = np.repeat(np.arange(_CELLS), event)
            codes = np.column_stack(np.unravel_index(cells, _DOMAIN.sizes)).astype(np.int32)
            plan.arrive(state, EncodedBatch(_DOMAIN, codes))
        if reopened:
            state = _reopened(plan, state)
    return answers, state.y


def _reopened(plan: PMWGPlan, state: PMWGState) -> PMWGState:
    """The state as a store gives it back."""
    packed = plan.pack_state(state)
    fresh = plan.unpack_state(Packed(json.loads(json.dumps(packed.meta)), packed.arrays))
    plan.restore_books(fresh, json.loads(json.dumps(plan.pack_books(state))))
    plan.restore_memory(fresh, plan.pack_memory(state))
    return fresh


def _events(seed: int, *, early: bool) -> tuple[Events, Events]:
    """Random arrivals and questions, and the same with one record replaced, in the first arrivals or the last."""
    generator = np.random.default_rng(seed)
    shape = generator.dirichlet(np.full(_CELLS, 0.2))
    events: list[NDArray[np.int64] | LinearQuery] = [generator.multinomial(_START, shape)]
    for _ in range(25):
        if generator.random() < 0.3:
            events.append(generator.multinomial(5, shape))
        else:
            weights = generator.random(_CELLS) ** 0.3 * (generator.random(_CELLS) < 0.4)
            events.append(LinearQuery((0, 1, 2), weights))
    events.append(generator.multinomial(5, shape))
    events += [event for event in events[:8] if isinstance(event, LinearQuery)]
    places = [i for i, event in enumerate(events) if not isinstance(event, LinearQuery)]
    at = places[0 if early else -1]
    arrived = events[at]
    assert not isinstance(arrived, LinearQuery)
    moved = arrived.copy()
    moved[int(np.argmax(arrived))] -= 1
    moved[int(generator.integers(_CELLS))] += 1
    return events, [*events[:at], moved, *events[at + 1 :]]


# Broken on purpose.


def _as(kind: type[PMWGPlan], plan: PMWGPlan) -> PMWGPlan:
    return kind(**{one.name: getattr(plan, one.name) for one in fields(plan)})


class _ExactEasy(PMWGPlan):
    """BROKEN: an easy question gets the exact share."""

    def ask(self, state: PMWGState, query: LinearQuery, draw: Draw) -> QueryAnswer:
        answer = super().ask(state, query, draw)
        exact = float(self.universe.weights(query) @ state.counts)
        return replace(answer, value=exact) if answer.kind == "easy" else answer


class _TellingUnchecked(PMWGPlan):
    """BROKEN: an answer that nothing checked holds one bit of a count."""

    def ask(self, state: PMWGState, query: LinearQuery, draw: Draw) -> QueryAnswer:
        answer = super().ask(state, query, draw)
        bit = int(np.bitwise_xor.reduce(state.counts * np.arange(_CELLS)) % 2)
        return replace(answer, value=answer.value + bit) if answer.kind == "unchecked" else answer


class _Forgetful(PMWGPlan):
    """BROKEN: a run is forgotten where the stream is opened again."""

    def pack_books(self, state: PMWGState) -> dict[str, Any]:
        return {**super().pack_books(state), "run": None}


class _BareNumber(NumericSparse):
    """BROKEN: a number without its noise."""

    def halt(
        self, books: Books, run: SparseRun, t: int, share: int, bits: int, draw: Draw
    ) -> tuple[Books, Fraction]:
        return super().halt(books, run, t, share, bits, lambda noise: 0 * draw(noise))


class _KeptThreshold(NumericSparse):
    """BROKEN: the first run's threshold noise is that of all runs."""

    def start(self, books: Books, t: int, draw: Draw) -> Books:
        def kept(noise: DiscreteLaplace) -> int:
            if "kept" not in self.__dict__:
                self.__dict__["kept"] = draw(noise)
            return int(self.__dict__["kept"])

        return super().start(books, t, kept)


_BROKEN_PLANS: dict[str, type[PMWGPlan]] = {
    "the exact share as easy": _ExactEasy,
    "a bit where nothing was checked": _TellingUnchecked,
    "a run forgotten on reopening": _Forgetful,
}
_BROKEN_TESTS: dict[str, type[NumericSparse]] = {
    "a number without its noise": _BareNumber,
    "threshold noise kept between runs": _KeptThreshold,
}
