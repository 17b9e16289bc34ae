"""MWEM: multiplicative weights over the whole universe, for cells of marginals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Given, Packed, SectionReader, check_whole, option
from dpstream.core.errors import LimitError
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import Workload
from dpstream.families.growing.blackbox import MAX_UNIVERSE, BlackBox, BoxRun, Counts, Database
from dpstream.families.growing.distributions import WeightsTable, unpack_table
from dpstream.families.growing.options import ROUNDS
from dpstream.families.tabular.options import WORKLOAD
from dpstream.families.tabular.run_outputs import RunOutput
from dpstream.families.tabular.selector import Selector
from dpstream.families.tabular.workload_cells import GRID_BITS, Cells

_DEFAULT_ROUNDS = 10


def _rounds(section: SectionReader, given: Given, earlier: Mapping[str, Any]) -> int | None:
    value = section.count("rounds")
    if value is None:
        section.note("rounds", str(min(_DEFAULT_ROUNDS, earlier["workload"].cells)), default=True)
    return value


@dataclass(frozen=True)
class MWEM(BlackBox[WeightsTable]):
    """Select the worst answered query, measure it, update the weights; repeat.

    Queries are the cells of the workload's marginals. Each round spends half of its share on a choice and half on a
    measurement; no query is measured twice. Afterwards the weights are updated for all measurements so far, several
    times over: public post-processing, as in the authors' experiments.

    Guarantee: the budget, under replace-one with ``t`` public. A replaced record moves a cell's count by at most 1, so
    a score (the distance between count and answer) has sensitivity 1, and so has a measurement.

    Args:
        workload: the marginals whose cells are asked.
        rounds: queries that are measured; None takes 10, or all where there are fewer.
        passes: how often the updates of all measurements are repeated after each round.

    Cost: a round evaluates the workload on the universe, which is kept in memory. No (p, g) is known of it (the
    theorem of its authors has a failure probability of its own): gamma has to be given.

    Errors: LimitError: a universe of more than 10^7 cells. ConfigError: options that cannot be used.

    Reference: Hardt, Ligett, McSherry (2012).
    """

    workload: Workload = option(of=WORKLOAD)
    rounds: int | None = option(None, ROUNDS, read=_rounds)
    passes: int = 10
    name = "mwem"

    def __post_init__(self) -> None:
        check_universe(self.workload.domain)
        cells = self.workload.cells
        if self.rounds is not None:
            check_whole(self.rounds, "rounds", 1, cells, "mwem")
        check_whole(self.passes, "passes", 1, 1000, "mwem")

    @property
    def measured(self) -> int:
        """How many queries a run measures."""
        return min(_DEFAULT_ROUNDS, self.workload.cells) if self.rounds is None else self.rounds

    @property
    def reads(self) -> Counts:
        """The workload's marginals."""
        return Counts(self.workload.domain, self.workload.cliques)

    def options(self) -> dict[str, Any]:
        """All options."""
        return {"workload": self.workload.as_option(), "rounds": self.measured, "passes": self.passes}

    def describe(self) -> str:
        """The mechanism by what it measures."""
        return f"MWEM measuring {self.measured} of {self.workload.cells} cells of marginals"

    def check(self, budget: Budget) -> None:
        """See ``BlackBox.check``."""
        self._round(budget)

    def _round(self, budget: Budget) -> tuple[Budget, Noise]:
        """What a choice or a measurement has, and the noise of a measurement."""
        each = budget.scaled(Fraction(1, 2 * self.measured))
        return each, noise_for(each, 1, 1)

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> WeightsTable:
        """See ``BlackBox.run``."""
        return self.full_run(budget, data, randomness).released

    def full_run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[WeightsTable]:
        """See ``BlackBox.full_run``: every cell that was measured, as it was measured (the table uses its share of the
        records, cut at 0 and 1)."""
        each, noise = self._round(budget)
        selector = self._selector(each)
        cells, counts = Cells(self.workload), np.concatenate(data.counts)
        weights = _Weights(cells)
        open_queries = np.ones(len(counts), dtype=bool)
        measured: list[tuple[int, float]] = []
        outputs: list[RunOutput] = []
        for _ in range(self.measured):
            grid = np.rint(np.ldexp(data.t * weights.answers(), GRID_BITS)).astype(np.int64)
            scores = np.abs((counts << GRID_BITS) - grid)
            allowed = np.flatnonzero(open_queries)
            ones = np.ones(len(scores), np.int64)
            query = selector.choose(scores, ones, allowed.tolist(), _GRID_SENSITIVITY, randomness)
            open_queries[query] = False
            values = randomness.measure(counts[query : query + 1], noise)
            # Where not all cells are measured, which ones are follows from what was measured before.
            chosen = self.measured < len(counts)
            outputs.append(
                RunOutput.of_cell(self.workload.domain, *_cell(cells, query), values, noise, chosen=chosen)
            )
            noisy = int(values[0])
            measured.append((query, min(max(noisy / data.t, 0.0), 1.0)))
            for _ in range(self.passes):
                for past, value in measured:
                    weights.update(past, value)
        return BoxRun(WeightsTable(self.workload.domain, weights.flat()), tuple(outputs))

    def numbers(self) -> tuple[int, int]:
        """See ``BlackBox.numbers``: one number for each cell."""
        return self.measured, self.measured

    def _selector(self, budget: Budget) -> Selector:
        """What makes the choices; audits put one there that follows a script."""
        return Selector(budget)

    def unpack(self, packed: Packed) -> WeightsTable:
        """See ``BlackBox.unpack``."""
        table = unpack_table(packed)
        assert isinstance(table, WeightsTable)
        return table


