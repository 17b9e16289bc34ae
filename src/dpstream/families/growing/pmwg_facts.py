"""What is public of PMWG: questions and their answers, the histogram, what theory promises, and what a plan says.

A linear query is the mean of ``f`` over the records, ``f`` in [0, 1]; replacing one of t records moves it by at most
1/t. No cost rests on what is here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Option, Packed, StreamPlan, unpack_fields
from dpstream.core.errors import ConfigError, unreadable
from dpstream.core.paths import sha256_hex
from dpstream.core.privacy import Budget, Event, PureDP
from dpstream.core.schema import Domain, Schema, parse_predicate
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.growing_facts import SharesSynthesis
from dpstream.families.growing.pmwg_noise import RootNoise
from dpstream.families.growing.tables import check_universe

# Questions, and their answers.

#: Words, values for all cells, or a ``LinearQuery``.
Question = str | LinearQuery | Sequence[float] | NDArray[Any]


def linear_query(question: Question, schema: Schema) -> LinearQuery:
    """Read a question about ``schema``'s columns.

    Args:
        question: a condition such as ``age >= 65 and smoker = true`` (the grammar of ``Release.answer``); or an array
            with a value in [0, 1] for every cell of all columns (C order).

    Errors:
        ConfigError, SchemaError: an unknown column, label or word, or a value outside [0, 1].
    """
    if isinstance(question, LinearQuery):
        return question
    if isinstance(question, str):
        predicate = parse_predicate(question, schema)
        return LinearQuery(predicate.columns, predicate.mask().reshape(-1).astype(np.float64))
    try:
        query = LinearQuery(tuple(range(len(schema.domain))), np.asarray(question).reshape(-1))
    except (TypeError, ValueError):
        raise ConfigError("unreadable question", where="query", allowed="words, or numbers") from None
    query.check(schema.domain)
    return query


def describe_question(question: Question, schema: Schema) -> str:
    """The question as a text that tells it from every other one: what a store remembers of it.

    Words stay as they are; values are named by their hash.
    """
    if isinstance(question, str):
        return question.strip()
    query = linear_query(question, schema)
    digest = sha256_hex(np.ascontiguousarray(query.weights, "<f8").tobytes())
    return f"values of {schema.domain.label(query.clique)}: sha256:{digest}"


Kind = Literal["easy", "hard", "refused", "unchecked", "exact"]

_FROM_COMPLEMENT = "one minus the answer to the complement"


@dataclass(frozen=True)
class QueryAnswer:
    """One answer. Public, like everything that led to it except the data.

    Attributes:
        value: share of the records; a hard one may lie outside [0, 1].
        kind: ``easy``: the public histogram's value, which a private test let pass. ``hard``: a noisy number, from
            which the histogram then learned. ``refused``: the test found the histogram wrong, but the limit of hard
            questions is reached; the value is the histogram's. ``unchecked``: the histogram's value, and the data was
            not asked. ``exact``: the question has one value in all cells, so that nothing has to be asked.
        half_width: with 95 % the truth is within this of the value, by public noise alone; None where nothing was
            asked. Of an easy answer: or the question would have been hard, for the first question of a run of tests. A
            run whose threshold has much noise lives longer, so that later easy answers miss more often.
        promised: the theorem's accuracy for all answers together; None where it promises nothing.
        promise: that in words, with the alpha from which on it would promise something.
        t: number of records.
        spent, left: of the budget, exact.
        hard_asked, hard_left: hard questions so far, and how many more there may be now.
        reason: why the data was not asked, or the value is not corrected, or that the answer follows from another one;
            empty otherwise.
    """

    value: float
    kind: Kind
    half_width: float | None
    promised: float | None
    promise: str
    t: int
    spent: Fraction
    left: Fraction
    hard_asked: int
    hard_left: int
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON; amounts are exact text."""
        return {**asdict(self), "spent": str(self.spent), "left": str(self.left)}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> QueryAnswer:
        """The inverse of ``as_dict``.

        Errors:
            StoreDamagedError: it is none.
        """
        with unreadable("unreadable stored answer", "pmwg"):
            return cls(**{**stored, "spent": Fraction(stored["spent"]), "left": Fraction(stored["left"])})

    @property
    def changes_memory(self) -> bool:
        """Whether the histogram learned from it."""
        return self.kind == "hard"

    def of_complement(self) -> QueryAnswer:
        """The answer to the complement, ``1 - f``: it follows from this one, as answers are shares."""
        reason = f"{_FROM_COMPLEMENT}; {self.reason}" if self.reason else _FROM_COMPLEMENT
        return replace(self, value=1.0 - self.value, reason=reason)

    def describe(self) -> str:
        """The answer for people, in a few lines."""
        sure = "95 %, less after many easy answers" if self.kind == "easy" else "95 %, by the noise alone"
        within = f" ± {self.half_width:.4g} ({sure})" if self.half_width else ""
        lines = [f"{self.value:.6g}{within} as a share of {self.t:,} records"]
        lines.append(
            f"{self.kind} answer{f' ({self.reason})' if self.reason else ''}; {self.hard_asked} hard questions so "
            f"far, {self.hard_left} left; budget spent {float(self.spent):.4g}, left {float(self.left):.4g}"
        )
        return "\n".join([*lines, self.promise])


