"""``dpstream demo``: two commands on invented data, and a picture of true beside released values.

* The releases come from ``dpstream run`` and the noise of the operating system; ``--seed`` changes the invented data.
* Blue is counted in the released tables, as a reader of ``releases/`` would; grey in the data. The picture holds
  private truth, says so, and can be drawn only because the data are invented.
* A folder with somebody else's files is refused. An earlier demo's folder is made anew; what the demo did not write
  stays.
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
    from matplotlib.axes import Axes

    from dpstream.project import Config

#: Says that the demo made the folder; and everything else that a demo writes.
DEMO_MARKER, PICTURE = ".dpstream-demo", "demo.png"
_OURS = ("data", "releases", "state", "dpstream.toml", "README.md", "simulation.json", PICTURE)

#: A curve: its name, a question, and the question that says among whom; shares of them, or the number of all.
Curve = tuple[str, str, str]
#: Frames: what is in them, the unit of the axis, and one or two curves, the upper one (at the end) first.
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
_GREY, _BLUE, _INK, _QUIET, _WARNING = "#b8b8b8", "#0072b2", "#222222", "#6a6a6a", "#a63603"


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
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from dpstream.tools.simulate.evictions import CHANGE_AT, FIRST_DAY

    steps = values.shape[1]
    weeks = FIRST_DAY + 7 * np.arange(1, steps + 1) - 1
    with rc_context({"font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11}):
        figure = Figure(figsize=(12.8, 7.8), dpi=150, facecolor="white")
        FigureCanvasAgg(figure)
        figure.subplots_adjust(left=0.05, right=0.975, top=0.75, bottom=0.077, wspace=0.17, hspace=0.38)
        first = 0
        for place, axes in enumerate(figure.subplots(2, 3, sharex=True).ravel()):
            title, unit, lines = PICTURE_FRAMES[place]
            _panel(axes, title, unit, lines, weeks, values[:, :, first : first + len(lines)])
            first += len(lines)
            if steps > CHANGE_AT:
                axes.axvline(weeks[CHANGE_AT], color="#999999", linewidth=1, linestyle=(0, (2, 2)), zorder=1)
        says: dict[str, Any] = {"fontsize": 11, "color": _QUIET}
        figure.text(
            0.025,
            0.942,
            "How closely do the released synthetic tables follow the private one?",
            **{**says, "fontsize": 18, "fontweight": "bold", "color": _INK},
        )
        policy = " Dashed: a new policy." if steps > CHANGE_AT else ""
        figure.text(
            0.025,
            0.9,
            f"Eviction notices of an invented city, {steps} weekly releases, together {guarantee} for one notice in "
            f"one week.{policy}",
            **says,
        )
        figure.text(
            0.975,
            0.859,
            "Contains private truth: for evaluation only",
            **{**says, "color": _WARNING, "fontweight": "bold", "ha": "right", "va": "center"},
        )
        figure.legend(
            handles=[
                Line2D([], [], color=_GREY, linewidth=5, label="true: the private table up to that week"),
                Line2D([], [], color=_BLUE, linewidth=1.6, label="synthetic: the table released that week"),
            ],
            loc="center left",
            bbox_to_anchor=(0.017, 0.859),
            ncols=2,
            frameon=False,
            fontsize=11,
            labelcolor=_INK,
        )
        check_target(path)
        figure.savefig(path)


def _panel(
    axes: Axes,
    title: str,
    unit: str,
    lines: Sequence[Curve],
    weeks: NDArray[Any],
    values: NDArray[np.float64],
) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    shares = len(lines) > 1
    steps = len(weeks)
    # Without the very first, almost empty tables; and with room for the curves' names.
    top = 1.22 * float(np.nanmax(values[:, steps // 20 :]))
    axes.plot(weeks, values[0], color=_GREY, linewidth=5, solid_capstyle="round", zorder=2)
    axes.plot(weeks, values[1], color=_BLUE, linewidth=1.6, zorder=3)
    for rank, (label, *_) in enumerate(lines if shares else ()):
        at = round(0.8 * (steps - 1))
        near = values[0, max(0, at - steps // 7) : at + steps // 7 + 1, rank]
        above = rank == 0 or np.nanmin(near) < 0.16 * top
        axes.annotate(
            label,
            (weeks[at], np.nanmax(near) if above else np.nanmin(near)),
            xytext=(0, 7 if above else -7),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            color=_INK,
            fontsize=9.5,
            zorder=4,
        )
    gap = float(np.nanmean(np.abs(values[0] - values[1])))
    axes.set_title(title, loc="left", color=_INK, pad=23, fontweight="bold")
    axes.annotate(
        f"{unit}; mean gap " + (f"{100 * gap:.1f} points" if shares else f"{gap:,.0f}"),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 9),
        textcoords="offset points",
        color=_QUIET,
        fontsize=9.5,
    )
    axes.set_ylim(0, top)
    axes.set_xlim(weeks[0], weeks[-1])
    locator = AutoDateLocator(maxticks=5)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.yaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3))
    axes.yaxis.set_major_formatter("{x:.0%}" if shares else "{x:,.0f}")
    axes.grid(axis="y", color="#ececec", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.tick_params(length=0, colors=_QUIET, labelsize=9)
