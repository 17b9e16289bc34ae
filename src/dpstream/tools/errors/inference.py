"""Standard errors of statistics of a released table, from its simulations: means, differences, least squares.

A statistic is computed on the released table, on the invented truth, and on what each run released. The spread of the
last about the second is the error that the release adds to what the private table itself would give. What the releases
have lost no run can see: so the noise of what was measured of the statistic's columns together widens the interval, and
where they were never measured together there is none. It says nothing about how the private table's records were chosen
among other people.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.schema.predicate import parse_predicate
from dpstream.io.sinks import read_measurements, read_table
from dpstream.io.sinks.simulated_errors import t_factor
from dpstream.tools.errors.contract import Observation
from dpstream.tools.errors.relations import Relation, known_together
from dpstream.tools.errors.simulation import Simulation
from dpstream.tools.evaluate.array_types import Codes, Floats
from dpstream.tools.evaluate.synthetic_side import read_codes

#: Records as codes, and their weights -> one number, or several.
Statistic = Callable[[Codes, Floats], Floats]
#: The same -> for columns that have to be known together what one record more in each cell does to each number.
Influence = Callable[[Codes, Floats], Sequence[tuple[Clique, Floats]]]

#: An interval needs columns that were measured together for this share of the records at least.
LEAST_SHARE = 0.1
#: Standard errors on each side of a 95 % interval, of noise whose law is known.
_NORMAL = 1.96


@dataclass(frozen=True, eq=False)
class Estimate:
    """A statistic of a released table, with its error by simulation.

    Attributes:
        names: of its entries.
        values: on the released table.
        standard_errors: root mean square errors of the runs, with their bias.
        biases: their mean errors.
        noise_errors: standard errors that the noise of what was measured of several columns together leaves, and that
            not all records were measured so; 0 of single columns. The release may rest on more than that, or have left
            it out as noise.
        half_widths: of 95 % intervals: both errors, added in squares; that of the runs by Student's t with as many
            degrees of freedom as runs.
        runs: whose statistic could be computed.
        share: of the records, those that came in steps in which the columns were measured together; of several
            relations the least.
    """

    names: tuple[str, ...]
    values: Floats
    standard_errors: Floats
    biases: Floats
    noise_errors: Floats
    half_widths: Floats
    runs: int
    share: float

    @property
    def intervals(self) -> Floats:
        """Lower and upper ends, shape (entries, 2)."""
        return np.stack([self.values - self.half_widths, self.values + self.half_widths], axis=1)


@dataclass(frozen=True)
class _Asked:
    """A statistic. ``relations``: the columns that have to be known together for it; of these are its influences."""

    names: tuple[str, ...]
    compute: Statistic
    relations: tuple[Clique, ...]
    influence: Influence


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


def _where(simulation: Simulation, condition: str | None) -> tuple[Clique, NDArray[np.bool_]]:
    """The columns of a condition, and which combinations of their codes satisfy it."""
    if condition is None:
        return (), np.array(True)
    asked = parse_predicate(condition, simulation.config.schema())
    return tuple(asked.columns), np.asarray(asked.mask())


def mean(simulation: Simulation, column: str, where: str | None = None) -> _Asked:
    """The mean of a column among the records that satisfy a condition; those without a number are left out.

    Of a column with bins, each value counts as the middle of its bin.

    Errors:
        ConfigError, SchemaError: a column without numbers, or a condition that cannot be read.
    """
    scores = _scores(simulation, column)
    (asked, mask), domain = _where(simulation, where), simulation.config.schema().domain
    place = domain.index(column)
    satisfied, columns = np.asarray(mask), list(asked)
    clique = tuple(sorted({place, *asked}))

    def compute(table: Codes, weights: Floats) -> Floats:
        inside = satisfied[tuple(table[:, columns].T)] | np.zeros(len(table), bool)
        return np.array([_mean(scores[table[inside, place]], weights[inside])])

    def influence(table: Codes, weights: Floats) -> list[tuple[Clique, Floats]]:
        # For every combination of the codes of all columns: who counts, and with which value.
        codes = dict(zip(clique, np.indices(domain.shape(clique)).reshape(len(clique), -1), strict=True))
        counting = satisfied[tuple(codes[i] for i in columns)] & ~np.isnan(scores[codes[place]])
        own = Observation(table, weights).marginals(domain, [clique])[0]
        away = np.where(counting, np.nan_to_num(scores)[codes[place]] - compute(table, weights)[0], 0.0)
        return [(clique, (away / own[counting].sum())[None, :])]

    name = f"mean of {column}" + ("" if where is None else f" where {where}")
    return _Asked((name,), compute, (clique,), influence)


def difference(simulation: Simulation, column: str, first: str, second: str) -> _Asked:
    """The mean of a column among the records of one condition less that among those of another.

    Errors:
        As of ``mean``.
    """
    one, other = mean(simulation, column, first), mean(simulation, column, second)
    name = f"mean of {column} where {first}, less where {second}"
    return _Asked(
        (name,),
        lambda codes, weights: one.compute(codes, weights) - other.compute(codes, weights),
        tuple(dict.fromkeys(one.relations + other.relations)),
        lambda codes, weights: _joined(one.influence(codes, weights), other.influence(codes, weights)),
    )


def _joined(
    one: Sequence[tuple[Clique, Floats]], other: Sequence[tuple[Clique, Floats]]
) -> list[tuple[Clique, Floats]]:
    """Influences on the first number less the second one; what is measured of the same columns has the same noise."""
    found = dict(one)
    for clique, own in other:
        found[clique] = found[clique] - own if clique in found else -own
    return list(found.items())


def least_squares(simulation: Simulation, target: str, columns: Sequence[str]) -> _Asked:
    """Coefficients of a linear regression of one column on others, with a constant; rows without a number are left out.

    Errors:
        ConfigError: columns without numbers, none, or one twice.
    """
    names = simulation.config.schema().names
    scores = [_scores(simulation, name) for name in (target, *columns)]
    if not columns:
        raise ConfigError("there is no column to explain by", where="columns", allowed="one column or more")
    places = [names.index(name) for name in (target, *columns)]
    if len(set(places)) < len(places):
        raise ConfigError("a column is named twice", where="columns", allowed="each column once")

    def compute(codes: Codes, weights: Floats) -> Floats:
        table = np.stack([own[codes[:, at]] for own, at in zip(scores, places, strict=True)], axis=1)
        known = ~np.isnan(table).any(axis=1)
        table, root = table[known], np.sqrt(np.maximum(weights[known], 0.0))
        design = np.column_stack([np.ones(len(table)), table[:, 1:]])
        if len(table) <= design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
            return np.full(design.shape[1], math.nan)
        found: Floats = np.linalg.lstsq(design * root[:, None], table[:, 0] * root, rcond=None)[0]
        return found

    def influence(codes: Codes, weights: Floats) -> list[tuple[Clique, Floats]]:
        """Of each pair, by what it says beside each column alone: the product of two distances from means."""
        values = np.stack([own[codes[:, at]] for own, at in zip(scores, places, strict=True)], axis=1)
        known = ~np.isnan(values).any(axis=1)
        values, own = values[known], weights[known]
        means = (values * own[:, None]).sum(axis=0) / own.sum()
        away = [np.nan_to_num(score - middle) for score, middle in zip(scores, means, strict=True)]
        apart = values[:, 1:] - means[1:]
        inverse = np.linalg.inv((apart * own[:, None]).T @ apart)
        slopes = compute(codes, weights)[1:]
        found = []
        for one, other in itertools.combinations(range(len(places)), 2):
            # The slopes solve moments * slopes = moments with the target; this is what one of the moments does to them.
            moved = (
                inverse[:, other - 1]
                if one == 0
                else -(inverse[:, one - 1] * slopes[other - 1] + inverse[:, other - 1] * slopes[one - 1])
            )
            product = np.outer(away[one], away[other])
            product = product if places[one] < places[other] else product.T
            numbers = np.append(-means[1:] @ moved, moved)
            clique = tuple(sorted((places[one], places[other])))
            found.append((clique, np.outer(numbers, product.ravel())))
        return found

    pairs = tuple(tuple(sorted(pair)) for pair in itertools.combinations(places, 2))
    return _Asked(("constant", *columns), compute, pairs, influence)


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
        ConfigError: another step; a statistic that cannot be computed on the release, on the invented truth, or on
        at least two runs, as where a group is empty; columns that were not measured together, or of too few records.
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
        together=True,
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
    known = _known(simulation, asked, wanted)
    noise = _noise(simulation, asked, released, wanted, known)
    width = np.hypot(spread * t_factor(len(errors)), noise * _NORMAL)
    share = min(one.share for one in known)
    return Estimate(asked.names, values, spread, errors.mean(axis=0), noise, width, len(errors), share)


def _known(simulation: Simulation, asked: _Asked, step: int) -> list[Relation]:
    """What was measured of a statistic's columns together.

    Errors:
        ConfigError: nothing, or of too few records.
    """
    domain = simulation.config.schema().domain
    counts = read_measurements(simulation.releases.folder, step)
    known = known_together(counts, simulation.releases.rows, domain, asked.relations, step)
    least = min(known, key=lambda one: one.share)
    if least.share < LEAST_SHARE:
        raise ConfigError(_unknown(least, domain), where=f"step {step}", allowed=_remedy(least, domain))
    return known


def _noise(
    simulation: Simulation, asked: _Asked, released: Codes, step: int, known: Sequence[Relation]
) -> Floats:
    """Standard errors that what was measured of several columns together leaves; of single ones the runs see all."""
    squares = np.zeros(len(asked.names))
    if all(len(one.columns) == 1 for one in known):
        return squares
    # The rows of a table that was cut stand for more than one record.
    each = simulation.releases.rows[step] / max(1, len(released))
    table = Observation(released, np.full(len(released), each))
    influences = dict(asked.influence(table.codes, np.full(len(released), each)))
    counts = table.marginals(simulation.config.schema().domain, [one.columns for one in known])
    for one, cells in zip(known, counts, strict=True):
        if len(one.columns) > 1:
            squares += one.spread(influences[one.columns], cells) ** 2
    return np.sqrt(squares)


def _unknown(one: Relation, domain: Domain) -> str:
    names = ", ".join(domain.names[i] for i in one.columns)
    what = f"the columns {names} were" if len(one.columns) > 1 else f"the column {names} was"
    together = " together" if len(one.columns) > 1 else ""
    when = f" in steps with {one.share:.0%} of the records only" if one.share > 0 else ""
    never = "" if when else "never "
    return f"{what} {never}measured{together}{when}, so it is not known how wrong the statistic is"


def _remedy(one: Relation, domain: Domain) -> str:
    names = ", ".join(f'"{domain.names[i]}"' for i in one.columns)
    return (
        f"statistics of columns that were measured; or, in the next stream, [accuracy] headline = [[{names}]]"
    )


def _computed(asked: _Asked, table: Observation) -> Floats:
    weights = np.ones(len(table.codes)) if table.weights is None else table.weights
    return asked.compute(table.codes, weights)
