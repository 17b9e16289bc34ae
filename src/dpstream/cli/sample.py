"""``dpstream sample``: more synthetic rows from a released model; free post-processing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import of_stream, require_free
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.project import Config


@click.command("sample", short_help="Draw more rows of a released step.")
@of_stream("--state")
@click.option("--step", required=True, type=Whole(), help="The released step.")
@click.option("--rows", type=Whole(0), help="Rows (as many as released).")
@click.option("--out", required=True, type=FilePath("new"), help="A name in .parquet or .csv.")
@click.option("--seed", type=Whole(0), help="Equal seeds give equal rows.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(
    config: Config,
    step: int,
    rows: int | None,
    out: str,
    seed: int | None,
    force: bool,
) -> None:
    """Draw synthetic rows from a released step's model. Costs no budget.

    Without --rows and --seed, the rows are the released table.

    \b
    Example:
      dpstream sample dpstream.toml --step 12 --rows 10000 --seed 7 --out sample.parquet
    """
    path = Path(out)
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"the name {path.name!r} tells no format", where="--out", allowed=".parquet, .csv")
    require_free(path, force=force)
    with config.open_stream(publish=False) as stream:
        release = stream.release(step)
        predictable = bool(release.manifest["made_with_test_seed"])
        if predictable:
            click.echo("warning: made with a test seed: NO GUARANTEE", err=True)
        _write(path, release.sample(rows, seed), predictable)
    click.echo(f"wrote {path}")


def _write(path: Path, table: Any, predictable: bool) -> None:
    """``predictable`` noise is told with the rows: in Parquet's metadata, or in a file beside a csv file."""
    from dpstream.core import durable
    from dpstream.io.sinks.table_files import to_bytes

    beside = path.with_name(f"{path.name}.made_with_test_seed")
    if predictable and path.suffix == ".csv":
        durable.replace_file(beside, b"NO GUARANTEE: made with a test seed\n", mode=0o644)
    elif predictable:
        known = table.schema.metadata or {}
        table = table.replace_schema_metadata({**known, "made_with_test_seed": "true"})
    data = to_bytes(table, "csv" if path.suffix == ".csv" else "parquet")
    try:
        durable.replace_file(path, data, mode=0o644)
    except OSError:
        durable.unlink(path.with_name(f".{path.name}.tmp"))  # a part of it, where the disk is full
        raise
    if not predictable:
        durable.unlink(beside)
