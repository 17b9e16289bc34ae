"""``dpstream status``: how far a stream is and what it has cost."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import (
    ATTENTION,
    UNFIT,
    json_option,
    of_stream,
    print_facts,
    print_json,
    screen_paragraphs,
)
from dpstream.cli.types import Duration
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.project import Config


@click.command("status", short_help="Say how far the stream is and what it has cost.")
@of_stream("--state", "--out")
@click.option(
    "--health",
    "only_health",
    is_flag=True,
    help="One line for cron; exit code 0: healthy, 7: unfit, 6: act.",
)
@click.option(
    "--max-age",
    metavar="TIME",
    type=Duration(),
    help="With --health: the newest release's largest age (36h, 8d).",
)
@click.option(
    "--deep",
    is_flag=True,
    help="With --health: compare all releases with the store.",
)
@click.option(
    "--prometheus",
    is_flag=True,
    help="Print public numbers for Prometheus.",
)
@json_option
def command(
    config: Config,
    only_health: bool,
    max_age: float | None,
    deep: bool,
    prometheus: bool,
    as_json: bool,
) -> int:
    """Say how many steps are released, what they cost together, and what is left.

    Changes nothing, needs no lock, and prints no private value.

    \b
    Examples:
      dpstream status
      dpstream status dpstream.toml --health --max-age 8d
    """
    if prometheus and (only_health or as_json):
        other = "--health" if only_health else "--json"
        raise ConfigError(
            f"--prometheus and {other} cannot be combined", where="--prometheus", allowed="one of them"
        )
    asks_health = only_health or prometheus
    for option, given in (("--max-age", max_age is not None), ("--deep", deep)):
        if given and not asks_health:
            raise ConfigError(
                f"{option} is part of the health line", where=option, allowed="with --health or --prometheus"
            )
    from dpstream.project.status import health, metric_values, metrics_text, status_facts, steps_words

    config.schema().require_exact(f"{config.path} [schema]")
    facts = status_facts(config)
    if asks_health:
        word, why = health(config, facts, max_age, deep=deep)
        if prometheus:
            click.echo(metrics_text({config.name: metric_values(config, facts, word)}), nl=False)
            return 0
        if as_json:
            print_json({"format": 1, "stream": config.name, "health": word, "why": why})
        else:
            click.echo(f"{config.name}: {word}: {why}")
        return {"healthy": 0, "unfit": UNFIT}.get(word, ATTENTION)
    attention = screen_paragraphs("status_attention", facts)
    print_facts(
        "status",
        facts,
        as_json=as_json,
        steps_words=steps_words(facts),
        attention=attention,
        verdict_lines=_verdict_lines(facts["verdicts"]),
    )
    return 0


def _verdict_lines(verdicts: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[str]]]:
    """Each verdict, with the later uses of the same word and reason."""
    groups = itertools.groupby(verdicts, key=lambda verdict: (verdict["word"], verdict["why"]))
    return [(first, [other["use"] for other in others]) for _, (first, *others) in groups]
