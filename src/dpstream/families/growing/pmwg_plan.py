"""PMWG: private multiplicative weights for growing data (Cummings et al. 2018, Algorithm 3).

A public histogram ``y`` answers. A private test lets its answer pass (an easy question, which costs nothing beyond the
test's run), or a noisy number is given and ``y`` learns from it (a hard one). Guarantee, sensitivity and composition:
``docs/theory/pmwg.md`` and ``NumericSparse``.

From the top: numeric sparse, what is done to the histogram, the plan with its state, the recipe.

Trusted base: kernel (holds exact counts, measures, amounts of questions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    Packed,
    Part,
    PrivateBatch,
    Recipe,
    Terms,
    check_share,
    check_unit,
    check_whole,
    check_words,
    option,
    pack_fields,
    unpack_fields,
)
from dpstream.core.errors import BudgetError, ConfigError, StoreDamagedError
from dpstream.core.privacy import Amount, Budget, DiscreteLaplace, Event, PureDP, Randomness, exact_amount
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.growing.blackbox import LinearQuery, refuse_deletes
from dpstream.families.growing.growing_facts import SharesSynthesis
from dpstream.families.growing.pmwg_facts import (
    ALPHA,
    HARD_QUESTIONS,
    START,
    WEIGHT_BITS,
    Learning,
    PMWGFacts,
    QueryAnswer,
    Standing,
    easy_half_width,
    hard_half_width,
    hard_limit,
    matched,
    mixed,
    multiplied,
)
from dpstream.families.growing.pmwg_noise import XI_BITS, RootNoise, noise_for_hard, published_noise, text_rho
from dpstream.families.growing.tables import WeightsTable, check_universe

# Numeric sparse for growing data (NSG, Algorithms 4 to 6), on integers, with one threshold noise per run.
#
# A *run* tests private numbers against a threshold until one is above, then gives that one's value. Between two
# neighbours (one record's value replaced, ``t`` public) a tested share ``f(x_t) - public`` moves by at most ``1/t``.
# All of it happens in units of ``1/(G xi_t)``: the integer ``v = floor(G xi_t (f(x_t) - public))`` moves by at most
# ``D_t = ceil(G xi_t/t)``.
#
# * Test: ``v + Lap_Z(4G) >= ceil(G xi_t T) + eta``, ``eta ~ Lap_Z(2G)`` drawn once, at the run's start ``t0``. ``D_t <=
#   D_t0`` (enforced), so the whole run costs ``D_t0/(2G) + 2 D_t0/(4G) = D_t0/G``, about ``xi_t0/t0`` (proof:
#   docs/theory/pmwg.md).
# * Value: ``v + Lap_Z(8G)``, which costs ``D_t/(8G)``, about ``xi_t/(8t)``.
#
# A run is started only if it can be paid to its end, so the sum of all charges never passes the budget, whoever asks.
#
# **Correction.** The listing draws the threshold's noise anew at each time; then each test leaks, and nothing is
# sparse.

#: ``G``: 8 G, the scale of the largest noise, is within what the exact samplers take.
GRID = 2**36
_XI_UNIT = 2**XI_BITS


@dataclass(frozen=True)
class SparseRun:
    """A run that has not halted: at how many records it started, and its noise, which is secret."""

    start: int
    threshold_noise: int = field(repr=False)


@dataclass(frozen=True)
class SpentAmounts:
    """What was spent, as epsilon (pure) or rho (zCDP), and the run that is under way."""

    spent: Fraction = Fraction(0)
    run: SparseRun | None = None


@dataclass(frozen=True)
class NumericSparse:
    """The public half: budget, noise and threshold.

    Guarantee: ``budget`` for all runs and values together, under replacement of one record's value with the numbers of
    records public, for questions chosen adaptively. Precondition (the caller's): ``share`` below moves by at most
    ``2^bits`` between neighbours, and the number of records is at least ``t``.

    Attributes:
        budget: of everything.
        noise: ``xi``.
        threshold: ``T``, as a share.
        grid: ``G``; a small one lets an audit look at all noise there is.
    """

    budget: Budget
    noise: RootNoise
    threshold: Fraction
    grid: int = GRID

    @cached_property
    def threshold_noise(self) -> DiscreteLaplace:
        """The noise of a run's threshold, which is drawn once."""
        return DiscreteLaplace(Fraction(2 * self.grid))

    @cached_property
    def question_noise(self) -> DiscreteLaplace:
        """The noise of each test."""
        return DiscreteLaplace(Fraction(4 * self.grid))

    @cached_property
    def value_noise(self) -> DiscreteLaplace:
        """The noise of a value that is given."""
        return DiscreteLaplace(Fraction(8 * self.grid))

    def payable(self, books: SpentAmounts, t: int) -> bool:
        """Whether a run that starts at ``t`` can be paid to its end, its number included."""
        return books.spent + self._tests_cost(t) + self._value_cost(t) <= self.budget.amount

    def runs_left(self, books: SpentAmounts, t: int) -> int:
        """How many further runs could be paid now, each with its number; the one under way besides."""
        owed = Fraction(0) if books.run is None else self._value_cost(books.run.start)
        left = self.budget.amount - books.spent - owed
        return int(left // (self._tests_cost(t) + self._value_cost(t)))

    def most(self, books: SpentAmounts, t: int) -> Fraction:
        """The most that the next question costs: a number, and the tests of a new run where none is under way."""
        if books.run is not None:
            return self._value_cost(books.run.start)
        return self._tests_cost(t) + self._value_cost(t) if self.payable(books, t) else Fraction(0)

    def start(self, books: SpentAmounts, t: int, randomness: Randomness) -> SpentAmounts:
        """Charge for a run's tests, and draw its noise. Only where ``payable``, and no run is under way."""
        run = SparseRun(t, int(randomness.draw(self.threshold_noise, 1)[0]))
        return SpentAmounts(books.spent + self._tests_cost(t), run)

    def above(self, run: SparseRun, t: int, share: int, bits: int, randomness: Randomness) -> bool:
        """Test ``share / (2^bits t)`` once."""
        units = self._units(run, t)
        limit = ceil_div(self.grid * units * self.threshold.numerator, _XI_UNIT * self.threshold.denominator)
        tested = self._scaled(units, t, share, bits)
        return randomness.test(tested, limit + run.threshold_noise, self.question_noise)

    def halt(
        self, books: SpentAmounts, run: SparseRun, t: int, share: int, bits: int, randomness: Randomness
    ) -> tuple[SpentAmounts, Fraction]:
        """End the run with the noisy value of ``share / (2^bits t)``, and charge for it."""
        units = self._units(run, t)
        # Of Python's integers: in long streams they pass 64 bits.
        exact: Any = np.array([self._scaled(units, t, share, bits)], dtype=object)
        value = int(randomness.measure(exact, self.value_noise)[0])
        spent = books.spent + self._cost(Fraction(self._moved(units, t), 8 * self.grid))
        return SpentAmounts(spent), Fraction(value * _XI_UNIT, self.grid * units)

    def _units(self, run: SparseRun, t: int) -> int:
        # xi_t/t is non-increasing; after rounding down it is made so, because the charge of the start rests on it.
        return min(self.noise.units(t), self.noise.units(run.start) * t // run.start)

    def _scaled(self, units: int, t: int, share: int, bits: int) -> int:
        return int((self.grid * units * share) // (_XI_UNIT * t << bits))

    def _moved(self, units: int, t: int) -> int:
        """``D_t``: a floor moves by at most the rounded-up amount that its argument moves by."""
        return ceil_div(self.grid * units, _XI_UNIT * t)

    def _tests_cost(self, t: int) -> Fraction:
        """Of all tests of a run that starts at ``t``."""
        return self._cost(Fraction(self._moved(self.noise.units(t), t), self.grid))

    def _value_cost(self, t: int) -> Fraction:
        """Of the number of a run that starts at ``t``, at most."""
        return self._cost(Fraction(self._moved(self.noise.units(t), t), 8 * self.grid))

    def _cost(self, epsilon: Fraction) -> Fraction:
        return epsilon if isinstance(self.budget, PureDP) else epsilon**2 / 2


def ceil_div(top: int, bottom: int) -> int:
    """``ceil(top / bottom)``, exact."""
    return -(-top // bottom)


_CONFIDENCE = 0.95


def grid_values(query: LinearQuery, domain: Domain) -> NDArray[np.int64]:
    """The query's value in every cell of all columns, rounded to the nearest ``2^-WEIGHT_BITS``, in these units.

    The rounded query is the one that is asked, of the private data and of ``y`` alike; 0 and 1 stay exact.

    Errors:
        ConfigError: the query is about other columns.
    """
    query.check(domain)
    scaled: NDArray[np.int64] = np.rint(query.weights * 2**WEIGHT_BITS).astype(np.int64)
    shape = [size if i in query.clique else 1 for i, size in enumerate(domain.sizes)]
    return np.broadcast_to(scaled.reshape(shape), domain.sizes).reshape(-1)


@dataclass
class PMWGState:
    """Secret: ``counts``, and the noise of the run in ``books``.

    Attributes:
        counts: records by cell. t: their number, public.
        y: the public histogram, as of ``y_time`` records.
        books: what was spent, and the run. asked, hard: numbers of questions.
    """

    counts: NDArray[np.int64] = field(repr=False)
    t: int
    y: NDArray[np.float64] = field(repr=False)
    y_time: int
    books: SpentAmounts = field(default_factory=SpentAmounts)
    asked: int = 0
    hard: int = 0


@dataclass(frozen=True)
class PMWGPlan(PMWGFacts):
    """A calibrated ``PMWG``.

    Guarantee: ``budget`` for one record's value replaced, the numbers of records being public, for all answers for
    ever, to questions chosen adaptively; and for all tables that a stream of it releases, which are made of the answers
    alone."""

    def parts(self) -> tuple[Part, ...]:
        """Tests and numbers are charged as they are used; together they never pass the budget."""
        xi, payable = self.noise.value(self.first), self.sparse.runs_left(SpentAmounts(), self.first)
        detail = (
            f"answers to questions for ever: tests against {float(self.alpha) * 2 / 3:.4g} with noise of scale "
            f"{4 / xi:.4g} and {2 / xi:.4g} (once per run), numbers with {8 / xi:.4g}, as shares of {self.first} "
            f"records; at most {self.hard_left(payable, 0, self.first)} hard questions then; arrivals are free"
        )
        return (Part("questions", 1, self.budget, detail),)

    def asked_cliques(self) -> Sequence[Clique]:
        """The one table of all columns."""
        return (tuple(range(len(self.columns))),)

    @property
    def asks(self) -> PMWGPlan:
        """The plan itself: its stream answers questions."""
        return self

    def question_bytes(self, query: LinearQuery) -> tuple[bytes, bytes]:
        """What tells a question from all others: its values in all cells, and those of its complement ``1 - f``."""
        weights = grid_values(query, self.columns)
        own, complement = (values.astype("<i8").tobytes() for values in (weights, 2**WEIGHT_BITS - weights))
        return own, complement

    def start(self) -> PMWGState:
        """No records, and the uniform histogram."""
        return PMWGState(np.zeros(self.cells, np.int64), 0, np.full(self.cells, 1 / self.cells), 0)

    def arrive(self, state: PMWGState, batch: PrivateBatch) -> None:
        """Count a batch of records. Free: nothing is drawn.

        Errors:
            ConfigError: the batch has deletes.
        """
        refuse_deletes(batch)
        (arrived,) = batch.count(self.asked_cliques(), "inserts")
        state.counts += arrived
        state.t += int(arrived.sum())

    def step(self, state: PMWGState, batch: PrivateBatch, randomness: Randomness) -> SharesSynthesis:
        """Count a batch, and give ``y`` as a table."""
        self.arrive(state, batch)
        self._mix(state)
        return SharesSynthesis(WeightsTable(self.columns, state.y.copy()), state.t)

    def ask(self, state: PMWGState, query: LinearQuery, randomness: Randomness) -> QueryAnswer:
        """Answer a linear query; advances ``state``.

        Args:
            randomness: once it was asked, the answer must be given or the state thrown away with the run.

        Errors:
            ConfigError: the query is none of these columns. BudgetError: there are fewer than ``start`` records yet.

        Cost: linear in the number of cells.
        """
        if state.t < self.first:
            raise BudgetError(
                f"questions begin with {self.first} records, and there are {state.t}",
                where="ask",
                allowed="more records first",
            )
        weights = grid_values(query, self.columns)
        self._mix(state)
        if weights.min() == weights.max():
            return self._answer(
                self.standing(state), int(weights[0]), "exact", 0.0, "the question is constant over all cells"
            )
        state.asked += 1
        public = round(float(weights @ state.y))
        reason = self._open_run(state, randomness)
        if reason:
            return self._answer(self.standing(state), public, "unchecked", None, reason)
        # Both halves in exact integers: the share of the records less the public value, times t 2^WEIGHT_BITS.
        gap = int(weights @ state.counts) - state.t * public
        for sign in (1, -1):
            run = state.books.run
            assert run is not None
            if self.sparse.above(run, state.t, sign * gap, WEIGHT_BITS, randomness):
                return self._answer_hard(state, weights, public, sign, gap, randomness)
        xi = self.noise.value(state.t)
        width = easy_half_width(xi, float(self.sparse.threshold), _CONFIDENCE)
        return self._answer(self.standing(state), public, "easy", width, "")

    def standing(self, state: PMWGState) -> Standing:
        """What was asked so far; public."""
        spent = state.books.spent
        begun = state.t >= self.first
        payable = self.sparse.runs_left(state.books, state.t) + (state.books.run is not None) if begun else 0
        hard_left = self.hard_left(payable, state.hard, state.t) if begun else 0
        return Standing(state.t, state.asked, state.hard, spent, self.budget.amount - spent, hard_left)

    def most(self, state: PMWGState) -> Fraction:
        """The most that the next question can spend; whether a run is under way follows from the answers so far."""
        return self.sparse.most(state.books, state.t) if state.t >= self.first else Fraction(0)

    def with_books(self, answer: QueryAnswer, state: PMWGState) -> QueryAnswer:
        """An answer that follows from an earlier one, with what is spent and asked by now."""
        now = self.standing(state)
        return replace(answer, spent=now.spent, left=now.left, hard_asked=now.hard, hard_left=now.hard_left)

    def pack_state(self, state: PMWGState) -> Packed:
        """Counts, histogram and books."""
        return pack_fields(state)

    def unpack_state(self, packed: Packed) -> PMWGState:
        """The inverse of ``pack_state``.

        Errors:
            StoreDamagedError: it belongs to other columns, or contradicts itself.
        """
        state = unpack_fields(PMWGState, packed)
        if state.counts.shape != (self.cells,) or state.y.shape != (self.cells,):
            raise StoreDamagedError("the state belongs to other columns", where="pmwg")
        if int(state.counts.sum()) != state.t:
            raise StoreDamagedError("the state's counts contradict each other", where="pmwg")
        return state

    def pack_books(self, state: PMWGState) -> dict[str, Any]:
        """What a question changes besides the histogram, JSON-able. Secret."""
        return {"books": pack_fields(state.books).meta, "asked": state.asked, "hard": state.hard}

    def restore_books(self, state: PMWGState, packed: dict[str, Any]) -> None:
        """The inverse of ``pack_books``, in place."""
        state.books = unpack_fields(SpentAmounts, Packed(packed["books"], {}))
        state.asked, state.hard = int(packed["asked"]), int(packed["hard"])

    def pack_memory(self, state: PMWGState) -> Packed:
        """The histogram."""
        return Packed({"y_time": state.y_time}, {"y": state.y})

    def restore_memory(self, state: PMWGState, packed: Packed) -> None:
        """The inverse of ``pack_memory``, in place."""
        state.y, state.y_time = packed.arrays["y"].copy(), int(packed.meta["y_time"])

    # What a question does.

    def _mix(self, state: PMWGState) -> None:
        # The published rule takes new records to be spread evenly. Before the first question y is uniform.
        if state.y_time < state.t and self.learning == "text":
            mixed(state.y, state.y_time, state.t)
            state.y_time = state.t

    def _open_run(self, state: PMWGState, randomness: Randomness) -> str:
        """Have a run under way. The result is empty, or says why there can be none, which public facts decide."""
        if state.books.run is not None:
            return ""
        if state.hard > self.hard_limit(state.t):
            return "no hard questions are left until more records arrive"
        if not self.sparse.payable(state.books, state.t):
            return "the budget does not pay for another run of tests"
        state.books = self.sparse.start(state.books, state.t, randomness)
        return ""

    def _answer_hard(
        self,
        state: PMWGState,
        weights: NDArray[np.int64],
        public: int,
        sign: int,
        gap: int,
        randomness: Randomness,
    ) -> QueryAnswer:
        run = state.books.run
        assert run is not None
        state.hard += 1
        if state.hard > self.hard_limit(state.t):
            state.books = replace(state.books, run=None)
            return self._answer(
                self.standing(state), public, "refused", None, "the limit of hard questions is reached"
            )
        state.books, noisy = self.sparse.halt(state.books, run, state.t, sign * gap, WEIGHT_BITS, randomness)
        # As in the text, the histogram learns from the number, whichever of the two tests let it through.
        number = sign * noisy
        if self.learning == "text":
            multiplied(state.y, weights, down=number < 0, rate=float(self.alpha) / 6)
        else:
            matched(state.y, weights, public / 2**WEIGHT_BITS + float(number), 1 / state.t)
        width = hard_half_width(self.noise.value(state.t), _CONFIDENCE)
        return self._answer(self.standing(state), public, "hard", width, "", float(number))

    @cached_property
    def sparse(self) -> NumericSparse:
        """The mechanism behind tests and numbers."""
        return NumericSparse(self.budget, self.noise, self.alpha * 2 / 3)

    def facts(self) -> dict[str, Any]:
        """Noise and promise at the start."""
        return {
            "asking": {
                "start": self.first,
                "cells": self.cells,
                "threshold": float(self.sparse.threshold),
                "noise_of_numbers": 8 / self.noise.value(self.first),
                "hard_questions": self.hard_left(
                    self.sparse.runs_left(SpentAmounts(), self.first), 0, self.first
                ),
                "promise": self.promise.words,
            }
        }


OTHER_UNIT = "questions cannot protect the unit {unit!r}"
#: Below, the grid of ``xi`` is too coarse, and the noise 2^20 times as large as any answer.
_MIN_UNITS = 2**20


@dataclass(frozen=True)
class PMWG(Recipe[PMWGPlan]):
    """The options of private multiplicative weights for growing data.

    Attributes:
        domain: the columns; their cells together are the universe, at most ``MAX_UNIVERSE``.
        alpha: the accuracy aimed at, a share of the records: between 0 and 1. Smaller: more questions are hard, with
            more noise each.
        start: n, how many records there are before the first question; public.
        hard_questions: the noise for which at least so many hard questions can be paid from the start on, instead of
            as many as theory may need (36 log(N)/alpha^2 and more) by the text's constants. Far less noise; theory then
            promises nothing.
        learning: ``matching``: from a number the histogram learns as little as makes it give that number, which the
            same question then does not have to repeat; new records are taken to be like those before. ``text``: a step
            of alpha/6, and new records are taken to be spread evenly over all cells. Public either way.
    """

    domain: Domain
    alpha: Amount = option(of=ALPHA)
    start: int = option(of=START)
    hard_questions: int | None = option(None, HARD_QUESTIONS)
    learning: Learning = "matching"

    def __post_init__(self) -> None:
        check_share(self.alpha, "alpha", "alpha")
        check_whole(self.start, "start", 2, 2**40 - 1, "start")
        check_words(self)
        if self.hard_questions is not None:
            check_whole(self.hard_questions, "hard_questions", 1, 2**62, "hard_questions")
        check_universe(self.domain)

    def _plan(self, terms: Terms) -> PMWGPlan:
        """
        Errors:
            BudgetError: an amount that pays for no question.
        """
        budget = terms.budget
        unit = check_unit(terms.unit, Event("replace"), ("event-replace",), OTHER_UNIT)
        alpha = exact_amount(self.alpha, where="alpha")
        cells = check_universe(self.domain)
        noise = self._noise(terms, alpha, cells)
        if noise.units(self.start) < _MIN_UNITS:
            raise BudgetError(
                f"alpha = {float(alpha):g} and {budget} give noise of {8 / max(noise.value(self.start), 1e-12):.3g} "
                "times the number of records",
                where="alpha",
                allowed="a larger alpha or budget, or a later start",
            )
        return PMWGPlan(
            budget,
            unit,
            terms.horizon,
            self.domain,
            alpha,
            self.start,
            noise,
            self.hard_questions is None and self.learning == "text",
            self.learning,
        )

    def _noise(self, terms: Terms, alpha: Fraction, cells: int) -> RootNoise:
        if self.hard_questions is not None:
            noise = noise_for_hard(terms.budget, self.hard_questions, self.start, GRID)
            limit = hard_limit(float(alpha), self.start, cells, self.start)
            if self.hard_questions > limit:
                raise ConfigError(
                    f"hard_questions = {self.hard_questions} exceeds {limit}, the most at the start",
                    where="hard_questions",
                    allowed=f"up to {limit} (36 log(cells)/alpha^2)",
                )
            return noise
        text = terms.budget if terms.stated is None else text_rho(*terms.stated)
        return published_noise(text, alpha, self.start, cells)
