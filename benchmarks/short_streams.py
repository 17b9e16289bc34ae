"""Short streams: the default mechanism beside DP-STabS, after a few steps of a few hundred or thousand records.

The two simulated streams of tables (evictions: inserts and deletes, 8 columns, most of them boolean; census: inserts,
8 columns, sorted by region), 100 and 1,000 records a step, stopped after 3, 6, 12 and 20 steps. Mean cell error (AvgWE)
of all pairs, over the last ten steps or all if there are fewer, mean of the repetitions. ``all`` is DP-STabS with every
pair measured at every step, which is what gives counts error bars.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from dpstream.lab.experiments import Comparison
from dpstream.tools.simulate import simulate

LONG = "about 10 minutes of one core"
STEPS = (3, 6, 12, 20)
RECORDS = (100, 1_000)
EPSILONS = ("0.5", "1", "4")
METHODS = {"pooled": "", "dpstabs": "", "all": 'name = "dpstabs"\nk = 28\n'}


def comparison(folder: Path, steps: int, repeats: int) -> Path:
    """The file of one comparison; its streams are there already."""
    streams = [f"{name}-{rows}" for name in ("evictions", "census") for rows in RECORDS]
    parts = [
        f"format = 1\nrepeats = {repeats}\nsteps = {steps}\nepsilons = [{', '.join(map(repr, EPSILONS))}]\n",
        *(f'[streams.{name}]\nconfig = "{name}/dpstream.toml"\n' for name in streams),
        *(f"[methods.{name}]\n{more or f'name = {name!r}'}\n" for name, more in METHODS.items()),
    ]
    path = folder / f"after-{steps}.toml"
    path.write_text("".join(parts).replace("'", '"'), encoding="utf-8")
    return path


def main() -> None:
    """Simulate, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    print(f"mean cell error (AvgWE), {options.repeats} repetitions; ratio: pooled to dpstabs\n")
    print(
        f"{'stream':<16}{'steps':>6}{'epsilon':>9}"
        + "".join(f"{name:>10}" for name in METHODS)
        + f"{'ratio':>8}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stream in ("evictions", "census"):
            for rows in RECORDS:
                simulate(stream, max(STEPS), folder / f"{stream}-{rows}", rows_per_step=rows)
        for steps in STEPS:
            outcome = Comparison.load(comparison(folder, steps, options.repeats)).run(
                folder / f"out-{steps}", jobs=options.jobs, figures=False
            )
            means = {(x.stream, x.epsilon, x.method): x.mean for x in outcome.lines if x.metric == "AvgWE"}
            for stream in dict.fromkeys(key[0] for key in means):
                for epsilon in EPSILONS:
                    found = [means[stream, epsilon, method] or 0.0 for method in METHODS]
                    cells = "".join(f"{value:>10.4f}" for value in found)
                    print(f"{stream:<16}{steps:>6}{epsilon:>9}{cells}{found[0] / found[1]:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
