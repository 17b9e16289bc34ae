"""Audits of questions to a growing database (PMWG).

* Exact: a run of tests on a grid so coarse that all noise can be looked at. From the running code is read, for each
  noise of the threshold, which noises of a test say yes; from that follow the probabilities of every place where a run
  can halt, on two neighbours, and their largest log-ratio. The charge that the code itself books is the claim.
* What analysts can spend, who choose each question by the answers so far: by asking what was hard again, by bisection
  on the threshold, by asking after each arrival. It is added up from the noise that is drawn, not from the books.
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
from dpstream.families.growing.answers import QueryAnswer
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.numeric_sparse import Books, Draw, NumericSparse, SparseRun
from dpstream.families.growing.pmwg import PMWG, PMWGPlan, PMWGState
from dpstream.families.growing.pmwg_noise import XI_BITS, PowerNoise
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress

__all__ = ["audit_asking", "exact_run", "spent_asking"]

#: G of the exact audits, records at a run's start, and how far noise is looked at, in scales: all but ``exp(-40)``.
_GRID, _START, _REACH = 2, 4, 40
_QUESTIONS = 400

QuestionShares = tuple[tuple[int, int], ...]


def audit_asking(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Runs of tests on all noise, honest and broken; then analysts, on honest plans and on one that never stops."""
    progress("tests of questions, all noise")
    for epsilon in (Fraction(1, 2), Fraction(2)):
        # xi_t/t at the start is epsilon: with c t^(1/2), c = epsilon t^(1/2).
        sparse = NumericSparse(PureDP.of(100), PowerNoise(2 * epsilon), Fraction(1, 4), _GRID)
        yield exact_run(sparse, f"run of tests at {epsilon}")
    progress("controls of questions")
    for broken in (BrokenFreshRunThreshold, BrokenQuietQuestions, BrokenHalfCharge):
        facts = (sparse.budget, sparse.noise, sparse.threshold, _GRID)
        yield exact_run(broken(*facts), f"run of tests, {broken.WORDS}", control=True)
    progress("what analysts can spend on questions")
    domain = Domain(("cell",), (3,))
    few = PMWG(domain, "1/2", 30, hard_questions=9, learning="matching")
    amounts: list[dict[str, Any]] = [{"epsilon": 1}, {"rho": "1/10"}, {"epsilon": 1, "delta": "1/1000000"}]
    for recipe, amount in itertools.product((few, PMWG(domain, "9/10", 30)), amounts):
        words = f"{', '.join(f'{key} {value}' for key, value in amount.items())}, noise " + (
            "of theory" if recipe.hard_questions is None else "for 9 hard questions"
        )
        for name, analyst in ANALYSTS.items():
            yield spent_asking(recipe.calibrate(**amount), f"analyst who {name}, {words}", analyst)
    honest = few.calibrate(PureDP.of(1))
    endless = BrokenEndless(**{key: getattr(honest, key) for key in honest.__dataclass_fields__})
    yield spent_asking(endless, "analyst who repeats, runs without end", _repeats, control=True)


# Exact.


def exact_run(sparse: NumericSparse, subject: str, *, control: bool = False) -> AuditFinding:
    """The worst loss of a run over some questions and neighbours, against the charge that it books."""
    began, worst, where = time.perf_counter(), -1.0, ""
    opened = sparse.start(Books(), _START, lambda noise: 0)
    assert opened.run is not None
    ended, _ = sparse.halt(opened, opened.run, _START, 0, 0, lambda noise: 0)
    known: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for shares, other in _neighbours():
        laws = [_halts(sparse, opened, one, known) for one in (shares, other)]
        losses = np.abs(np.log(laws[0] / laws[1]))
        # Where it halts, the number is given too: its noise has to make up for how far it moves.
        losses[:-1] += [_number(sparse, opened, *pair) for pair in zip(shares, other, strict=True)]
        loss = float(losses.max())
        if loss > worst:
            worst, where = loss, f"shares {_shares_text(shares)} against {_shares_text(other)}"
    return AuditFinding.exact(
        began,
        subject=f"{subject}, all noise",
        claimed=float(ended.spent),
        found=worst,
        control=control,
        detail=f"where it halts, most at {where}",
    )


