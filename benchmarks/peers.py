"""AIM and MST over mbi's estimators: offline peers for ``dpstream lab compare`` (see compare_adult.toml).

Each function has the signature of an offline mechanism of a comparison file. Ordinary floating-point Gaussian noise
from NumPy: fit for a comparison of errors, not for a release. mbi is a development dependency.

* MST: McKenna, Miklau, Sheldon, "Winning the NIST Contest" (2021), without its merging of rare values.
* AIM: McKenna, Mullins, Sheldon, Miklau, "AIM: An Adaptive and Iterative Mechanism" (2022), Algorithms 2 to 4.

Both spend an (epsilon, delta) budget as the largest rho of zero-concentrated privacy within it, for one record added
or removed.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import approximate_to_zcdp
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import count_marginals

Counts = dict[Clique, NDArray[np.float64]]

#: Mean absolute value of a standard normal number.
_MEAN_NOISE = math.sqrt(2 / math.pi)


class _Fit:
    """Noisy marginals so far, and mbi's model of them."""

    def __init__(self, codes: NDArray[np.int32], domain: Domain, repeat: int, iterations: int) -> None:
        import jax

        # Before mbi is imported: it warns of both.
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_enable_compilation_cache", False)
        import mbi
        from mbi import estimation

        self.mbi, self.estimation = mbi, estimation
        self.codes, self.domain, self.iterations = codes, domain, iterations
        self.own = mbi.Domain(domain.names, domain.sizes)
        self.rng = np.random.default_rng([repeat, 1])
        self.noisy: list[Any] = []
        self.model: Any = None

    def names(self, clique: Clique) -> tuple[str, ...]:
        return tuple(self.domain.names[i] for i in clique)

    def true(self, cliques: Sequence[Clique]) -> Counts:
        counts = count_marginals(self.codes, self.domain, cliques)
        return {c: values.astype(np.float64) for c, values in zip(cliques, counts, strict=True)}

    def measure(self, clique: Clique, values: NDArray[np.float64], sigma: float) -> None:
        noisy = values + self.rng.normal(0.0, sigma, values.size)
        self.noisy.append(self.mbi.LinearMeasurement(noisy, self.names(clique), stddev=sigma))

    def fit(self, iterations: int | None = None) -> None:
        self.model = self.estimation.MirrorDescent().estimate(
            self.own, self.noisy, iters=iterations or self.iterations, warm_start=self.model
        )

    def answer(self, clique: Clique) -> NDArray[np.float64]:
        return np.asarray(self.model.project(self.names(clique)).datavector(), dtype=np.float64)

    def answers(self, cliques: Sequence[Clique]) -> Counts:
        """Many at once, from mbi's potentials: mbi's own elimination compiles each of them, a second apiece."""
        place = {name: i for i, name in enumerate(self.domain.names)}
        factors = []
        for factor in self.model.potentials.tables.values():
            values = np.asarray(factor.values, dtype=np.float64)
            factors.append(
                (np.exp(values - values.max()), [place[name] for name in factor.domain.attributes])
            )
        found = {}
        for clique in cliques:
            values = _eliminate(factors, clique, self.domain)
            found[clique] = values * (float(self.model.total) / values.sum())
        return found

    def size(self, cliques: Sequence[Clique]) -> float:
        """Megabytes of the junction tree of some cliques."""
        from mbi.junction_tree import hypothetical_model_size

        return float(hypothetical_model_size(self.own, [self.names(c) for c in cliques]))

    def choose(self, scores: Sequence[float], epsilon: float, sensitivity: float) -> int:
        """The exponential mechanism, by Gumbel noise."""
        values = np.array(scores) * (epsilon / (2 * sensitivity))
        return int(np.argmax(values + self.rng.gumbel(size=len(values))))


def _eliminate(
    factors: Sequence[tuple[NDArray[np.float64], list[int]]], kept: Clique, domain: Domain
) -> NDArray[np.float64]:
    """The product of the factors, summed over all other columns, the one with the smallest table first."""
    left = list(factors)
    others = {column for _, columns in left for column in columns} - set(kept)
    while others:
        joined = {c: set().union(*(columns for _, columns in left if c in columns)) - {c} for c in others}
        column = min(sorted(others), key=lambda c: math.prod(domain.sizes[i] for i in joined[c]))
        others.remove(column)
        touched = [factor for factor in left if column in factor[1]]
        left = [factor for factor in left if column not in factor[1]]
        left.append((_product(touched, sorted(joined[column])), sorted(joined[column])))
    return _product(left, list(kept)).ravel()


def _product(
    factors: Sequence[tuple[NDArray[np.float64], list[int]]], kept: list[int]
) -> NDArray[np.float64]:
    operands: list[Any] = []
    for values, columns in factors:
        # The scale is free (the result is normalised), and without this it would run out of range.
        operands += [values / values.max(), columns]
    return np.asarray(np.einsum(*operands, kept, optimize="greedy"))


