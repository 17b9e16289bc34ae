"""Write an example stream as a folder: data files, a ready configuration, a README."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.core.paths import parse_json, read_text
from dpstream.core.showing import templates
from dpstream.tools.simulate.example import Example
from dpstream.tools.simulate.stock_folder import STOCK, Stock
from dpstream.tools.simulate.streams import CENSUS, EVICTIONS, PANEL, RIDES

#: All example streams by name.
EXAMPLES: Final[dict[str, Example]] = {
    "evictions": EVICTIONS,
    "census": CENSUS,
    "points": RIDES,
    "panel": PANEL,
    "stock": STOCK,
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
        name: ``"evictions"``, ``"census"``, ``"points"`` (rides in a city), ``"panel"`` (households in and out of
            poverty, up to 12 months), or ``"stock"`` (a register whose records come, change and leave).
        steps: number of steps, at least 1.
        out: an empty folder, or that holds the same simulation with as many steps or fewer.
        seed: of the general-purpose generator.
        rows_per_step: about how many inserts a step has, or how many households the panel has; by default the
            example's own number.
        file_format: ``"csv"`` or ``"parquet"``.
        stock: options of the register; only for ``"stock"``, which takes no ``rows_per_step``.

    Errors:
        ConfigError: an unknown name or format, a number that is too small, a folder with other content.

    Cost: about a millisecond and under 10 kB of memory per step of 100 rows.
    """
    example = EXAMPLES.get(name)
    if example is None:
        raise ConfigError(f"unknown example stream {name!r}", where="simulate", allowed=", ".join(EXAMPLES))
    register = example.rows_per_step is None
    if stock is not None and not register:
        raise ConfigError("options are for stock", where=name, allowed="stock")
    if rows_per_step is not None and register:
        raise ConfigError(
            "follows from records and mean stay",
            where="rows_per_step",
            allowed="for stock: records and mean stay",
        )
    rows = example.rows_per_step if rows_per_step is None else rows_per_step
    for label, number, least in (("steps", steps, 1), ("rows_per_step", rows, 1), ("seed", seed, 0)):
        if number is not None and number < least:
            raise ConfigError(f"{number} is too small", where=label, allowed=f"{least} or more")
    if example.most_steps is not None and steps > example.most_steps:
        raise ConfigError(f"{steps} is too large", where="steps", allowed=f"at most {example.most_steps}")
    if file_format not in _FORMATS:
        raise ConfigError(f"unknown format {file_format!r}", where="format", allowed=", ".join(_FORMATS))
    folder = Path(out)
    options = asdict(stock or Stock()) if register else {"rows_per_step": rows}
    record = {
        "format": 1,
        "name": name,
        "seed": seed,
        **options,
        "file_format": file_format,
        "steps": steps,
    }
    steps_before = _claim(folder, record)
    example.write(record, folder)
    words = {**record, "end": example.end(steps), **example.words(record)}
    _write_text(folder / _RECORD, json.dumps(record, indent=2) + "\n")
    _write_text(folder / "README.md", _filled(f"{name}.md", words))
    config = folder / "dpstream.toml"
    if not config.exists():
        _write_text(config, _filled(f"{name}.toml", words))
    elif steps_before != steps:
        # Only the line that was written for the shorter stream changes; all else is the user's.
        before, after = (f"\nend = {example.end(number)}\n" for number in (steps_before, steps))
        _write_text(config, read_text(config).replace(before, after, 1))
    return config


def _filled(name: str, words: dict[str, Any]) -> str:
    texts = templates("dpstream.tools.simulate", "examples", keep_trailing_newline=True)
    return texts.get_template(name).render(words)


def _write_text(path: Path, text: str) -> None:
    durable.replace_file(path, text.encode(), mode=0o644, lasting=False)


def _claim(folder: Path, record: dict[str, Any]) -> int:
    """Make the folder, or check that it holds a part of the same simulation; its steps so far."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError("is a file", where=str(folder), allowed="an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        return 0
    try:
        before = parse_json(read_text(folder / _RECORD))
        steps_before = int(before["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            "the folder holds other files",
            where=str(folder),
            allowed="an empty folder",
        ) from None
    if {**before, "steps": 0} != {**record, "steps": 0}:
        raise ConfigError(
            "the folder holds another simulation",
            where=str(folder),
            allowed="the same options, or another folder",
        )
    if steps_before > record["steps"]:
        raise ConfigError(
            f"the folder already holds {steps_before} steps",
            where="steps",
            allowed=f"{steps_before} or more, or another folder",
        )
    return steps_before
