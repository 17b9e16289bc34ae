"""What PMWG says in public: its options, what its noise allows, and answers in words."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from dpstream.core.contracts import (
    Option,
    Packed,
    StreamPlan,
    unpack_fields,
)
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Domain
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.pmwg_histogram import (
    WEIGHT_BITS,
    HistogramSynthesis,
)
from dpstream.families.growing.pmwg_noise import (
    RootNoise,
)
from dpstream.families.growing.pmwg_promise import (
    Promise,
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
from dpstream.families.growing.tables import check_universe

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

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

    def unpack_synthesis(self, packed: Packed) -> HistogramSynthesis:
        """The inverse of ``HistogramSynthesis.pack``."""
        return unpack_fields(HistogramSynthesis, packed, domain=self.columns)

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
            else "the answer is true of any records, and costs nothing"
            if kind == "exact"
            else "nothing is promised for a value that the data did not confirm",
            t=standing.t,
            spent=standing.spent,
            left=standing.left,
            hard_asked=standing.hard,
            hard_left=standing.hard_left,
            reason=reason,
        )


ALPHA = Option(
    'an exact number between 0 and 1, such as "0.1"',
    "The accuracy aimed at, as a share of the records: a question is hard where a noisy test finds the public "
    "histogram further from the truth than two thirds of it.",
)
START = Option(
    "a number of records from 2",
    "How many records there are before the first question. Public; the noise is made for it.",
)
HARD_QUESTIONS = Option(
    "a number from 1",
    "How many hard questions the budget has to pay at least; the noise is made for them. Theory then promises nothing, "
    "and every answer says how far its noise may carry it.",
    "theory's own noise pays for 36 log(cells)/alpha^2 hard questions and more, and is rarely of use",
    "not set",
)
