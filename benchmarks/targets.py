"""Errors of tables: the default beside other mechanisms, offline AIM and trivial answers, over streams of many kinds.

    python benchmarks/targets.py [--preset targets] [--streams LIST] [--methods LIST] [--budgets LIST] [--repeats N]
        [--minutes 240] [--out FOLDER] [--result FILE]

Presets are questions; the other options take part of one, or more than it has.

* targets: how far from offline AIM at the end, along the stream, in the worst pair, and in time; with targets.
* paper: the six streams of Kumar et al. beside what they print, and beside our DP-STabS along the whole stream.
* losses: where the default loses: tenth by tenth beside the best other mechanism (``!``: over 1.10 times its error).
* changing: records that come, change and leave: beside what counts events, and beside trivial answers.
* compare: whether ``plan --compare`` takes the mechanism that is best on the stream itself, or within 10 % of it.

A run is one line of ``runs.jsonl`` in the output folder, which is private where the data are; a run that is there with
the options that it would have now is not repeated. So the script may be stopped at any time (after ``--minutes`` of CPU
it begins no run; 0 prints only), and presets share their runs. Streams: ``keyed_streams.load``; those whose data are
not here (DPSTREAM_DATA) are left out. Budgets: epsilon, or ``epsilon,delta``.

Methods; options as ``NAME:KEY=VALUE``, as in ``[mechanism]``:

* default: what a file runs that names no mechanism, as ``dpstream init`` drafts it, with coarse guesses (1, 3, 10, 30,
  ...) of what comes in a step and is there; with the season where a stream has one. Where records come sorted, and only
  ``inserts:`` streams say so, what ``plan --compare`` takes. Of records with keys the budget is for a whole stay.
* pooled, dpstabs, baseline, aim (the baseline with AIM). Of records with keys they get half of epsilon, for an insert
  and a delete; an update costs the stay epsilon further, so the comparison favours them.
* age: what the default measured, without noise: each marginal as it was when it was measured last. selection: as it
  is now. So the default's error is that of selection, what age adds, and what noise adds.
* offline: AIM on the table of each tenth step of the stream by itself, each time with the whole budget.
* empty: no records. uniform: the true number, all alike. independent: the true columns. last: the true table of the
  step before. They protect nobody.
* plan: what ``plan --compare`` says beforehand (five runs or 60 seconds).

AvgWE: mean over all pairs of columns of the mean cell error over the true table's size; MaxWE: of the worst pair. TV:
mean total variation of pairs, each table as shares of its own size. Total: relative error of the number of records.
"Rows": of a table drawn from the release. Noise is predictable: for evaluation only.
"""

from __future__ import annotations

import inspect
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from bench import documented_parser, show_result
from inserted_streams import TUNED
from keyed_streams import KeyedStream, is_there, load

import dpstream.core.tables as tables
from dpstream.core.contracts import StreamPlan
from dpstream.core.graphical import Measurement, Model, fit, tree_cells
from dpstream.core.privacy import Budget, Event, PureDP, Randomness, approximate_to_zcdp
from dpstream.io.sinks.simulated_errors import t_factor
from dpstream.mechanisms import AIM, TableSynthesis
from dpstream.project import Config
from dpstream.tools.choosing import compare_mechanisms
from dpstream.tools.evaluate import workload_errors
from dpstream.tools.evaluate.true_table import TrueTable
from dpstream_lab.experiments import KUMAR_STREAMS, published_kumar
from dpstream_lab.experiments.private_output import PrivateFolder

LONG = "hours; most of them DP-STabS and the offline runs; --repeats 1 --budgets 1 of a preset: minutes to an hour"
LAST, TENTHS, FIFTHS = 10, 10, 5
Run = dict[str, Any]
#: What is compared with the true table: has ``total``, ``marginals`` and ``sample``.
Release = Any
#: Streams with budgets.
Cells = Sequence[tuple[str, str]]

# A stream as mechanisms read it, beside the true table.


