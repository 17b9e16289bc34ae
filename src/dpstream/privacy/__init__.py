"""Privacy: units, exact amounts, entropy, exact noise. See README.md in this folder."""

from dpstream.privacy.budget import ZCDP, Amount, Budget, PureDP, exact_amount
from dpstream.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise, noise_for
from dpstream.privacy.randomness import Randomness
from dpstream.privacy.unit import Event, Individual, Relation, Unit, User, parse_unit

__all__ = [
    "ZCDP",
    "Amount",
    "Budget",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "Individual",
    "Noise",
    "PureDP",
    "Randomness",
    "Relation",
    "Unit",
    "User",
    "exact_amount",
    "noise_for",
    "parse_unit",
]
