"""Residual measurements under zCDP beside histograms: what they would bring to an epoch of a pooled stream.

    python benchmarks/residuals.py [--runs 3] [--streams] [--result benchmarks/results/residuals.txt]

Xiao et al. (ResidualPlanner, 2023) measure of every set A of columns in a workload what its marginal has beside those
of A's subsets. With integers: the marginal times n I - 11' along each column of n values, with discrete Gaussian noise
in every cell; its L2 sensitivity squared is the product of n (n - 1). Noise of variance V in each free direction of A's
marginal costs a part p / V of the budget, p the product of 1 - 1/n, where a histogram costs 1 / V.

First table: variances of the noise in a cell, at a budget of 1/2 (a single histogram has 1), of a run that measures all
columns and k pairs (drawn by chance): histograms with equal shares, all of them put together by least squares, and
residuals with the shares that are best for the sum of all these cells. The formulas are compared with materialised
matrices of a small case first. Second table (``--streams``): AvgWE and total variation of streams whose runs of all
columns measure residuals, as ratios to the program's, with Gaussian noise in the place of discrete one: a simulation,
no mechanism. In brackets the half width of a 95 % interval. For evaluation only.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from constants import compared, errors_along
from inserted_streams import SIZES
from made_by import write_result

from dpstream.core.graphical import Measurement
from dpstream.core.privacy import ZCDP
from dpstream.families.tabular import pooled_margins, pooled_measure, pooled_run

LONG = "a second; --streams: 2 minutes of one core"
Set = tuple[int, ...]
DOMAINS = {
    "invented": SIZES, "12 of three": (3,) * 12, "10 of ten": (10,) * 10,
    "Adult": (2, 2, 5, 6, 7, 9, 15, 16, 42, 10, 10, 10, 9),
}  # fmt: skip
#: Order, records, steps, rho.
STREAMS = (
    ("both", 12_000, 24, "1/8"), ("drift", 12_000, 24, "1/8"), ("both", 12_000, 24, "1"), ("sorted", 10_000, 24, "1"),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Marginals that a run measures: columns by their sizes, and some pairs."""

    sizes: Sequence[int]
    pairs: Sequence[Set]

    @property
    def marginals(self) -> list[Set]:
        """Columns, then pairs."""
        return [*((i,) for i in range(len(self.sizes))), *self.pairs]

    @property
    def sets(self) -> list[Set]:
        """All subsets of the marginals."""
        return sorted({own for one in self.marginals for own in subsets(one)})

    def cells(self, of: Set) -> int:
        """Cells of a marginal."""
        return math.prod(self.sizes[i] for i in of)

    def cost(self, of: Set) -> float:
        """What noise of variance 1 in a residual costs, where a histogram's costs 1."""
        return math.prod(1.0 - 1.0 / self.sizes[i] for i in of)

    def weight(self, of: Set, marginal: Set) -> float:
        """The variance of a cell of a marginal for variance 1 in each free direction of a subset's marginal."""
        free = math.prod(self.sizes[i] - 1 for i in of)
        return free * self.cells(of) / self.cells(marginal) ** 2

    def histograms(self) -> dict[Set, float]:
        """Variances of residuals where histograms with equal shares are put together by least squares."""
        many = len(self.marginals)
        told = {of: [one for one in self.marginals if set(of) <= set(one)] for of in self.sets}
        return {of: many / sum(self.cells(of) / self.cells(one) for one in some) for of, some in told.items()}

    def residuals(self) -> dict[Set, float]:
        """Variances of residuals with the shares for which all marginals' cells have the least variance in sum."""
        worth = {
            of: sum(self.weight(of, one) for one in self.marginals if set(of) <= set(one)) for of in self.sets
        }
        whole = sum(math.sqrt(self.cost(of) * own) for of, own in worth.items())
        return {of: whole * math.sqrt(self.cost(of) / own) for of, own in worth.items()}

    def variance(self, marginal: Set, of: Mapping[Set, float]) -> float:
        """Of a cell of a marginal."""
        return sum(own * self.weight(part, marginal) for part in subsets(marginal) if (own := of[part]))


def subsets(of: Set) -> Iterator[Set]:
    """All of them."""
    for size in range(len(of) + 1):
        yield from combinations(of, size)


def check() -> str:
    """Compare sensitivities, costs and variances with materialised matrices."""
    own = Run((2, 3, 4), ((0, 1), (1, 2)))
    queries, noise = [], []
    variances = own.residuals()
    for of in own.sets:
        factors = [
            n * np.eye(n, dtype=int) - 1 if i in of else np.ones((1, n), dtype=int)
            for i, n in enumerate(own.sizes)
        ]
        query = reduce(np.kron, factors)
        sensitivity = math.prod(own.sizes[i] * (own.sizes[i] - 1) for i in of)
        assert (query**2).sum(axis=0).max() == sensitivity  # whole numbers
        scale = math.prod(own.sizes[i] for i in of)
        queries.append(query)
        noise += [variances[of] * scale**2] * len(query)
    whole, precision = np.vstack(queries), 1.0 / np.array(noise)
    spent = (whole**2 * precision[:, None]).sum(axis=0)
    assert np.allclose(spent, 1.0)  # every record costs the same: a single histogram's budget
    covariance = np.linalg.inv(whole.T @ (whole * precision[:, None]) + 1e-12 * np.eye(whole.shape[1]))
    tables = {}
    for one in own.marginals:
        factors = [np.eye(n) if i in one else np.ones((1, n)) for i, n in enumerate(own.sizes)]
        tables[one] = reduce(np.kron, factors)
        found = np.diag(tables[one] @ covariance @ tables[one].T)
        assert np.allclose(found, own.variance(one, variances), rtol=1e-4)
    stacked, many = np.vstack(list(tables.values())), len(tables)
    covariance = np.linalg.pinv(stacked.T @ stacked / many)
    for one, table in tables.items():
        found = np.diag(table @ covariance @ table.T)
        assert np.allclose(found, own.variance(one, own.histograms()))
    return "Sensitivities, costs and variances are those of the materialised matrices of columns of 2, 3, 4 values."


