"""``dpstream simulate``: an invented stream that is ready to run."""

from __future__ import annotations

import click

from dpstream.cli.types import FilePath, Whole


class _WithExample(click.Command):
    """Says by an example what is missing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            usage = "Such as: dpstream simulate evictions --steps 12 --out demo"
            raise click.MissingParameter(
                usage, error.ctx, error.param, error.param_hint, error.param_type
            ) from None


@click.command("simulate", cls=_WithExample, short_help="Write an invented stream, ready to run.")
@click.argument("name", metavar="NAME")
@click.option("--steps", required=True, type=Whole(0), help="How many steps.")
@click.option(
    "--out",
    required=True,
    type=FilePath("folder"),
    help="A new folder, or one to continue.",
)
@click.option("--seed", default=0, show_default=True, type=Whole(0), help="Equal seeds give equal files.")
@click.option("--rows-per-step", type=Whole(0), help="Rows a step; of a panel, people.")
@click.option(
    "--format",
    "file_format",
    default="csv",
    show_default=True,
    help="csv or parquet.",
)
@click.option("--records", type=Whole(0), help="stock: records present (500).")
@click.option("--mean-stay", type=float, help="stock: mean stay in steps (12).")
@click.option("--columns", type=Whole(0), help="stock: columns, 2 to 16 (10).")
def command(
    name: str,
    steps: int,
    out: str,
    seed: int,
    rows_per_step: int | None,
    file_format: str,
    **register: float | None,
) -> None:
    """Write an invented example stream: data, a configuration that runs, a README.

    NAME is evictions (weekly, with deletions), census (interviews by step numbers), points (rides, weekly), panel
    (households, one column a month, up to 12) or stock (a register by key, in three shapes). More steps into a
    folder continue its stream.

    \b
    Examples:
      dpstream simulate evictions --steps 52 --out demo
      dpstream simulate stock --steps 52 --records 5000 --mean-stay 3 --out register
    """
    from dpstream.tools.simulate import Stock, simulate

    given = {name: value for name, value in register.items() if value is not None}
    stock = Stock(**given) if given else None  # type: ignore[arg-type]
    config = simulate(
        name, steps, out, seed=seed, rows_per_step=rows_per_step, file_format=file_format, stock=stock
    )
    click.echo(f"wrote {config}")
    click.echo(f"next: dpstream run {config}")
