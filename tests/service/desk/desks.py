"""A desk over small streams, for tests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dpstream.service.desk import Desk, Person
from dpstream.service.desk.board import HeldRow, write_board

CONFIG = """\
format = 1
[stream]
name = "{name}"
{stream}
[source]
path = "data/*.csv"
time_column = "step"
end = {steps}
[schema.columns.zip]
type = "categorical"
values = ["a", "b", "c"]
[schema.columns.paid]
type = "boolean"
[mechanism]
{mechanism}
[budget]
epsilon = "1"
[output]
format = "csv"
approve = {approve}
"""
ROWS = ["a,true", "b,false", "c,true", "a,false", "b,true"]
OWNER = Person("Olga", frozenset({"owner"}))
ANNA = Person("Anna", frozenset({"approver"}))
BEN = Person("Ben", frozenset({"approver"}))


def make_secret(file: Path) -> str:
    """The secret of a proxy, in a file as the settings ask for it."""
    secret = "0123456789abcdef" * 2
    file.write_text(f"{secret}\n", encoding="ascii")
    file.chmod(0o600)
    return secret


def make_service(
    folder: Path,
    *,
    steps: int = 3,
    approvals: int = 1,
    approve: bool = True,
    mechanism: str = "",
    more: str = "",
    name: str = "test",
    stream: str = "",
    service: str = "office",
    times: int = 2,
) -> Path:
    """A folder with one stream, each of whose steps holds the rows so many ``times``, and ``service.toml``."""
    (folder / "data").mkdir(parents=True)
    (folder / "dpstream.toml").write_text(
        CONFIG.format(
            name=name, steps=steps, mechanism=mechanism, approve=str(approve).lower(), stream=stream
        ),
        encoding="utf-8",
    )
    for step in range(1, steps + 1):
        rows = "\n".join(f"{row},{step}" for row in ROWS * times)
        (folder / "data" / f"{step}.csv").write_text(f"zip,paid,step\n{rows}\n", encoding="utf-8")
    (folder / "service.toml").write_text(
        f'[service]\nname = "{service}"\n{more}\n[[stream]]\nconfig = "dpstream.toml"\napprovals = {approvals}\n',
        encoding="utf-8",
    )
    return folder


def tell(desk: Desk, stream: str = "test", held: dict[int, str] | None = None, **facts: Any) -> None:
    """Put facts and held steps (with a text that stands for the manifest) on the board, as the worker does."""
    rows = []
    for step, text in (held or {}).items():
        manifest = json.dumps({"step": step, "text": text})
        rows.append(HeldRow(step, hashlib.sha256(manifest.encode()).hexdigest(), manifest, None, True))
    with desk.database.writing() as db:
        told = {"health": "healthy", "why": "well", "steps": 5, "held": sorted(held or {}), **facts}
        write_board(db, stream, told, rows, held or {})
