"""The options of schedulers and improvers, and the gamma that follows from an accuracy. Any gamma is private."""

from __future__ import annotations

import math
from fractions import Fraction

from dpstream.core.contracts import Option
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.families.growing.run_schedule import root_down
from dpstream.families.growing.tables import PowerLaw

#: ``scheduler.py`` names the recipes that it may be.
BLACK_BOX = Option(
    meaning="What is run on the whole database, again and again: MWEM+PGM; "
    "SmallDB, which compares all small databases (exact, for a handful of cells); or `erm`, a classifier.",
    reason="it measures whole marginals and needs no universe",
    key="black_box",
    placed=True,
)
FIRST_RUN = Option(
    "a number of records from 1",
    "The size at which the database is looked at for the first time; releases before it are uniform. The budgets "
    "follow from it: a late start leaves more for each run.",
    key="first_run",
)
GAMMA = Option(
    'an exact number from 1/1000 to below 1, such as "0.1"',
    "The black box runs again when the records have grown by the factor 1 + gamma.",
    "of SmallDB the accuracy is known as a function of the budget, and gamma follows from it",
    "not set; needed unless black_box = smalldb",
)
NO_WORKLOAD = ("black_box = 'erm' preserves no marginals", "another black_box")
OTHER_UNIT = (
    "a growing database cannot protect the unit {unit!r}: the number of records decides when it is run again, so it is "
    'public ([stream] total = "public")'
)
#: Runs would follow each other so closely that their exact times have thousands of digits.
MIN_GAMMA = Fraction(1, 1000)


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
            f"gamma would be {gamma:.3g}: {n} records are too few for the accuracy that is promised",
            where="gamma",
            allowed=f"n above {enough}, a larger budget, or gamma given (below 1; then theory may promise nothing)",
        )
    return max(Fraction(math.floor(gamma * 1000), 1000), MIN_GAMMA)
