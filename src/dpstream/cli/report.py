"""``dpstream report``: one self-contained page about a run."""

from __future__ import annotations

import click

from dpstream.cli.types import FilePath, Whole


@click.command("report", short_help="Write one page about a run.")
@click.argument("run", default="dpstream.toml", type=FilePath("any"))
@click.option("--out", default="report.html", show_default=True, type=FilePath("new"), help="The page.")
@click.option(
    "--pair",
    "pairs",
    type=(str, str),
    multiple=True,
    metavar="COLUMN COLUMN",
    help="Two columns with a heat map; repeatable.",
)
@click.option(
    "--most-steps",
    type=Whole(2),
    default=200,
    show_default=True,
    help="Most steps to show, evenly spaced.",
)
@click.option("--force", is_flag=True, help="Replace any file.")
def command(run: str, out: str, pairs: tuple[tuple[str, str], ...], most_steps: int, force: bool) -> None:
    """Write one self-contained page about a run, for a browser without a network.

    RUN is a configuration or a folder of releases. Only releases and public declarations are read: the page may be
    published. dpstream evaluate compares with the private table.

    \b
    Example:
      dpstream report releases/ --out report.html
    """
    from dpstream.tools.report import write_report

    page = write_report(run, out, pairs=pairs, most_steps=most_steps, force=force)
    size = max(1, round(page.stat().st_size / 1000))
    click.echo(f"wrote {page} ({size} kB)")
