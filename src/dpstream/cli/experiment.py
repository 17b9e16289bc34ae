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
    from dpstream.lab.experiments import RunWatch
    from dpstream.lab.experiments.outcome_summary import ExperimentSummary


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


def print_summary(summary: ExperimentSummary, as_json: bool) -> None:
    """The table on the terminal, or everything as JSON; both say that it is not releasable."""
    from dpstream.tools.evaluate.private_folder import LABEL

    if as_json:
        files = {"out": str(summary.folder), "files": list(summary.files)}
        print_json({"label": LABEL, **files, **summary.numbers})
        return
    out = console()
    out.print(f"{summary.title}: {LABEL}.")
    print_table(summary.headings, summary.rows, right=summary.right)
    for note in (*summary.notes, summary.written):
        out.print(note)
