"""The targets of tables in one table: the default beside offline AIM, at the end, along the stream, worst and in time.

    python benchmarks/targets.py [--runs benchmarks/results/targets/runs.jsonl] [--streams LIST] [--budgets LIST]
        [--repeats 5] [--minutes 30] [--result benchmarks/results/targets/README.md]

Records only come. ``default``: what ``dpstream init`` drafts, with a guess of the records a step (1, 3, 10, 30, ...)
and with the season where a stream has one; where records come sorted, what ``plan --compare`` picks
(``no_loss.in_full``). ``offline``: one run of AIM on the table at the end of each fifth of the stream, each with the
whole budget. Budgets: epsilon 1/2, 1, 2, 4, and the largest rho that implies (epsilon, 1e-9).

Every run is a line of ``--runs``, written when it is done; runs that are there with the same options are not repeated,
so the script may be stopped (``--minutes`` of CPU: no run is begun after them) and continued on a quiet machine. The
lines hold errors only.

Each cell: the median over the runs. "End": of ten steps up to the last (so many as there are), over offline AIM at the
last. "Along": the mean of the ratios to offline AIM at the ends of the fifths. TV: total variation of pairs, each table
as shares of its own size. "Worst": MaxWE at the end over offline AIM's. For evaluation only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from changing_tables import budget_of, method, run
from keyed_streams import is_there, load
from made_by import HERE, write_result
from no_loss import in_full

from dpstream.core.tables import Workload

LONG = "about two hours of one core"
#: Each stream, and how it was used while the mechanism was made.
STREAMS: Mapping[str, tuple[str, str]] = {
    "inserts:shuffled:20000:100": ("shuffled", "tuned on"),
    "inserts:adult:shuffled": ("shuffled", "tuned on"),
    "inserts:sorted:20000:100": ("drifting", "tuned on"),
    "inserts:drift:20000:100": ("drifting", "tuned on"),
    "inserts:both:29787:96": ("drifting", "tuned on"),
    "inserts:eviction:month": ("drifting", "tuned on"),
    "inserts:adult:sorted": ("drifting", "looked at before"),
    "inserts:eviction:week": ("drifting", "looked at before"),
    "inserts:hotel:month": ("drifting", "looked at before"),
    "inserts:satellites:year": ("drifting", "looked at before"),
    "inserts:hotel:week": ("drifting", "untouched, but for the same records by month"),
    "inserts:satellites:month": ("drifting", "untouched, but for the same records by year"),
}
BUDGETS = ("1", "1,1e-9", "4", "4,1e-9", "1/2", "1/2,1e-9", "2", "2,1e-9")
METHODS = ("default", "offline")
#: The targets: at the end by the kind of stream, along it, MaxWE (named for evictions), milliseconds a step.
END, ALONG, WORST, TIME = {"shuffled": 1.75, "drifting": 2.25}, 2.5, 1.5, 30.0
LAST = 10
#: Parts of a stream; at the end of each the default is compared with offline AIM.
PARTS = 5
Run = dict[str, Any]
Key = tuple[str, str, str, int]


def ends(steps: int) -> list[int]:
    """The last step of each fifth.

    >>> ends(26)
    [6, 11, 16, 21, 26]
    """
    return sorted({-(-steps * part // PARTS) for part in range(1, PARTS + 1)})


def one_run(full: str, stream: str, name: str, budget: str, repeat: int) -> Run:
    """A run of the method in full, in so many numbers."""
    offline = name == "offline"

    def points(steps: int) -> set[int]:
        return set(ends(steps)) | (set() if offline else set(range(max(1, steps - LAST + 1), steps + 1)))

    found = run(stream, full, budget, repeat, False, points)
    steps, at = found["steps"], found["points"]
    last = [
        point
        for step, point in at.items()
        if (offline and step == steps) or (not offline and step > steps - LAST)
    ]
    return {
        "stream": stream, "method": name, "full": full, "budget": budget, "repeat": repeat, "steps": steps,
        "options": found["options"], "milliseconds": round(found["cpu_ms"], 2),
        "end": {key: round(statistics.fmean(one[f"{key}_model"] for one in last), 6) for key in ("we", "tv", "max")},
        "along": [[round(at[step][f"{key}_model"], 6) for step in ends(steps) if step in at] for key in ("we", "tv")],
    }  # fmt: skip


def is_same(one: Run) -> bool:
    """Whether a run that is there had the options that one would have now; what was picked stays."""
    stream = load(one["stream"], one["repeat"])
    workload = Workload.all_k_way(stream.domain, 2)
    options = method(one["full"], stream, workload, budget_of(one["budget"]))[1]
    return bool(one["options"] == json.loads(json.dumps(options)))


def read(path: Path) -> dict[Key, Run]:
    """The runs that are there; a later one of the same name counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    runs = [one for one in map(json.loads, lines) if "stream" in one]
    return {(one["stream"], one["method"], one["budget"], one["repeat"]): one for one in runs}


