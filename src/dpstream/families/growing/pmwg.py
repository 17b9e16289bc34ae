"""PMWG: private multiplicative weights for growing data (Cummings et al. 2018, Algorithm 3).

A public histogram ``y`` answers. A private test lets its answer pass (an easy question, which costs nothing beyond the
test's run), or a noisy number is given and ``y`` learns from it (a hard one). Guarantee, sensitivity and composition:
``docs/theory/pmwg.md`` and ``numeric_sparse.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dpstream.core.contracts import Recipe, Terms, check_share, check_unit, check_words, option
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy.budget import Amount, Budget, exact_amount
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Domain
from dpstream.families.growing import asking_options
from dpstream.families.growing.numeric_sparse import GRID
from dpstream.families.growing.pmwg_noise import (
    PowerNoise,
    approximate_budget,
    check_sum,
    hard_limit,
    largest_noise,
    noise_for_hard,
    published_noise,
    text_rho,
)
from dpstream.families.growing.pmwg_plan import Arrivals, Learning, PMWGPlan
from dpstream.families.growing.universe import Universe

#: The largest noise rule whose sum fits the budget, or the text's constants.
NoiseVariant = Literal["largest", "published"]
_OTHER_UNIT = (
    "questions to a growing database cannot protect the unit {unit!r}: answers are shares of the number of records, "
    'which is public ([stream] total = "public")'
)
#: Below, the grid of ``xi`` is too coarse, and the noise 2^20 times as large as any answer.
_LEAST_UNITS = 2**20


@dataclass(frozen=True)
class PMWG(Recipe[PMWGPlan]):
    """The options of private multiplicative weights for growing data.

    Attributes:
        domain: the columns; their cells together are the universe, at most ``MAX_UNIVERSE``.
        alpha: the accuracy aimed at, a share of the records: between 0 and 1. Smaller: more questions are hard, with
            more noise each.
        start: n, how many records there are before the first question; public.
        exponent: p of ``xi_t = c t^p``, 1/4 to below 1.
        noise: ``largest`` or ``published``.
        hard_questions: the noise for which at least so many hard questions can be paid from the start on, instead of
            as many as theory may need (36 log(N)/alpha^2 and more). Far less noise; theory then promises nothing.
        learning: what the histogram learns from a number: a step of alpha/6 (``text``), or as little as makes it give
            that number (``matching``), which the same question then does not have to repeat. Public either way.
        coefficient: c of the user's own; refused where Theorem 18's sum would pass the budget.
        arrivals: what the histogram takes new records to be: spread evenly over all cells, as the text does
            (``uniform``), or like those before (``alike``): then it stays as it is until it learns. Public either way.
        kappa, beta: of the accuracy that theory promises: a factor of the number of questions, and the probability that
            the promise fails. They change no noise.
    """

    domain: Domain
    alpha: Amount = option(of=asking_options.ALPHA)
    start: int = option(of=asking_options.START)
    exponent: Amount = option("1/2", asking_options.EXPONENT)
    noise: NoiseVariant = option("largest", asking_options.NOISE)
    hard_questions: int | None = option(None, asking_options.HARD_QUESTIONS)
    coefficient: Amount | None = option(None, asking_options.COEFFICIENT)
    learning: Learning = option("text", asking_options.LEARNING)
    arrivals: Arrivals = option("uniform", asking_options.ARRIVALS)
    kappa: float = 1.0
    beta: float = 0.001

    def __post_init__(self) -> None:
        check_share(self.alpha, "alpha", "alpha")
        if isinstance(self.start, bool) or not isinstance(self.start, int) or not 2 <= self.start < 2**40:
            raise ConfigError(f"start = {self.start!r}", where="start", allowed="a number of records from 2")
        check_words(self)
        chosen = [self.hard_questions is not None, self.coefficient is not None, self.noise != "largest"]
        if sum(chosen) > 1:
            raise ConfigError(
                "the noise is fixed twice",
                where="noise",
                allowed="one of noise, hard_questions and coefficient",
            )
        given = self.hard_questions
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
            raise ConfigError(
                f"hard_questions = {given!r}", where="hard_questions", allowed="a number from 1"
            )
        PowerNoise(Fraction(1), exact_amount(self.exponent, where="exponent"))  # refuses another exponent
        numbers = all(isinstance(value, int | float) for value in (self.kappa, self.beta))
        if not (numbers and 1 <= self.kappa < float("inf") and 0 < self.beta < 1):
            raise ConfigError(
                f"kappa = {self.kappa!r}, beta = {self.beta!r}",
                where="promise",
                allowed="numbers: kappa from 1, beta between 0 and 1",
            )
        Universe(self.domain)

    def _plan(self, terms: Terms) -> PMWGPlan:
        """
        Errors:
            BudgetError: an amount that pays for no question.
        """
        budget = terms.budget if terms.stated is None else approximate_budget(*terms.stated)
        unit = check_unit(terms.unit, Event("replace"), ("event-replace",), _OTHER_UNIT)
        alpha, p = exact_amount(self.alpha, where="alpha"), exact_amount(self.exponent, where="exponent")
        cells = Universe(self.domain).cells
        text = budget if terms.stated is None else text_rho(*terms.stated)
        noise, share = self._noise(budget, text, alpha, p, cells)
        if noise.units(self.start) < _LEAST_UNITS:
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
            share,
            self.learning,
            self.arrivals,
            self.kappa,
            self.beta,
        )

    def _noise(
        self, budget: Budget, text: Budget, alpha: Fraction, p: Fraction, cells: int
    ) -> tuple[PowerNoise, float | None]:
        """The rule, and what theory can spend with it as a share of the budget; ``text``: the published rule's."""
        if self.hard_questions is not None:
            noise = noise_for_hard(budget, self.hard_questions, self.start, p, GRID)
            limit = hard_limit(float(alpha), self.start, cells, self.start)
            if self.hard_questions > limit:
                raise ConfigError(
                    f"hard_questions = {self.hard_questions}, and no more than {limit} may be asked at the start",
                    where="hard_questions",
                    allowed=f"up to {limit} (36 log(cells)/alpha^2)",
                )
            return noise, None
        if self.coefficient is not None:
            noise = PowerNoise(exact_amount(self.coefficient, where="coefficient"), p)
        elif self.noise == "published":
            noise = published_noise(text, alpha, self.start, cells, p)
        else:
            noise = largest_noise(budget, alpha, self.start, cells, p)
        return noise, check_sum(noise, budget, alpha, self.start, cells)