@dataclass(frozen=True)
class Standing:
    """How many questions were asked so far, and what they cost; public.

    Attributes:
        t: number of records. asked, hard: questions, and hard ones. spent, left: of the budget. hard_left: how many
            more hard ones there may be now.
    """

    t: int
    asked: int
    hard: int
    spent: Fraction
    left: Fraction
    hard_left: int


# The histogram: what it learns from answers.

#: A query's values are whole numbers of ``2^-WEIGHT_BITS``: private sums of them are exact integers.
WEIGHT_BITS = 20
#: Weights are kept above 0: the smallest normal number is near 1e-308.
_MIN_WEIGHT = 1e-300
#: The largest slope that ``matched`` tries; values closer than 1/40 of it cannot be told apart any more.
_STEEPEST_SLOPE = 1e4


def mixed(y: NDArray[np.float64], since: int, t: int) -> None:
    """``y <- (t'/t) y + ((t - t')/t)/N`` in place: what arrived since is taken to be uniform."""
    y *= since / t
    y += (t - since) / t / len(y)


def multiplied(y: NDArray[np.float64], weights: NDArray[np.int64], *, down: bool, rate: float) -> None:
    """``y ~ exp(-rate r) y`` in place, ``r`` the query (``down``) or 1 minus it. Linear in N, vectorised."""
    # exp(-rate (1 - f)) and exp(rate f) differ by a constant, which the sum takes out.
    y *= np.exp(weights * ((-rate if down else rate) / 2**WEIGHT_BITS))
    np.maximum(y, _MIN_WEIGHT * y.max(), out=y)
    y /= y.sum()


def matched(y: NDArray[np.float64], weights: NDArray[np.int64], answer: float, margin: float) -> None:
    """The distribution nearest to ``y`` (relative entropy) that gives ``answer`` to the query, in place.

    It is ``y ~ exp(s f) y`` for one ``s``, found by bisection, which the answer's being public allows.

    Args:
        margin: the answer is taken at least so far inside of what the query can give at all.
    """
    values, places = np.unique(weights, return_inverse=True)
    shares, f = np.bincount(places, y), values / 2**WEIGHT_BITS
    if len(f) == 1:
        return
    wanted = min(max(answer, f[0] + margin * (f[-1] - f[0])), f[-1] - margin * (f[-1] - f[0]))
    low, high = -_STEEPEST_SLOPE, _STEEPEST_SLOPE
    for _ in range(60):
        middle = (low + high) / 2
        tilted = shares * np.exp(middle * (f - (f[-1] if middle > 0 else f[0])))
        low, high = (middle, high) if tilted @ f < wanted * tilted.sum() else (low, middle)
    y *= np.exp(low * (f - (f[-1] if low > 0 else f[0])))[places]
    # What is left may be as small as the floor: relative to it, another floor would be 0, and nothing comes back.
    y /= y.max()
    np.maximum(y, _MIN_WEIGHT, out=y)
    y /= y.sum()


