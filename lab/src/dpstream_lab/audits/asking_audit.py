"""Audits of questions to a growing database (PMWG).

* Exact: a run of tests on so coarse a grid that every value of the noise can be tried. For each noise of the threshold
  the running code shows which noises of a test answer yes. This gives the probability of every question at which the
  run can halt, on two neighbours, and their largest log-ratio. The claim is the charge that the code itself books.
* Whole conversations on neighbours.
* Adaptive analysts, who choose each question by the answers so far: they repeat a hard question, bisect the threshold,
  or ask after each arrival. Their cost is the sum over the noise that is drawn, whatever the books say.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.privacy import DiscreteLaplace, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.numeric_sparse import Draw, NumericSparse, SparseRun, SpentAmounts
from dpstream.families.growing.pmwg_noise import XI_BITS, RootNoise
from dpstream.families.growing.pmwg_plan import PMWG, PMWGPlan, PMWGState, grid_values
from dpstream.families.growing.questions import QueryAnswer
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress, Largest

_DOMAIN = Domain(("a", "b", "c"), (3, 2, 4))
_CELLS = 24
_CONVERSATION_START = 40
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
    return PMWG(_DOMAIN, "1/5", _CONVERSATION_START, hard_questions=4, learning=learning).calibrate(**amounts)


def exact_conversations(
    plan: PMWGPlan, subject: str, many: int, randomness: Randomness, *, control: bool = False
) -> AuditFinding:
    """The largest loss of some conversations; infinite where an answer differs."""
    began, worst, kinds = time.perf_counter(), Largest(), set[str]()
    for number in range(many):
        base, neighbour = _events(int(randomness.coins("a conversation")[0]) >> 32, early=number % 2 == 0)
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

    def start(self, books: SpentAmounts, t: int, draw: Draw) -> SpentAmounts:
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


def _as(kind: type[PMWGPlan], plan: PMWGPlan) -> PMWGPlan:
    return kind(**{one.name: getattr(plan, one.name) for one in fields(plan)})


class _ExactEasy(PMWGPlan):
    """BROKEN: an easy question gets the exact share."""

    def ask(self, state: PMWGState, query: LinearQuery, draw: Draw) -> QueryAnswer:
        answer = super().ask(state, query, draw)
        exact = float(grid_values(query, self.columns) @ state.counts)
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
        self, books: SpentAmounts, run: SparseRun, t: int, share: int, bits: int, draw: Draw
    ) -> tuple[SpentAmounts, Fraction]:
        return super().halt(books, run, t, share, bits, lambda noise: 0 * draw(noise))


class _KeptThreshold(NumericSparse):
    """BROKEN: the first run's threshold noise is that of all runs."""

    def start(self, books: SpentAmounts, t: int, draw: Draw) -> SpentAmounts:
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


#: Of the exact audits: the grid G, the records at a run's start, and the noise that is tried, in scales (all but a part
#: of ``exp(-40)``).
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
    yield from audit_conversations(length, randomness, progress)
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
    endless = BrokenEndless(**{key: getattr(honest, key) for key in honest.__dataclass_fields__})
    yield spent_asking(endless, "analyst who repeats, runs without end", _repeats, control=True)


# Exact.


