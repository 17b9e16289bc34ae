"""``dpstream approve``: publish steps that were held."""

from __future__ import annotations

import click

from dpstream.cli.shared import config_argument
from dpstream.cli.types import FilePath, Whole

__all__ = ["command"]


@click.command("approve", short_help="Publish steps that are held.")
@config_argument
@click.option("--step", type=Whole(), help="The held step.")
@click.option("--all", "everything", is_flag=True, help="Every held step, in order.")
@click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")
@click.option("--out", type=FilePath("folder"), help="Another place for the releases.")
def command(config: str, step: int | None, everything: bool, state: str | None, out: str | None) -> None:
    """Publish committed steps that [output] approve = true has held. Costs no budget; may be repeated.

    A step that is never approved has cost its budget all the same.

    \b
    Example:
      dpstream approve dpstream.toml --all
    """
    from dpstream.config import Config
    from dpstream.errors import ConfigError

    if everything == (step is not None):
        raise ConfigError("say which steps", where="approve", allowed="either --step or --all")
    loaded = Config.load(config)
    with loaded.open_stream(state=state, out=out) as stream:
        approved = stream.approve(step)
    steps = ", ".join(map(str, approved))
    click.echo(
        f"published: step {steps}" if approved else "nothing was held", err=loaded.output.sink == "stdout"
    )
