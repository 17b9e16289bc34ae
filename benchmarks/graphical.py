"""Fit and all pairs of a graphical model, beside mbi 2.0 on the same measurements.

    python benchmarks/graphical.py [--out benchmarks/results/graphical.txt]

Adult's 13 attributes (48,813 records; with DPSTREAM_DATA set the real ones, else simulated of the same
sizes), 15 noisy two-way marginals (a tree and three more edges), 100 iterations. CPU milliseconds of
this process, all threads; medians of repetitions. mbi compiles anew for every new clique set, which is
its "first call"; a stream changes its clique set at almost every step.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench import show_result
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model, fit, junction_tree, tree_cells
from dpstream.core.graphical.junction_tree import _build
from dpstream.core.schema.domain import Clique, Domain

ADULT = Domain(
    (
        *("sex", "income>50K", "race", "relationship", "marital-status", "workclass", "occupation"),
        *("education-num", "native-country", "capital-gain", "capital-loss", "hours-per-week", "age_10"),
    ),
    (2, 2, 5, 6, 7, 9, 15, 16, 42, 16, 6, 10, 10),
)
TREE = [(3, 4), (5, 6), (0, 3), (6, 7), (4, 12), (1, 3), (0, 6), (2, 8), (6, 11), (1, 9), (7, 8), (1, 10)]
CLIQUES: list[Clique] = [*TREE, (3, 12), (0, 4), (1, 4)]
PAIRS: list[Clique] = list(itertools.combinations(range(13), 2))
NOISE = 100.0


def records() -> tuple[NDArray[np.int64], str]:
    folder = os.environ.get("DPSTREAM_DATA")
    if folder:
        from pyarrow import csv

        table = csv.read_csv(Path(folder) / "adult" / "adult_48813.csv.gz")
        columns = [table[name].to_numpy() for name in ADULT.names]
        return np.stack(columns, axis=1).astype(np.int64), "Adult"
    rng = np.random.default_rng(12)
    hidden = rng.integers(0, 6, 48_813)
    columns = []
    for size in ADULT.sizes:
        cumulative = rng.dirichlet(np.full(size, 0.3), size=6).cumsum(axis=1)
        columns.append((rng.random(len(hidden))[:, None] > cumulative[hidden]).sum(axis=1).clip(0, size - 1))
    return np.stack(columns, axis=1), "simulated records of Adult's sizes"


def measure(data: NDArray[np.int64], clique: Clique, rng: np.random.Generator) -> Measurement:
    index = np.ravel_multi_index([data[:, i] for i in clique], ADULT.shape(clique))
    true = np.bincount(index, minlength=ADULT.cells(clique))
    return Measurement(clique, true + rng.normal(0, NOISE, true.size), NOISE**2)


def cpu(work: Callable[[], Any], repeat: int = 9, prepare: Callable[[], Any] | None = None) -> float:
    """Median CPU milliseconds of one call."""
    times = []
    for _ in range(repeat):
        if prepare is not None:
            prepare()
        begin = time.process_time()
        work()
        times.append(1e3 * (time.process_time() - begin))
    return statistics.median(times)


def loss(marginals: list[NDArray[np.float64]], measurements: list[Measurement]) -> float:
    return sum(
        float(((mu - m.values) ** 2).sum()) / (2 * m.variance)
        for mu, m in zip(marginals, measurements, strict=True)
    )


def ours(measurements: list[Measurement]) -> dict[str, float]:
    begin = time.process_time()
    model = fit(ADULT, measurements)
    model.marginals(PAIRS)
    out = {"first use in a process (compiled code from disk)": 1e3 * (time.process_time() - begin)}
    total = model.total

    def fresh() -> Model:
        return Model(model.tree, model.potentials, total)

    clear = _build.cache_clear
    out["junction tree, new clique set"] = cpu(lambda: junction_tree(ADULT, CLIQUES), 21, clear)
    out["fit, new clique set"] = cpu(lambda: fit(ADULT, measurements, tolerance=0.0), 21, clear)
    out["fit, same cliques again"] = cpu(lambda: fit(ADULT, measurements, tolerance=0.0), 21)
    out["all 78 pairs (with calibration)"] = cpu(lambda: fresh().marginals(PAIRS), 21)
    out["sample 50,000 records"] = cpu(lambda: model.sample(50_000, 1), 9)
    out["8 refits of 30 iterations, warm, all pairs after each"] = cpu(
        lambda: stream_step(model, measurements), 9
    )
    out["loss"] = loss(fit(ADULT, measurements, tolerance=0.0).marginals(CLIQUES), measurements)
    best = fit(ADULT, measurements, tolerance=1e-3, iterations=5000)
    out["loss, converged"] = loss(best.marginals(CLIQUES), measurements)
    return out


def stream_step(model: Model, measurements: list[Measurement]) -> None:
    for k in range(8):
        model = fit(ADULT, measurements[: 8 + k], warm=model, iterations=30, tolerance=0.0)
        model.marginals(PAIRS)


def theirs(measurements: list[Measurement]) -> dict[str, float]:
    import jax

    jax.config.update("jax_enable_x64", True)
    import mbi
    from mbi import estimation

    domain = mbi.Domain(ADULT.names, ADULT.sizes)

    def names(clique: Clique) -> tuple[str, ...]:
        return tuple(ADULT.names[i] for i in clique)

    linear = [mbi.LinearMeasurement(m.values, names(m.clique), stddev=NOISE) for m in measurements]
    total = fit(ADULT, measurements, iterations=1).total

    def estimate() -> Any:
        model = estimation.MirrorDescent().estimate(domain, linear, known_total=total, iters=100)
        np.asarray(model.project(names(CLIQUES[0])).datavector())
        return model

    def pairs() -> None:
        for clique in PAIRS:
            np.asarray(model.project(names(clique)).datavector())

    out = {"fit, new clique set": cpu(estimate, 1)}
    out["fit, same cliques again"] = cpu(estimate, 9)
    model = estimate()
    out["all 78 pairs, first"] = cpu(pairs, 1)
    out["all 78 pairs (with calibration)"] = cpu(pairs, 5)
    out["loss"] = loss([np.asarray(model.project(names(c)).datavector()) for c in CLIQUES], measurements)
    return out


def report(mine: dict[str, float], peer: dict[str, float], what: str) -> str:
    lines = [
        f"{what}: {len(CLIQUES)} two-way cliques, {tree_cells(ADULT, CLIQUES)} tree cells, noise {NOISE:g}, "
        "100 iterations",
        "",
        f"{'CPU milliseconds (medians)':<56}{'dpstream':>10}{'mbi 2.0':>12}{'ratio':>10}",
    ]
    against = {**peer, "all 78 pairs, first": peer["all 78 pairs, first"]}
    for name, value in mine.items():
        if name.startswith("loss"):
            continue
        other = against.get(name)
        tail = "" if other is None else f"{other:>12.1f}{other / value:>9.0f}x"
        lines.append(f"{name:<56}{value:>10.2f}{tail}")
    first = peer["all 78 pairs, first"]
    pairs = mine["all 78 pairs (with calibration)"]
    lines.append(
        f"{'all 78 pairs, first call on a clique set':<56}{pairs:>10.2f}{first:>12.1f}{first / pairs:>9.0f}x"
    )
    lines += ["", "Loss after 100 iterations (half squared residuals over variances; lower is better)"]
    lines += [f"  {name:<54}{value:>10.2f}" for name, value in mine.items() if name.startswith("loss")]
    lines.append(f"  {'loss, mbi 2.0 mirror descent':<54}{peer['loss']:>10.2f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the table here")
    options = parser.parse_args()
    data, what = records()
    rng = np.random.default_rng(0)
    measurements = [measure(data, clique, rng) for clique in CLIQUES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = report(ours(measurements), theirs(measurements), what)
    show_result(text, options.out)


if __name__ == "__main__":
    main()