def exact_run(sparse: NumericSparse, subject: str, *, control: bool = False) -> AuditFinding:
    """The largest loss of a run over several questions and neighbours; the claim is the charge that the run books.

    Infinite where a run draws otherwise than the proof has it.
    """
    began, worst = time.perf_counter(), Largest()
    opened = sparse.start(SpentAmounts(), _START, lambda noise: 0)
    assert opened.run is not None
    ended, _ = sparse.halt(opened, opened.run, _START, 0, 0, lambda noise: 0)
    known: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for shares, other in _neighbours():
        try:
            laws = [_halts(sparse, opened, one, known) for one in (shares, other)]
        except OtherDrawsError:
            worst.see(math.inf, "a test that draws otherwise than the proof has it")
            break
        losses = np.abs(np.log(laws[0] / laws[1]))
        # Where a run halts it also releases a noisy number, which adds its own loss.
        losses[:-1] += [_number_loss(sparse, opened, *pair) for pair in zip(shares, other, strict=True)]
        worst.see(float(losses.max()), f"shares {_shares_text(shares)} against {_shares_text(other)}")
    return AuditFinding.exact(
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
    laws: list[DiscreteLaplace] = []

    def record(noise: DiscreteLaplace) -> int:
        laws.append(noise)
        return 0

    numbers = [sparse.halt(opened, opened.run, t, value, 0, record)[1] for value in (share, moved)]
    if len(laws) != len(numbers):
        return math.inf
    units = sparse._units(opened.run, t)
    return float(abs(numbers[0] - numbers[1]) * Fraction(sparse.grid * units, 2**XI_BITS) / laws[0].scale)


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
    opened: SpentAmounts,
    shares: QuestionShares,
    known: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> NDArray[np.float64]:
    """The probability that the run halts at each question, and (last) at none."""
    assert opened.run is not None
    kept, alive = _support(sparse.threshold_noise)
    result = []
    for t, share in shares:
        if (t, share) not in known:
            rows = np.array(_rows(sparse, opened.run, kept.tolist(), t, share))
            known[t, share] = (rows[:, 0], rows[:, 1])
        yes, no = known[t, share]
        result.append(float(alive @ yes))
        alive = alive * no
    return np.array([*result, float(alive.sum())])


def _rows(
    sparse: NumericSparse, run: SparseRun, kept: list[int], t: int, share: int
) -> list[tuple[float, float]]:
    """The probabilities of yes and no for each noise of the threshold, from the running code."""
    laws: list[DiscreteLaplace] = []

    def record(noise: DiscreteLaplace) -> int:
        laws.append(noise)
        return 0

    def answers(noise: int, *first: int) -> tuple[float, float]:
        at = replace(run, threshold_noise=noise)
        return _split(laws[-1], lambda value: sparse.above(at, t, share, 0, _tape(*first, value)))

    sparse.above(run, t, share, 0, record)
    if len(laws) == 1:
        return [answers(noise) for noise in kept]
    # The test draws a threshold noise of its own: average over it. Then the run's own noise must not matter.
    values, odds = _support(laws[0])
    ends = [np.array([answers(noise, value) for value in values.tolist()]) for noise in (kept[0], kept[-1])]
    if not np.array_equal(ends[0], ends[1]):
        raise OtherDrawsError
    yes, no = (odds @ ends[0]).tolist()
    return [(yes, no)] * len(kept)


def _tape(*values: int) -> Draw:
    left = list(values)

    def draw(noise: DiscreteLaplace) -> int:
        if not left:
            raise OtherDrawsError
        return left.pop(0)

    return draw


def _split(law: DiscreteLaplace, says_yes: Callable[[int], bool]) -> tuple[float, float]:
    """The probabilities of the noises that say yes (all those from some value on) and of those that say no."""
    reach = _reach(law)
    low, high = -reach - 1, reach + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if says_yes(middle) else (middle, high)
    rate = float(1 / law.scale)
    # Not one minus the other, which would lose the digits of a small probability.
    beyond = math.exp(-rate * abs(high if high > 0 else high - 1)) / (1 + math.exp(-rate))
    return (beyond, 1 - beyond) if high > 0 else (1 - beyond, beyond)


def _support(law: DiscreteLaplace) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    values = np.arange(-_reach(law), _reach(law) + 1, dtype=np.int64)
    return values, np.asarray(law.pmf(values), dtype=np.float64)


def _reach(law: DiscreteLaplace) -> int:
    return math.ceil(_REACH * law.scale)


@dataclass(frozen=True)
class BrokenFreshRunThreshold(NumericSparse):
    """BROKEN: draws the threshold noise anew at each test, as the published listing does."""

    WORDS = "threshold noise anew at each test (as listed)"

    def above(self, run: SparseRun, t: int, share: int, bits: int, draw: Draw) -> bool:
        """The honest test with another threshold noise."""
        return super().above(replace(run, threshold_noise=draw(self.threshold_noise)), t, share, bits, draw)


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

    def start(self, books: SpentAmounts, t: int, draw: Draw) -> SpentAmounts:
        """The honest start with half of the charge."""
        honest = super().start(books, t, draw)
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

    def _open_run(self, state: PMWGState, draw: Draw) -> str:
        """Open a run as if nothing had been spent before."""
        state.books = replace(state.books, spent=Fraction(0))
        return super()._open_run(state, draw)


def spent_asking(plan: PMWGPlan, subject: str, analyst: Analyst, *, control: bool = False) -> AuditFinding:
    """The most that an analyst's questions cost, by the noise that is really drawn, whatever the books say.

    The noise is chosen so that every test finds its question hard, because the sum of charges must stay within the
    budget for every outcome of the noise, not only for likely ones.
    """
    began, paid = time.perf_counter(), Fraction(0)
    state = plan.start()
    state.counts[0], state.t = plan.first, plan.first
    pure, grid = isinstance(plan.budget, PureDP), plan.sparse.grid

    def draw(noise: DiscreteLaplace) -> int:
        nonlocal paid
        moved = Fraction(grid * plan.noise.units(state.t), 2**XI_BITS * state.t).__ceil__()
        if noise == plan.sparse.question_noise:
            return 1000 * math.ceil(noise.scale)
        share = Fraction(moved, grid if noise == plan.sparse.threshold_noise else 8 * grid)
        paid += share if pure else share**2 / 2
        return 0

    def ask(weights: NDArray[np.float64]) -> QueryAnswer:
        return plan.ask(state, LinearQuery((0,), weights), draw)

    def arrive() -> None:
        state.counts[2] += 1
        state.t += 1

    analyst(ask, arrive)
    return AuditFinding.exact(
        began,
        subject=subject,
        claimed=float(plan.budget.amount),
        found=float(paid),
        control=control,
        detail=f"{state.hard} hard questions of {state.asked}, {state.t} records at the end",
        unit="epsilon" if pure else "rho",
    )
