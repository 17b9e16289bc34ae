"""``dpstream datasets``: data sets of the papers, from the files that their keepers give out."""

from __future__ import annotations

from pathlib import Path

import click

from dpstream.cli.shared import json_option, print_json, require_free
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError


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
    from dpstream.lab.papers import DATA_SETS
    from dpstream.project.reader import did_you_mean

    if name not in DATA_SETS:
        raise ConfigError(
            f"unknown data set {name!r}{did_you_mean(name, DATA_SETS)}",
            where="NAME",
            allowed=", ".join(DATA_SETS),
        )
    place = Path(out)
    require_free(place, force=force)
    built = DATA_SETS[name](file, place)
    if as_json:
        print_json({"out": out, **built.facts})
    else:
        click.echo("\n".join(built.sentences))
