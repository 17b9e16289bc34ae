"""CPU time of ``import dpstream`` and ``dpstream --help``, beside ``import numpy`` and an empty interpreter.

    python benchmarks/startup.py [--out benchmarks/results/startup.txt]

Every command is a new process; CPU (user and system, all its threads) as the operating system states it for
the finished process. Medians of five runs after one that fills the file cache, the commands taking turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from pathlib import Path

from bench import child_cpu, show_result

COMMANDS = {
    "python, nothing": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import dpstream": ["-c", "import dpstream"],
    "import dpstream, and all names it exports": ["-c", "from dpstream import *"],
    "python -m dpstream --help": ["-m", "dpstream", "--help"],
    "python -m dpstream run --help": ["-m", "dpstream", "run", "--help"],
}
RUNS = 5


def cpu(arguments: list[str]) -> float:
    """CPU milliseconds of one child process."""
    return 1e3 * child_cpu([sys.executable, *arguments])


def report() -> str:
    load = os.getloadavg()[0]
    for arguments in COMMANDS.values():
        cpu(arguments)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, arguments in COMMANDS.items():
            times[name].append(cpu(arguments))
    numpy = statistics.median(times["import numpy"])
    lines = [
        f"python {platform.python_version()}, {os.cpu_count()} cores shared with other work "
        f"(load average {load:.1f}); medians of {RUNS} runs",
        "",
        f"{'CPU milliseconds of a new process':<44}{'median':>9}{'range':>14}{'import numpy':>14}",
    ]
    for name, values in times.items():
        middle = statistics.median(values)
        spread = f"{min(values):.0f} to {max(values):.0f}"
        lines.append(f"{name:<44}{middle:>9.0f}{spread:>14}{middle / numpy:>13.2f}x")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the table here")
    options = parser.parse_args()
    text = report()
    show_result(text, options.out)


if __name__ == "__main__":
    main()
