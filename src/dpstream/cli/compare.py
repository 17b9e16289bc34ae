"""``dpstream compare``: any methods on any streams."""

from __future__ import annotations

import click

from dpstream.cli.experiment import print_summary, watching
from dpstream.cli.shared import json_option
from dpstream.cli.types import FilePath, Whole


@click.command("compare", short_help="Compare methods on streams whose truth you hold.")
@click.argument("file", metavar="FILE", type=FilePath("file"))
@click.option("--out", type=FilePath("folder"), help="Output folder; default: the file's name without .toml.")
@click.option(
    "--data", type=FilePath("folder"), help="The folder with the paper's data; default: DPSTREAM_DATA."
)
@click.option(
    "--jobs", default=2, show_default=True, type=Whole(1, 1024), help="How many processes work at once."
)
@click.option("--no-figures", is_flag=True, help="Write tables only.")
@json_option
def command(file: str, out: str | None, data: str | None, jobs: int, no_figures: bool, as_json: bool) -> None:
    """Run several methods on several streams and compare their errors with the truth.

    FILE is a small TOML file with streams, methods, epsilons and, as a ceiling, offline mechanisms that run once on
    the final table. Finished runs are kept: the same command goes on where it stopped. Nothing is published, and
    no stream's state is touched.

    The results are computed from private tables: evaluation only, not releasable.

    \b
    Example:
      dpstream compare compare.toml --out comparison
    """
    from pathlib import Path

    with watching() as watch:
        from dpstream.lab.experiments import Comparison
        from dpstream.lab.experiments.outcome_summary import summary_of

        comparison = Comparison.load(file, data=data)
        target = out or Path(file).with_suffix("")
        outcome = comparison.run(target, jobs=jobs, figures=not no_figures, watch=watch)
    print_summary(summary_of(outcome), as_json)