def table() -> Iterator[str]:
    """The first table."""
    head = f"{'':12} {'k':>3} {'alone':>6}  {'columns: together':18} {'residuals':10} {'ratio':6}"
    yield f"{head} {'pairs: together':16} {'residuals':10} ratio"
    for name, sizes in DOMAINS.items():
        every = list(combinations(range(len(sizes)), 2))
        order = np.random.default_rng(0).permutation(len(every))
        for k in (0, 5, 15, len(every)):
            own = Run(sizes, [every[i] for i in sorted(order[:k])])
            cells = [f"{name:12} {k:3} {len(own.marginals):6}"]
            for some, widths in ((own.marginals[: len(sizes)], (19, 11)), (own.pairs, (17, 11))):
                if some:
                    both = [
                        np.mean([own.variance(m, of) for m in some])
                        for of in (own.histograms(), own.residuals())
                    ]
                    cells.append(
                        f"{both[0]:<{widths[0]}.1f}{both[1]:<{widths[1]}.1f}{both[1] / both[0]:<6.2f}"
                    )
            yield " ".join(cells).rstrip()


@dataclass
class Residuals(pooled_measure.RunMeasurements):
    """Runs of all columns measure residuals, the number of events with a quarter of a histogram's weight."""

    parts: dict[int, tuple[np.ndarray, float]] = field(default_factory=dict)

    def _draw(self, group: Sequence[int], noise: Any, kind: str, *, chosen: bool) -> None:
        if len(group) > 1 or (chosen and not self.parts):
            super()._draw(group, noise, kind, chosen=chosen)
            return
        (index,) = group
        columns = [m for m in range(len(self.cells.cliques)) if len(self.cells.cliques[m]) == 1]
        variance = noise.variance * (1.0 + 0.25 / (len(columns) + 2))  # the number of events takes its part
        clique = self.cells.cliques[index]
        shape = self.cells.workload.domain.shape(clique)
        exact = self.counts[self.cells.part(index)].astype(np.float64).reshape(shape)
        if not self.sums:
            many = 4.0 * variance
            self.sums.append(Measurement((), np.array([exact.sum() + _normal(1, many)[0]]), many))
        cost = math.prod(1.0 - 1.0 / n for n in shape)
        own = exact + _normal(shape, variance * cost)
        for axis in range(own.ndim):
            own = own - own.mean(axis=axis, keepdims=True)
        spread, values = variance * cost**2, own
        for axis, column in enumerate(clique):
            if len(clique) == 1:
                self.parts[column] = own, spread
                continue
            if column not in self.parts:  # of two values: measured with others by their signs
                known = self.measured[columns[[self.cells.cliques[m][0] for m in columns].index(column)]]
                self.parts[column] = known.values - known.values.mean(), known.variance
            others = math.prod(shape) / shape[axis]
            away = tuple(a for a in range(len(shape)) if a != axis)
            values = values + np.expand_dims(self.parts[column][0], away) / others
            spread += self.parts[column][1] / others**2
        values = values + self.total[0] / math.prod(shape)
        spread += self.total[1] / math.prod(shape) ** 2
        self.measured[index] = Measurement(clique, values.ravel(), spread)


_NOISE = np.random.default_rng(3)


def _normal(shape: Any, variance: float) -> np.ndarray:
    return _NOISE.normal(size=shape) * math.sqrt(variance)


def _margins(cells: Any, measured: Any, repeated: Any) -> Any:
    """Residuals of pairs repeat their columns and tell nothing new of them."""
    full = all(len(clique) > 1 or m in measured for m, clique in enumerate(cells.cliques))
    own = [m for m in measured if len(cells.cliques[m]) > 1] if full else repeated
    return pooled_margins.with_margins(cells, measured, own)


def streams(runs: int) -> Iterator[str]:
    """The second table."""
    yield f"{'':26}AvgWE, total variation: residuals to histograms, {runs} runs"
    for order, records, steps, rho in STREAMS:
        found = []
        for own in (False, True):
            pooled_run.RunMeasurements = Residuals if own else pooled_measure.RunMeasurements  # type: ignore[misc]
            pooled_run.with_margins = _margins if own else pooled_margins.with_margins
            along = [
                errors_along(order, records, steps, seed, ZCDP.of(Fraction(rho))) for seed in range(runs)
            ]
            found.append(np.mean(along, axis=1))
        yield f"{f'{order}, rho {rho}':26}{compared(*found)}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", action="store_true")
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()
    lines = [check(), "", *table()]
    print("\n".join(lines), flush=True)
    if chosen.streams:
        lines.append("")
        for one in streams(chosen.runs):
            lines.append(one)
            print(one, flush=True)
    if chosen.result:
        write_result(chosen.result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
