"""The pictures of docs/start: true numbers beside released ones, from the folders that benchmarks/tutorials.py made."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import dpstream as dp

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
TRUE, OURS = "#8a8f98", "#1f6fb2"
STYLE = {
    "font.size": 10,
    "font.family": "sans-serif",
    "svg.hashsalt": "dpstream",
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "figure.facecolor": "white",
}


def rows(folder: Path) -> list[dict[str, str]]:
    """The private rows, as text."""
    found: list[dict[str, str]] = []
    for path in sorted((folder / "data").glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            found += csv.DictReader(file)
    return found


def released(folder: Path, count: Callable[[pa.Table], float]) -> tuple[list[int], list[float]]:
    """A number of every released table, by step."""
    newest = dp.read(folder)
    return list(newest.steps), [count(newest.table(step)) for step in newest.steps]


def label(axes: Axes, x: Any, y: Any, text: str, colour: str, up: float = 0) -> None:
    """Words beside the end of a curve."""
    axes.annotate(text, (x, y), xytext=(6, up), textcoords="offset points", color=colour, va="center")


def table(folder: Path) -> Figure:
    """Notices by week, and by district at the end."""
    place = folder / "table" / "notices"
    private, first = rows(place), datetime.date(2001, 1, 1)
    signs = np.array([1 if row["op"] == "insert" else -1 for row in private])
    weeks = np.array(
        [(datetime.date.fromisoformat(row["file_date"]) - first).days // 7 + 1 for row in private]
    )
    steps, sizes = released(place / "releases", lambda one: one.num_rows)
    true = [int(signs[weeks <= step].sum()) for step in steps]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), width_ratios=(3, 2))
    left.plot(steps, true, color=TRUE, lw=2)
    left.plot(steps, sizes, color=OURS, lw=2)
    above = 8 if true[-1] > sizes[-1] else -8
    label(left, steps[-1], true[-1], "true", TRUE, above)
    label(left, steps[-1], sizes[-1], "released", OURS, -above)
    left.set(title="Notices in the table", xlabel="week", xlim=(0, steps[-1] + 4), ylim=(0, None))
    measured = dp.read(place / "releases").measured(["district"])
    assert measured is not None
    here = np.where(weeks <= measured.as_of, [row["district"] or "missing" for row in private], "later")
    names = [str(one) for one in measured.labels[0]]
    low, high = measured.interval(0.95)
    y = np.arange(len(names))[::-1]
    right.hlines(y, low, high, color=OURS, lw=2, alpha=0.5)
    right.plot(measured.values, y, "o", color=OURS)
    right.plot([signs[here == name].sum() for name in names], y, "|", color="black", ms=14, mew=2)
    right.set(
        title=f"By district, as of week {measured.as_of}", yticks=y, xlabel="measured, 95 %; true: black"
    )
    right.set_yticklabels(names)
    return figure


def panel(folder: Path) -> Figure:
    """Households poor in at least one of three months."""
    place = folder / "panel" / "poverty"
    poor = np.array([[row[f"poor_{month}"] == "1" for month in range(1, 13)] for row in rows(place)])
    newest = dp.read(place / "releases")
    months = range(3, 13)
    found = [
        next(
            one
            for one in newest.manifest(month)["accuracy"]["panel"]["answers"]
            if "at least 1" in one["question"]
        )
        for month in months
    ]
    share = np.array([one["share"] for one in found]) * 100
    error = np.array([one["share_standard_error"] for one in found]) * 196
    true = [poor[:, month - 3 : month].any(axis=1).mean() * 100 for month in months]
    figure, axes = plt.subplots(figsize=(7, 3))
    axes.fill_between(months, share - error, share + error, color=OURS, alpha=0.2, lw=0)
    axes.plot(months, true, color=TRUE, lw=2)
    axes.plot(months, share, color=OURS, lw=2)
    above = 8 if true[-1] > share[-1] else -8
    label(axes, 12, true[-1], "true", TRUE, above)
    label(axes, 12, share[-1], "released, 95 %", OURS, -above)
    axes.set(
        title="Poor in at least one of the last three months, % of households", xlabel="month", xlim=(3, 14)
    )
    axes.set(ylim=(12, 15), xticks=list(months))
    return figure


def points(folder: Path) -> Figure:
    """Two maps."""
    place = folder / "points" / "city"
    private, ours = rows(place), dp.read(place / "releases").table()
    found = {
        "Rides (true)": [
            np.array([float(row[name]) for row in private]) for name in ("longitude", "latitude")
        ],
        "Released points": [ours[name].to_numpy() for name in ("longitude", "latitude")],
    }
    figure, both = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True)
    for axes, (title, (east, north)) in zip(both, found.items(), strict=True):
        counts, x, y = np.histogram2d(east, north, bins=70, range=((7.3, 7.5), (46.9, 47.0)))
        axes.pcolormesh(x, y, np.sqrt(counts.T), cmap="Blues", vmin=0, vmax=16, rasterized=True)
        axes.set(title=f"{title}: {len(east):,}", xlabel="longitude", aspect=1.46)
    both[0].set_ylabel("latitude")
    return figure


def growing(folder: Path) -> Figure:
    """A share by day, with the days of runs."""
    place = folder / "growing" / "interviews"
    private = rows(place)
    yes = np.array(
        [row["education"] in HIGH and row["income_over_50k"] in ("true", "True", "1") for row in private]
    )
    days = np.array([int(row["step"]) for row in private])

    def share(one: pa.Table) -> float:
        high = pc.is_in(one["education"].cast(pa.string()), pa.array(HIGH))
        return float(
            pc.mean(pc.and_(high, one["income_over_50k"].cast(pa.bool_())).cast(pa.int8())).as_py() * 100
        )

    steps, ours = released(place / "growing", share)
    newest = dp.read(place / "growing")
    runs = [newest.manifest(step)["accuracy"].get("run") for step in steps]
    fresh = [
        i
        for i, one in enumerate(runs)
        if one and (i == 0 or not runs[i - 1] or one["number"] != runs[i - 1]["number"])
    ]
    true = [yes[days <= step].mean() * 100 for step in steps]
    figure, axes = plt.subplots(figsize=(7, 3))
    axes.plot(steps, true, color=TRUE, lw=2)
    axes.step(steps, ours, where="post", color=OURS, lw=2)
    axes.plot([steps[i] for i in fresh], [ours[i] for i in fresh], "o", color=OURS)
    above = 8 if true[-1] > ours[-1] else -8
    label(axes, steps[-1], true[-1], "true", TRUE, above)
    label(axes, steps[-1], ours[-1], "released (dot: a run)", OURS, -above)
    axes.set(title="Bachelor or more, and over 50k: % of interviews", xlabel="day", ylim=(0, None))
    axes.set(xlim=(1, steps[-1] + 3.5), xticks=steps)
    return figure


HIGH = ["bachelor", "master", "doctorate"]


def draw(folder: Path) -> None:
    """Write all pictures."""
    with mpl.rc_context(STYLE):
        for one in (table, panel, points, growing):
            figure = one(folder)
            figure.tight_layout()
            figure.savefig(IMAGES / f"start-{one.__name__}.svg", metadata={"Date": None}, dpi=130)
            plt.close(figure)
