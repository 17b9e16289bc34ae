"""``dpstream demo``: two commands on invented data, and a picture of true beside released values.

* The releases come from ``dpstream run`` and the noise of the operating system; ``--seed`` changes the invented data.
* Blue is counted in the released tables, as a reader of ``releases/`` would; grey in the data. The picture holds
  private truth, says so, and can be drawn only because the data are invented.
* A folder with somebody else's files is refused. An earlier demo's folder is made anew; what the demo did not write
  stays.

Trusted base: invented (compares invented records with their releases).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.paths import check_target
from dpstream.core.schema.predicate import Predicate, parse_predicate

if TYPE_CHECKING:
    from dpstream.project import Config

#: Says that the demo made the folder; and everything else that a demo writes.
DEMO_MARKER, PICTURE = ".dpstream-demo", "demo.png"
_OURS = ("data", "releases", "state", "dpstream.toml", "README.md", "simulation.json", PICTURE)

#: A curve: its name, a question, and the question that says among whom; shares of them, or the number of all.
Curve = tuple[str, str, str]
#: Frames: what is in them, the unit of the axis, and one or two curves.
PICTURE_FRAMES: tuple[tuple[str, str, tuple[Curve, ...]], ...] = (
    ("Size of the table", "notices", (("notices", "", ""),)),
    (
        "Causes",
        "share of all notices",
        (("owner moves in", "owner_move_in = 1", ""), ("unpaid rent", "non_payment = 1", "")),
    ),
    (
        "Areas",
        "share of all notices",
        (("area 10101", "zip = '10101'", ""), ("area 10107", "zip = '10107'", "")),
    ),
    (
        "Rents",
        "share of all notices",
        (("2,000 or more", "rent >= 2000", ""), ("below 1,000", "rent < 1000", "")),
    ),
    (
        "Two columns: nuisance and breach",
        "share with nuisance",
        (("with a breach", "nuisance = 1", "breach = 1"), ("without", "nuisance = 1", "breach = 0")),
    ),
    (
        "Two columns: rent and district",
        "rents of 2,000 or more",
        (("district 4", "rent >= 2000", "district = '4'"), ("district 1", "rent >= 2000", "district = '1'")),
    ),
)


def demo(folder: Path, steps: int, seed: int) -> int:
    """Simulate, run, and draw a picture where matplotlib is there; returns the exit code of the run.

    Errors:
        ConfigError: too few steps, or a folder that holds somebody else's files.
    """
    if steps < 2:
        raise ConfigError(f"{steps} is too small", where="steps", allowed="2 or more")
    from dpstream.project import Config
    from dpstream.tools.simulate import simulate

    # A larger city than the example's own: at one epsilon the noise is the same, whatever the number of records.
    size: dict[str, Any] = {"rows_per_step": 1_000, "file_format": "parquet"}
    config = folder / "dpstream.toml"
    print("An invented city's eviction notices, week by week. These are the commands that you would type:\n")
    print(
        f"$ dpstream simulate evictions --steps {steps} --rows-per-step 1000 --format parquet --seed {seed} "
        f"--out {shlex.quote(str(folder))}"
    )
    fresh_folder(folder, lambda new: simulate("evictions", steps, new, seed=seed, **size))
    print(f"$ dpstream run {shlex.quote(str(config))}", flush=True)
    code = _run(config)
    if code == 0:
        loaded = Config.load(config)
        picture = "  no picture: matplotlib is not there (pip install 'dpstream[plot]').\n"
        if find_spec("matplotlib") is not None:
            _draw(folder / PICTURE, compare(loaded, folder / "releases", steps), str(loaded.plan().budget))
            picture = f"""  {folder / PICTURE}   true and synthetic values over time: look at this first.
                  It holds the (invented) private truth; a real run never writes such a picture.
"""
        program = _program()
        print(f"""
{picture}  {folder / "releases"}   {steps} synthetic tables with their manifests: what you would publish.
  {folder / "state"}      secret: exact counts, never to be published.

Look next:

  {program} status {config}
  {program} plan {config}
  {program} sample {config} --step {steps} --rows 1000 --out {folder / "sample.csv"}
