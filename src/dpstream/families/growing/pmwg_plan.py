"""The calibrated PMWG: its state, and how a question is answered. See ``pmwg.py``.

Trusted base: kernel (holds exact counts, measures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, Part, PrivateBatch, StreamPlan, pack_fields, unpack_fields
from dpstream.core.errors import BudgetError, ConfigError, StoreDamagedError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.growing.blackbox import LinearQuery, WeightsTable, check_universe
from dpstream.families.growing.growing_plan import TableSynthesis
from dpstream.families.growing.numeric_sparse import Draw, NumericSparse, SpentAmounts
from dpstream.families.growing.pmwg_noise import (
    Promise,
    RootNoise,
    easy_half_width,
    hard_half_width,
    hard_limit,
    promise,
)
from dpstream.families.growing.questions import (
    Kind,
    QueryAnswer,
    Question,
    Standing,
    describe_question,
    linear_query,
)
from dpstream.families.growing.universe import (
    WEIGHT_BITS,
    grid_values,
    matched,
    mixed,
    multiplied,
)

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

#: How far the histogram moves at a hard question, and whether it forgets as records arrive.
Learning = Literal["text", "matching"]
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class HistogramSynthesis(TableSynthesis):
    """``y`` as a step gives it: what the answers so far have taught, as a table. Public."""

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says."""
        return {
            "total_standard_error": 0.0,
            "measured_every_step": {"standard_error": None, "marginals": []},
        }


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
class PMWGPlan(StreamPlan):
    """A calibrated ``PMWG``.

    Guarantee: ``budget`` for one record's value replaced, the numbers of records being public, for all answers for
    ever, to questions chosen adaptively; and for all tables that a stream of it releases, which are made of the answers
    alone."""

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
    def sparse(self) -> NumericSparse:
        """The mechanism behind tests and numbers."""
        return NumericSparse(self.budget, self.noise, self.alpha * 2 / 3)

    @cached_property
    def promise(self) -> Promise:
        """What theory promises."""
        pure = isinstance(self.budget, PureDP)
        return promise(self.noise, self.alpha, self.first, pure=pure, as_in_theory=self.as_in_theory)

    def hard_limit(self, t: int) -> int:
        """How many hard questions there may be up to ``t`` records."""
        return hard_limit(float(self.alpha), self.first, self.cells, t)

    def hard_left(self, books: SpentAmounts, hard: int, t: int) -> int:
        """How many more hard questions there may be before anything else arrives: by the limit, and by the budget."""
        payable = self.sparse.runs_left(books, t) + (books.run is not None)
        return max(0, min(self.hard_limit(t) - hard, payable))

    def parts(self) -> tuple[Part, ...]:
        """Tests and numbers are charged as they are used; together they never pass the budget."""
        xi = self.noise.value(self.first)
        detail = (
            f"answers to questions for ever: tests against {float(self.alpha) * 2 / 3:.4g} with noise of scale "
            f"{4 / xi:.4g} and {2 / xi:.4g} (once per run), numbers with {8 / xi:.4g}, as shares of {self.first} "
            f"records; at most {self.hard_left(SpentAmounts(), 0, self.first)} hard questions then; arrivals are free"
        )
        return (Part("questions", 1, self.budget, detail),)

    def asked_cliques(self) -> Sequence[Clique]:
        """The one table of all columns."""
        return (tuple(range(len(self.columns))),)

    def options(self) -> dict[str, Any]:
        """All options, exact."""
        return {
            "alpha": str(self.alpha),
            "start": self.first,
            "xi": {"c": str(self.noise.c)},
            "learning": self.learning,
        }

    def facts(self) -> dict[str, Any]:
        """Noise and promise at the start."""
        return {
            "asking": {
                "start": self.first,
                "cells": self.cells,
                "threshold": float(self.sparse.threshold),
                "noise_of_numbers": 8 / self.noise.value(self.first),
                "hard_questions": self.hard_left(SpentAmounts(), 0, self.first),
                "promise": self.promise.words,
            }
        }

    @property
    def asks(self) -> PMWGPlan:
        """The plan itself: its stream answers questions."""
        return self

    def read_question(self, question: Question, schema: Schema) -> tuple[LinearQuery, str]:
        """See ``linear_queries``."""
        return linear_query(question, schema), describe_question(question, schema)

    def question_bytes(self, query: LinearQuery) -> tuple[bytes, bytes]:
        """What tells a question from all others: its values in all cells, and those of its complement ``1 - f``."""
        weights = grid_values(query, self.columns)
        own, complement = (values.astype("<i8").tobytes() for values in (weights, 2**WEIGHT_BITS - weights))
        return own, complement

    def read_answer(self, stored: dict[str, Any]) -> QueryAnswer:
        """The inverse of ``QueryAnswer.as_dict``."""
        return QueryAnswer.from_dict(stored)

    def start(self) -> PMWGState:
        """No records, and the uniform histogram."""
        return PMWGState(np.zeros(self.cells, np.int64), 0, np.full(self.cells, 1 / self.cells), 0)

    def arrive(self, state: PMWGState, batch: PrivateBatch) -> None:
        """Count a batch of records. Free: nothing is drawn.

        Errors:
            ConfigError: the batch has deletes.
        """
        if batch.declares_deletes:
            raise ConfigError(
                "records leave, and this mechanism is for databases that only grow",
                where="batch",
                allowed='inserts only; or the tabular family ([mechanism] name = "pooled" or "dpstabs")',
            )
        (arrived,) = batch.count(self.asked_cliques(), "inserts")
        state.counts += arrived
        state.t += int(arrived.sum())

    def step(self, state: PMWGState, batch: PrivateBatch, randomness: Randomness) -> HistogramSynthesis:
        """Count a batch, and give ``y`` as a table."""
        self.arrive(state, batch)
        self._mix(state)
        return HistogramSynthesis(WeightsTable(self.columns, state.y.copy()), state.t)

    def ask(self, state: PMWGState, query: LinearQuery, draw: Draw) -> QueryAnswer:
        """Answer a linear query; advances ``state``.

        Args:
            draw: exact samples. Once it was called, the answer must be given or the state thrown away with the run.

        Errors:
            ConfigError: the query is none of these columns. BudgetError: there are fewer than ``start`` records yet.

        Cost: linear in the number of cells.
        """
        if state.t < self.first:
            raise BudgetError(
                f"there are only {state.t} records yet, and questions begin with {self.first}",
                where="ask",
                allowed="more records first (the start is part of the plan)",
            )
        weights = grid_values(query, self.columns)
        self._mix(state)
        if weights.min() == weights.max():
            return self._answer(
                state, int(weights[0]), "exact", 0.0, "the question has one value in all cells"
            )
        state.asked += 1
        public = round(float(weights @ state.y))
        reason = self._open_run(state, draw)
        if reason:
            return self._answer(state, public, "unchecked", None, reason)
        # Both halves in exact integers: the share of the records less the public value, times t 2^WEIGHT_BITS.
        gap = int(weights @ state.counts) - state.t * public
        for sign in (1, -1):
            run = state.books.run
            assert run is not None
            if self.sparse.above(run, state.t, sign * gap, WEIGHT_BITS, draw):
                return self._answer_hard(state, weights, public, sign, gap, draw)
        xi = self.noise.value(state.t)
        width = easy_half_width(xi, float(self.sparse.threshold), _CONFIDENCE)
        return self._answer(state, public, "easy", width, "")

    def standing(self, state: PMWGState) -> Standing:
        """What was asked so far; public."""
        spent = state.books.spent
        begun = state.t >= self.first
        hard_left = self.hard_left(state.books, state.hard, state.t) if begun else 0
        return Standing(state.t, state.asked, state.hard, spent, self.budget.amount - spent, hard_left)

    def most(self, state: PMWGState) -> Fraction:
        """The most that the next question can spend; whether a run is under way follows from the answers so far."""
        return self.sparse.most(state.books, state.t) if state.t >= self.first else Fraction(0)

    def with_books(self, answer: QueryAnswer, state: PMWGState) -> QueryAnswer:
        """An answer that follows from an earlier one, with what is spent and asked by now."""
        standing, hard_left = self.standing(state), self.hard_left(state.books, state.hard, state.t)
        return replace(
            answer, spent=standing.spent, left=standing.left, hard_asked=state.hard, hard_left=hard_left
        )

    def unpack_synthesis(self, packed: Packed) -> HistogramSynthesis:
        """The inverse of ``HistogramSynthesis.pack``."""
        return unpack_fields(HistogramSynthesis, packed, domain=self.columns)

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
            raise StoreDamagedError("the state's counts do not add up", where="pmwg")
        return state

    def pack_books(self, state: PMWGState) -> dict[str, Any]:
        """What a question changes besides the histogram, JSON-able. Secret."""
        return {**pack_fields(state.books).meta, "asked": state.asked, "hard": state.hard}

    def restore_books(self, state: PMWGState, packed: dict[str, Any]) -> None:
        """The inverse of ``pack_books``, in place."""
        state.books = unpack_fields(SpentAmounts, Packed(packed, {}))
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

    def _open_run(self, state: PMWGState, draw: Draw) -> str:
        """Have a run under way. The result is empty, or says why there can be none, which public facts decide."""
        if state.books.run is not None:
            return ""
        if state.hard > self.hard_limit(state.t):
            return "the hard questions are used up until more records arrive"
        if not self.sparse.payable(state.books, state.t):
            return "the budget does not pay for another run of tests"
        state.books = self.sparse.start(state.books, state.t, draw)
        return ""

    def _answer_hard(
        self, state: PMWGState, weights: NDArray[np.int64], public: int, sign: int, gap: int, draw: Draw
    ) -> QueryAnswer:
        run = state.books.run
        assert run is not None
        state.hard += 1
        if state.hard > self.hard_limit(state.t):
            state.books = self.sparse.halt_silently(state.books)
            return self._answer(state, public, "refused", None, "the limit of hard questions is reached")
        state.books, noisy = self.sparse.halt(state.books, run, state.t, sign * gap, WEIGHT_BITS, draw)
        # As in the text, the histogram learns from the number, whichever of the two tests let it through.
        number = sign * noisy
        if self.learning == "text":
            multiplied(state.y, weights, down=number < 0, rate=float(self.alpha) / 6)
        else:
            matched(state.y, weights, public / 2**WEIGHT_BITS + float(number), 1 / state.t)
        width = hard_half_width(self.noise.value(state.t), _CONFIDENCE)
        return self._answer(state, public, "hard", width, "", float(number))

    def _answer(
        self, state: PMWGState, public: int, kind: Kind, width: float | None, reason: str, number: float = 0.0
    ) -> QueryAnswer:
        promise, standing = self.promise, self.standing(state)
        checked = kind in ("easy", "hard")
        return QueryAnswer(
            value=public / 2**WEIGHT_BITS + number,
            kind=kind,
            half_width=width,
            promised=float(self.alpha)
            if promise.holds and checked and state.asked <= promise.questions
            else None,
            promise=promise.words
            if checked
            else "the answer is true of any records, and costs nothing"
            if kind == "exact"
            else "nothing is promised for a value that the data did not confirm",
            t=state.t,
            spent=standing.spent,
            left=standing.left,
            hard_asked=state.hard,
            hard_left=self.hard_left(state.books, state.hard, state.t),
            reason=reason,
        )
