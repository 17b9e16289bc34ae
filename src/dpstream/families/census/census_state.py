"""What a census is bound to before step 1, and what its stream remembers, with its form as JSON and arrays.

Trusted base: kernel (what one census costs, and what a stream remembers).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

from dpstream.core.contracts import Packed, pack_fields, unpack_fields
from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Model
from dpstream.core.privacy import Budget, Event, HistogramsNoise, Noise, Record
from dpstream.core.schema import Clique, Found
from dpstream.core.tables import Workload
from dpstream.families.census.cohorts import Attrition, Cohort, PriorEvidence, Shapes, ShapeTracker
from dpstream.families.census.schedule import Amounts, CensusSchedule
from dpstream.families.census.signal import Signal
from dpstream.families.census.totals_filter import LevelTotal, NewcomersRate
from dpstream.mechanisms import AIM, AIMPlan, Cells
from dpstream.mechanisms.joint_groups import draws, noise_of


@dataclass(frozen=True)
class CensusTerms:
    """The terms of a plan.

    Args:
        turnover: in steps; None: hardly any record leaves.
        schedule: with the levels that can come within ``horizon``.
        census: what is run on the records of a census's window.
        shapes: makes cohorts of what it measures.
        upper: what a census of level 1 measures of its window, beside the census of level 0 that it begins with: the
            columns, or nothing but the number of records, the marginal of no column.
        headline: marginals that every census of level 0 measures by themselves, for ``headline_share`` of its amount.
    """

    workload: Workload
    budget: Budget
    unit: Record
    horizon: int | None
    turnover: Fraction | None
    schedule: CensusSchedule
    amounts: Amounts
    census: AIM
    shapes: Shapes
    upper: tuple[Clique, ...]
    headline: tuple[Clique, ...]
    headline_share: Fraction

    @property
    def public_presence(self) -> bool:
        """Whether the owner has declared which keys are present when."""
        return self.unit.relation == "replace"

    def paced(self, gap: int | None) -> CensusSchedule:
        """The schedule with a gap that was learnt; None: the planned one."""
        return self.schedule if gap is None else replace(self.schedule, gap=gap)

    @property
    def run(self) -> AIMPlan:
        """What a census of level 0 does, beside the headlines."""
        return _calibrated(self.census, self.workload, self._split[0], self.unit.counted)

    def asked(self, level: int) -> tuple[Clique, ...]:
        """What is counted of the window of a level."""
        return self.upper if level else tuple(dict.fromkeys((*self.run.counted, *self.headline)))

    def draws_of(self, level: int) -> list[tuple[tuple[Clique, ...], Budget]]:
        """What is measured of a window beside AIM, in groups of one draw each, with their budgets: of level 0 the
        headlines, of level 1 everything."""
        cliques, budget = self.headline, self._split[1]
        if level:
            cliques, budget = self.upper, self.amounts.of_level(level)
        if not cliques:
            return []
        sizes = [self.workload.domain.cells(clique) for clique in cliques]
        groups = draws(sizes, budget, self.unit.counted)
        return [(tuple(cliques[i] for i in group), own) for group, own in groups]

    def noises_of(self, level: int) -> list[tuple[tuple[Clique, ...], Noise | HistogramsNoise]]:
        """The same groups, with their noise."""
        cells = self.workload.domain.cells
        return [
            (group, noise_of(budget, [cells(clique) for clique in group], self.unit.counted))
            for group, budget in self.draws_of(level)
        ]

    @property
    def _split(self) -> tuple[Budget, Budget]:
        """What AIM has of a census of level 0, and what the headlines have together."""
        budget, share = self.amounts.of_level(0), self.headline_share if self.headline else Fraction(0)
        return budget.scaled(1 - share), budget.scaled(share)


@lru_cache(maxsize=32)
def _calibrated(census: AIM, workload: Workload, budget: Budget, unit: Event) -> AIMPlan:
    """Which marginals may be measured is worked out once, and not at every census."""
    return census.calibrate(workload, budget, unit)


@dataclass
class Level:
    """The book of a level that had a census, or is next. Public.

    Attributes:
        total: how many records it has.
        tracker: what they look like.
        latest: its newest cohort, as a model; None before its first census.
    """

    total: LevelTotal
    tracker: ShapeTracker
    latest: Model | None = None


@dataclass
class CensusBook:
    """What a stream remembers that follows from released values. Public.

    Attributes:
        attrition: which values leave sooner.
        signal: how much of the estimates is released.
        seen: what censuses have measured of each marginal; None without a prior.
        step: steps done.
        last: the last census of each level that had one.
        levels: the book of each.
        newcomers: how many come in a step.
        cohorts: open ones, the oldest first.
        newest: the newest cohort of level 0 with the prior in it; None where the prior says nothing of it.
        gap: most steps between two censuses, as it is learnt; None: as planned.
        discovered: the last step that ended a discovery epoch. found: what was discovered so far, by column.
    """

    attrition: Attrition
    signal: Signal
    seen: PriorEvidence | None = None
    step: int = 0
    last: list[int] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    newcomers: NewcomersRate = field(default_factory=NewcomersRate)
    cohorts: list[Cohort] = field(default_factory=list)
    newest: Model | None = None
    gap: int | None = None
    discovered: int = 0
    found: dict[str, list[Found]] = field(default_factory=dict)


@dataclass
class CensusState(CensusBook):
    """All that the plan remembers. Secret, because of ``left``: for each level, how many records of its cohorts left
    since the last count."""

    left: list[int] = field(default_factory=list)


def pack(state: CensusState) -> Packed:
    """JSON and arrays; each model once."""
    packed = pack_fields(state)
    return Packed(packed.meta, packed.arrays, frozenset(packed.arrays) - {"state/left"})


def unpack(packed: Packed, cells: Cells) -> CensusState:
    """The inverse of ``pack``.

    Errors:
        StoreFormatError, StoreDamagedError: other fields, or arrays that do not fit the workload.
    """
    state = unpack_fields(CensusState, packed, cells=cells, domain=cells.workload.domain)
    fresh, names = ShapeTracker.fresh(cells), ("values", "variances", "steps", "fits")
    whole, marginals = (cells.total,), (len(cells.cliques),)
    fits = [
        getattr(book.tracker, name).shape == getattr(fresh, name).shape
        for book in state.levels
        for name in names
    ]
    fits += [cohort.shares.shape == whole and cohort.variances.shape == marginals for cohort in state.cohorts]
    fits.append(state.signal.tested.shape == state.signal.present.shape == (2, len(cells.workload.domain)))
    fits.append(not state.step or state.newcomers.rates.ndim == 2)
    if state.seen is not None:
        seen = state.seen
        fits.append(seen.values.shape == whole and seen.variances.shape == seen.records.shape == marginals)
    if not all(fits):
        raise StoreDamagedError("censuses and workload do not fit", where="state")
    return state
