"""A configuration file in parts, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

from dpstream.config import Config

MINIMAL = """\
[stream]
name = "test"
{stream}
[source]
{source}
[schema.columns.zip]
type = "categorical"
values = ["a", "b", "c"]
[schema.columns.paid]
type = "boolean"
[schema.columns.kind]
type = "categorical"
values = ["x", "y"]
[mechanism]
{mechanism}
[budget]
{budget}
{rest}
"""
DEFAULTS = {
    "stream": "",
    "source": 'path = "data/*.csv"\ntime_column = "step"\nend = 9',
    "mechanism": "",
    "budget": 'epsilon = "1"',
    "rest": "",
}


def write(folder: Path, **parts: str) -> Path:
    path = folder / "dpstream.toml"
    path.write_text(MINIMAL.format(**{**DEFAULTS, **parts}), encoding="utf-8")
    return path


def load(folder: Path, **parts: str) -> Config:
    return Config.load(write(folder, **parts))


PUBLIC = 'total = "public"'
ROWS = 'path = "data/*.csv"\nrows = 50'