@dataclass(frozen=True)
class Moment:
    """One step: what a mechanism may read of it, and the true table at its end (one object, which grows)."""

    step: int
    batch: tables.EncodedBatch
    present: tables.PresentBatch | None
    table: TrueTable


#: A method under way: called at each step; None where it releases nothing.
Method = Callable[[Moment], Release]


def moments(stream: KeyedStream) -> Iterator[Moment]:
    """The steps of a stream."""
    table, present = TrueTable(stream.domain), tables.PresentTable.empty(stream.domain)
    for step, changes in enumerate(stream.changes(), start=1):
        batch, seen = tables.EncodedBatch(stream.domain, changes.codes), None
        if stream.deletes:
            after, departed = present.after(changes, step)
            batch = tables.EncodedBatch(stream.domain, *differences(present, changes))
            present, seen = after, tables.PresentBatch(tables.PresentView(after, departed))
        table.add(batch)
        yield Moment(step, batch, seen, table)


def differences(before: tables.PresentTable, changes: tables.KeyedChanges) -> tuple[np.ndarray, np.ndarray]:
    """What the keys leave of a step as inserts and deletes of rows; an update is one of each."""
    place, there = before.find(changes.keys)
    row = np.cumsum(changes.present) - 1
    stays, gone = there & changes.present, there & ~changes.present
    old, new = before.codes[place[stays]].astype(np.int32), changes.codes[row[stays]]
    changed = (old != new).any(axis=1)
    inserts = np.concatenate([changes.codes[row[~there & changes.present]], new[changed]])
    return inserts, np.concatenate([before.codes[place[gone]].astype(np.int32), old[changed]])


def mechanism(plan: StreamPlan, randomness: Randomness) -> Method:
    """A stream of releases."""
    state = plan.start()
    by_key = plan.reads == "present"

    def step(moment: Moment) -> Release:
        return plan.step(state, moment.present if by_key and moment.present else moment.batch, randomness)

    return step


# What a method is: a trivial answer, offline AIM, or a mechanism by its configuration.

TRIVIAL = ("empty", "uniform", "independent", "last")
#: Parts of the default's error; its noise is the same.
_PARTED = ("selection", "age")


def trivial(name: str) -> Method:
    """What needs no mechanism."""
    before: list[np.ndarray] = []

    def step(moment: Moment) -> Release:
        table, domain = moment.table, moment.table.domain
        if name == "last":
            before.append(table.rows())
            rows = before.pop(0) if len(before) > 1 else before[0][:0]
            return TableSynthesis(domain, rows, len(rows))
        if name == "independent":
            columns = [(i,) for i in range(len(domain))]
            counts = zip(columns, table.marginals(columns), strict=True)
            return fit(domain, [Measurement(c, x.astype(float), 1.0) for c, x in counts], total=table.records)
        return Model.uniform(domain, 0.0 if name == "empty" else table.records)

    return step


def exact(work: Method, steps: int, *, now: bool) -> Method:
    """The model of what a mechanism measured, newest first, without noise: as it was then, or as it is now."""
    then: dict[tuple[int, ...], np.ndarray] = {}

    def step(moment: Moment) -> Release:
        release, table = work(moment), moment.table
        named = set[frozenset[str]]()
        for query in (one.query for one in release.noisy_counts):
            marginals = (
                [query["columns"]] if query["kind"] == "marginal" else query.get("terms") or query["columns"]
            )
            named.update(map(frozenset, marginals))
        cliques = [tuple(sorted(map(table.domain.names.index, names))) for names in named]
        for clique, counts in zip(cliques, table.marginals(cliques), strict=True):
            then.pop(clique, None)
            then[clique] = counts  # the newest is last
        if moment.step not in ends(steps, TENTHS) | ends(steps, FIFTHS):
            return None
        kept: list[tuple[int, ...]] = []
        for clique in filter(None, reversed(then)):
            if then[clique].any() and tree_cells(table.domain, [*kept, clique]) <= 10_000:
                kept.append(clique)
        counted = table.marginals(kept) if now else [then[clique] for clique in kept]
        pairs = zip(kept, counted, strict=True)
        return fit(table.domain, [Measurement(c, x * (table.records / x.sum()), 1.0) for c, x in pairs])

    return step


