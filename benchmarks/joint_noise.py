"""Joint noise on histograms: pooled streams with noise = "joint" beside the same streams with noise of their own.

    python benchmarks/joint_noise.py [--repeats 4] [--epsilons 1] [--streams LIST]
        [--result benchmarks/results/joint_noise.txt]

Streams: ``columns`` (invented: 12 columns of three values, half of which drift slowly, 200 steps of 100 records);
``evictions`` and ``census`` (simulated); ``stock`` (simulated, inserts and deletes); Adult shuffled and sorted, batches
of 50, steps up to their middle only, where DPSTREAM_DATA is set. One: mean absolute error of a column's cell over the
true number of records, of what the released table answers. AvgWE and TV: of all pairs, as in ``changing_tables.py``.
Means over every tenth step from a tenth of the stream on, then over repetitions with real noise; in brackets the
standard error of the ratio. For evaluation only.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
from changing_tables import differences, moments
from changing_tables import run as run_keyed
from keyed_streams import load
from made_by import write_result

from dpstream.core.privacy import PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload, count_marginals
from dpstream.families.tabular import Pooled
from dpstream.families.tabular.joint_groups import deviations, draw_shares
from dpstream.lab.experiments import kumar_stream
from dpstream.lab.experiments.replayed_streams import ConfigSource
from dpstream.tools.evaluate import total_variation, workload_errors
from dpstream.tools.simulate import simulate

LONG = "about 10 minutes of one core"
KEYED = ("stock:200:3:60", "stock:5000:3:60", "stock:5000:60:100")
STREAMS = ("columns", "evictions", "census", "stock", "Adult-randomized-bs-50", "Adult-ordered-bs-50")
_Rows = np.ndarray


@dataclass(frozen=True, repr=False)
class Stream:
    """Rows that come and go, by step."""

    domain: Domain
    steps: tuple[tuple[_Rows, _Rows | None], ...]

    @property
    def deletions(self) -> bool:
        return self.steps[0][1] is not None


def columns(steps: int = 200, rows: int = 100, seed: int = 5) -> Stream:
    """Twelve columns of three values; each depends on the one before, and every second one drifts."""
    generator = np.random.default_rng(seed)
    start, way = generator.dirichlet(np.ones(3) * 2, 12), generator.dirichlet(np.ones(3) * 2, 12)
    batches = list[tuple[_Rows, _Rows | None]]()
    for step in range(steps):
        share, batch = step / steps, np.empty((rows, 12), dtype=np.int32)
        for column in range(12):
            law = (1 - share) * start[column] + share * way[column] if column % 2 else start[column]
            own = generator.choice(3, rows, p=law)
            copied = generator.random(rows) < 0.4
            batch[:, column] = np.where(copied, batch[:, column - 1], own) if column else own
        batches.append((batch, None))
    return Stream(Domain(tuple(f"c{i}" for i in range(12)), (3,) * 12), tuple(batches))


@cache
def stream(name: str) -> Stream:
    """A stream by name."""
    if name == "columns":
        return columns()
    if name in ("evictions", "census"):
        with tempfile.TemporaryDirectory() as folder:
            path = simulate(name, 60, Path(folder) / name, rows_per_step=300)
            replay = ConfigSource(name, path).load(0)
            return Stream(
                replay.domain,
                tuple((replay.inserts(step), replay.deletes(step)) for step in range(1, len(replay) + 1)),
            )
    if name == "stock":
        keyed = load("stock:2000:3:50", 0)
        every = (differences(moment) for _, moment in moments(keyed, keyed.steps, set()))
        return Stream(keyed.domain, tuple(every))
    replay = kumar_stream(name, Path(os.environ["DPSTREAM_DATA"]))
    half = len(replay) // 2
    return Stream(replay.domain, tuple((replay.inserts(step), None) for step in range(1, half + 1)))


def run(name: str, noise: str, epsilon: Fraction) -> np.ndarray:
    """One run: the means of the three errors."""
    own = stream(name)
    workload = Workload.all_k_way(own.domain, 2)
    cliques = (*((i,) for i in range(len(own.domain))), *workload.cliques)
    singles = len(own.domain)
    budget = PureDP.of(epsilon / 2 if own.deletions and name == "stock" else epsilon)
    recipe = Pooled(workload, deletions=own.deletions, noise=noise)  # type: ignore[arg-type]
    plan = recipe.calibrate(budget, horizon=len(own.steps))
    state, randomness, found = plan.start(), Randomness.system(), list[list[float]]()
    truth = [np.zeros(own.domain.cells(clique), dtype=np.int64) for clique in cliques]
    looked = set(range(max(1, len(own.steps) // 10), len(own.steps) + 1, max(1, len(own.steps) // 20)))
    for step, (came, left) in enumerate(own.steps, start=1):
        release = plan.step(state, EncodedBatch(own.domain, came, left), randomness)
        for sign, rows in ((1, came), (-1, left)):
            if rows is not None and len(rows):
                counted = count_marginals(rows, own.domain, cliques)
                truth = [t + sign * np.asarray(c) for t, c in zip(truth, counted, strict=True)]
        size = int(truth[0].sum())
        if step in looked and size > 0:
            made = [np.asarray(m, np.float64) for m in release.marginals(cliques)]
            pairs = list(zip(truth[singles:], made[singles:], strict=True))
            tv = np.nan_to_num([total_variation(a, b) for a, b in pairs], nan=1.0)
            found.append(
                [
                    workload_errors(truth[:singles], made[:singles], size).avg_we,
                    workload_errors(truth[singles:], made[singles:], size).avg_we,
                    float(tv.mean()),
                ]
            )
    return np.mean(found, axis=0)


def census_lines(names: Sequence[str], epsilons: Sequence[str], repeats: int) -> Iterator[str]:
    """One line a keyed stream and epsilon: censuses, the same stream for both kinds of noise in a repetition."""
    yield f"{'census of':<24}{'epsilon':>8}" + "".join(
        f"{what + ' apart':>13}{'joint':>10}{'ratio':>15}" for what in ("AvgWE", "TV")
    )
    for name in names:
        for epsilon in epsilons:
            found = np.zeros((repeats, 2, 2))
            for repeat in range(repeats):
                for place, noise in enumerate(("apart", "joint")):
                    points = run_keyed(name, f"census:noise={noise}", epsilon, repeat, True)[
                        "points"
                    ].values()
                    found[repeat, place] = [
                        np.mean([p[key] for p in points]) for key in ("we_model", "tv_model")
                    ]
            line = f"{name:<24}{epsilon:>8}"
            for kind in range(2):
                a, b = found[:, 0, kind], found[:, 1, kind]
                # Streams of a repetition are the same, so their ratios are compared.
                spread = (b / a).std(ddof=1) / math.sqrt(repeats)
                line += f"{a.mean():>13.5f}{b.mean():>10.5f}{f'{b.mean() / a.mean():.2f} ({spread:.2f})':>15}"
            yield line


def noise_lines() -> Iterator[str]:
    """What joint noise gains for all columns of each domain, by public arithmetic."""
    yield "Standard deviation of independent noise over that of joint noise, summed over columns"
    for label, sizes in (
        ("12 columns of 3", [3] * 12),
        ("20 columns of 5", [5] * 20),
        ("Adult's 13 columns", [2, 2, 5, 6, 7, 9, 15, 16, 42, 100, 99, 100, 10]),
        ("8 columns of 16", [16] * 8),
    ):
        found = 0.0
        for group, share in draw_shares(sizes, level=False):
            own = [sizes[place] for place in group]
            errors = deviations(own, level=False) if len(own) > 1 else {own[0]: math.sqrt(2.0)}
            found += sum(errors[cells] for cells in own) / float(share)
        yield f"{label:<24}{len(sizes) ** 2 * math.sqrt(2.0) / found:>8.2f}"


def measured_lines(epsilons: Sequence[str]) -> Iterator[str]:
    """What the runs of the stream of columns published of them: the noise of one epoch's count."""
    yield "Standard error of a column's cell as an epoch of the stream of columns measures it, in records"
    own = stream("columns")
    workload = Workload.all_k_way(own.domain, 2)
    for epsilon in epsilons:
        found = []
        for noise in ("apart", "joint"):
            recipe = Pooled(workload, noise=noise)  # type: ignore[arg-type]
            plan = recipe.calibrate(PureDP.of(epsilon), horizon=len(own.steps))
            state, randomness, variances = plan.start(), Randomness.system(), list[float]()
            for came, _ in own.steps:
                counts = plan.step(state, EncodedBatch(own.domain, came), randomness).noisy_counts
                every = [marginal for one in counts for marginal in one.marginals]
                variances += [one.variance for one in every if len(one.columns or ()) == 1]
            found.append(math.sqrt(float(np.mean(variances))))
        yield f"epsilon {epsilon}: apart {found[0]:.2f}, joint {found[1]:.2f}, ratio {found[0] / found[1]:.2f}"


