"""Errors by simulation against true ones: AvgWE by simulation over true AvgWE, and how often 95 % intervals cover.

    [DPSTREAM_DATA=...] python benchmarks/simulated_errors.py [--only WORD] [--runs 20] [--repeats 3] [--out FILE]

For each stream and budget: the stream is run ``--repeats`` times with predictable noise, `dpstream errors` is done on
each of these releases, and both sides are compared at the last step: AvgWE over the widest marginals (mean over the
runs, against the release's own), and in each cell of at least 5 true records the published interval (Student's t, and
widened by the error of cells of like size) and the bare *value +- 1.96 x simulated root mean square error*. Real data
only where DPSTREAM_DATA names their folder. Evaluation only.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from keyed_streams import load
from made_by import write_result
from targets import configuration

import dpstream as dp
from dpstream.core.privacy import Randomness
from dpstream.io.sinks import read_table
from dpstream.io.sinks.simulated_errors import t_factor, unseen
from dpstream.project import Config
from dpstream.tools.errors import Observation, Simulation, simulate_errors
from dpstream.tools.errors.contract import InventedTable
from dpstream.tools.errors.published import StepErrors
from dpstream.tools.evaluate.run_folder import read_codes
from dpstream.tools.evaluate.true_table import encoded_steps, true_steps
from dpstream.tools.families.panel.panel_evaluation import released_people, true_people
from dpstream.tools.families.panel.panel_simulation import panel_observation
from dpstream.tools.families.points.point_simulation import point_view
from dpstream.tools.families.points.transport import w1
from dpstream.tools.simulate import simulate

EPSILONS = ("1/2", "1", "4")
#: A true cell of fewer records is not looked at.
LEAST = 5


@dataclass(frozen=True)
class Case:
    """A stream: its name in the table, what is simulated, its steps, and what is changed in its file."""

    label: str
    source: str
    steps: int
    changes: tuple[tuple[str, str], ...] = ()
    budgets: tuple[str, ...] = EPSILONS

    @property
    def real(self) -> bool:
        """Whether it needs DPSTREAM_DATA."""
        return self.source.startswith(("Adult", "Eviction-"))


_DPSTABS = ('name = "pooled"', 'name = "dpstabs"\nk = 1')
_BASELINE = ('name = "pooled"', 'name = "baseline"')
_CUMULATIVE = (('name = "panel-window"', 'name = "panel-cumulative"'), ("window = 3\n", ""))
_RHO = ("1/800", "1/200", "1/12")
CASES = (
    Case("evictions, pooled", "evictions", 32),
    Case("points", "points", 16),
    Case("panel, window", "panel", 10, (), _RHO),
    Case("panel, cumulative", "panel", 10, _CUMULATIVE, _RHO),
    Case("stock, census", "stock", 24),
    Case("stock of 5000, census", "stock-large", 24, (), ("1", "4")),
    Case("census survey, pooled", "census", 48),
    Case("Eviction bi-weekly, first 64, pooled", "Eviction-bi-weekly", 64),
    Case("evictions, dpstabs", "evictions", 16, (_DPSTABS,), ("1", "4")),
    Case("evictions, baseline", "evictions", 8, (_BASELINE,), ("1", "4")),
    Case("Adult ordered bs-200, first 32, pooled", "Adult-ordered-bs-200", 32, (), ("1",)),
)


def prepare(case: Case, budget: str, folder: Path) -> Path:
    """The stream's folder with its configuration."""
    if case.real:
        path = _real(case, folder)
    elif case.source == "stock-large":
        from dpstream.tools.simulate.stock_folder import Stock

        path = simulate("stock", case.steps, folder, stock=Stock(records=5000))
    else:
        path = simulate(case.source, case.steps, folder)
    text = path.read_text()
    for old, new in case.changes:
        if old not in text:
            raise SystemExit(f"{case.label}: {old!r} is not in the file")
        text = text.replace(old, new)
    text = re.sub(r'(?m)^(epsilon|rho) = "[^"]*"', rf'\1 = "{budget}"', text)
    path.write_text(text)
    return path


