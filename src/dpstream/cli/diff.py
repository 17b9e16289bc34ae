"""``dpstream diff``: two snapshots of a table to a file of changes."""

from __future__ import annotations

import click

from dpstream.cli.types import FilePath


@click.command("diff", short_help="Make a file of changes out of two snapshots of a table.")
@click.argument("old", type=FilePath("file"))
@click.argument("new", type=FilePath("file"))
@click.option(
    "--out", required=True, type=FilePath("new"), help="The file of changes (private), .csv or .parquet."
)
@click.option(
    "--key",
    "key",
    multiple=True,
    metavar="COLUMN",
    help="A column that names a row (repeat it for several). Changed rows are then written as update-before "
    "and update-after.",
)
@click.option(
    "--op-column", default="op", show_default=True, metavar="NAME", help="Name of the column of operations."
)
@click.option(
    "--step-column",
    nargs=2,
    default=None,
    metavar="NAME VALUE",
    help="Also write this column, with one value: the time or step number of all changes.",
)
def command(
    old: str, new: str, out: str, key: tuple[str, ...], op_column: str, step_column: tuple[str, str] | None
) -> None:
    """Write the changes that make the table NEW out of the table OLD: deleted and inserted rows.

    Both are csv (also .gz) or parquet files with the same columns. Without --key they are compared as
    bags of rows. The result has a column of operations, is as private as the snapshots (mode 0600), and can
    be the input of a stream with op_column = "op". Nothing is printed about how many rows changed.

    \b
    Example:
      dpstream diff march.csv april.csv --out changes/2026-04.csv --key id --step-column month 2026-04-01
    """
    from pathlib import Path

    from dpstream.io.sources.snapshot_diff import Diff, write_diff

    target = Path(out)
    write_diff(Path(old), Path(new), target, Diff(tuple(dict.fromkeys(key)), op_column, step_column))
    click.echo(f"wrote {target}")
