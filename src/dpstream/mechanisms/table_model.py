"""The table's model: which of the estimated marginals it is fitted to. Public: it reads estimates only."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model, TreeSizes, fit
from dpstream.core.schema.domain import Clique, Domain
from dpstream.mechanisms.followed_cells import MeasuredCells
from dpstream.mechanisms.run_outputs import MIN_VARIANCE

#: A marginal enters the table's model if its squared distance from the model is this many times what noise explains:
#: it then repairs more than the noise it brings (as in Akaike's criterion).
_MIN_WORTH = 2.0
#: The same where it enters only as far as it is believed.
_MIN_BELIEVED = 1.5
#: No measurement weighs more than this many times another one: a fit would see nothing else.
_MAX_WEIGHT_RATIO = 1e4
#: How many marginals enter the table's model before the next fit, and how many fits there are at most.
_ENTERING_AT_ONCE, _MAX_FITS = 12, 4


def fit_table(
    followed: MeasuredCells,
    values: NDArray[np.float64],
    variances: NDArray[np.float64],
    total: float,
    *,
    iterations: int,
    max_cells: int,
    volatile: Collection[int],
) -> tuple[Model, tuple[int, ...]]:
    """The table's model: all columns, the headlines, and the marginals whose estimates say more than noise; and which
    wider marginals those are.

    Args:
        values, variances: estimates of all followed marginals (all cells; per marginal). Public. An infinite variance
            says that a marginal is not known: it is left to the model.
        volatile: all marginals but these, entering, move the model by the part of their distance only that noise does
            not explain (as James and Stein have it): of these, which drift, the noise is known too roughly.
    """
    cells = followed.cells
    shrinks = np.ones(len(variances), dtype=bool)
    shrinks[list(volatile)] = False
    least = max(float(variances[np.isfinite(variances)].max(initial=0.0)) / _MAX_WEIGHT_RATIO, MIN_VARIANCE)

    def target(index: int) -> Measurement:
        variance = max(float(variances[index]), least)
        return Measurement(cells.cliques[index], values[cells.part(index)], variance)

    held = [target(index) for index in range(followed.columns) if math.isfinite(variances[index])]
    domain: Domain = followed.workload.domain
    kept = [index for index in followed.wide_headlines if math.isfinite(variances[index])]
    held += [target(index) for index in kept]
    model = fit(domain, held, total=total, iterations=iterations, max_cells=max_cells)
    for _ in range(_MAX_FITS):
        repairs, believed = _repairs(followed, model, values, variances, kept, shrinks)
        fresh = _next(followed, repairs, kept, max_cells)
        if not fresh:
            break
        kept += fresh
        entering = [target(index) for index in fresh]
        if shrinks[fresh].any():
            answers = model.marginals([one.clique for one in entering])
            entering = [
                replace(one, values=answer + believed[index] * (one.values - answer))
                for index, one, answer in zip(fresh, entering, answers, strict=True)
            ]
        held += entering
        model = fit(domain, held, total=total, warm=model, iterations=iterations, max_cells=max_cells)
    return model, tuple(kept)


def _repairs(
    followed: MeasuredCells,
    model: Model,
    values: NDArray[np.float64],
    variances: NDArray[np.float64],
    kept: Sequence[int],
    shrinks: NDArray[np.bool_],
) -> tuple[dict[int, float], dict[int, float]]:
    """What each further marginal would repair (summed error, about), for those that are worth their noise; and the part
    of its distance from the model that is believed."""
    cells = followed.cells
    apart = values - model.flat_marginals(cells.cliques)
    repairs, believed = dict[int, float](), dict[int, float]()
    known, held = np.flatnonzero(np.isfinite(variances)).tolist(), set(kept)
    for index in known:
        if index < followed.columns or index in held:
            continue
        own = beside_columns(apart[cells.part(index)], followed.workload.domain, cells.cliques[index])
        beside = float((own**2).sum())
        noise = float(variances[index]) * followed.freedom[index]
        if beside > (_MIN_BELIEVED if shrinks[index] else _MIN_WORTH) * noise:
            weight = float(cells.workload.weights[index])
            repairs[index] = weight * math.sqrt((beside - noise) * int(cells.sizes[index]))
            believed[index] = 1.0 - noise / beside if shrinks[index] else 1.0
    return repairs, believed


def _next(
    followed: MeasuredCells, repairs: dict[int, float], kept: Sequence[int], max_cells: int
) -> list[int]:
    """The next marginals, each the one that repairs most for the cells by which it lets the junction tree grow.

    Large marginals that entered first, for their own sake, would fill the tree and keep many small ones out.
    """
    cells, domain = followed.cells, followed.workload.domain
    fresh, own = list[int](), sorted(repairs)
    tree = TreeSizes(domain, [cells.cliques[i] for i in own], [cells.cliques[i] for i in kept])
    left = np.arange(len(own))
    while len(left) and len(fresh) < _ENTERING_AT_ONCE:
        trees, now = tree.cells_with(left), tree.cells
        # A tree never becomes smaller by a marginal: what does not fit now will not fit later.
        left, trees = left[trees <= max_cells], trees[trees <= max_cells].tolist()
        worth = [
            repairs[own[i]] ** 2 / (max(size - now, 0) + int(cells.sizes[own[i]]))
            for i, size in zip(left.tolist(), trees, strict=True)
        ]
        if worth:
            best = max(range(len(worth)), key=worth.__getitem__)
            fresh.append(own[int(left[best])])
            tree.add(cells.cliques[fresh[-1]])
            left = np.delete(left, best)
    return fresh


def beside_columns(apart: NDArray[np.float64], domain: Domain, clique: Clique) -> NDArray[np.float64]:
    """What a marginal's residual has beside its columns' own residuals (flat)."""
    table = apart.reshape(domain.shape(clique))
    mean = table.mean()
    rest = table - mean
    for axis in range(table.ndim):
        others = tuple(i for i in range(table.ndim) if i != axis)
        rest = rest - (table.mean(axis=others, keepdims=True) - mean)
    return np.asarray(rest.ravel())
