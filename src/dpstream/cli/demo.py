"""``dpstream demo``: a first look, on invented data."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from dpstream.cli.types import Whole
from dpstream.core.errors import ConfigError
from dpstream.core.paths import check_target

#: Says that the demo made the folder; and everything else that a demo writes.
DEMO_MARKER = ".dpstream-demo"
_WRITTEN = (
    *("data", "releases", "state", "evaluation"),
    *("dpstream.toml", "README.md", "simulation.json", "districts.csv"),
)
#: Points of the curves on the page, about.
_POINTS = 26


def demo(folder: Path, steps: int, seed: int) -> int:
    """Simulate, run, and compare; returns the exit code of the first command that did not succeed.

    Errors:
        ConfigError: a folder that holds somebody else's files.
    """
    from dpstream.tools.simulate import simulate

    config = folder / "dpstream.toml"
    print("An invented city's eviction notices, week by week:\n")
    print(
        f"$ dpstream simulate evictions --steps {steps} --rows-per-step 1000 --format parquet --seed {seed} "
        f"--out {shlex.quote(str(folder))}"
    )

    # A larger city than the example's own: at one epsilon the noise is the same, whatever the number of records.
    def fill(new: Path) -> None:
        simulate("evictions", steps, new, seed=seed, rows_per_step=1_000, file_format="parquet")

    fresh_folder(folder, fill)
    every = max(1, steps // _POINTS)
    for command in (["run"], ["evaluate", "--every", str(every), "--no-ceiling"]):
        if code := _run([*command, str(config)]):
            return code
    program = _program()
    print(f"""
Look first    {folder / "evaluation" / "evaluation.html"}
              true values beside synthetic ones; of real data for the owner alone
To publish    {folder / "releases"}   {steps} synthetic tables and manifests
Secret        {folder / "state"}      exact counts, never to be published

Next   {program} status {config}
       {program} plan {config}
       {program} sample {config} --step {steps} --rows 1000 --out {folder / "sample.csv"}""")
    return 0


def fresh_folder(folder: Path, fill: Callable[[Path], object]) -> None:
    """Remove what an earlier demo left in ``folder``; ``fill`` writes the new beginning into a folder beside it.

    It moves into place after the marker is there, so that a stop never leaves a folder that the next call refuses.

    Errors:
        ConfigError: the folder is a file, or holds files and no demo made it.
    """
    foreign = folder.is_dir() and any(folder.iterdir()) and not (folder / DEMO_MARKER).is_file()
    if foreign or (folder.exists() and not folder.is_dir()):
        what = "the folder holds other files" if foreign else "is a file"
        raise ConfigError(what, where=str(folder), allowed="a new or empty folder, or a demo's")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".dpstream-demo-", dir=folder.parent) as name:
        fresh = Path(name) / "demo"
        fill(fresh)
        folder.mkdir(exist_ok=True)
        check_target(folder / DEMO_MARKER)
        (folder / DEMO_MARKER).write_text("dpstream demo may remove this folder.\n")
        for old in (folder / name for name in _WRITTEN):
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
        for new in sorted(fresh.iterdir()):
            new.rename(folder / new.name)


def _run(words: list[str]) -> int:
    """A command as a program of its own: its progress, its interrupts, its exit code; of what it prints the last line.

    On a terminal a run shows its own progress there.
    """
    print(f"$ dpstream {shlex.join(words)}", flush=True)
    # The page says what an evaluation prints; elsewhere a run prints a line a step.
    evaluates, terminal = words[0] == "evaluate", sys.stderr.isatty()
    quiet = subprocess.DEVNULL if evaluates else None if terminal else subprocess.PIPE
    errors = subprocess.DEVNULL if evaluates and not terminal else None
    command = [sys.executable, "-m", "dpstream", *words]
    with subprocess.Popen(command, stdout=quiet, stderr=errors, text=True) as process:
        try:
            printed, _ = process.communicate()
        except KeyboardInterrupt:  # The terminal has told it too; it ends its step first.
            return process.wait()
    if printed:
        print(printed.splitlines()[-1], flush=True)
    return process.returncode


def _program() -> str:
    """How the command is called from here."""
    path = Path(sys.executable).with_name("dpstream")
    if not path.exists():
        return f"{shlex.quote(sys.executable)} -m dpstream"
    if shutil.which("dpstream") == str(path):
        return "dpstream"
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))


@click.command("demo", short_help="Run an invented stream, and show it beside its truth.")
@click.option("--out", default="demo", show_default=True, help="Folder to make, or to make anew.")
@click.option("--steps", type=Whole(2), default=104, show_default=True, help="Weeks to simulate.")
@click.option(
    "--seed", type=Whole(0), default=0, show_default=True, help="Of the invented data, not the noise."
)
def command(out: str, steps: int, seed: int) -> None:
    """Simulate a city's eviction notices, publish a synthetic table each week, and write a page of true beside
    released values.

    Other people's folders are refused.

    \b
    Examples:
      dpstream demo
      dpstream demo --steps 12 --out /tmp/look
    """

    code = demo(Path(out), steps, seed)
    if code:
        sys.exit(code)
