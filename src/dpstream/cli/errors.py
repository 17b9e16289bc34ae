"""``dpstream errors``: how far the releases are off, by simulation. Reads public files only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.interrupt import Guard
from dpstream.cli.progress import counted_progress
from dpstream.cli.shared import INTERRUPTED, json_option, of_stream, print_facts
from dpstream.cli.types import Whole

if TYPE_CHECKING:
    from dpstream.project import Config


@click.command("errors", short_help="Simulate the errors of the releases; costs no budget.")
@of_stream("--releases")
@click.option("--runs", default=20, show_default=True, type=Whole(0, 10**6), help="At least 2.")
@click.option("--jobs", default=1, show_default=True, type=Whole(1, 256), help="Processes at once.")
@click.option(
    "--seed", default=0, show_default=True, type=Whole(0), help="Of the runs; equal seeds, equal results."
)
@click.option("--until", type=Whole(), metavar="STEP", help="Last release to take.")
@click.option(
    "--question",
    "questions",
    multiple=True,
    metavar="TEXT",
    help="Error of an answer, such as \"zip = '94110' and paid\"; repeatable.",
)
@click.option("--all", "explain", is_flag=True, help="Show errors by size of cell.")
@json_option
def command(
    config: Config,
    runs: int,
    jobs: int,
    seed: int,
    until: int | None,
    questions: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> int:
    """Measure by simulation how far the releases are off, and publish it beside them (errors/).

    The configuration runs again on the released stream as an invented truth. Only releases and CONFIG are read; no
    budget is spent. What the releases lost stays unseen (guide on errors). An interrupted call continues.

    \b
    Examples:
      dpstream errors dpstream.toml
      dpstream errors dpstream.toml --runs 50 --jobs 4 --question "age >= 65 and smoker"
    """
    from dpstream.tools.errors import publish_errors, simulate_errors
    from dpstream.tools.errors.published import check_questions

    check_questions(config, questions)
    with Guard() as guard, counted_progress("simulated", "runs", quiet=as_json) as tell, guard.hold():
        simulation = simulate_errors(
            config,
            runs=runs,
            jobs=jobs,
            seed=seed,
            until=until,
            stop=lambda: guard.stop,
            progress=tell,
        )
    if guard.stop:
        click.echo(
            f"error: interrupted after {len(simulation.runs)} of {runs} runs; the same command continues",
            err=True,
        )
        return INTERRUPTED
    found = publish_errors(simulation, questions=questions)
    print_facts(
        "errors",
        [{key: value for key, value in facts.items() if key != "cells"} for facts in found],
        as_json=as_json,
        wrap=True,
        last=found[-1],
        explain=explain,
        folder=simulation.releases.folder / "errors",
        variation=_variation,
        size=_number,
    )
    return 0


def _variation(one: dict[str, Any]) -> str:
    """The mean over the widest marginals that have one, as AvgWE is."""
    most = max((len(marginal["columns"]) for marginal in one["marginals"]), default=0)
    known = [
        value
        for marginal in one["marginals"]
        if len(marginal["columns"]) == most and (value := marginal["total_variation"]) is not None
    ]
    return f"{sum(known) / len(known):.3f}" if known else "-"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