""")
    return code


def fresh_folder(folder: Path, fill: Callable[[Path], object]) -> None:
    """Remove what an earlier demo left in ``folder``; ``fill`` writes the new beginning into a folder beside it.

    It moves into place after the marker is there, so that a stop never leaves a folder that the next call refuses.

    Errors:
        ConfigError: the folder is a file, or holds files and no demo made it.
    """
    foreign = folder.is_dir() and any(folder.iterdir()) and not (folder / DEMO_MARKER).is_file()
    if foreign or (folder.exists() and not folder.is_dir()):
        what = "the folder is not empty, and no demo made it" if foreign else "is a file"
        raise ConfigError(what, where=str(folder), allowed="a folder that is new, empty or a demo's")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".dpstream-demo-", dir=folder.parent) as name:
        fresh = Path(name) / "demo"
        fill(fresh)
        folder.mkdir(exist_ok=True)
        check_target(folder / DEMO_MARKER)
        (folder / DEMO_MARKER).write_text("Made by dpstream demo, which may remove what it made.\n")
        for old in (folder / one for one in _OURS):
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
        for new in sorted(fresh.iterdir()):
            new.rename(folder / new.name)


def _run(config: Path) -> int:
    """``dpstream run`` as a program of its own: its progress, its interrupts, its exit code."""
    with subprocess.Popen([sys.executable, "-m", "dpstream", "run", str(config)]) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:  # The terminal has told it too; it ends its step first.
            return process.wait()


def _program() -> str:
    """How the command is called from here."""
    path = Path(sys.executable).with_name("dpstream")
    if not path.exists():
        return f"{shlex.quote(sys.executable)} -m dpstream"
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))


def compare(config: Config, releases: Path, steps: int, lines: Sequence[Curve] = ()) -> NDArray[np.float64]:
    """True and released values of all curves at steps 1 to ``steps``: two tables of steps by curves. Private.

    A share of nobody is NaN.

    Errors:
        ConfigError: a question that the schema cannot answer.
    """
    from dpstream.io.sinks import read_table

    schema = config.schema()
    asked = [
        tuple(" and ".join(f"({text})" for text in texts if text) for texts in ((part, among), (among,)))
        for _, part, among in lines or [curve for *_, curves in PICTURE_FRAMES for curve in curves]
    ]
    pairs = [[parse_predicate(text, schema) if text else None for text in texts] for texts in asked]

    def counts(frame: Any) -> NDArray[np.int64]:
        codes = schema.encode(frame)
        return np.array([[_count(one, codes) for one in pair] for pair in pairs])

    def true() -> Iterator[NDArray[np.int64]]:
        running = np.zeros((len(pairs), 2), dtype=np.int64)
        for entry in config.source().steps(1):
            running += counts(entry.inserts)
            running -= 0 if entry.deletes is None else counts(entry.deletes)
            yield running.copy()

    both = np.array([list(true())[:steps], [counts(read_table(releases, step + 1)) for step in range(steps)]])
    whole = np.where([part is None for part, _ in pairs], 1, both[..., 1])
    found: NDArray[np.float64] = np.divide(
        both[..., 0], whole, out=np.full(whole.shape, np.nan), where=whole > 0
    )
    return found


def _count(question: Predicate | None, codes: NDArray[np.int32]) -> int:
    if question is None:
        return len(codes)
    return int(question.mask()[tuple(codes[:, column] for column in question.columns)].sum())


def _draw(path: Path, values: NDArray[np.float64], guarantee: str) -> None:
    """The frames of ``PICTURE_FRAMES`` with the true and the released curves."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    from dpstream.stream.release.pictures import INK, PALETTE, WARNING, Picture, dress, figure
    from dpstream.tools.simulate.evictions import CHANGE_AT, FIRST_DAY

    steps = values.shape[1]
    weeks = FIRST_DAY + 7 * np.arange(1, steps + 1) - 1
    curves = iter(np.moveaxis(values, 2, 0))
    with figure(12.8, 7.8) as made:
        for axes, (title, unit, lines) in zip(made.subplots(2, 3).ravel(), PICTURE_FRAMES, strict=True):
            highest = 0.0
            for rank, (label, *_) in enumerate(lines):
                true, released = next(curves)
                axes.plot(weeks, true, color="#b8b8b8", linewidth=5)
                axes.plot(weeks, released, color=PALETTE[0], linewidth=1.6)
                place = (0, -20 if rank else 14)
                axes.annotate(
                    label,
                    (weeks[-1], true[-1]),
                    xytext=place,
                    textcoords="offset points",
                    ha="right",
                    color=INK,
                )
                # Without the very first, almost empty tables.
                highest = max(highest, np.nanmax(true[steps // 20 :]), np.nanmax(released[steps // 20 :]))
            if steps > CHANGE_AT:
                axes.axvline(weeks[CHANGE_AT], color="#999999", linewidth=1, linestyle=(0, (2, 2)))
            dress(axes, x="", y=unit, title=title)
            axes.set_xlim(weeks[0], weeks[-1])
            axes.set_ylim(0, 1.22 * highest)
            axes.yaxis.set_major_formatter("{x:.0%}" if len(lines) > 1 else "{x:,.0f}")
            locator = AutoDateLocator(maxticks=5)
            axes.xaxis.set_major_locator(locator)
            axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        made.suptitle(
            f"Eviction notices of an invented city: true (grey) and synthetic (blue) in {steps} weekly releases, "
            f"together {guarantee} for one notice in one week.\n"
            + "Dashed: a new policy. " * (steps > CHANGE_AT)
            + "Contains private truth: for evaluation only.",
            fontsize=12,
            color=WARNING,
        )
        check_target(path)
        Picture(made, private=True).save(path)
