"""Where the default loses: beside the other mechanisms of tables, over each tenth of streams of many kinds.

    python benchmarks/no_loss.py [--quick] [--out FOLDER] [--streams LIST] [--methods LIST] [--epsilons 1]
        [--repeats 5] [--result benchmarks/results/no_loss.txt]

Records only come. Streams: invented ones (``inserted_streams.py``: shuffled, sorted, with seasons, with drift, with
both, short) and the tables of DPSTREAM_DATA as they come. Runs are those of ``changing_tables.py`` (one JSON line each
in the output folder, which is private); those that are there with the same options are not repeated. ``default`` is
what ``dpstream init`` drafts, with a coarse guess of the records a step, and with the season where a stream has one; of
sorted records, what ``plan --compare`` takes (it says so where that is another mechanism).

Each line: the first method's AvgWE and total variation (each table as shares of its own size), means over each tenth of
the stream, beside the best of the others in that tenth (its mean over the repetitions). The ratio of their means stands
with the half width of its 95 % interval (t, of the logarithms of paired runs: same stream, other noise).
``!`` marks ratios over 1.10. For evaluation only.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from changing_tables import Run, is_same, read, run
from inserted_streams import TUNED
from keyed_streams import is_there, load
from made_by import write_result

from dpstream.io.sinks.simulated_errors import t_factor
from dpstream.lab.experiments.private_output import PrivateFolder
from dpstream.project import Config
from dpstream.tools.choosing import compare_mechanisms

LONG = "about an hour of one core; --quick: 4 minutes"
#: 96 months and 29,787 records: the size of a register on which the default was seen to lose.
STREAMS = (
    "inserts:shuffled:20000:100", "inserts:sorted:20000:100", "inserts:season:29787:96", "inserts:drift:20000:100",
    "inserts:both:29787:96", "inserts:shuffled:3000:12", "inserts:both:3000:24",
    *(f"inserts:{name}" for name in TUNED),
    "inserts:adult:sorted", "inserts:eviction:week", "inserts:hotel:week", "inserts:hotel:month",
    "inserts:satellites:month", "inserts:satellites:year",
)  # fmt: skip
QUICK = (
    "inserts:shuffled:10000:60",
    "inserts:sorted:10000:60",
    "inserts:both:18000:60",
    "inserts:both:3000:12",
)
#: ``default``: what ``dpstream init`` drafts, for an owner who knows what anybody may know of the stream (``in_full``).
METHODS = ("default", "pooled", "dpstabs", "baseline", "aim")
QUICK_METHODS = ("default", "pooled", "dpstabs", "baseline")
#: Public knowledge: how many steps a year has.
YEARS = {
    "inserts:season": "12", "inserts:both": "12", "inserts:eviction:week": "1461/28",
    "inserts:eviction:month": "1461/112", "inserts:hotel:week": "1461/28", "inserts:hotel:month": "12",
}  # fmt: skip
#: Steps of each tenth that are compared with the truth, at most.
_POINTS = 4
TENTHS = range(10)


@cache
def in_full(method: str, stream: str, budget: str) -> str:
    """The method with its options; only ``default`` depends on the stream, by public facts.

    These are its season; about how many records a step holds (1, 3, 10, 30, ...); and whether the
    records come sorted. If they do, it is what ``plan --compare`` takes, which reads no data.
    """
    if method != "default":
        return method
    facts = load(stream, 0)
    coming = coarse(facts.records_per_step)
    year = next((steps for start, steps in YEARS.items() if stream.startswith(start)), None)
    drafted = ":".join(["pooled", f"first_records={coming}", *([f"season={year}"] if year else [])])
    if "sorted" not in stream:
        return drafted
    picked = sorted_choice(facts.domain.sizes, facts.steps, coming, budget)
    return {"pooled": drafted, "baseline (offline = aim)": "aim"}.get(picked, picked)


def coarse(records: float) -> int:
    """The nearest of 1, 3, 10, 30, ..., as a guess of somebody who knows about how many there are.

    >>> [coarse(number) for number in (0.2, 1.8, 200, 1667, 4500)]
    [1, 3, 300, 1000, 3000]
    """
    guesses = [digit * 10**power for power in range(9) for digit in (1, 3)]
    return min(guesses, key=lambda one: abs(math.log(one / max(records, 1e-9))))


def sorted_choice(sizes: Sequence[int], steps: int, coming: int, budget: str) -> str:
    """The mechanism that ``plan --compare`` takes for sorted records of these columns; two runs of each."""
    epsilon, _, delta = budget.partition(",")
    columns = "".join(
        f'[schema.columns.c{i}]\ntype = "categorical"\nvalues = {json.dumps([f"v{j}" for j in range(size)])}\n'
        for i, size in enumerate(sizes)
    )
    amount = f'epsilon = "{epsilon}"\n' + (f'delta = "{delta}"\n' if delta else "")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dpstream.toml"
        file.write_text(
            f'format = 1\n[stream]\nname = "sorted"\n[source]\npath = "*.csv"\ntime_column = "step"\nend = {steps}\n'
            f'[mechanism]\nname = "pooled"\n[budget]\n{amount}horizon = {steps}\n'
            f'[expect]\nrecords_per_step = {coming}\norder = "sorted"\n{columns}',
            encoding="utf-8",
        )
        return compare_mechanisms(Config.load(file), runs=2, seconds=600).recommendation.mechanism


def tenth(step: int, steps: int) -> int:
    """Which tenth a step belongs to, from 0.

    >>> [tenth(step, 12) for step in (1, 2, 6, 12)]
    [0, 1, 4, 9]
    """
    return -(-10 * step // steps) - 1


def points(steps: int) -> set[int]:
    """A few steps of each tenth, evenly apart."""
    every = max(1, steps // (10 * _POINTS))
    return set(range(every, steps + 1, every))


def by_tenth(runs: Sequence[Run], measure: str) -> np.ndarray:
    """Means over each tenth, shape (runs, 10); NaN where a short stream has no step in one."""
    found = np.full((len(runs), len(TENTHS)), math.nan)
    for i, one in enumerate(runs):
        for t in TENTHS:
            own = [p[measure] for step, p in one["points"].items() if tenth(int(step), one["steps"]) == t]
            found[i, t] = np.mean(own) if own else math.nan
    return found


def ratio(own: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Of two means of paired runs, and the factor by which its 95 % interval reaches up."""
    apart = np.log(own / other)
    if len(own) < 2:
        return float(own.mean() / other.mean()), math.nan
    width = t_factor(len(own) - 1) * apart.std(ddof=1) / math.sqrt(len(own))
    return float(own.mean() / other.mean()), float(np.expm1(width))


