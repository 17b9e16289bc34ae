"""``dpstream datasets``: data sets of the papers, from the files that their keepers give out."""

from __future__ import annotations

from pathlib import Path

import click

from dpstream.cli.shared import json_option, print_json
from dpstream.cli.types import FilePath

__all__ = ["command"]


@click.command("datasets", short_help="Build a paper's data set from its public source file.")
@click.argument("name", metavar="NAME")
@click.argument("file", type=FilePath("file"))
@click.option(
    "--out", default="panel.csv", show_default=True, type=FilePath("new"), help="The CSV file to write."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def command(name: str, file: str, out: str, force: bool, as_json: bool) -> None:
    """Build a data set from FILE, which has to be there already.

    NAME is sipp: the household poverty panel of Bun et al. (2024), from the Census Bureau's SIPP 2021 person file
    (pu2021.csv, or the zip that holds it; some gigabytes, read in blocks). One line a household, the series of its
    person with the lowest number: 1 in months with an income below the poverty threshold. Households with a
    missing month are left out.

    \b
    Example:
      dpstream datasets sipp pu2021_csv.zip --out panel.csv
    """
    from dpstream.core.errors import ConfigError
    from dpstream.project.reader import did_you_mean

    if name != "sipp":
        raise ConfigError(
            f"unknown data set {name!r}{did_you_mean(name, ['sipp'])}", where="NAME", allowed="sipp"
        )
    place = Path(out)
    if not place.parent.is_dir():
        raise ConfigError(
            "the folder does not exist", where=str(place.parent), allowed="a folder that exists"
        )
    if place.is_dir() or (place.exists() and not force):
        raise ConfigError("there is a file already", where=out, allowed="another name, or --force")
    from dpstream.lab.experiments.sipp import read_sipp, write_sipp_panel

    panel = read_sipp(file)
    write_sipp_panel(panel, place)
    facts = {
        "person_months": panel.rows,
        "households": panel.seen,
        "left_out_missing_month": panel.incomplete,
        "members_differ": panel.differing,
        "kept": len(panel.households),
        "rate": round(float(panel.poor.mean()), 6),
    }
    if as_json:
        print_json({"out": out, **facts})
        return
    click.echo(
        f"{panel.rows:,} person-months of {panel.seen:,} households; {panel.incomplete:,} left out for a missing "
        f"month; in {panel.differing:,} the members' series differ (the lowest person number is kept)"
    )
    click.echo(f"wrote {out}: {len(panel.households):,} households x 12 months (the paper: 23,374)")
    click.echo(f"next: dpstream reproduce bun --panel {out}")
