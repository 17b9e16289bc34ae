"""Public priors: what a good one brings, and what a stale and wrong ones cost.

    python benchmarks/priors.py [--runs 5] [--stream TITLE] [--prior NAME] [--out benchmarks/results/priors.md]

Three simulated streams (evictions and census of ``dpstream simulate``, and evictions of 1,000 notices a week), the
default mechanism at epsilon 1. Priors: *good*, another draw of the same stream; *few*, 300 records of it; *pair*, its
first two columns alone; *stale*, another draw of steps that come 150 steps later; *one column* of the good one
relabelled; *relabelled*, every column; *independent*, the good columns without any dependence; *sorted*, the good
columns with false dependences; *uniform*; *point*, one record 5,000 times. Medians over runs, each with the same noise
as the run without a prior as long as both draw alike; ratios are those of a run to its partner. Evaluation only: it
knows the truth.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from made_by import write_result
from numpy.typing import NDArray

from dpstream.core.contracts import PublicPrior
from dpstream.core.privacy import Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled
from dpstream.project import Config
from dpstream.stream import Batch
from dpstream.stream.admission import encode_batch
from dpstream.tools.evaluate import workload_errors
from dpstream.tools.simulate import simulate

LONG = "about 5 minutes of one core"
#: Name, simulated stream, records of a step, steps that are looked at, how many times the runs: with few records chance
#: is larger.
STREAMS = (
    ("evictions", "evictions", 120, (7, 15, 30), 2),
    ("census", "census", 50, (10, 20, 40), 2),
    ("evictions, large", "evictions", 1000, (7, 15, 30), 1),
)
LATER = 150
Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Stream:
    """A simulated stream: its batches, and all its inserted records."""

    config: Config
    batches: list[EncodedBatch]
    codes: list[Codes]


def stream(name: str, steps: int, seed: int, rows: int) -> Stream:
    """Simulate, and encode."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config.load(simulate(name, steps, folder, seed=seed, rows_per_step=rows))
        schema = config.schema()
        found = list(config.source().steps(1))
        batches = [encode_batch(Batch(one.inserts, one.deletes), schema)[0] for one in found]
        return Stream(config, batches, [schema.encode(one.inserts) for one in found])


def prior_of(domain: Domain, codes: Codes, columns: tuple[int, ...] | None = None) -> PublicPrior:
    """Records as a prior."""
    own = tuple(range(len(domain))) if columns is None else columns
    return PublicPrior(domain, own, codes[:, own], np.ones(len(codes)), {})


def priors(domain: Domain, good: Codes, stale: Codes) -> dict[str, PublicPrior | None]:
    """All priors by name."""
    generator, each = np.random.default_rng(5), range(len(domain))

    def renamed(column: int) -> NDArray[Any]:
        return generator.permutation(domain.sizes[column])[good[:, column]]

    one = good.copy()
    one[:, 1] = renamed(1)
    ordered = [np.sort(good[:, i])[:: 1 if i % 2 else -1] for i in each]
    uniform = [generator.integers(0, size, 5000) for size in domain.sizes]
    tables = {
        "good": good,
        "few": good[generator.choice(len(good), 300)],
        "stale": stale,
        "one column": one,
        "relabelled": np.column_stack([renamed(i) for i in each]),
        "independent": np.column_stack([generator.permutation(good[:, i]) for i in each]),
        "sorted": np.column_stack(ordered),
        "uniform": np.column_stack(uniform),
        "point": np.repeat(good[:1], 5000, axis=0),
    }
    made = {name: prior_of(domain, codes.astype(np.int32)) for name, codes in tables.items()}
    return {"none": None, "good": made["good"], "pair": prior_of(domain, good, (0, 1)), **made}


def measures(truth: list[NDArray[Any]], made: list[NDArray[Any]]) -> tuple[float, float, float]:
    """AvgWE, the mean total variation of the pairs, and the first pair's L1 distance."""
    apart = [
        float(np.abs(a / max(a.sum(), 1) - b / max(b.sum(), 1)).sum())
        for a, b in zip(truth, made, strict=True)
    ]
    errors = workload_errors(truth, made, int(truth[0].sum()))
    return errors.avg_we, float(np.mean(apart)) / 2, apart[0]


def one_stream(
    name: str, rows: int, steps: tuple[int, ...], runs: int, only: str | None = None
) -> list[list[str]]:
    """The lines of the table of one stream; ``only``: one prior, beside none."""
    own, last = stream(name, steps[-1], 0, rows), steps[-1]
    good, stale = (stream(name, last + later, seed, rows) for later, seed in ((0, 77), (LATER, 78)))
    recipe, domain = own.config.recipe, own.config.schema().domain
    assert isinstance(recipe, Pooled)
    cliques = Workload.all_k_way(domain, 2).cliques
    counts = [batch.count(cliques) for batch in own.batches]
    truth = {at: [np.sum(one, axis=0) for one in zip(*counts[:at], strict=True)] for at in steps}
    found = dict[str, list[list[tuple[float, float, float]]]]()
    choice = priors(domain, np.concatenate(good.codes), np.concatenate(stale.codes[-last:]))
    for label, prior in choice.items():
        if only is not None and label not in ("none", only):
            continue
        plan = replace(recipe, prior=prior).calibrate(epsilon=1, horizon=own.config.budget.horizon)
        for run in range(runs):
            state, randomness = plan.start(), Randomness.seeded(run)
            made = [plan.step(state, batch, randomness) for batch in own.batches]
            found.setdefault(label, []).append(
                [measures(truth[at], made[at - 1].marginals(cliques)) for at in steps]
            )
    values = {label: np.array(one) for label, one in found.items()}
    lines = []
    for label, value in values.items():
        cells = [label]
        for i in range(len(steps)):
            ratio = np.median(value[:, i, :2] / values["none"][:, i, :2], axis=0)
            cells += [f"{ratio[0]:.2f}", f"{ratio[1]:.2f}", f"{np.median(value[:, i, 2]):.2f}"]
        lines.append(cells)
    return lines


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--stream", choices=[title for title, *_ in STREAMS], help="one of the streams")
    parser.add_argument("--prior", help="one of the priors")
    parser.add_argument("--out", type=Path, help="also write the lines here")
    options = parser.parse_args()
    text = [
        "Medians over runs: AvgWE and mean total variation of the pairs (TV), each as a ratio to the "
        "same run without a prior; L1: of the first pair (evictions: ZIP code and district), as it is.",
    ]
    for title, name, rows, steps, times in STREAMS:
        if options.stream not in (None, title):
            continue
        heads = ["prior", *(f"step {at}: {what}" for at in steps for what in ("AvgWE", "TV", "L1"))]
        lines = one_stream(name, rows, steps, times * options.runs, options.prior)
        text += ["", f"## {title}: {rows} records a step, {times * options.runs} runs", ""]
        text += [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines)]
        print("\n".join(text[-len(lines) - 4 :]), flush=True)
    if options.out is not None:
        write_result(options.out, "# Public priors\n\n" + "\n".join(text) + "\n")


if __name__ == "__main__":
    main()
