"""A service over small streams, and its worker, for tests of the desk and of the pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli_stream import make
from small_configs import PAID, ZIP, rewrite

from dpstream.service.desk import Desk, Person
from dpstream.service.desk.board import HeldRow, write_board
from dpstream.service.desk.worker import Worker

COLUMNS = ZIP + PAID
#: The lines of a mechanism that answers questions, which needs ``total = "public"``.
QUESTIONS = 'name = "pmwg"\nalpha = "0.3"\nstart = 21\n'
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
    columns: str = COLUMNS,
    head: str = "zip,paid",
    rows: Sequence[str] = ROWS,
    private: str = "",
    place: str = ".",
) -> Path:
    """A folder with one stream, each of whose steps holds the rows so many ``times``, and ``service.toml``.

    Args:
        private: begins the names of the stream's files.
        place: of the stream, below the folder.
    """
    (folder / place).mkdir(parents=True)
    config = make(folder / place, 0, columns=columns, mechanism=mechanism, end=steps)
    rewrite(config, 'name = "test"\n', f"name = {json.dumps(name)}\n{stream}\n")
    rewrite(config, 'epsilon = "1"\n', 'epsilon = "1"  # decided\n')
    rewrite(config, "[output]\n", f"[output]\napprove = {str(approve).lower()}\n")
    for step in range(1, steps + 1):
        lines = "\n".join([f"{head},step", *(f"{row},{step}" for row in [*rows] * times), ""])
        (folder / place / "data" / f"{private}{step}.csv").write_text(lines, encoding="utf-8")
    (folder / "service.toml").write_text(
        f'[service]\nname = "{service}"\n{more}\n[[stream]]\nconfig = "{place}/dpstream.toml"\n'
        f"approvals = {approvals}\n",
        encoding="utf-8",
    )
    return folder


def work(desk: Desk, *, clock: float = 2e9) -> list[dict[str, object]]:
    """Rounds of a worker until there is nothing to do; its log."""
    lines: list[str] = []
    worker = Worker(desk, lambda: clock, lines.append)
    try:
        while worker.round():
            pass
    finally:
        worker.close()
    return [json.loads(line) for line in lines]


def tell(desk: Desk, stream: str = "test", held: dict[int, str] | None = None, **facts: Any) -> None:
    """Put facts and held steps (with a text that stands for the manifest) on the board, as the worker does."""
    rows = []
    for step, text in (held or {}).items():
        manifest = json.dumps({"step": step, "text": text})
        rows.append(HeldRow(step, hashlib.sha256(manifest.encode()).hexdigest(), manifest, None, True))
    with desk.database.writing() as db:
        told = {"health": "healthy", "why": "well", "steps": 5, "held": sorted(held or {}), **facts}
        write_board(db, stream, told, rows, held or {})
