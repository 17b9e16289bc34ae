"""Audits of questions to a growing database (PMWG).

* Exact: a run of tests on so coarse a grid that every value of the noise can be summed over. The door shows what each
  test compares, and by which law. This gives the probability of every question at which the run can halt, on two
  neighbours, and their largest log-ratio. The claim is the charge that the code itself books.
* Transcripts of whole conversations on neighbours (see ``door``).
* Adaptive analysts, who choose each question by the answers so far: they repeat a hard question, bisect the threshold,
  or ask after each arrival. Their cost is the sum over what passes the door, whatever the books say.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.privacy import AnyNoise, DiscreteLaplace, Noisy, PureDP, Randomness, Relay
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.pmwg_facts import QueryAnswer
from dpstream.families.growing.pmwg_noise import XI_BITS, RootNoise
from dpstream.families.growing.pmwg_plan import (
    PMWG,
    NumericSparse,
    PMWGPlan,
    PMWGState,
    SparseRun,
    SpentAmounts,
    grid_values,
)
from dpstream.tools.audit.door import Door, Run, Transcript, measured_loss
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream.tools.evaluate.array_types import Ints
from dpstream_lab.audits.subjects import rebuilt, transcripts_of

_DOMAIN = Domain(("a", "b", "c"), (3, 2, 4))
_CELLS = 24
_CONVERSATION_START = 40
_CONVERSATIONS: dict[AuditLength, int] = {"short": 12, "long": 200}
_AMOUNTS: tuple[Mapping[str, Any], ...] = ({"epsilon": 20}, {"rho": 50})

#: Arrivals as counts of all cells, and questions.
Events = Sequence[NDArray[np.int64] | LinearQuery]


def conversation_subjects(many: int) -> Iterator[Subject]:
    """Both kinds of budget, both ways of learning; then broken ones. Cost: short: about 4 s of a core."""
    for amounts in _AMOUNTS:
        for learning in ("text", "matching"):
            words = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
            yield _conversations(conversing_plan(learning, amounts), f"{words}, learning {learning}", many)
    honest = conversing_plan("text", _AMOUNTS[0])
    for name, kind in _BROKEN_PLANS.items():
        yield _conversations(rebuilt(kind, honest), name, many, control=True)
    for name, tests in _BROKEN_TESTS.items():
        broken = rebuilt(PMWGPlan, honest)
        broken.__dict__["sparse"] = rebuilt(tests, honest.sparse)
        yield _conversations(broken, name, many, control=True)


def conversing_plan(learning: Any, amounts: Mapping[str, Any]) -> PMWGPlan:
    """A plan whose conversations have all kinds of answers."""
    return PMWG(_DOMAIN, "1/5", _CONVERSATION_START, hard_questions=4, learning=learning).calibrate(**amounts)


def _conversations(plan: PMWGPlan, name: str, many: int, **more: Any) -> Subject:
    """So many conversations; a record of the first arrivals or of the last is another one, by turns."""

    def pairs() -> Iterator[Pair]:
        for number in range(many):
            base, neighbour = conversation(number, early=number % 2 == 0)
            where = f"a record of the {'last' if number % 2 else 'first'} arrivals"
            yield Pair(where, talk(plan, base), talk(plan, neighbour, reopened=True))

    return Subject(f"conversation, {name}", plan.budget, pairs, charged=_charged, **more)


def _charged(transcript: Transcript) -> float:
    """What the last answer says was spent."""
    return float(transcript.released[-1][1][0])


def talk(plan: PMWGPlan, events: Events, *, reopened: bool = False) -> Run:
    """Every answer; at the end the histogram, and what was spent."""

    def run(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
        state, spent = plan.start(), Fraction(0)
        for event in events:
            if isinstance(event, LinearQuery):
                answer = plan.ask(state, event, randomness)
                spent = answer.spent
                yield [np.frombuffer(repr(answer).encode(), np.uint8)]
            else:
                cells = np.repeat(np.arange(_CELLS), event)
                codes = np.column_stack(np.unravel_index(cells, _DOMAIN.sizes)).astype(np.int32)
                plan.arrive(state, EncodedBatch(_DOMAIN, codes))
            if reopened:
                state = _reopened(plan, state)
        yield [state.y, np.array([float(spent)])]

    return run


def _reopened(plan: PMWGPlan, state: PMWGState) -> PMWGState:
    """The state as a store gives it back."""
    packed = plan.pack_state(state)
    fresh = plan.unpack_state(Packed(json.loads(json.dumps(packed.meta)), packed.arrays))
    plan.restore_books(fresh, json.loads(json.dumps(plan.pack_books(state))))
    plan.restore_memory(fresh, plan.pack_memory(state))
    return fresh


def conversation(seed: int, *, early: bool) -> tuple[Events, Events]:
    """Random arrivals and questions, and the same with one record replaced, in the first arrivals or the last."""
    generator = np.random.default_rng(seed)
    shape = generator.dirichlet(np.full(_CELLS, 0.2))
    events: list[NDArray[np.int64] | LinearQuery] = [generator.multinomial(_CONVERSATION_START, shape)]
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


class _ExactEasy(PMWGPlan):
    """BROKEN: an easy question gets the exact share."""

    def ask(self, state: PMWGState, query: LinearQuery, randomness: Randomness) -> QueryAnswer:
        answer = super().ask(state, query, randomness)
        exact = float(grid_values(query, self.columns) @ state.counts)
        return replace(answer, value=exact) if answer.kind == "easy" else answer


class _TellingUnchecked(PMWGPlan):
    """BROKEN: an answer that nothing checked holds one bit of a count."""

    def ask(self, state: PMWGState, query: LinearQuery, randomness: Randomness) -> QueryAnswer:
        answer = super().ask(state, query, randomness)
        bit = int(np.bitwise_xor.reduce(state.counts * np.arange(_CELLS)) % 2)
        return replace(answer, value=answer.value + bit) if answer.kind == "unchecked" else answer


class _Forgetful(PMWGPlan):
    """BROKEN: a run is forgotten where the stream is opened again."""

    def pack_books(self, state: PMWGState) -> dict[str, Any]:
        packed = super().pack_books(state)
        return {**packed, "books": {**packed["books"], "run": None}}


class _Bare(Relay):
    def measure(self, exact: Ints, law: AnyNoise, drawn: Ints | None = None) -> Noisy:
        self._inner.measure(exact, law, drawn)
        return Noisy(exact)


class _BareNumber(NumericSparse):
    """BROKEN: a number without its noise."""

    def halt(
        self, books: SpentAmounts, run: SparseRun, t: int, share: int, bits: int, randomness: Randomness
    ) -> tuple[SpentAmounts, Fraction]:
        return super().halt(books, run, t, share, bits, _Bare(randomness))


class _BareLimit(NumericSparse):
    """BROKEN: the noise of a run's threshold is drawn, and is in no limit."""

    def above(self, run: SparseRun, t: int, share: int, bits: int, randomness: Randomness) -> bool:
        return super().above(replace(run, threshold_noise=0), t, share, bits, randomness)


