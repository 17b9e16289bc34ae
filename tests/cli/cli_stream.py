"""A small stream for the command, and the command itself in this process."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from dpstream.cli import main

COLUMNS = """\
[schema.columns.zip]
type = "categorical"
values = ["a", "b", "c"]
[schema.columns.paid]
type = "boolean"
[schema.columns.kind]
type = "categorical"
values = ["x", "y"]
"""
ROWS = ["a,true,x", "b,false,y", "c,true,y", "a,false,x", "b,true,x"]


def dpstream(*args: object, code: int = 0) -> Result:
    """Run the command in this process and check its exit code."""
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    if code:
        lines = result.stderr.strip().splitlines()
        assert lines[-1].startswith("error: ") or "Usage:" in result.stderr
        assert "Traceback" not in result.output
    return result


def make(
    folder: Path,
    steps: int = 4,
    *,
    mechanism: str = "",
    columns: str = COLUMNS,
    more: str = "",
    epsilon: str = "1",
    **source: Any,
) -> Path:
    """A stream by step numbers: 10 rows a step; ``mechanism``: lines of its section, where the default does not do."""
    folder.mkdir(exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    settings = {"path": '"data/*.csv"', "time_column": '"step"', "end": steps, **source}
    lines = [f"{key} = {value}" for key, value in settings.items() if value is not None]
    body = "\n".join(lines)
    config = folder / "dpstream.toml"
    config.write_text(
        f'format = 1\n[stream]\nname = "test"\n[source]\n{body}\n{columns}[mechanism]\n{mechanism}\n'
        f'[budget]\nepsilon = "{epsilon}"\n[output]\nformat = "csv"\n',
        encoding="utf-8",
    )
    for step in range(1, steps + 1):
        write_step(folder, step)
    return config


#: So little noise that no number of rows is near none, or far from what was counted.
certain = partial(make, epsilon="100")


def write_step(folder: Path, step: int, rows: list[str] | None = None) -> None:
    body = "".join(f"{step},{row}\n" for row in (ROWS * 2 if rows is None else rows))
    (folder / "data" / f"{step:03d}.csv").write_text(f"step,zip,paid,kind\n{body}", encoding="utf-8")


def released(folder: Path) -> dict[str, bytes]:
    root = folder / "releases"
    files = [p for p in sorted(root.rglob("*")) if p.is_file() and p.name != ".head.json"]
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


def status(config: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(dpstream("status", config, "--json").stdout)
    return facts
