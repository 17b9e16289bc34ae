"""Tables whose records come, change and leave: how close each mechanism is to the table as it is at each step.

    python benchmarks/changing_tables.py [--out FOLDER] [--streams LIST] [--methods LIST] [--epsilons LIST]
        [--repeats 2] [--first-half] [--result benchmarks/results/changing_tables.md]

Streams as in ``keyed_streams.py``; those of real data are skipped, with a line, where DPSTREAM_DATA is not set. The
output folder is private (computed from private tables): one JSON line a run in ``runs.jsonl``; runs that are there
with the same options are not repeated. ``--first-half`` stops real streams at their middle: the only way to run them
while anything is tuned.

Every method protects a record's whole stay by epsilon, as far as it can:

* census: the unit is the record; epsilon is for the whole stay, whatever happens in it. Options as a drafted file has
  them, with the stream's guesses of size and records per step; ``census:records_per_step=none`` and so on for others.
* pooled, dpstabs, baseline, aim (the baseline with AIM): the unit is the event, at epsilon / 2: an insert and a delete.
  They get what the keys leave of a step (who comes and goes within one vanishes); an update is a delete and an insert,
  and costs a stay epsilon further. A stay with u updates is protected by (1 + u) epsilon only: the comparison favours
  them.
* empty: no records. uniform: the true number of records, all alike. independent: the true columns. They protect none.
* offline: one run of AIM on each table by itself with the whole of epsilon: what a single release could be. The
  tables together protect a stay by epsilon times its length.

AvgWE: mean over all pairs of columns of the mean cell error over the true table's size. TV: mean total variation of
pairs, each table as shares of its own size; 1 where a table has no records. Total: relative error of the number of
records. "Model": the marginals that the release answers; "rows": a table drawn from it, with the released number of
rows. Means over about 30 steps from 10 % of the stream on (all of them where there are fewer), then over repetitions.
For evaluation only.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from keyed_streams import KeyedStream, is_there, load
from made_by import write_result

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness, approximate_to_zcdp
from dpstream.core.tables import (
    EncodedBatch,
    KeyedChanges,
    PresentBatch,
    PresentTable,
    PresentView,
    Workload,
    count_marginals,
)
from dpstream.families.census import Census
from dpstream.families.tabular import Baseline, DPStabs, Pooled
from dpstream.lab.experiments.private_output import PrivateFolder
from dpstream.mechanisms.aim import AIM
from dpstream.tools.evaluate import total_variation, workload_errors

LONG = "hours; most of them DP-STabS and the offline runs"

STREAMS = (
    "stock:200:0.5:100", "stock:200:3:120", "stock:200:60:200",
    "stock:5000:0.5:60", "stock:5000:3:100", "stock:5000:60:200",
    "hotel:week",
)  # fmt: skip
MEASURES = ("we_model", "we_rows", "tv_model", "tv_rows", "total")
#: Options of ``census:option=value``, where they are no words.
READ: dict[str, Callable[[str], Any]] = {
    "ratio": int,
    "levels": lambda word: word if word == "unlimited" else int(word),
    "iterations": int,
    "max_cells": int,
    "first_records": int,
    "departures_every": int,
    "records_per_step": lambda word: None if word == "none" else int(word),
}
#: Mechanisms that count inserts and deletes.
EVENTS: dict[str, Callable[..., Any]] = {
    "pooled": Pooled,
    "dpstabs": DPStabs,
    "baseline": Baseline,
    "aim": lambda workload, **more: Baseline(workload, offline=AIM(), **more),
}
#: Steps at which a run is compared with the truth, about.
_POINTS = 30
Run = dict[str, Any]


class Release(Protocol):
    """What is compared."""

    @property
    def total(self) -> float: ...
    def marginals(self, cliques: Sequence[tuple[int, ...]]) -> list[np.ndarray]: ...
    def sample(self, rows: int, seed: int) -> np.ndarray: ...


@dataclass(frozen=True)
class Moment:
    """One step with all that a method may read of it, and whether its release is looked at."""

    before: PresentTable
    after: PresentTable
    changes: KeyedChanges
    departed: np.ndarray
    compared: bool


class Method(Protocol):
    """A method under way: one release a step; None where nobody looks."""

    def __call__(self, moment: Moment) -> Release | None: ...


def differences(moment: Moment) -> tuple[np.ndarray, np.ndarray]:
    """The step as inserts and deletes of rows: what the keys leave of it; an update is one of each."""
    before, changes = moment.before, moment.changes
    place, there = before.find(changes.keys)
    row = np.cumsum(changes.present) - 1
    stays, gone = there & changes.present, there & ~changes.present
    old, new = before.codes[place[stays]].astype(np.int32), changes.codes[row[stays]]
    changed = (old != new).any(axis=1)
    comes = changes.codes[row[~there & changes.present]]
    inserts = np.concatenate([comes, new[changed]])
    deletes = np.concatenate([before.codes[place[gone]].astype(np.int32), old[changed]])
    return inserts, deletes


def by_events(plan: StreamPlan, deletions: bool) -> Callable[[Randomness], Method]:
    """A mechanism that counts inserts and deletes."""

    def start(randomness: Randomness) -> Method:
        state = plan.start()

        def step(moment: Moment) -> Release:
            inserts, deletes = differences(moment)
            batch = EncodedBatch(moment.after.domain, inserts, deletes if deletions else None)
            release: Release = plan.step(state, batch, randomness)
            return release

        return step

    return start


def by_key(plan: StreamPlan) -> Callable[[Randomness], Method]:
    """A mechanism that reads present records."""

    def start(randomness: Randomness) -> Method:
        state = plan.start()

        def step(moment: Moment) -> Release:
            batch = PresentBatch(PresentView(moment.after, moment.departed))
            release: Release = plan.step(state, batch, randomness)
            return release

        return step

    return start


@dataclass(frozen=True)
class Independent:
    """Columns that do not depend on each other."""

    total: float
    shares: tuple[np.ndarray, ...]

    def marginals(self, cliques: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Products."""
        return [
            self.total * np.outer(self.shares[a], self.shares[b]).ravel()
            if len(rest) == 0
            else np.full(0, np.nan)
            for a, b, *rest in cliques
        ]

    def sample(self, rows: int, seed: int) -> np.ndarray:
        """Each column by itself."""
        generator = np.random.default_rng(seed)
        drawn = [generator.choice(len(own), rows, p=own) for own in self.shares]
        return np.column_stack(drawn).astype(np.int32)


