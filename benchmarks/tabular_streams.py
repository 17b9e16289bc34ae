"""DP-STabS and the baseline on the paper's streams, beside the published numbers.

    DPSTREAM_DATA=... python benchmarks/tabular_streams.py [--streams ...] [--methods ...] [--repeats N]

Real noise from the operating system: numbers vary from run to run. AvgWE and MaxWE are means over the last
ten steps (Kumar et al., Tables 1 to 3; epsilon 1). Times are CPU milliseconds per step, without publishing.
These figures compare with private truth: evaluation only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import kumar_streams
import numpy as np

from dpstream.evaluate import workload_errors
from dpstream.privacy import Randomness
from dpstream.tables import EncodedBatch, Workload, count_marginals
from dpstream.tabular import MWEMPGM, Baseline, DPStabs

PUBLISHED = {
    ("Eviction-weekly", "dpstabs"): (0.0140, 0.0436),
    ("Eviction-weekly", "baseline"): (0.0219, 0.0378),
    ("Eviction-bi-weekly", "dpstabs"): (0.0082, 0.0411),
    ("Eviction-bi-weekly", "baseline"): (0.0100, 0.0331),
    ("Adult-randomized-bs-50", "dpstabs"): (0.0079, 0.0514),
    ("Adult-randomized-bs-50", "baseline"): (0.0103, 0.0712),
    ("Adult-randomized-bs-200", "dpstabs"): (0.0044, 0.0249),
    ("Adult-randomized-bs-200", "baseline"): (0.0065, 0.0323),
    ("Adult-ordered-bs-50", "dpstabs"): (0.0080, 0.0547),
    ("Adult-ordered-bs-50", "baseline"): (0.0102, 0.0695),
    ("Adult-ordered-bs-200", "dpstabs"): (0.0043, 0.0232),
    ("Adult-ordered-bs-200", "baseline"): (0.0060, 0.0302),
}
LONG = "about 40 minutes"
METHODS = ("dpstabs", "dpstabs-block", "dpstabs-literal", "baseline", "baseline-uniform")


def recipe(method: str, workload: Workload, options: dict[str, Any]) -> DPStabs | Baseline:
    """A method by name, with options that override its defaults."""
    if method.startswith("baseline"):
        offline = MWEMPGM(**options) if options else None
        return Baseline(workload, offline, prior="uniform" if method.endswith("-uniform") else "previous")
    if method == "dpstabs-literal":
        options = {"past": "literal", "aggregate": "average", "score": "mean", **options}
    if method == "dpstabs-block":
        options = {"counter": "block", **options}
    return DPStabs(workload, **options)


def run(task: tuple[str, str, str, int, dict[str, Any], int | None]) -> dict[str, Any]:
    """One stream, one method, one repetition."""
    name, method, epsilon, repeat, options, limit = task
    stream = kumar_streams.load(name, seed=repeat)
    workload = Workload.all_k_way(stream.domain, 2)
    plan = recipe(method, workload, options).calibrate(epsilon=epsilon, horizon=len(stream))
    state, randomness = plan.start(), Randomness.system()
    steps = min(len(stream), limit or len(stream))
    spent: list[float] = []
    errors = []
    every = max(1, steps // 10)
    for step in range(1, steps + 1):
        batch = EncodedBatch(stream.domain, stream.batch(step))
        begin = time.process_time()
        synthesis = plan.step(state, batch, randomness)
        spent.append(time.process_time() - begin)
        if step % every == 0 or step > steps - 10:
            rows = stream.codes[: stream.borders[step]]
            truth = count_marginals(rows, stream.domain, workload.cliques)
            found = workload_errors(truth, synthesis.marginals(workload.cliques), len(rows))
            errors.append((step, found.avg_we, found.max_we, found.avg_l1))
    last = np.array([e[1:] for e in errors if e[0] > steps - 10]).mean(axis=0)
    return {
        "stream": name,
        "method": method,
        "epsilon": epsilon,
        "options": {k: str(v) for k, v in options.items()},
        "AvgWE": float(last[0]),
        "MaxWE": float(last[1]),
        "L1": float(last[2]),
        "ms_per_step": 1000 * statistics.median(spent),
        "path": [(e[0], round(e[1], 5)) for e in errors[:: max(1, len(errors) // 10)]],
    }


def main() -> None:
    """Run all tasks on two processes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", nargs="+", default=list(kumar_streams.STREAMS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None, help="only the first steps")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON, for all methods")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    tasks = [
        (s, m, chosen.epsilon, r, chosen.options, chosen.steps)
        for s in chosen.streams
        for m in chosen.methods
        for r in range(chosen.repeats)
    ]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for result in pool.map(run, tasks):
            groups.setdefault((result["stream"], result["method"]), []).append(result)
    lines = [
        "| stream | method | AvgWE (range) | paper | MaxWE (range) | paper | L1 | CPU ms/step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (stream, method), results in groups.items():
        paper = PUBLISHED.get((stream, method.split("-")[0]), (float("nan"), float("nan")))
        cells = [stream, method]
        for key, published in zip(("AvgWE", "MaxWE"), paper, strict=True):
            values = [r[key] for r in results]
            cells += [
                f"{np.mean(values):.4f} ({min(values):.4f}-{max(values):.4f})",
                f"{published:.4f}",
            ]
        cells += [f"{np.mean([r['L1'] for r in results]):.3f}"]
        cells += [f"{statistics.median(r['ms_per_step'] for r in results):.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    table = "\n".join(lines)
    print(table)
    if chosen.out:
        chosen.out.write_text(
            f"epsilon {chosen.epsilon}, {chosen.repeats} repetitions, mean of the last ten steps; "
            f"options {chosen.options or 'default'}\n\n{table}\n"
        )


if __name__ == "__main__":
    main()