def cell(own: Sequence[Run], offline: Sequence[Run]) -> dict[str, float]:
    """Medians over the runs; a run of the default is divided by the mean of the offline ones, which differ little."""
    known = {key: statistics.fmean(one["end"][key] for one in offline) for key in ("we", "tv", "max")}
    found = {key: statistics.median(one["end"][key] / known[key] for one in own) for key in known}
    for at, key in enumerate(("we", "tv")):
        base = [statistics.fmean(point) for point in zip(*(one["along"][at] for one in offline), strict=True)]
        found[f"along {key}"] = statistics.median(
            statistics.fmean(a / b for a, b in zip(one["along"][at], base, strict=True)) for one in own
        )
    return found | {
        "AvgWE": statistics.median(one["end"]["we"] for one in own),
        "TV": statistics.median(one["end"]["tv"] for one in own),
        "milliseconds": statistics.median(one["milliseconds"] for one in own),
    }


def table(runs: Mapping[Key, Run], chosen: argparse.Namespace) -> Iterator[str]:
    """The lines of the result."""
    yield (
        f"{'stream':28}{'budget':>9}{'runs':>5} |{'AvgWE':>9}{'TV':>8} |{'end':>6}{'TV':>6}{'target':>7} |"
        f"{'along':>6}{'TV':>6}{'target':>7} |{'worst':>6}{'target':>7} |{'ms':>6}{'target':>7}"
    )
    met: dict[str, list[bool]] = {name: [] for name in ("end", "along", "worst (evictions)", "time")}
    for stream in chosen.streams:
        kind, use = STREAMS[stream]
        yield f"{stream.removeprefix('inserts:')}: {kind}, {use}"
        for budget in chosen.budgets:
            own, offline = (
                [runs[key] for r in range(chosen.repeats) if (key := (stream, name, budget, r)) in runs]
                for name in METHODS
            )
            if not own or not offline:
                continue
            found = cell(own, offline)
            limits = {"end": ("we", END[kind]), "along": ("along we", ALONG), "time": ("milliseconds", TIME)}
            if "eviction" in stream:
                limits["worst (evictions)"] = ("max", WORST)
            marks = {}
            for name, (key, limit) in limits.items():
                marks[name] = found[key] <= limit
                met[name].append(marks[name])
            mark = {name: "" if name not in marks else "+" if marks[name] else "-" for name in met}
            picked = "" if own[0]["full"].startswith("pooled") else f"  ({own[0]['full']} was picked)"
            yield (
                f"{'':28}{budget:>9}{f'{len(own)}/{len(offline)}':>5} |{found['AvgWE']:9.5f}{found['TV']:8.4f} |"
                f"{found['we']:6.2f}{found['tv']:6.2f}{END[kind]:6.2f}{mark['end']:1} |"
                f"{found['along we']:6.2f}{found['along tv']:6.2f}{ALONG:6.2f}{mark['along']:1} |"
                f"{found['max']:6.2f}{WORST if 'eviction' in stream else '':>6}{mark['worst (evictions)']:1} |"
                f"{found['milliseconds']:6.1f}{TIME:6.0f}{mark['time']:1}{picked}"
            )
    yield ""
    for name, marks_of in met.items():
        yield f"{name}: {sum(marks_of)} of {len(marks_of)} are met."
    missing = sum(
        (stream, name, budget, repeat) not in runs
        for stream in chosen.streams
        for name in METHODS
        for budget in chosen.budgets
        for repeat in range(chosen.repeats)
    )
    yield f"{missing} runs are missing." if missing else "No run is missing."


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=HERE / "results" / "targets" / "runs.jsonl")
    parser.add_argument("--streams", nargs="+", default=list(STREAMS))
    parser.add_argument("--budgets", nargs="+", default=list(BUDGETS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=240.0, help="of CPU, in this run of the script")
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()
    there = read(chosen.runs)
    chosen.runs.parent.mkdir(parents=True, exist_ok=True)
    # All streams once before any is run again: what is there after an interruption says something of each.
    for repeat in range(chosen.repeats):
        for budget in chosen.budgets:
            for stream in chosen.streams:
                for name in METHODS:
                    key = (stream, name, budget, repeat)
                    late = time.process_time() > 60 * chosen.minutes
                    if late or not is_there(stream) or (key in there and is_same(there[key])):
                        continue
                    earlier = there.get((stream, name, budget, 0))
                    full = in_full(name, stream, budget) if earlier is None else earlier["full"]
                    there[key] = one_run(full, *key)
                    with chosen.runs.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(there[key]) + "\n")
                    print(*key, there[key]["end"]["we"], f"{time.process_time():.0f} s", flush=True)
    lines = "\n".join(table(there, chosen))
    print(lines)
    if chosen.result:
        write_result(chosen.result, f"```text\n{lines}\n```\n")


if __name__ == "__main__":
    main()