class _KeptThreshold(NumericSparse):
    """BROKEN: the noise of a run's threshold is that of all later runs."""

    def start(self, books: SpentAmounts, t: int, randomness: Randomness) -> SpentAmounts:
        kept: dict[Randomness, int] = self.__dict__.setdefault("kept", {})
        if randomness not in kept:
            first = super().start(books, t, randomness)
            assert first.run is not None
            kept[randomness] = first.run.threshold_noise
            return first
        return SpentAmounts(books.spent + self._tests_cost(t), SparseRun(t, kept[randomness]))


_BROKEN_PLANS: dict[str, type[PMWGPlan]] = {
    "the exact share as easy": _ExactEasy,
    "a bit where nothing was checked": _TellingUnchecked,
    "a run forgotten on reopening": _Forgetful,
}
_BROKEN_TESTS: dict[str, type[NumericSparse]] = {
    "a number without its noise": _BareNumber,
    "a limit without its noise": _BareLimit,
    "threshold noise kept between runs": _KeptThreshold,
}


#: Of the exact audits: the grid G, the records at a run's start, and the noise of a threshold, in scales (all but
#: ``exp(-40)``).
_GRID, _START, _REACH = 2, 4, 40
_QUESTIONS = 400

QuestionShares = tuple[tuple[int, int], ...]


