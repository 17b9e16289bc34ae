"""Write an example stream as a folder: data files, a ready configuration, a README."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.core.paths import parse_json, read_text
from dpstream.tools.simulate import panel_folder, stock_folder
from dpstream.tools.simulate.census import CENSUS
from dpstream.tools.simulate.city_points import RIDES
from dpstream.tools.simulate.evictions import EVICTIONS, EVICTIONS_BY_ZIP
from dpstream.tools.simulate.example import Example, StepColumns, write_arrow
from dpstream.tools.simulate.panel_folder import PovertyPanel
from dpstream.tools.simulate.stock_folder import Stock

#: All example streams by name.
EXAMPLES: dict[str, Example] = {
    example.name: example for example in (EVICTIONS, EVICTIONS_BY_ZIP, CENSUS, RIDES)
}

_FORMATS = ("csv", "parquet")
_RECORD = "simulation.json"


def simulate(
    name: str,
    steps: int,
    out: str | Path,
    *,
    seed: int = 0,
    rows_per_step: int | None = None,
    file_format: str = "csv",
    stock: Stock | None = None,
) -> Path:
    """Write an invented example stream into a folder; returns the path of its ``dpstream.toml``.

    The folder gets ``data/part-0000.csv`` and so on, a configuration that runs as it stands, a README,
    and ``simulation.json`` (how it was made). Equal arguments give equal files. More steps continue the
    same stream: the earlier steps stay as they are, and so does a configuration that is already there, but
    for the stream's ``end``.

    Guarantee: none is needed; every value is invented.

    Args:
        name: ``"evictions"``, ``"evictions-by-zip"`` (districts follow from zips), ``"census"``, ``"points"``
            (rides in a city), ``"panel"`` (households in and out of
            poverty, up to 12 months), or ``"stock"`` (a register whose records come, change and leave).
        steps: number of steps, at least 1.
        out: a folder that is empty or new, or that holds the same simulation with as many steps or fewer.
        seed: of the general-purpose generator.
        rows_per_step: about how many inserts a step has, or how many households the panel has; by default the
            example's own number.
        file_format: ``"csv"`` or ``"parquet"``.
        stock: options of the register; only for ``"stock"``, which takes no ``rows_per_step``.

    Errors:
        ConfigError: an unknown name or format, a number that is too small, a folder with other content.

    Cost: about a millisecond and under 10 kB of memory per step of 100 rows.
    """
    example = None if name in (panel_folder.NAME, stock_folder.NAME) else _example(name)
    if stock is not None and name != stock_folder.NAME:
        raise ConfigError(
            "has no records that leave", where=name, allowed=f"these options of {stock_folder.NAME} only"
        )
    if rows_per_step is not None and name == stock_folder.NAME:
        raise ConfigError(
            "follows from the number of records and their mean stay",
            where="rows_per_step",
            allowed=f"for {stock_folder.NAME}: records and mean stay",
        )
    usual = PovertyPanel().people if example is None else example.rows_per_step
    rows = usual if rows_per_step is None else rows_per_step
    for label, number, least in (("steps", steps, 1), ("rows_per_step", rows, 1), ("seed", seed, 0)):
        if number < least:
            raise ConfigError(f"{number} is too small", where=label, allowed=f"{least} or more")
    most = panel_folder.HORIZON if name == panel_folder.NAME else example.most_steps if example else None
    if most is not None and steps > most:
        raise ConfigError(f"{steps} is too large", where="steps", allowed=f"at most {most}")
    if file_format not in _FORMATS:
        raise ConfigError(f"unknown format {file_format!r}", where="format", allowed=", ".join(_FORMATS))
    folder = Path(out)
    if name == stock_folder.NAME:
        return _write_stock(folder, stock or Stock(), steps, seed, file_format)
    record = {
        "format": 1,
        "name": name,
        "seed": seed,
        "rows_per_step": rows,
        "file_format": file_format,
        "steps": steps,
    }
    steps_before = _claim(folder, record)
    (folder / "data").mkdir(exist_ok=True)
    if example is None:
        return _write_panel(folder, record)
    frames = example.steps(rows, np.random.default_rng(seed))
    for part in range(-(-steps // example.steps_per_file)):
        count = min(example.steps_per_file, steps - part * example.steps_per_file)
        _write_table(example, list(islice(frames, count)), folder / "data" / f"part-{part:04d}.{file_format}")
    for file, text in example.files.items():
        _write_text(folder / file, text)
    _write_text(folder / _RECORD, json.dumps(record, indent=2) + "\n")
    _write_text(folder / "README.md", _readme(example, record))
    config = folder / "dpstream.toml"
    if not config.exists():
        _write_text(config, _config(example, steps, rows, file_format))
    elif steps_before != steps:
        # Only the line that was written for the shorter stream changes; all else is the user's.
        text = read_text(config)
        _write_text(config, text.replace(_end(example, steps_before), _end(example, steps), 1))
    return config


def _write_panel(folder: Path, record: dict[str, Any]) -> Path:
    """One file of people; a configuration that is there stays, for its horizon holds all months."""
    rows, steps, seed, form = (record[key] for key in ("rows_per_step", "steps", "seed", "file_format"))
    panel_folder.write_panel(rows, steps, seed, folder / "data" / f"panel.{form}")
    _write_text(folder / _RECORD, json.dumps(record, indent=2) + "\n")
    _write_text(folder / "README.md", panel_folder.readme_text(rows, steps, seed))
    config = folder / "dpstream.toml"
    if not config.exists():
        _write_text(config, panel_folder.config_text(form))
    return config


def _write_stock(folder: Path, stock: Stock, steps: int, seed: int, file_format: str) -> Path:
    """Three shapes of one register; a configuration that is there keeps all but the stream's end."""
    record = stock_folder.record(stock, steps, seed, file_format)
    steps_before = _claim(folder, record)
    stock_folder.write_stock(stock, steps, seed, folder, file_format)
    _write_text(folder / _RECORD, json.dumps(record, indent=2) + "\n")
    _write_text(folder / "README.md", stock_folder.readme_text(stock, steps, seed, file_format))
    config = folder / "dpstream.toml"
    if not config.exists():
        _write_text(config, stock_folder.config_text(stock, steps, file_format))
    elif steps_before != steps:
        before, after = stock_folder.end_line(steps_before), stock_folder.end_line(steps)
        _write_text(config, read_text(config).replace(before, after, 1))
    return config


