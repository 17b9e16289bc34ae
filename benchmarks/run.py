"""List or run the benchmarks in this folder: ``make bench``, or ``python benchmarks/run.py --help``.

A benchmark is a script ``benchmarks/NAME.py`` with a docstring whose first line says what it measures (a
module without ``__main__`` is shared code, no benchmark). It measures dpstream beside a peer or a calibration
loop in the same run, prints a table, and exits with 0 whatever the times are: numbers inform, never gate.
A module-level ``LONG = "about 20 minutes"`` keeps a script out of the default run; it runs when it is named.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from made_by import line

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Benchmark:
    """One script, described without importing it."""

    path: Path
    title: str
    long: str | None

    @property
    def name(self) -> str:
        """What ``make bench BENCH=...`` calls it."""
        return self.path.stem


def describe(path: Path) -> Benchmark:
    """Read a script's title and its ``LONG`` mark."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    docstring = ast.get_docstring(tree)
    if not docstring:
        raise SystemExit(f"benchmarks/{path.name}: no docstring that says what it measures")
    long = None
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "LONG" for target in node.targets
        ):
            long = str(ast.literal_eval(node.value))
    return Benchmark(path, docstring.splitlines()[0], long)


def discover(folder: Path = HERE) -> dict[str, Benchmark]:
    """All benchmarks by name."""
    scripts = [path for path in sorted(folder.glob("*.py")) if '__name__ == "__main__"' in path.read_text()]
    return {path.stem: describe(path) for path in scripts if path.name != "run.py"}


def show(benchmarks: dict[str, Benchmark]) -> None:
    """Print the list."""
    width = max((len(name) for name in benchmarks), default=0)
    for name, benchmark in benchmarks.items():
        mark = f" [long: {benchmark.long}; make bench BENCH={name}]" if benchmark.long else ""
        print(f"  {name:<{width}}  {benchmark.title}{mark}")


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks, or all short ones; the exit code is 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="benchmarks to run (default: all short ones)")
    parser.add_argument("--list", action="store_true", help="only list them")
    options = parser.parse_args(arguments)
    benchmarks = discover()
    if unknown := [name for name in options.names if name not in benchmarks]:
        parser.error(f"no benchmark {', '.join(unknown)} (allowed: {', '.join(benchmarks)})")
    if options.list or not benchmarks:
        show(benchmarks)
        return 0
    chosen = options.names or [name for name, benchmark in benchmarks.items() if benchmark.long is None]
    failed = []
    for name in chosen:
        print(f"== {name}: {benchmarks[name].title}\n{line(f'python benchmarks/{name}.py')}", flush=True)
        if subprocess.run([sys.executable, str(benchmarks[name].path)], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
