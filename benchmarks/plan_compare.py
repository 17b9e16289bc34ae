"""Whether `dpstream plan --compare` takes the right mechanism: what it says, and runs on the stream itself.

    [DPSTREAM_DATA=...] python benchmarks/plan_compare.py [--only WORD] [--runs 5] [--work FOLDER]
        [--out FILE]

For each stream a configuration is written with a coarse public guess of its size (1, 3, 10, 30, ...);
`compare_mechanisms` says which mechanism it would take (with its defaults, 100 steps and 60 seconds of CPU at most);
and every mechanism that it compared is run on the stream itself, with the same plan. AvgWE of pairs, mean over tenths
of the whole stream. Both are means of ``--runs`` runs at most with predictable noise; large streams say that they have
fewer. A recommendation is right where the true error of what it takes is the smallest one, or within 10 % of it. Real
data only where DPSTREAM_DATA names their folder. Found numbers are kept in the work folder, which is private.
Evaluation only.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from changing_tables import differences, moments
from keyed_streams import KeyedStream, load
from made_by import write_result

from dpstream.core.contracts.registry import DEFAULT_MECHANISM
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, PresentBatch, PresentView, count_marginals
from dpstream.lab.experiments import kumar_stream
from dpstream.lab.experiments.private_output import PrivateFolder
from dpstream.project import Config
from dpstream.project.alternatives import contenders
from dpstream.tools.choosing import compare_mechanisms
from dpstream.tools.evaluate import workload_errors
from dpstream.tools.evaluate.true_table import encoded_steps
from dpstream.tools.simulate import simulate

LONG = "about half an hour of one core"
ABOUT = """Ratios are AvgWE divided by that of the configured mechanism: on invented streams of correlated columns
(which decides), on those of uniform columns, and on the stream itself. "Taken / best": true AvgWE of what is
recommended, divided by the smallest. Runs: invented, true. Nothing about the invented streams was changed after the
first of these runs, so all streams are out of tuning. Two and three columns of a table were taken because the default
is not always the best one there.
"""
HEAD = (
    "| stream | guess: size, a step | configured | recommended | truly best | taken / best | right | said, correlated "
    "| said, uniform | true | true AvgWE of configured | runs |"
)
#: A step: a batch for a plan that reads counts, and one for a plan that reads present records; the records at its end.
Step = tuple[EncodedBatch, PresentBatch | None, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One stream.

    Attributes:
        source: what it is made of. steps: how many of its first steps. rows: records a step, of simulated ones.
        columns: which ones, where not all.
        size, per_step: the guess. runs: at most.
    """

    source: str
    steps: int
    size: int | None
    per_step: int | None
    mechanism: str = "pooled"
    epsilon: str = "1"
    rows: int = 0
    runs: int = 5
    columns: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        rows = f", {self.rows} a step" if self.rows else ""
        rows += f", {len(self.columns)} columns" if self.columns else ""
        return f"{self.source}{rows}, {self.steps} steps, epsilon {self.epsilon}"

    @property
    def kind(self) -> str:
        """Of its first word."""
        return self.source.split(":")[0].split("-")[0]

    @property
    def real(self) -> bool:
        """Whether it needs DPSTREAM_DATA."""
        return self.kind not in ("evictions", "census", "stock")


CASES = (
    Case("evictions", 3, 300, 100, "pooled", "0.5", 100),
    Case("evictions", 32, 3000, 100, "dpstabs", "1", 100),
    Case("census", 12, None, 100, "baseline", "0.5", 100),
    Case("census", 20, None, 1000, "dpstabs", "4", 1000),
    Case("stock:200:3:60", 60, 300, 100, "census"),
    Case("stock:5000:60:100", 100, 3000, 100, "census", runs=2),
    Case("Adult-randomized-bs-200", 100, None, 300, "dpstabs", runs=2),
    Case("Adult-ordered-bs-200", 100, None, 300, "pooled", runs=2),
    Case("Adult-ordered-bs-50", 30, None, 30, "dpstabs", "4", runs=3),
    Case("Adult-randomized-bs-50", 40, None, 30, "pooled", columns=(1, 5, 7)),
    Case("Eviction-weekly", 60, None, 30, "baseline", "0.5", runs=2),
    Case("Eviction-weekly", 100, None, 30, "pooled", columns=(0, 1)),
    Case("Adult-randomized-bs-50", 60, None, 30, "pooled", columns=(0, 1)),
    Case("Adult-ordered-bs-50", 20, None, 30, "dpstabs", columns=(2, 3, 4)),
    Case("Eviction-weekly", 100, None, 30, "baseline", columns=(3, 4, 10)),
    Case("hotel:week", 112, 10_000, 1000, "census", runs=2),
    Case("satellites:year", 60, 300, 100, "census", runs=3),
)