def _write_text(path: Path, text: str) -> None:
    durable.replace_file(path, text.encode(), mode=0o644, lasting=False)


def _example(name: str) -> Example:
    try:
        return EXAMPLES[name]
    except KeyError:
        raise ConfigError(
            f"unknown example stream {name!r}",
            where="simulate",
            allowed=", ".join((*EXAMPLES, panel_folder.NAME, stock_folder.NAME)),
        ) from None


def _end(example: Example, steps: int) -> str:
    return f"\nend = {example.end(steps)}\n"


def _claim(folder: Path, record: dict[str, Any]) -> int:
    """Make the folder, or check that it holds a part of the same simulation; its steps so far."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError("is a file", where=str(folder), allowed="a folder that is empty or new")
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        return 0
    try:
        before = parse_json(read_text(folder / _RECORD))
        steps_before = int(before["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            "the folder is not empty and holds no simulation",
            where=str(folder),
            allowed="a folder that is empty or new",
        ) from None
    if {**before, "steps": 0} != {**record, "steps": 0}:
        raise ConfigError(
            "the folder holds another simulation",
            where=str(folder),
            allowed="the same name, seed and options, or another folder",
        )
    if steps_before > record["steps"]:
        raise ConfigError(
            f"the folder already holds {steps_before} steps",
            where="steps",
            allowed=f"{steps_before} or more, or another folder",
        )
    return steps_before


def _write_table(example: Example, frames: list[StepColumns], path: Path) -> None:
    """One file from some steps; None becomes null."""
    import pyarrow as pa

    columns = {name: np.concatenate([frame[name] for frame in frames]) for name in frames[0]}
    table = pa.table(
        {
            name: pa.array(values, type=pa.type_for_alias(example.nullable[name]))
            if name in example.nullable
            else pa.array(values)
            for name, values in columns.items()
        }
    )
    write_arrow(table, path)


#: Steps after which the table holds what ``[expect]`` says.
_WEEKS = 52


def _config(example: Example, steps: int, rows: int, file_format: str) -> str:
    expect = f"""\
[expect]                    # public guesses, published in the manifest; never computed from private records
size = {rows * _WEEKS}
records_per_step = {rows}

"""
    return f"""\
# {example.title} Everything here is invented, so every domain below is public.
format = 1

[stream]
name = "{example.name}"
{example.stream}
[source]
path = "data/*.{file_format}"
{example.source}end = {example.end(steps)}

{expect if example.expects and rows else ""}{example.schema}
{example.mechanism}
[budget]
epsilon = "1"
horizon = "none"

[output]
dir = "releases"
format = "{file_format}"
keep = "all"
{example.output}"""


def _readme(example: Example, record: dict[str, Any]) -> str:
    return f"""\
# {example.name}

{example.title} No row describes a real person or place.

Made by `dpstream simulate` with seed {record["seed"]}: {record["steps"]} steps of about
{record["rows_per_step"]} new rows.

{example.notes}
Run it:

```
dpstream check dpstream.toml
dpstream plan dpstream.toml
dpstream run dpstream.toml
```

For more steps of the same stream simulate into this folder again with a larger `--steps`, then run again:
the earlier steps stay as they are.
"""
