"""The same measurements through mbi 2.0 (an independent implementation): same loss, same marginals."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, fit
from dpstream.core.schema.domain import Clique, Domain

TREE = [(3, 4), (5, 6), (0, 3), (6, 7), (4, 12), (1, 3), (0, 6), (2, 8), (6, 11), (1, 9), (7, 8), (1, 10)]
CLIQUES = [*TREE, (3, 12), (0, 4), (1, 4)]
ADULT = (
    *("sex", "income>50K", "race", "relationship", "marital-status", "workclass", "occupation"),
    *("education-num", "native-country", "capital-gain", "capital-loss", "hours-per-week", "age_10"),
)
SIZES = (2, 2, 5, 6, 7, 9, 15, 16, 42, 16, 6, 10, 10)


def simulated() -> NDArray[np.int64]:
    """48,813 records whose attributes depend on two hidden classes: skewed and correlated."""
    rng = np.random.default_rng(12)
    n = 48_813
    hidden = rng.integers(0, 6, n)
    columns = []
    for size in SIZES:
        tables = rng.dirichlet(np.full(size, 0.3), size=6)
        cumulative = tables.cumsum(axis=1)
        columns.append((rng.random(n)[:, None] > cumulative[hidden]).sum(axis=1).clip(0, size - 1))
    return np.stack(columns, axis=1)


def adult(folder: Path) -> NDArray[np.int64]:
    from pyarrow import csv

    table = csv.read_csv(folder / "adult" / "adult_48813.csv.gz")
    return np.stack([table[name].to_numpy() for name in ADULT], axis=1).astype(np.int64)


def count(records: NDArray[np.int64], domain: Domain, clique: Clique) -> NDArray[np.float64]:
    index = np.ravel_multi_index([records[:, i] for i in clique], domain.shape(clique))
    return np.bincount(index, minlength=domain.cells(clique)).astype(float)


@pytest.mark.slow
def test_same_converged_loss_and_marginals_as_mbi() -> None:
    folder = os.environ.get("DPSTREAM_DATA")
    records = adult(Path(folder)) if folder else simulated()
    domain = Domain(ADULT, SIZES)
    rng = np.random.default_rng(7)
    sd = 100.0
    measurements = [
        Measurement(c, count(records, domain, c) + rng.normal(0, sd, domain.cells(c)), sd**2) for c in CLIQUES
    ]
    model = fit(domain, measurements, total=48_813.0, iterations=3000, tolerance=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = _mbi(domain, measurements, 48_813.0, iterations=12_000)

    def loss(marginals: list[NDArray[np.float64]]) -> float:
        return sum(
            float(((mu - m.values) ** 2).sum()) / (2 * m.variance)
            for mu, m in zip(marginals, measurements, strict=True)
        )

    ours = model.marginals(CLIQUES)
    peer = [theirs(c) for c in CLIQUES]
    assert loss(ours) == pytest.approx(loss(peer), rel=1e-4)
    for clique, mu, nu in zip(CLIQUES, ours, peer, strict=True):
        assert np.abs(mu - nu).max() < 1e-3 * 48_813, domain.label(clique)
    for clique in itertools.islice(itertools.combinations(range(13), 2), 0, None, 9):
        assert np.abs(model.marginal(clique) - theirs(clique)).max() < 1e-3 * 48_813


def _mbi(domain: Domain, measurements: list[Measurement], total: float, iterations: int):  # type: ignore[no-untyped-def]
    import jax

    jax.config.update("jax_enable_x64", True)
    import mbi
    from mbi import estimation

    peer_domain = mbi.Domain(domain.names, domain.sizes)
    linear = [
        mbi.LinearMeasurement(m.values, tuple(domain.names[i] for i in m.clique), stddev=m.variance**0.5)
        for m in measurements
    ]
    model = estimation.MirrorDescent().estimate(peer_domain, linear, known_total=total, iters=iterations)

    def marginal(clique: Clique) -> NDArray[np.float64]:
        names = tuple(domain.names[i] for i in clique)
        return np.asarray(model.project(names).datavector(), dtype=np.float64)

    return marginal
