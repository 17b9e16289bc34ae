"""``dpstream withdraw``: take a released table back."""

from __future__ import annotations

import click

from dpstream.cli.shared import config_argument

__all__ = ["command"]


@click.command("withdraw", short_help="Take a released table back, and say why.")
@config_argument
@click.option("--step", required=True, type=click.IntRange(min=1), help="The released step.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; public, readers are told it.")
@click.option("--state", type=click.Path(), help="Another place for the secret state.")
@click.option("--out", type=click.Path(), help="Another place for the releases.")
def command(config: str, step: int, reason: str, state: str | None, out: str | None) -> None:
    """Remove a step's table from the releases. Its manifest stays, and readers are told the reason.

    Nothing is refunded: what was released was released, and its cost stays in the ledger. May be repeated.
    Do not put private values into the reason.

    \b
    Example:
      dpstream withdraw dpstream.toml --step 17 --reason "the source sent week 16 twice"
    """
    from dpstream.config import Config

    with Config.load(config).open_stream(state=state, out=out) as stream:
        fresh = stream.withdraw(step, reason)
    click.echo(f"step {step} is withdrawn" if fresh else f"step {step} was withdrawn already")
