"""What ``reproduce`` and ``compare`` share: progress of many runs, and what is printed at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.interrupt import Guard
from dpstream.cli.shared import console, print_json, print_table

if TYPE_CHECKING:
    from dpstream.lab.experiments import ExperimentOutcome, PanelOutcome, RunWatch

__all__ = ["say_outcome", "say_panels", "watching", "words"]


def words(text: str | None) -> list[str] | None:
    """A list that is separated by commas, or None where the option is not given."""
    return None if text is None else [word.strip() for word in text.split(",")]


@contextmanager
def watching() -> Iterator[RunWatch]:
    """Progress on standard error while runs go on; Ctrl-C and SIGTERM end them, and finished ones are kept."""
    # Several processes share the cores; a numerical library that takes them all for itself slows them down.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    shown = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        with Guard():
            yield shown
    finally:
        shown.close()


class _Lines:
    """A line for every run that is done."""

    def __init__(self) -> None:
        self._runs = self._done = 0

    def expect(self, runs: int, done: int) -> None:
        self._runs, self._done = runs, done
        known = f", {done} done before" if done else ""
        click.echo(f"{runs} runs{known}", err=True)

    def started(self, name: str) -> None:
        pass

    def finished(self, name: str, seconds: float, left: float | None) -> None:
        self._done += 1
        rest = "" if left is None or self._done == self._runs else f", about {_duration(left)} left"
        click.echo(f"{self._done}/{self._runs} {name} ({seconds:.0f} s{rest})", err=True)

    def close(self) -> None:
        pass


class _Bar:
    """Runs done, running and left."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
            BarColumn(),
            TextColumn("{task.fields[running]} running, {task.fields[left]}"),
            TextColumn("{task.fields[last]}"),
            console=console(err=True, bar=True),
            transient=True,
        )
        self._task: Any = self._bar.add_task("runs", total=0, running=0, left="", last="")
        self._running, self._until = 0, None
        self._bar.start()

    def expect(self, runs: int, done: int) -> None:
        self._bar.update(self._task, total=runs, completed=done)

    def started(self, name: str) -> None:
        self._running += 1
        self._bar.update(self._task, running=self._running, last=name)

    def finished(self, name: str, seconds: float, left: float | None) -> None:
        self._running -= 1
        rest = (
            ""
            if left is None
            else f"done at about {time.strftime('%H:%M', time.localtime(time.time() + left))}"
        )
        self._bar.update(self._task, advance=1, running=self._running, left=rest, last=name)

    def close(self) -> None:
        self._bar.stop()


def _duration(seconds: float) -> str:
    """Whole minutes from two minutes on.

    >>> _duration(59.6), _duration(600)
    ('60 s', '10 min')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def say_outcome(outcome: ExperimentOutcome, as_json: bool) -> None:
    """The table on the terminal, or everything as JSON; both say that it is not releasable."""
    from dpstream.tools.evaluate.label import LABEL

    if as_json:
        print_json(
            {"label": LABEL, "out": str(outcome.folder), "files": list(outcome.files), "rows": _rows(outcome)}
        )
        return
    shown = ("AvgWE", "MaxWE", "AvgL1")
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for line in outcome.lines:
        groups.setdefault((line.stream, line.epsilon, line.method), {})[line.metric] = line
    rows = []
    for (stream, epsilon, method), found in groups.items():
        name = f"{method} (once)" if next(iter(found.values())).once else method
        cells = [stream, epsilon, name]
        for metric in shown:
            cells.append(found[metric].mean_text)
            if found[metric].published is not None:
                mark = "" if found[metric].published.target else "?"
                cells[-1] += f" / {found[metric].published.value:.4f}{mark}"
        rows.append(cells)
    out = console()
    out.print(f"Errors over the last steps: {LABEL}.")
    print_table(["stream", "epsilon", "method", *shown], rows)
    if any(line.published is not None for line in outcome.lines):
        out.print(
            "After the slash: the number in print (beside AvgL1 its AvgRelWE, which is of that size; ?: surely a "
            "misprint)."
        )
    out.print(
        f"Wrote {', '.join(outcome.files[:3])} (with the spread) and {len(outcome.files) - 3} figures "
        f"to {outcome.folder}"
    )


def _rows(outcome: ExperimentOutcome) -> list[dict[str, Any]]:
    from dpstream.lab.experiments.kumar_tables import PRINTED_AS

    rows = []
    for line in outcome.lines:
        row: dict[str, Any] = {
            "stream": line.stream,
            "epsilon": line.epsilon,
            "method": line.method,
            "once": line.once,
            "metric": line.metric,
            "mean": line.mean,
            "standard_deviation": line.deviation,
            "lowest": line.low,
            "highest": line.high,
            "repetitions": line.repeats,
        }
        if line.published is not None:
            paper = line.published
            row["published"] = {
                "value": paper.value,
                "metric": PRINTED_AS[line.metric],
                "target": paper.target,
            }
        rows.append(row)
    return rows


def say_panels(outcome: PanelOutcome, as_json: bool) -> None:
    """How the answers of each run came out, or every line as JSON; both say that it is not releasable."""
    from dpstream.lab.experiments import lines_of
    from dpstream.lab.experiments.bun_tables import method_of
    from dpstream.tools.evaluate.label import LABEL

    if as_json:
        rows = [
            {
                **{key: run["settings"][key] for key in ("panel", "rho", "relation", "repetitions")},
                "method": method_of(run["settings"]),
                "answers": [line.as_dict() for line in lines_of(run)],
            }
            for run in outcome.runs
        ]
        print_json({"label": LABEL, "out": str(outcome.folder), "files": list(outcome.files), "runs": rows})
        return
    table = []
    for run in outcome.runs:
        facts, lines = run["settings"], lines_of(run)
        # In units of its own standard error, chance alone makes a bias of about 2 in so many lines.
        bias = max(abs(line.bias) / line.bias_error if line.bias_error else 0.0 for line in lines)
        spread = max(line.deviation for line in lines)
        coverage = sum(line.coverage for line in lines) / len(lines)
        table.append(
            [facts["panel"], method_of(facts), facts["rho"], facts["relation"], f"{spread:.5f}",
             f"{bias:.1f}", f"{coverage:.1%}"]
        )  # fmt: skip
    out = console()
    out.print(f"Debiased answers against the truth: {LABEL}.")
    heads = ["panel", "method", "rho", "relation", "largest sd", "largest bias / its error", "95 % covers"]
    print_table(heads, table, right=(4, 5, 6))
    out.print(
        f"Wrote {', '.join(outcome.files[:3])} and {len(outcome.files) - 3} figures to {outcome.folder}"
    )
