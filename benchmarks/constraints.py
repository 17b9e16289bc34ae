"""What a public constraint is worth: districts that follow from zips, beside districts that are measured.

    python benchmarks/constraints.py [--out benchmarks/results/constraints.txt]

Simulated evictions (inserts and deletes), 30 weeks of about 120 notices, epsilon 1, the default mechanism, two
workloads. In `evictions-by-zip` a district follows from its zip without exception; "derived" is the configuration as it
is written, "measured" the same one without its constraint. `evictions` is the stream in which 4 % of the notices carry
another district: a hard constraint does not hold there, and it is shown as it is measured.

At step 30, of released tables beside the true one, tables as shares of their own size: the L1 distance of zip x
district (at most 2); the share of records whose district is none that follows from their zip ("astray"; `evictions`: of
its main district); the mean total variation of all other pairs. Means and standard errors over the runs. For evaluation
only.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
from made_by import write_result
from numpy.typing import NDArray

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Schema
from dpstream.core.tables import count_marginals
from dpstream.project import Config
from dpstream.stream import Batch
from dpstream.stream.admission import encode_batch
from dpstream.tools.simulate import simulate

STEPS, RUNS = 30, 5
WAYS = (("evictions-by-zip", "measured"), ("evictions-by-zip", "derived"), ("evictions", "measured"))
WORKLOADS = ("all-2-way", "all-3-way")


def config_of(folder: Path, name: str, way: str, workload: str, run: int) -> Config:
    path = simulate(name, STEPS, folder / f"{name} {way} {workload}", seed=run)
    text = path.read_text().replace('"all-2-way"', f'"{workload}"')
    before, constraint, after_it = text.partition("[schema.constraints")
    if constraint and way == "measured":
        text = before + after_it[after_it.index("[mechanism]") :]
    path.write_text(text)
    return Config.load(path)


def measure(config: Config, run: int) -> tuple[float, float, float]:
    schema = config.schema()
    whole = Schema(schema.released_columns, schema.ignore)
    plan, true = config.plan(), np.zeros((0, len(whole)), np.int32)
    state, randomness = plan.start(), Randomness.seeded(1000 + run)
    for entry in config.source().steps():
        batch, _, _ = encode_batch(Batch(entry.inserts, entry.deletes), schema)
        synthesis = plan.step(state, batch, randomness)
        true = after(true, *(whole.encode(table) for table in (entry.inserts, entry.deletes)))
    rows = max(round(synthesis.total), 0)
    released = schema.with_derived(synthesis.sample(rows, run))
    names = whole.names
    lines = (config.path.parent / "districts.csv").read_text().splitlines()[1:]
    follows = dict(line.split(",") for line in lines)
    place = (names.index("zip"), names.index("district"))
    distance, others = 0.0, []
    for pair in combinations(range(len(names)), 2):
        one, other = (shares(codes, whole, pair) for codes in (true, released))
        apart = float(np.abs(one - other).sum())
        if set(pair) == set(place):
            distance = apart
        else:
            others.append(apart / 2)
    return distance, astray(released, whole, place, follows), float(np.mean(others))


def after(table: NDArray[np.int32], come: NDArray[np.int32], go: NDArray[np.int32]) -> NDArray[np.int32]:
    """The true table after a step: withdrawals repeat the values of what they withdraw."""
    rows, count = np.unique(np.concatenate([table, come, go]), axis=0, return_inverse=True)
    signs = np.concatenate([np.ones(len(table) + len(come)), -np.ones(len(go))])
    left = np.bincount(count.reshape(-1), signs, minlength=len(rows)).astype(np.int64)
    return np.repeat(rows, left, axis=0)


def shares(codes: NDArray[np.int32], schema: Schema, pair: tuple[int, int]) -> NDArray[np.float64]:
    counts = count_marginals(codes, schema.domain, [pair])[0]
    return counts / max(int(counts.sum()), 1)


def astray(
    codes: NDArray[np.int32], schema: Schema, place: tuple[int, int], follows: dict[str, str]
) -> float:
    """The share of records whose zip is in the file, and whose district is neither its own nor missing."""
    zips, districts = (schema.columns[k].labels() for k in place)
    declared = [zip_code in follows and zip_code != "other" for zip_code in zips]
    wrong = [
        [known and district not in (follows[zip_code], "missing") for district in districts]
        for known, zip_code in zip(declared, zips, strict=True)
    ]
    return float(np.array(wrong)[codes[:, place[0]], codes[:, place[1]]].mean())


def table(runs: int) -> str:
    lines = [
        f"Simulated evictions, step {STEPS}, epsilon 1, pooled, {runs} runs; mean (standard error)",
        "",
        f"{'stream':<18}{'workload':<11}{'district is':<12}{'L1 zip x district':>20}{'astray':>18}{'TV, others':>19}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for workload in WORKLOADS:
            for name, way in WAYS:
                found = []
                for run in range(runs):
                    config = config_of(Path(folder) / str(run), name, way, workload, run)
                    found.append(measure(config, run))
                cells = "".join(
                    f"{np.mean(x):>{width}.3f} ({np.std(x, ddof=1) / np.sqrt(runs):.3f})"
                    for x, width in zip(np.transpose(found), (12, 10, 11), strict=True)
                )
                lines.append(f"{name:<18}{workload:<11}{way:<12}{cells}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    text = table(given.runs)
    print(text)
    if given.out is not None:
        write_result(given.out, text)


if __name__ == "__main__":
    main()
