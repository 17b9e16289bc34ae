"""Error over time of four ways to answer the same counting questions on a growing table, at equal epsilon.

    python benchmarks/growing_compare.py [--runs 5] [--large] [--out benchmarks/results/growing_compare]

Scheduler and improver around MWEM+PGM, PMWG, and DP-STabS with its pooled relative; all for one record's values
replaced, with public numbers of records (``event-replace``). Adult in random order (first 2,000 records, then 200 a
step) and San Francisco's eviction notices in order of date (a step every four weeks, questions from 2,000 notices on).
Columns are few, so that PMWG's universe fits. 200 questions: two columns each, a random half of the values of either
(or one value). Yardsticks: one run of MWEM+PGM with all of epsilon at that size (no stream: it could be made once), and
the uniform distribution. PMWG is set as the text has it, and as was best of 16 ways on these streams (which flatters
it: choosing by private truth costs budget; but new records are taken to be alike now, which was none of the 16).

``--large``: the same questions, and ones about five columns, for a million records drawn from Adult's with replacement,
growing to three million.

The private truth is needed to measure errors: evaluation only. Needs DPSTREAM_DATA.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from bench import drawing, open_frame, save_figure
from made_by import write_result
from numpy.typing import NDArray

from dpstream.core.privacy import Event, PureDP, Randomness, approximate_to_zcdp
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import PMWG, BBImprover, BBScheduler, LinearQuery, MWEMPGMBox
from dpstream.families.tabular import DPStabs, Pooled
from dpstream.mechanisms import MWEMPGM

LONG = "about 10 minutes"
UNIT = Event("replace")
START = 2_000
QUESTIONS = 200
DELTA = "1e-6"
ADULT = ("workclass", "marital-status", "relationship", "race", "sex", "income>50K", "age")
EVICTION = (
    "supervisor_district", "non_payment", "breach", "nuisance", "owner_move_in", "ellis_act_withdrawal",
    "capital_improvement", "demolition", "roommate_same_unit", "other_cause", "late_payments",
    "unapproved_subtenant",
)  # fmt: skip

Shares = NDArray[np.float64]
#: Answers to all questions at each size that is looked at.
Answers = Iterator[tuple[int, Shares]]


@dataclass(frozen=True)
class Stream:
    """Records in order, where each step ends, and the sizes at which errors are measured.

    ``start``: the size from which on there are questions. ``width``: how many columns a question is about.
    """

    name: str
    domain: Domain
    codes: NDArray[np.int32]
    ends: tuple[int, ...]
    looks: tuple[int, ...]
    start: int = START
    width: int = 2

    def steps(self) -> Iterator[tuple[int, EncodedBatch]]:
        """The size after each step, and its records."""
        begin = 0
        for end in self.ends:
            yield end, EncodedBatch(self.domain, self.codes[begin:end])
            begin = end


def data(name: str) -> Path:
    """A folder of the real data."""
    return Path(os.environ["DPSTREAM_DATA"]) / name


def rows(path: Path) -> list[dict[str, str]]:
    """A compressed CSV."""
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def looks(ends: Sequence[int]) -> tuple[int, ...]:
    """About a dozen sizes, evenly spread on a logarithmic scale, each the end of a step."""
    wanted = np.geomspace(START, ends[-1], 12)
    return tuple(sorted({min(end for end in ends if end >= size - 1e-6) for size in wanted}))


def adult(seed: int) -> Stream:
    """A random order for each repetition."""
    sizes = json.loads((data("adult") / "adult-domain.json").read_text())
    table = np.array([[row[c] for c in ADULT] for row in rows(data("adult") / "adult.csv.gz")], np.int32)
    table = table[np.random.default_rng(seed).permutation(len(table))]
    ends = (*range(START, len(table), 200), len(table))
    return Stream("Adult", Domain(ADULT, tuple(sizes[c] for c in ADULT)), table, ends, looks(ends))


def eviction(seed: int) -> Stream:
    """In order of the filing date, four weeks a step."""
    values = json.loads((data("eviction") / "domain.json").read_text())
    place = {c: {str(v): i for i, v in enumerate(values[c])} for c in EVICTION}
    found = rows(data("eviction") / "eviction.csv.gz")
    table = np.array([[place[c][row[c]] for c in EVICTION] for row in found], np.int32)
    days = np.array([date.fromisoformat(row["file_date"]).toordinal() for row in found])
    period = (days - days[0]) // 28
    ends = tuple(np.searchsorted(period, np.unique(period), side="right").tolist())
    domain = Domain(EVICTION, tuple(len(values[c]) for c in EVICTION))
    return Stream("Evictions", domain, table, ends, looks([end for end in ends if end >= START]))


def million(width: int) -> Callable[[int], Stream]:
    """Adult's records drawn with replacement; thirty steps."""

    def make(seed: int) -> Stream:
        few = adult(seed)
        drawn = few.codes[np.random.default_rng(seed).integers(0, len(few.codes), 3_000_000)]
        ends, sizes = tuple(range(10**6, 3 * 10**6 + 1, 10**5)), (10**6, 15 * 10**5, 22 * 10**5, 3 * 10**6)
        return Stream("Adult", few.domain, drawn, ends, sizes, start=10**6, width=width)

    return make


