"""Pictures of an evaluation: errors over time, associations, and the marginals that fare worst."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.evaluate.evaluation import Evaluation
from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.evaluate.private_folder import write_private
from dpstream.tools.evaluate.style import INK, PALETTE, QUIET, dress, figure, save
from dpstream.tools.evaluate.utility import Utility

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

#: A curve whose largest value is so many times its smallest is drawn on a logarithmic axis.
_LOGARITHMIC = 20.0
#: Curves of more steps are lines without a mark at every step.
_MARKED_STEPS = 60
#: More columns than this get no names in the heat maps (they could not be read).
_NAMED_COLUMNS = 40


def draw(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write the pictures that the evaluation has numbers for, each with the label at its foot.

    Errors:
        ConfigError: matplotlib is not installed.
    """
    written = [_errors(evaluation, folder / "errors.png")]
    if evaluation.utility is not None:
        written.append(_associations(evaluation, evaluation.utility, folder / "association.png"))
    if evaluation.worst(1):
        written.append(_worst(evaluation, folder / "workloads.png"))
    return written


def _errors(evaluation: Evaluation, path: Path) -> Path:
    steps = np.array([entry.step for entry in evaluation.steps])
    found = [entry.errors.as_dict() for entry in evaluation.steps]

    def of(name: str, scale: float = 1.0) -> NDArray[np.float64]:
        return scale * np.array([errors[name] for errors in found])

    moved = np.array([np.nan if entry.churn is None else 100 * entry.churn for entry in evaluation.steps])
    panels: list[tuple[str, str, list[tuple[str, NDArray[np.float64]]]]] = [
        (
            "Error of one cell (WE)",
            "share of the true table, %",
            [("mean of the marginals", of("AvgWE", 100)), ("worst marginal", of("MaxWE", 100))],
        ),
        (
            "Error of all cells together (L1)",
            "share of the true table, %",
            [("mean of the marginals", of("AvgL1", 100)), ("worst marginal", of("MaxL1", 100))],
        ),
        (
            "Relative error of one cell (RelWE)",
            "times the true count",
            [
                ("mean, filled cells", of("AvgRelWE")),
                ("worst, filled cells", of("MaxRelWE")),
                ("mean, all cells (floor 1)", of("AvgRelWEFloor")),
                ("worst, all cells (floor 1)", of("MaxRelWEFloor")),
            ],
        ),
        (
            "Change against the release before",
            "total variation, % (public)",
            [("mean of the marginals", moved)],
        ),
    ]
    with figure(10, 6.6) as made:
        for axes, (title, unit, curves) in zip(made.subplots(2, 2).flat, panels, strict=True):
            _curves(axes, steps, curves)
            dress(axes, x="step", y=unit, title=title)
        _finish(made, evaluation, path)
    return path


def _curves(axes: Axes, steps: NDArray[np.int64], curves: Sequence[tuple[str, NDArray[np.float64]]]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    known = np.concatenate([values[np.isfinite(values)] for _, values in curves])
    marker = "o" if len(steps) <= _MARKED_STEPS else ""
    for color, (name, values) in zip(PALETTE, curves, strict=False):
        axes.plot(
            steps, values, color=color, linewidth=1.6, marker=marker, markersize=2.6, label=name, zorder=3
        )
    if not known.size:
        axes.text(0.5, 0.5, "no number", transform=axes.transAxes, ha="center", color=QUIET)
        axes.set_yticks([])
    elif known.min() > 0 and known.max() > _LOGARITHMIC * known.min():
        axes.set_yscale("log")
        low, high = float(known.min()), float(known.max())
        axes.set_ylim(low / 1.3, high * (high / low) ** (0.35 if len(curves) > 1 else 0.05))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, max(1e-9, (1.25 if len(curves) > 1 else 1.08) * float(known.max())))
    axes.locator_params(axis="x", integer=True) if len(steps) > 1 else axes.set_xticks(steps)
    if len(curves) > 1:
        axes.legend(
            frameon=False, fontsize=7.5, labelcolor=INK, loc="upper right", ncols=2 if len(curves) > 2 else 1
        )


def _associations(evaluation: Evaluation, utility: Utility, path: Path) -> Path:
    columns = len(utility.columns)
    size = 3.2 + 0.12 * min(columns, _NAMED_COLUMNS)
    widest = float(np.nanmax(np.abs(utility.difference))) if np.isfinite(utility.difference).any() else 0.0
    reach = max(0.05, widest)
    panels = (
        ("True table", utility.true_association, "Blues", 0.0, 1.0, "Cramer's V, 0 to 1"),
        ("Synthetic table", utility.synthetic_association, "Blues", 0.0, 1.0, "Cramer's V, 0 to 1"),
        ("Synthetic minus true", utility.difference, "PuOr", -reach, reach, "difference of Cramer's V"),
    )
    with figure(3 * size, size + 0.8) as made:
        for number, (axes, panel) in enumerate(zip(made.subplots(1, 3), panels, strict=True)):
            title, matrix, colors, low, high, unit = panel
            image = axes.imshow(np.ma.masked_invalid(matrix), cmap=colors, vmin=low, vmax=high)
            axes.set_facecolor("#e4e4e4")
            bar = made.colorbar(image, ax=axes, location="bottom", shrink=0.8, aspect=30)
            bar.set_label(unit, color=QUIET, fontsize=9)
            bar.outline.set_visible(False)
            bar.ax.tick_params(colors=QUIET, labelsize=8)
            dress(axes, x="column", y="column" if number == 0 else "", title=title)
            _name_columns(axes, utility.columns, left=number == 0)
        _finish(
            made, evaluation, path, f"step {evaluation.last.step}; grey: no association (a constant column)"
        )
    return path


def _name_columns(axes: Axes, names: Sequence[str], *, left: bool) -> None:
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)
    if len(names) > _NAMED_COLUMNS:
        axes.set_xlabel("column, by its position")
        return
    places = range(len(names))
    font = 8 if len(names) <= 15 else 6
    axes.set_xticks(places, [_short(name) for name in names], rotation=90, fontsize=font)
    axes.set_yticks(places, [_short(name) for name in names] if left else [], fontsize=font)
    if not left:
        axes.set_yticks([])


def _worst(evaluation: Evaluation, path: Path) -> Path:
    worst = evaluation.worst(15)[::-1]
    names = [" x ".join(_short(name) for name in evaluation.columns[i]) for i, _ in worst]
    values = [100 * error for _, error in worst]
    with figure(8, 1.5 + 0.27 * len(worst)) as made:
        axes = made.subplots()
        axes.barh(names, values, color=PALETTE[0], height=0.65, zorder=3)
        mean = 100 * evaluation.last.errors.avg_l1
        axes.axvline(mean, color=PALETTE[1], linewidth=1.4, zorder=4, label="mean of all marginals")
        dress(
            axes,
            x="error of all cells together (L1), share of the true table, %",
            y="marginal",
            title=f"Marginals with the largest error, step {evaluation.last.step}",
        )
        axes.grid(axis="x", color="#ececec", linewidth=0.8, zorder=0)
        axes.grid(axis="y", visible=False)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right")
        _finish(made, evaluation, path)
    return path


def _short(name: str) -> str:
    return name if len(name) <= 22 else name[:20] + "..."


def _finish(made: Figure, evaluation: Evaluation, path: Path, remark: str = "") -> None:
    # Created with its rights first: the picture is never readable by others, not even while it is written.
    write_private(path, b"")
    about = f"{evaluation.stream}, {evaluation.workload}, {evaluation.synthetic}"
    save(made, path, f"{LABEL} ({'; '.join(filter(None, (about, remark)))})")
