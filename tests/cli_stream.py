"""A small stream for the command, and the command itself in this process."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from second_place import contents
from small_configs import DEFAULTS, write_config, write_rows

from dpstream.cli import main

COLUMNS = DEFAULTS["columns"]
ROWS = ["a,true,x", "b,false,y", "c,true,y", "a,false,x", "b,true,x"]


def invoke(*args: object, **more: Any) -> Result:
    """Run the command in this process; ``more``: of click's runner, such as ``input``."""
    return CliRunner().invoke(main, [str(arg) for arg in args], **more)


def dpstream(*args: object, code: int = 0, error: bool = True, **more: Any) -> Result:
    """As ``invoke``, and check its exit code; ``error``: one above 0 comes with its line."""
    result = invoke(*args, **more)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    if code and error:
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
    epsilon: str = "1",
    **source: Any,
) -> Path:
    """A stream by step numbers: 10 rows a step; ``mechanism``: lines of its section, where the default does not do."""
    settings = {"path": '"data/*.csv"', "time_column": '"step"', "end": steps, **source}
    for step in range(1, steps + 1):
        write_step(folder, step)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    return write_config(
        folder,
        source="\n".join(f"{key} = {value}" for key, value in settings.items() if value is not None),
        columns=columns,
        mechanism=mechanism,
        budget=f'epsilon = "{epsilon}"',
        rest='[output]\nformat = "csv"',
    )


#: So little noise that no number of rows is near none, or far from what was counted.
certain = partial(make, epsilon="100")


def write_step(folder: Path, step: int, rows: list[str] | None = None) -> None:
    lines = (f"{step},{row}" for row in (ROWS * 2 if rows is None else rows))
    write_rows(folder, f"{step:03d}.csv", "step,zip,paid,kind", lines)


def released(folder: Path) -> dict[str, bytes]:
    return dict(sorted(contents(folder / "releases").items()))


def silent(_: str) -> None:
    """Hears of progress and tells nobody."""


def status(config: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(dpstream("status", config, "--json").stdout)
    return facts


def unfolded(screen: str) -> list[str]:
    """The lines of a screen as they were before they were broken at 100 columns."""
    return screen.replace("\n  ", " ").splitlines()