def audit_asking(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Runs of tests with all noise, honest and broken; then analysts, with honest plans and one that never stops."""
    progress("tests of questions, all noise")
    for epsilon in (Fraction(1, 2), Fraction(2)):
        # xi_t/t at the start is epsilon: with c t^(1/2), c = epsilon t^(1/2).
        sparse = NumericSparse(PureDP.of(100), RootNoise(2 * epsilon), Fraction(1, 4), _GRID)
        yield exact_run(sparse, f"run of tests at {epsilon}")
    progress("controls of questions")
    for broken in (BrokenFreshRunThreshold, BrokenQuietQuestions, BrokenHalfCharge):
        facts = (sparse.budget, sparse.noise, sparse.threshold, _GRID)
        yield exact_run(broken(*facts), f"run of tests, {broken.WORDS}", control=True)
    conversations = partial(conversation_subjects, _CONVERSATIONS[length])
    yield from transcripts_of(conversations, 1, 1)(length, randomness, progress)
    progress("what questions of analysts cost")
    domain = Domain(("cell",), (3,))
    few = PMWG(domain, "1/2", 30, hard_questions=9, learning="matching")
    amounts: list[dict[str, Any]] = [{"epsilon": 1}, {"rho": "1/10"}, {"epsilon": 1, "delta": "1/1000000"}]
    for recipe, amount in itertools.product((few, PMWG(domain, "9/10", 30, learning="text")), amounts):
        words = f"{', '.join(f'{key} {value}' for key, value in amount.items())}, noise " + (
            "by theory" if recipe.hard_questions is None else "for 9 hard questions"
        )
        for name, analyst in ANALYSTS.items():
            yield spent_asking(recipe.calibrate(**amount), f"analyst who {name}, {words}", analyst)
    honest = few.calibrate(PureDP.of(1))
    endless = rebuilt(BrokenEndless, honest)
    yield spent_asking(endless, "analyst who repeats, runs without end", _repeats, control=True)


# Exact.


def exact_run(sparse: NumericSparse, subject: str, *, control: bool = False) -> AuditFinding:
    """The largest loss of a run over several questions and neighbours; the claim is the charge that the run books."""
    began, worst, door = time.perf_counter(), Largest(), Door(b"a run")
    opened = sparse.start(SpentAmounts(), _START, door)
    assert opened.run is not None
    ended, _ = sparse.halt(opened, opened.run, _START, 0, 0, door)
    known: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for shares, other in _neighbours():
        laws = [_halts(sparse, one, known) for one in (shares, other)]
        losses = np.abs(np.log(laws[0] / laws[1]))
        # Where a run halts it also releases a noisy number, which adds its own loss.
        losses[:-1] += [_number_loss(sparse, opened, *pair) for pair in zip(shares, other, strict=True)]
        worst.see(float(losses.max()), f"shares {_shares_text(shares)} against {_shares_text(other)}")
    return AuditFinding.of(
        began,
        subject=f"{subject}, all noise",
        claimed=float(ended.spent),
        found=worst.loss,
        control=control,
        detail=f"the question where it halts, most at {worst.where}",
    )


def _number_loss(
    sparse: NumericSparse, opened: SpentAmounts, one: tuple[int, int], other: tuple[int, int]
) -> float:
    """The loss of the noisy number that a run releases where it halts."""
    assert opened.run is not None
    (t, share), (_, moved) = one, other
    door = Door(b"a number")
    for value in (share, moved):
        sparse.halt(opened, opened.run, t, value, 0, door)
    here, there = door.measured
    return measured_loss(here.noise, here.exact - there.exact)


def _shares_text(shares: QuestionShares) -> str:
    return ", ".join(f"{share}/{t}" for t, share in shares[:4]) + (", ..." if len(shares) > 4 else "")


def _neighbours() -> Iterator[tuple[QuestionShares, QuestionShares]]:
    """Pairs of neighbouring sequences of shares (t, records): replacing one record moves each share by at most 1."""
    for count, last, share, grown in itertools.product((1, 12), (-1, 1), (-2, 0, 1, 3), (0, 3)):
        times = [_START + (grown * i) // 4 for i in range(count)]
        base = tuple((t, share) for t in times)
        # First all but the last share rise, and the last one rises or falls; then shares rise and fall in turn.
        yield base, tuple((t, share + (last if i == count - 1 else 1)) for i, t in enumerate(times))
        yield base, tuple((t, share + (last if i % 2 else -last)) for i, t in enumerate(times))


def _halts(
    sparse: NumericSparse,
    shares: QuestionShares,
    known: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> NDArray[np.float64]:
    """The probability that the run halts at each question, and (last) at none."""
    noise, alive = _support(sparse.threshold_noise)
    result = []
    for t, share in shares:
        if (t, share) not in known:
            known[t, share] = _answers(sparse, noise, t, share)
        yes, no = known[t, share]
        result.append(float(alive @ yes))
        alive = alive * no
    return np.array([*result, float(alive.sum())])


def _answers(
    sparse: NumericSparse, noise: Ints, t: int, share: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The probabilities of yes and no for each noise of the threshold, by what the code compares at the door."""
    door = Door(b"a test")
    opened = sparse.start(SpentAmounts(), _START, door)
    assert opened.run is not None
    sparse.above(replace(opened.run, threshold_noise=0), t, share, 0, door)
    drawn = door.drawn[-1]
    (test,) = drawn.tests
    if len(door.drawn) == 1:
        return _tails(test.law, test.limit - test.exact + noise)
    # The test draws a threshold noise of its own: averaged over it, the run's own noise does not matter.
    assert isinstance(drawn.law, DiscreteLaplace)
    values, odds = _support(drawn.law)
    yes, no = _tails(test.law, test.limit - int(drawn.values[0]) - test.exact + values)
    return np.full(len(noise), odds @ yes), np.full(len(noise), odds @ no)


def _tails(law: DiscreteLaplace, least: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The probabilities of at least so much noise, and of less: no small one is a difference of large ones."""
    rate = float(1 / law.scale)
    far = np.exp(-rate * np.where(least > 0, least, 1 - least)) / (1 + math.exp(-rate))
    return np.where(least > 0, far, 1 - far), np.where(least > 0, 1 - far, far)


def _support(law: DiscreteLaplace) -> tuple[Ints, NDArray[np.float64]]:
    reach = math.ceil(_REACH * law.scale)
    values = np.arange(-reach, reach + 1, dtype=np.int64)
    return values, np.asarray(law.pmf(values), dtype=np.float64)


@dataclass(frozen=True)
class BrokenFreshRunThreshold(NumericSparse):
    """BROKEN: draws the threshold noise anew at each test, as the published listing does."""

    WORDS = "threshold noise anew at each test (as listed)"

    def above(self, run: SparseRun, t: int, share: int, bits: int, randomness: Randomness) -> bool:
        """The honest test with another threshold noise."""
        fresh = int(randomness.draw(self.threshold_noise, 1)[0])
        return super().above(replace(run, threshold_noise=fresh), t, share, bits, randomness)


@dataclass(frozen=True)
class BrokenQuietQuestions(NumericSparse):
    """BROKEN: 2/3 of the tests' noise."""

    WORDS = "2/3 of the noise"

    @cached_property
    def question_noise(self) -> DiscreteLaplace:
        """Too little noise."""
        return DiscreteLaplace(Fraction(8 * self.grid, 3))


@dataclass(frozen=True)
class BrokenHalfCharge(NumericSparse):
    """BROKEN: books half of the charge of a run."""

    WORDS = "half of it charged"

    def start(self, books: SpentAmounts, t: int, randomness: Randomness) -> SpentAmounts:
        """The honest start with half of the charge."""
        honest = super().start(books, t, randomness)
        return replace(honest, spent=books.spent + (honest.spent - books.spent) / 2)


# What analysts can spend.

Ask = Callable[[NDArray[np.float64]], QueryAnswer]
Analyst = Callable[[Ask, Callable[[], None]], None]


def _repeats(ask: Ask, arrive: Callable[[], None]) -> None:
    for _ in range(_QUESTIONS):
        ask(np.array([1.0, 0.0, 0.0]))


def _bisects(ask: Ask, arrive: Callable[[], None]) -> None:
    low, high = 0.0, 1.0
    for _ in range(_QUESTIONS):
        middle = (low + high) / 2
        hard = ask(np.array([middle, 0.0, 0.0])).kind == "hard"
        low, high = (low, middle) if hard else (middle, high)


def _waits(ask: Ask, arrive: Callable[[], None]) -> None:
    for _ in range(_QUESTIONS):
        answer = ask(np.array([1.0, 0.0, 0.0]))
        for _ in range(40 if answer.kind == "unchecked" else 1):
            arrive()


ANALYSTS: dict[str, Analyst] = {
    "repeats a hard question": _repeats,
    "bisects the threshold": _bisects,
    "asks after each arrival": _waits,
}


class BrokenEndless(PMWGPlan):
    """BROKEN: starts runs without end, whatever was spent."""

    def _open_run(self, state: PMWGState, randomness: Randomness) -> str:
        """Open a run as if nothing had been spent before."""
        state.books = replace(state.books, spent=Fraction(0))
        return super()._open_run(state, randomness)


def spent_asking(plan: PMWGPlan, subject: str, analyst: Analyst, *, control: bool = False) -> AuditFinding:
    """The most that an analyst's questions cost, by what passes the door, whatever the books say.

    Every test finds its question hard, because the sum of charges must stay within the budget for every outcome of the
    noise, not only for likely ones.
    """
    began, paid = time.perf_counter(), Fraction(0)
    state, door = plan.start(), Door(b"an analyst", says=True)
    state.counts[0], state.t = plan.first, plan.first
    pure, grid = isinstance(plan.budget, PureDP), plan.sparse.grid

    def ask(weights: NDArray[np.float64]) -> QueryAnswer:
        nonlocal paid
        runs, numbers = len(door.drawn), len(door.measured)
        answer = plan.ask(state, LinearQuery((0,), weights), door)
        moved = math.ceil(Fraction(grid * plan.noise.units(state.t), 2**XI_BITS * state.t))
        for many, part in ((len(door.drawn) - runs, grid), (len(door.measured) - numbers, 8 * grid)):
            paid += many * (Fraction(moved, part) if pure else Fraction(moved, part) ** 2 / 2)
        return answer

    def arrive() -> None:
        state.counts[2] += 1
        state.t += 1

    analyst(ask, arrive)
    return AuditFinding.of(
        began,
        subject=subject,
        claimed=float(plan.budget.amount),
        found=float(paid),
        control=control,
        detail=f"{state.hard} hard questions of {state.asked}, {state.t} records at the end",
        unit="epsilon" if pure else "rho",
    )
