"""What limits a census: its error with true values in place of estimates, one part after the other.

    python benchmarks/census_limits.py [--streams LIST] [--epsilon 1] [--repeats 2] [--options totals=full ...]
        [--result benchmarks/results/census_limits.md]

Streams as in ``keyed_streams.py``, of real ones the first half only. AvgWE and TV (in brackets) of model marginals as
in ``changing_tables.py``, with cohorts (who came between two censuses) and newcomers (since the last one):

* release: as it is.
* numbers: true numbers of each cohort and of newcomers; shapes as they were estimated at the census.
* ageing: true numbers, and true shapes *as they were at the census*; newcomers as they are. What is left is that
  records change, and that those who leave are not like those who stay.
* newcomers: the true table, but newcomers look like the last lowest cohort did at its census.
* measuring: the true table with the error that each cohort's shape had at its census: its noise and its model's
  (newcomers have that of the last lowest cohort).
* model: the same with models of the true shapes, of the plan's size: what no budget repairs.

Errors of parts do not add up: each says how far the release would be off if only that part were wrong. Cohorts: how
many there are, and the share of the table that the last census of all levels has read. For evaluation only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from changing_tables import READ, moments
from keyed_streams import KeyedStream, is_there, load
from made_by import write_result

from dpstream.core.privacy import Randomness
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import PresentBatch, PresentTable, PresentView, Workload, count_marginals
from dpstream.families.census import Census, CensusPlan
from dpstream.tools.evaluate import total_variation

LONG = "about half an hour"

STREAMS = ("stock:5000:3:100", "stock:5000:60:200", "stock:50000:12:60", "hotel:week")
PARTS = ("release", "numbers", "ageing", "newcomers", "measuring", "model")


@dataclass(frozen=True)
class Piece:
    """A cohort as the truth has it: its window, and the shares of all cells at its census."""

    level: int
    low: int
    high: int
    shares: np.ndarray
    #: What the plan said of it then; and a model of the true shares.
    estimated: np.ndarray
    modelled: np.ndarray


def counts_of(table: PresentTable, low: int, high: int, cliques: Sequence[Clique]) -> np.ndarray:
    """All cells of the records that came in some steps."""
    rows = (table.first > low) & (table.first <= high)
    codes = np.asfortranarray(table.codes[rows].astype(np.int32))
    return np.concatenate(count_marginals(codes, table.domain, cliques)).astype(np.float64)


def shares_of(counts: np.ndarray, pairs: int) -> np.ndarray:
    """Counts as shares of their number of records."""
    return counts / max(counts.sum() / pairs, 1.0)


def shape_of(model: Any, workload: Workload) -> np.ndarray:
    """A model's shares."""
    return np.concatenate(model.with_total(1.0).marginals(workload.cliques))


def exact_model(plan: CensusPlan, table: PresentTable, low: int, high: int) -> Any:
    """What the plan would say of a cohort if nothing had noise."""
    cells = plan.followed.cells
    counts = counts_of(table, low, high, cells.cliques)
    size = max(float(counts[cells.part(0)].sum()), 1.0)
    shares = counts / size
    known = (shares, np.full(len(cells.cliques), 1e-12))
    return plan.shapes.cohort(0, (low, high), size, known).model


