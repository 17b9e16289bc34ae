"""Audits of questions to a growing database (PMWG).

* Exact: a run of tests on so coarse a grid that every value of the noise can be tried. For each noise of the threshold
  the running code shows which noises of a test answer yes. This gives the probability of every question at which the
  run can halt, on two neighbours, and their largest log-ratio. The claim is the charge that the code itself books.
* Whole conversations on neighbours (``conversations``).
* Adaptive analysts, who choose each question by the answers so far: they repeat a hard question, bisect the threshold,
  or ask after each arrival. Their cost is the sum over the noise that is drawn, whatever the books say.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import DiscreteLaplace, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.numeric_sparse import Books, Draw, NumericSparse, SparseRun
from dpstream.families.growing.pmwg import PMWG
from dpstream.families.growing.pmwg_noise import XI_BITS, PowerNoise
from dpstream.families.growing.pmwg_plan import PMWGPlan, PMWGState
from dpstream.families.growing.questions import QueryAnswer
from dpstream.lab.audits.conversations import OtherDrawsError, audit_conversations
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest

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
        sparse = NumericSparse(PureDP.of(100), PowerNoise(2 * epsilon), Fraction(1, 4), _GRID)
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
    opened = sparse.start(Books(), _START, lambda noise: 0)
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


def _number_loss(sparse: NumericSparse, opened: Books, one: tuple[int, int], other: tuple[int, int]) -> float:
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
    units = min(sparse.noise.units(t), opened.run.units * t // _START)
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
    opened: Books,
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

    def start(self, books: Books, t: int, draw: Draw) -> Books:
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
