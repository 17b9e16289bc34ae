"""How often 95 % intervals of `dpstream.tools.errors.estimate` cover what the private table itself gives.

    python benchmarks/simulated_inference.py [--repeats 10] [--runs 20] [--out FILE]

Two invented streams (evictions, the survey), mechanism pooled, epsilon 1 and 4: means, differences of two groups and
coefficients of least squares on the last released table, against the same on the private table. Evaluation only.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from made_by import write_result
from simulated_errors import Case, prepare

from dpstream.core.privacy import Randomness
from dpstream.project import Config
from dpstream.tools.errors import Simulation, difference, estimate, least_squares, mean, simulate_errors
from dpstream.tools.evaluate.true_table import true_steps

Asked = Callable[[Simulation], Any]
CASES: tuple[tuple[Case, tuple[tuple[str, Asked], ...]], ...] = (
    (
        Case("evictions", "evictions", 32),
        (
            ("mean", lambda s: mean(s, "nuisance")),
            ("mean in a group", lambda s: mean(s, "rent", "nuisance")),
            ("difference", lambda s: difference(s, "rent", "non_payment", "not non_payment")),
            ("least squares", lambda s: least_squares(s, "rent", ["bedrooms", "nuisance"])),
        ),
    ),
    (
        Case("census survey", "census", 48),
        (
            ("mean", lambda s: mean(s, "hours")),
            ("mean in a group", lambda s: mean(s, "age", "marital = 'widowed'")),
            ("difference", lambda s: difference(s, "income_over_50k", "sex = 'male'", "sex = 'female'")),
            ("least squares", lambda s: least_squares(s, "income_over_50k", ["age", "hours"])),
        ),
    ),
)


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = [
        "# Intervals of statistics by simulation",
        "",
        f"{asked.repeats} releases each, {asked.runs} simulated runs on each. *Root mean square*: simulated over true.",
        "",
        "| stream | epsilon | statistic | covered | root mean square |",
        "|---|---|---|---|---|",
    ]
    for case, statistics in CASES:
        for epsilon in ("1", "4"):
            found: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
            for repeat in range(asked.repeats):
                with tempfile.TemporaryDirectory() as place:
                    config = Config.load(prepare(case, epsilon, Path(place) / "stream"))
                    for _ in config.run(randomness=Randomness.seeded(f"inference {repeat}")):
                        pass
                    simulation = simulate_errors(config, runs=asked.runs)
                    *_, last = true_steps(config)
                    rows = last.table.rows()
                    for word, make in statistics:
                        statistic = make(simulation)
                        got = estimate(simulation, statistic)
                        off = got.values - statistic.compute(rows, np.ones(len(rows)))
                        for at, name in enumerate(got.names):
                            entry = (float(off[at]), float(got.standard_errors[at]))
                            inside = bool(abs(off[at]) <= got.half_widths[at])
                            found[f"{word}: {name}"].append((*entry, inside))
            for name, values in found.items():
                off_, spread, inside_ = (np.array(column) for column in zip(*values, strict=True))
                ratio = float(np.sqrt((spread**2).mean()) / np.sqrt((off_**2).mean()))
                lines.append(f"| {case.label} | {epsilon} | {name} | {inside_.mean():.0%} | {ratio:.2f} |")
                print(lines[-1], flush=True)
            if asked.out is not None:
                write_result(asked.out, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
