"""The invented stream of a forecast: what a stream of a guessed size is like as a rule. Nothing private is read.

Skewed columns depend on each other along a tree. There are two kinds of records, whose shares move from step to step
and with the season. Of records with keys some stay longer than others, and some change. ``plan --compare`` has
streams of its own, in ``invented_tables``.

Trusted base: invented (draws invented records).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dpstream.core.schema.domain import Domain
from dpstream.tools.errors.contract import Guess
from dpstream.tools.evaluate.array_types import Codes, Floats, Ints

#: A number of records and a generator -> codes, shape (records, columns).
Draw = Callable[[int, np.random.Generator], Codes]
#: For each step: who comes, who leaves, where those stood who leave, the table at its end; and how many of those who
#: come and leave, the first ones, are the same records that only changed.
Foreseen = Iterator[tuple[Codes, Codes, Ints, Codes, int]]
#: Ranges of each column's skew and each pair's dependence: standard deviations of logarithms of
#: shares. 0: all values alike; 1: shares that differ by a factor of about 3 as a rule; 2: by a factor of 7 and more.
SKEW, DEPENDENCE = (0.0, 2.5), (0.3, 1.0)
#: Correlation of the kinds that come in neighbouring steps.
_KIND_LIKE_BEFORE = 0.95
#: How far apart the two kinds are, as ``SKEW``; how far their shares move, and move over a season, on the logistic
#: scale; by which share arrivals move over a season.
_APART, _DRIFT, _SEASON, _ARRIVALS = 1.0, 1.0, 1.0, 0.4
#: Two columns each make a stay longer or shorter, by this logarithm. So many of the records change once in a stay.
_STAYS, _CHANGED = 0.5, 0.5
#: Fractions of their multiples are spread evenly, whatever their number is.
_GOLDEN, _SILVER = (math.sqrt(5) - 1) / 2, math.sqrt(2) - 1


def foreseen_changes(guess: Guess, domain: Domain, season: float | None) -> Foreseen:
    """The steps of a guessed table.

    Args:
        season: steps of a year, where the owner says that the stream has one.
    """
    generator, table = np.random.default_rng([guess.seed, 16]), guess.table
    kinds = _two_kinds(domain, generator)
    times = np.arange(guess.steps) / (season or 1) + generator.random()
    wave = np.cos(2 * np.pi * times) * (season is not None)
    moving = _DRIFT * wandering(guess.steps, generator, _KIND_LIKE_BEFORE) + _SEASON * wave

    def draw(rows: int, step: int) -> Codes:
        first = generator.binomial(rows, 1 / (1 + np.exp(-moving[step - 1])))
        return np.concatenate([kinds[0](first, generator), kinds[1](rows - first, generator)])

    steady = table.change == "steady"
    # Who comes and goes within a step is not seen.
    turnover = -math.expm1(-table.records_per_step / table.size) if steady else 0.0
    mean = turnover * table.size if steady else table.records_per_step
    rates = mean * np.exp(table.varies * wandering(guess.steps, generator)) * (1 + _ARRIVALS * wave)
    columns, there = generator.permutation(len(domain))[:2], np.zeros((0, len(domain)), np.int32)
    for step, rate in enumerate(rates.tolist(), start=1):
        many, size = generator.poisson(rate), len(there)
        leaving = generator.binomial(size, turnover)
        if steady and step == 1:
            many = table.size
        elif table.change == "turns-over":
            leaving = min(size, max(0, size + many - table.size))
        sooner = generator.gumbel(size=size) + _STAYS * (2 * (there[:, columns] % 2) - 1).sum(axis=1)
        order = np.argsort(-sooner, kind="stable")
        changed = order[leaving:][generator.random(size - leaving) < _CHANGED * turnover]
        new, fresh, places = there[changed], draw(len(changed), step), np.arange(len(changed))
        column = generator.integers(len(domain), size=len(changed))
        new[places, column] = fresh[places, column]
        gone = np.concatenate([changed, order[:leaving]])
        come, left = np.concatenate([new, draw(int(many), step)]), there[gone]
        there = np.concatenate([np.delete(there, gone, axis=0), come])
        yield come, left, gone, there, len(changed)


def _two_kinds(domain: Domain, generator: np.random.Generator) -> tuple[Draw, Draw]:
    """Records of two kinds, on one tree: each value's shares differ. All sizes have their part of all skews."""
    order = generator.permutation(len(domain)).tolist()
    parents = {column: order[(place - 1) // 2] if place else None for place, column in enumerate(order)}
    by_size = np.argsort(np.argsort(domain.sizes, kind="stable"), kind="stable")
    skews, ties = (
        low + (high - low) * ((generator.random() + by_size * apart) % 1)
        for (low, high), apart in ((SKEW, _GOLDEN), (DEPENDENCE, _SILVER))
    )
    kinds: tuple[dict[int, Floats], dict[int, Floats]] = {}, {}
    for column, parent in parents.items():
        size, rows = domain.sizes[column], 1 if parent is None else domain.sizes[parent]
        logs = skews[column] * generator.standard_normal((1, size))
        logs = logs + (0 if parent is None else ties[column]) * generator.standard_normal((rows, size))
        apart = _APART / 2 * generator.standard_normal((1, size))
        kinds[0][column], kinds[1][column] = logs + apart, logs - apart
    return drawing(parents, kinds[0]), drawing(parents, kinds[1])


def drawing(parents: Mapping[int, int | None], logs: Mapping[int, Floats]) -> Draw:
    """Records of a tree, column by column.

    Args:
        parents: of each column, parents first; None for the root.
        logs: of each column the logarithms of its values' shares, up to a constant: a row for each value of its parent.
    """
    ends: dict[int, Floats] = {}
    for column, values in logs.items():
        shares = np.exp(values - values.max(axis=1, keepdims=True))
        sums = (shares / shares.sum(axis=1, keepdims=True)).cumsum(axis=1)
        sums[:, -1] = 1  # and not a rounding error less
        # One row after another: row r between r and r + 1.
        ends[column] = (sums + np.arange(len(sums))[:, None]).ravel()

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        codes = np.zeros((rows, len(parents)), np.int32)
        for column, parent in parents.items():
            row = 0 if parent is None else codes[:, parent]
            size = logs[column].shape[1]
            places = np.searchsorted(ends[column], row + generator.random(rows), side="right")
            codes[:, column] = np.minimum(places - row * size, size - 1)
        return codes

    return draw


def wandering(steps: int, generator: np.random.Generator, like_before: float = 0.8) -> Floats:
    """Standard normal numbers that correlate with the one before; by default as in weeks and months of real streams."""
    values = generator.standard_normal(steps)
    for step in range(1, steps):
        values[step] = like_before * values[step - 1] + math.sqrt(1 - like_before**2) * values[step]
    return values
