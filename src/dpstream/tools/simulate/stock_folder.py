"""The invented register as a folder: the same records as a change feed, as snapshots and as stays."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.paths import check_target
from dpstream.tools.simulate.stock import COLUMNS, DELETE, INSERT, Stock, StockStep

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "stock"
#: Steps in one file of the change feed.
_STEPS_PER_FILE = 13
_WORDS = np.array(["insert", "update", "delete"])
#: What stands in the files where the domain says ``other``; where it says ``missing`` there is nothing.
_MISPRINTS = ("??", "Fodo", "99")


def record(stock: Stock, steps: int, seed: int, file_format: str) -> dict[str, Any]:
    """How the folder was made; without ``steps`` the same for a longer simulation."""
    return {
        "format": 1,
        "name": NAME,
        "seed": seed,
        **asdict(stock),
        "file_format": file_format,
        "steps": steps,
    }


def write_stock(stock: Stock, steps: int, seed: int, folder: Path, file_format: str) -> None:
    """Write the three shapes; more steps leave what was written of the earlier ones, but for the ends of stays."""
    columns = list(COLUMNS)[: stock.columns]
    for shape in ("changes", "snapshots", "stays"):
        (folder / shape).mkdir(exist_ok=True)
    values: dict[int, tuple[int, ...]] = {}
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    present: set[int] = set()
    feed: list[pa.Table] = []
    for step, made in enumerate(islice(stock.steps(seed), steps), start=1):
        for key, kind, codes in zip(
            made.keys.tolist(), made.kinds.tolist(), made.codes.tolist(), strict=True
        ):
            values[key] = tuple(codes)
            if kind == INSERT:
                present.add(key)
                start.setdefault(key, step)
                end.pop(key, None)
            elif kind == DELETE:
                present.discard(key)
                end[key] = step
        feed.append(_feed(made, step, columns))
        if len(feed) == _STEPS_PER_FILE or step == steps:
            part = (step - 1) // _STEPS_PER_FILE
            _write(feed, folder / "changes" / f"part-{part:04d}.{file_format}")
            feed = []
        there = sorted(present)
        snapshot = _table({"key": _names(np.array(there, np.int64))}, _codes(values, there, columns), columns)
        _write([snapshot], folder / "snapshots" / f"step-{step:05d}.{file_format}")
    every = sorted(start)
    import pyarrow as pa

    ends = {"start": pa.array([start[key] for key in every], pa.int64())}
    ends["end"] = pa.array([end.get(key) for key in every], pa.int64())
    stays = _table(
        {"key": _names(np.array(every, np.int64)), **ends}, _codes(values, every, columns), columns
    )
    _write([stays], folder / "stays" / f"stays.{file_format}")


def config_text(stock: Stock, steps: int, file_format: str) -> str:
    """A draft of the configuration, for the change feed."""
    schema = "\n".join(
        f'[schema.columns.{name}]\ntype = "categorical"\nvalues = ['
        + ", ".join(f'"{value}"' for value in values if value not in ("other", "missing"))
        + "]\n"
        + "".join(f'{extra} = "{extra}"\n' for extra in ("other", "missing") if extra in values)
        for name, values in list(COLUMNS.items())[: stock.columns]
    )
    return f"""\
# An invented register of businesses. Everything here is invented, so all of it is public.
format = 1

[stream]
name = "{NAME}"
unit = "record"             # a record's whole stay: insert, updates, delete

[source]
path = "changes/*.{file_format}"
key_column = "key"          # which record a row speaks of; hashed, and never released
op_column = "op"            # insert, update or delete
time_column = "step"
start = 1
late = "error"
end = {steps}

[expect]                    # public guesses, published in the manifest; never computed from private records
size = {_coarse(stock.records)}
records_per_step = {_coarse(stock.records / stock.mean_stay)}

{schema}
[mechanism]
name = "census"
workload = "all-2-way"

[budget]
epsilon = "1"
horizon = "none"

