"""The invented panel of households as a folder: one row a household, one column a month, a ready configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpstream.tools.simulate.example import write_arrow
from dpstream.tools.simulate.poverty_panel import PovertyPanel

NAME = "panel"
#: The horizon of the configuration; a panel pays for a fixed number of periods.
HORIZON = 12


def write_panel(people: int, months: int, seed: int, path: Path) -> None:
    """All months so far as one file; equal seeds give equal months, however many there are."""
    import pyarrow as pa

    poor = PovertyPanel(people=people, periods=months).draw(seed)
    names = np.char.mod("h%06d", np.arange(1, people + 1))
    columns = {"household": pa.array(names)}
    columns |= {f"poor_{month}": pa.array(poor[:, month - 1]) for month in range(1, months + 1)}
    write_arrow(pa.table(columns), path)


def config_text(file_format: str) -> str:
    """The configuration: every quarter of the year, for everything that a household reports."""
    return f"""\
# Invented households, in poverty or not in each month. Everything here is invented, so all of it is public.
format = 1

[stream]
name = "{NAME}"
unit = "individual"         # a household's whole history

[source]
path = "data/*.{file_format}"
user_column = "household"
period_columns = "{{column}}_{{period}}"  # one column a month: poor_1, poor_2, ...

[schema.columns.poor]
type = "boolean"

[mechanism]
name = "panel-window"       # or panel-cumulative (without window): months in poverty so far
window = 3

[budget]
rho = "0.005"
horizon = {HORIZON}

[output]
dir = "releases"
format = "{file_format}"
publish = "both"            # the whole table, and the rows of the new month
"""


def readme_text(people: int, months: int, seed: int) -> str:
    """What is in the folder."""
    return f"""\
# {NAME}

Invented households, in poverty (1) or not (0) in each month. No row describes a real household, and no rate is fitted
to a survey.

Made by `dpstream simulate` with seed {seed}: {people} households, {months} of {HORIZON} months. Three kinds of
household: 76 of 100 are never poor, 6 always, the others go in and out.

Run it:

```
dpstream check dpstream.toml
dpstream plan dpstream.toml
dpstream run dpstream.toml
```

Each release is a table of synthetic households with a column for each month so far, and the rows of the new month by
themselves. What was released of a household is never changed. The manifest answers the usual questions about the last
three months, with errors.

For later months of the same panel simulate into this folder again with a larger `--steps` (up to {HORIZON}), then run
again.
"""
