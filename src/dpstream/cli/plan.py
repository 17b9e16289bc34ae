"""``dpstream plan``: what a configuration promises and costs, before any data are read."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.progress import counted_progress
from dpstream.cli.shared import first_lines, json_option, of_stream, print_facts, screen_paragraphs
from dpstream.cli.types import Whole
from dpstream.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstream.project import Config
    from dpstream.project.planning import AnswerRow

#: What ``--explain`` shows.
TOPICS = ("privacy", "budget", "schedule", "halting", "errors", "assumptions")


@click.command("plan", short_help="Print guarantee, costs and noise; reads no data.")
@of_stream()
@click.option("--compare-epsilon", metavar="LIST", help="Show the noise under other epsilons: 0.5,1,2.")
@click.option(
    "--runs-until",
    metavar="RECORDS",
    type=Whole(),
    help="List the runs planned up to this size.",
)
@click.option(
    "--want",
    "wishes",
    multiple=True,
    metavar="WISH",
    help='Find the smallest epsilon for "zip within 5 %"; repeatable.',
)
@click.option(
    "--at",
    metavar="STEP",
    type=Whole(),
    help="The step to predict (the last one, or a year's).",
)
@click.option(
    "--compare",
    "fits",
    is_flag=True,
    help="Find the best mechanism on invented streams. Needs [expect].",
)
@click.option(
    "--against",
    multiple=True,
    metavar="MECHANISM",
    help="With --compare: this mechanism only; repeatable.",
)
@click.option("--runs", type=Whole(), help="With --compare: most runs of each (5).")
@click.option("--steps", type=Whole(), help="With --compare: steps of a run (at most 100).")
@click.option("--seconds", type=Whole(), help="Seconds of CPU: simulation (2), --compare (60).")
@click.option("--seed", type=Whole(0), help="Of the invented streams and the noise (0).")
@click.option("--quick", is_flag=True, help="Predict without simulation.")
@click.option("--explain", "topic", type=click.Choice(TOPICS), help="Show one topic instead.")
@click.option("--all", "everything", is_flag=True, help="Show all topics.")
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
    quick: bool,
    topic: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show how accurate the releases will be, what is protected, and what the budget is spent on. Reads no data.

    With [expect], the mechanism runs on invented tables for 2 seconds. --compare runs other mechanisms, too;
    differences up to 10 % count as none. Equal seeds give equal streams and noise; how many runs fit follows from
    the CPU.

    \b
    Examples:
      dpstream plan
      dpstream plan --explain halting
      dpstream plan dpstream.toml --want "total within 2 %" --want "zip within 5 %"
    """
    from dpstream.project.planning import describe, expected_table, promised, smallest_budget, told_base
    from dpstream.stream.predecessor_cost import broken_words
    from dpstream.stream.release.verdicts import MEANING

    options = {"against": against or None, "runs": runs, "steps": steps}
    options = {key: value for key, value in options.items() if value is not None}
    if options and not fits:
        raise ConfigError(
            "the option is for comparisons",
            where=f"--{next(iter(options))}",
            allowed="with --compare",
        )
    limits = {key: value for key, value in {"seconds": seconds, "seed": seed}.items() if value is not None}
    config.schema().require_exact(f"{config.path} [schema]")
    facts: dict[str, Any] = describe(config, at, runs_until) | {"forecast": None}
    no_forecast = "--quick leaves the simulation out"
    if compare_epsilon is not None:
        facts["compared"] = _compare(config, compare_epsilon)
    if wishes:
        facts["wanted"] = smallest_budget(config, wishes, at)
    if fits:
        facts["mechanisms_compared"] = _compared(config, options | limits)
    elif not (quick or wishes or compare_epsilon):
        facts["forecast"], no_forecast = _forecast(config, at, limits)
    errors = facts.get("mechanisms_compared", {}).get("errors", ())
    notes = [] if not errors else screen_paragraphs("mechanisms_attention", facts)
    attention = notes if everything else first_lines(notes, 4)
    plan = config.plan()
    loss, base = promised(config, plan)["loss"], told_base(config, plan) or {}
    print_facts(
        "plan",
        facts,
        as_json=as_json,
        wrap=True,
        attention=attention,
        more=len(notes) - len(attention),
        topic="all" if everything else topic,
        topics=TOPICS,
        broken=broken_words(base.get("broken", ())),
        hardly=loss["epsilon"] if loss["hardly"] else None,
        no_forecast=no_forecast,
        comparable=_comparable(config),
        answers=_answers(facts),
        most_headlines=_HEADLINES,
        shares=[f"{part['name']} {_amount(part['total'])}" for part in facts["parts"]],
        defaults=sum(value["default_because"] is not None for value in facts["values"]),
        table=None if facts["expected_errors"] is None else expected_table(facts["expected_errors"]),
        meaning=MEANING,
        compares=next(iter(facts.get("compares", ())), "deviation"),
        distances=sorted({name for one in errors for name in one["distances"]}),
        exact=_amount,
        shown=_shown,
    )