class _Weights:
    """The distribution over the universe, and which part of it each query counts."""

    def __init__(self, cells: Cells) -> None:
        domain = cells.workload.domain
        self._cells = cells
        self._cube = np.full(domain.sizes, 1.0 / domain.cells(range(len(domain))))

    def answers(self) -> NDArray[np.float64]:
        """Shares of all cells of all marginals."""
        table = WeightsTable(self._cells.workload.domain, self.flat())
        return np.concatenate(table.shares(self._cells.cliques))

    def flat(self) -> NDArray[np.float64]:
        """The weights, adding up to 1."""
        flat: NDArray[np.float64] = self._cube.ravel() / self._cube.sum()
        return flat

    def update(self, query: int, value: float) -> None:
        """``y(x) ~ y(x) exp(f(x) (value - f(y)) / 2)``; weights need not add up to 1 in between."""
        part = self._cube[self._records(query)]
        share = float(part.sum() / self._cube.sum())
        part *= np.exp((value - share) / 2.0)

    def _records(self, query: int) -> tuple[slice | int, ...]:
        """The part of the cube that a query counts, as a view."""
        at = dict(zip(*_cell(self._cells, query), strict=True))
        # Slices of one code, so that a query over all columns is a view as well.
        return tuple(
            slice(at[i], at[i] + 1) if i in at else slice(None)
            for i in range(len(self._cells.workload.domain))
        )


def _cell(cells: Cells, query: int) -> tuple[Clique, tuple[int, ...]]:
    """The marginal of a query, and the code of each of its columns."""
    number = int(np.searchsorted(cells.starts, query, side="right")) - 1
    clique: Clique = cells.cliques[number]
    codes = np.unravel_index(query - int(cells.starts[number]), cells.workload.domain.shape(clique))
    return clique, tuple(map(int, codes))


def check_universe(domain: Domain) -> int:
    """The number of cells of all columns together.

    Errors:
        LimitError: more than are kept in memory.
    """
    cells = domain.cells(range(len(domain)))
    if cells > MAX_UNIVERSE:
        raise LimitError(
            f"all columns together have {cells} cells, and the mechanism keeps a weight for each",
            where="universe",
            allowed=f"up to {MAX_UNIVERSE}; mwem-pgm needs no universe",
        )
    return cells


#: The sensitivity of scores on the grid.
_GRID_SENSITIVITY = Fraction(1 << GRID_BITS)
