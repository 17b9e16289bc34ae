"""A configuration file in parts, for the tests of this folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from dpstream.mechanisms import AIM, MWEMPGM
from dpstream.project import Config

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


def recipe_defaults(kind: type[Any]) -> dict[str, Any]:
    """Option -> default of a recipe."""
    fields = (item for item in dataclasses.fields(kind) if "option" in item.metadata)
    return {item.name: item.default for item in fields if item.default is not dataclasses.MISSING}


_NAMES = {
    name: {item.name for item in dataclasses.fields(kind) if "option" in item.metadata}
    for name, kind in (("mwem-pgm", MWEMPGM), ("aim", AIM))
}
#: Options that only one of the offline mechanisms has.
OF_OFFLINE = {"mwem-pgm": _NAMES["mwem-pgm"] - _NAMES["aim"], "aim": _NAMES["aim"] - _NAMES["mwem-pgm"]}

#: What a panel needs beside its name.
PANEL = {
    **DEFAULTS,
    "source": DEFAULTS["source"] + '\nuser_column = "person"',
    "budget": 'rho = "1"\nhorizon = 9',
}
PANELS = {
    "panel-window": {**PANEL, "mechanism": 'name = "panel-window"\nwindow = 2'},
    "panel-cumulative": {**PANEL, "mechanism": 'name = "panel-cumulative"'},
}
#: What points need beside their name; a column of numbers comes by itself.
POINTS = {"points": {"stream": 'total = "public"', "mechanism": 'name = "points"'}}
#: What growing databases need.
GROWING = {
    "scheduler": {
        "stream": 'total = "public"',
        "mechanism": 'name = "scheduler"\nfirst_run = 100\ngamma = "1/10"',
    },
    "improver": {
        "stream": 'total = "public"',
        "mechanism": 'name = "improver"\nfirst_run = 100',
        "budget": 'epsilon = "1/2"\ndelta = "1e-6"',
    },
    "pmwg": {
        "stream": 'total = "public"',
        "mechanism": 'name = "pmwg"\nalpha = "1/5"\nstart = 1000',
    },
}
#: What keyed records need.
KEYED = {
    "census": {
        "stream": 'unit = "record"',
        "source": DEFAULTS["source"] + '\nkey_column = "id"',
        "mechanism": 'name = "census"',
    }
}
_NUMBER = '[schema.columns.rent]\ntype = "real"\nedges = [0, 500, 4000]\n'
_OTHERS = MINIMAL[MINIMAL.index("[schema.columns.zip]") : MINIMAL.index("[schema.columns.paid]")]


def write(folder: Path, **parts: str) -> Path:
    path = folder / "dpstream.toml"
    text = MINIMAL.format(**{**DEFAULTS, **parts})
    if "panel-cumulative" in parts.get("mechanism", ""):  # it follows one column
        kind = text[text.index("[schema.columns.kind]") : text.index("[mechanism]")]
        text = text.replace(_OTHERS, "").replace(kind, "")
    if '"points"' in parts.get("mechanism", ""):
        text = text.replace("[mechanism]", _NUMBER + "[mechanism]", 1)
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, **parts: str) -> Config:
    return Config.load(write(folder, **parts))


PUBLIC = 'total = "public"'
ROWS = 'path = "data/*.csv"\nrows = 50'
