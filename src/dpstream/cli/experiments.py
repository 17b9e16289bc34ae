"""``dpstream reproduce``: a paper's experiments beside the printed numbers; ``compare``: any methods on any streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.interrupt import Guard
from dpstream.cli.shared import console, json_option, print_json, print_table
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.lab.experiments import RunWatch
    from dpstream.lab.experiments.outcome_summary import ExperimentSummary

_jobs = click.option(
    "--jobs", default=2, show_default=True, type=Whole(1, 1024), help="How many processes work at once."
)
_tables_only = click.option("--no-figures", is_flag=True, help="Write tables only.")


@click.command("reproduce", short_help="Run a paper's experiments.")
@click.argument("name", metavar="NAME")
@click.option(
    "--data",
    type=FilePath("folder"),
    help="The folder with the real data (kumar: adult/ and eviction/); default: the variable DPSTREAM_DATA.",
)
@click.option(
    "--out", type=FilePath("folder"), help="Output folder; default: reproduction-NAME (with --quick: -quick)."
)
@click.option("--quick", is_flag=True, help="Run a small part, in under two minutes.")
@_jobs
@click.option("--streams", metavar="LIST", help="kumar: only these streams, separated by commas.")
@click.option("--epsilons", metavar="LIST", help="kumar: only these budgets, such as 0.5,1.")
@click.option(
    "--methods",
    metavar="LIST",
    help="kumar: only these of baseline, proposed-simple, proposed-block (the paper's, the default) and pooled.",
)
@click.option(
    "--panel",
    "panel_names",
    metavar="NAME|FILE",
    multiple=True,
    help="bun: only this panel (may be repeated): sipp-simulated, all-ones, credit-delay, activity, or a CSV file.",
)
@click.option("--repeats", type=Whole(), help="Repetitions; default: 3 for kumar, 1000 for bun.")
@_tables_only
@json_option
def reproduce(
    name: str,
    data: str | None,
    out: str | None,
    quick: bool,
    jobs: int,
    streams: str | None,
    epsilons: str | None,
    methods: str | None,
    panel_names: tuple[str, ...],
    repeats: int | None,
    no_figures: bool,
    as_json: bool,
) -> None:
    """Run the experiments of a paper, and put our results beside the printed ones.

    NAME is kumar: Kumar, Strohmer, Vershynin (2024), Tables 1 to 3 and the figures: six streams, four budgets,
    the baseline and the proposed method with two counters. Needs the paper's real data. Everything takes about
    an hour on two cores, --quick (two streams, epsilon 1, 100 steps) under two minutes.

    Or bun: Bun, Gaboardi, Neunhoeffer, Zhang (2024), section 5: synthetic people for a panel, 1000 times, on
    an invented panel, an extreme one, and two real ones where --data has them. About five minutes, --quick
    (the invented ones, 50 times) one.

    Finished runs are kept: the same command goes on where it stopped. The results are computed from private
    tables: evaluation only, not releasable.

    \b
    Examples:
      dpstream reproduce bun --quick
      dpstream reproduce kumar --data DIR
    """
    from dpstream.lab.papers import PAPERS, reproduce_paper
    from dpstream.project.reader import did_you_mean

    if name not in PAPERS:
        raise ConfigError(
            f"unknown experiments {name!r}{did_you_mean(name, PAPERS)}",
            where="NAME",
            allowed=", ".join(PAPERS),
        )
    lists = {"streams": streams, "epsilons": epsilons, "methods": methods}
    selected = {option: _words(text) for option, text in lists.items() if text is not None}
    if panel_names:
        selected["panel"] = list(panel_names)
    for option in selected:
        if option not in PAPERS[name]:
            raise ConfigError("the option belongs to other experiments", where=f"--{option} with {name}")
    place = out or f"reproduction-{name}{'-quick' if quick else ''}"
    with _watching() as watch:
        summary = reproduce_paper(
            name,
            data,
            place,
            selected,
            watch,
            repeats=repeats,
            quick=quick,
            jobs=jobs,
            figures=not no_figures,
        )
    _print_summary(summary, as_json)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


@click.command("compare", short_help="Compare methods on streams whose truth you hold.")
@click.argument("file", metavar="FILE", type=FilePath("file"))
@click.option("--out", type=FilePath("folder"), help="Output folder; default: the file's name without .toml.")
@click.option(
    "--data", type=FilePath("folder"), help="The folder with the paper's data; default: DPSTREAM_DATA."
)
@_jobs
@_tables_only
@json_option
def compare(file: str, out: str | None, data: str | None, jobs: int, no_figures: bool, as_json: bool) -> None:
    """Run several methods on several streams and compare their errors with the truth.

    FILE is a small TOML file with streams, methods, epsilons and, as a ceiling, offline mechanisms that run once on
    the final table. Finished runs are kept: the same command goes on where it stopped. Nothing is published, and
    no stream's state is touched.

    The results are computed from private tables: evaluation only, not releasable.

    \b
    Example:
      dpstream compare compare.toml --out comparison
    """
    with _watching() as watch:
        from dpstream.lab.experiments import Comparison
        from dpstream.lab.experiments.outcome_summary import summary_of

        comparison = Comparison.load(file, data=data)
        target = out or Path(file).with_suffix("")
        outcome = comparison.run(target, jobs=jobs, figures=not no_figures, watch=watch)
    _print_summary(summary_of(outcome), as_json)


@contextmanager
def _watching() -> Iterator[RunWatch]:
    """Progress on standard error while runs go on; Ctrl-C and SIGTERM end them, and finished ones are kept."""
    # Several processes share the cores; a numerical library that takes them all for itself slows them down.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    with Guard():
        yield _RunLines()


class _RunLines:
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


def _duration(seconds: float) -> str:
    """Whole minutes from two minutes on.

    >>> _duration(59.6), _duration(600)
    ('60 s', '10 min')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _print_summary(summary: ExperimentSummary, as_json: bool) -> None:
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