#: Headlines on the first screen.
_HEADLINES = 4


def _comparable(config: Config) -> bool:
    """Whether ``--compare`` has something to run."""
    from dpstream.tools.choosing import contenders

    try:
        return config.expected is not None and sum(one.config is not None for one in contenders(config)) > 1
    except ConfigError:
        return False


def _forecast(config: Config, at: int | None, limits: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The errors on invented tables; or None, and why there are none."""
    from dpstream.project.planning import last_step
    from dpstream.tools.forecast import forecast_facts

    if config.expected is None:
        return None, "write public guesses into [expect]: size and records_per_step"
    try:
        return forecast_facts(config, at or last_step(config, config.plan())[0], **limits), ""
    except ConfigError as error:
        return None, error.what


def _answers(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first screen's table: from the simulation, else from what the noise alone lets predict; None without both."""
    from dpstream.project.planning import answer_rows
    from dpstream.stream.release.verdicts import LITTLE

    expected, forecast, little = facts["expected_errors"], facts["forecast"], ""
    records = facts["counted_records"]
    if forecast is not None:
        step, size, runs = forecast["step"], forecast["size"], forecast["runs"]
        source = f"{counted(runs, 'run')} on invented records (seed {forecast['seed']})"
        how = f"Standard errors of released tables, from {source}."
        if forecast["simulated_steps"] < step:
            steps = forecast["simulated_steps"]
            how = f"Standard errors at that step: {steps} steps were simulated; they grow as the plan says."
        rows = answer_rows(size, forecast["total"], forecast["marginals"], records)
        if forecast["marginals"]:
            rows += [_trivial_row(name, size, forecast["marginals"]) for name in ("uniform", "empty")]
        little = LITTLE if forecast["says_little"] else ""
    elif expected is not None:
        last = expected["steps"][-1]
        step, size = last["step"], last["size"]
        how = "Standard errors of measured counts, noise alone."
        rows = answer_rows(size, last["total"], last["marginals"], records)
    else:
        return None
    reason = "" if expected is None else f" ({expected['verdict_step']['because']})"
    return {
        "when": f"After step {step}{reason}, with about {size:,.0f} {records}",
        "rows": rows,
        "how": how,
        "little": little,
    }


def _trivial_row(name: str, size: float, marginals: Sequence[Mapping[str, Any]]) -> AnswerRow:
    """The errors of a trivial table in half of the widest marginals."""
    from dpstream.project.planning import answer_rows

    errors = [
        {**one, "standard_error": one[name], "share": one[name] * one["cells"] / size} for one in marginals
    ]
    row = answer_rows(size, None, errors)[-1]
    return replace(row, what=f"{name} table: {row.what}", word="")


def _compare(config: Config, text: str) -> list[dict[str, Any]]:
    """Other epsilons under the file's definition: pure, or with the file's delta."""
    from dpstream.project.planning import budgets_of, compare_budgets

    name, make = budgets_of(config)
    if name == "rho":
        raise ConfigError(
            "a rho has no epsilon",
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
    the time did not do for one, and the plan is shown."""
    from dpstream.tools.choosing import ComparisonTooLongError, compare_mechanisms

    seconds = options.get("seconds", DEFAULT_SECONDS)
    click.echo(f"running the mechanisms on invented streams: up to {seconds} s of CPU", err=True)
    with counted_progress("compared", "runs", quiet=False) as tell:
        try:
            return compare_mechanisms(config, **options, progress=tell).as_dict()
        except ComparisonTooLongError as error:
            what = f"The mechanisms were not compared: {error.what}. It would take {error.allowed}."
            return {"words": what}