[output]
dir = "releases"
format = "{file_format}"
keep = "all"
"""


def end_line(steps: int) -> str:
    """The one line of the configuration that changes with the number of steps."""
    return f"\nend = {steps}\n"


def readme_text(stock: Stock, steps: int, seed: int, file_format: str) -> str:
    """What is in the folder."""
    odd = ""
    if stock.reload_at is not None:
        odd += (
            f"- **A reload.** At the end of step {stock.reload_at} each present record is deleted and inserted again\n"
            "  under its key, as some exports do. It is the same record: nothing new may be spent on it.\n"
        )
    if stock.burst_at is not None:
        odd += f"- **A burst.** Step {stock.burst_at} brings seven times the usual number of new records.\n"
    return f"""\
# {NAME}

An invented register of businesses that come, change and leave. No row describes a real one.

Made by `dpstream simulate` with seed {seed}: {steps} steps, about {stock.records} records present, mean stay
{stock.mean_stay:g} steps. Step 1 loads the first table.

The same records in three shapes; an owner has one of them:

| folder | one row | columns beside the values |
|---|---|---|
| `changes` | a change: a feed by key; a delete has no values | `step`, `op` (`insert`, `update`, `delete`), `key` |
| `snapshots` | a record; each file is the whole table at the end of a step | `key` |
| `stays` | a record, with its values as last known: updates are hidden | `key`, `start`, `end` (empty: still there) |

- **Coming and going within a step.** Such records are in `changes` and in `stays`, and in no snapshot.
- **Departures.** How soon a record leaves depends on its region and its sector{", and on its age" * stock.heavy_tails}.
- **Updates.** {100 * stock.updates:g} % of the records change in a step: one column, and those that depend on it.
- **Drift and seasons.** What is usual moves to and fro in 120 steps, arrivals in 52.
{odd}- **Odd values.** Misprinted sectors; numbers of staff that are missing. The configuration declares a bin for each.

Run it:

```
dpstream check dpstream.toml
dpstream plan dpstream.toml
dpstream run dpstream.toml
```

`dpstream.toml` reads the changes. For the snapshots its `[source]` is

```toml
path = "snapshots/*.{file_format}"
key_column = "key"
shape = "snapshots"
every = "files"
```

and for the stays

```toml
path = "stays/stays.{file_format}"
key_column = "key"
shape = "stays"
time_column = "start"
delete_time_column = "end"
start = 1
late = "error"
end = {steps}
```

For more steps simulate into this folder again with a larger `--steps` and the same options.
"""


def _coarse(number: float) -> int:
    """The nearest of 1, 3, 10, 30, 100, ..."""
    guesses = [scale * int(10**power) for power in range(9) for scale in (1, 3)]
    return min(guesses, key=lambda guess: abs(math.log(guess / number)))


def _feed(made: StockStep, step: int, columns: list[str]) -> pa.Table:
    import pyarrow as pa

    front = {
        "step": pa.array(np.full(len(made.keys), step, np.int64)),
        "op": pa.array(_WORDS[made.kinds]),
        "key": _names(made.keys),
    }
    return _table(front, made.codes, columns, gone=made.kinds == DELETE)


def _table(
    front: dict[str, Any],
    codes: NDArray[np.int32],
    columns: list[str],
    gone: NDArray[np.bool_] | None = None,
) -> pa.Table:
    import pyarrow as pa

    cells = dict(front)
    for i, name in enumerate(columns):
        values = np.array([None if value == "missing" else value for value in COLUMNS[name]], dtype=object)[
            codes[:, i]
        ]
        stray = np.flatnonzero(values == "other")
        values[stray] = np.array(_MISPRINTS, dtype=object)[codes[stray].sum(axis=1) % len(_MISPRINTS)]
        if gone is not None:
            values[gone] = None
        cells[name] = pa.array(values, pa.string())
    return pa.table(cells)


def _codes(values: dict[int, tuple[int, ...]], keys: list[int], columns: list[str]) -> NDArray[np.int32]:
    return np.array([values[key] for key in keys], np.int32).reshape(len(keys), len(columns))


def _names(keys: NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array([f"B{key:07d}" for key in keys.tolist()], pa.string())


def _write(tables: list[pa.Table], path: Path) -> None:
    import pyarrow as pa

    check_target(path)
    table = pa.concat_tables(tables)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
    else:
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(quoting_style="needed"))
