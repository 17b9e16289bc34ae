"""A progress bar on a terminal, plain lines elsewhere. Shows steps, never rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from dpstream.cli.shared import console
from dpstream.core.showing import shown


@contextmanager
def counted_progress(done: str, what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal; three lines elsewhere, for the quarters; None if ``quiet``.

    Args:
        done, what: "evaluated" and "steps", for "evaluated 3 of 30 steps".
    """
    if quiet:
        yield None
    elif not sys.stderr.isatty():

        def line(number: int, total: int) -> None:
            if 0 < number < total and number * 4 // total > (number - 1) * 4 // total:
                click.echo(f"{done} {number} of {total} {what}", err=True)

        yield line
    else:
        from rich.progress import Progress

        with Progress(console=console(err=True, bar=True), transient=True) as bar:
            task = bar.add_task(f"{done} {what}", total=None)
            yield lambda number, total: bar.update(task, completed=number, total=total)


class StepProgress:
    """On a terminal one line: step, period, released rows, and the time left where the number of steps is known.

    Elsewhere a line for each new step, or nothing if ``quiet``.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet, self._bar = quiet, None
        if quiet or not sys.stderr.isatty():
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("step {task.fields[label]}"),
            BarColumn(),
            TextColumn("{task.fields[rows]}"),
            TimeRemainingColumn(),
            console=console(err=True, bar=True),
            transient=True,
        )
        self._task = self._bar.add_task("steps", total=None, label="...", rows="")
        self._bar.start()

    def expect(self, steps: int | None) -> None:
        """How many steps there will be, where that is known."""
        if self._bar is not None:
            self._bar.update(self._task, total=steps)

    def step(self, step: int, batch_id: str, rows: int, *, released: bool, held: bool = False) -> None:
        """A step is done, with so many released rows; ``released``: it had been taken before and was only compared;
        ``held``: it waits for approval."""
        if self._bar is not None:
            label = shown(f"{step} ({batch_id})")
            self._bar.update(self._task, completed=step, label=label, rows=f"{rows:,} rows")
        elif not released and not self._quiet:
            click.echo(f"step {step} ({batch_id}) {'held' if held else 'released'}")

    def close(self) -> None:
        """Leave the terminal clean."""
        if self._bar is not None:
            self._bar.stop()