# What the theorems promise, and what public noise says about one answer.


@lru_cache(maxsize=1024)
def hard_limit(alpha: float, start: int, cells: int, t: int) -> int:
    """How many hard questions there may be up to time t: ``36/alpha^2 (log N + sum_(n < tau <= t) b_tau)``, rounded
    down.

    A limit for accuracy (Corollary 16): what is spent is charged besides, and exactly. ``b_tau = log N/tau +
    log(tau - 1)/tau + log(tau/(tau - 1))``; the two harmonic-like sums by Euler-Maclaurin, without a step per arrival.
    """
    if t <= start:
        inside = math.log(cells)
    else:
        grown = _harmonic(t) - _harmonic(start)
        inside = math.log(cells) * (1 + grown) + _logs(t) - _logs(start) + math.log(t / start)
    return math.floor(36 / alpha**2 * inside)


def _harmonic(t: int) -> float:
    """``1 + 1/2 + ... + 1/t`` up to a constant; off by less than 1e-6 from t = 5 on."""
    return math.log(t) + 1 / (2 * t) - 1 / (12 * t * t)


def _logs(t: int) -> float:
    """``sum_(tau <= t) log(tau - 1)/tau`` up to a constant; the summand's integral, with its expansion in 1/t.

    ``log(x - 1)/x`` integrates to ``log(x)^2/2 + Li_2(1/x)``; Euler-Maclaurin adds half the summand.
    """
    x = 1 / t
    dilogarithm = sum(x**k / k**2 for k in range(1, 30))
    slope = x / (t - 1) - math.log(t - 1) * x * x
    return math.log(t) ** 2 / 2 + dilogarithm + math.log(t - 1) * x / 2 + slope / 12


#: The probability that the theorems' promise may fail, which their condition for zCDP wants below 2^-7.5.
_BETA = 0.001


@dataclass(frozen=True)
class Promise:
    """What accuracy theory promises.

    Attributes:
        alpha: the smallest alpha for which the theorem holds; above 1 it promises nothing.
        holds: whether it holds for the alpha that was chosen.
        questions: how many questions there may be at the start size, at least; the number grows with t.
        words: all of that, for people.
    """

    alpha: float
    holds: bool
    questions: float
    words: str


def promise(noise: RootNoise, alpha: Fraction, start: int, *, pure: bool, as_in_theory: bool) -> Promise:
    """Theorems 14 (pure) and 17 (zCDP) in one form: they need ``alpha c n^(1/2) >= 51 log(C n/beta)``.

    Args:
        as_in_theory: whether noise and learning are those of the theorems.
        pure: C = 192 and n >= 21; else C = 144 and n >= 17. ``c`` grows with the square of alpha, else with alpha: the
            smallest alpha that would do, run in the same way, follows.
    """
    constant, least, order = (192.0, 21, 2) if pure else (144.0, 17, 1)
    given = float(alpha) * float(noise.c) * float(start) ** 0.5
    wanted = 51 * math.log(constant * start / _BETA)
    smallest = float(alpha) * (wanted / given) ** (1 / (order + 1))
    allowed = start >= least
    holds = allowed and as_in_theory and given >= wanted
    questions = math.exp(min(700.0, given / 51))
    if not allowed:
        words = f"theory promises nothing: it needs start >= {least}"
    elif not as_in_theory:
        words = "no error bound is known for this combination of noise and learning"
    elif smallest > 1:
        words = f"theory promises nothing here: its alpha would be {smallest:.3g}, above 1"
    elif not holds:
        words = f"theory promises nothing for alpha = {float(alpha):g}; it would from {smallest:.3g} on"
    else:
        words = (
            f"with probability {1 - _BETA:g} every answer is within {float(alpha):g}, for {questions:.3g} questions or "
            "more"
        )
    return Promise(smallest if allowed else math.inf, holds, questions, words)


def hard_half_width(xi: float, confidence: float) -> float:
    """A given number is within this of the truth: noise of scale ``8/xi``."""
    return 8 / xi * math.log(1 / (1 - confidence))