def independent(moment: Moment) -> Release:
    """The true columns."""
    own = [moment.after.codes[:, i] for i in range(len(moment.after.domain.sizes))]
    counts = [
        np.bincount(codes, minlength=size) for codes, size in zip(own, moment.after.domain.sizes, strict=True)
    ]
    shares = tuple(np.maximum(count, 1e-300) / max(len(moment.after), 1e-300) for count in counts)
    return Independent(float(len(moment.after)), tuple(share / share.sum() for share in shares))


def uniform(moment: Moment) -> Release:
    """All records alike."""
    shares = tuple(np.full(size, 1 / size) for size in moment.after.domain.sizes)
    return Independent(float(len(moment.after)), shares)


def empty(moment: Moment) -> Release:
    """No records."""
    return Independent(0.0, tuple(np.full(size, 1 / size) for size in moment.after.domain.sizes))


@dataclass(frozen=True)
class OfTable:
    """One model of one table."""

    model: Any

    @property
    def total(self) -> float:
        """As released."""
        return float(self.model.total)

    def marginals(self, cliques: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Of the model."""
        found: list[np.ndarray] = self.model.marginals(cliques)
        return found

    def sample(self, rows: int, seed: int) -> np.ndarray:
        """From the model."""
        drawn: np.ndarray = self.model.sample(rows, seed)
        return drawn


def offline(workload: Workload, budget: Budget) -> Callable[[Randomness], Method]:
    """A run of AIM on each table that is looked at."""
    plan = AIM().calibrate(workload, budget, Event())

    def start(randomness: Randomness) -> Method:
        def step(moment: Moment) -> Release | None:
            if not moment.compared:
                return None
            return OfTable(plan.run_on(moment.after.count(plan.counted, 0), randomness).model)

        return step

    return start


def budget_of(text: str) -> Budget:
    """``1/2``: epsilon; ``1/2,1e-9``: the largest rho that implies this epsilon and delta."""
    epsilon, _, delta = text.partition(",")
    return approximate_to_zcdp(epsilon, delta) if delta else PureDP.of(epsilon)


def of_each_event(budget: Budget, events: int) -> Budget:
    """What each event of a stay of so many may cost, so that all of them together cost the budget."""
    if isinstance(budget, ZCDP):
        return ZCDP(budget.rho / events**2)
    return PureDP(budget.epsilon / events)


def method(
    name: str, stream: KeyedStream, workload: Workload, budget: Budget
) -> tuple[Callable[[Randomness], Method], Any]:
    """How a run starts, and the options that it depends on."""
    if name in ("empty", "uniform", "independent"):
        own: Mapping[str, Method] = {"empty": empty, "uniform": uniform, "independent": independent}
        return (lambda randomness: own[name]), None
    if name == "offline":
        return offline(workload, budget), None
    if name.startswith("census"):
        options = dict(word.split("=") for word in name.split(":")[1:])
        own_options = {key: READ.get(key, str)(value) for key, value in options.items()}
        turnover = Fraction(stream.size) / Fraction(stream.records_per_step) if stream.deletes else None
        coming = max(1, round(stream.records_per_step))
        census = Census(workload, **{"turnover": turnover, "records_per_step": coming, **own_options})
        plan = census.calibrate(budget, horizon=stream.steps)
        return by_key(plan), plan.options()
    kind, *words = name.split(":")
    if kind in EVENTS:
        share = of_each_event(budget, 2) if stream.deletes else budget
        more = {key: READ.get(key, Fraction)(value) for key, value in (word.split("=") for word in words)}
        horizon = None if stream.deletes else stream.steps
        plan = EVENTS[kind](workload, deletions=stream.deletes, **more).calibrate(share, horizon=horizon)
        return by_events(plan, stream.deletes), plan.options()
    raise ValueError(f"{name}: unknown method")


def moments(stream: KeyedStream, last: int, compared: set[int]) -> Iterator[tuple[int, Moment]]:
    """The steps of a stream with the true tables."""
    table = PresentTable.empty(stream.domain)
    for step, changes in enumerate(stream.changes(), start=1):
        if step > last:
            return
        after, departed = table.after(changes, step)
        yield step, Moment(table, after, changes, departed, step in compared)
        table = after


def measure(release: Release, table: PresentTable, workload: Workload, step: int) -> dict[str, float]:
    """One step's errors."""
    truth, size = table.count(workload.cliques, 0), len(table)
    rows = max(0, round(release.total))
    drawn = count_marginals(release.sample(rows, step), table.domain, workload.cliques)
    found = {"total": abs(release.total - size) / size}
    for kind, values in (("model", release.marginals(workload.cliques)), ("rows", drawn)):
        values = [np.asarray(one, np.float64) for one in values]
        errors = workload_errors(truth, values, size)
        found |= {f"we_{kind}": errors.as_dict()["AvgWE"], f"max_{kind}": errors.as_dict()["MaxWE"]}
        apart = [total_variation(true, made) for true, made in zip(truth, values, strict=True)]
        found[f"tv_{kind}"] = float(np.mean(np.nan_to_num(apart, nan=1.0)))
    return found


def usual_points(steps: int) -> set[int]:
    """The steps that are compared with the truth."""
    first = max(1, math.ceil(steps / 10))
    return set(range(first, steps + 1, max(1, (steps - first) // _POINTS)))


def run(
    name: str,
    method_name: str,
    epsilon: str,
    repeat: int,
    first_half: bool,
    points_of: Callable[[int], set[int]] = usual_points,
) -> Run:
    """One run of one method over one stream; ``points_of``: which of so many steps are compared with the truth."""
    stream = load(name, repeat)
    workload = Workload.all_k_way(stream.domain, 2)
    last = stream.steps // 2 if first_half and stream.real else stream.steps
    compared = points_of(stream.steps)
    start, options = method(method_name, stream, workload, budget_of(epsilon))
    step_of = start(Randomness.seeded(f"{name} {method_name} {epsilon} {repeat}"))
    points, cpu = {}, 0.0
    for step, moment in moments(stream, last, compared):
        began = time.process_time()
        release = step_of(moment)
        cpu += time.process_time() - began
        if moment.compared and release is not None and len(moment.after):
            points[step] = measure(release, moment.after, workload, step)
    return {
        "stream": name, "method": method_name, "epsilon": epsilon, "repeat": repeat, "steps": stream.steps,
        "real": stream.real, "last": last, "options": options, "cpu_ms": 1000 * cpu / last, "points": points,
    }  # fmt: skip


def read(path: Path) -> dict[tuple[str, str, str, int], Run]:
    """The runs that are there; a later one of the same name counts."""
    found = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            found[one["stream"], one["method"], one["epsilon"], one["repeat"]] = one
    return found


def is_same(one: Run, first_half: bool) -> bool:
    """Whether a run that is there goes as far as one that is wanted, and had the same options."""
    stream = load(one["stream"], one["repeat"])
    workload = Workload.all_k_way(stream.domain, 2)
    options = method(one["method"], stream, workload, budget_of(one["epsilon"]))[1]
    far = first_half or one["last"] == one["steps"]
    return far and one["options"] == json.loads(json.dumps(options))


def means(runs: Sequence[Run], half: int | None) -> dict[str, float]:
    """Of each measure over the steps (of one half), then over the repetitions."""
    found: dict[str, float] = {}
    for name in MEASURES:
        of_runs = []
        for one in runs:
            middle = one["steps"] // 2
            values = [
                point[name]
                for step, point in one["points"].items()
                if half is None or (int(step) > middle) == (half == 2)
            ]
            if values:
                of_runs.append(float(np.mean(values)))
        found[name] = float(np.mean(of_runs)) if of_runs else math.nan
    return found


def table(runs: Mapping[tuple[str, str, str, int], Run], chosen: argparse.Namespace) -> Iterator[str]:
    """The lines of the result."""
    head = ("stream", "epsilon", "method", "runs", "AvgWE model", "of pooled", "of offline", "AvgWE rows")
    head += ("TV model", "TV rows", "total", "ms/step")
    yield f"| {' | '.join(head)} |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for stream in chosen.streams:
        for epsilon in chosen.epsilons:
            own = {
                name: [
                    runs[key] for r in range(chosen.repeats) if (key := (stream, name, epsilon, r)) in runs
                ]
                for name in chosen.methods
            }
            real = any(one["real"] for some in own.values() for one in some)
            for half in (1, 2) if real else (None,):
                found = {name: means(some, half) for name, some in own.items() if some}
                found = {name: some for name, some in found.items() if not math.isnan(some["total"])}
                for name, some in found.items():
                    ratios = [
                        f"{some['we_model'] / found[other]['we_model']:.2f}" if other in found else ""
                        for other in ("pooled", "offline")
                    ]
                    label = stream if half is None else f"{stream}, {('first', 'later')[half - 1]} half"
                    cpu = float(np.mean([one["cpu_ms"] for one in own[name]]))
                    yield (
                        f"| {label} | {epsilon} | {name} | {len(own[name])} | {some['we_model']:.4f} | {ratios[0]} | "
                        f"{ratios[1]} | {some['we_rows']:.4f} | {some['tv_model']:.3f} | {some['tv_rows']:.3f} | "
                        f"{some['total']:.3f} | {cpu:.0f} |"
                    )


METHODS = ("census", "pooled", "dpstabs", "empty", "uniform", "independent", "offline")


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="changing-tables")
    parser.add_argument("--streams", nargs="+", default=list(STREAMS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--epsilons", nargs="+", default=["1"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--first-half", action="store_true")
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()
    path = PrivateFolder(chosen.out) / "runs.jsonl"
    there = read(path)
    for repeat in range(0 if chosen.only_table else chosen.repeats):
        for stream in chosen.streams:
            if not is_there(stream):
                print(f"{stream}: skipped, the data are not here (DPSTREAM_DATA)", flush=True)
                continue
            for epsilon in chosen.epsilons:
                for name in chosen.methods:
                    key = (stream, name, epsilon, repeat)
                    if key in there and is_same(there[key], chosen.first_half):
                        continue
                    one = run(stream, name, epsilon, repeat, chosen.first_half)
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(one) + "\n")
                    there[key] = one
                    found = " ".join(f"{k} {v:.4f}" for k, v in means([one], None).items())
                    print(
                        f"{stream} {epsilon} {name} {repeat}: {found}, {one['cpu_ms']:.0f} ms/step",
                        flush=True,
                    )
    lines = "\n".join(table(there, chosen))
    print("\n" + lines)
    if chosen.result is not None:
        chosen.result.parent.mkdir(parents=True, exist_ok=True)
        write_result(chosen.result, f"{lines}\n")


if __name__ == "__main__":
    main()
