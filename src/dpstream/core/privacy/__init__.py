"""Privacy: units, exact amounts, entropy, exact noise, selection. See README.md in this folder."""

from dpstream.core.privacy.budget import (
    ZCDP,
    Amount,
    Budget,
    PureDP,
    amount_words,
    decimal_text,
    definition_words,
    exact_amount,
)
from dpstream.core.privacy.convert import (
    approximate_to_zcdp,
    group,
    pure_to_zcdp,
    replace_from_add_remove,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dpstream.core.privacy.cube import CubeNoise, noise_for_bounded
from dpstream.core.privacy.joint import AnyNoise, HistogramCells, HistogramsNoise
from dpstream.core.privacy.law import NoiseSum, WeightedSum
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise, noise_for
from dpstream.core.privacy.periods import Periods, StepPeriods
from dpstream.core.privacy.randomness import Exact, Noisy, Randomness, Relay
from dpstream.core.privacy.select import ExponentialMechanism, PermuteAndFlip, Selection, selection_epsilon
from dpstream.core.privacy.unit import (
    Event,
    EventUnit,
    Individual,
    InsertedRecord,
    NeighbourRelation,
    Record,
    Unit,
    User,
    handled_as,
    parse_unit,
)
