"""What an example stream is, and the draws that the examples share.

Everything here is invented and public: no guarantee rests on these draws, so an ordinary seeded NumPy
generator is the right tool, and equal seeds give equal files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.paths import check_target

if TYPE_CHECKING:
    import pyarrow as pa

#: Column name -> values of one step; object arrays hold None where a value is missing.
StepColumns = dict[str, NDArray[Any]]
#: ``(rows per step, generator)`` -> frames without end; frame ``t`` does not depend on how many follow.
StepDraws = Callable[[int, np.random.Generator], Iterator[StepColumns]]


#: How a folder is made, as its ``simulation.json`` has it.
Record = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """An invented stream; ``examples/NAME.toml`` and ``.md`` are its configuration and its README.

    Attributes:
        write: writes the data files of a record into a folder.
        end: number of steps -> the public ``end`` of the stream, as a TOML value.
        rows_per_step: about how many rows arrive at a step, or how many people a panel has, where nobody says; None
            where that follows from other options.
        most_steps: more would lie in the future, or mean nothing; None without a limit.
        words: what stands in the texts beside ``end`` and the record, from the record.
    """

    write: Callable[[Record, Path], None]
    end: Callable[[int], str] = str
    rows_per_step: int | None = None
    most_steps: int | None = None
    words: Callable[[Record], dict[str, Any]] = lambda record: {}


def in_parts(
    steps: StepDraws, steps_per_file: int, nullable: Mapping[str, str] | None = None
) -> Callable[[Record, Path], None]:
    """Writes ``data/part-0000.csv`` and so on.

    Args:
        nullable: Arrow types of the columns that may hold nulls (a file in which all are null has the type, too).
    """
    types_of = nullable or {}

    def write(record: Record, folder: Path) -> None:
        import pyarrow as pa

        frames = steps(record["rows_per_step"], np.random.default_rng(record["seed"]))
        for part, start in enumerate(range(0, record["steps"], steps_per_file)):
            parts = list(itertools.islice(frames, min(steps_per_file, record["steps"] - start)))
            columns = {name: np.concatenate([frame[name] for frame in parts]) for name in parts[0]}
            types = {name: pa.type_for_alias(alias) for name, alias in types_of.items()}
            table = pa.table({name: pa.array(v, types.get(name)) for name, v in columns.items()})
            write_arrow(table, folder / "data" / f"part-{part:04d}.{record['file_format']}")

    return write


def without_end(one_step: Callable[[int, int, np.random.Generator], StepColumns]) -> StepDraws:
    """Steps 0, 1, 2, ... of a stream in which each step is drawn by itself: ``one_step(rows, step, generator)``."""

    def steps(rows: int, generator: np.random.Generator) -> Iterator[StepColumns]:
        for step in itertools.count():
            yield one_step(rows, step, generator)

    return steps


def last_day(first: np.datetime64) -> Callable[[int], str]:
    """Gives the Sunday of the last of so many weeks from ``first`` on, as a TOML value."""
    return lambda weeks: f'"{first + np.timedelta64(7 * weeks - 1, "D")}"'


def write_arrow(table: pa.Table, path: Path) -> None:
    """A table as a Parquet or CSV file, by the ending of its name."""
    check_target(path)
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
    else:
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(quoting_style="needed"))


def choose(generator: np.random.Generator, weights: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """``size`` positions drawn with probabilities proportional to one vector of weights."""
    return choose_rows(generator, np.broadcast_to(weights, (size, len(weights))))


def choose_rows(generator: np.random.Generator, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """One position per row of a matrix of weights (rows, choices)."""
    cumulative = np.cumsum(weights, axis=1)
    threshold = generator.random(len(weights)) * cumulative[:, -1]
    positions: NDArray[np.int64] = (cumulative <= threshold[:, None]).sum(axis=1)
    return positions


def with_odd_values(
    generator: np.random.Generator,
    values: NDArray[Any],
    *,
    missing: float = 0.0,
    unknown: float = 0.0,
    codes: tuple[Any, ...] = (),
) -> NDArray[Any]:
    """Replace shares of a column by None and by codes that no domain lists."""
    odd = values.astype(object)
    draw = generator.random(len(odd))
    odd[draw < missing] = None
    stray = (draw >= missing) & (draw < missing + unknown)
    if codes:
        odd[stray] = [codes[i] for i in generator.integers(len(codes), size=int(stray.sum()))]
    return odd
