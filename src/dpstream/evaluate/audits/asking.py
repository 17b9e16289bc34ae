"""Audits of questions to a growing database (PMWG).

* Exact: a run of tests on a grid so coarse that all noise can be looked at. From the running code is read, for each
  noise of the threshold, which noises of a test say yes; from that follow the probabilities of every place where a run
  can halt, on two neighbours, and their largest log-ratio. The charge that the code itself books is the claim.
* Empirical: analysts who choose each question by the answers so far, and try to learn more than the budget allows:
  by asking what was hard again, by bisection on the threshold, by asking after each arrival. Everything they are
  told is a column; a learned statistic tells neighbours apart.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.evaluate.audits.finding import AuditLength, Finding, Progress
from dpstream.evaluate.audits.statistics import distinguish
from dpstream.growing.asking import Answer
from dpstream.growing.blackbox import LinearQuery
from dpstream.growing.numeric_sparse import Books, Draw, NumericSparse, Run
from dpstream.growing.pmwg import PMWG, PMWGPlan, PMWGState
from dpstream.growing.pmwg_noise import PowerNoise
from dpstream.privacy import DiscreteLaplace, PureDP, Randomness
from dpstream.schema.domain import Domain

__all__ = ["audit_asking", "exact_run", "sampled_asking"]

#: G of the exact audits, records at a run's start, and how far noise is looked at, in scales: all but ``exp(-40)``.
_GRID, _START, _REACH = 4, 4, 40
_RUNS: dict[AuditLength, int] = {"short": 1_500, "long": 20_000}
_CONFIDENCE = 0.999
_QUESTIONS = 6

Shares = tuple[tuple[int, int], ...]


def audit_asking(length: AuditLength, randomness: Randomness, progress: Progress) -> Iterator[Finding]:
    """Runs of tests on all noise, honest and broken; then analysts, on an honest plan and on one that never stops."""
    progress("tests of questions, all noise")
    for epsilon in (Fraction(1, 2), Fraction(2)):
        # xi_t/t at the start is epsilon: with c t^(1/2), c = epsilon t^(1/2).
        sparse = NumericSparse(PureDP.of(100), PowerNoise(2 * epsilon), Fraction(1, 4), _GRID)
        yield exact_run(sparse, f"run of tests at {epsilon}")
    progress("controls of questions")
    for broken in (BrokenFreshThreshold, BrokenQuiet, BrokenHalfCharge):
        facts = (sparse.budget, sparse.noise, sparse.threshold, _GRID)
        yield exact_run(broken(*facts), f"run of tests, {broken.WORDS}", control=True)
    plan = PMWG(Domain(("cell",), (3,)), "1/2", 2, hard_questions=1, learning="matching").calibrate(epsilon=1)
    for name, analyst in ANALYSTS.items():
        progress(f"questions of an analyst who {name}")
        yield sampled_asking(plan, name, analyst, _RUNS[length], randomness)
    progress("questions without end")
    endless = BrokenEndless(**{key: getattr(plan, key) for key in plan.__dataclass_fields__})
    yield sampled_asking(endless, "repeats", ANALYSTS["repeats"], _RUNS[length], randomness, control=True)


# Exact.


def exact_run(sparse: NumericSparse, subject: str, *, control: bool = False) -> Finding:
    """The worst loss of a run over some questions and neighbours, against the charge that it books."""
    began, worst, where = time.perf_counter(), -1.0, ""
    opened = sparse.start(Books(), _START, lambda noise: 0)
    known: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for shares, other in _neighbours():
        laws = [_halts(sparse, opened, one, known) for one in (shares, other)]
        loss = float(np.abs(np.log(laws[0] / laws[1])).max())
        if loss > worst:
            worst, where = loss, f"shares {_told(shares)} against {_told(other)}"
    return Finding(
        subject=f"{subject}, all noise",
        kind="exact",
        claimed=float(opened.spent),
        found=worst,
        confidence=None,
        runs=None,
        control=control,
        detail=f"where it halts, most at {where}",
        seconds=time.perf_counter() - began,
    )


def _told(shares: Shares) -> str:
    return ", ".join(f"{share}/{t}" for t, share in shares[:4]) + (", ..." if len(shares) > 4 else "")


def _neighbours() -> Iterator[tuple[Shares, Shares]]:
    """Tested shares (t, records), and the same with one record's value replaced: each may move by 1 either way."""
    for count, last, share, grown in itertools.product((1, 2, 12), (-1, 1), (-2, 0, 1, 3), (0, 3)):
        times = [_START + (grown * i) // 4 for i in range(count)]
        base = tuple((t, share) for t in times)
        # All before the last move up, and the last one up or down; and both halves of questions in turn.
        yield base, tuple((t, share + (last if i == count - 1 else 1)) for i, t in enumerate(times))
        yield base, tuple((t, share + (last if i % 2 else -last)) for i, t in enumerate(times))


def _halts(
    sparse: NumericSparse,
    opened: Books,
    shares: Shares,
    known: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> NDArray[np.float64]:
    """Probability of halting at each question, and (last) at none."""
    assert opened.run is not None
    kept, alive = _support(sparse.threshold_noise)
    result = []
    for t, share in shares:
        if (t, share) not in known:
            rows = [_yes_and_no(sparse, replace(opened.run, threshold_noise=int(k)), t, share) for k in kept]
            known[t, share] = (np.array([row[0] for row in rows]), np.array([row[1] for row in rows]))
        yes, no = known[t, share]
        result.append(float(alive @ yes))
        alive = alive * no
    return np.array([*result, float(alive.sum())])


def _yes_and_no(sparse: NumericSparse, run: Run, t: int, share: int) -> tuple[float, float]:
    """The probabilities of a test's answers for one threshold noise, read off the running code."""
    laws: list[DiscreteLaplace] = []

    def record(noise: DiscreteLaplace) -> int:
        laws.append(noise)
        return 0

    sparse.above(run, t, share, 0, record)
    if len(laws) == 1:
        return _split(laws[0], lambda value: sparse.above(run, t, share, 0, lambda noise: value))
    # A test that draws another noise first: that one is averaged over.
    values, odds = _support(laws[0])
    found = np.array(
        [
            _split(laws[1], lambda value, first=first: sparse.above(run, t, share, 0, _tape(first, value)))
            for first in values.tolist()
        ]
    )
    yes, no = odds @ found
    return float(yes), float(no)


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
class BrokenFreshThreshold(NumericSparse):
    """BROKEN: the listing's threshold noise, drawn anew at each test."""

    WORDS = "threshold noise anew at each test (as listed)"

    def above(self, run: Run, t: int, share: int, bits: int, draw: Draw) -> bool:
        """The honest test with another threshold noise."""
        return super().above(replace(run, threshold_noise=draw(self.threshold_noise)), t, share, bits, draw)


@dataclass(frozen=True)
class BrokenQuiet(NumericSparse):
    """BROKEN: 2/3 of the tests' noise."""

    WORDS = "2/3 of the noise"

    @cached_property
    def question_noise(self) -> DiscreteLaplace:
        """Too little."""
        return DiscreteLaplace(Fraction(8 * self.grid, 3))


@dataclass(frozen=True)
class BrokenHalfCharge(NumericSparse):
    """BROKEN: a run is charged for its threshold only."""

    WORDS = "half of it charged"

    def start(self, books: Books, t: int, draw: Draw) -> Books:
        """Charges half."""
        honest = super().start(books, t, draw)
        return replace(honest, spent=books.spent + (honest.spent - books.spent) / 2)


# Empirical.

Ask = Callable[[NDArray[np.float64]], Answer]
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
        for _ in range(4 if answer.kind == "unchecked" else 1):
            arrive()


ANALYSTS: dict[str, Analyst] = {
    "repeats": _repeats,
    "bisects": _bisects,
    "asks after each arrival": _waits,
}


class BrokenEndless(PMWGPlan):
    """BROKEN: starts runs that nothing pays for."""

    def _open_run(self, state: PMWGState, draw: Draw) -> str:
        """Any run is paid."""
        state.books = replace(state.books, spent=Fraction(0))
        return super()._open_run(state, draw)


def sampled_asking(
    plan: PMWGPlan, name: str, analyst: Analyst, runs: int, randomness: Randomness, *, control: bool = False
) -> Finding:
    """Lower confidence bound from ``runs`` conversations about each of two neighbouring databases."""
    began = time.perf_counter()
    sides = [
        np.array([_conversation(plan, counts, analyst, randomness) for _ in range(runs)])
        for counts in ((2, 0, 0), (1, 1, 0))
    ]
    found = distinguish(sides[0], sides[1], confidence=_CONFIDENCE, seed=1)
    return Finding(
        subject=f"questions without end, an analyst who {name}" if control else f"an analyst who {name}",
        kind="empirical",
        claimed=float(plan.budget.amount),
        found=found.epsilon,
        confidence=_CONFIDENCE,
        runs=runs,
        control=control,
        detail=f"two records alike against two that differ; {found.statistic}",
        seconds=time.perf_counter() - began,
    )


def _conversation(
    plan: PMWGPlan, counts: tuple[int, ...], analyst: Analyst, randomness: Randomness
) -> NDArray[np.float64]:
    """All that the analyst is told, as a row of numbers of one length."""
    state, told = plan.start(), np.zeros(2 * _QUESTIONS + 1)
    state.counts += np.array(counts)
    state.t = sum(counts)

    def ask(weights: NDArray[np.float64]) -> Answer:
        answer = plan.ask(state, LinearQuery((0,), weights), lambda noise: int(randomness.draw(noise, 1)[0]))
        at = state.asked - 1
        told[2 * at : 2 * at + 2] = answer.kind == "hard", answer.value
        told[-1] += answer.value if answer.kind == "hard" else 0.0
        return answer

    def arrive() -> None:
        state.counts[2] += 1
        state.t += 1

    analyst(ask, arrive)
    return told
