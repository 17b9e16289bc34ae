"""A step on a hundred nodes, by a model whose parameters were measured on two cores; draws the picture of the guide.

    python benchmarks/spark_model.py [--out docs/images/spark-nodes.svg]

Nothing here was measured on a hundred nodes. From ``results/spark.txt``: CPU seconds a row for Spark's transport to
Python, for encoding and counting on top of it, and for a partition beyond its rows. Measured here: adding up two parts.
Assumed: 10 Gbit/s between nodes, cores that are never idle, storage that keeps up. Partitions of a million rows; 20,320
cells, as measured.

    workers    (rows * (transport + counting) + partitions * start) / cores
    tree sum   (partitions / 32 + 32) * cells * (8 bytes / network + adding)
    driver     a constant: plan, result, noise and fitting are not in it
"""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench import drawing, save_figure

CORES, CELLS, GROUPS = 8, 20_320, 32
PARTITION = 1_000_000
NETWORK = 1.25e9  # bytes a second
NODES = (1, 2, 3, 5, 10, 20, 30, 50, 100)
ROWS = (10**8, 10**9, 10**10)
MEASURED = Path(__file__).resolve().parent / "results" / "spark.txt"


@dataclass(frozen=True)
class Costs:
    """CPU seconds: of a row's transport, of counting it, of a partition, of adding a cell, of a job on the driver."""

    transport: float
    counting: float
    partition: float
    adding: float
    driver: float


def costs() -> Costs:
    """From the measurements on two cores."""
    cpu: dict[tuple[int, str], float] = {}
    for line in MEASURED.read_text(encoding="utf-8").splitlines():
        found = re.match(r"\s*(\d+) Spark, 2 cores(?:, (.+?))?\s+([\d.]+)\s+[\d.]+", line)
        if found:
            cpu[int(found[1]), found[2] or "all"] = float(found[3])
    steps = 10**6 - 10**5  # the difference of two sizes: what a job costs by itself is in both
    transport = (cpu[10**6, "transport"] - cpu[10**5, "transport"]) / steps
    both = (cpu[10**6, "all"] - cpu[10**5, "all"]) / steps
    partition = (cpu[10**5, "1000 parts"] - cpu[10**5, "1 parts"]) / 999
    driver = cpu[10**5, "all"] - both * 10**5
    return Costs(transport, both - transport, partition, adding(), max(driver, 0.0))


def adding() -> float:
    """CPU seconds of adding a cell to a sum: the best of some runs."""
    one, two = np.ones(CELLS, np.int64), np.ones(CELLS, np.int64)
    best = float("inf")
    for _ in range(20):
        began = time.process_time()
        for _ in range(200):
            one += two
        best = min(best, (time.process_time() - began) / 200)
    return best / CELLS


def seconds(rows: int, nodes: int, cost: Costs) -> tuple[float, float, float, float]:
    """Transport, counting, tree sum and the driver's job, by the clock."""
    parts = max(1, rows // PARTITION)
    cores = min(nodes * CORES, parts)
    transport = (rows * cost.transport + parts * cost.partition) / cores
    tree = (-(-parts // GROUPS) + min(parts, GROUPS)) * CELLS * (8 / NETWORK + cost.adding)
    return transport, rows * cost.counting / cores, tree, cost.driver


def main() -> None:
    """Print the figures, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/spark-nodes.svg"))
    given, cost = parser.parse_args(), costs()
    print(cost)
    figure, axes = drawing().subplots(1, 2, figsize=(10, 4))
    for rows in ROWS:
        total = [sum(seconds(rows, nodes, cost)) for nodes in NODES]
        axes[0].plot(NODES, total, marker="o", markersize=3, label=f"{rows:.0e} rows".replace("e+", "e"))
        print(rows, *(f"{nodes}: {one:.1f} s" for nodes, one in zip(NODES, total, strict=True)))
    axes[0].set(
        xscale="log", yscale="log", xlabel="nodes with 8 cores", ylabel="seconds a step", title="A step"
    )
    axes[0].legend()
    names = ("transport and tasks", "encoding and counting", "tree sum", "driver")
    bottom = np.zeros(len(NODES))
    for name, values in zip(names, np.array([seconds(10**10, n, cost) for n in NODES]).T, strict=True):
        axes[1].bar(range(len(NODES)), values / sum_of(cost), bottom=bottom, label=name)
        bottom += values / sum_of(cost)
    axes[1].set_xticks(range(len(NODES)), [str(nodes) for nodes in NODES])
    axes[1].set(xlabel="nodes", ylabel="share of the seconds", title="Where they go, 10^10 rows", ylim=(0, 1))
    axes[1].legend(fontsize=8, loc="lower left")
    for one in axes:
        one.grid(alpha=0.3)
    figure.suptitle("A model from measurements on two cores, not a measurement", fontsize=10)
    save_figure(figure, given.out)


def sum_of(cost: Costs) -> np.ndarray:
    """All seconds of the largest table, by nodes."""
    return np.array([sum(seconds(ROWS[-1], nodes, cost)) for nodes in NODES])


if __name__ == "__main__":
    main()
