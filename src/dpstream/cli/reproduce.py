"""``dpstream reproduce``: a paper's experiments, ours beside the printed numbers or figures."""

from __future__ import annotations

import click

from dpstream.cli.experiment import print_summary, watching
from dpstream.cli.shared import json_option
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError


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
@click.option(
    "--jobs", default=2, show_default=True, type=Whole(1, 1024), help="How many processes work at once."
)
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
@click.option("--no-figures", is_flag=True, help="Write tables only.")
@json_option
def command(
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

    Or bun: Bun, Gaboardi, Neunhoeffer, Zhang (2024), the figures: synthetic people for a panel, 1000 times, on
    an invented panel, an extreme one, and two real ones where --data has them. About five minutes, --quick
    (the invented ones, 50 times) one.

    Finished runs are kept: the same command goes on where it stopped. The results are computed from private
    tables: evaluation only, not releasable.

    \b
    Examples:
      dpstream reproduce bun --quick
      dpstream reproduce kumar --data DIR
    """
    from dpstream.lab.papers import PAPERS, RunSettings
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
        if option not in PAPERS[name].options:
            raise ConfigError("the option belongs to other experiments", where=f"--{option} with {name}")
    place = out or f"reproduction-{name}{'-quick' if quick else ''}"
    with watching() as watch:
        settings = RunSettings(data, place, selected, repeats, quick, jobs, figures=not no_figures)
        summary = PAPERS[name].run(settings, watch)
    print_summary(summary, as_json)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]
