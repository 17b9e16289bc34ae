"""``dpstream report``: one self-contained page about a run."""

from __future__ import annotations

import click

from dpstream.cli.types import FilePath, Whole


@click.command("report", short_help="Write one page about a run: what it protects, costs and gives.")
@click.argument("run", default="dpstream.toml", type=FilePath("any"))
@click.option("--out", default="report.html", show_default=True, type=FilePath("new"), help="The page.")
@click.option(
    "--pair",
    "pairs",
    type=(str, str),
    multiple=True,
    metavar="COLUMN COLUMN",
    help="Two columns that get a heat map in any case; may be repeated.",
)
@click.option(
    "--most-steps",
    type=Whole(2),
    default=200,
    show_default=True,
    help="Steps to show at most, evenly spaced, first and last among them; of 200, 40 tables are read.",
)
@click.option("--force", is_flag=True, help="Replace a file that is no report.")
def command(run: str, out: str, pairs: tuple[tuple[str, str], ...], most_steps: int, force: bool) -> None:
    """Write one self-contained page about a run, for a browser without a network.

    RUN is a configuration file, or a folder of releases. The page says first what one may conclude and how wrong that
    may be, then shows the table over time, its columns and pairs of columns, what changed and where it is weak, and
    what is protected; of a stream of points maps, and the cells that they were drawn from. It is made of releases and
    public declarations only, and may be published with them.

    How far the releases are from the private table says dpstream evaluate.

    \b
    Example:
      dpstream report releases/ --out report.html
    """
    from dpstream.tools.report import write_report

    page = write_report(
        run,
        out,
        pairs=pairs,
        most_steps=most_steps,
        force=force,
        tell=lambda text: click.echo(f"note: {text}", err=True),
    )
    size = max(1, round(page.stat().st_size / 1000))
    click.echo(f"wrote {page} ({size} kB)")
