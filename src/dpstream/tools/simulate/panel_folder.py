"""The invented panel of households: one row a household, one column a month."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.tools.simulate.example import Example, Record, write_arrow


@dataclass(frozen=True)
class PovertyPanel:
    """Options of the invented panel; the defaults have the size of the panel of Bun et al. (2024).

    Attributes:
        people: households.
        periods: months.
        never, always: shares of households that are never poor, and always; the others go in and out.
        stay: P(poor | poor in the month before) of those.
        enter: P(poor | not poor in the month before) of those.
    """

    people: int = 23_374
    periods: int = 12
    never: float = 0.76
    always: float = 0.06
    stay: float = 0.86
    enter: float = 0.07

    def __post_init__(self) -> None:
        for name, value in (("people", self.people), ("periods", self.periods)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} = {value!r}", where="panel", allowed="a whole number from 1")
        for name in ("never", "always", "stay", "enter"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} = {getattr(self, name)!r}", where="panel", allowed="0 to 1")
        if self.never + self.always > 1.0:
            raise ConfigError(
                f"never = {self.never} and always = {self.always}",
                where="panel",
                allowed="a sum of at most 1",
            )

    @property
    def stationary(self) -> float:
        """In-and-out households that are poor, in any month."""
        moving = 1.0 - self.stay + self.enter
        return self.enter / moving if moving > 0.0 else 0.0

    def draw(self, seed: int = 0) -> NDArray[np.uint8]:
        """1 where a household is poor in a month, shape (people, periods); equal seeds give equal panels.

        A longer panel of the same seed begins with the shorter one.
        """
        generator = np.random.default_rng(seed)
        kind = generator.random(self.people)
        always = kind >= 1.0 - self.always
        moving = (kind >= self.never) & ~always
        poor = generator.random(self.people) < self.stationary
        series = np.zeros((self.people, self.periods), np.uint8)
        for month in range(self.periods):
            if month:
                poor = generator.random(self.people) < np.where(poor, self.stay, self.enter)
            series[:, month] = always | (moving & poor)
        return series


def _write(record: Record, folder: Path) -> None:
    """All months so far as one file; equal seeds give equal months, however many there are."""
    import pyarrow as pa

    people, months = record["rows_per_step"], record["steps"]
    poor = PovertyPanel(people=people, periods=months).draw(record["seed"])
    columns = {"household": pa.array(np.char.mod("h%06d", np.arange(1, people + 1)))}
    columns |= {f"poor_{month}": pa.array(poor[:, month - 1]) for month in range(1, months + 1)}
    write_arrow(pa.table(columns), folder / "data" / f"panel.{record['file_format']}")


#: A panel pays for a fixed number of periods, the horizon in its configuration.
PANEL = Example(_write, rows_per_step=PovertyPanel().people, most_steps=12)
