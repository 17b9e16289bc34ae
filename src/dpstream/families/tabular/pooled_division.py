"""What an epoch's run measures, and how its budget is divided. Public: numbers of columns and of expected events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.cube import MAX_DIMENSION
from dpstream.families.tabular.joint_groups import cost, together, weight_of
from dpstream.families.tabular.pooled_signs import Signs


@dataclass(frozen=True)
class Design:
    """What a run measures: the first ``fixed`` marginals (all columns, or none), then ``k`` of its choice. Public.

    ``expected``: number of the epoch's events, where no column's sum tells it before the first choice.
    ``pairs``: how many pairs of columns of two values are measured with those columns.
    ``tests``: marginals that are measured beside the columns, without a selection, to compare them with a prior.
    """

    fixed: int
    k: int
    expected: float
    pairs: int = 0
    tests: tuple[int, ...] = ()


@dataclass(frozen=True)
class PartWeights:
    """How a run's budget is divided. Public: it follows from numbers of columns, and from what a run measures.

    Parts whose errors are ``A_j / e_j`` (pure: A_j the sum of the standard deviations of their marginals' cells at a
    budget of 1) have the least total error where ``e_j ~ sqrt(A_j)``; under zCDP, with ``A_j / sqrt(rho_j)``, where
    ``rho_j ~ A_j^(2/3)``.
    """

    pure: bool

    def joint(self, columns: int, pairs: int, *, total: bool) -> int:
        """Weight of the joint draw of so many columns' and pairs' signs, and the number of events.

        Only columns count: every pair's cells rest on their columns', and on no other pair.
        """
        each = self._deviation(columns + pairs + int(total))
        return self._weight(columns * each / math.sqrt(2.0))

    @property
    def histogram(self) -> int:
        """Weight of one histogram."""
        return self._weight(math.sqrt(2.0) if self.pure else math.sqrt(0.5))

    def histograms(self, sizes: Sequence[int], *, level: bool) -> int:
        """Weight of histograms that are drawn together; of one, that of a histogram."""
        return self.histogram if len(sizes) == 1 else weight_of(cost(sizes, level=level))

    def products(self, pairs: int) -> int:
        """Weight of the joint draw of so many pairs alone."""
        return self._weight(pairs * self._deviation(pairs) / 4.0) if pairs else 0

    def _deviation(self, sums: int) -> float:
        return math.sqrt((sums + 1) * (sums + 2) / 3.0) if self.pure else math.sqrt(sums / 2.0)

    def _weight(self, error: float) -> int:
        return weight_of(math.pow(error, 1.0 / 2.0 if self.pure else 2.0 / 3.0))


@dataclass(frozen=True)
class Division:
    """Parts of one run's budget: exact, and together never more than it.

    Attributes:
        budget: of the run.
        select_share: part of it for selections, if there are any.
        signs: the columns of two values.
        public_total: whether the number of events is public: then it is not measured.
    """

    budget: Budget
    select_share: Fraction
    signs: Signs
    public_total: bool

    @cached_property
    def shares(self) -> PartWeights:
        """The weights of the parts."""
        return PartWeights(isinstance(self.budget, PureDP))

    def joint(self, design: Design) -> int:
        """Columns in the joint draw."""
        return len(self.signs.singles) if design.fixed else 0

    def sums(self, design: Design) -> int:
        """How many numbers the joint draw holds: signs, pairs, and the number of events."""
        return self.joint(design) + design.pairs + int(not self.public_total)

    def products(self, design: Design) -> int:
        """How many of the chosen marginals are assumed to be pairs of signs: their share among the candidates.

        At most those that one draw can hold: of more, some are measured by themselves.
        """
        wide = len(self.signs.cells.cliques) - self.signs.columns
        expected_pairs = design.k * len(self.signs.pairs) // wide if design.fixed and wide else 0
        return min(expected_pairs, MAX_DIMENSION)

    def histograms(self, design: Design) -> int:
        """How many marginals are measured by themselves, if as many pairs of signs are chosen as ``products``
        assumes."""
        return design.fixed - self.joint(design) + len(design.tests) + design.k - self.products(design)

    def groups(self, marginals: Sequence[int]) -> list[tuple[int, ...]]:
        """Marginals that are measured by histograms, in groups of one draw each (under zCDP never together)."""
        if not self.shares.pure:
            return [(index,) for index in marginals]
        sizes = [int(self.signs.cells.sizes[index]) for index in marginals]
        return [
            tuple(marginals[place] for place in group) for group in together(sizes, level=self.public_total)
        ]

    def weight(self, group: Sequence[int]) -> int:
        """The weight of a group of marginals."""
        sizes = [int(self.signs.cells.sizes[index]) for index in group]
        return self.shares.histograms(sizes, level=self.public_total)

    def column_groups(self, design: Design) -> list[tuple[int, ...]]:
        """The groups of columns that a run of all columns measures by histograms."""
        joint = self.signs.singles if design.fixed else ()
        return self.groups([index for index in range(design.fixed) if index not in joint])

    def group_budget(self, design: Design, group: Sequence[int]) -> Budget:
        """The budget of a group of columns."""
        return self._part(design, Fraction(self.weight(group)))

    def joint_budget(self, design: Design) -> Budget:
        """The budget of the joint draw."""
        return self._part(design, Fraction(self._weights(design)[0]))

    def histogram_budget(self, design: Design) -> Budget:
        """The budget of each histogram that is measured by itself."""
        return self._part(design, Fraction(self.shares.histogram))

    def products_budget(self, design: Design) -> Budget:
        """The budget of the chosen pairs of signs, if as many are chosen as ``products`` assumes."""
        return self._part(design, Fraction(self.shares.products(self.products(design))))

    def chosen_budget(self, design: Design, chosen: int) -> Budget:
        """The budget of some of the ``k`` chosen marginals, whichever they are."""
        return self._part(design, Fraction(self._weights(design)[2] * chosen, design.k))

    def _weights(self, design: Design) -> tuple[int, int, int]:
        """The weights of the joint draw, of all other columns and the tests, and of all chosen marginals."""
        joint, products = self.joint(design), self.products(design)
        return (
            self.shares.joint(joint, design.pairs, total=not self.public_total) if joint else 0,
            sum(map(self.weight, self.column_groups(design))) + self.shares.histogram * len(design.tests),
            self.shares.products(products) + self.shares.histogram * (design.k - products),
        )

    def _part(self, design: Design, weight: Fraction) -> Budget:
        rest = 1 - self.select_share if design.k else Fraction(1)
        return self.budget.scaled(rest * weight / sum(self._weights(design)))
