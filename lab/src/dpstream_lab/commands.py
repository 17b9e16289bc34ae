"""``dpstream lab ...``: audits of the program itself, the papers' experiments, comparisons, and data sets.

Only click is imported before a verb runs; dpstream finds the group by its entry point.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.audit import (
    all_option,
    command_text,
    long_option,
    named,
    out_option,
    part_progress,
    processes_option,
    show_audit,
)
from dpstream.cli.interrupt import Guard
from dpstream.cli.shared import console, json_option, print_json, print_table, require_free
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.tools.audit import AuditLength
    from dpstream_lab.experiments import RunWatch
    from dpstream_lab.experiments.outcome_summary import ExperimentSummary


@click.group("lab")
def lab() -> None:
    """See ``dpstream.cli.main.BROUGHT``, which has the words of its help."""


@lab.command("audit", short_help="Test the privacy claims of all mechanisms; broken ones must be caught.")
@long_option
@click.option(
    "--only",
    metavar="LIST",
    help="Some of aim, census, classifiers, counters, exact, panels, points, pooled, published, questions, samplers, "
    "schedulers, turnover.",
)
@all_option
@out_option
@processes_option
@json_option
def audit(
    is_long: bool, only: str | None, show_all: bool, out: str | None, processes: int, as_json: bool
) -> None:
    """Does any mechanism lose more privacy than it claims? Reads no private data.

    Losses are computed exactly, or bounded from below by runs on neighbouring streams; mechanisms broken on purpose
    must be caught.

    Exit code 3: something loses more than it claims, or a broken mechanism was not caught.

    \b
    Examples:
      dpstream lab audit
      dpstream lab audit --long --out audit
    """
    from dpstream_lab.audits import audit_program

    length: AuditLength = "long" if is_long else "short"
    audited = audit_program(named(only), length, part_progress(), processes=processes)
    made_by = command_text("dpstream lab audit")
    show_audit(
        audited,
        length,
        made_by,
        out,
        show_all=show_all,
        as_json=as_json,
        left_out=[],
        stream=lambda: (None, ""),
    )


_jobs = click.option("--jobs", default=2, show_default=True, type=Whole(1, 1024), help="Processes at once.")
_tables_only = click.option("--no-figures", is_flag=True, help="Write tables only.")


@lab.command("reproduce", short_help="Run a paper's experiments.")
@click.argument("name", metavar="NAME")
@click.option(
    "--data",
    type=FilePath("folder"),
    help="Folder with the real data (DPSTREAM_DATA).",
)
@click.option("--out", type=FilePath("folder"), help="Output folder (reproduction-NAME).")
@click.option("--quick", is_flag=True, help="Run a small part.")
@_jobs
@click.option("--streams", metavar="LIST", help="kumar: only these streams, separated by commas.")
@click.option("--epsilons", metavar="LIST", help="kumar: only these budgets, such as 0.5,1.")
@click.option(
    "--methods",
    metavar="LIST",
    help="kumar: some of baseline, proposed-simple, proposed-block, pooled.",
)
@click.option(
    "--panel",
    "panel_names",
    metavar="NAME|FILE",
    multiple=True,
    help="bun: sipp-simulated, all-ones, credit-delay, activity, or a CSV file; repeatable.",
)
@click.option("--repeats", type=Whole(), help="Repetitions (kumar 3, bun 1000).")
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

    NAME is kumar (Kumar, Strohmer, Vershynin 2024: Tables 1 to 3 and the figures; needs the real data; an hour on
    two cores) or bun (Bun, Gaboardi, Neunhoeffer, Zhang 2024, section 5; five minutes). With --quick, under two
    minutes.

    An interrupted command continues. Results come from private tables: evaluation only, not releasable.

    \b
    Examples:
      dpstream lab reproduce bun --quick
      dpstream lab reproduce kumar --data DIR
    """
    from dpstream.core.errors import did_you_mean
    from dpstream_lab.papers import PAPERS, reproduce_paper

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


@lab.command("compare", short_help="Compare methods on streams whose truth you hold.")
@click.argument("file", metavar="FILE", type=FilePath("file"))
@click.option("--out", type=FilePath("folder"), help="Output folder (FILE without .toml).")
@click.option("--data", type=FilePath("folder"), help="Folder with the paper's data (DPSTREAM_DATA).")
@_jobs
@_tables_only
@json_option
def compare(file: str, out: str | None, data: str | None, jobs: int, no_figures: bool, as_json: bool) -> None:
    """Run several methods on several streams and compare their errors with the truth.

    FILE is TOML with streams, methods, epsilons and offline mechanisms as a ceiling. An interrupted command
    continues. Results come from private tables: evaluation only, not releasable.

    \b
    Example:
      dpstream lab compare compare.toml --out comparison
    """
    with _watching() as watch:
        from dpstream_lab.experiments import Comparison
        from dpstream_lab.experiments.outcome_summary import summary_of

        comparison = Comparison.load(file, data=data)
        target = out or Path(file).with_suffix("")
        outcome = comparison.run(target, jobs=jobs, figures=not no_figures, watch=watch)
    _print_summary(summary_of(outcome), as_json)


@lab.command("datasets", short_help="Build a paper's data set from its public source file.")
@click.argument("name", metavar="NAME")
@click.argument("file", type=FilePath("file"))
@click.option(
    "--out", default="panel.csv", show_default=True, type=FilePath("new"), help="The CSV file to write."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def datasets(name: str, file: str, out: str, force: bool, as_json: bool) -> None:
    """Build a data set from FILE.

    NAME is sipp: the household poverty panel of Bun et al. (2024), from the SIPP 2021 person file (pu2021.csv or
    its zip). One line a household, 1 in months below the poverty threshold; households with a missing month are
    left out.

    \b
    Example:
      dpstream lab datasets sipp pu2021_csv.zip --out panel.csv
    """
    from dpstream.core.errors import did_you_mean
    from dpstream_lab.papers import DATA_SETS

    if name not in DATA_SETS:
        raise ConfigError(
            f"unknown data set {name!r}{did_you_mean(name, DATA_SETS)}",
            where="NAME",
            allowed=", ".join(DATA_SETS),
        )
    place = Path(out)
    require_free(place, force=force)
    built = DATA_SETS[name](file, place)
    if as_json:
        print_json({"out": out, **built.facts})
    else:
        click.echo("\n".join(built.sentences))


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
