"""Schedulers and improvers: time for a million arrivals, and errors by how the budget is shared among the runs.

    python benchmarks/growing_schedules.py [--out benchmarks/results/growing_schedules.txt]

Time: eight columns, all 28 pairs, MWEM+PGM run again at every tenth more; beside it the same batches counted only.
Errors: five columns of invented records, the largest error of a share over all pairs, median of the repetitions, at
equal (epsilon, delta), with MWEM+PGM measuring five of ten pairs; ``once`` spends everything on one run at that size,
which no stream could do.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from pathlib import Path

import numpy as np
from made_by import write_result

from dpstream.core.privacy import Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import BBImprover, BBScheduler, MWEMPGMBox
from dpstream.families.growing.scheduler import _Rerun

LONG = "about 5 minutes"
ARRIVALS = 10**6
STATED = ("0.9", "1e-6")
SIZES = (2_000, 5_000, 20_000, 100_000)
STEP = 500


def records(domain: Domain, rows: int, generator: np.random.Generator) -> np.ndarray:
    """Columns that depend on each other: all on one hidden number."""
    hidden = generator.random(rows)
    columns = [(hidden + 0.4 * generator.random(rows)) * size / 1.4 for size in domain.sizes]
    return np.column_stack(columns).astype(np.int32)


def speed() -> list[str]:
    """CPU seconds for all arrivals, by what a step brings."""
    domain = Domain(tuple("abcdefgh"), (2, 3, 5, 7, 9, 16, 2, 6))
    workload, generator, lines = Workload.all_k_way(domain, 2), np.random.default_rng(1), []
    plan = BBScheduler(MWEMPGMBox(workload), 2000, gamma="0.1").calibrate(epsilon=1)
    for size in (100, 1000, 10_000, ARRIVALS):
        batches = [
            EncodedBatch(domain, records(domain, size, generator)) for _ in range(min(10, ARRIVALS // size))
        ]
        plan.step(plan.start(), batches[0], Randomness.system())  # compiled now
        state, begun = plan.start(), time.process_time()
        for number in range(ARRIVALS // size):
            release = plan.step(state, batches[number % len(batches)], Randomness.system())
        used, begun = time.process_time() - begun, time.process_time()
        for number in range(ARRIVALS // size):
            batches[number % len(batches)].count(workload.cliques)
        counted = time.process_time() - begun
        assert release.made is not None
        lines.append(
            f"    {ARRIVALS // size:>6} steps of {size:>7} records {used:8.2f} s, of which counting {counted:6.2f} s; "
            f"{release.made.number} runs"
        )
    return lines


def errors(recipe: _Rerun, repeats: int) -> list[float]:
    """The median of the largest error at each of ``SIZES``."""
    domain = Domain(tuple("abcde"), (4, 4, 4, 4, 4))
    workload = Workload.all_k_way(domain, 2)
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    for seed in range(repeats):
        generator = np.random.default_rng(seed)
        table = records(domain, SIZES[-1], generator)
        plan = recipe.calibrate(epsilon=STATED[0], delta=STATED[1])
        state = plan.start()
        for end in range(STEP, SIZES[-1] + 1, STEP):
            release = plan.step(state, EncodedBatch(domain, table[end - STEP : end]), Randomness.system())
            if end in found:
                true = EncodedBatch(domain, table[:end]).count(workload.cliques)
                shares = release.table.shares(workload.cliques)
                worst = max(
                    np.abs(share - count / end).max() for share, count in zip(shares, true, strict=True)
                )
                found[end].append(float(worst))
    return [statistics.median(found[size]) for size in SIZES]


def compared(repeats: int) -> list[str]:
    """One line for each way to share the budget."""
    box = MWEMPGMBox(Workload.all_k_way(Domain(tuple("abcde"), (4, 4, 4, 4, 4)), 2))
    ways: dict[str, _Rerun] = {
        "scheduler, gamma 0.1": BBScheduler(box, 2000, gamma="0.1"),
        "scheduler, gamma 0.5": BBScheduler(box, 2000, gamma="0.5"),
        "improver, c 0.1": BBImprover(box, 2000, c="0.1"),
    }
    rows = [
        f"    {name:<42}" + "".join(f"{e:>10.4f}" for e in errors(way, repeats)) for name, way in ways.items()
    ]
    once = [errors_once(box, size, repeats) for size in SIZES]
    rows.append(f"    {'once':<42}" + "".join(f"{e:>10.4f}" for e in once))
    return [f"    {'records':<42}" + "".join(f"{size:>10}" for size in SIZES), *rows]


def errors_once(box: MWEMPGMBox, size: int, repeats: int) -> float:
    """The same for one run with the whole budget."""
    from dpstream.core.privacy import approximate_to_zcdp
    from dpstream.families.growing import Database

    domain, found = box.workload.domain, []
    for seed in range(repeats):
        table = records(domain, SIZES[-1], np.random.default_rng(seed))[:size]
        counts = EncodedBatch(domain, table).count(box.workload.cliques)
        released = box.run(approximate_to_zcdp(*STATED), Database(size, tuple(counts)), Randomness.system())
        shares = released.shares(box.workload.cliques)
        found.append(max(float(np.abs(s - c / size).max()) for s, c in zip(shares, counts, strict=True)))
    return statistics.median(found)


def main() -> None:
    """Print, and write where asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    lines = [
        f"python {platform.python_version()}, numpy {np.__version__}, one process of a machine with 2 cores",
        "",
        f"CPU for {ARRIVALS} arrivals",
        *speed(),
        "",
        f"Largest error of a share, epsilon = {STATED[0]}, delta = {STATED[1]}, first run at 2,000, steps of {STEP}",
        *compared(given.repeats),
    ]
    print("\n".join(lines))
    if given.out is not None:
        write_result(given.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
