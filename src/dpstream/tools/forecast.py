"""What a stream will be worth, before it begins: its mechanism runs on invented streams of the guessed size.

``dpstream plan`` shows it: root mean squares over runs, of the table of one step. No data are read. The invented stream
is that of ``tools.errors.invented_tables``, or like the public table that the stream begins with. Equal seeds give
equal streams and noise; the limit of CPU decides how many runs there are, and how far they go.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.contracts.expectations import MarginalError
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.stream.declared import counted_records
from dpstream.stream.release.verdicts import INVENTED, Verdict, verdicts_from
from dpstream.tools.choosing import NO_DIFFERENCE, check_size
from dpstream.tools.errors.contract import FamilySimulation, Guess, InventedTable, Observation, seed_of
from dpstream.tools.errors.simulation import observations
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.family_tools import tool_of

if TYPE_CHECKING:
    from dpstream.core.contracts import ExpectedTable
    from dpstream.project import Config

#: More runs change nothing that a reader would notice.
_MAX_RUNS = 30
#: Of more pairs of columns only those that the mechanism itself looks at are compared.
_MAX_PAIRS = 300
#: So many steps are compared at most, and those of the last part may count.
_COMPARED, _END = 60, 0.3
#: A table whose records come and go is as it will be after so many stays, and steps: the run ends there.
_SETTLED_STAYS, _SETTLED_STEPS = 10, 40
#: Beside the last step those count of which the plan expects the same, within this factor.
_ALIKE = 1.2
#: The first run is cut where it takes so many times the limit.
_PATIENCE = 1.5
#: Errors of totals stay alike over a run, so few runs say little: the plan's counts as so many runs.
_PLAN_RUNS = 3


@dataclass(frozen=True)
class Forecast:
    """Errors of released tables, found on invented streams; public.

    Attributes:
        step: which table. simulated_steps: the steps that were run; from there on errors grow as the plan says.
        size: records that the invented table has then, as a mean over runs.
        total: standard error of the number of records: by its law where that is more than a bound.
        marginals: of the columns and the pairs of columns: the same of one cell.
        empty, uniform: the same, of a table without records, and of one with the released number of records, all alike.
        runs: how many were done. seconds: of CPU that they took. seed: of the streams and the noise.
    """

    step: int
    simulated_steps: int
    size: float
    total: float
    marginals: tuple[MarginalError, ...]
    empty: tuple[float, ...]
    uniform: tuple[float, ...]
    runs: int
    seconds: float
    seed: int

    @property
    def says_little(self) -> bool:
        """Whether a uniform table would be as good (``NO_DIFFERENCE``) in half of the widest marginals."""
        widest = max((len(marginal.columns) for marginal in self.marginals), default=0)
        pairs = zip(self.marginals, self.uniform, strict=True)
        ratios = [one.error / alike for one, alike in pairs if len(one.columns) == widest and alike]
        return bool(ratios) and median(ratios) * (1 + NO_DIFFERENCE) >= 1

    def verdicts(self, records: str) -> tuple[Verdict, ...]:
        """What the table is fit for; ``records``: what its records are called."""
        return verdicts_from(self.size, self.total, self.marginals, INVENTED, records=records)


def forecast(config: Config, step: int, *, seconds: float = 2.0, seed: int = 0) -> Forecast:
    """The errors of the table of a step, by simulation on invented streams.

    Args:
        seconds: of CPU of this process, after the first step. The first run ends where it takes half as long again;
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
    start = None if base is None else base.table()
    errors: list[tuple[int, Floats]] = []
    reached, runs = _settled(table, step), 0
    while runs < _MAX_RUNS:
        number, first = runs + 1, _first(reached) if runs else 1
        guess = Guess(
            table,
            reached,
            tuple(range(reached, first - 1, -max(1, reached // _COMPARED)))[::-1],
            "foreseen" if start is None else "like the base",
            start,
            seed_of("forecast", seed, number),
        )
        invented = tool.imagine(config, guess)
        randomness = Randomness.seeded(f"forecast {seed} {number}")
        seen: list[tuple[int, Floats]] = []
        for at, observed in observations(config, tool, invented, randomness, seed, number):
            if observed is not None:
                truth = invented.truth[at]
                seen.append((at, _errors(observed, truth)))
            if at == 1 and not runs:
                began = time.process_time()  # the first step loads and compiles
            if not runs and seen and time.process_time() - began > _PATIENCE * seconds:
                break
        reached = seen[-1][0]
        errors += [(at, error) for at, error in seen if at >= _first(reached)]
        runs += 1
        spent = time.process_time() - began
        if spent + spent / runs / 2 > seconds:
            break
    law = _Law(config, table, step, {at for at, _ in errors})
    rows = np.array([row for at, row in errors if at in law.alike])
    grown = np.array([[law.growth(at) ** 2] for at, _ in errors if at in law.alike])
    total = simulated = math.sqrt((grown[:, 0] * rows[:, 1]).mean())
    if law.total and law.at_most:
        part = min(law.total, table.size_at(step))
        total = math.sqrt((runs * simulated**2 + _PLAN_RUNS * part**2) / (runs + _PLAN_RUNS))
    elif law.total and not law.at_most and base is None:
        total = law.total  # the law of its noise says more than few runs do
    cells, parts = np.split(rows[:, 2:], 2, axis=1)
    squares, part = (grown * cells).mean(axis=0), parts.mean(axis=0)
    squares = np.maximum(squares / 4, squares + (total**2 - simulated**2) * part)
    names, domain = truth.domain.names, truth.domain
    size = float(rows[:, 0].mean()) if reached == step else table.size_at(step)
    counts = np.array([domain.cells(clique) for clique in _compared(truth)])
    # All alike, cells have the mean of the true ones, but for the total's error.
    alike = np.maximum(0, part * size**2 + (total**2 - size**2) / counts**2)
    columns = [tuple(names[i] for i in clique) for clique in _compared(truth)]
    return Forecast(
        step,
        reached,
        size,
        total,
        tuple(map(MarginalError, columns, counts.tolist(), np.sqrt(squares).tolist())),
        tuple((size * np.sqrt(part)).tolist()),
        tuple(np.sqrt(alike).tolist()),
        runs,
        time.process_time() - began,
        seed,
    )


class _Law:
    """What the plan says of the number of records at some steps, beside the last one: a standard error, or a bound.

    Attributes:
        total: at the last step; None where nothing is said. at_most: whether these are bounds.
        alike: those of the steps of which the same is expected as of the last one, or what comes nearest.
    """

    def __init__(self, config: Config, table: ExpectedTable, last: int, steps: set[int]) -> None:
        predicted = config.plan().expected_errors(sorted({last, *steps}), table) or ()
        self._totals = {error.step: error.total for error in predicted}
        self.total, self.at_most = self._totals.get(last), not predicted or predicted[0].at_most
        off = {at: abs(math.log(self.growth(at))) for at in steps}
        self.alike = {at for at in steps if off[at] <= min(off.values()) + math.log(_ALIKE)}

    def growth(self, step: int) -> float:
        """By how much errors grow from a step to the last one."""
        then = self._totals.get(step)
        return self.total / then if self.total and then else 1.0


def _settled(table: ExpectedTable, last: int) -> int:
    """How many of the steps have to be run: the rest only repeats them."""
    if table.change != "steady" or not table.records_per_step:
        return last
    return min(last, max(_SETTLED_STEPS, math.ceil(_SETTLED_STAYS * table.size / table.records_per_step)))


def _first(last: int) -> int:
    """The first step of the last part of so many steps."""
    return math.floor((1 - _END) * last) + 1


def _errors(observed: Observation, truth: InventedTable) -> Floats:
    """Of one run: the size of the table, and squared errors: of its total, and of a cell of each marginal.

    Behind them: which part of the square of the total's error each cell has, where all cells err alike.
    """
    cliques, size = list(_compared(truth)), truth.table.total
    real, made = (table.marginals(truth.domain, cliques) for table in (truth.table, observed))
    cells = [((a - b) ** 2).mean() for a, b in zip(real, made, strict=True)]
    parts = [(a**2).mean() / max(1.0, size) ** 2 for a in real]
    return np.array([size, (observed.total - size) ** 2, *cells, *parts])


def _compared(truth: InventedTable) -> Iterator[tuple[int, ...]]:
    """The columns, and pairs of them."""
    columns = range(len(truth.domain))
    yield from ((column,) for column in columns)
    if math.comb(len(columns), 2) <= _MAX_PAIRS:
        yield from itertools.combinations(columns, 2)
    else:
        yield from (clique for clique in truth.cliques if len(clique) == 2)


def forecast_facts(config: Config, step: int, **options: Any) -> dict[str, Any]:
    """A forecast with its verdicts, JSON-able."""
    made = forecast(config, step, **options)
    records, _ = counted_records(config.unit, config.schema())
    verdicts = made.verdicts(records)
    lists = {"marginals", "empty", "uniform"}
    return {
        **{key: value for key, value in vars(made).items() if key not in lists},
        "marginals": [
            {
                "columns": list(marginal.columns),
                "cells": marginal.cells,
                "standard_error": marginal.error,
                "share": marginal.error * marginal.cells / made.size,
                "empty": empty,
                "uniform": uniform,
            }
            for marginal, empty, uniform in zip(made.marginals, made.empty, made.uniform, strict=True)
        ],
        "says_little": made.says_little,
        "verdicts": [verdict.as_dict() for verdict in verdicts],
    }
