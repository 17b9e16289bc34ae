"""Standard errors of statistics of a released table, from its simulations: means, differences, least squares.

A statistic is computed on the released table, on the invented truth, and on what each run released. The spread of the
last about the second is the error that the release adds to what the private table itself would give. It says nothing
about how the private table's records were chosen among other people.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.core.tables.predicate import parse_predicate
from dpstream.io.sinks import read_table
from dpstream.tools.errors.contract import Observation
from dpstream.tools.errors.simulation import Simulation
from dpstream.tools.errors.spread import t_factor
from dpstream.tools.evaluate.array_types import Codes, Floats
from dpstream.tools.evaluate.synthetic_side import read_codes

__all__ = ["Estimate", "Statistic", "difference", "estimate", "least_squares", "mean"]

#: Records as codes, and their weights -> one number, or several.
Statistic = Callable[[Codes, Floats], Floats]


@dataclass(frozen=True, eq=False)
class Estimate:
    """A statistic of a released table, with its error by simulation.

    Attributes:
        names: of its entries.
        values: on the released table.
        standard_errors: root mean square errors of the runs, with their bias.
        biases: their mean errors.
        half_widths: of 95 % intervals, by Student's t with as many degrees of freedom as runs.
        runs: whose statistic could be computed.
    """

    names: tuple[str, ...]
    values: Floats
    standard_errors: Floats
    biases: Floats
    half_widths: Floats
    runs: int

    @property
    def intervals(self) -> Floats:
        """Lower and upper ends, shape (entries, 2)."""
        return np.stack([self.values - self.half_widths, self.values + self.half_widths], axis=1)


@dataclass(frozen=True)
class _Asked:
    names: tuple[str, ...]
    compute: Statistic


def _scores(simulation: Simulation, column: str) -> Floats:
    """A number for each code: of numbers the middle of the bin, else 0 and 1 of two values.

    Errors:
        ConfigError: no such column, or one without numbers.
    """
    schema = simulation.config.schema()
    if column not in schema.names:
        raise ConfigError(f"there is no column {column!r}", where="column", allowed=", ".join(schema.names))
    one = schema[column]
    edges = getattr(one, "edges", None)
    if edges is not None:
        ends = np.array([float(edge) for edge in edges])
        scores = (ends[:-1] + ends[1:]) / 2.0
        return np.concatenate([scores, np.full(one.size - len(scores), math.nan)])
    labels = one.labels()
    if len(labels) >= 2 and [str(label).lower() for label in labels[:2]] == ["false", "true"]:
        return np.concatenate([np.array([0.0, 1.0]), np.full(len(labels) - 2, math.nan)])
    raise ConfigError(
        f"the values of column {column!r} are no numbers",
        where="column",
        allowed="a boolean column, or one of numbers with edges",
    )


def _where(simulation: Simulation, condition: str | None) -> Callable[[Codes], Any]:
    if condition is None:
        return lambda codes: np.ones(len(codes), bool)
    asked = parse_predicate(condition, simulation.config.schema())
    satisfied, columns = np.asarray(asked.mask()), list(asked.columns)
    return lambda codes: satisfied[tuple(codes[:, columns].T)]


def mean(simulation: Simulation, column: str, where: str | None = None) -> _Asked:
    """The mean of a column among the records that satisfy a condition; those without a number are left out.

    Of a column with bins, each value counts as the middle of its bin.

    Errors:
        ConfigError, SchemaError: a column without numbers, or a condition that cannot be read.
    """
    place = (
        simulation.config.schema().names.index(column) if column in simulation.config.schema().names else -1
    )
    scores, chosen = _scores(simulation, column), _where(simulation, where)

    def compute(codes: Codes, weights: Floats) -> Floats:
        inside = chosen(codes)
        return np.array([_mean(scores[codes[inside, place]], weights[inside])])

    return _Asked((f"mean of {column}" + ("" if where is None else f" where {where}"),), compute)


def difference(simulation: Simulation, column: str, first: str, second: str) -> _Asked:
    """The mean of a column among the records of one condition less that among those of another.

    Errors:
        As of ``mean``.
    """
    one, other = mean(simulation, column, first), mean(simulation, column, second)
    name = f"mean of {column} where {first}, less where {second}"
    return _Asked((name,), lambda codes, weights: one.compute(codes, weights) - other.compute(codes, weights))


def least_squares(simulation: Simulation, target: str, columns: Sequence[str]) -> _Asked:
    """Coefficients of a linear regression of one column on others, with a constant; rows without a number are left out.

    Errors:
        ConfigError: columns without numbers, or none.
    """
    names = simulation.config.schema().names
    scores = [_scores(simulation, name) for name in (target, *columns)]
    if not columns:
        raise ConfigError("there is no column to explain by", where="columns", allowed="one column or more")
    places = [names.index(name) for name in (target, *columns)]

    def compute(codes: Codes, weights: Floats) -> Floats:
        table = np.stack([own[codes[:, at]] for own, at in zip(scores, places, strict=True)], axis=1)
        known = ~np.isnan(table).any(axis=1)
        table, root = table[known], np.sqrt(np.maximum(weights[known], 0.0))
        design = np.column_stack([np.ones(len(table)), table[:, 1:]])
        if len(table) <= design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
            return np.full(design.shape[1], math.nan)
        found: Floats = np.linalg.lstsq(design * root[:, None], table[:, 0] * root, rcond=None)[0]
        return found

    return _Asked(("constant", *columns), compute)


def _mean(values: Floats, weights: Floats) -> float:
    known = ~np.isnan(values)
    total = weights[known].sum()
    return float((values[known] * weights[known]).sum() / total) if total > 0 else math.nan


def estimate(simulation: Simulation, asked: _Asked, step: int | None = None) -> Estimate:
    """A statistic of the released table of a step, with its error by simulation.

    Args:
        asked: of ``mean``, ``difference`` or ``least_squares``.
        step: one of ``simulation.steps``; the last one by default.

    Errors:
        ConfigError: another step; or a statistic that cannot be computed on the release, on the invented truth, or on
        at least two runs, as where a group is empty.
    """
    simulation.config.table_recipe("inference")
    wanted = simulation.steps[-1] if step is None else step
    if wanted not in simulation.invented.truth:
        raise ConfigError(
            f"step {wanted!r} was not simulated", where="step", allowed=", ".join(map(str, simulation.steps))
        )
    released = read_codes(
        read_table(simulation.releases.folder, wanted),
        simulation.config.schema(),
        f"the table of step {wanted}",
    )
    values = _computed(asked, Observation(released))
    truth = _computed(asked, simulation.invented.truth[wanted].table)
    runs = np.stack([_computed(asked, run[wanted]) for run in simulation.runs])
    errors = runs[~np.isnan(runs).any(axis=1)] - truth
    if np.isnan(values).any() or np.isnan(truth).any() or len(errors) < 2:
        raise ConfigError(
            "the statistic cannot be computed on these tables",
            where=f"step {wanted}",
            allowed="groups that have records, and columns that do not determine each other",
        )
    spread = np.sqrt((errors**2).mean(axis=0))
    width = spread * t_factor(len(errors))
    return Estimate(asked.names, values, spread, errors.mean(axis=0), width, len(errors))


def _computed(asked: _Asked, table: Observation) -> Floats:
    weights = np.ones(len(table.codes)) if table.weights is None else table.weights
    return asked.compute(table.codes, weights)
