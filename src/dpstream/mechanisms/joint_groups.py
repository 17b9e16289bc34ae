"""How a budget is divided between draws, and the noise of each: headlines, and histograms drawn together or apart.

Trusted base: kernel (shares of budgets).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.unit import Event
from dpstream.mechanisms.joint_cuts import cost, together

#: Shares of a budget are whole numbers of this part of a cost of 1.
_GRID = 1 << 10


def draw_shares(sizes: Sequence[int], *, level: bool) -> list[tuple[tuple[int, ...], Fraction]]:
    """The groups of ``together``, each with its exact share of a budget; the shares add up to 1."""
    groups = together(sizes, level=level)
    weights = [weight_of(cost([sizes[place] for place in group], level=level)) for group in groups]
    return [(group, Fraction(weight, sum(weights))) for group, weight in zip(groups, weights, strict=True)]


def draws(sizes: Sequence[int], budget: Budget, unit: Event) -> list[tuple[tuple[int, ...], Budget]]:
    """Places of histograms in groups of one draw each, with each group's part of a budget; under zCDP none are
    together."""
    if isinstance(budget, PureDP):
        groups = draw_shares(sizes, level=unit.relation == "replace")
    else:
        groups = [((place,), Fraction(1, len(sizes))) for place in range(len(sizes))]
    return [(group, budget.scaled(share)) for group, share in groups]


def noise_of(budget: Budget, sizes: Sequence[int], unit: Event) -> Noise | HistogramsNoise:
    """The noise of one draw, which costs ``budget``: of each cell of a histogram, or of several histograms of the same
    records. A histogram moves by 1 in ``unit.changed_cells`` cells."""
    if len(sizes) == 1:
        return noise_for(budget, unit.changed_cells, unit.changed_cells)
    assert isinstance(budget, PureDP), "under zCDP nothing is drawn together"
    return HistogramsNoise(1 / budget.epsilon, tuple(sizes), unit.relation == "replace")


def weight_of(cost: float) -> int:
    """A cost as a whole number, by which budgets are divided exactly."""
    return max(1, round(_GRID * cost))


def split_budget(budget: Budget, headlines: int, share: Fraction) -> tuple[Budget, Budget | None]:
    """What is left for everything else, and the budget of each headline marginal; without headlines all, and None."""
    if not headlines:
        return budget, None
    return budget.scaled(1 - share), budget.scaled(share / headlines)
