"""``dpstream approve`` and ``withdraw``: publish steps that were held; take a released table back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import by_option, of_stream, opened
from dpstream.cli.types import Steps, Whole
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.project import Config


@click.command("approve", short_help="Publish steps that are held.")
@of_stream("--state", "--out")
@click.option("--step", "chosen", type=Steps(), metavar="STEPS", help="3, 3-7 or 3,5-7.")
@click.option("--all", "everything", is_flag=True, help="Every held step, in order.")
@by_option
def command(config: Config, chosen: list[range] | None, everything: bool, by: str) -> None:
    """Publish committed steps that [output] approve = true has held. Costs no budget; may be repeated.

    A step that is never approved has cost its budget. Who approved stays in the state (dpstream status --json).

    \b
    Examples:
      dpstream approve dpstream.toml --all
      dpstream approve dpstream.toml --step 3-7 --by "Anna Meier"
    """
    from dpstream.project.base import require_border

    if everything == (chosen is not None):
        raise ConfigError("the steps are missing", where="approve", allowed="either --step or --all")
    require_border(config)
    with opened(config) as stream:
        held = set(stream.held())
        # Of a range what is held in it; a step that is named by itself has to be there.
        steps = (
            None
            if chosen is None
            else {
                step
                for part in chosen
                for step in (part if len(part) == 1 else [one for one in held if one in part])
            }
        )
        approved = stream.approve(steps, by=by)
    _explain(config)
    names = f"step{'s' if len(approved) > 1 else ''} {', '.join(map(str, approved))}"
    click.echo(f"published: {names}" if approved else "nothing was held", err=config.output.sink == "stdout")


@click.command("withdraw", short_help="Withdraw a released table, or reject a held one.")
@of_stream("--state", "--out")
@click.option("--step", required=True, type=Whole(), help="The released or held step.")
@click.option("--reason", required=True, metavar="TEXT", help="Published in place of the step.")
@by_option
def withdraw(config: Config, step: int, reason: str, by: str) -> None:
    """Remove a step's table from the releases, or reject a held step. The manifest of a released step stays, with the
    reason.

    Nothing is refunded. Do not put private values into the reason.

    \b
    Example:
      dpstream withdraw dpstream.toml --step 17 --reason "the source sent week 16 twice"
    """
    from dpstream.stream.declared import kept_values

    with opened(config) as stream:
        held = step in stream.held()
        fresh, found = stream.withdraw(step, reason, by=by), step in stream.discovered()
    _explain(config)
    if held:
        click.echo(f"step {step} is rejected: nothing of it is published")
    else:
        click.echo(f"step {step} is withdrawn" if fresh else f"step {step} was withdrawn already")
    if found:
        click.echo(kept_values(held=held))


def _explain(config: Config) -> None:
    from dpstream.tools.folder import explain

    if warning := explain(config):
        click.echo(f"warning: {warning}", err=True)
