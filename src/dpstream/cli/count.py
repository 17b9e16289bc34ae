"""``dpstream count``: private running counts, and nothing else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from dpstream.cli.types import FilePath, Whole

if TYPE_CHECKING:
    from dpstream.cli.counting import Cells, Tick
    from dpstream.core.counters import CalibratedCounter
    from dpstream.core.privacy import Budget

__all__ = ["command"]


@click.command("count", short_help="Private running counts of a column or of standard input.")
@click.argument("source", default="-", type=FilePath("file", dash=True))
@click.option("--epsilon", help="Pure budget for everything that is printed together, such as 0.5.")
@click.option("--rho", help="zCDP budget instead.")
@click.option(
    "--column", help="The column of a CSV with a header; without it (and a time) lines are numbers."
)
@click.option("--values", metavar="A,B,...", help="Public categories, each counted apart.")
@click.option("--other", metavar="NAME", help="The category of all other values.")
@click.option("--time-column", help="Count rows per period of this column's days.")
@click.option("--every", help='Length of a period: day, week, month, "14 days".')
@click.option("--start", metavar="DAY", help="Public first day.")
@click.option("--end", metavar="DAY", help="Public last day.")
@click.option("--horizon", type=Whole(), help="The most ticks there can be (lines).")
@click.option("--counter", default="best", show_default=True, help="best, or a counter by its name.")
@click.option(
    "--confidence",
    default=0.95,
    show_default=True,
    type=click.FloatRange(0.5, 0.999999),
    help="Of the intervals.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "ndjson"]),
    default="csv",
    show_default=True,
    help="Of the output.",
)
@click.option("--out", type=FilePath("new"), help="A new file; by default standard output.")
def command(
    source: str,
    epsilon: str | None,
    rho: str | None,
    column: str | None,
    values: str | None,
    other: str | None,
    time_column: str | None,
    every: str | None,
    start: str | None,
    end: str | None,
    horizon: int | None,
    counter: str,
    confidence: float,
    form: str,
    out: str | None,
) -> None:
    """Print a private running count after every tick, with its standard error and an interval.

    SOURCE is a CSV file, or - for standard input. A tick is a line (a whole number, or with --values one
    category), or with --time-column a period: then rows are counted, and empty periods are ticks too.

    EACH RUN SPENDS THE BUDGET ANEW: two runs on the same data cost twice the budget. Nothing is kept between
    runs; for counts that go on for months, with a ledger, use `dpstream run`. A file that exists is not replaced.

    How many ticks there are is public. With one category a line, so is that there was a record.

    \b
    Examples:
      dpstream count visits.csv --time-column day --every week --start 2026-01-05 --end 2026-06-28 --epsilon 1
      seq 5 | dpstream count - --epsilon 1 --horizon 100
    """
    from dpstream.cli.counting import Cells, calendar_of

    cells = Cells.parse(values, other)
    budget = _budget(epsilon, rho)
    if time_column is not None:
        _refuse("--horizon", horizon, "lines; --end says how many periods there are")
        grid, horizon = calendar_of(every, start, end)
        if bool(cells.values) != (column is not None):
            raise click.UsageError("--column and --values belong together where rows are counted per period")
        names = [time_column] if column is None else [time_column, column]

        def ticks(lines: IO[str]) -> Iterator[Tick]:
            from dpstream.cli.counting import by_calendar, read_column

            return by_calendar(read_column(lines, names), cells, grid, grid_steps)

        grid_steps = horizon
    else:
        for option, given in (("--every", every), ("--start", start), ("--end", end)):
            _refuse(option, given, "--time-column")

        def ticks(lines: IO[str]) -> Iterator[Tick]:
            return _line_by_line(lines, column, cells)

    calibrated = _counter(counter, budget, horizon, cells, lines=time_column is None)
    with contextlib.ExitStack() as files:
        lines = files.enter_context(_source(source))
        target = files.enter_context(_target(out))
        _write(calibrated, ticks(lines), cells, confidence, form, target)


def _refuse(option: str, given: object, only: str) -> None:
    if given is not None:
        raise click.UsageError(f"{option} is only for {only}")


def _budget(epsilon: str | None, rho: str | None) -> Budget:
    from dpstream.core.errors import BudgetError
    from dpstream.core.privacy import ZCDP, PureDP

    if epsilon is not None and rho is None:
        return PureDP.of(epsilon)
    if rho is not None and epsilon is None:
        return ZCDP.of(rho)
    raise BudgetError("give exactly one of epsilon and rho", where="count")


def _counter(
    name: str, budget: Budget, horizon: int | None, cells: Cells, *, lines: bool
) -> CalibratedCounter:
    """The counter; what it promises goes to standard error."""
    from dpstream.core.counters import best, counter_by_name
    from dpstream.core.privacy import Event

    # A line that holds a category is a record that everybody sees; private is which category.
    unit = Event("replace") if lines and cells.values else Event()
    if name == "best":
        choice = best(budget, unit, horizon=horizon, width=cells.width)
        recipe = choice.recipe
        click.echo(f"chosen by predicted error: {choice}", err=True)
    else:
        recipe = counter_by_name(name, horizon=horizon)
    calibrated = recipe.calibrate(budget, unit)
    click.echo(f"{calibrated.describe()}", err=True)
    click.echo(
        f"All counts of this run together: {budget}. Protected is {unit.describe()}. Another run spends it anew.",
        err=True,
    )
    return calibrated


@contextlib.contextmanager
def _source(source: str) -> Iterator[IO[str]]:
    import csv

    from dpstream.core.errors import DataError

    try:
        if source == "-":
            yield sys.stdin
        else:
            with Path(source).open(encoding="utf-8", newline="") as lines:
                yield lines
    except UnicodeDecodeError:
        raise DataError("the text is not UTF-8", where=source) from None
    except csv.Error:
        raise DataError("the CSV cannot be read", where=source, allowed="cells of ordinary length") from None
    except (FileNotFoundError, IsADirectoryError):
        raise DataError("there is no such file", where=source) from None


@contextlib.contextmanager
def _target(out: str | None) -> Iterator[IO[str]]:
    from dpstream.core.errors import ConfigError

    if out is None:
        yield sys.stdout
        return
    try:
        target = Path(out).open("x", encoding="utf-8", newline="")  # noqa: SIM115
    except FileExistsError:
        raise ConfigError(
            "there is a file already, from a run that has spent its budget",
            where=out,
            allowed="another name, if the budget is to be spent once more",
        ) from None
    except FileNotFoundError:
        raise ConfigError("the folder does not exist", where=out, allowed="a folder that exists") from None
    with target:
        yield target


def _line_by_line(lines: IO[str], column: str | None, cells: Cells) -> Iterator[Tick]:
    from dpstream.cli.counting import by_line, read_column

    if column is not None:
        return by_line(((line, value) for line, (value,) in read_column(lines, [column])), cells)
    return by_line(((number, text.strip()) for number, text in enumerate(lines, 1)), cells)


def _write(
    counter: CalibratedCounter,
    ticks: Iterator[Tick],
    cells: Cells,
    confidence: float,
    form: str,
    target: IO[str],
) -> None:
    """One line a tick and category, as soon as the tick is there."""
    import csv
    import json
    import math

    from dpstream.core.privacy import Randomness
    from dpstream.families.tabular.accuracy import cell_law

    state, randomness = counter.init(cells.width), Randomness.system()
    names = ["tick", "period", *(["value"] if cells.values else []), "count", "standard_error", "low", "high"]
    writer = csv.writer(target, lineterminator="\n")
    show: Callable[[dict[str, object]], object]
    if form == "csv":
        writer.writerow(names)
        show = lambda row: writer.writerow(row.values())  # noqa: E731
    else:
        show = lambda row: target.write(json.dumps(row) + "\n")  # noqa: E731
    for number, tick in enumerate(ticks, 1):
        estimates = counter.step(state, tick.counts, randomness)
        law = cell_law(counter, number, 1)
        error = math.sqrt(counter.variance(number))
        # Without a known law, Chebyshev's inequality.
        half = error / math.sqrt(1 - confidence) if law is None else law.half_width(confidence)
        for place, estimate in enumerate(estimates.tolist()):
            row: dict[str, object] = {"tick": number, "period": tick.name}
            if cells.values:
                row["value"] = cells.values[place]
            row |= {
                "count": estimate,
                "standard_error": round(error, 3),
                "low": math.ceil(estimate - half),
                "high": math.floor(estimate + half),
            }
            show(row)
        target.flush()
