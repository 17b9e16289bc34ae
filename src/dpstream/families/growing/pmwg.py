"""PMWG: private multiplicative weights for growing data (Cummings et al. 2018, Algorithm 3).

A public histogram ``y`` answers. A private test lets its answer pass (an easy question, which costs nothing beyond the
test's run), or a noisy number is given and ``y`` learns from it (a hard one). Guarantee, sensitivity and composition:
``docs/theory/pmwg.md`` and ``numeric_sparse.py``.

Trusted base: kernel (amounts of questions).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dpstream.core.contracts import (
    Option,
    Recipe,
    Terms,
    check_share,
    check_unit,
    check_whole,
    check_words,
    option,
)
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy.budget import Amount, exact_amount
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Domain
from dpstream.families.growing.blackbox import check_universe
from dpstream.families.growing.numeric_sparse import GRID
from dpstream.families.growing.pmwg_noise import (
    RootNoise,
    hard_limit,
    largest_noise,
    noise_for_hard,
    published_noise,
    text_rho,
)
from dpstream.families.growing.pmwg_plan import Learning, PMWGPlan

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


#: The largest noise rule whose sum fits the budget, or the text's constants.
NoiseVariant = Literal["largest", "published"]
_OTHER_UNIT = (
    "questions to a growing database cannot protect the unit {unit!r}: answers are shares of the number of records, "
    'which is public ([stream] total = "public")'
)
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
            as many as theory may need (36 log(N)/alpha^2 and more). Far less noise; theory then promises nothing.
        learning: ``matching``: from a number the histogram learns as little as makes it give that number, which the
            same question then does not have to repeat; new records are taken to be like those before. ``text``: a step
            of alpha/6, and new records are taken to be spread evenly over all cells. Public either way.
        noise: without ``hard_questions``: the largest whose sum fits the budget, or the text's constants.
    """

    domain: Domain
    alpha: Amount = option(of=ALPHA)
    start: int = option(of=START)
    hard_questions: int | None = option(None, HARD_QUESTIONS)
    learning: Learning = "matching"
    noise: NoiseVariant = "largest"

    def __post_init__(self) -> None:
        check_share(self.alpha, "alpha", "alpha")
        check_whole(self.start, "start", 2, 2**40 - 1, "start")
        check_words(self)
        if self.hard_questions is not None and self.noise != "largest":
            raise ConfigError(
                "`hard_questions` and `noise` cannot be combined: each fixes the noise",
                where="noise",
                allowed="one of them",
            )
        if self.hard_questions is not None:
            check_whole(self.hard_questions, "hard_questions", 1, 2**62, "hard_questions")
        check_universe(self.domain)

    def _plan(self, terms: Terms) -> PMWGPlan:
        """
        Errors:
            BudgetError: an amount that pays for no question.
        """
        budget = terms.budget
        unit = check_unit(terms.unit, Event("replace"), ("event-replace",), _OTHER_UNIT)
        alpha = exact_amount(self.alpha, where="alpha")
        cells = check_universe(self.domain)
        noise = self._noise(terms, alpha, cells)
        if noise.units(self.start) < _MIN_UNITS:
            raise BudgetError(
                f"alpha = {float(alpha):g} and {budget} leave noise of {8 / max(noise.value(self.start), 1e-12):.3g} "
                "times the number of records in every number",
                where="alpha",
                allowed="a larger alpha, a larger budget, more records at the start",
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
                    f"hard_questions = {self.hard_questions}, and no more than {limit} may be asked at the start",
                    where="hard_questions",
                    allowed=f"up to {limit} (36 log(cells)/alpha^2)",
                )
            return noise
        if self.noise == "published":
            text = terms.budget if terms.stated is None else text_rho(*terms.stated)
            return published_noise(text, alpha, self.start, cells)
        return largest_noise(terms.budget, alpha, self.start, cells)
