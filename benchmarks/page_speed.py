"""CPU time and size of a report page: 1,000 steps of 22 columns.

    python benchmarks/page_speed.py [--steps 1000] [--columns 22] [--out benchmarks/results/page_speed.txt]

It invents records, runs the default on them (some minutes), writes the page three times in a process of its own and
prints the middle one. Modules have to be compiled once before (``dpstream warm``), and Python has to be allowed to keep
its byte code: both are part of what is measured otherwise.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import statistics
import sys
import tempfile
from pathlib import Path

from bench import child_cpu, show_result

PROGRAM = Path(sys.executable).with_name("dpstream")
ROWS = 60
#: Most of it is the run whose releases are drawn.
LONG = "about 3 minutes"


def stream(folder: Path, steps: int, columns: int) -> Path:
    """The configuration of invented records, so many columns of 2 to 9 values."""
    generator, sizes = random.Random(1), [2 + i % 8 for i in range(columns)]
    first = datetime.date(2020, 1, 1)
    lines = [
        "format = 1", "[stream]", 'name = "long"', "[source]", 'path = "data.csv"', 'time_column = "day"',
        'every = "day"', f'start = "{first}"', f'end = "{first + datetime.timedelta(steps - 1)}"',
    ]  # fmt: skip
    for i, size in enumerate(sizes):
        values = ", ".join(f'"v{value}"' for value in range(size))
        lines += [f"[schema.columns.c{i}]", 'type = "categorical"', f"values = [{values}]"]
    lines += ["[budget]", 'epsilon = "1"', f"horizon = {steps}"]
    config = folder / "dpstream.toml"
    config.write_text("\n".join([*lines, ""]))
    with (folder / "data.csv").open("w") as file:
        file.write(",".join(["day", *(f"c{i}" for i in range(columns))]) + "\n")
        for step in range(steps):
            day = str(first + datetime.timedelta(step))
            for _ in range(ROWS):
                file.write(
                    ",".join([day, *(f"v{int(generator.random() ** 2 * size)}" for size in sizes)]) + "\n"
                )
    return config


def cpu_seconds(*words: object) -> float:
    """Of one command, user and system."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return child_cpu([str(PROGRAM), *map(str, words)], environment)


def report(steps: int, columns: int) -> str:
    lines = [
        f"python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}; medians of three pages",
        "",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        config = stream(Path(scratch), steps, columns)
        cpu_seconds("run", config)
        page = Path(scratch) / "page.html"
        times = [cpu_seconds("report", config.parent / "releases", "--out", page) for _ in range(3)]
        size, middle = page.stat().st_size / 1000, statistics.median(times)
        lines.append(f"{middle:.1f} s of CPU, {size:.0f} kB ({steps} steps, {columns} columns)")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=22)
    parser.add_argument("--out", type=Path, help="also write the table here")
    options = parser.parse_args()
    text = report(options.steps, options.columns)
    show_result(text, options.out)


if __name__ == "__main__":
    main()
