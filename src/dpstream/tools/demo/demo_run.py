"""The demo, told as the commands that a user would type."""

from __future__ import annotations

import datetime
import os
import shlex
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from dpstream.core.errors import ConfigError
from dpstream.tools.demo.demo_folder import PICTURE, fresh_folder
from dpstream.tools.demo.series import Line, Panel, compare

__all__ = ["PANELS", "run_demo"]

#: A larger city than the example's own: at one epsilon the noise is the same, whatever the number of records.
ROWS_PER_STEP = 1_000

#: What the picture shows: single columns, one with bins, and two pairs of columns.
PANELS = (
    Panel("Size of the table", "notices", (Line("notices"),)),
    Panel(
        "Causes",
        "share of all notices",
        (Line("unpaid rent", "non_payment = 1"), Line("owner moves in", "owner_move_in = 1")),
    ),
    Panel(
        "Areas",
        "share of all notices",
        (Line("area 10101", "zip = '10101'"), Line("area 10107", "zip = '10107'")),
    ),
    Panel(
        "Rents",
        "share of all notices",
        (Line("2,000 or more", "rent >= 2000"), Line("below 1,000", "rent < 1000")),
    ),
    Panel(
        "Two columns: nuisance and breach",
        "share with nuisance",
        (
            Line("with a breach", "nuisance = 1", "breach = 1"),
            Line("without", "nuisance = 1", "breach = 0"),
        ),
    ),
    Panel(
        "Two columns: rent and district",
        "rents of 2,000 or more",
        (
            Line("district 4", "rent >= 2000", "district = '4'"),
            Line("district 1", "rent >= 2000", "district = '1'"),
        ),
    ),
)


def run_demo(out: str | Path, *, steps: int = 104, seed: int = 0) -> int:
    """Simulate the ``evictions`` stream into ``out``, run dpstream on it, draw ``out/demo.png``.

    Args:
        out: a folder that is new, empty, or an earlier demo's (which is made anew).
        steps: weeks, at least 2.
        seed: of the invented data. The noise always comes from the operating system.

    Returns the exit code of ``dpstream run``, 0 if all went well.

    Errors:
        ConfigError: a folder with other files, too few or too many steps, matplotlib missing.

    Cost: about 15 s for 104 steps, once the compiled parts are cached.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "matplotlib is not installed", where="demo", allowed="make demo, or pip install 'dpstream[plot]'"
        )
    if steps < 2:
        raise ConfigError(f"{steps} is too small", where="steps", allowed="2 or more")
    from dpstream.tools.simulate import simulate

    began = time.monotonic()
    folder = Path(out)
    config = folder / "dpstream.toml"
    size = ["--rows-per-step", str(ROWS_PER_STEP), "--format", "parquet"]
    _say("An invented city's eviction notices, week by week. These are the commands that you would type:\n")
    _show("simulate", "evictions", "--steps", str(steps), *size, "--seed", str(seed), "--out", str(folder))
    fresh_folder(
        folder,
        lambda new: simulate(
            "evictions", steps, new, seed=seed, rows_per_step=ROWS_PER_STEP, file_format="parquet"
        ),
    )
    _show("run", str(config))
    code = _run(config)
    if code != 0:
        return code
    _draw(config, folder, steps)
    _tell(folder, config, steps, time.monotonic() - began)
    return 0


def _run(config: Path) -> int:
    """``dpstream run`` as a program of its own: its progress, its interrupts, its exit code."""
    with subprocess.Popen([sys.executable, "-m", "dpstream", "run", str(config)]) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The terminal has told it too; it ends its step first.
            return process.wait()


def _draw(config: Path, folder: Path, steps: int) -> None:
    from dpstream.project import Config
    from dpstream.tools.demo.picture import draw
    from dpstream.tools.simulate.evictions import CHANGE_AT, START

    loaded = Config.load(config)
    lines = tuple(line for panel in PANELS for line in panel.lines)
    series = compare(loaded, folder / "releases", lines, steps)
    start = START.astype(datetime.date)
    weeks = [start + datetime.timedelta(days=7 * step - 1) for step in range(1, steps + 1)]
    policy = weeks[CHANGE_AT] if steps > CHANGE_AT else None
    draw(folder / PICTURE, PANELS, series, weeks, guarantee=str(loaded.plan().budget), policy=policy)


def _tell(folder: Path, config: Path, steps: int, seconds: float) -> None:
    program = _program()
    _say(
        f"""
Done in {seconds:.0f} s.

  {folder / PICTURE}   true and synthetic values over time: look at this first.
                  It holds the (invented) private truth; a real run never writes such a picture.
  {folder / "releases"}   {steps} synthetic tables with their manifests: what you would publish.
  {folder / "state"}      secret: exact counts, never to be published.

Look next:

  {program} status {config}
  {program} plan {config}
  {program} sample {config} --step {steps} --rows 1000 --out {folder / "sample.csv"}
"""
    )


def _program() -> str:
    """How the command is called from here."""
    path = Path(sys.executable).with_name("dpstream")
    if not path.exists():
        return f"{shlex.quote(sys.executable)} -m dpstream"
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))


def _show(*words: str) -> None:
    _say(f"$ dpstream {shlex.join(words)}")


def _say(text: str) -> None:
    print(text, flush=True)
