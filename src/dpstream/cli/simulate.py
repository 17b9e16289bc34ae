"""``dpstream simulate``: an invented stream that is ready to run."""

from __future__ import annotations

import click

from dpstream.cli.types import FilePath, Whole

__all__ = ["command"]


@click.command("simulate", short_help="Write an invented example stream, ready to run.")
@click.argument("name", metavar="NAME")
@click.option("--steps", required=True, type=Whole(0), help="How many steps.")
@click.option(
    "--out",
    required=True,
    type=FilePath("folder"),
    help="A folder that is empty, new, or the same simulation.",
)
@click.option("--seed", default=0, show_default=True, type=Whole(0), help="Equal seeds give equal files.")
@click.option(
    "--rows-per-step", type=Whole(0), help="About how many rows arrive at a step; of a panel, people."
)
@click.option(
    "--format",
    "file_format",
    default="csv",
    show_default=True,
    help="Format of the data files: csv or parquet.",
)
def command(name: str, steps: int, out: str, seed: int, rows_per_step: int | None, file_format: str) -> None:
    """Write an invented example stream: data, a configuration that runs as it stands, a README.

    NAME is evictions (weekly, with deletions), census (step numbers), points (rides in a city, weekly) or panel
    (households in and out of poverty, one column a month, up to 12). More steps into the same folder continue the
    same stream.

    \b
    Example:
      dpstream simulate evictions --steps 52 --out demo
    """
    from dpstream.tools.simulate import simulate

    config = simulate(name, steps, out, seed=seed, rows_per_step=rows_per_step, file_format=file_format)
    click.echo(f"wrote {config}")
    click.echo(f"next: dpstream run {config}")
