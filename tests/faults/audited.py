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

from planted import FAULTS, ROOT, Fault, applies

sys.path[:0] = [str(ROOT / "tests" / "replay"), str(ROOT / "benchmarks")]
from configurations import CONFIGURATIONS  # noqa: E402

HONEST = "nothing is planted"
#: Seconds that one audit may take.
SECONDS = 300


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

#: Faults of ``planted.py`` -> names of configurations, one for each family that has the code.
AUDITED: dict[str, tuple[str, ...]] = {
    # Samplers.
    "joint noise is sampled at half its scale": _POOLED,
    "one draw serves two cells": (
        *("pooled, plain", "dpstabs", "baseline", "census, changes", "panel window", "points", "improver"),
    ),
    # Laws.
    "the law of joint noise has half its scale": _POOLED,
    "noise for zCDP is calibrated for twice the rho": (
        *("dpstabs, user, rho", "baseline, deletes, rho", "census, snapshots, rho", "panel window"),
    ),
    # Admission.
    "an inserted and deleted row is counted again": ("pooled, deletes",),
    "the bound lets one event more through": ("pooled, user", "dpstabs, user, rho"),
    # What exact counts decide.
    "the exact number of records is published": (*_POOLED, "baseline", "census, changes"),
    "the exact number of arrivals is published": ("dpstabs", "dpstabs, user, rho", "dpstabs, deletes"),
    "a pooled run decides on exact counts how much it measures": _POOLED,
    "selecting is exact": ("pooled, plain", "pooled, user", "dpstabs", "baseline", "scheduler", "improver"),
    "the rate at the start is that of exact counts": _POOLED,
    "the model at the start is fitted to exact columns": _POOLED,
    "zeros are read off exact counts": _POOLED,
    "a stay is counted in two censuses of one level": ("census, changes", "census, snapshots, rho"),
    "departures are published as they are": ("census, changes",),
    "a pattern is dealt as often as people have it": ("panel window",),
    "exact counts decide who gains": ("panel cumulative",),
    "the exact number of people is published": ("panel cumulative",),
    "cells without points are read off exact counts": ("points",),
    "a rerun is started by an exact count": ("scheduler", "improver"),
}
#: A transcript replays what samplers draw, so that it does not see these.
SAMPLED = ("joint noise is sampled at half its scale", "one draw serves two cells")
BY_NAME = {fault.name: fault for fault in FAULTS}


def copy_of(fault: Fault | None, folder: Path) -> Path:
    """A copy of the program with the fault in it, compiled functions included."""
    shutil.copytree(ROOT / "src", folder / "src")
    if fault is not None:
        fault.plant(folder / "src")
    return folder / "src"


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
    looked = ("samplers",) if title in SAMPLED else ("transcripts", "samplers")
    parts = [[]] if fault is None else [["--only", part] for part in looked]
    words, right = "nobody", fault is None
    with tempfile.TemporaryDirectory(prefix="audited-") as name:
        folder = Path(name)
        if fault is not None and not applies(fault):
            return Seen(title, stream, False, "it does not apply any more", 0.0)
        source, config = copy_of(fault, folder), CONFIGURATIONS[stream].write(folder)
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
    pairs += [(BY_NAME[name], stream) for name, streams in AUDITED.items() for stream in streams]
    chosen = [
        (fault, stream)
        for fault, stream in pairs
        if not options.names
        or any(word in f"{HONEST if fault is None else fault.name} {stream}" for word in options.names)
    ]
    moved = [name for name in AUDITED if not applies(BY_NAME[name])]
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
