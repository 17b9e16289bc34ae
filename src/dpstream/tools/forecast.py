"""What a stream will be worth, before it begins: its mechanism runs on invented streams of the guessed size.

``dpstream plan`` shows it. No data are read. The invented columns are skewed and depend on each other, or are those of
the public table that the stream begins with. Equal seeds give equal streams and noise; the limit of CPU decides how
many runs there are, and how far they go.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.contracts.expectations import MarginalError
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.stream.declared import counted_records
from dpstream.stream.release.verdicts import INVENTED, Verdict, verdicts_from
from dpstream.tools.choosing import check_size
from dpstream.tools.errors.contract import FamilySimulation, Guess, InventedTable, Observation, seed_of
from dpstream.tools.errors.simulation import observations
from dpstream.tools.family_tools import tool_of

if TYPE_CHECKING:
    from dpstream.core.contracts import ExpectedTable
    from dpstream.project import Config

#: More runs change nothing that a reader would notice.
_MAX_RUNS = 30
#: Of more pairs of columns only those that the mechanism itself looks at are compared.
_MAX_PAIRS = 300
#: So many steps are compared at most, and those of the last part count.
_COMPARED, _END = 60, 0.3
#: So many steps are run at least, unless they take so many times the limit: errors of the first steps are small.
_ENOUGH, _PATIENCE = 60, 4
#: Errors of totals stay alike over a run, so few runs say little: a bound counts as so many runs with this part of it.
_BOUND_RUNS, _OF_BOUND = 2, 0.4


@dataclass(frozen=True)
class Forecast:
    """Errors of released tables, found on invented streams; public.

    Attributes:
        step: which table. simulated_steps: the steps that were run; from there on errors grow as the plan says.
        size: records that the invented table has then, as a mean over runs.
        total: standard error of the number of records: by its law where that is more than a bound.
        marginals: of the columns and the pairs of columns: the same of one cell.
        runs: how many were done. seconds: of CPU that they took. seed: of the streams and the noise.
    """

    step: int
    simulated_steps: int
    size: float
    total: float
    marginals: tuple[MarginalError, ...]
    runs: int
    seconds: float
    seed: int

    def verdicts(self, records: str) -> tuple[Verdict, ...]:
        """What the table is fit for; ``records``: what its records are called."""
        return verdicts_from(self.size, self.total, self.marginals, INVENTED, records=records)


def forecast(config: Config, step: int, *, seconds: float = 2.0, seed: int = 0) -> Forecast:
    """The errors of the table of a step, by simulation on invented streams.

    Args:
        seconds: of CPU of this process. One run that takes longer ends after 60 steps, or after four times as long;
            later errors grow as the plan says.

    Errors:
        ConfigError: no ``[expect]``, a family whose streams cannot be invented, or too large a stream.
    """
    table, tool = config.expected, tool_of("simulation", FamilySimulation, config.family)
    if table is None or tool.imagine is None:
        what = "[expect] is missing" if table is None else f"{config.family.noun} cannot be invented"
        raise ConfigError(what, where=str(config.path), allowed="[expect] size and records_per_step")
    check_size(config, table, step)
    base, began = config.base(), time.process_time()
    law = _Law(config, table)
    start = None if base is None else base.table()
    errors: list[_Errors] = []
    reached, runs = min(step, _enough(table)), 0
    while runs < _MAX_RUNS:
        number = runs + 1
        guess = Guess(
            table,
            reached,
            tuple(range(reached, 0, -max(1, reached // _COMPARED)))[::-1],
            "correlated" if start is None else "like the base",
            start,
            seed_of("forecast", seed, number),
        )
        invented = tool.imagine(config, guess)
        randomness = Randomness.seeded(f"forecast {seed} {number}")
        seen: list[tuple[int, _Errors]] = []
        for at, observed in observations(config, tool, invented, randomness, seed, number):
            if observed is not None:
                seen.append((at, _errors(observed, invented.truth[at])))
            late = (time.process_time() - began) / seconds
            if not errors and seen and (late > 1 if at >= _ENOUGH else late > _PATIENCE):
                break
        reached = seen[-1][0]
        # A release is as good as those before it, which tell more of chance than one alone.
        errors += [error for at, error in seen if at >= _first(reached)]
        runs += 1
        spent = time.process_time() - began
        if runs == 1 and reached < step and spent * (1 + step / reached) <= seconds:
            reached, runs, errors = step, 0, []  # the whole stream fits
            continue
        if spent + spent / runs > seconds:
            break
    later = law.growth(reached, step)
    sizes = [run.size for run in errors]
    simulated = later * _root_mean([run.total for run in errors])
    bound = law.total(step) if law.at_most else None
    if bound is not None:
        simulated = math.sqrt(
            (runs * simulated**2 + _BOUND_RUNS * (_OF_BOUND * bound) ** 2) / (runs + _BOUND_RUNS)
        )
    return Forecast(
        step,
        reached,
        float(np.mean(sizes)) if reached == step else table.size_at(step),
        # Of a number of records the law of its noise says more than few runs do.
        simulated if law.at_most or base is not None else law.total(step) or simulated,
        tuple(
            MarginalError(columns, cells, later * _root_mean([run.cells[columns, cells] for run in errors]))
            for columns, cells in errors[0].cells
        ),
        runs,
        time.process_time() - began,
        seed,
    )


class _Law:
    """What the plan says of the number of records at any step: its standard error, or a bound on it."""

    def __init__(self, config: Config, table: ExpectedTable) -> None:
        self._plan, self._table = config.plan(), table
        predicted = self._plan.expected_errors([1], table)
        self.at_most = predicted is None or predicted[0].at_most

    def total(self, *steps: int) -> float | None:
        """Root mean square over some steps; None where nothing is said."""
        predicted = self._plan.expected_errors(sorted(set(steps)), self._table) or ()
        known = [one.total for one in predicted if one.total is not None]
        return math.hypot(*known) / math.sqrt(len(known)) if known else None

    def growth(self, reached: int, step: int) -> float:
        """By how much errors grow from the end of a shorter stream to that of a longer one."""
        if reached == step:
            return 1.0
        short, long = (self.total(*range(_first(last), last + 1)) for last in (reached, step))
        return max(1.0, long / short) if short and long else 1.0


def _enough(table: ExpectedTable) -> int:
    """Steps after which a stream goes on as before: where records come and leave, each was replaced twice."""
    turnover = (
        table.size / table.records_per_step if table.change != "grows" and table.records_per_step else 0
    )
    return max(_ENOUGH, math.ceil(2 * turnover))


def _first(last: int) -> int:
    """The first step of the last part of so many steps."""
    return math.floor((1 - _END) * last) + 1


@dataclass(frozen=True)
class _Errors:
    """Of one run: the size of the table, and squared errors: of its total, and of a cell of each marginal."""

    size: float
    total: float
    cells: Mapping[tuple[tuple[str, ...], int], float]


def _errors(observed: Observation, truth: InventedTable) -> _Errors:
    cliques = list(_compared(truth))
    names, domain = truth.domain.names, truth.domain
    real, made = (table.marginals(domain, cliques) for table in (truth.table, observed))
    cells = {
        (tuple(names[column] for column in clique), domain.cells(clique)): float(((a - b) ** 2).mean())
        for clique, a, b in zip(cliques, real, made, strict=True)
    }
    size = truth.table.total
    return _Errors(size, (observed.total - size) ** 2, cells)


def _compared(truth: InventedTable) -> Iterator[tuple[int, ...]]:
    """The columns, and pairs of them."""
    columns = range(len(truth.domain))
    yield from ((column,) for column in columns)
    if math.comb(len(columns), 2) <= _MAX_PAIRS:
        yield from itertools.combinations(columns, 2)
    else:
        yield from (clique for clique in truth.cliques if len(clique) == 2)


def _root_mean(squares: list[float]) -> float:
    return math.sqrt(float(np.mean(squares)))


def forecast_facts(config: Config, step: int, **options: Any) -> dict[str, Any]:
    """A forecast with its verdicts, JSON-able."""
    made = forecast(config, step, **options)
    records, _ = counted_records(config.unit, config.schema())
    verdicts = made.verdicts(records)
    shares = [(marginal, marginal.error * marginal.cells / made.size) for marginal in made.marginals]
    return {
        **{key: value for key, value in vars(made).items() if key != "marginals"},
        "marginals": [
            {
                "columns": list(marginal.columns),
                "cells": marginal.cells,
                "standard_error": marginal.error,
                "share": share,
            }
            for marginal, share in shares
        ],
        "verdicts": [verdict.as_dict() for verdict in verdicts],
    }
