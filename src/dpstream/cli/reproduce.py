"""``dpstream reproduce``: a paper's experiments, ours beside the printed numbers."""

from __future__ import annotations

import click

from dpstream.cli.experiment import say_outcome, watching, words
from dpstream.cli.shared import json_option

__all__ = ["command"]


@click.command("reproduce", short_help="Run a paper's experiments; needs its real data.")
@click.argument("name", metavar="NAME")
@click.option(
    "--data",
    type=click.Path(),
    help="The folder with adult/ and eviction/; default: the variable DPSTREAM_DATA.",
)
@click.option(
    "--out", type=click.Path(), help="Output folder; default: reproduction-NAME (with --quick: -quick)."
)
@click.option("--quick", is_flag=True, help="Two streams, epsilon 1, the first 100 steps.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="Processes.")
@click.option("--streams", metavar="LIST", help="Only these streams, separated by commas.")
@click.option("--epsilons", metavar="LIST", help="Only these budgets, such as 0.5,1.")
@click.option("--methods", metavar="LIST", help="Only these of baseline, proposed-simple, proposed-block.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1), help="Repetitions.")
@click.option("--no-figures", is_flag=True, help="Tables only.")
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
    repeats: int,
    no_figures: bool,
    as_json: bool,
) -> None:
    """Run the experiments of a paper on its streams, and put our numbers beside the printed ones.

    NAME is kumar: Kumar, Strohmer, Vershynin (2024), Tables 1 to 3 and the figures: six streams, four budgets,
    the baseline and the proposed method with two counters. Everything takes about an hour on two cores, --quick
    under two minutes. Finished runs are kept: the same command goes on where it stopped.

    The results are computed from private tables: evaluation only, not releasable.

    \b
    Example:
      dpstream reproduce kumar --quick
    """
    from dpstream.errors import ConfigError

    if name != "kumar":
        raise ConfigError(f"unknown experiments {name!r}", where="NAME", allowed="kumar")
    with watching() as watch:
        from dpstream.evaluate.experiments import reproduce_kumar

        outcome = reproduce_kumar(
            data,
            out or f"reproduction-{name}{'-quick' if quick else ''}",
            streams=words(streams),
            epsilons=words(epsilons),
            methods=words(methods),
            repeats=repeats,
            quick=quick,
            jobs=jobs,
            figures=not no_figures,
            watch=watch,
        )
    say_outcome(outcome, as_json)
