"""The black boxes for tables: MWEM+PGM, SmallDB, and a user's function.

Trusted base: kernel (select and measure).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, Option, PrivateBatch, check_whole, option
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import Budget, Event, Exact, PureDP, Randomness
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.families.growing.blackbox import BlackBox, BoxRun, Counts, Database
from dpstream.families.growing.run_schedule import MAX_RECORDS
from dpstream.families.growing.tables import (
    AnyTable,
    Law,
    ModelTable,
    PowerLaw,
    RowsTable,
    TableLaw,
    returned_table,
)
from dpstream.mechanisms import MWEMPGM
from dpstream.mechanisms.engine import Selector
from dpstream.mechanisms.mwem_pgm import MWEMPGMPlan
from dpstream.mechanisms.options import WORKLOAD


@dataclass(frozen=True)
class MWEMPGMBox(BlackBox[ModelTable]):
    """One run of ``tabular.MWEMPGM`` on the database; or all columns as one histogram, if answers then have less noise.

    Guarantee: the budget, under replace-one with ``t`` public: it is calibrated for ``Event("replace")``. A replaced
    record moves a measured marginal in two cells by 1 (D1 = 2, D2^2 = 2) and a selection score by at most 2 of its
    weights; the number of records is not estimated, but is ``t``. Which of the two follows from sizes and the budget.

    Args:
        workload: the marginals to preserve.
        recipe: options of MWEM+PGM; a ``k`` rules the histogram out.

    Cost: ``k`` fits a run. No (p, g) is known of it: gamma has to be given.

    Reference: Liu, Vietri, Wu (2021); McKenna et al. (2019).
    """

    workload: Workload = option(of=WORKLOAD)
    recipe: MWEMPGM = option(MWEMPGM(), part=MWEMPGM)
    name = "mwem-pgm"

    def __post_init__(self) -> None:
        _ = self._plan  # refuses options that do not fit the workload

    @cached_property
    def _plan(self) -> MWEMPGMPlan:
        """For facts in which the budget plays no role."""
        return self.recipe.calibrate(self.workload, PureDP.of(1), Event("replace"))

    @cached_property
    def _together(self) -> Workload | None:
        """All columns as one marginal; None where they have too many cells."""
        domain = self.workload.domain
        if self.recipe.k is not None or math.prod(domain.sizes) > self.recipe.max_cells:
            return None
        return Workload.of(domain, [domain.names])

    def _plan_of(self, budget: Budget) -> MWEMPGMPlan:
        """What a run does: all columns together, if an answer then has less noise than a measured marginal."""
        plan = self.recipe.calibrate(self.workload, budget, Event("replace"))
        if self._together is None:
            return plan
        together = self.recipe.calibrate(self._together, budget, Event("replace"))
        cells = [
            self._together.cells / self.workload.domain.cells(clique) for clique in self.workload.cliques
        ]
        less = together.cell_variance * sum(cells) / len(cells) <= plan.cell_variance
        return together if less else plan

    @property
    def reads(self) -> Counts:
        """All columns together, or else the workload's marginals."""
        read = self.workload if self._together is None else self._together
        return Counts(read.domain, read.cliques)

    def options(self) -> dict[str, Any]:
        """All options."""
        return {"workload": self.workload.as_option(), **self._plan.options()}

    def describe(self) -> str:
        """The number of marginals it measures."""
        either = "" if self._together is None else ", or all columns together"
        return f"MWEM+PGM measuring {self._plan.k} of {len(self.workload)} marginals{either}"

    def check(self, budget: Budget) -> None:
        """See ``BlackBox.check``."""
        self._plan_of(budget).parts()

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[ModelTable]:
        """See ``BlackBox.run``: every marginal that was measured."""
        made = self._plan_of(budget).run(_Counted(self.reads, data), "net", randomness)
        return BoxRun(ModelTable(made.model), made.outputs, made.measurements)

    def following(self, made: BoxRun[ModelTable], before: ModelTable) -> ModelTable:
        """The release before, moved towards what was measured by as much as is signal."""
        records, recipe = made.released.model.total, self.recipe
        return before.moved(made.measured, records, recipe.iterations, recipe.max_cells)

    def numbers(self) -> tuple[int, int]:
        """See ``BlackBox.numbers``."""
        first, most = self._plan.numbers()
        cells = first if self._together is None else self._together.cells
        return min(first, cells), max(most, cells)