def mst(
    codes: NDArray[np.int32],
    domain: Domain,
    cliques: Sequence[Clique],
    *,
    epsilon: float,
    repeat: int,
    delta: float | str = 1e-9,
    iterations: int = 1000,
) -> list[NDArray[np.float64]]:
    """MST: one-way marginals, a spanning tree of pairs chosen by how badly independence explains them, the pairs."""
    rho = float(approximate_to_zcdp(epsilon, delta).rho)
    columns = range(len(domain))
    fit = _Fit(codes, domain, repeat, iterations)
    singles = fit.true([(i,) for i in columns])
    for clique, values in singles.items():
        fit.measure(clique, values, math.sqrt(len(domain) / (2 * rho / 3)))
    fit.fit()
    pairs = list(itertools.combinations(columns, 2))
    true = fit.true(pairs)
    expected = fit.answers(pairs)
    weight = {pair: float(np.abs(true[pair] - expected[pair]).sum()) for pair in pairs}
    each = math.sqrt(8 * (rho / 3) / max(1, len(domain) - 1))
    group = list(columns)
    chosen: list[Clique] = []
    while len(chosen) < len(domain) - 1:
        open_pairs = [pair for pair in pairs if group[pair[0]] != group[pair[1]]]
        pair = open_pairs[fit.choose([weight[p] for p in open_pairs], each, 1.0)]
        chosen.append(pair)
        old, new = group[pair[1]], group[pair[0]]
        group = [new if g == old else g for g in group]
    for pair in chosen:
        fit.measure(pair, true[pair], math.sqrt(len(chosen) / (2 * rho / 3)))
    fit.fit()
    found = fit.answers(cliques)
    return [found[clique] for clique in cliques]


def aim(
    codes: NDArray[np.int32],
    domain: Domain,
    cliques: Sequence[Clique],
    *,
    epsilon: float,
    repeat: int,
    delta: float | str = 1e-9,
    iterations: int = 1000,
    max_model_mb: float = 2.0,
    between: int = 100,
) -> list[NDArray[np.float64]]:
    """AIM: the worst explained marginal of the workload's closure, measured and refitted, with growing budgets.

    ``between`` is the number of iterations of a fit between rounds; it starts from the model before it.
    ``max_model_mb`` bounds the junction tree at the end (80 in the paper's experiments, which takes hours here).
    """
    rho = float(approximate_to_zcdp(epsilon, delta).rho)
    fit = _Fit(codes, domain, repeat, iterations)
    weights = _closure(cliques)
    true = fit.true(list(weights))
    singles = [(i,) for i in range(len(domain))]
    rounds = 16 * len(domain)
    sigma, each = math.sqrt(rounds / (2 * 0.9 * rho)), math.sqrt(8 * 0.1 * rho / rounds)
    used = len(singles) / (2 * sigma**2)
    for clique in singles:
        fit.measure(clique, true[clique], sigma)
    fit.fit(between)
    taken: list[Clique] = list(singles)
    turn, last = 0, False
    while not last:
        turn += 1
        if rho - used < 2 * (1 / (2 * sigma**2) + each**2 / 8):
            rest = rho - used
            sigma, each, last = math.sqrt(1 / (2 * 0.9 * rest)), math.sqrt(8 * 0.1 * rest), True
        used += 1 / (2 * sigma**2) + each**2 / 8
        limit = max_model_mb * used / rho
        small = [c for c in weights if c in taken or fit.size([*taken, c]) <= limit]
        expected = fit.answers(small)
        scores = [
            weights[c] * (float(np.abs(true[c] - expected[c]).sum()) - _MEAN_NOISE * sigma * true[c].size)
            for c in small
        ]
        clique = small[fit.choose(scores, each, max(weights[c] for c in small))]
        before = expected[clique]
        fit.measure(clique, true[clique], sigma)
        if clique not in taken:
            taken.append(clique)
        fit.fit(None if last else between)
        moved = float(np.abs(fit.answer(clique) - before).sum())
        print(
            f"aim: round {turn}, {used / rho:.0%} of the budget, {fit.names(clique)}",
            file=sys.stderr,
            flush=True,
        )
        if moved <= _MEAN_NOISE * sigma * before.size:
            sigma, each = sigma / 2, each * 2
    found = fit.answers(cliques)
    return [found[clique] for clique in cliques]


def _closure(cliques: Sequence[Clique]) -> dict[Clique, float]:
    """Every part of a workload's marginal, weighted by how much of the workload it overlaps."""
    parts = {
        part for c in cliques for size in range(1, len(c) + 1) for part in itertools.combinations(c, size)
    }
    return {part: float(sum(len(set(part) & set(c)) for c in cliques)) for part in sorted(parts)}
