"""A folder with a configuration and its private files: a test says what is different in its own.

path = write_config(folder, stream='unit = "user"\nmax_events = 3', columns=PAID)
write_rows(folder, "1.csv", "step,paid", ["1,true", "1,false"])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpstream.project import Config

ZIP = '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a", "b", "c"]\n'
PAID = '[schema.columns.paid]\ntype = "boolean"\n'
KIND = '[schema.columns.kind]\ntype = "categorical"\nvalues = ["x", "y"]\n'
RENT = '[schema.columns.rent]\ntype = "real"\nedges = [0, 500, 4000]\n'
DEFAULTS = {
    "name": "test",
    "stream": "",
    "source": 'path = "data/*.csv"\ntime_column = "step"\nend = 9',
    "columns": ZIP + PAID + KIND,
    "mechanism": "",
    "budget": 'epsilon = "1"',
    "rest": "",
}
PUBLIC = 'total = "public"'
ROWS = 'path = "data/*.csv"\nrows = 50'

#: What a mechanism needs beside its name; those that are not here need nothing.
PANEL = {
    "source": DEFAULTS["source"] + '\nuser_column = "person"',
    "budget": 'rho = "1"\nhorizon = 9',
}
PANELS = {
    "panel-window": {**PANEL, "mechanism": 'name = "panel-window"\nwindow = 2'},
    # It follows one column.
    "panel-cumulative": {**PANEL, "mechanism": 'name = "panel-cumulative"', "columns": PAID},
}
POINTS = {"points": {"stream": PUBLIC, "mechanism": 'name = "points"', "columns": DEFAULTS["columns"] + RENT}}
GROWING = {
    "scheduler": {
        "stream": PUBLIC,
        "mechanism": 'name = "scheduler"\nfirst_run = 100\ngamma = "1/10"',
    },
    "improver": {
        "stream": PUBLIC,
        "mechanism": 'name = "improver"\nfirst_run = 100',
        "budget": 'epsilon = "1/2"\ndelta = "1e-6"',
    },
    "pmwg": {"stream": PUBLIC, "mechanism": 'name = "pmwg"\nalpha = "1/5"\nstart = 1000'},
}
KEYED = {
    "census": {
        "stream": 'unit = "record"',
        "source": DEFAULTS["source"] + '\nkey_column = "id"',
        "mechanism": 'name = "census"',
    }
}
PARTS = {**PANELS, **POINTS, **GROWING, **KEYED}


def write_config(folder: Path, *, file: str = "dpstream.toml", **parts: str) -> Path:
    """A configuration in a folder, which is made; ``parts`` in place of those of ``DEFAULTS``."""
    text = {**DEFAULTS, **parts}
    folder.mkdir(exist_ok=True)
    path = folder / file
    path.write_text(
        f'[stream]\nname = "{text["name"]}"\n{text["stream"]}\n[source]\n{text["source"]}\n{text["columns"]}'
        f"[mechanism]\n{text['mechanism']}\n[budget]\n{text['budget']}\n{text['rest']}\n",
        encoding="utf-8",
    )
    return path


def load(folder: Path, **parts: str) -> Config:
    return Config.load(write_config(folder, **parts))


def of_mechanism(mechanism: str) -> dict[str, str]:
    """The parts of a file that names a mechanism and is right."""
    return {"mechanism": f'name = "{mechanism}"', **PARTS.get(mechanism, {})}


def write_rows(folder: Path, file: str, head: str, rows: Iterable[str]) -> Path:
    """A CSV file of the private folder ``data``, which is made."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    path = folder / "data" / file
    path.write_text("".join(f"{line}\n" for line in (head, *rows)), encoding="utf-8")
    return path


def new_key(folder: Path, name: str) -> Path:
    """A private key as ``openssl genpkey -algorithm ed25519`` makes it."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, path = Ed25519PrivateKey.generate(), folder / name
    path.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))
    path.chmod(0o600)
    return path


def rewrite(path: Path, *pairs: str) -> Path:
    """Put every second text in place of the one before it, which has to be in the file."""
    text = path.read_text(encoding="utf-8")
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


def recipe_defaults(kind: type[Any]) -> dict[str, Any]:
    """Option -> default of a recipe."""
    fields = (item for item in dataclasses.fields(kind) if "option" in item.metadata)
    return {item.name: item.default for item in fields if item.default is not dataclasses.MISSING}
