"""``dpstream approve``: publish steps that were held."""

from __future__ import annotations

import re

import click

from dpstream.cli.shared import by_option, config_argument, opened
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError


def _steps(ctx: click.Context, param: click.Parameter, value: str | None) -> list[range] | None:
    """``3``, ``3-7``, ``3,5-7`` as ranges."""
    if value is None:
        return None
    parts = [re.fullmatch(r"\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?\s*", part) for part in value.split(",")]
    ranges = [range(int(one[1]), int(one[2] or one[1]) + 1) for one in parts if one is not None]
    if None in parts or any(not part or part.start < 1 for part in ranges):
        raise click.BadParameter(f"{value!r} is no step and no range such as 3-7", ctx, param)
    return ranges


@click.command("approve", short_help="Publish steps that are held.")
@config_argument
@click.option(
    "--step", "chosen", callback=_steps, metavar="STEPS", help="The held step, or several: 3, 3-7 or 3,5-7."
)
@click.option("--all", "everything", is_flag=True, help="Every held step, in order.")
@by_option
@click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")
@click.option("--out", type=FilePath("folder"), help="Another place for the releases.")
def command(
    config: str,
    chosen: list[range] | None,
    everything: bool,
    by: str,
    state: str | None,
    out: str | None,
) -> None:
    """Publish committed steps that [output] approve = true has held. Costs no budget; may be repeated.

    A step that is never approved has cost its budget all the same.

    A range takes what is held in it. Who approved what stays in the state (dpstream status --json).

    \b
    Examples:
      dpstream approve dpstream.toml --all
      dpstream approve dpstream.toml --step 3-7 --by "Anna Meier"
    """
    from dpstream.project import Config
    from dpstream.project.base import require_border

    if everything == (chosen is not None):
        raise ConfigError("say which steps", where="approve", allowed="either --step or --all")
    loaded = Config.load(config)
    require_border(loaded, state)
    with opened(loaded, state=state, out=out) as stream:
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
    told = ", ".join(map(str, approved))
    click.echo(
        f"published: step {told}" if approved else "nothing was held", err=loaded.output.sink == "stdout"
    )
