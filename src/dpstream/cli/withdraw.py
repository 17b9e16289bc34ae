"""``dpstream withdraw``: take a released table back."""

from __future__ import annotations

import click

from dpstream.cli.shared import by_option, config_argument, opened
from dpstream.cli.types import FilePath, Whole


@click.command("withdraw", short_help="Take a released table back, and say why; or reject a held one.")
@config_argument
@click.option("--step", required=True, type=Whole(), help="The released or held step.")
@click.option("--reason", required=True, metavar="TEXT", help="Why. It is published where the step was.")
@by_option
@click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")
@click.option("--out", type=FilePath("folder"), help="Another place for the releases.")
def command(config: str, step: int, reason: str, by: str, state: str | None, out: str | None) -> None:
    """Remove a step's table from the releases. Its manifest stays, and readers are told the reason.

    A step that is held for approval is rejected: nothing of it is published, and the reason stays inside.

    Nothing is refunded: what was released was released, and its cost stays in the ledger. May be repeated.
    Do not put private values into the reason.

    \b
    Example:
      dpstream withdraw dpstream.toml --step 17 --reason "the source sent week 16 twice"
    """
    from dpstream.project import Config

    with opened(Config.load(config), state=state, out=out) as stream:
        held = step in stream.held()
        fresh = stream.withdraw(step, reason, by=by)
    if held:
        click.echo(f"step {step} is rejected: it was held, and nothing of it is published")
    else:
        click.echo(f"step {step} is withdrawn" if fresh else f"step {step} was withdrawn already")
