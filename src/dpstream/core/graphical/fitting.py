"""Noisy marginals, what they say about the number of records, and fitting a graphical model to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import InputError, LimitError
from dpstream.core.graphical.junction_tree import JunctionTree, check_clique, junction_tree, tree_cells
from dpstream.core.graphical.model import Model
from dpstream.core.schema.domain import Clique, Domain


@dataclass(frozen=True, eq=False)
class Measurement:
    """A marginal with independent noise of one variance on each cell.

    ``values``: flat in C order, in records; negative values are normal. The weight in a fit is
    ``1 / variance``. The same clique may be measured several times; ``()`` measures the total alone.
    """

    clique: Clique
    values: NDArray[np.float64]
    variance: float

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1:
            raise InputError(
                f"values have {values.ndim} dimensions", where="measurement", allowed="1 (C order)"
            )
        if not np.isfinite(values).all():
            raise InputError("some values are infinite or missing", where="measurement")
        variance = float(self.variance)
        if not (math.isfinite(variance) and variance > 0.0 and math.isfinite(1.0 / variance)):
            raise InputError(
                "expected a positive finite variance", where="measurement", allowed="greater than 0"
            )
        object.__setattr__(self, "clique", tuple(int(i) for i in self.clique))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "variance", variance)


def check_measurement(domain: Domain, measurement: Measurement) -> None:
    """InputError unless the measurement is one of this domain."""
    check_clique(domain, measurement.clique)
    cells = domain.cells(measurement.clique)
    if len(measurement.values) != cells:
        raise InputError(
            f"{len(measurement.values)} values for clique {measurement.clique}",
            where="measurement",
            allowed=str(cells),
        )


def estimate_total(measurements: Iterable[Measurement]) -> tuple[float, float]:
    """The number of records by inverse variance, from the sums of measured marginals.

    Returns ``(total, variance)``: the sum of ``n`` cells has variance ``n * variance``. The total may be
    negative. Without a measurement nothing is known: ``(0.0, inf)``.
    """
    weighted = 0.0
    precision = 0.0
    for measurement in measurements:
        weight = 1.0 / (measurement.variance * len(measurement.values))
        weighted += weight * float(np.sum(measurement.values))
        precision += weight
    if precision == 0.0:
        return 0.0, math.inf
    return weighted / precision, 1.0 / precision


def combine(measurements: Sequence[Measurement]) -> dict[Clique, tuple[NDArray[np.float64], float]]:
    """One (values, weight) per clique, in the order of first appearance.

    Inverse variance loses nothing: the losses of all measurements of a clique sum to ``weight/2 |mu - values|^2``
    and a constant.
    """
    groups: dict[Clique, list[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault(measurement.clique, []).append(measurement)
    combined = {}
    for clique, group in groups.items():
        if len(group) == 1:
            combined[clique] = (group[0].values, 1.0 / group[0].variance)
            continue
        weight = sum(1.0 / m.variance for m in group)
        values = sum((m.values / m.variance for m in group), np.zeros_like(group[0].values)) / weight
        combined[clique] = (values, weight)
    return combined


def fit(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    warm: Model | None = None,
    iterations: int = 100,
    max_cells: int = 50_000,
    regularisation: float = 0.0,
    tolerance: float = 0.5,
) -> Model:
    """The maximum-entropy model whose marginals are closest to the measurements.

    Minimises ``sum_c 1/(2 variance_c) |mu_c - y_c|^2`` over the marginals of all distributions with
    ``total`` records (docs/theory/graphical-model.md). Post-processing: no privacy cost.

    ``total``: number of records; None: ``estimate_total`` of the measurements (of ``warm`` if there are
    none, else 0). The model reports it unchanged. The shape is fitted with at least one record, and where
    the total was estimated with at least its standard deviation: below that the measurements say nothing.
    ``warm``: start here. Its potentials are kept, also of cliques that are not measured now, most recent
    first as long as the junction tree stays within ``max_cells``.
    ``regularisation``: adds this many times ``total * KL(model | start)``; 1 treats the records as if
    drawn from the starting model, which shrinks what is not distinguishable from noise. 0: pure fit.
    ``iterations``: inferences at most. ``tolerance``: stop once three iterations in a row each lower the
    loss by less; differences well below 1 mean nothing statistically.

    Raises InputError for measurements that are not of this domain, LimitError where the measured
    cliques alone exceed ``max_cells`` (``tree_cells`` tells beforehand).
    Cost: iterations x tree cells x about 10 ns; memory some ten times the tree.
    """
    _check_options(domain, warm, iterations, regularisation, tolerance)
    for measurement in measurements:
        check_measurement(domain, measurement)
    total, shape_total = _totals(measurements, total, warm)
    combined = combine(measurements)
    cliques = _cliques_to_keep(domain, combined, warm, max_cells)
    tree = junction_tree(domain, cliques)
    potentials = _start(tree, warm, cliques)
    weights = np.zeros(len(domain) + len(tree.cliques))
    target = np.zeros(tree.parameters)
    for clique, (values, weight) in combined.items():
        if clique:
            weights[tree.factor(clique)] = weight * shape_total**2
            target[tree.slot(clique)] = values / shape_total
    _descend(tree, potentials, weights, target, regularisation * shape_total, iterations, tolerance)
    return Model(tree, potentials, total, cliques=cliques)


def _descend(
    tree: JunctionTree,
    potentials: NDArray[np.float64],
    weights: NDArray[np.float64],
    target: NDArray[np.float64],
    penalty: float,
    iterations: int,
    tolerance: float,
) -> None:
    """Run the compiled fit; changes ``potentials`` in place."""
    from dpstream.core.graphical.compiled import proximal

    active = np.flatnonzero(weights)
    if len(active) == 0:
        return
    proximal.fit_proximal(
        tree.arrays, tree.factors, potentials, active, weights, target, float(penalty), int(iterations),
        float(tolerance),
    )  # fmt: skip
    proximal.canonicalise(tree.factors, tree.member_starts, tree.members, tree.arrays.sizes, potentials)


def _check_options(
    domain: Domain,
    warm: Model | None,
    iterations: int,
    regularisation: float,
    tolerance: float,
) -> None:
    if warm is not None and warm.domain != domain:
        raise InputError("the warm model has another domain", where="fit")
    if iterations < 1:
        raise InputError(f"iterations = {iterations}", where="fit", allowed="1 or more")
    if not (math.isfinite(regularisation) and regularisation >= 0.0):
        raise InputError(f"regularisation = {regularisation}", where="fit", allowed="0 or more")
    if not tolerance >= 0.0:
        raise InputError(f"tolerance = {tolerance}", where="fit", allowed="0 or more")


def _totals(
    measurements: Sequence[Measurement], total: float | None, warm: Model | None
) -> tuple[float, float]:
    """The total to report and the one to fit the shape with."""
    if total is not None:
        if not math.isfinite(total):
            raise InputError(f"the total is {total}", where="fit", allowed="a finite number")
        return float(total), max(float(total), 1.0)
    if not measurements:
        known = 0.0 if warm is None else warm.total
        return known, max(known, 1.0)
    estimate, variance = estimate_total(measurements)
    return estimate, max(estimate, math.sqrt(variance), 1.0)


def _cliques_to_keep(
    domain: Domain, measured: Collection[Clique], warm: Model | None, max_cells: int
) -> list[Clique]:
    """Measured cliques, then the warm model's as far as the tree allows."""
    cliques = [c for c in measured if len(c) > 1]
    earlier = [c for c in warm.cliques if c not in measured] if warm is not None else []
    if tree_cells(domain, cliques + earlier) <= max_cells:
        return cliques + earlier
    cells = tree_cells(domain, cliques)
    if cells > max_cells:
        raise LimitError(
            f"the cliques' junction tree has {cells} cells",
            where="fit",
            allowed=f"max_cells = {max_cells}",
        )
    for clique in earlier:
        if tree_cells(domain, [*cliques, clique]) <= max_cells:
            cliques.append(clique)
    return cliques


def _start(tree: JunctionTree, warm: Model | None, cliques: list[Clique]) -> NDArray[np.float64]:
    """Potentials to start from: the warm model's where it has them, else zero."""
    potentials = np.zeros(tree.parameters)
    if warm is None:
        return potentials
    shared = sum(tree.domain.sizes)
    earlier = warm.potentials
    potentials[:shared] = earlier[:shared]
    known = set(warm.cliques)
    for clique in cliques:
        if clique in known:
            potentials[tree.slot(clique)] = earlier[warm.tree.slot(clique)]
    return potentials
