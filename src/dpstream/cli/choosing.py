"""The part of ``dpstream plan`` that compares mechanisms on invented streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.progress import counted_progress
from dpstream.cli.shared import console, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstream.project import Config
    from dpstream.tools.choosing import ComparedMechanisms

#: What ``compare_mechanisms`` takes where nothing is said.
DEFAULT_SECONDS = 60


def compare(config: Config, options: Mapping[str, Any]) -> ComparedMechanisms | str:
    """The comparison with the options that were given, and with its progress on the standard error; or a sentence that
    the time did not do for one, which is no reason to tell no plan."""
    from dpstream.tools.choosing import ComparisonTooLongError, compare_mechanisms

    seconds = options.get("seconds", DEFAULT_SECONDS)
    click.echo(f"inventing streams and running the mechanisms on them: up to {seconds} s of CPU", err=True)
    with counted_progress("compared", "runs", quiet=False) as tell:
        try:
            return compare_mechanisms(config, **options, progress=tell)
        except ComparisonTooLongError as error:
            return f"The mechanisms were not compared: {error.what}. It would take {error.allowed}."


def print_compared(found: ComparedMechanisms) -> None:
    """The table, and what it would take."""
    out = console()
    out.print(f"Which mechanism fits: {found.words}")
    distances = sorted({name for one in found.errors for name in one.distances})
    headings = [
        "columns",
        "mechanism",
        "AvgWE",
        "total variation",
        "number of records",
        *distances,
        f"spread of {found.measure} over runs",
    ]
    rows = [
        [
            one.columns,
            one.mechanism,
            f"{one.avg_we:.3g}",
            f"{one.total_variation:.3f}",
            f"{100 * one.total:.3g} %",
            *(f"{one.distances[name]:.3g}" if name in one.distances else "-" for name in distances),
            "-" if one.spread is None else f"{one.spread:.2g}",
        ]
        for one in found.errors
    ]
    print_table(headings, rows, right=range(2, len(headings)))
    out.print(
        "AvgWE: the mean error of a cell of the widest marginals, as a share of the table; total variation: half the "
        "sum of the differences of their shares; number of records: its error as a share of it."
    )
    out.print(found.recommendation.words)
    for needs in dict.fromkeys(found.needs.values()):
        names = [name for name, own in found.needs.items() if own == needs]
        out.print(f"For {' or '.join(names)} the file would need {needs}.")
    for name, why in found.left_out.items():
        out.print(f"{name} was left out: {why}.")
    out.print()
