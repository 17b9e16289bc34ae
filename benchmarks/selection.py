"""How marginals are selected and measured: pooled and census, each with the other's score; pooled without joint signs.

    python benchmarks/selection.py [--streams LIST] [--variants LIST] [--budgets LIST] [--repeats N]
        [--out FILE] [--result FILE]

Variants; all else stays as it is:

* pooled: selects by the summed error less the noise's (``Score``); columns of two values, and products of them, share
  one draw. pooled:aim: selects by AIM's score, the expected gain (``Candidates``). pooled:alone: columns of two values
  and their pairs are measured as histograms, with joint noise where that is less.
* census: selects by AIM's score, among marginals and unions. census:pairs: without unions. census:sum: by pooled's
  score, without unions.

Errors as in ``targets.py``: means over the runs, of AvgWE at the ends of tenths, and of AvgWE, TV and MaxWE over the
last ten steps. Every variant gets the same streams and seeds. Noise is predictable: for evaluation only.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import numpy as np
import targets
from bench import documented_parser, show_result
from keyed_streams import is_there, load

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import Randomness
from dpstream.families.tabular.pooled_run import EpochRun, Signs
from dpstream.mechanisms.aim import Candidates
from dpstream.mechanisms.workload_cells import MAX_RECORDS, Score

LONG = "about 10 minutes for one run of each"
STREAMS = (
    "Eviction-weekly Eviction-bi-weekly Adult-randomized-bs-200 Adult-ordered-bs-200 inserts:hotel:week "
    "inserts:hotel:month hotel:week hotel:month Adult-randomized-bs-50 Adult-ordered-bs-50"
)
COLUMNS = {
    "tenths": ("we", "tenths"),
    "AvgWE": ("we", "last"),
    "TV": ("tv", "last"),
    "MaxWE": ("max", "last"),
}


def choose_as_aim(self: EpochRun, room: Any, take: int) -> list[int]:
    """``EpochRun._choose`` by AIM's score."""
    runner, cells = self.runner, self.cells
    budget = runner.budget.scaled(runner.select_share / self.design.k)
    candidates = Candidates(cells.workload, self.unit, unions=False)
    precision = np.zeros(len(cells.cliques))
    for index, measured in self.by_index.items():
        precision[index] = 1.0 / measured.variance
    bound = np.repeat(MAX_RECORDS // cells.sizes, cells.sizes)
    counts = np.minimum(np.concatenate([self.counts[clique] for clique in cells.cliques]), bound)
    scores = candidates.scores(counts, self._answers(), runner.noise(self.design).variance, precision)
    room.left[list(self.by_index)] = False
    chosen = list[int]()
    while len(chosen) < take and len(allowed := room.allowed()):
        exact = scores, np.ones_like(scores)
        chosen.append(self.select(exact, Fraction(candidates.sensitivity), allowed, budget))
        room.take(chosen[-1])
    return chosen


def summed(self: Candidates, counts: Any, expected: Any, variance: float, precision: Any) -> Any:
    """``Candidates.scores`` by pooled's score, of a workload whose weights are whole numbers."""
    numerators, _ = Score(self.cells, "sum-noise", self.unit, math.sqrt(variance * 2.0 / math.pi)).evaluate(
        counts, expected
    )
    return numerators


@contextmanager
def variant(name: str, plan: StreamPlan) -> Iterator[None]:
    """The program as a variant has it."""
    kind = name.partition(":")[2]
    if kind in ("pairs", "sum"):
        census = replace(plan.census, unions=False)  # type: ignore[attr-defined]
        object.__setattr__(plan, "census", census)
    if kind == "aim":
        with mock.patch.object(EpochRun, "_choose", choose_as_aim):
            yield
    elif kind == "alone":
        with mock.patch.object(Signs, "singles", property(lambda self: ())):
            yield
    elif kind == "sum":
        claim = property(lambda self: int(Score(self.cells, "sum-noise", self.unit).grid_sensitivity))
        with mock.patch.multiple(Candidates, scores=summed, sensitivity=claim):
            yield
    else:
        yield


def measured(stream: str, name: str, budget: str, repeat: int, folder: Path) -> dict[str, float]:
    """The errors of one run."""
    family = name.partition(":")[0].replace("census", "default")
    plan = targets.configuration(stream, family, budget, folder).plan()
    with variant(name, plan):
        work = targets.mechanism(plan, Randomness.seeded(f"{stream} {budget} {repeat}"))
        made = targets.run(load(stream, repeat), work)
    return {head: targets.over([made], *where)[0] for head, where in COLUMNS.items()}


def main() -> None:
    """Run what is asked for, then print."""
    parser = documented_parser(__doc__)
    parser.add_argument("--streams", nargs="+", default=STREAMS.split())
    variants = "pooled pooled:aim pooled:alone census census:pairs census:sum"
    parser.add_argument("--variants", nargs="+", default=variants.split())
    parser.add_argument("--budgets", nargs="+", default=["1"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a file to which every run is added as a line")
    parser.add_argument("--result", type=Path)
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cells = product(filter(is_there, asked.streams), asked.budgets, asked.variants)
        for stream, budget, name in cells:
            if name.startswith("census") != targets.facts(stream).followed:
                continue
            runs = [measured(stream, name, budget, n, Path(folder)) for n in range(asked.repeats)]
            means = {head: fmean(run[head] for run in runs) for head in COLUMNS}
            rows.append({"stream": stream, "budget": budget, "variant": name, "runs": len(runs)} | means)
            print(stream, budget, name, flush=True)
            if asked.out is not None:
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    show_result(targets.printed(rows), asked.result)


if __name__ == "__main__":
    main()