def budget_of(text: str) -> Budget:
    """``1/2``: epsilon; ``1/2,1e-9``: the largest rho that implies this epsilon and delta."""
    epsilon, _, delta = text.partition(",")
    return approximate_to_zcdp(epsilon, delta) if delta else PureDP.of(epsilon)


def offline(stream: KeyedStream, budget: str, randomness: Randomness) -> Method:
    """A run of AIM on each tenth table."""
    plan = AIM().calibrate(tables.Workload.all_k_way(stream.domain, 2), budget_of(budget), Event())
    wanted = ends(stream.steps, TENTHS) | ends(stream.steps, FIFTHS)

    def step(moment: Moment) -> Release:
        if moment.step not in wanted or moment.table.records < 1:
            return None
        model: Release = plan.run_on(moment.table.marginals(plan.counted), randomness).model
        return model

    return step


def ends(steps: int, parts: int) -> set[int]:
    """The last step of each part.

    >>> sorted(ends(26, 5))
    [6, 11, 16, 21, 26]
    """
    return {-(-steps * part // parts) for part in range(1, parts + 1)}


#: Parts of a stream, from one share of its steps up to another: about forty steps of it, evenly apart, stand for it.
PARTS = {f"tenth {n}": (Fraction(n - 1, TENTHS), Fraction(n, TENTHS)) for n in range(1, TENTHS + 1)} | {
    "from 5 %": (Fraction(1, 20), Fraction(1)), "from 10 %": (Fraction(1, 10), Fraction(1)),
    "first half": (Fraction(1, 10), Fraction(1, 2)), "later half": (Fraction(1, 2), Fraction(1)),
}  # fmt: skip


def is_in(window: str, step: int, steps: int) -> bool:
    """Whether a step is in a part of the stream, or among its last ones, or the end of a tenth or a fifth."""
    if window in PARTS:
        first, last = (share * steps for share in PARTS[window])
        return first < step <= last and step % max(1, steps // 40) == 0
    if window == "last":
        return step > steps - LAST
    return step in ends(steps, {"end": 1, "fifths": FIFTHS, "tenths": TENTHS}[window])


#: Public knowledge: how many steps a year has.
YEARS = {
    "inserts:season": "12", "inserts:both": "12", "inserts:eviction:week": "1461/28",
    "inserts:eviction:month": "1461/112", "inserts:hotel:week": "1461/28", "inserts:hotel:month": "12",
}  # fmt: skip


def coarse(records: float) -> int:
    """The nearest of 1, 3, 10, 30, ..., as a guess of somebody who knows about how many there are.

    >>> [coarse(number) for number in (0.2, 1.8, 200, 1667, 4500)]
    [1, 3, 300, 1000, 3000]
    """
    guesses = [digit * 10**power for power in range(9) for digit in (1, 3)]
    return min(guesses, key=lambda guess: abs(math.log(guess / max(records, 1e-9))))


@cache
def facts(stream: str) -> KeyedStream:
    """What anybody may know of a stream."""
    return load(stream, 0)


def configuration(
    stream: str, method: str, budget: str, folder: Path, guess: Callable[[float], int] = coarse
) -> Config:
    """The file of a method, without data, with guesses; it stays in the folder."""
    known, (name, *words) = facts(stream), method.replace("aim", "baseline:offline=aim").split(":")
    by_key = known.followed and name in ("default", "census")
    epsilon, _, delta = budget.partition(",")
    amount = {"epsilon": str(Fraction(epsilon)), **({"delta": delta} if delta else {})}
    if known.followed and not by_key:
        rho = approximate_to_zcdp(epsilon, delta).rho if delta else 0
        amount = {"rho": str(rho / 4)} if rho else {"epsilon": str(Fraction(epsilon) / 2)}
    options = {key: int(x) if x.isdigit() else x for key, x in (word.split("=") for word in words)}
    coming = known.records_per_step / float(Fraction(options.pop("stay", 1)))
    sections: dict[str, dict[str, Any]] = {
        "stream": {"name": "s", "unit": "record" if by_key else "event"},
        "source": {"path": "*.csv", "time_column": "when", "end": known.steps},
        "budget": {**amount, "horizon": known.steps},
        "expect": {"records_per_step": guess(coming)},
        "mechanism": {"workload": "all-2-way", **options} | ({} if name == "default" else {"name": name}),
    }
    sections["source"] |= {"key_column": "key"} if by_key else {}
    if known.deletes:
        sections["source"]["op_column"], sections["expect"]["size"] = "op", guess(known.size)
    sections["expect"] |= {"order": "sorted"} if sorts(stream) else {}
    for column, size in zip(known.domain.names, known.domain.sizes, strict=True):
        values = {"type": "categorical", "values": [str(code) for code in range(size)]}
        sections[f"schema.columns.{json.dumps(column)}"] = values
    lines = [[f"[{x}]", *(f"{k} = {json.dumps(v)}" for k, v in keys.items())] for x, keys in sections.items()]
    file = folder / f"{stream}--{method}--{budget}.toml".replace(":", "_").replace("/", "-")
    file.write_text("\n".join(sum(lines, ["format = 1"])), encoding="utf-8")
    config = Config.load(file)
    for start, steps in YEARS.items() if name == "default" else ():
        if stream.startswith(start):
            config = replace(config, recipe=replace(config.recipe, season=Fraction(steps)))  # type: ignore[type-var]
    return config


def sorts(stream: str) -> bool:
    """Whether its records are known to come sorted."""
    return stream.startswith("inserts:") and ":sorted" in stream


# Runs.


def measure(release: Release, table: TrueTable, step: int) -> dict[str, float]:
    """The errors of one step."""
    domain, pairs = table.domain, tables.Workload.all_k_way(table.domain, 2).cliques
    drawn = release.sample(max(0, round(release.total)), step)
    values = {"total": abs(release.total - table.records) / table.records}
    sides = {"": release.marginals(pairs), "_rows": tables.count_marginals(drawn, domain, pairs)}
    for side, made in sides.items():
        errors = workload_errors(table.marginals(pairs), [np.asarray(x, float) for x in made], table.records)
        values[f"we{side}"], values[f"max{side}"] = errors.we.mean(), errors.we.max()
        values[f"tv{side}"] = errors.tv.mean()
    return {name: round(float(value), 6) for name, value in values.items()}


def run(stream: KeyedStream, method: Method) -> Run:
    """One run of one method over one stream."""
    points, cpu = {}, 0.0
    windows = (*PARTS, "last", "tenths", "fifths")
    wanted = {s for s in range(1, stream.steps + 1) if any(is_in(x, s, stream.steps) for x in windows)}
    for moment in moments(stream):
        began = time.process_time()
        release = method(moment)
        cpu += time.process_time() - began
        if moment.step in wanted and release is not None and moment.table.records > 0:
            points[str(moment.step)] = measure(release, moment.table, moment.step)
    return {"steps": stream.steps, "cpu_ms": 1000 * cpu / stream.steps, "points": points}


class Grid:
    """The runs that are there, and how a missing one is made.

    Args:
        out: the private folder. repeats: how many runs of each cell are taken.
    """

    def __init__(self, out: Path, repeats: int) -> None:
        self.folder, self.repeats = out, repeats
        self.file = out / "runs.jsonl"
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        kept = map(json.loads, lines)
        self._runs = {(x["stream"], x["method"], x["budget"], x["repeat"]): x for x in kept}

    def of(self, stream: str, method: str, budget: str) -> list[Run]:
        """Those of one cell; a later line of the same name counts."""
        keys = [(stream, method, budget, repeat) for repeat in range(self.repeats)]
        return [self._runs[key] for key in keys if key in self._runs]

    def make(self, stream: str, method: str, budget: str, repeat: int, late: bool) -> Run | None:
        """The run, which is done where it is not there with the options that it would have now; ``late``: None then."""
        key, taken, options, config = (stream, method, budget, repeat), method, None, None
        if method in ("default", *_PARTED) and sorts(stream):
            plan = self.make(stream, "plan", budget, 0, late)
            taken = plan["recommended"] if plan else method
        taken = "default" if taken in _PARTED else taken
        if method not in (*TRIVIAL, "offline"):
            config = configuration(stream, "default" if method == "plan" else taken, budget, self.folder)
            options = json.loads(json.dumps(config.plan().options()))
        if key in self._runs and self._runs[key]["options"] == options:
            return self._runs[key]
        self._runs.pop(key, None)
        if late:
            return None
        randomness = Randomness.seeded(f"{stream} {taken} {budget} {repeat}")
        if config is not None:
            work = mechanism(config.plan(), randomness)
            work = exact(work, facts(stream).steps, now=method == "selection") if method in _PARTED else work
        else:
            work = trivial(method) if method in TRIVIAL else offline(facts(stream), budget, randomness)
        made = _said(config) if config and method == "plan" else run(load(stream, repeat), work)
        names = dict(zip(("stream", "method", "budget", "repeat"), key, strict=True))
        self._runs[key] = {**names, "taken": taken, "options": options, **made}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._runs[key]) + "\n")
        return self._runs[key]


def _said(config: Config) -> Run:
    """What ``plan --compare`` says, by the names of methods here."""
    compared = compare_mechanisms(config)
    taken = compared.recommendation
    names = {taken.configured: "default", "baseline (offline = aim)": "aim"}
    errors = {names.get(x.mechanism, x.mechanism): x for x in compared.errors if x.columns == "correlated"}
    said = {name: line.deciding for name, line in errors.items()}
    return {"recommended": names.get(taken.mechanism, taken.mechanism), "said": said, "runs": compared.runs}


# Tables of the results: each gives sentences, and rows as mappings from the heads of their columns.

Line = str | dict[str, Any]


def over(runs: Sequence[Run], name: str, window: str) -> list[float]:
    """Of each run the mean of a measure over the points in a window; NaN where there is none."""
    each = [[p[name] for s, p in x["points"].items() if is_in(window, int(s), x["steps"])] for x in runs]
    return [statistics.fmean(values or [math.nan]) for values in each] or [math.nan]


def ratios(runs: Sequence[Run], others: Sequence[Run], name: str, window: str) -> list[float]:
    """Means over the runs, step by step, over those of other runs; NaN alone where nothing is shared."""
    shared = [step for x in runs[:1] for step in x["points"] if others and step in others[0]["points"]]
    steps = [step for step in shared if is_in(window, int(step), runs[0]["steps"])]
    means = [
        [statistics.fmean(x["points"][step][name] for x in some) for some in (runs, others)] for step in steps
    ]
    return [ours / theirs for ours, theirs in means] or [math.nan]


def milliseconds(runs: Sequence[Run]) -> float:
    """CPU of a step; the median of the runs."""
    return statistics.median(item["cpu_ms"] for item in runs)


#: Each stream of ``targets``: how its records come, and how it was used while the mechanism was made.
_USES = {
    "shuffled, tuned on": "shuffled:20000:100 adult:shuffled",
    "drifting, tuned on": "sorted:20000:100 drift:20000:100 both:29787:96 eviction:month",
    "drifting, looked at before": "adult:sorted eviction:week hotel:month satellites:year",
    "drifting, untouched, but for the same records by other steps": "hotel:week satellites:month",
}
USED = {f"inserts:{name}": use for use, names in _USES.items() for name in names.split()}
#: The targets: at the end by the kind of stream, and along it.
END, ALONG = {"shuffled": 1.75, "drifting": 2.25}, 2.5


def targets(grid: Grid, cells: Cells, methods: Sequence[str]) -> Iterator[Line]:
    """The default at the last ten steps, medians of the runs. "/AIM": over one run of offline AIM at the last
    step. Targets: AvgWE 1.75 times (shuffled) or 2.25 times (drifting). Along: mean
    ratio to AIM at the ends of fifths (2.5). ms: CPU of a step. "/print": over the better one of the paper's
    baseline and proposed columns (0.2 to epsilon 1, 0.25 beyond). Along, selection and age: the same ratio
    of the model without noise, newest marginals first (the default moves old ones to newer columns, so it can be nearer
    than age). To it: ratios to DP-STabS from 5 % of the stream on. + a target is met, - is missed."""
    met: dict[str, list[bool]] = {}
    for stream, budget in cells:
        default, ceiling, dpstabs = (grid.of(stream, x, budget) for x in ("default", "offline", "dpstabs"))
        if not default or not ceiling:
            continue
        use = USED.get(stream, "shuffled" if "randomized" in stream else "drifting")
        row: dict[str, Any] = {"stream": stream, "use": use, "budget": budget, "taken": default[0]["taken"]}
        limits = {"AvgWE/AIM": END[use.split(",")[0]], "along": ALONG}
        for name, label in {"we": "AvgWE", "tv": "TV", "max": "MaxWE"}.items():
            row[label] = value = statistics.median(over(default, name, "last"))
            row[f"{label}/AIM"] = value / statistics.fmean(over(ceiling, name, "end"))
            epsilon = Fraction(budget.split(",")[0])
            columns = [(stream, epsilon, label, column) for column in ("baseline", "proposed-simple")]
            if numbers := [published_kumar()[key].value for key in columns if key in published_kumar()]:
                row[f"{label}/print"] = value / min(numbers)
                limits[f"{label}/print"] = 0.2 if epsilon <= 1 else 0.25
        for name, label in (("we", "along"), ("tv", "TV along")):
            each = [statistics.fmean(ratios([item], ceiling, name, "fifths")) for item in default]
            row[label] = statistics.median(each)
            for part in _PARTED:
                some = grid.of(stream, part, budget)
                row[f"{label}, {part}"] = statistics.fmean(ratios(some, ceiling, name, "fifths"))
        if dpstabs:
            row["DP-STabS"] = statistics.fmean(over(dpstabs, "we", "last"))
            row["to it"] = statistics.fmean(ratios(default, dpstabs, "we", "from 5 %"))
        row["ms"] = milliseconds(default)
        for name, limit in limits.items():
            met.setdefault(name, []).append(row[name] <= limit)
            row[name] = f"{row[name]:.2f}{'+' if met[name][-1] else '-'}"
        yield row
    yield from (f"{name}: {sum(marks)} of {len(marks)} targets are met." for name, marks in met.items())


def losses(grid: Grid, cells: Cells, methods: Sequence[str]) -> Iterator[Line]:
    """Means over tenths of the stream. To the best
    other: the first method over the best of the other mechanisms, with the half width of its 95 % interval (t, of
    the logarithms of paired runs: same stream, other noise); ! marks ratios over 1.10."""
    marks: list[bool] = []
    for stream, budget in cells:
        runs = {name: some for name in methods if (some := grid.of(stream, name, budget))}
        use = "invented" if not facts(stream).real else "tuned on" if stream[8:] in TUNED else "only reported"
        windows = [x for x in PARTS if x.startswith("tenth")]
        for name, label in (("we", "AvgWE"), ("tv", "TV")) if methods[0] in runs else ():
            head = {"stream": stream, "use": use, "budget": budget, "runs": len(runs[methods[0]])}
            labels = (*runs, "to the best other")
            rows: dict[str, dict[str, Any]] = {x: {**head, "of": label, "method": x} for x in labels}
            rows[methods[0]]["method"] = " = ".join(dict.fromkeys((methods[0], runs[methods[0]][0]["taken"])))
            for window in windows:
                inside = {x: np.array(over(some, name, window)) for x, some in runs.items()}
                for x, values in inside.items():
                    rows[x][window] = float(values.mean())
                first, *others = (values for x, values in inside.items() if x not in (*TRIVIAL, "offline"))
                if not others or np.isnan(first).any():
                    continue
                best = min(others, key=lambda values: float(values.mean()))
                ratio, apart = first.mean() / best.mean(), np.log(first[: len(best)] / best[: len(first)])
                marks.append(ratio > 1.1)
                mark = "!" if ratio > 1.1 else ""
                if len(apart) > 1:
                    width = t_factor(len(apart) - 1) * apart.std(ddof=1) / math.sqrt(len(apart))
                    mark += f" ±{np.expm1(width):.0%}"
                rows["to the best other"][window] = f"{ratio:.2f}{mark}"
            yield from rows.values()
    yield f"{sum(marks)} of {len(marks)} ratios are over 1.10."


_KINDS = {"AvgWE": "we", "AvgWE rows": "we_rows", "TV": "tv", "TV rows": "tv_rows", "total": "total"}


def changing(grid: Grid, cells: Cells, methods: Sequence[str]) -> Iterator[Line]:
    """Means from 10 % of the stream on; of real streams by halves, as the later half is out of all tuning. Of
    pooled: of AvgWE. Of offline: mean ratio of AvgWE at the ends of tenths, over the whole stream."""
    for stream, budget in cells:
        runs = {name: some for name in methods if (some := grid.of(stream, name, budget))}
        for window in ("first half", "later half") if facts(stream).real else ("from 10 %",):
            pooled = statistics.fmean(over(runs.get("pooled", []), "we", window))
            for name, some in runs.items():
                values: dict[str, Any] = {
                    x: statistics.fmean(over(some, key, window)) for x, key in _KINDS.items()
                }
                offline = statistics.fmean(ratios(some, runs.get("offline", []), "we", "tenths"))
                row = {"stream": stream, "of": window, "budget": budget, "method": name, "runs": len(some)}
                yield row | values | {
                    "of pooled": values["AvgWE"] / pooled, "of offline": offline, "ms": milliseconds(some)
                }  # fmt: skip


def compare(grid: Grid, cells: Cells, methods: Sequence[str]) -> Iterator[Line]:
    """AvgWE at the ends of tenths. Said: on invented streams of correlated columns; true: on the stream itself;
    both over the default. Right: what is recommended is best on the stream itself, or within 10 % of it."""
    right, usual = list[bool](), list[bool]()
    for stream, budget in cells:
        runs = {name: some for name in methods if (some := grid.of(stream, name, budget))}
        true = {x: statistics.fmean(over(some, "we", "tenths")) for x, some in runs.items() if x != "plan"}
        if "plan" not in runs or not true.keys() >= runs["plan"][0]["said"].keys():
            continue
        plan, best = runs["plan"][0], min(true, key=true.__getitem__)
        taken = plan["recommended"]
        right.append(true[taken] <= 1.1 * true[best])
        usual.append(true["default"] <= 1.1 * true[best])
        row = {"stream": stream, "budget": budget, "recommended": taken, "truly best": best}
        row |= {"right": right[-1], "taken / best": true[taken] / true[best], "AvgWE": true["default"]}
        for label, values in (("said", plan["said"]), ("true", true)):
            others = [x for x in values if x != "default"]
            row[label] = ", ".join(f"{x} {values[x] / values['default']:.2f}" for x in others)
        yield row | {"runs": len(runs["default"])}
    yield f"What `plan --compare` takes is right on {sum(right)} of {len(right)}; the default would be on {sum(usual)}."


def printed(lines: Iterable[Line]) -> str:
    """Rows as one table with aligned columns and three digits of each number, then sentences."""
    lines = list(lines)
    rows = [line for line in lines if not isinstance(line, str)]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    texts = [[number(row.get(head, "")) for head in heads] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    cells = [heads, ["-" * width for width in widths], *texts]
    table = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return "\n".join([*table, "", *(line for line in lines if isinstance(line, str))])


def number(value: Any) -> str:
    """A cell; NaN is left out."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return str(value)


@dataclass(frozen=True)
class Preset:
    """A question.

    Attributes:
        lines: the table that answers it.
        streams, methods, budgets, repeats: what it takes where the command says nothing else.
    """

    lines: Callable[[Grid, Cells, Sequence[str]], Iterator[Line]]
    streams: str
    methods: str
    budgets: str = "1"
    repeats: int = 5


PRESETS = {
    "targets": Preset(
        targets, " ".join(USED), "default selection age offline", "1 1,1e-9 4 4,1e-9 1/2 1/2,1e-9 2 2,1e-9"
    ),
    "paper": Preset(targets, " ".join(KUMAR_STREAMS), "default offline dpstabs", "1 1/2 2 4"),
    "losses": Preset(
        losses,
        """inserts:shuffled:20000:100 inserts:sorted:20000:100 inserts:season:29787:96 inserts:drift:20000:100
        inserts:both:29787:96 inserts:shuffled:3000:12 inserts:both:3000:24 inserts:adult:shuffled
        inserts:eviction:month inserts:adult:sorted inserts:eviction:week inserts:hotel:week inserts:hotel:month
        inserts:satellites:month inserts:satellites:year""",
        "default dpstabs baseline aim",
    ),
    "changing": Preset(
        changing,
        """stock:200:0.5:100 stock:200:3:120 stock:200:60:200 stock:5000:0.5:60 stock:5000:3:100 stock:5000:60:200
        stock:50000:12:60 adult:5000:3:60 hotel:week hotel:day satellites:year""",
        "default pooled dpstabs empty uniform independent last offline",
        "1 1/2 2",
        repeats=2,
    ),
    "compare": Preset(
        compare,
        """simulated:evictions:100:3 simulated:evictions:100:32 simulated:census:100:12 simulated:census:1000:20
        stock:200:3:60 stock:5000:60:100 Adult-randomized-bs-200@100 Adult-ordered-bs-200@100 Adult-ordered-bs-50@30
        Adult-randomized-bs-50@40#1,5,7 Eviction-weekly@60 Eviction-weekly@100#0,1 Adult-randomized-bs-50@60#0,1
        Adult-ordered-bs-50@20#2,3,4 Eviction-weekly@100#3,4,10 hotel:week satellites:year@60""",
        "plan default pooled dpstabs baseline aim",
        repeats=2,
    ),
}


