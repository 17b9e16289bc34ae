"""Noisy marginals and what they say about the number of records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import InputError
from dpstream.core.graphical.junction_tree import check_clique
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
            raise InputError("values are not all finite", where="measurement")
        variance = float(self.variance)
        if not (math.isfinite(variance) and variance > 0.0 and math.isfinite(1.0 / variance)):
            raise InputError(
                "the variance is not a positive finite number", where="measurement", allowed="greater than 0"
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


def combine(measurements: Sequence[Measurement]) -> dict[Clique, tuple[NDArray[np.float64], float, float]]:
    """One (values, weight, constant) per clique, in the order of first appearance.

    Inverse variance loses nothing: the losses of all measurements of a clique sum to
    ``weight/2 |mu - values|^2 + constant``.
    """
    groups: dict[Clique, list[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault(measurement.clique, []).append(measurement)
    combined = {}
    for clique, group in groups.items():
        if len(group) == 1:
            combined[clique] = (group[0].values, 1.0 / group[0].variance, 0.0)
            continue
        weight = sum(1.0 / m.variance for m in group)
        values = sum((m.values / m.variance for m in group), np.zeros_like(group[0].values)) / weight
        constant = sum(0.5 / m.variance * float(np.sum((m.values - values) ** 2)) for m in group)
        combined[clique] = (values, weight, constant)
    return combined