def prepare(case: Case, folder: Path) -> tuple[Config, Callable[[int], Iterator[Step]]]:
    """The configuration of the stream, without data, and its steps by the number of a run."""
    if case.source in ("evictions", "census"):
        config = Config.load(simulate(case.source, case.steps, folder / "own", rows_per_step=case.rows))
        domain, deletes = config.schema().domain, config.source_options.op_column is not None
        parts = [(came, gone) for _, _, came, gone in encoded_steps(config)]
        return _write(case, folder, domain, deletes=deletes), lambda run: _events(domain, parts, deletes)
    if case.kind in ("Adult", "Eviction"):
        data = Path(os.environ["DPSTREAM_DATA"])
        whole = kumar_stream(case.source, data).domain
        chosen = list(case.columns or range(len(whole)))
        domain = Domain(tuple(whole.names[i] for i in chosen), tuple(whole.sizes[i] for i in chosen))

        def steps(run: int) -> Iterator[Step]:
            replay = kumar_stream(case.source, data, seed=run if "randomized" in case.source else 0)
            parts = [np.asfortranarray(replay.inserts(step + 1)[:, chosen]) for step in range(case.steps)]
            return _events(domain, [(part, None) for part in parts], False)

        return _write(case, folder, domain, deletes=False), steps
    stream = load(case.source, 0)
    return _write(case, folder, stream.domain, deletes=True, keyed=True), lambda run: _keyed(
        case, load(case.source, run)
    )


def _events(domain: Domain, parts: list[Any], deletes: bool) -> Iterator[Step]:
    table = np.zeros((0, len(domain)), np.int32)
    for came, gone in parts:
        table = np.concatenate([table, came])
        left = gone if deletes else None
        if deletes and len(gone):
            table = _without(table, gone)
        yield EncodedBatch(domain, came, left), None, table


def _without(table: np.ndarray, gone: np.ndarray) -> np.ndarray:
    from dpstream.tools.errors.invented_tables import without

    return without(table, gone)


def _keyed(case: Case, stream: KeyedStream) -> Iterator[Step]:
    for _, moment in moments(stream, case.steps, set()):
        came, gone = differences(moment)
        yield (
            EncodedBatch(stream.domain, came, gone),
            PresentBatch(PresentView(moment.after, moment.departed)),
            moment.after.codes.astype(np.int32),
        )


