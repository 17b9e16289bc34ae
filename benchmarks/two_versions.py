"""CPU of the same commands under two versions of the program, the versions taking turns.

    git worktree add ../before COMMIT
    python benchmarks/two_versions.py ../before [--runs 5] [--out benchmarks/results/two_versions.txt]

Both run with this interpreter and its libraries, on the same simulated streams and with the same test seed, so that
only the program differs. Every command is a process of its own; CPU (user and system, all its threads) as the operating
system states it. Ratios are of medians: above 1, the version here costs more. Each command runs once before anything is
counted, which compiles what has to be compiled.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from made_by import ROOT, write_result

#: A stream of each family, with so many steps that a step's work outweighs the start of a process.
STREAMS = {
    "pooled": ("evictions", 40, 'name = "pooled"'),
    "dpstabs": ("evictions", 20, 'name = "dpstabs"'),
    "census": ("census", 30, None),
    "points": ("points", 20, None),
    "panel": ("panel", 12, None),
}
VERBS = {
    "import": ["-c", "import dpstream"],
    "--help": ["-m", "dpstream", "--help"],
    "plan": ["-m", "dpstream", "plan", "dpstream.toml"],
    "check": ["-m", "dpstream", "check", "dpstream.toml"],
    "run": ["-m", "dpstream", "run", "dpstream.toml", "--test-seed", "3"],
    "status": ["-m", "dpstream", "status", "dpstream.toml", "--health"],
    "evaluate": ["-m", "dpstream", "evaluate", "dpstream.toml"],
    "report": ["-m", "dpstream", "report", "dpstream.toml"],
    "statement": ["-m", "dpstream", "statement", "dpstream.toml", "--out", "statement.html", "--force"],
}


def cpu(arguments: list[str], folder: Path, version: Path) -> float:
    """CPU seconds of one child process; exit codes that state a finding are fine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(version / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 6):
        raise SystemExit(f"{' '.join(arguments)} under {version}: {done.stderr or done.stdout}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(versions: tuple[Path, Path], runs: int) -> list[str]:
    lines = [f"{'stream':<10}{'command':<12}{'before, s':>11}{'here, s':>11}{'ratio':>8}"]
    with tempfile.TemporaryDirectory() as place:
        for name, (simulated, steps, mechanism) in STREAMS.items():
            folders = []
            for version in versions:
                folder = Path(place) / name / ("before" if version == versions[0] else "here")
                folder.parent.mkdir(exist_ok=True)
                make = ["-m", "dpstream", "simulate", simulated, "--steps", str(steps), "--out", str(folder)]
                cpu(make, Path(place), versions[0])
                if mechanism is not None:
                    _choose(folder / "dpstream.toml", mechanism)
                folders.append(folder)
            for verb, arguments in VERBS.items():
                if name != "pooled" and verb in ("import", "--help"):
                    continue
                times: tuple[list[float], list[float]] = ([], [])
                for turn in range(runs + 1):
                    for own, folder, version in zip(times, folders, versions, strict=True):
                        if verb == "run":
                            for made in ("state", "releases"):
                                shutil.rmtree(folder / made, ignore_errors=True)
                        spent = cpu(arguments, folder, version)
                        if turn:
                            own.append(spent)
                before, here = (statistics.median(own) for own in times)
                lines.append(f"{name:<10}{verb:<12}{before:>11.2f}{here:>11.2f}{here / before:>8.2f}")
                print(lines[-1], flush=True)
    return lines


def _choose(path: Path, mechanism: str) -> None:
    """Another mechanism in a simulated stream's file."""
    text = path.read_text(encoding="utf-8")
    head, found, rest = text.partition("[mechanism]\n")
    if found:
        kept = [line for line in rest.splitlines() if not line.startswith("name")]
        path.write_text(f"{head}{found}{mechanism}\n" + "\n".join(kept) + "\n", encoding="utf-8")
    else:
        path.write_text(f"{text}\n[mechanism]\n{mechanism}\n", encoding="utf-8")


def _commit(checkout: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], cwd=checkout, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout of the other version")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = measure((given.before.resolve(), ROOT), given.runs)
    load = os.getloadavg()[0]
    head = f"before: commit {_commit(given.before)}; medians of {given.runs} runs each, in turns; "
    head += f"{os.cpu_count()} cores, load {load:.1f}\n\n"
    if given.out is not None:
        write_result(given.out, head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