def applies(method: str, stream: str) -> bool:
    """Whether a method is another one than the default, and could take its place."""
    name = method.partition(":")[0]
    return name not in (("baseline", "aim") if facts(stream).followed else ("pooled", "census"))


def main() -> None:
    """Run what is missing, then print."""
    parser = documented_parser(__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="targets")
    for name in ("streams", "methods", "budgets"):
        parser.add_argument(f"--{name}", nargs="+", help="as a preset has them, where nothing is said")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--minutes", type=float, default=240.0, help="of CPU; no run is begun after them")
    parser.add_argument("--out", default="table-errors", help="the private folder of runs")
    parser.add_argument("--result", type=Path)
    asked = parser.parse_args()
    preset = PRESETS[asked.preset]
    streams, methods = asked.streams or preset.streams.split(), asked.methods or preset.methods.split()
    budgets, repeats = asked.budgets or preset.budgets.split(), asked.repeats or preset.repeats
    grid, missing = Grid(PrivateFolder(asked.out).path, repeats), 0
    here = [stream for stream in streams if is_there(stream)]
    # All streams once before any is run again: what is there after an interruption says something of each.
    for repeat, budget, stream, method in product(range(repeats), budgets, here, methods):
        if applies(method, stream) and not (method == "plan" and repeat):
            late = time.process_time() > 60 * asked.minutes
            missing += grid.make(stream, method, budget, repeat, late) is None
            if not late:
                print(stream, method, budget, repeat, f"{time.process_time():.0f} s", flush=True)
    table = printed(preset.lines(grid, list(product(here, budgets)), methods))
    lines = [inspect.getdoc(preset.lines) or "", "", table, f"{missing or 'No'} runs are missing."]
    if absent := [stream for stream in streams if stream not in here]:
        lines.append(f"Left out, as their data are not here: {', '.join(absent)}.")
    show_result("\n".join([*lines, ""]), asked.result)


if __name__ == "__main__":
    main()