def stream_lines(names: Sequence[str], epsilons: Sequence[str], repeats: int) -> Iterator[str]:
    """One line a stream and epsilon."""
    heads = "".join(f"{what + ' apart':>13}{'joint':>10}{'ratio':>15}" for what in ("One", "AvgWE", "TV"))
    yield f"{'stream':<24}{'epsilon':>8}{heads}"
    for name in names:
        for epsilon in epsilons:
            amount = Fraction(epsilon)
            apart = np.array([run(name, "apart", amount) for _ in range(repeats)])
            joint = np.array([run(name, "joint", amount) for _ in range(repeats)])
            line = f"{name:<24}{epsilon:>8}"
            for place in range(3):
                a, b = apart[:, place], joint[:, place]
                ratio = b.mean() / a.mean()
                spread = math.hypot(a.std(ddof=1) / a.mean(), b.std(ddof=1) / b.mean()) / math.sqrt(repeats)
                line += f"{a.mean():>13.5f}{b.mean():>10.5f}{f'{ratio:.2f} ({ratio * spread:.2f})':>15}"
            yield line


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--epsilons", default="1")
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--keyed", default=",".join(KEYED), help="streams of keyed records, for censuses")
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()
    names = [
        n
        for n in chosen.streams.split(",")
        if n and (not n.startswith("Adult") or "DPSTREAM_DATA" in os.environ)
    ]
    lines = []
    epsilons = chosen.epsilons.split(",")
    for line in (*noise_lines(), "", *measured_lines(epsilons), ""):
        print(line, flush=True)
        lines.append(line)
    keyed = [name for name in chosen.keyed.split(",") if name]
    for line in chain(
        stream_lines(names, epsilons, chosen.repeats) if names else (),
        [""],
        census_lines(keyed, epsilons, chosen.repeats) if keyed else (),
    ):
        print(line, flush=True)
        lines.append(line)
    if chosen.result:
        write_result(chosen.result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