def _real(case: Case, folder: Path) -> Path:
    """The first steps of one of the paper's streams: a file of records, and the default's configuration."""
    name = f"{case.source}@{case.steps}"
    folder.mkdir(parents=True)
    with (folder / "all.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["when", *load(name, 0).domain.names])
        for step, changes in enumerate(load(name, 0).changes(), start=1):
            writer.writerows([step, *row] for row in changes.codes.tolist())
    return configuration(name, "default", "1", folder).path


def true_and_released(
    config: Config, simulation: Simulation, step: int
) -> tuple[Observation, Observation, dict]:
    """The private table and the released one, as the simulation reads tables; and their distances."""
    released = read_table(simulation.releases.folder, step)
    kind = config.family.name
    if kind == "panel":
        plan = config.plan()
        true = true_people(config, plan, step)
        made = released_people(released, plan, plan.released_schema(config.schema()))
        own = panel_observation(plan, made, step, padded=True)
        return panel_observation(plan, true, step, padded=False), own, {}
    if kind == "points":
        view, schema = point_view(config), config.schema()
        parts = [came for entry, _, came, _ in encoded_steps(config, step, view.schema)]
        true, made = np.concatenate(parts), view.schema.encode(released)
        far = w1(
            view.places(true),
            view.places(made),
            periodic=view.periodic,
            method="samples",
            sample=400,
            repeats=2,
        )
        coded = schema.encode(view.schema.decode(true, 0))
        return Observation(coded), Observation(schema.encode(released)), {"W1": far.value}
    *_, last = true_steps(config, step)
    return Observation(last.table.rows()), Observation(read_codes(released, config.schema(), "table")), {}


@dataclass(frozen=True)
class Found:
    """One run of one case."""

    simulated: float
    true: float
    covered: float
    cells: int
    normal: float
    far: tuple[float, float] | None


def compare(config: Config, simulation: Simulation) -> Found:
    """Errors by simulation against the true ones, at the last step."""
    step = simulation.steps[-1]
    errors = StepErrors.of(simulation, step)
    true, released, far = true_and_released(config, simulation, step)
    table: InventedTable = errors.truth
    facts = errors.summary()
    widest = max(len(clique) for clique in table.cliques)
    chosen = [i for i, clique in enumerate(table.cliques) if len(clique) == widest]
    cliques = [table.cliques[i] for i in chosen]
    real, made = (one.marginals(table.domain, cliques) for one in (true, released))
    off = [m - r for m, r in zip(made, real, strict=True)]
    true_we = float(np.mean([np.abs(one).mean() for one in off])) / max(1.0, true.total)
    spread = np.concatenate([np.sqrt((errors.errors[i] ** 2).mean(axis=0)) for i in chosen])
    flat, counts = np.abs(np.concatenate(off)), np.concatenate(real)
    large = counts >= LEAST
    hidden = unseen(np.concatenate([errors.counts[i] for i in chosen]), facts["sizes"]) if widest > 1 else 0.0
    within = flat[large] <= (t_factor(len(simulation.runs)) * np.hypot(spread, hidden))[large]
    normal = flat[large] <= 1.96 * spread[large]
    distances = (facts["distances"]["W1"]["mean"], far["W1"]) if far else None
    return Found(
        facts["avg_we"], true_we, float(within.mean()), int(large.sum()), float(normal.mean()), distances
    )


def measure(case: Case, budget: str, runs: int, repeats: int) -> list[Found]:
    """All repeats of one case."""
    found = []
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as place:
            config = Config.load(prepare(case, budget, Path(place) / "stream"))
            for _ in dp.run(config, randomness=Randomness.seeded(f"benchmark {repeat}")):
                pass
            found.append(compare(config, simulate_errors(config, runs=runs)))
    return found


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    out: Path | None = asked.out
    rows = _rows(out) if out is not None and out.is_file() else {}
    for case in CASES:
        if asked.only not in case.label or (case.real and "DPSTREAM_DATA" not in os.environ):
            continue
        for budget in case.budgets:
            key = (f"{case.label}, {case.steps} steps", budget)
            if key in rows:
                continue
            rows[key] = _row(measure(case, budget, asked.runs, asked.repeats))
            print("|", " | ".join([*key, *rows[key]]), "|", flush=True)
            if out is not None:  # after every line, so that a call that is stopped leaves what it found
                write_result(out, _text(rows, asked.runs, asked.repeats))
    print(_together(rows, asked.runs, asked.repeats))


_Rows = dict[tuple[str, str], list[str]]


def _row(found: list[Found]) -> list[str]:
    each = [one.simulated / one.true if one.true else math.nan for one in found]
    ratio = float(np.mean([one.simulated for one in found]) / np.mean([one.true for one in found]))
    cover = float(np.average([one.covered for one in found], weights=[one.cells for one in found]))
    normal = float(np.average([one.normal for one in found], weights=[one.cells for one in found]))
    far = [one.far[0] / one.far[1] for one in found if one.far]
    spread = f" ({min(each):.2f} to {max(each):.2f})" if len(each) > 1 else ""
    true, cells = np.mean([one.true for one in found]), int(np.mean([one.cells for one in found]))
    distance = f"{np.mean(far):.2f}" if far else "-"
    return [f"{ratio:.2f}{spread}", f"{true:.2e}", f"{cells}", f"{cover:.1%}", f"{normal:.1%}", distance]


def _rows(path: Path) -> _Rows:
    """The rows of an earlier call."""
    cells = [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if line.startswith("|")]
    return {(one[0], one[1]): one[2:] for one in cells[2:]}


def _text(rows: _Rows, runs: int, repeats: int) -> str:
    labels = [f"{case.label}, {case.steps} steps" for case in CASES]
    lines = [
        "| stream | budget | simulated / true AvgWE | true AvgWE | cells | covered, widened | covered, 1.96 | W1 |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {' | '.join([*key, *rows[key]])} |"
            for key in sorted(rows, key=lambda key: labels.index(key[0]))
        ),
    ]
    title = "# Errors by simulation against true errors"
    return "\n".join([title, "", _together(rows, runs, repeats), "", *lines, ""])


def _together(rows: _Rows, runs: int, repeats: int) -> str:
    inside = np.mean([0.7 <= float(row[0].split()[0]) <= 1.4 for row in rows.values()])
    covered = np.mean([float(row[3].rstrip("%")) >= 90.0 for row in rows.values()])
    return (
        f"{len(rows)} cases, {repeats} x {runs} runs each: the ratio is within 0.7 to 1.4 in {inside:.0%} of them, "
        f"and the widened intervals cover at least 90 % of the cells in {covered:.0%} of them. W1: the ratio of the "
        "distances."
    )


if __name__ == "__main__":
    main()
