"""``dpstream status``: how far a stream is and what it has cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpstream.cli.health import ATTENTION, UNFIT, length
from dpstream.cli.shared import config_argument, json_option, looked_at, print_json
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError


@click.command("status", short_help="Say how far the stream is and what it has cost.")
@config_argument
@click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")
@click.option("--out", type=FilePath("folder"), help="Another place for the releases.")
@click.option(
    "--health",
    "only_health",
    is_flag=True,
    help="One line for cron and monitoring; exit code 0 if nobody has to act, 7 if the newest table is unfit, else 6.",
)
@click.option(
    "--max-age",
    metavar="TIME",
    callback=length,
    help="With --health: how old the newest release may be (36h, 8d, 2w).",
)
@click.option(
    "--deep",
    is_flag=True,
    help="With --health: read all releases, and not only the last three, and compare them with the store.",
)
@click.option(
    "--prometheus",
    is_flag=True,
    help="Print public numbers and the word of --health for Prometheus, such as a text file of its node exporter.",
)
@json_option
def command(
    config: str,
    state: str | None,
    out: str | None,
    only_health: bool,
    max_age: float | None,
    deep: bool,
    prometheus: bool,
    as_json: bool,
) -> int:
    """Say how many steps are released, what they cost together, and what is left.

    Changes nothing, needs no lock (a run may be under way), and prints no private value.

    \b
    Examples:
      dpstream status dpstream.toml --json
      dpstream status dpstream.toml --health --max-age 8d
      dpstream status dpstream.toml --prometheus > dpstream.prom
    """
    if prometheus and (only_health or as_json):
        raise ConfigError("these are two forms of one answer", where="--prometheus", allowed="one of them")
    told = only_health or prometheus
    if max_age is not None and not told:
        raise ConfigError(
            "an age is part of the health line", where="--max-age", allowed="with --health or --prometheus"
        )
    if deep and not told:
        raise ConfigError(
            "releases are compared for the health line",
            where="--deep",
            allowed="with --health or --prometheus",
        )
    from dpstream.project.status import health, status_facts

    loaded = looked_at(config, state)
    facts = status_facts(loaded, state, out)
    if told:
        folder = loaded.state_dir if state is None else Path(state)
        word, why = health(loaded, facts, folder, max_age, out=out, deep=deep)
        if prometheus:
            from dpstream.project.status import metric_values, metrics_text

            click.echo(metrics_text({loaded.name: metric_values(loaded, facts, word, folder)}), nl=False)
            return 0
        if as_json:
            print_json({"format": 1, "stream": loaded.name, "health": word, "why": why})
        else:
            click.echo(f"{loaded.name}: {word}: {why}")
        return {"healthy": 0, "unfit": UNFIT}.get(word, ATTENTION)
    if as_json:
        print_json(facts)
    else:
        _print(facts)
    return 0


def _print(facts: dict[str, Any]) -> None:
    from dpstream.project.status import steps_words

    started = "" if facts["started"] else " (not started)"
    click.echo(f"stream {facts['stream']}: {steps_words(facts)}{started}")
    if facts["holds"] is not None:
        click.echo(f"newest release: {facts['holds']}")
    if facts["unfit"] is not None:
        click.echo(f"unfit: {facts['unfit']}")
    for verdict in facts["verdicts"]:
        click.echo(verdict["words"])
    click.echo(f"loss so far: {facts['spent'] or 'nothing'}; planned: {facts['planned']}")
    click.echo(f"protected: {facts['protects']}")
    for broken in facts["broken_borders"]:
        click.echo(f"the published guarantee does not hold: {broken}")
    if facts["steps_left"] is not None:
        click.echo(f"steps left: {facts['steps_left']}")
        if facts["steps_left"] == 0:
            click.echo("the plan is used up: another step is refused (exit code 3)")
    if facts["next_due"] is not None:
        click.echo(f"next step due: {facts['next_due']}")
    if facts["failed"] is not None:
        click.echo(
            f"step {facts['begun']} stopped with {facts['failed']} after noise was drawn: find the cause, "
            "then run --discard-reserved once, by hand (each repetition is one more output, which the guarantee "
            "does not cover; never put it into a scheduled command)"
        )
    elif facts["restored"]:
        click.echo(
            "the store was restored from a copy: whether a step was under way is not known; run "
            "--discard-reserved once, by hand"
        )
    elif facts["begun"] is not None:
        click.echo(f"step {facts['begun']} was begun: a run is at it, or the next run takes it")
    if facts["unpublished"]:
        click.echo("committed steps wait to be published: the next run does it")
    if facts["held"]:
        steps = ", ".join(map(str, facts["held"]))
        click.echo(f"held until they are approved (dpstream approve): steps {steps}")
    if not facts["same_plan"]:
        click.echo(
            "the configuration differs from the plan that the stream was started with: it will not run"
            + ("" if facts["remedy"] is None else f" without {facts['remedy']}")
        )
    if facts["made_with_test_seed"]:
        click.echo("NO GUARANTEE: steps of this stream were made with a test seed")
    click.echo(f"releases: {facts['releases']}")
