"""The invented panel of households: one row a household, one column a month."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.simulate.example import Example, Record, write_arrow

#: Households and months: those of the panel of Bun et al. (2024).
PEOPLE, PERIODS = 23_374, 12
#: Shares of households that are never poor, and always; the others go in and out.
NEVER, ALWAYS = 0.76, 0.06
#: Of these P(poor | poor in the month before), and P(poor | not poor in the month before).
STAY, ENTER = 0.86, 0.07


def poverty_panel(people: int = PEOPLE, periods: int = PERIODS, *, seed: int = 0) -> NDArray[np.uint8]:
    """1 where a household is poor in a month, shape (people, periods); equal seeds give equal panels.

    A longer panel of the same seed begins with the shorter one.
    """
    generator = np.random.default_rng(seed)
    kind = generator.random(people)
    always = kind >= 1.0 - ALWAYS
    moving = (kind >= NEVER) & ~always
    poor = generator.random(people) < ENTER / (1.0 - STAY + ENTER)
    series = np.zeros((people, periods), np.uint8)
    for month in range(periods):
        if month:
            poor = generator.random(people) < np.where(poor, STAY, ENTER)
        series[:, month] = always | (moving & poor)
    return series


def _write(record: Record, folder: Path) -> None:
    """All months so far as one file; equal seeds give equal months, however many there are."""
    import pyarrow as pa

    people, months = record["rows_per_step"], record["steps"]
    poor = poverty_panel(people, months, seed=record["seed"])
    columns = {"household": pa.array(np.char.mod("h%06d", np.arange(1, people + 1)))}
    columns |= {f"poor_{month}": pa.array(poor[:, month - 1]) for month in range(1, months + 1)}
    write_arrow(pa.table(columns), folder / "data" / f"panel.{record['file_format']}")


#: A panel pays for a fixed number of periods, the horizon in its configuration.
PANEL = Example(_write, rows_per_step=PEOPLE, most_steps=PERIODS)
