"""The options of AIM."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.contracts import check_share, check_whole, option
from dpstream.mechanisms import options
from dpstream.mechanisms.recipe_checks import check_fit

#: The most rounds of a run, however large the budget: each costs a fit.
MAX_ROUNDS = 100


@dataclass(frozen=True)
class AimOptions:
    """What may be chosen; see ``AIM``."""

    rounds: int | None = None
    columns_share: Fraction = Fraction(3, 20)
    measure_share: Fraction | None = None
    unions: bool = True
    iterations: int = option(10, options.ITERATIONS)
    final_iterations: int = 100
    max_cells: int = option(50_000, options.TREE_CELLS)
    prior_weight: float = 0.1

    def __post_init__(self) -> None:
        if self.rounds is not None:
            check_whole(self.rounds, "rounds", 1, MAX_ROUNDS)
        object.__setattr__(self, "columns_share", check_share(self.columns_share, "columns_share"))
        if self.measure_share is not None:
            object.__setattr__(self, "measure_share", check_share(self.measure_share, "measure_share"))
        check_fit(min(self.iterations, self.final_iterations), self.max_cells, self.prior_weight)