@dataclass(frozen=True)
class _Counted(PrivateBatch):
    """The database as a batch that came at once, for a mechanism that counts what it reads."""

    reads: Counts
    data: Database

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[Exact]:
        """Marginals within those that the black box declared to read.

        Errors:
            ConfigError: others.
        """
        return [Exact(self._marginal(clique, part)) for clique in cliques]

    def _marginal(self, clique: Clique, part: Events) -> NDArray[np.int64]:
        for read, counts in zip(self.reads.cliques, self.data.counts, strict=True):
            if part == "net" and set(clique) <= set(read):
                others = tuple(axis for axis, column in enumerate(read) if column not in clique)
                found: NDArray[np.int64] = counts.reshape(self.reads.domain.shape(read)).sum(axis=others)
                return found.ravel()
        raise ConfigError("marginals must be declared before they are read", where="black box")

    @property
    def declares_deletes(self) -> bool:
        """A growing database has none."""
        return False


#: Small databases that are compared; each run goes through all of them.
MAX_CANDIDATES = 200_000
#: Kinds of records times queries.
MAX_TABLE = 4_000_000
#: Databases times kinds of records.
MAX_ENTRIES = 20_000_000
_CHUNK = 1 << 22

SIZE = Option(
    "a number from 1, for smalldb",
    "Records of the small database; at most 200,000 databases are compared.",
    "follows from the first run's promised accuracy",
    "not set",
)