def steps_of(
    stream: KeyedStream, plan: CensusPlan, seed: str, compared: set[int], last: int
) -> Iterator[dict[str, tuple[float, float]]]:
    """Errors of each part at the compared steps."""
    workload, pairs = plan.recipe.workload, len(plan.recipe.workload)
    state, randomness = plan.start(), Randomness.seeded(seed)
    pieces: list[Piece] = []
    for step, moment in moments(stream, last, compared):
        before, table = list(state.last), moment.after
        release = plan.step(state, PresentBatch(PresentView(table, moment.departed)), randomness)
        if state.last and state.last[0] == step:
            level = max(g for g, census in enumerate(state.last) if census == step)
            low = before[level] if level < len(before) else 0
            # A last level's cohorts are folded at once: what was said of this one is in the newest model.
            model = state.latest[level]
            exact = shares_of(counts_of(table, low, step, workload.cliques), pairs)
            modelled = shape_of(exact_model(plan, table, low, step), workload) if compared else exact
            pieces = [piece for piece in pieces if piece.level >= level]
            pieces.append(Piece(level, low, step, exact, shape_of(model, workload), modelled))
        if not moment.compared or not len(table):
            continue
        truth = np.concatenate(table.count(workload.cliques, 0)).astype(np.float64)
        now = [counts_of(table, piece.low, piece.high, workload.cliques) for piece in pieces]
        sizes = [counts.sum() / pairs for counts in now]
        come = counts_of(table, state.last[0], step, workload.cliques)
        lowest = max(pieces, key=lambda piece: piece.high)
        newest = lowest.shares * come.sum() / pairs
        # Newcomers look like the last lowest cohort, with its errors.
        read = [n + (p is lowest) * come.sum() / pairs for n, p in zip(sizes, pieces, strict=True)]
        made = {
            "release": np.concatenate(release.marginals(workload.cliques)),
            "numbers": sum(n * p.estimated for n, p in zip(sizes, pieces, strict=True))
            + lowest.estimated * come.sum() / pairs,
            "ageing": sum(n * p.shares for n, p in zip(sizes, pieces, strict=True)) + come,
            "newcomers": truth - come + newest,
            "measuring": truth + sum(n * (p.estimated - p.shares) for n, p in zip(read, pieces, strict=True)),
            "model": truth + sum(n * (p.modelled - p.shares) for n, p in zip(read, pieces, strict=True)),
        }
        found = {name: errors(truth, np.asarray(own), plan, len(table)) for name, own in made.items()}
        found["cohorts"] = (float(len(pieces)), float(sizes[-1] / len(table)))
        yield found


def errors(truth: np.ndarray, made: np.ndarray, plan: CensusPlan, size: int) -> tuple[float, float]:
    """AvgWE and TV."""
    workload, at, cells, apart = plan.recipe.workload, 0, [], []
    for clique in workload.cliques:
        part = slice(at, at + workload.domain.cells(clique))
        at = part.stop
        cells.append(np.abs(truth[part] - made[part]).mean() / size)
        apart.append(total_variation(truth[part], made[part]))
    return float(np.mean(cells)), float(np.mean(np.nan_to_num(apart, nan=1.0)))


def main() -> None:
    """Run all, then print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", nargs="+", default=list(STREAMS))
    parser.add_argument("--options", nargs="*", default=[], help="of the census, such as totals=full")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()
    given = {key: READ.get(key, str)(value) for key, value in (word.split("=") for word in chosen.options)}
    heads = ("stream", *PARTS, "cohorts", "read last")
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name in chosen.streams:
        if not is_there(name):
            print(f"{name}: skipped, the data are not here (DPSTREAM_DATA)", flush=True)
            continue
        found = []
        for repeat in range(chosen.repeats):
            stream = load(name, repeat)
            last = stream.steps // 2 if stream.real else stream.steps
            first = max(1, stream.steps // 10)
            compared = set(range(first, last + 1, max(1, (last - first) // 20)))
            turnover = Fraction(stream.size) / Fraction(stream.records_per_step)
            recipe = Census(Workload.all_k_way(stream.domain, 2), **{"turnover": turnover, **given})
            plan = recipe.calibrate(epsilon=chosen.epsilon, horizon=stream.steps)
            found += list(steps_of(stream, plan, f"{name} {repeat}", compared, last))
        means = {key: np.mean([one[key] for one in found], axis=0) for key in found[0]}
        parts = " | ".join(f"{means[part][0]:.4f} ({means[part][1]:.3f})" for part in PARTS)
        lines.append(f"| {name} | {parts} | {means['cohorts'][0]:.1f} | {means['cohorts'][1]:.0%} |")
        print(lines[-1], flush=True)
    if chosen.result is not None:
        chosen.result.parent.mkdir(parents=True, exist_ok=True)
        write_result(chosen.result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
