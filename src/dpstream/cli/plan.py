"""``dpstream plan``: what a configuration promises and costs, before any data are read."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.progress import counted_progress
from dpstream.cli.shared import json_option, of_stream, print_facts
from dpstream.cli.types import Whole
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstream.project import Config


@click.command("plan", short_help="Print guarantee, costs and noise; reads no data.")
@of_stream()
@click.option(
    "--compare-epsilon", metavar="LIST", help="Show the noise under other epsilons, such as 0.5,1,2."
)
@click.option(
    "--runs-until",
    metavar="RECORDS",
    type=Whole(),
    help="List the runs that are planned up to this size of the database, where runs are scheduled by it.",
)
@click.option(
    "--want",
    "wishes",
    multiple=True,
    metavar="WISH",
    help='Find the smallest epsilon that reaches an error, such as "zip within 5 %"; may be repeated. Needs [expect].',
)
@click.option(
    "--at",
    metavar="STEP",
    type=Whole(),
    help="The step whose verdicts are told, and at which a --want is to hold. Without it verdicts are told for the "
    "last step, or where nothing says which that is, for a year's.",
)
@click.option(
    "--compare",
    "fits",
    is_flag=True,
    help="Run the mechanisms that could run this stream on invented ones, and say which fits. Needs [expect].",
)
@click.option(
    "--against",
    multiple=True,
    metavar="MECHANISM",
    help="With --compare: only with this other mechanism; may be repeated.",
)
@click.option("--runs", type=Whole(), help="With --compare: runs of each mechanism at most (5).")
@click.option(
    "--steps", type=Whole(), help="With --compare: steps of a run (those of the stream, at most 100)."
)
@click.option(
    "--seconds", type=Whole(), help="With --compare: the limit of CPU, which may allow fewer runs (60)."
)
@click.option("--seed", type=Whole(0), help="With --compare: of the invented streams and the noise (0).")
@json_option
def command(
    config: Config,
    compare_epsilon: str | None,
    runs_until: int | None,
    wishes: tuple[str, ...],
    at: int | None,
    fits: bool,
    against: tuple[str, ...],
    runs: int | None,
    steps: int | None,
    seconds: int | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Print the guarantee, what each part costs, the noise, sizes, and every default with its reason.

    Reads no data. With [expect] in the file it predicts the errors of a table of that size, and what it is fit for.
    --compare invents streams of that size in this schema, of uniform columns and of columns that depend on each other
    (and like the public table that the stream begins with), runs this and other mechanisms on them with the same
    guarantee, and says which one it would take, and by how much. Differences up to 10 % count as none. Equal seeds give
    equal results. Where --seconds do not do for one run of each, the plan is printed without a comparison.

    \b
    Examples:
      dpstream plan dpstream.toml --compare-epsilon 0.5,1,2
      dpstream plan dpstream.toml --want "total within 2 %" --want "zip within 5 %"
      dpstream plan dpstream.toml --compare --seconds 300
    """
    from dpstream.project.planning import describe, expected_table, smallest_budget
    from dpstream.stream.release.verdicts import MEANING

    given = {"against": against or None, "runs": runs, "steps": steps, "seconds": seconds, "seed": seed}
    given = {key: value for key, value in given.items() if value is not None}
    if given and not fits:
        raise ConfigError(
            "it belongs to a comparison of mechanisms",
            where=f"--{next(iter(given))}",
            allowed="with --compare",
        )
    config.schema().require_exact(f"{config.path} [schema]")
    facts = describe(config, at, runs_until)
    if compare_epsilon is not None:
        facts["compared"] = _compare(config, compare_epsilon)
    if wishes:
        facts["wanted"] = smallest_budget(config, wishes, at)
    if fits:
        facts["mechanisms_compared"] = _compared(config, given)
    errors = facts.get("mechanisms_compared", {}).get("errors", ())
    print_facts(
        "plan",
        facts,
        as_json=as_json,
        wrap=True,
        table=None if facts["expected_errors"] is None else expected_table(facts["expected_errors"]),
        meaning=MEANING,
        compares=next(iter(facts.get("compares", ())), "deviation"),
        distances=sorted({name for one in errors for name in one["distances"]}),
        exact=_amount,
        shown=_shown,
    )


def _compare(config: Config, text: str) -> list[dict[str, Any]]:
    """Other epsilons under the file's definition: pure, or with the file's delta."""
    from dpstream.project.planning import budgets_of, compare_budgets

    name, make = budgets_of(config)
    if name == "rho":
        raise ConfigError(
            "the budget is a rho, which has no epsilon to compare with",
            where="--compare-epsilon",
            allowed="a budget of epsilon, or of epsilon and delta",
        )
    words = [word.strip() for word in text.split(",")]
    budgets = [make(word) for word in words]
    rows = compare_budgets(config, budgets)
    return [{"epsilon": word, **row} for word, row in zip(words, rows, strict=True)]


def _amount(exact: str) -> str:
    """Long fractions as decimals, where these end."""
    from dpstream.core.privacy import decimal_text

    decimal = decimal_text(Fraction(exact))
    return exact if "/" in decimal or len(exact) <= len("100/101") else decimal


def _shown(value: str | float | None) -> str:
    """A value of a table: whole numbers with commas, others to four digits, None as unknown."""
    if value is None or isinstance(value, str):
        return "unknown" if value is None else value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


#: What ``compare_mechanisms`` takes where nothing is said.
DEFAULT_SECONDS = 60


def _compared(config: Config, options: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison with the options that were given, and with its progress on the standard error; or a sentence that
    the time did not do for one, which is no reason to tell no plan."""
    from dpstream.tools.choosing import ComparisonTooLongError, compare_mechanisms

    seconds = options.get("seconds", DEFAULT_SECONDS)
    click.echo(f"inventing streams and running the mechanisms on them: up to {seconds} s of CPU", err=True)
    with counted_progress("compared", "runs", quiet=False) as tell:
        try:
            return compare_mechanisms(config, **options, progress=tell).as_dict()
        except ComparisonTooLongError as error:
            what = f"The mechanisms were not compared: {error.what}. It would take {error.allowed}."
            return {"words": what}
