"""Plants faults in a copy of the program, one at a time, and looks for the test that catches each of them.

    make faults                (NAMES="ledger noise": only faults whose files or names hold one of these words)

``planted.py`` lists them: a file, what stands there, what takes its place, and the tests that lie nearest. These run
first, once without any fault; where they pass with it, all others follow, until one fails. A fault that no test
catches fails the run, and so does one whose text is not in its file any more: plant it anew where its subject has
moved. Only a feature that goes takes its fault with it. What was seen is kept in ``.faults.json`` under a hash of the
fault, the planted file and its tests, so that an interrupted run goes on where it stopped; ``--again`` forgets it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planted import FAULTS, ROOT, Fault, applies

SEEN = ROOT / ".faults.json"
#: Fewer planted faults than this fail the run.
FEWEST = 60
#: What a copy needs to run its tests.
COPIED = ("src", "lab", "tests", "docs", "benchmarks", "examples", "requirements", ".ci")


@contextmanager
def planted_copy(fault: Fault | None) -> Iterator[Path]:
    """A copy of the project with the fault in it; None: as it is."""
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        copy = Path(folder)
        skipped = shutil.ignore_patterns("__pycache__", ".hypothesis", ".pytest_cache")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=skipped)
        for path in ROOT.iterdir():
            if path.is_file() and path != SEEN:
                shutil.copy(path, copy / path.name)
        if fault is not None:
            fault.plant(copy / "src")
        yield copy


def catching_test(copy: Path, tests: list[str], minutes: float) -> str | None:
    """The first test that fails in the copy; None where all pass."""
    quiet = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--timeout", "300"]
    path = os.pathsep.join([str(copy / "src"), str(copy / "lab" / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60 * minutes,
        check=False,
    )
    if done.returncode == 0:
        return None
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in (1, 2) or not failed:
        raise SystemExit(f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return failed[0]


def key_of(fault: Fault) -> str:
    """What a kept result depends on."""
    parts = [repr(fault), (ROOT / "src" / "dpstream" / fault.file).read_text(encoding="utf-8")]
    for name in fault.tests:
        path = ROOT / "tests" / name.partition("::")[0]
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        parts += [file.read_text(encoding="utf-8") for file in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def look(fault: Fault, nearest_only: bool, minutes: float) -> str | None:
    """The test that catches the fault."""
    with planted_copy(fault) as copy:
        nearest = [f"tests/{name}" for name in fault.tests]
        caught = catching_test(copy, nearest, minutes)
        if caught is None and not nearest_only:
            ignored = [f"--ignore={name}" for name in nearest if "::" not in name]
            caught = catching_test(copy, ["-n", "2", "tests", *ignored], minutes)
        return caught


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only faults whose files or names hold one of these words")
    parser.add_argument("--again", action="store_true", help="forget what was seen before")
    parser.add_argument(
        "--nearest-only", action="store_true", help="do not run all other tests after the nearest"
    )
    parser.add_argument("--list", action="store_true", help="only say which faults apply")
    parser.add_argument("--minutes", type=float, default=30, help="longest run of tests for one fault")
    options = parser.parse_args()
    faults = [f for f in FAULTS if not options.names or any(w in f"{f.file} {f.name}" for w in options.names)]
    seen: dict[str, str] = {}
    if SEEN.is_file() and not options.again:
        seen = json.loads(SEEN.read_text(encoding="utf-8"))
    moved = [fault.name for fault in faults if not applies(fault)]
    nearest = sorted(
        {
            f"tests/{name}"
            for fault in faults
            if applies(fault) and key_of(fault) not in seen
            for name in fault.tests
        }
    )
    if nearest and not options.list:
        with planted_copy(None) as copy:
            red = catching_test(copy, nearest, options.minutes * len(nearest))
        if red is not None:
            print(f"fails without any fault, mend it first: {red}")
            return 1
    missed = []
    for number, fault in enumerate(faults, start=1):
        if fault.name in moved or options.list:
            continue
        began, key = time.monotonic(), key_of(fault)
        caught = seen.get(key) or look(fault, options.nearest_only, options.minutes)
        if caught is None:
            missed.append(fault.name)
        elif key not in seen:
            seen[key] = caught
            SEEN.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
        took = time.monotonic() - began
        where = f"{number}/{len(faults)} {fault.file}"
        print(f"{where}: {fault.name}: {caught or 'MISSED'} ({took:.0f} s)", flush=True)
    for name in moved:
        print(f"does not apply any more, plant it anew: {name}")
    for name in missed:
        print(f"no test catches it: {name}")
    print(f"{len(FAULTS)} faults; of {len(faults)}: {len(missed)} missed, {len(moved)} moved")
    if len(FAULTS) < FEWEST:
        print(f"fewer than {FEWEST} faults are planted")
    return int(bool(moved or missed) or len(FAULTS) < FEWEST)


if __name__ == "__main__":
    sys.exit(main())
