"""The tutorials of docs/start typed into an empty folder of a machine that has only Python: CPU seconds.

The wheel is built and installed with the pinned packages into an environment of its own, with an empty home, so nothing
is compiled ahead. Then every command and every piece of Python of each tutorial is executed as the page has it.

    python benchmarks/tutorials.py                 print the times
    python benchmarks/tutorials.py --keep DIR      and keep the folders
    python benchmarks/tutorials.py --write         write results/tutorials.txt and the pictures of the pages
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from made_by import ROOT, write_result

sys.path.insert(0, str(ROOT / "tests" / "cli"))
from page_blocks import Block, blocks, commands

LONG = "about 5 minutes, and what pip takes"
PAGES = ("table", "panel", "points", "growing")


def run(command: list[str | Path], folder: Path, home: Path, programs: Path | None = None) -> float:
    """CPU seconds of a command, with all that it starts, in an environment that knows nothing of this one.

    Errors:
        SystemExit: it failed, with what it said.
    """
    path = os.environ["PATH"] if programs is None else f"{programs}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}
    for name in ("PIP_INDEX_URL", "PIP_CACHE_DIR", "SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy"):
        if name in os.environ:
            environment[name] = os.environ[name]
    began = spent()
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words[-1]}\n{done.stdout}{done.stderr}")
    return spent() - began


def spent() -> float:
    """CPU seconds of all processes that were started here and have ended: what others do changes them little."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def install(place: Path) -> tuple[Path, float, float]:
    """The programs of a clean environment, and the CPU seconds for building and for installing."""
    home = place / "home"
    home.mkdir()
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place, ROOT]
    built = run(build, place, home)
    (wheel,) = place.glob("*.whl")
    installed = run([sys.executable, "-m", "venv", place / "venv"], place, home)
    pip: list[str | Path] = [
        place / "venv/bin/python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
    ]
    installed += run([*pip, "--require-hashes", "-r", ROOT / "requirements/run.txt"], place, home)
    installed += run([*pip, "--no-deps", wheel], place, home)
    return place / "venv" / "bin", built, installed


def typed(block: Block, folder: Path) -> list[list[str | Path]]:
    """What somebody types for a block; a block that is a file is saved."""
    if block.file is not None:
        (folder / block.file).write_text(block.text, encoding="utf-8")
        return []
    if block.language == "python":
        return [["python", "-c", block.text]]
    return [["bash", "-e", "-c", command] for command in commands(block.text)] if block.executed else []


def tutorial(name: str, place: Path, programs: Path) -> list[tuple[str, float]]:
    """Each command of a page with its seconds."""
    folder = place / name
    folder.mkdir()
    times = []
    for block in blocks(ROOT / "docs" / "start" / f"{name}.md"):
        for command in typed(block, folder):
            seconds = run(command, folder, place / "home", programs)
            what = (
                str(command[-1]) if command[0] == "bash" else f"python: {len(block.text.splitlines())} lines"
            )
            times.append((what, seconds))
            print(f"{name:8} {seconds:6.1f}  {what}", flush=True)
    return times


def main() -> None:
    """Everything, in a folder that is removed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = options.keep.resolve() if options.keep else Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        programs, built, installed = install(place)
        lines = [
            f"CPU seconds. Build the wheel {built:.0f}, install it with its packages {installed:.0f}.",
            "",
        ]
        for name in PAGES:
            times = tutorial(name, place, programs)
            lines += [f"{name}: {len(times)} commands, {sum(s for _, s in times):.0f}"]
            lines += [f"  {seconds:6.1f}  {what}" for what, seconds in times]
        clock = time.perf_counter() - began
        shared = f"{os.cpu_count()} cores that {os.getloadavg()[1]:.0f} processes shared"
        lines.append(f"By the clock all of it took {clock / 60:.0f} minutes, on {shared}.")
        print("\n" + "\n".join(lines))
        if options.write:
            from tutorial_plot import draw

            write_result(ROOT / "benchmarks/results/tutorials.txt", "\n".join(lines) + "\n")
            draw(place)


if __name__ == "__main__":
    main()
