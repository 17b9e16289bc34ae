"""The options of AIM, how many rounds it takes, and how many numbers it measures. All of it is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpstream.core.contracts import check_share, check_whole, option
from dpstream.core.graphical import tree_cells
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.unit import Event
from dpstream.core.tables import Workload
from dpstream.mechanisms import options
from dpstream.mechanisms.aim_candidates import Candidates
from dpstream.mechanisms.mwem_pgm import OfflinePlan
from dpstream.mechanisms.recipe_checks import check_fit

#: The most rounds of a run, however large the budget: each costs a fit.
_MAX_ROUNDS = 100
#: Factors of ``rounds_for``, from runs on two real and two invented tables of 500 to 50,000 records.
_PURE_ROUNDS, _ZCDP_ROUNDS = 1 / 19, 0.2


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
            check_whole(self.rounds, "rounds", 1, _MAX_ROUNDS)
        object.__setattr__(self, "columns_share", check_share(self.columns_share, "columns_share"))
        if self.measure_share is not None:
            object.__setattr__(self, "measure_share", check_share(self.measure_share, "measure_share"))
        check_fit(min(self.iterations, self.final_iterations), self.max_cells, self.prior_weight)


@dataclass(frozen=True)
class AimFacts(OfflinePlan):
    """What a calibrated ``AIM`` says; see ``AIMPlan``."""

    recipe: AimOptions
    workload: Workload
    budget: Budget
    unit: Event

    @cached_property
    def candidates(self) -> Candidates:
        """The marginals that may be measured."""
        power = -0.25 if self._pure else -0.5
        unions = self.recipe.unions and self._pure
        return Candidates(self.workload, self.unit, unions, power)

    @property
    def _pure(self) -> bool:
        return isinstance(self.budget, PureDP)

    @cached_property
    def whole(self) -> bool:
        """Whether the workload is held by no more candidates than columns, and by the model: nothing is selected."""
        own = self.candidates
        return len(own.cover) <= len(own.columns) and self._fits(own.cover)

    def _fits(self, chosen: Sequence[int]) -> bool:
        cliques = [self.candidates.cliques[i] for i in chosen]
        return tree_cells(self.workload.domain, cliques) <= self.recipe.max_cells

    def rounds_for(self, records: float) -> int:
        """Rounds for a table of so many records (a noisy or public number).

        More rounds leave less to the model and more to the noise. If what the model leaves falls with the square of
        the number of rounds, the best number grows with ``(epsilon n)^(1/3)`` (pure: noise ``rounds / epsilon``), or
        ``(sqrt(rho) n)^(2/5)`` (zCDP: ``sqrt(rounds / rho)``). A union stands for two pairs and more; and the
        more columns there are, the more pairs depend on each other in more than a chance way.
        """
        if self.recipe.rounds is not None:
            return self.recipe.rounds
        amount, known = float(self.budget.amount), max(records, 1.0)
        if self._pure:
            wanted = _PURE_ROUNDS * (2.0 - self.candidates.covered) * (amount * known) ** (1 / 3)
        else:
            wanted = _ZCDP_ROUNDS * (amount**0.5 * known) ** (2 / 5)
        wanted *= len(self.candidates.columns) ** 0.75
        return int(min(max(round(wanted), 1), _MAX_ROUNDS))

    def numbers(self) -> tuple[int, int]:
        """See ``OfflinePlan.numbers``: the number of records, columns, and what the most rounds can choose."""
        own, domain = self.candidates, self.workload.domain
        cover = sum(domain.cells(own.cliques[i]) for i in own.cover)
        if self.whole:
            return cover, cover
        columns = (sum(map(domain.cells, own.groups)), sum(domain.sizes[i] for (i,) in own.columns))
        total, largest = int(self.unit.relation != "replace"), max(map(domain.cells, own.cliques))
        chosen = max((self.recipe.rounds or _MAX_ROUNDS) * largest, cover)
        return total + min(columns), total + max(columns) + chosen