def _write(case: Case, folder: Path, domain: Domain, *, deletes: bool, keyed: bool = False) -> Config:
    """A file with the guess; the data that it names are not there, and nothing reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = "\n".join(
        f'[schema.columns.{json.dumps(name)}]\ntype = "categorical"\nvalues = '
        f"{json.dumps([str(v) for v in range(size)])}"
        for name, size in zip(domain.names, domain.sizes, strict=True)
    )
    guess = "".join(
        f"{key} = {value}\n"
        for key, value in (("size", case.size), ("records_per_step", case.per_step))
        if value is not None
    )
    name = case.mechanism
    keys = 'key_column = "key"\nop_column = "op"\n' if keyed else 'op_column = "op"\n' if deletes else ""
    text = (
        f'format = 1\n[stream]\nname = "s"\nunit = "{"record" if keyed else "event"}"\n'
        f'[source]\npath = "data/*.csv"\ntime_column = "when"\nend = {case.steps}\n'
        f"{keys}"
        f'[mechanism]\nname = "{name}"\nworkload = "all-2-way"\n'
        f'[budget]\nepsilon = "{case.epsilon}"\nhorizon = {case.steps}\n[expect]\n{guess}{columns}\n'
    )
    path = folder / "dpstream.toml"
    path.write_text(text)
    return Config.load(path)


def true_error(config: Config, steps: Iterator[Step], last: int, seed: str) -> float:
    """AvgWE of one run on the stream itself: mean over tenths."""
    plan = config.plan()
    state, randomness = plan.start(), Randomness.seeded(seed)
    cliques = config.recipe.workload.cliques
    compared = {-(-last * tenth // 10) for tenth in range(1, 11)}
    found = []
    for step, (batch, present, table) in enumerate(steps, start=1):
        synthesis = plan.step(state, present if plan.reads == "present" else batch, randomness)
        if step in compared and len(table):
            truth = count_marginals(np.asfortranarray(table), plan.domain, cliques)
            made = [np.asarray(one, float).ravel() for one in synthesis.answers.marginals(cliques)]
            found.append(workload_errors(truth, made, len(table)).as_dict()["AvgWE"])
    return float(np.mean(found))


def recommended(config: Config, runs: int) -> dict[str, Any]:
    """What is said beforehand."""
    found = compare_mechanisms(config, runs=runs)
    said: dict[str, dict[str, float]] = {}
    for one in found.errors:
        said.setdefault(one.columns, {})[one.mechanism] = one.deciding
    return {
        "configured": found.recommendation.configured,
        "recommended": found.recommendation.mechanism,
        "words": found.recommendation.words,
        "runs": found.runs,
        "steps": found.steps,
        "said": said,
    }


def measure(case: Case, runs: int, work: PrivateFolder) -> dict[str, Any]:
    """What is said, and AvgWE of each mechanism's runs on the stream itself, as far as they are not in the folder."""
    name = case.label.replace(" ", "_").replace(":", "-")
    kept = {kind: work / f"{kind}-{name}.json" for kind in ("said", "true")}
    found = {kind: json.loads(path.read_text()) if path.is_file() else {} for kind, path in kept.items()}
    said = found["said"]["said"]["correlated"] if found["said"] else {}
    if said and all(len(found["true"].get(name, ())) >= runs for name in said):
        return {**found["said"], "true": found["true"]}
    with tempfile.TemporaryDirectory() as folder:
        config, steps = prepare(case, Path(folder))
        if not found["said"]:
            found["said"] = recommended(config, runs)
            work.write_json(kept["said"].name, found["said"])
        for one in contenders(config):
            own = found["true"].setdefault(one.label, [])
            while one.config is not None and len(own) < runs:
                seed = f"{case.label} {one.label} {len(own)}"
                own.append(true_error(one.config, steps(len(own)), case.steps, seed))
                work.write_json(kept["true"].name, found["true"])
    return {**found["said"], "true": found["true"]}


def line(case: Case, found: dict[str, Any]) -> tuple[str, bool, bool]:
    """The row of the table, and whether the recommendation and the default are right."""
    true = {name: float(np.mean(values)) for name, values in found["true"].items()}
    best, taken = min(true, key=true.__getitem__), found["recommended"]
    right = true[taken] <= 1.1 * true[best]
    configured = found["configured"]
    default = true["census" if "census" in true else DEFAULT_MECHANISM] <= 1.1 * true[best]

    def ratios(values: dict[str, float]) -> str:
        return ", ".join(f"{n} {v / values[configured]:.2f}" for n, v in values.items() if n != configured)

    own = len(next(iter(found["true"].values())))
    return (
        (
            f"| {case.label} | {case.size or '-'}, {case.per_step} | {configured} | {taken} | {best} | "
            f"{true[taken] / true[best]:.2f} | {'yes' if right else 'no'} | {ratios(found['said']['correlated'])} | "
            f"{ratios(found['said']['uniform'])} | {ratios(true)} | {true[configured]:.4f} | {found['runs']}, {own} |"
        ),
        right,
        default,
    )


def main() -> None:
    """Measure what is missing, then print and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="streams whose name has this word")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=Path, help="private; numbers that are there are not found out again")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    work = PrivateFolder(asked.work or tempfile.mkdtemp(prefix="plan-compare-"))
    rows: list[str] = []
    hits: list[bool] = []
    defaults: list[bool] = []
    wide: list[bool] = []
    cases = [case for case in CASES if asked.only in case.label]
    for case in cases:
        if case.real and "DPSTREAM_DATA" not in os.environ:
            continue
        row, right, default = line(case, measure(case, min(asked.runs, case.runs), work))
        print(row, flush=True)
        rows.append(row)
        hits.append(right)
        defaults.append(default)
        if not case.columns:
            wide.append(right)
    text = (
        "# Recommendations of `dpstream plan --compare` against the truth\n\n"
        "The recommended mechanism is the truly better one, or within 10 % of it, on "
        f"{sum(hits)} of {len(hits)} streams; on {sum(wide)} of the {len(wide)} with all their "
        f"columns. The mechanism that runs where a file names none would be on {sum(defaults)}.\n\n"
        f"{ABOUT}\n{HEAD}\n{'|---' * HEAD.count(' | ')}|---|\n" + "\n".join(rows) + "\n"
    )
    print(text)
    if asked.out is not None:
        write_result(asked.out, text)


if __name__ == "__main__":
    main()