def _number(sparse: NumericSparse, opened: Books, one: tuple[int, int], other: tuple[int, int]) -> float:
    """The loss of the number that is given, from how far it moves."""
    assert opened.run is not None
    (t, share), (_, moved) = one, other
    laws: list[DiscreteLaplace] = []

    def record(noise: DiscreteLaplace) -> int:
        laws.append(noise)
        return 0

    found = [sparse.halt(opened, opened.run, t, value, 0, record)[1] for value in (share, moved)]
    units = min(sparse.noise.units(t), opened.run.units * t // _START)
    return float(abs(found[0] - found[1]) * Fraction(sparse.grid * units, 2**XI_BITS) / laws[0].scale)


def _shares_text(shares: QuestionShares) -> str:
    return ", ".join(f"{share}/{t}" for t, share in shares[:4]) + (", ..." if len(shares) > 4 else "")


def _neighbours() -> Iterator[tuple[QuestionShares, QuestionShares]]:
    """Tested shares (t, records), and the same with one record's value replaced: each may move by 1 either way."""
    for count, last, share, grown in itertools.product((1, 12), (-1, 1), (-2, 0, 1, 3), (0, 3)):
        times = [_START + (grown * i) // 4 for i in range(count)]
        base = tuple((t, share) for t in times)
        # All before the last move up, and the last one up or down; and both halves of questions in turn.
        yield base, tuple((t, share + (last if i == count - 1 else 1)) for i, t in enumerate(times))
        yield base, tuple((t, share + (last if i % 2 else -last)) for i, t in enumerate(times))


def _halts(
    sparse: NumericSparse,
    opened: Books,
    shares: QuestionShares,
    known: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> NDArray[np.float64]:
    """Probability of halting at each question, and (last) at none."""
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
    """The probabilities of a test's two answers for each noise of the threshold, read off the running code."""
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
    # A test that draws a threshold of its own: that one is averaged over, and the run's must not matter.
    values, odds = _support(laws[0])
    ends = [np.array([answers(noise, value) for value in values.tolist()]) for noise in (kept[0], kept[-1])]
    assert np.array_equal(ends[0], ends[1])
    yes, no = (odds @ ends[0]).tolist()
    return [(yes, no)] * len(kept)


def _tape(*values: int) -> Draw:
    left = list(values)
    return lambda noise: left.pop(0)


def _split(law: DiscreteLaplace, says_yes: Callable[[int], bool]) -> tuple[float, float]:
    """Probability of the noises that say yes, which are all from one on, and of the others."""
    reach = _reach(law)
    low, high = -reach - 1, reach + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if says_yes(middle) else (middle, high)
    rate = float(1 / law.scale)
    # Each by itself: one minus the other would lose the digits of a small one.
    beyond = math.exp(-rate * abs(high if high > 0 else high - 1)) / (1 + math.exp(-rate))
    return (beyond, 1 - beyond) if high > 0 else (1 - beyond, beyond)


def _support(law: DiscreteLaplace) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    values = np.arange(-_reach(law), _reach(law) + 1, dtype=np.int64)
    return values, np.asarray(law.pmf(values), dtype=np.float64)


def _reach(law: DiscreteLaplace) -> int:
    return math.ceil(_REACH * law.scale)


@dataclass(frozen=True)
class BrokenFreshRunThreshold(NumericSparse):
    """BROKEN: the listing's threshold noise, drawn anew at each test."""

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
    """BROKEN: a run is charged for its threshold only."""

    WORDS = "half of it charged"

    def start(self, books: Books, t: int, draw: Draw) -> Books:
        """Charge half of what the run costs."""
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
    """BROKEN: starts runs that nothing pays for."""

    def _open_run(self, state: PMWGState, draw: Draw) -> str:
        """Open a run as if nothing had been spent."""
        state.books = replace(state.books, spent=Fraction(0))
        return super()._open_run(state, draw)


def spent_asking(plan: PMWGPlan, subject: str, analyst: Analyst, *, control: bool = False) -> AuditFinding:
    """What an analyst spends at most, by the noise that is really drawn, whatever the books say.

    Tests find every question hard: the noise is chosen so, since the sum of charges must stay within the budget
    for every outcome of the noise, not only for likely ones.
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
