"""The demo's one picture: small multiples of true and synthetic values over time."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.files import check_target
from dpstream.tools.demo.series import Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

# Grey and one blue of the Okabe-Ito palette: told apart by lightness and width too, so in any colour vision
# and in print.
TRUTH, SYNTHETIC = "#b8b8b8", "#0072b2"
INK, QUIET, WARNING = "#222222", "#6a6a6a", "#a63603"
_COLUMNS = 3

#: Matplotlib's numbers of days.
Days = NDArray[np.float64]


def draw(
    path: Path,
    panels: Sequence[Panel],
    series: Sequence[Series],
    days: Sequence[datetime.date],
    *,
    guarantee: str,
    policy: datetime.date | None,
) -> None:
    """Write the picture.

    Args:
        path: of the PNG.
        panels, series: the frames, and the curves of all their lines in order.
        days: of the steps.
        guarantee: such as ``epsilon = 1 (pure)``.
        policy: when the change of policy begins, if it does.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import date2num
    from matplotlib.figure import Figure

    rows = -(-len(panels) // _COLUMNS)
    style = {"font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11}
    with rc_context(style):
        figure = Figure(figsize=(12.8, 2.1 + 2.85 * rows), dpi=150, facecolor="white")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, _COLUMNS, squeeze=False, sharex=True)
        place: Days = np.array([date2num(day) for day in days])
        remaining = list(series)
        for position, axes in enumerate(grid.ravel()):
            if position >= len(panels):
                axes.set_visible(False)
                continue
            panel = panels[position]
            own, remaining = remaining[: len(panel.lines)], remaining[len(panel.lines) :]
            _panel(axes, panel, own, place)
            if policy is not None:
                _policy(axes, date2num(policy), named=position == 1)
        _frame(figure, len(days), guarantee)
        check_target(path)
        figure.savefig(path)


def _panel(axes: Axes, panel: Panel, own: Sequence[Series], days: Days) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    shares = panel.lines[0].question is not None
    for one in own:
        axes.plot(days, one.truth, color=TRUTH, linewidth=5, solid_capstyle="round", zorder=2)
        axes.plot(days, one.synthetic, color=SYNTHETIC, linewidth=1.6, zorder=3)
    top = _top(own)
    axes.set_ylim(0, top)
    axes.yaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3))
    axes.yaxis.set_major_formatter(FuncFormatter(_percent if shares else _number))
    axes.set_title(panel.title, loc="left", color=INK, pad=23, fontweight="bold")
    axes.annotate(
        _gap(panel, own, shares),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 9),
        textcoords="offset points",
        color=QUIET,
        fontsize=9.5,
    )
    axes.grid(axis="y", color="#ececec", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.tick_params(length=0, colors=QUIET, labelsize=9)
    _days(axes, days)
    if len(own) > 1:
        _labels(axes, own, days, top)


def _top(own: Sequence[Series]) -> float:
    """Upper end of the axis: room for what the curves show, without the very first, almost empty tables."""
    most = max(
        float(np.nanmax(part[len(part) // 20 :])) for one in own for part in (one.truth, one.synthetic)
    )
    return 1.22 * most if most > 0 else 1.0


def _days(axes: Axes, days: Days) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter, MonthLocator

    axes.set_xlim(days[0], days[-1])
    if days[-1] - days[0] < 200:
        locator = AutoDateLocator(maxticks=5)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    else:
        every = max(6, 6 * round((days[-1] - days[0]) / 730))
        axes.xaxis.set_major_locator(MonthLocator(range(1, 13, every) if every < 12 else [1]))
        axes.xaxis.set_major_formatter(DateFormatter("%b %Y"))


def _labels(axes: Axes, own: Sequence[Series], days: Days, top: float) -> None:
    """Names beside the true curves, four fifths along: the upper one's above it, the other's below."""
    from matplotlib.patheffects import withStroke

    steps = len(days)
    place = round(0.8 * (steps - 1))
    near = slice(place - steps // 7, place + steps // 7 + 1)
    for rank, one in enumerate(sorted(own, key=lambda one: float(one.truth[place]), reverse=True)):
        above = rank == 0 or float(np.nanmin(one.truth[near])) < 0.16 * top
        edge = _edge(one, near, above, top)
        axes.annotate(
            one.line.label,
            (days[place], edge),
            xytext=(0, 7 if above else -7),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            color=INK,
            fontsize=9.5,
            zorder=4,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


def _edge(one: Series, near: slice, above: bool, top: float) -> float:
    """The height from which a label keeps clear of its true curve, and of its synthetic one if that is close."""
    pick = np.nanmax if above else np.nanmin
    truth, synthetic = float(pick(one.truth[near])), float(pick(one.synthetic[near]))
    beyond = synthetic - truth if above else truth - synthetic
    return synthetic if 0 < beyond < 0.15 * top else truth


def _gap(panel: Panel, own: Sequence[Series], shares: bool) -> str:
    """What is measured, and how far apart the curves are on the mean over all steps."""
    gap = sum(one.gap for one in own) / len(own)
    return f"{panel.what}; mean gap " + (f"{100 * gap:.1f} points" if shares else f"{gap:,.0f}")


def _policy(axes: Axes, day: float, *, named: bool) -> None:
    """Where the change of policy begins."""
    axes.axvline(day, color="#999999", linewidth=1, linestyle=(0, (2, 2)), zorder=1)
    if named:
        axes.annotate(
            "notices for unpaid\nrent suspended",
            (day, 0.985),
            xycoords=("data", "axes fraction"),
            xytext=(5, 0),
            textcoords="offset points",
            va="top",
            color=QUIET,
            fontsize=8.5,
            linespacing=1.15,
        )


def _frame(figure: Any, steps: int, guarantee: str) -> None:
    """Title, key, and what nobody may overlook."""
    from matplotlib.lines import Line2D

    height = figure.get_size_inches()[1]

    def down(inches: float) -> float:
        return float(1 - inches / height)

    left = 0.05
    figure.subplots_adjust(
        left=left, right=0.975, top=down(1.95), bottom=0.6 / height, wspace=0.17, hspace=0.38
    )
    figure.text(
        left - 0.025,
        down(0.45),
        "How closely do the released synthetic tables follow the private one?",
        fontsize=18,
        fontweight="bold",
        color=INK,
    )
    figure.text(
        left - 0.025,
        down(0.78),
        f"Eviction notices of an invented city, {steps} weekly releases under one guarantee: {guarantee}, "
        "unit: one notice filed or withdrawn in one week.",
        fontsize=11,
        color=QUIET,
    )
    figure.legend(
        handles=[
            Line2D([], [], color=TRUTH, linewidth=5, label="true: the private table up to that week"),
            Line2D([], [], color=SYNTHETIC, linewidth=1.6, label="synthetic: the table released that week"),
        ],
        loc="center left",
        bbox_to_anchor=(left - 0.033, down(1.1)),
        ncols=2,
        frameon=False,
        fontsize=11,
        labelcolor=INK,
        handlelength=1.8,
        columnspacing=2.2,
    )
    figure.text(
        0.975,
        down(1.1),
        "Contains private truth: for evaluation only",
        ha="right",
        va="center",
        fontsize=11,
        fontweight="bold",
        color=WARNING,
    )


def _percent(value: float, _position: int) -> str:
    return f"{100 * value:.0f} %"


def _number(value: float, _position: int) -> str:
    return f"{value:,.0f}"