def table(runs: Mapping[tuple[str, str, str, int], Run], chosen: argparse.Namespace) -> Iterator[str]:
    """The lines of the result."""
    first, *others = chosen.methods
    lost = cells = 0
    for stream in chosen.streams:
        for epsilon in chosen.epsilons:
            own = {
                name: [
                    runs[key]
                    for r in range(chosen.repeats)
                    if (key := (stream, in_full(name, stream, epsilon), epsilon, r)) in runs
                ]
                for name in chosen.methods
            }
            if not own[first]:
                continue
            tuned = (
                ""
                if not own[first][0]["real"]
                else " (tuned on)"
                if stream[8:] in TUNED
                else " (only reported)"
            )
            name = own[first][0]["method"]
            picked = f"; default: {name}" if first == "default" and not name.startswith("pooled") else ""
            told = f"{len(own[first])} runs, {own[first][0]['steps']} steps{picked}"
            yield f"\n{stream}{tuned}, epsilon {epsilon}, {told}"
            for measure, label in (("we_model", "AvgWE"), ("tv_model", "TV")):
                found = {name: by_tenth(some, measure) for name, some in own.items() if some}
                rows = {name: [f"  {label:6}{name:26}"] for name in found}
                rows["ratio"] = [f"  {label:6}{'to the best other':26}"]
                for t in TENTHS:
                    for name, values in found.items():
                        rows[name].append(f"{values[:, t].mean():9.4f}  ")
                    rivals = {name: found[name][:, t] for name in others if name in found}
                    if not rivals or np.isnan(found[first][0, t]):
                        rows["ratio"].append(f"{'':11}")
                        continue
                    best = min(rivals.values(), key=lambda values: float(values.mean()))
                    value, width = ratio(found[first][: len(best), t], best)
                    lost, cells = lost + (value > 1.10), cells + 1
                    rows["ratio"].append(f"{value:5.2f}{'!' if value > 1.10 else ' '}±{width:3.0%} ")
                for row in rows.values():
                    yield "".join(row).rstrip()
    yield f"\n{lost} of {cells} tenths are over 1.10 times the best other mechanism."


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="four small streams, two runs")
    parser.add_argument("--out", default="no-loss")
    parser.add_argument("--streams", nargs="+")
    parser.add_argument("--methods", nargs="+", help="the first one is compared with the others")
    parser.add_argument("--epsilons", nargs="+", default=["1"])
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()
    chosen.streams = chosen.streams or list(QUICK if chosen.quick else STREAMS)
    chosen.methods = chosen.methods or list(QUICK_METHODS if chosen.quick else METHODS)
    chosen.repeats = chosen.repeats or (2 if chosen.quick else 5)
    path = PrivateFolder(chosen.out) / "runs.jsonl"
    there = read(path)
    for stream in chosen.streams:
        if not is_there(stream):
            print(f"{stream}: skipped, the data are not here (DPSTREAM_DATA)", flush=True)
            continue
        for repeat in range(chosen.repeats):
            for epsilon in chosen.epsilons:
                for method in chosen.methods:
                    name = in_full(method, stream, epsilon)
                    key = (stream, name, epsilon, repeat)
                    if key in there and is_same(there[key], False):
                        continue
                    there[key] = run(stream, name, epsilon, repeat, False, points)
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(there[key]) + "\n")
                    print(
                        f"{stream} {epsilon} {name} {repeat}: {there[key]['cpu_ms']:.0f} ms/step", flush=True
                    )
    lines = "\n".join(table(there, chosen))
    print(lines)
    if chosen.result:
        write_result(chosen.result, f"{lines}\n")


if __name__ == "__main__":
    main()
