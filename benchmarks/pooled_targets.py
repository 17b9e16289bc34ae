"""Pooled streams on the paper's six: errors at the end and over the whole stream, staleness, churn, time.

    python benchmarks/pooled_targets.py [--out FOLDER] [--result benchmarks/results/pooled_targets.txt]
        [--streams LIST] [--epsilons LIST] [--methods LIST] [--repeats 5] [--jobs 1]

Needs DPSTREAM_DATA. Every run is a small file in the output folder, which is private (it is computed from private
tables); runs that are there with the same settings are not repeated, so the benchmark can be stopped and continued.
Methods: pooled; dpstabs (our DP-STabS with its defaults); offline (one AIM run on the final table at the same pure
epsilon). Real noise from the operating system; a randomized stream has another order at every repetition.

"End" is the mean over the last ten steps, as in the paper's tables. "Printed" is the better of the paper's baseline
and proposed columns; the targets are 0.2 of it at epsilon 0.5 and 1, and 0.25 at 2 and 4. "Against DP-STabS": means
over the repetitions at every tenth step from 5 % of the horizon on; the mean of their ratios and the largest. "3-way":
mean L1 error of all marginals of three columns of a table drawn at the end, as large as the true one. "Stale": the
largest share of the rows so far that no measurement has seen, at steps after 500 rows. "Churn": mean total variation
between successive releases' pairs in the last ten steps. "Parts" at the end: AvgWE of the very last release, where
nothing is stale, and of a model of the same marginals without any noise, what the model itself cannot hold; also of
offline AIM. For evaluation only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from made_by import write_result

from dpstream.core.contracts import StreamPlan
from dpstream.core.graphical import Measurement, Model, fit
from dpstream.core.privacy import Event, PureDP, Randomness
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload, count_marginals
from dpstream.families.tabular import DPStabs, Pooled
from dpstream.families.tabular.pooled_state import PooledState
from dpstream.lab.experiments import KUMAR_STREAMS, Replay, data_folder, kumar_stream, published_kumar
from dpstream.lab.experiments.private_output import PrivateFolder
from dpstream.mechanisms.aim import AIM
from dpstream.tools.evaluate import churn, workload_errors
from dpstream.tools.evaluate.true_table import TrueTable

LONG = "about an hour and a half of one core; most of it DP-STabS"

PLANS: dict[str, Callable[[Workload], Pooled | DPStabs]] = {"pooled": Pooled, "dpstabs": DPStabs}
#: In the order in which they are run: the slow one last.
METHODS = ("pooled", "offline", "dpstabs")
LAST, EVERY, SMALL = 10, 10, 500
Run = dict[str, Any]
Key = tuple[str, str, str]


def stream_run(stream: Replay, plan: StreamPlan, workload: Workload) -> Run:
    """One run of a whole stream."""
    table, state, randomness = TrueTable(stream.domain), plan.start(), Randomness.system()
    steps, cpu, points = len(stream), 0.0, dict[int, float]()
    last: list[tuple[list[Any], float, float]] = []
    moved: list[float] = []
    for step in range(1, steps + 1):
        batch = stream.batch(step)
        table.add(batch)
        began = time.process_time()
        release = plan.step(state, batch, randomness)
        cpu += time.process_time() - began
        if step % EVERY and step <= steps - LAST:
            continue
        found = release.marginals(workload.cliques)
        errors = workload_errors(table.marginals(workload.cliques), found, table.records)
        points[step] = errors.as_dict()["AvgWE"]
        if step > steps - LAST:
            if last:
                moved.append(churn(last[-1][0], found))
            last.append((found, errors.as_dict()["AvgWE"], errors.as_dict()["MaxWE"]))
    return {
        "points": points,
        "avg": float(np.mean([one[1] for one in last])),
        "fresh": last[-1][1],
        "model": model_part(table, state.table.cliques, workload) if isinstance(state, PooledState) else None,
        "max": float(np.mean([one[2] for one in last])),
        "three": three_way(table, release.sample(table.records, 1)),
        "churn": float(np.mean(moved)),
        "milliseconds": 1000 * cpu / steps,
        "stale": staleness(stream, plan),
        "steps": steps,
        "options": plan.options(),
    }


def offline_run(stream: Replay, epsilon: str, workload: Workload) -> Run:
    """One AIM run on the final table."""
    table = TrueTable(stream.domain)
    for step in range(1, len(stream) + 1):
        table.add(stream.batch(step))
    plan = AIM().calibrate(workload, PureDP.of(epsilon), Event())
    began = time.process_time()
    model: Model = plan.run_on(table.marginals(plan.counted), Randomness.system()).model
    cpu = time.process_time() - began
    found = model.marginals(workload.cliques)
    errors = workload_errors(table.marginals(workload.cliques), found, table.records)
    return {
        "avg": errors.as_dict()["AvgWE"],
        "max": errors.as_dict()["MaxWE"],
        "model": model_part(table, model.cliques, workload),
        "three": three_way(table, model.sample(table.records, 1)),
        "milliseconds": 1000 * cpu,
        "options": plan.options(),
    }


def model_part(table: TrueTable, cliques: Sequence[Clique], workload: Workload) -> float:
    """AvgWE of the model of some marginals, and of all columns, without noise."""
    measured = [*((column,) for column in range(len(table.domain))), *cliques]
    exact = zip(measured, table.marginals(measured), strict=True)
    targets = [Measurement(clique, true.astype(np.float64), 1.0) for clique, true in exact]
    model = fit(table.domain, targets, total=table.records, iterations=300, max_cells=10**9)
    found = model.marginals(workload.cliques)
    return workload_errors(table.marginals(workload.cliques), found, table.records).as_dict()["AvgWE"]


def three_way(table: TrueTable, rows: np.ndarray) -> float:
    """Mean L1 error over all marginals of three columns, in shares of the table."""
    cliques = list(combinations(range(len(table.domain)), 3))
    found = []
    for start in range(0, len(cliques), 100):
        some = cliques[start : start + 100]
        pairs = zip(table.marginals(some), count_marginals(rows, table.domain, some), strict=True)
        found += [np.abs(true - made).sum() / table.records for true, made in pairs]
    return float(np.mean(found))


def staleness(stream: Replay, plan: StreamPlan) -> float:
    """The largest share of rows that no measurement has seen, after the first 500."""
    epochs = getattr(plan, "epochs", None)
    if epochs is None:
        return 0.0
    border, following, worst = 0, epochs.after(0), 0.0
    for step in range(1, len(stream) + 1):
        if step == following:
            border, following = step, epochs.after(step)
        rows = int(stream.borders[step])
        if rows > SMALL:
            worst = max(worst, (rows - int(stream.borders[border])) / rows)
    return worst


def one_run(job: tuple[str, str, str, int, str, str]) -> str:
    """Do one run and write its file; nothing where it is there already."""
    name, epsilon, method, repeat, data, out = job
    stream = kumar_stream(name, Path(data), seed=repeat if "randomized" in name else 0)
    workload = Workload.all_k_way(stream.domain, 2)
    path = Path(out) / f"{name}--{epsilon}--{method}--{repeat}.json"
    plan = (
        PLANS[method](workload).calibrate(epsilon=epsilon, horizon=len(stream)) if method in PLANS else None
    )
    aim = AIM().calibrate(workload, PureDP.of(epsilon), Event())
    options = json.dumps(aim.options() if plan is None else plan.options(), sort_keys=True)
    if path.exists() and json.dumps(json.loads(path.read_text())["options"], sort_keys=True) == options:
        return f"{path.stem}: there"
    found = offline_run(stream, epsilon, workload) if plan is None else stream_run(stream, plan, workload)
    path.write_text(json.dumps(found))
    return f"{path.stem}: {found['avg']:.5f}"


def load(out: Path, key: Key, repeats: int) -> list[Run]:
    """The runs that are there."""
    files = [out / f"{key[0]}--{key[1]}--{key[2]}--{repeat}.json" for repeat in range(repeats)]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def mean(runs: Sequence[Run], what: str) -> float:
    """Over the repetitions; NaN where there are none."""
    return statistics.fmean(run[what] for run in runs) if runs else float("nan")


def against(pooled: Sequence[Run], dpstabs: Sequence[Run]) -> tuple[float, float, float]:
    """Ratios of AvgWE over the stream, from 5 % of it on: mean, largest, and the share that is at most 0.5."""
    if not pooled or not dpstabs:
        return (float("nan"),) * 3
    steps = pooled[0]["steps"]
    wanted = [str(step) for step in range(EVERY, steps + 1, EVERY) if step >= 0.05 * steps]
    ratios = [
        statistics.fmean(run["points"][step] for run in pooled)
        / statistics.fmean(run["points"][step] for run in dpstabs)
        for step in wanted
    ]
    return statistics.fmean(ratios), max(ratios), statistics.fmean(ratio <= 0.5 for ratio in ratios)


def table(out: Path, streams: Sequence[str], epsilons: Sequence[str], repeats: int) -> Iterator[str]:
    """The lines of the result."""
    printed = published_kumar()
    yield (
        f"{'stream':24}{'eps':>4}{'runs':>5} | {'AvgWE':>8}{'printed':>8}{'of it':>6} | {'MaxWE':>7}{'printed':>8}"
        f"{'of it':>6} |{'target':>7}{'':5}| {'to DP-STabS: mean':>17}{'max':>6}{'<=0.5':>6} | "
        f"{'parts: fresh':>12}{'model':>8} | {'offline':>8}{'model':>8}{'times':>6} | "
        f"{'3-way':>6}{'DP-ST.':>7} | {'stale':>6}{'churn':>7}{'ms/step':>8}{'DP-ST.':>7}"
    )
    met, cells = 0, 0
    for stream in streams:
        for epsilon in epsilons:
            own, offline, other = (load(out, (stream, epsilon, m), repeats) for m in METHODS)
            if not own:
                continue
            best = [
                min(
                    printed[stream, Fraction(epsilon), metric, m].value
                    for m in ("baseline", "proposed-simple")
                )
                for metric in ("AvgWE", "MaxWE")
            ]
            target = 0.2 if Fraction(epsilon) <= 1 else 0.25
            shares = mean(own, "avg") / best[0], mean(own, "max") / best[1]
            met, cells = met + sum(share <= target for share in shares), cells + 2
            ratios = against(own, other)
            marks = "".join("+" if share <= target else "-" for share in shares)
            yield (
                f"{stream:24}{epsilon:>4}{len(own):>5} | {mean(own, 'avg'):8.5f}{best[0]:8.4f}{shares[0]:6.2f} | "
                f"{mean(own, 'max'):7.4f}{best[1]:8.4f}{shares[1]:6.2f} |{target:7.2f}{marks:>4} | "
                f"{ratios[0]:17.2f}{ratios[1]:6.2f}{ratios[2]:6.0%} | {mean(own, 'fresh'):12.5f}"
                f"{mean(own, 'model'):8.5f} | {mean(offline, 'avg'):8.5f}{mean(offline, 'model'):8.5f}"
                f"{mean(own, 'avg') / mean(offline, 'avg'):6.2f} | "
                f"{mean(own, 'three'):6.3f}{mean(other, 'three'):7.3f} | "
                f"{mean(own, 'stale'):6.1%}{mean(own, 'churn'):7.4f}{mean(own, 'milliseconds'):8.1f}"
                f"{mean(other, 'milliseconds'):7.1f}"
            )
    yield f"\n{met} of {cells} end-of-stream targets are met (+ AvgWE, + MaxWE; - missed)."


def words(text: str | None, known: Sequence[str]) -> list[str]:
    """A list from the command line."""
    return list(known) if text is None else text.split(",")


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="pooled-targets")
    parser.add_argument("--result")
    for name in ("--streams", "--epsilons", "--methods"):
        parser.add_argument(name)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    data, out = data_folder(None), PrivateFolder(args.out).path
    streams, epsilons = words(args.streams, KUMAR_STREAMS), words(args.epsilons, ("0.5", "1", "2", "4"))
    methods = words(args.methods, METHODS)
    jobs = [
        (stream, epsilon, method, repeat, str(data), str(out))
        for method in methods
        for repeat in range(args.repeats)
        for epsilon in epsilons
        for stream in streams
    ]
    if args.jobs == 1:
        for job in jobs:
            print(one_run(job), flush=True)
    else:
        with ProcessPoolExecutor(args.jobs) as pool:
            for line in pool.map(one_run, jobs):
                print(line, flush=True)
    lines = "\n".join(table(out, streams, epsilons, args.repeats))
    print("\n" + lines)
    if args.result:
        write_result(Path(args.result), f"{lines}\n")


if __name__ == "__main__":
    main()
