"""``BBScheduler`` and ``BBImprover``: recipes around a black box, calibrated to a plan (Cummings et al., Section 3).

Trusted base: kernel (amounts of runs).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from dpstream.core.contracts import Option, Recipe, Terms, check_share, check_unit, check_whole, option
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Amount, Budget, Event, PureDP, exact_amount
from dpstream.core.tables import Workload
from dpstream.families.growing.blackbox import BlackBox
from dpstream.families.growing.boxes import MWEMPGMBox, SmallDB
from dpstream.families.growing.classifier_stream import ClassifierPlan
from dpstream.families.growing.erm import ERM
from dpstream.families.growing.growing_plan import GrowingPlan
from dpstream.families.growing.run_schedule import MAX_RECORDS, Growth, Improvement, Schedule, root_down
from dpstream.families.growing.tables import PowerLaw

#: What can be run again, by the names in files; the first is the default.
BLACK_BOXES: dict[str, type[BlackBox[Any]]] = {"mwem-pgm": MWEMPGMBox, "smalldb": SmallDB, "erm": ERM}

BLACK_BOX = Option(
    meaning="What runs: MWEM+PGM, SmallDB (exact, for few cells), or a classifier.",
    reason="it measures whole marginals",
    key="black_box",
    placed=True,
)
FIRST_RUN = Option(
    "a number of records from 1",
    "Records at the first run; releases before it are uniform.",
    key="first_run",
)
GAMMA = Option(
    'an exact number from 1/1000 to below 1, such as "0.1"',
    "Runs repeat when the records have grown by 1 + gamma.",
    "derived for SmallDB",
    "needed unless black_box = smalldb",
)
OTHER_UNIT = "a growing database cannot protect the unit {unit!r}"
#: Runs would follow each other so closely that their exact times have thousands of digits.
_MIN_GAMMA = Fraction(1, 1000)
#: Shares of single runs would be too small to be told from rounding.
_MIN_C, _MAX_C = Fraction(1, 1000), Fraction(1)


@dataclass(frozen=True)
class _Rerun(Recipe[GrowingPlan]):
    """What both recipes share: which runs are made and what each may spend is fixed for ever by ``calibrate``.

    ``Event("replace")`` is the only unit. What a run spends does not depend on the horizon.

    Attributes:
        box: the black box; it reads counts, so that the state of a stream does not grow with the records.
        n: the number of records at which the first run is made; public, like the number of records at any time.
        beta: the probability that any promised accuracy fails, over all time.
    """

    box: BlackBox[Any] = option(of=BLACK_BOX, one_of=BLACK_BOXES)
    n: int = option(of=FIRST_RUN)
    beta: Amount = "1/20"
    #: Its name in configuration files.
    word: ClassVar[str]

    @property
    def workload(self) -> Workload:
        """The marginals that the black box preserves; AttributeError where it has none."""
        workload: Workload = self.box.workload  # type: ignore[attr-defined]
        return workload

    def __post_init__(self) -> None:
        check_whole(self.n, "n", 1, MAX_RECORDS)
        check_share(self.beta, "beta")

    def _plan(self, terms: Terms) -> GrowingPlan:
        """
        Errors:
            ConfigError: gamma or c out of range; what would work is named. LimitError: the black box is too large.
        """
        protected = check_unit(terms.unit, Event("replace"), ("event-replace",), OTHER_UNIT)
        schedule = self._schedule(terms)
        first = next(schedule.coming())
        box = self.box.fitted(first.alpha)
        box.check(first.budget)
        # What is promised is promised of the box that is run, at whichever sizes that will be.
        schedule = replace(schedule, accuracy=box.law)
        kind = ClassifierPlan if isinstance(box, ERM) else GrowingPlan
        return kind(terms.budget, protected, terms.horizon, box, schedule, self.word)

    def _common(self, budget: Budget) -> dict[str, Any]:
        return {
            "n": self.n,
            "budget": budget,
            "beta": exact_amount(self.beta, where="beta"),
            "accuracy": self.box.accuracy,
            "pure_only": "zcdp" not in self.box.definitions,
        }

    @abstractmethod
    def _schedule(self, terms: Terms) -> Schedule:
        """The rule, checked."""


@dataclass(frozen=True)
class BBScheduler(_Rerun):
    """Run the black box again whenever the database has grown by a factor (Algorithm 1): the same accuracy for ever.

    Guarantee: the budget, for the values of one record, over everything that is ever released; how many records there
    are at any time is public. Runs compose adaptively, and their budgets add up to at most the whole, for ever.

    Args:
        gamma: growth between runs; None derives it from the black box's (p, g). Below 1: otherwise what came since the
            last run may be more than half of the records.

    Cost: a run at each epoch; nothing in between, however many records arrive.

    Reference: Cummings, Krehbiel, Lai, Tantipongpipat (2018), Algorithm 1 and Theorem 10. Corrections in
    docs/theory/growing.md.
    """

    gamma: Amount | None = option(None, GAMMA)
    word = "scheduler"

    def _schedule(self, terms: Terms) -> Growth:
        return Growth(**self._common(terms.budget), gamma=self._growth(terms.budget))

    def _growth(self, budget: Budget) -> Fraction:
        if self.gamma is None:
            if self.box.accuracy is None:
                raise ConfigError(
                    f"gamma cannot be derived for {self.box.name}, whose (p, g) are unknown",
                    where="gamma",
                    allowed='between 1/1000 and 1, such as gamma = "1/10"',
                )
            return promised_gamma(self.box.accuracy, budget, exact_amount(self.beta, where="beta"), self.n)
        gamma = exact_amount(self.gamma, where="gamma")
        if not _MIN_GAMMA <= gamma < 1:
            raise ConfigError(
                f"gamma = {self.gamma}: most records could be newer than the last run"
                if gamma >= 1
                else f"gamma = {self.gamma}: runs would be too frequent to pay",
                where="gamma",
                allowed="from 1/1000 to below 1",
            )
        return gamma


@dataclass(frozen=True)
class BBImprover(_Rerun):
    """Run the black box again at every step (Algorithm 2): the accuracy improves as the database grows.

    Guarantee: rho-zCDP (or epsilon, delta) for the values of one record, over everything that is ever released; how
    many records there are at any time is public. A pure form does not exist: the pure budgets' sum is not finite.

    Args:
        c: the smaller, the slower the budgets fall, and the later the whole is spent: at ``t`` records
            ``(n/t)^(2c)`` of it is left.

    Cost: a run at each step that brings records.

    Reference: Cummings et al. (2018), Algorithm 2 and Theorem 13. Corrections in docs/theory/growing.md.
    """

    c: Amount = "1/10"
    word = "improver"

    def _schedule(self, terms: Terms) -> Improvement:
        budget = terms.concentrated("an improver's pure budgets have no finite sum")
        c = exact_amount(self.c, where="c")
        most = min(Fraction(self.n, 2), _MAX_C)
        if not _MIN_C <= c <= most:
            raise ConfigError(f"c = {self.c}", where="c", allowed=f"1/1000 to {most} (1, and half of n)")
        return Improvement(**self._common(budget), c=c)


def promised_gamma(accuracy: PowerLaw, budget: Budget, beta: Fraction, n: int) -> Fraction:
    """``g^(1/(2p+1)) (log(1/beta)/(epsilon n))^(p/(2p+1))``, in thousandths; zCDP: 1.5 for 2, ``sqrt(2 rho)``.

    Errors:
        ConfigError: 1 or more; the n that would do is named.
    """
    pure = isinstance(budget, PureDP)
    epsilon = float(budget.epsilon if isinstance(budget, PureDP) else root_down(2 * budget.rho))
    p, g = accuracy.p, accuracy.g
    below = (2.0 if pure else 1.5) * p + 1.0
    surprise = math.log(beta.denominator) - math.log(beta.numerator)
    gamma = math.pow(g, 1.0 / below) * math.pow(surprise / (epsilon * n), p / below)
    if gamma >= 1.0:
        enough = math.ceil(surprise / epsilon * math.pow(g, 1.0 / p))
        raise ConfigError(
            f"gamma would be {gamma:.3g}: {n} records are too few for the promised accuracy",
            where="gamma",
            allowed=f"n above {enough}, a larger budget, or gamma below 1 (theory may then promise nothing)",
        )
    return max(Fraction(math.floor(gamma * 1000), 1000), _MIN_GAMMA)
