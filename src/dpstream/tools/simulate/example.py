"""What an example stream is, and the draws that the examples share.

Everything here is invented and public: no guarantee rests on these draws, so an ordinary seeded NumPy
generator is the right tool, and equal seeds give equal files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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


_POOLED = """\
[mechanism]
name = "pooled"
workload = "all-2-way"
"""


@dataclass(frozen=True)
class Example:
    """An invented stream with everything that is needed to run dpstream on it."""

    name: str
    #: One sentence: what a row is.
    title: str
    #: Paragraphs for the folder's README: drift, deletions, odd values.
    notes: str
    rows_per_step: int
    steps_per_file: int
    #: The ``[source]`` table without ``path`` and ``end``, as TOML lines.
    source: str
    #: Number of steps -> the public ``end`` of the stream, as a TOML value.
    end: Callable[[int], str]
    #: More steps would lie in the future, or mean nothing; None where there is no limit.
    most_steps: int | None
    #: The ``[schema.columns.*]`` tables, as TOML lines.
    schema: str
    #: Arrow types of the columns that may hold nulls (a file in which all are null has the type too).
    nullable: dict[str, str]
    steps: StepDraws
    #: Public files beside the configuration, by name.
    files: dict[str, str] = field(default_factory=dict)
    #: Lines of ``[stream]`` and of ``[output]``, and the ``[mechanism]`` table.
    stream: str = 'unit = "event"\n'
    output: str = ""
    #: Whether the file has ``[expect]``: the numbers that the example is made with.
    expects: bool = False
    mechanism: str = _POOLED


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
