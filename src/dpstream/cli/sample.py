"""``dpstream sample``: more synthetic rows from a released model, also under a condition; free post-processing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dpstream.cli.shared import force_option, print_facts, require_free, state_option
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError


@click.command("sample", short_help="Draw more rows of a released step.")
@click.argument("place", default="dpstream.toml", type=FilePath("any"))
@state_option
@click.option("--step", type=Whole(), help="The released step (the newest).")
@click.option("--rows", type=Whole(0), help="Rows (as many as released).")
@click.option("--where", metavar="CONDITION", help="Only rows that satisfy it.")
@click.option("--out", required=True, type=FilePath("new"), help="A name in .parquet or .csv.")
@click.option("--seed", type=Whole(0), help="Equal seeds give equal rows.")
@force_option
def command(
    place: str,
    state: str | None,
    step: int | None,
    rows: int | None,
    where: str | None,
    out: str,
    seed: int | None,
    force: bool,
) -> None:
    """Draw synthetic rows from a released step's model. Costs no budget.

    PLACE: releases, or the owner's dpstream.toml (without options, the released table).

    \b
    Examples:
      dpstream sample --step 12 --rows 10000 --out more.parquet
      dpstream sample releases --where "zip = '94102' and rent >= 2000" --out part.csv
    """
    from dpstream.stream.release.sampling import measured_words

    path = Path(out)
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"the name {path.name!r} tells no format", where="--out", allowed=".parquet, .csv")
    require_free(path, force=force)
    with _released(place, step, state) as (release, manifest):
        predictable = bool(manifest["made_with_test_seed"])
        if predictable:
            click.echo("warning: made with a test seed: NO GUARANTEE", err=True)
        _write(path, release.sample(rows, seed=seed, where=where), predictable)
        click.echo(f"wrote {path}")
        if where is not None:
            share, measured = release.probability(where), measured_words(release.answer, where)
            facts = {"percent": 100 * share, "expected": share * manifest["rows"], "measured": measured}
            print_facts(
                "sample",
                {**facts, "question": where, "rows": manifest["rows"], "step": release.step},
                wrap=True,
            )


@contextlib.contextmanager
def _released(place: str, step: int | None, state: str | None) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A release with its manifest: the published one of a folder, or the owner's."""
    if Path(place).is_dir() or "://" in place:
        import dpstream

        if state is not None:
            raise ConfigError("a folder of releases has no state", where="--state", allowed="a dpstream.toml")
        published = dpstream.read(place, step)
        yield published, published.manifest()
        return
    from dpstream.project import Config

    with Config.load(place).at(state).open_stream(publish=False) as stream:
        release = stream.release(step)
        yield release, release.manifest


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