@lru_cache(maxsize=1024)
def easy_half_width(xi: float, threshold: float, confidence: float) -> float:
    """``f(y)`` is within this of the truth, or the question turns out hard: threshold, and both noises of the test.

    For a question that does not depend on earlier answers. ``Pr[Lap(4) + Lap(2) > s] = (16 e^(-s/4) - 4 e^(-s/2))/24``,
    in units of ``1/xi``.
    """
    wrong = 1 - confidence
    low, high = 0.0, 4 * math.log(2 / wrong) + 8
    for _ in range(60):
        middle = (low + high) / 2
        tail = (16 * math.exp(-middle / 4) - 4 * math.exp(-middle / 2)) / 24
        low, high = (middle, high) if tail > wrong else (low, middle)
    return threshold + high / xi


# What a plan says.

#: How far the histogram moves at a hard question, and whether it forgets as records arrive.
Learning = Literal["text", "matching"]


@dataclass(frozen=True)
class PMWGFacts(StreamPlan):
    """What a calibrated ``PMWG`` says; see ``PMWGPlan``."""

    budget: Budget
    unit: Event
    horizon: int | None
    columns: Domain
    alpha: Fraction
    first: int
    noise: RootNoise
    as_in_theory: bool
    learning: Learning

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.columns

    @property
    def name(self) -> str:
        """The mechanism's name in configuration files."""
        return "pmwg"

    @cached_property
    def cells(self) -> int:
        """N: of all columns together."""
        return check_universe(self.columns)

    @cached_property
    def promise(self) -> Promise:
        """What theory promises."""
        pure = isinstance(self.budget, PureDP)
        return promise(self.noise, self.alpha, self.first, pure=pure, as_in_theory=self.as_in_theory)

    def hard_limit(self, t: int) -> int:
        """How many hard questions there may be up to ``t`` records."""
        return hard_limit(float(self.alpha), self.first, self.cells, t)

    def hard_left(self, payable: int, hard: int, t: int) -> int:
        """How many more hard questions there may be before anything else arrives: by the limit, and by the budget."""
        return max(0, min(self.hard_limit(t) - hard, payable))

    def options(self) -> dict[str, Any]:
        """All options, exact."""
        return {
            "alpha": str(self.alpha),
            "start": self.first,
            "xi": {"c": str(self.noise.c)},
            "learning": self.learning,
        }

    def read_question(self, question: Question, schema: Schema) -> tuple[LinearQuery, str]:
        """See ``linear_queries``."""
        return linear_query(question, schema), describe_question(question, schema)

    def read_answer(self, stored: dict[str, Any]) -> QueryAnswer:
        """The inverse of ``QueryAnswer.as_dict``."""
        return QueryAnswer.from_dict(stored)

    def unpack_synthesis(self, packed: Packed) -> SharesSynthesis:
        """The inverse of ``SharesSynthesis.pack``."""
        return unpack_fields(SharesSynthesis, packed, domain=self.columns)

    def _answer(
        self,
        standing: Standing,
        public: int,
        kind: Kind,
        width: float | None,
        reason: str,
        number: float = 0.0,
    ) -> QueryAnswer:
        promise = self.promise
        checked = kind in ("easy", "hard")
        return QueryAnswer(
            value=public / 2**WEIGHT_BITS + number,
            kind=kind,
            half_width=width,
            promised=float(self.alpha)
            if promise.holds and checked and standing.asked <= promise.questions
            else None,
            promise=promise.words
            if checked
            else "true of any records, at no cost"
            if kind == "exact"
            else "nothing is promised for an unconfirmed value",
            t=standing.t,
            spent=standing.spent,
            left=standing.left,
            hard_asked=standing.hard,
            hard_left=standing.hard_left,
            reason=reason,
        )


ALPHA = Option(
    'an exact number between 0 and 1, such as "0.1"',
    "Accuracy aimed at, as a share of the records: which questions are hard.",
)
START = Option(
    "a number of records from 2",
    "Public number of records before the first question.",
)
HARD_QUESTIONS = Option(
    "a number from 1",
    "Fewest hard questions the budget must pay; theory then promises nothing.",
    "theory's noise pays for 36 log(cells)/alpha^2 hard questions and more",
    "not set",
)
