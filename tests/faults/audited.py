"""Plants faults that break the guarantee in a copy of the program, one at a time: does `dpstream audit` see them?

    make audit-faults                (NAMES="census": only faults and streams whose names hold one of these words)

Each fault is planted for every family that has its code, and audited on one of the small configurations of
``tests/replay``. The audit must accuse the program, and must not accuse it where nothing is planted. A fault whose
text is not in its file any more fails the run: plant it anew where its subject has moved. Faulty programs are audited
without the attack on their releases, which finds less; the honest one is audited with it. ``--out FILE`` writes the
table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "replay"), str(ROOT / "benchmarks")]
from configurations import CONFIGURATIONS  # noqa: E402

HONEST = "nothing is planted"
#: Seconds that one audit may take.
SECONDS = 300


@dataclass(frozen=True)
class Fault:
    """``after`` takes the place of ``before``, which stands in ``file`` (below ``src/dpstream``) once.

    Attributes:
        streams: names of configurations, one for each family that has the code.
        parts: of the audit, one after the other until one accuses the program.
    """

    name: str
    file: str
    before: str
    after: str
    streams: tuple[str, ...]
    parts: tuple[str, ...] = ("transcripts", "samplers")


#: A stream of each family, which has to pass where nothing is planted.
STREAMS = (
    "pooled, plain",
    "pooled, user",
    "pooled, deletes",
    "pooled, public total",
    "dpstabs",
    "dpstabs, user, rho",
    "dpstabs, deletes",
    "dpstabs, tree",
    "baseline",
    "baseline, deletes, rho",
    "census, changes",
    "census, snapshots, rho",
    "census, stays, headline",
    "panel window",
    "panel cumulative",
    "points",
    "scheduler",
    "improver",
)
_POOLED = ("pooled, plain", "pooled, user", "pooled, deletes")

FAULTS = (
    # Samplers, which a transcript replays.
    Fault(
        "joint noise is sampled at half its scale",
        "core/privacy/joint.py",
        "return _sampler(self.scale, self.sizes, self.level).sample(words)",
        "return _sampler(self.scale / 2, self.sizes, self.level).sample(words)",
        _POOLED,
        ("samplers",),
    ),
    Fault(
        "one draw serves two cells",
        "core/privacy/randomness.py",
        "        return sample(law, size, self.words)",
        "        drawn = sample(law, size, self.words)\n        drawn[1:2] = drawn[:1]\n        return drawn",
        ("pooled, plain", "dpstabs", "baseline", "census, changes", "panel window", "points", "improver"),
        ("samplers",),
    ),
    # Laws.
    Fault(
        "the law of joint noise has half its scale",
        "mechanisms/joint_groups.py",
        "    return HistogramsNoise(1 / budget.epsilon, tuple(sizes)",
        "    return HistogramsNoise(1 / (2 * budget.epsilon), tuple(sizes)",
        _POOLED,
    ),
    Fault(
        "noise for zCDP is calibrated for twice the rho",
        "core/privacy/noise.py",
        "    return DiscreteGaussian(sensitivity / (2 * budget.rho))",
        "    return DiscreteGaussian(sensitivity / (4 * budget.rho))",
        (
            "dpstabs, user, rho",
            "baseline, deletes, rho",
            "census, snapshots, rho",
            "panel window",
        ),
    ),
    # Admission.
    Fault(
        "an inserted and deleted row is counted again",
        "core/tables/encoded_batch.py",
        "        inserts, deletes = (np.repeat(rows, np.maximum(sign * more, 0), axis=0) for sign in (1, -1))\n",
        "        inn = np.bincount(kinds[:came], minlength=len(rows))\n"
        "        more = np.where((inn > 0) & (inn > more), inn, more)\n"
        "        inserts, deletes = (np.repeat(rows, np.maximum(sign * more, 0), axis=0) for sign in (1, -1))\n",
        ("pooled, deletes",),
    ),
    Fault(
        "the bound on a user lets one event more through",
        "core/tables/contribution.py",
        "np.maximum(max_events - used, 0)",
        "np.maximum(max_events + 1 - used, 0)",
        ("pooled, user", "dpstabs, user, rho"),
    ),
    # What exact counts decide.
    Fault(
        "the exact number of records is published",
        "mechanisms/engine.py",
        "        return estimate_total(self.sums) if self.public_total is None else (self.public_total, 0.0)",
        "        return float(next(iter(self.counts.values())).sum()), estimate_total(self.sums)[1]",
        (*_POOLED, "baseline", "census, changes"),
    ),
    Fault(
        "the exact number of arrivals is published",
        "families/tabular/dpstabs.py",
        "        return estimate_total(self.increments)[0] if self.public_arrivals is None else self.public_arrivals\n",
        "        return float(self.counts[0].sum())\n",
        ("dpstabs", "dpstabs, user, rho", "dpstabs, deletes"),
    ),
    Fault(
        "how many marginals are measured is decided on exact counts",
        "families/tabular/pooled.py",
        "        expected = side.rate * length if size is None else float(size)\n",
        "        expected = float(side.counts[self.cells.part(0)].sum())\n",
        _POOLED,
    ),
    Fault(
        "the largest score is selected",
        "mechanisms/engine.py",
        "        index = np.asarray(allowed, dtype=np.int64)\n",
        "        index = np.asarray(allowed, dtype=np.int64)\n"
        "        return int(index[np.argmax((numerators / denominators)[index].astype(float))])\n",
        ("pooled, plain", "pooled, user", "dpstabs", "baseline", "scheduler", "improver"),
    ),
    Fault(
        "the rate at the start is that of exact counts",
        "families/tabular/pooled.py",
        "        measured: list[NoisyCounts] = []\n        # The last step may",
        "        if state.step == 1:\n            for side in state.sides:\n"
        "                side.rate = float(side.counts[self.cells.part(0)].sum())\n"
        "        measured: list[NoisyCounts] = []\n        # The last step may",
        _POOLED,
    ),
    Fault(
        "the model at the start is fitted to exact columns",
        "families/tabular/pooled_run.py",
        "        domain, start = self.followed.workload.domain, known.bounded(PRIOR_BOUND)\n",
        "        from dpstream.core.graphical import fit\n\n"
        "        domain = self.followed.workload.domain\n"
        "        exact = [\n"
        "            Measurement(cells.cliques[i], counts[cells.part(i)].astype(float), 1.0)\n"
        "            for i in range(self.followed.columns)\n"
        "        ]\n"
        "        start = fit(domain, exact, total=float(counts[cells.part(0)].sum())).bounded(PRIOR_BOUND)\n",
        _POOLED,
    ),
    Fault(
        "zeros are read off exact counts",
        "families/tabular/pooled_run.py",
        "        cells, values = self.cells, self._answers()\n",
        "        cells, values = self.cells, self._answers()\n"
        "        for index, known in list(self.by_index.items()):\n"
        "            zero = self.counts[cells.cliques[index]] == 0\n"
        "            self.by_index[index] = replace(known, values=np.where(zero, 0.0, known.values))\n",
        _POOLED,
    ),
    # Census.
    Fault(
        "a stay is counted in two censuses of one level",
        "families/census/census_plan.py",
        "present.count(cliques, last_of(state.last, level))",
        "present.count(cliques, max(0, last_of(state.last, level) - 1))",
        ("census, changes", "census, snapshots, rho"),
    ),
    Fault(
        "departures are published as they are",
        "families/census/census_plan.py",
        "                found = int(values[0])\n",
        "",
        ("census, changes",),
    ),
    # Panels.
    Fault(
        "a pattern is dealt as often as people have it",
        "families/panel/window.py",
        "        noisy = randomness.measure(counts + self.padding, self.noise)\n",
        "        noisy = np.maximum(randomness.measure(counts + self.padding, self.noise), counts)\n",
        ("panel window",),
    ),
    Fault(
        "exact counts decide who gains",
        "families/panel/cumulative.py",
        "            estimates[b] = counter.step(stored, gains[b - 1 : b], randomness)[0]\n",
        "            estimates[b] = max(counter.step(stored, gains[b - 1 : b], randomness)[0], int(gains[b - 1]))\n",
        ("panel cumulative",),
    ),
    Fault(
        "the exact number of people is published",
        "families/panel/cumulative.py",
        "            people = max(0, int(values[0]) + self.padding)\n",
        "            people = max(0, people + self.padding)\n",
        ("panel cumulative",),
    ),
    # Points.
    Fault(
        "cells without points are read off exact counts",
        "families/points/cells.py",
        "    return randomness.measure(exact, noise).astype(np.float64)\n",
        "    return randomness.measure(exact, noise).astype(np.float64) * (exact > 0)\n",
        ("points",),
    ),
    # Growing tables.
    Fault(
        "a rerun is started by an exact count",
        "families/growing/growing_plan.py",
        "        run = self.schedule.due(state.done, t)\n",
        "        run = self.schedule.due(state.done, 2 * int(state.counts[0][0]))\n",
        ("scheduler", "improver"),
    ),
)


def planted(fault: Fault | None, folder: Path) -> Path:
    """A copy of the program with the fault in it, compiled functions included."""
    shutil.copytree(ROOT / "src", folder / "src")
    if fault is not None:
        file = folder / "src" / "dpstream" / fault.file
        file.write_text(file.read_text(encoding="utf-8").replace(fault.before, fault.after), encoding="utf-8")
    return folder / "src"


def applies(fault: Fault) -> bool:
    """Whether the text that the fault replaces stands in its file, once."""
    file = ROOT / "src" / "dpstream" / fault.file
    return file.is_file() and file.read_text(encoding="utf-8").count(fault.before) == 1


@dataclass(frozen=True)
class Seen:
    """What an audit said: whether it was right, the subjects that it accused, and its seconds."""

    fault: str
    stream: str
    right: bool
    accused: str
    seconds: float


def audit(fault: Fault | None, stream: str) -> Seen:
    """Audits one stream of a program: of a faulty one part after part, until one accuses it."""
    began, title = time.monotonic(), HONEST if fault is None else fault.name
    parts = [[]] if fault is None else [["--only", part] for part in fault.parts]
    words, right = "nobody", fault is None
    with tempfile.TemporaryDirectory(prefix="audited-") as name:
        folder = Path(name)
        if fault is not None and not applies(fault):
            return Seen(title, stream, False, "it does not apply any more", 0.0)
        source, config = planted(fault, folder), CONFIGURATIONS[stream].write(folder)
        for part in parts:
            done = subprocess.run(
                [sys.executable, "-m", "dpstream", "audit", str(config), "--json", *part],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=4 * SECONDS,
                check=False,
            )
            if done.returncode not in (0, 3):
                return Seen(title, stream, False, f"ended with {done.returncode}: {done.stderr[-300:]}", 0.0)
            findings = json.loads(done.stdout)["findings"]
            missed = [one["subject"] for one in findings if one["control"] and not one["caught"]]
            accused = [
                f"{one['subject']}: {one['detail']}"
                for one in findings
                if one["caught"] and not one["control"]
            ]
            if missed or accused:
                right = bool(accused) and fault is not None
                words = accused[0] if accused else f"controls missed: {missed}"
                break
    seconds = time.monotonic() - began
    return Seen(title, stream, right and seconds < SECONDS, words, seconds)


def table(seen: list[Seen]) -> str:
    """A row for each fault and stream."""
    rows = [
        f"| {one.fault} | {one.stream} | {'yes' if one.right else 'NO'} | {one.accused[:110]} | {one.seconds:.0f} |"
        for one in seen
    ]
    return "\n".join(["| fault | stream | right | accused | seconds |", "|---|---|---|---|--:|", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", help="only faults and streams whose names hold one of these words"
    )
    parser.add_argument("--jobs", type=int, default=1, help="audits at once, of two processes each")
    parser.add_argument("--out", type=Path, help="a file for the table")
    options = parser.parse_args()
    pairs = [(None, stream) for stream in STREAMS]
    pairs += [(fault, stream) for fault in FAULTS for stream in fault.streams]
    chosen = [
        (fault, stream)
        for fault, stream in pairs
        if not options.names
        or any(word in f"{HONEST if fault is None else fault.name} {stream}" for word in options.names)
    ]
    moved = [fault.name for fault in FAULTS if not applies(fault)]
    applying = [(fault, stream) for fault, stream in chosen if fault is None or fault.name not in moved]
    seen = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for one in pool.map(lambda pair: audit(*pair), applying):
            seen.append(one)
            verdict = one.accused if one.right else f"WRONG: {one.accused}"
            print(f"{one.fault}, {one.stream}: {verdict} ({one.seconds:.0f} s)", flush=True)
    for name in moved:
        print(f"does not apply any more, plant it anew: {name}")
    wrong = [one for one in seen if not one.right]
    print(f"{len(seen) - len(wrong)} of {len(seen)} right, {len(moved)} moved")
    if options.out is not None:
        from made_by import write_result

        write_result(options.out, table(seen) + "\n")
    return int(bool(wrong or moved))


if __name__ == "__main__":
    sys.exit(main())