def questions(stream: Stream) -> list[LinearQuery]:
    """Public: the same for every method and repetition."""
    domain = stream.domain
    g = np.random.default_rng(20)
    found = []
    for number in range(QUESTIONS):
        clique = tuple(sorted(g.choice(len(domain), stream.width, replace=False).tolist()))
        weights = np.ones(1)
        for column in clique:
            size = domain.sizes[column]
            chosen = 1 if number % 2 else max(1, size // 2)
            if stream.width > 2:
                chosen = max(1, 2 * size // 3)
            side = np.zeros(size)
            side[g.choice(size, chosen, replace=False)] = 1.0
            weights = np.outer(weights, side).ravel()
        found.append(LinearQuery(clique, weights))
    return found


def answers(asked: Sequence[LinearQuery], made: Any) -> Shares:
    """Shares of the records, from a table's or a model's marginals."""
    cliques = sorted({query.clique for query in asked})
    at = dict(zip(cliques, made.marginals(cliques), strict=True))
    return np.array(
        [query.weights @ at[query.clique] / max(at[query.clique].sum(), 1e-12) for query in asked]
    )


def amounts(budget: str) -> dict[str, str]:
    """Of ``calibrate``."""
    return {"epsilon": "1"} if budget == "pure" else {"rho": str(approximate_to_zcdp("1", DELTA).rho)}


def table_stream(make: Callable[[Stream, Workload], Any]) -> Callable[[Stream, str], Answers]:
    """A mechanism whose every step gives a table."""

    def run(stream: Stream, budget: str) -> Answers:
        workload = Workload.all_k_way(stream.domain, 2)
        plan = make(stream, workload).calibrate(unit=UNIT, **amounts(budget))
        asked, state, source = questions(stream), plan.start(), Randomness.system()
        for size, batch in stream.steps():
            made = plan.step(state, batch, source)
            if size in stream.looks:
                yield size, answers(asked, made)

    return run


def pmwg(**options: Any) -> Callable[[Stream, str], Answers]:
    """All questions are asked at every size that is looked at; the first of them at 2,000 records."""

    def run(stream: Stream, budget: str) -> Answers:
        plan = PMWG(stream.domain, start=stream.start, **options).calibrate(unit=UNIT, **amounts(budget))
        state, source = plan.start(), Randomness.system()
        for size, batch in stream.steps():
            plan.arrive(state, batch)
            if size in stream.looks:
                given = [plan.ask(state, query, source) for query in questions(stream)]
                yield size, np.clip([one.value for one in given], 0.0, 1.0)

    return run


def once(stream: Stream, budget: str) -> Answers:
    """No stream: all of epsilon for the table of one size."""
    workload = Workload.all_k_way(stream.domain, 2)
    whole = PureDP.of(1) if budget == "pure" else approximate_to_zcdp("1", DELTA)
    plan = MWEMPGM().calibrate(workload, whole, UNIT)
    for size in stream.looks:
        model = plan.run(EncodedBatch(stream.domain, stream.codes[:size]), "net", Randomness.system())
        yield size, answers(questions(stream), model)


def uniform(stream: Stream, budget: str) -> Answers:
    """Nothing about the data."""
    for size in stream.looks:
        yield size, np.array([query.weights.mean() for query in questions(stream)])


METHODS: dict[str, Callable[[Stream, str], Answers]] = {
    "scheduler, gamma 1/10": table_stream(lambda s, w: BBScheduler(MWEMPGMBox(w), s.start, gamma="1/10")),
    "scheduler, gamma 1/2": table_stream(lambda s, w: BBScheduler(MWEMPGMBox(w), s.start, gamma="1/2")),
    "improver, c 1/10": table_stream(lambda s, w: BBImprover(MWEMPGMBox(w), s.start, c="1/10")),
    "PMWG, text": pmwg(alpha="1/10", learning="text"),
    "PMWG, best of 16": pmwg(alpha="1/5", hard_questions=20, learning="matching"),
    "DP-STabS": table_stream(lambda s, w: DPStabs(w)),
    "pooled": table_stream(lambda s, w: Pooled(w)),
    "once, all of epsilon": once,
    "uniform": uniform,
}
STREAMS = {"Adult": adult, "Evictions": eviction}
LARGE = {
    "A million records, questions about two columns": million(2),
    "A million records, questions about five columns": million(5),
}
METHODS_LARGE = {
    "scheduler, gamma 1/2": METHODS["scheduler, gamma 1/2"],
    "PMWG, text, alpha 1/20": pmwg(alpha="1/20", learning="text"),
    "PMWG, 300 hard, matching, alpha 1/50": pmwg(alpha="1/50", hard_questions=300, learning="matching"),
    "DP-STabS": METHODS["DP-STabS"],
    "pooled": METHODS["pooled"],
    "once, all of epsilon": once,
    "uniform": uniform,
}


def measure(
    task: tuple[str, str, str, int],
) -> tuple[tuple[str, str, str, int], dict[int, list[float]], float]:
    """(mean, maximum) of the absolute errors at each size, as shares of the records; and CPU seconds."""
    budget, name, method, seed = task
    stream = {**STREAMS, **LARGE}[name](seed)
    asked, found, begun = questions(stream), {}, time.process_time()
    for size, given in (METHODS_LARGE if name in LARGE else METHODS)[method](stream, budget):
        cells = np.ravel_multi_index(tuple(stream.codes[:size].T), stream.domain.sizes)
        cube = np.bincount(cells, minlength=np.prod(stream.domain.sizes)).reshape(stream.domain.sizes) / size
        rest = range(len(stream.domain))
        truth = [
            query.weights @ cube.sum(axis=tuple(i for i in rest if i not in query.clique)).ravel()
            for query in asked
        ]
        errors = np.abs(given - np.array(truth))
        found[size] = [float(errors.mean()), float(errors.max())]
    return task, found, time.process_time() - begun


def main() -> None:
    """Tables and pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/growing_compare"))
    asked = parser.parse_args()
    tasks = [
        (budget, name, method, seed)
        for budget in ("pure", "zcdp")
        for name in (LARGE if asked.large else STREAMS)
        for method in (METHODS_LARGE if asked.large else METHODS)
        for seed in range(1 if method == "uniform" and name == "Evictions" else asked.runs)
        if not (budget == "pure" and method.startswith("improver"))
    ]
    results: dict[tuple[str, str, str], list[dict[int, list[float]]]] = {}
    seconds: dict[tuple[str, str, str], list[float]] = {}
    with ProcessPoolExecutor(asked.processes) as pool:
        for task, found, spent in pool.map(measure, tasks):
            results.setdefault(task[:3], []).append(found)
            seconds.setdefault(task[:3], []).append(spent)
    asked.out.mkdir(parents=True, exist_ok=True)
    write_table(asked.out / ("large.md" if asked.large else "README.md"), results, seconds, asked.runs)
    if not asked.large:
        draw(asked.out, results)


def write_table(path: Path, results: Any, seconds: Any, runs: int) -> None:
    """One table for each budget and stream."""
    lines = [
        "# Four ways to answer 200 counting questions on a growing table",
        "",
        f"`make bench BENCH=growing_compare` ({runs} runs; `--large` for large.md). Measured on private truth:",
        "evaluation only.",
        "Mean absolute error over the questions / largest one, in percent of the records; means of the runs.",
        "",
    ]
    for budget in ("pure", "zcdp"):
        what = "epsilon 1, pure" if budget == "pure" else f"epsilon 1, delta {DELTA}, through zCDP"
        for name in (*STREAMS, *LARGE):
            found = {key[2]: value for key, value in results.items() if key[:2] == (budget, name)}
            if not found:
                continue
            sizes = sorted(next(iter(found.values()))[0])
            shown = sizes[:: max(1, len(sizes) // 5)]
            shown = sorted({*shown, sizes[-1]})
            lines += [f"## {name}, {what}", ""]
            lines += ["| method | " + " | ".join(f"{size:,}" for size in shown) + " | CPU s |"]
            lines += ["|---|" + "---|" * (len(shown) + 1)]
            for method, runs_ in found.items():
                cells = []
                for size in shown:
                    mean, most = np.mean([run[size] for run in runs_], axis=0)
                    cells.append(f"{100 * mean:.2f} / {100 * most:.1f}")
                spent = np.median(seconds[budget, name, method])
                lines.append(f"| {method} | " + " | ".join(cells) + f" | {spent:.0f} |")
            lines.append("")
    write_result(path, "\n".join(lines))
    print("\n".join(lines))


def draw(out: Path, results: Any) -> None:
    """One picture: a panel for each budget and stream."""
    plt = drawing()
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 7.5))
    colours = dict(zip(METHODS, plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False))
    for row, budget in enumerate(("pure", "zcdp")):
        for column, name in enumerate(STREAMS):
            panel = axes[row][column]
            for method in METHODS:
                runs = results.get((budget, name, method))
                if runs is None:
                    continue
                sizes = sorted(runs[0])
                line = [100 * np.mean([run[size][0] for run in runs]) for size in sizes]
                style = ":" if method in ("once, all of epsilon", "uniform") else "-"
                panel.plot(sizes, line, style, color=colours[method], label=method, linewidth=1.5)
            words = "epsilon 1 (pure)" if budget == "pure" else f"epsilon 1, delta {DELTA}"
            panel.set_title(f"{name}, {words}", fontsize=10)
            panel.set(xscale="log", yscale="log", xlabel="records", ylabel="mean error, % of the records")
            panel.set_xticks(
                [2_000, 5_000, 10_000, 20_000, 40_000], ["2,000", "5,000", "10,000", "20,000", "40,000"]
            )
            panel.set_yticks([0.3, 1, 3, 10, 30], ["0.3", "1", "3", "10", "30"])
            panel.minorticks_off()
            open_frame(panel)
    handles, labels = axes[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, fontsize=8, frameon=False)
    save_figure(figure, out / "error.svg", below=0.06)


if __name__ == "__main__":
    main()
