"""Marginal counting: compiled against NumPy, with a calibration loop in the same run.

    python benchmarks/counting.py [--out benchmarks/results/counting.txt]

All data is random. Times are CPU seconds of this process, best of several repetitions (a shared machine
only ever adds time). The calibration lines allow a comparison between machines: ratios carry over, absolute
times do not.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench import show_result

from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch

#: The sizes of the 13 attributes of Adult that the paper's experiments use: 78 pairs, 9,190 cells.
ADULT = (2, 2, 5, 6, 7, 9, 15, 16, 42, 16, 6, 10, 10)


def best(action: Callable[[], object], repetitions: int, inner: int = 1) -> float:
    """Least CPU time of one call."""
    action()
    times = []
    for _ in range(repetitions):
        start = time.process_time()
        for _ in range(inner):
            action()
        times.append((time.process_time() - start) / inner)
    return min(times)


def table(sizes: tuple[int, ...], rows: int) -> np.ndarray:
    """Skewed codes, column-major."""
    generator = np.random.default_rng(1)
    codes = np.empty((rows, len(sizes)), np.int32, order="F")
    for i, size in enumerate(sizes):
        codes[:, i] = np.minimum((generator.random(rows) ** 3 * size).astype(np.int32), size - 1)
    codes.flags.writeable = False
    return codes


def calibration() -> list[str]:
    generator = np.random.default_rng(2)
    values = generator.integers(0, 500, 10**6)

    def histogram() -> object:
        return np.bincount(values)

    def loop() -> int:
        total = 0
        for i in range(10**6):
            total += i & 7
        return total

    return [
        f"calibration: Python loop of 10^6 additions        {best(loop, 5) * 1e3:10.2f} ms",
        f"calibration: np.bincount of 10^6, 500 cells       {best(histogram, 9) * 1e3:10.2f} ms",
    ]


def by_numpy(codes: np.ndarray, domain: Domain, cliques: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    """The plain definition: one ``bincount`` per clique."""
    tables = []
    for clique in cliques:
        cell = np.zeros(len(codes), np.int64)
        for column in clique:
            cell = cell * domain.sizes[column] + codes[:, column]
        tables.append(np.bincount(cell, minlength=domain.cells(clique)))
    return tables


def compare(name: str, sizes: tuple[int, ...], rows: int, k: int, inner: int, repetitions: int) -> str:
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    cliques = tuple(itertools.combinations(range(len(sizes)), k))
    codes = table(sizes, rows)
    batch = EncodedBatch(domain, codes)
    counts, expected = batch.count(cliques), by_numpy(codes, domain, cliques)
    if not all(np.array_equal(a, b) for a, b in zip(counts, expected, strict=True)):
        raise SystemExit(f"{name}: NumPy counts something else")
    compiled = best(lambda: batch.count(cliques), repetitions, inner) * 1e3
    plain = best(lambda: by_numpy(codes, domain, cliques), repetitions, inner) * 1e3
    figures = f"{compiled:>12.3f} ms {plain:>12.3f} ms {plain / compiled:>8.1f} x"
    return f"{name:<42}{len(cliques):>6} tables {figures}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    start = time.process_time()
    importlib.import_module("dpstream.core.tables._counting_kernels")
    loading = time.process_time() - start
    lines = [
        f"python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}; CPU time",
        *calibration(),
        f"loading the compiled counter (cached on disk)     {loading * 1e3:10.2f} ms",
        "",
        f"{'case':<42}{'':>13} {'compiled':>15} {'numpy':>15} {'ratio':>10}",
        compare("Adult shape, all pairs, 50 rows", ADULT, 50, 2, 100, 9),
        compare("Adult shape, all pairs, 1,000 rows", ADULT, 1000, 2, 30, 9),
        compare("Adult shape, all pairs, 10^6 rows", ADULT, 10**6, 2, 1, 5),
        compare("Adult shape, all 3-way, 50 rows", ADULT, 50, 3, 10, 5),
        compare("Adult shape, all 3-way, 10^5 rows", ADULT, 10**5, 3, 1, 2),
        compare("30 columns of 12, all pairs, 10^5 rows", (12,) * 30, 10**5, 2, 1, 3),
        compare("8 columns of 50, all pairs, 10^6 rows", (50,) * 8, 10**6, 2, 1, 3),
        "",
        f"peak memory of the whole run: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB",
        "Both backends gave the same integers in every case.",
    ]
    text = "\n".join(lines) + "\n"
    show_result(text, arguments.out)


if __name__ == "__main__":
    main()
