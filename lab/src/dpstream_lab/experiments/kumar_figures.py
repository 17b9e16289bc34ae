"""The paper's figures: errors over time, one line per method, one panel per metric and epsilon."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.stream.release.pictures import PALETTE, QUIET, dress, figure
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream_lab.experiments.grid import Result
from dpstream_lab.experiments.kumar_tables import PRINTED_AS, Printed
from dpstream_lab.experiments.private_output import PrivateFolder

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Figure -> the metrics of its rows, with what an axis says.
GROUPS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "errors": (
        ("AvgWE", "AvgWE\n(share of the table, per cell)"),
        ("MaxWE", "MaxWE\n(share of the table, per cell)"),
    ),
    "relative": (
        ("AvgRelWE", "AvgRelWE\n(error / true count)"),
        ("MaxRelWE", "MaxRelWE\n(error / true count)"),
        ("AvgL1", "AvgL1\n(share of the table)"),
        ("MaxL1", "MaxL1\n(share of the table)"),
    ),
}
_FOLDER = "figures"
_MARKERS = "oDsv^P*"


def require_matplotlib() -> None:
    """Before hours of work: figures need matplotlib.

    Errors:
        ConfigError: says how to install it, and how to do without.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            "matplotlib is not installed",
            where="figures",
            allowed="pip install 'dpstream[plot]', or --no-figures",
        )


def draw_error_figures(
    results: Sequence[Result], folder: PrivateFolder, printed: Printed | None = None
) -> list[str]:
    """Write ``figures/STREAM-errors.png`` and ``figures/STREAM-relative.png``; returns their names.

    Lines are means over the repetitions, bands go from the lowest to the highest. A method that ran once on the
    final table is a dashed line. Printed numbers are marked at the end.
    """
    names = []
    for stream in dict.fromkeys(result.task.source.label for result in results):
        own = [result for result in results if result.task.source.label == stream]
        for group, metrics in GROUPS.items():
            names.append(f"{_FOLDER}/{stream}-{group}.png")
            folder.write(names[-1], _draw(stream, own, metrics, printed))
    return names


def _draw(
    stream: str, results: Sequence[Result], metrics: Sequence[tuple[str, str]], printed: Printed | None
) -> bytes:
    epsilons = sorted({result.task.epsilon for result in results}, key=Fraction)
    methods = list(dict.fromkeys(result.task.method.label for result in results))
    out = io.BytesIO()
    width = max(5.4, 3.1 * len(epsilons) + 0.8)
    with figure(width, 2.6 * len(metrics) + 1.2) as made:
        grid = made.subplots(len(metrics), len(epsilons), squeeze=False, sharex=True, sharey="row")
        for row, (metric, label) in enumerate(metrics):
            for column, epsilon in enumerate(epsilons):
                axes = grid[row][column]
                for place, method in enumerate(methods):
                    group = [r for r in results if (r.task.epsilon, r.task.method.label) == (epsilon, method)]
                    if group:
                        paper = _paper(printed, stream, epsilon, metric, method)
                        _line(axes, group, metric, place, paper)
                dress(
                    axes,
                    x="step" if row == len(metrics) - 1 else "",
                    y=label if column == 0 else "",
                    title=f"epsilon {epsilon}" if row == 0 else "",
                )
                axes.set_yscale("log")
            _ticks(grid[row][0])
        handles: dict[str, Artist] = {}
        for axes in grid.flat:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        made.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper left",
            # About what the longest label takes, in inches.
            ncols=max(2, int(width / 3)),
            frameon=False,
            fontsize=9,
            title=stream,
            title_fontproperties={"weight": "bold", "size": 12},
            alignment="left",
        )
        made.supxlabel(
            f"{LABEL}; bands: lowest to highest repetition", fontsize=8.5, color=QUIET, x=0.01, ha="left"
        )
        made.savefig(out, format="png")
    return out.getvalue()


def _ticks(axes: Axes) -> None:
    """Plain numbers on a logarithmic axis, as many as its range bears."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axes.get_ylim()
    span = high / low
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8) if span < 6 else (1, 2, 5) if span < 200 else (1,)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=steps))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _paper(printed: Printed | None, stream: str, epsilon: str, metric: str, method: str) -> float | None:
    found = None if printed is None else printed.get((stream, Fraction(epsilon), PRINTED_AS[metric], method))
    return found.value if found is not None and found.target else None


def _line(axes: Axes, group: Sequence[Result], metric: str, place: int, paper: float | None) -> None:
    colour, marker = PALETTE[place % len(PALETTE)], _MARKERS[place % len(_MARKERS)]
    method = group[0].task.method.label
    steps = np.array(group[0].values["points"]["step"])
    values = _numbers(group, metric)
    known = ~np.isnan(values).all(axis=0)
    if not known.any():
        return
    steps, values = steps[known], values[:, known]
    middle = np.nanmean(values, axis=0)
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    if group[0].task.once:
        axes.axhline(
            middle[-1], color=colour, linestyle="--", linewidth=1.4, label=f"{method} (once, final table)"
        )
        return
    # A stream of one step has no line to draw.
    dot = marker if len(steps) == 1 else "none"
    axes.plot(steps, middle, color=colour, linewidth=1.6, label=method, marker=dot)
    axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    if paper is not None:
        axes.plot(
            steps[-1], paper, linestyle="none", marker=marker, markersize=7, markerfacecolor="white",
            markeredgecolor=colour, markeredgewidth=1.6, clip_on=False, zorder=5, label=f"{method}, in print",
        )  # fmt: skip


def _numbers(group: Sequence[Result], metric: str) -> NDArray[np.float64]:
    """(repetitions, points); blanks are NaN, and so is 0, which a logarithm cannot show."""
    values = np.array([r.values["points"][metric] for r in group], dtype=np.float64)
    values[values <= 0.0] = np.nan
    return values