@dataclass(frozen=True)
class SmallDB(BlackBox[RowsTable]):
    """Choose one of all databases of ``m`` records: one that answers every query nearly as the private one does.

    Queries are the ``k`` cells of the marginals; ``m = ceil(log k / alpha^2)``, with the first run's ``alpha`` of
    the theorem. All runs have this ``m`` (see ``TableLaw``).

    Guarantee: the budget, under replace-one with ``t`` public: the score ``max |f(x) - f(y)|`` moves by ``1/t``.
    Pure: permute-and-flip; zCDP: the exponential mechanism.

    Args:
        workload: the marginals whose cells are asked. size: m, where it is given.

    Cost: a run compares all ``C(N + m - 1, m)`` databases, N being the cells of all columns.
    Errors: LimitError: more than ``MAX_CANDIDATES`` databases, or ``MAX_ENTRIES`` entries of their histograms.
    Reference: Blum, Ligett, Roth (2008); Cummings et al., Section 3.1.
    """

    workload: Workload = option(of=WORKLOAD)
    size: int | None = option(None, SIZE)
    name = "smalldb"

    def __post_init__(self) -> None:
        if self.universe < 2 or self.workload.cells < 2:
            raise ConfigError("a single cell leaves no choice", where="smalldb", allowed="2 cells or more")
        if self.universe * self.workload.cells > MAX_TABLE:
            raise LimitError(
                f"{self.universe} kinds of records and {self.workload.cells} queries make "
                f"{self.universe * self.workload.cells} entries",
                where="smalldb",
                allowed=f"up to {MAX_TABLE}; or mwem-pgm",
            )
        if self.size is not None:
            # How many there may be is checked by the number of databases.
            self._check(check_whole(self.size, "size", 1, MAX_RECORDS, "smalldb"))

    @property
    def universe(self) -> int:
        """N."""
        return self.workload.domain.cells(range(len(self.workload.domain)))

    @property
    def accuracy(self) -> PowerLaw:  # type: ignore[override]
        """``(1/3, (64 log N log k)^(1/3))``."""
        return PowerLaw(1 / 3, math.cbrt(64 * math.log(self.universe) * math.log(self.workload.cells)))

    @property
    def law(self) -> Law:
        """Of its size; the theorem's for the best size before it has one."""
        if self.size is None:
            return self.accuracy
        return TableLaw(self.size, self.workload.cells, self.candidates(self.size))

    @property
    def reads(self) -> Counts:
        """The workload's marginals."""
        return Counts(self.workload.domain, self.workload.cliques)

    def options(self) -> dict[str, Any]:
        """All options."""
        return {"workload": self.workload.as_option(), "size": self.size}

    def describe(self) -> str:
        """How many databases of how many records."""
        if self.size is None:
            return "SmallDB, of a size that follows from the promise of the first run"
        return f"SmallDB choosing among {self.candidates(self.size)} databases of {self.size} records"

    def candidates(self, size: int) -> int:
        """How many databases of ``size`` records there are."""
        return math.comb(self.universe + size - 1, size)

    def databases(self, size: int) -> NDArray[np.int64]:
        """All of them, as numbers of records of each kind: the gaps between N - 1 bars among ``size`` stars."""
        places = size + self.universe - 1
        bars = chain.from_iterable(combinations(range(places), self.universe - 1))
        table = np.fromiter(bars, dtype=np.int64).reshape(-1, self.universe - 1)
        edges = np.pad(table, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, places)))
        return np.diff(edges, axis=1) - 1

    def fitted(self, alpha: float | None) -> Self:
        """This black box with a size; see ``BlackBox.fitted``."""
        if self.size is not None:
            return self
        wanted = 1.0 if alpha is None else min(alpha, 1.0)
        size = math.ceil(math.log(self.workload.cells) / wanted**2)
        self._check(size)
        return replace(self, size=size)

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[RowsTable]:
        """See ``BlackBox.run``."""
        size = self.size
        assert size is not None  # fitted
        databases = self.databases(size)
        distances = self._distances(databases, np.concatenate(data.counts), data.t, size)
        ones = np.ones(len(distances), np.int64)
        # Scores are in units of 1 / (m t): a count moves by at most 1, so a score moves by at most m.
        chosen = self._selector(budget).choose(
            -distances, ones, range(len(distances)), Fraction(size), randomness
        )
        cells = np.repeat(np.arange(self.universe), databases[chosen])
        codes = np.column_stack(np.unravel_index(cells, self.workload.domain.sizes))
        return BoxRun(RowsTable(self.workload.domain, codes.astype(np.int32)))

    def _selector(self, budget: Budget) -> Selector:
        """What makes the choice; audits put one there that follows a script."""
        return Selector(budget)

    def _distances(
        self, databases: NDArray[np.int64], counts: NDArray[np.int64], t: int, size: int
    ) -> NDArray[np.int64]:
        """The largest ``|m (f(x) t) - t (f(y) m)|`` over all queries, for each database ``y``."""
        holds = self._incidence()
        chunk = max(1, _CHUNK // holds.shape[1])
        distances = []
        for start in range(0, len(databases), chunk):
            answers = databases[start : start + chunk] @ holds
            distances.append(np.abs(size * counts - t * answers).max(axis=1))
        return np.concatenate(distances)

    def _incidence(self) -> NDArray[np.int64]:
        """Which queries count a record of each kind, shape (N, k)."""
        domain = self.workload.domain
        kinds = np.stack(np.unravel_index(np.arange(self.universe), domain.sizes))
        parts = []
        for clique in self.workload.cliques:
            place = np.ravel_multi_index(tuple(kinds[list(clique)]), domain.shape(clique))
            parts.append(place[:, None] == np.arange(domain.cells(clique)))
        return np.concatenate(parts, axis=1).astype(np.int64)

    def _check(self, size: int) -> None:
        # comb of absurd sizes would take long: with m records of N kinds there are at least m and N databases.
        least, most = max(self.universe, size), min(MAX_CANDIDATES, MAX_ENTRIES // self.universe)
        number = least if least > most else self.candidates(size)
        if number > most:
            raise LimitError(
                f"SmallDB would compare {'at least ' if number == least else ''}{number} databases of {size} "
                f"records over {self.universe} cells",
                where="smalldb",
                allowed=f"up to {most}: fewer cells, a smaller size, or mwem-pgm",
            )


Function = Callable[[Budget, Database, Randomness], NDArray[Any]]


@dataclass(frozen=True)
class OwnMechanism(BlackBox[AnyTable]):
    """A function ``(budget, data, randomness) -> table``: int32 codes (records, columns), or weights of cells.

    Guarantee: none by itself. The function has to satisfy the budget it is given, for two databases of the same public
    size that differ in one record, whatever was released before. Noise and private choices come from ``randomness``
    only; it keeps nothing. ``dpstream_lab.conformance`` looks for a broken guarantee.

    Args:
        function: see above.
        reads: what it finds in the data: ``Counts(domain, cliques)``.
        version: a name of the function that is changed with it; it enters the plan's hash.
        definitions: the budgets it can be given; one that knows pure budgets only is given ``sqrt(2 rho)`` under zCDP.
        accuracy: its (p, g), where they are known.
    """

    function: Function
    reads_what: Counts
    version: str
    definitions: tuple[Literal["pure", "zcdp"], ...] = ("pure",)
    accuracy: PowerLaw | None = None
    name = "own"

    def __post_init__(self) -> None:
        if not self.version:
            raise ConfigError(
                "the function has no version", where="own mechanism", allowed='such as "mean 1"'
            )
        if "pure" not in self.definitions:
            raise ConfigError(
                "the function takes zCDP budgets only", where="own mechanism", allowed="pure, or both"
            )

    @property
    def reads(self) -> Counts:
        """What the user declared that the function reads."""
        return self.reads_what

    def options(self) -> dict[str, Any]:
        """The version, and what it reads."""
        return {"version": self.version, "cliques": [list(clique) for clique in self.reads.cliques]}

    def describe(self) -> str:
        """The mechanism by its version."""
        return f"the user's own mechanism {self.version!r}"

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[AnyTable]:
        """See ``BlackBox.run``.

        Errors:
            ConfigError: the function returned something else than a table.
        """
        return BoxRun(returned_table(self.reads.domain, self.function(budget, data, randomness)))
