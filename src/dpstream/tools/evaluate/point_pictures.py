"""Pictures of a point stream's evaluation: maps over time with the partition, distances, errors of cells."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.evaluate.point_maps import density, leaves, pairs_of, profile, top_share
from dpstream.tools.evaluate.private_folder import write_private
from dpstream.tools.evaluate.style import INK, PALETTE, QUIET, TRUTH, dress, figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

#: Of ``point_run``, which imports this module.
PointEvaluation = Any

_SIDE, _PARTS = 64, 128
_MAPS = 5
_CELLS = 64


def draw(found: PointEvaluation, folder: Path) -> list[Path]:
    """Write the pictures, each with the label at its foot.

    Errors:
        ConfigError: matplotlib is not installed.
    """
    return [
        _maps(found, folder / "maps.png"),
        _distances(found, folder / "distance.png"),
        _cells(found, folder / "cells.png"),
    ]


def _maps(found: PointEvaluation, path: Path) -> Path:
    """A column for each of some steps; two rows for each pair of coordinates, synthetic above true."""
    run = found.run
    chosen = sorted(
        {int(i) for i in np.linspace(0, len(run.tables) - 1, min(_MAPS, len(run.tables))).round()}
    )
    pairs = pairs_of(run.view.coordinates)
    flat = len(pairs[0]) == 1
    rows = 1 if flat else 2 * len(pairs)
    with figure(2.6 * len(chosen) + 0.9, (2.3 if flat else 2.5) * rows + 0.8) as made:
        grid = made.subplots(rows, len(chosen), squeeze=False, sharex=flat, sharey=flat)
        for number, axes in enumerate(pairs):
            own = grid[0] if flat else grid[2 * number : 2 * number + 2]
            _one_pair(found, axes, chosen, own)
        for axes, i in zip(grid[0], chosen, strict=True):
            axes.set_title(f"step {run.tables[i].step}", loc="left", color=INK, fontsize=10)
        if flat:
            made.legend(
                *grid[0][0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2
            )
        said = "" if flat else "; lines: the partition of the synthetic points"
        if run.view.categorical and not flat:
            said = "; all categories together"
        _finish(
            made, found, path, f"one scale in each two rows{said}" if not flat else "densities, one scale"
        )
    return path


def _one_pair(found: PointEvaluation, axes: tuple[int, ...], chosen: list[int], grid: Any) -> None:
    run, view = found.run, found.run.view
    synthetic = [view.places(run.tables[i].codes) for i in chosen]
    true = [view.places(found.truth[i]) for i in chosen]
    if len(axes) == 1:
        parts = view.parts(0, _PARTS)
        for place, mine, theirs in zip(grid, synthetic, true, strict=True):
            _profile(place, profile(theirs, parts), TRUTH, 3.0, "true (private)")
            _profile(place, profile(mine, parts), PALETTE[0], 1.3, "synthetic")
            dress(place, x=_axis(found, 0), y="density" if place is grid[0] else "")
            place.set_yticks([])
        return
    pair = (axes[0], axes[1])
    sides = (view.parts(axes[0], _SIDE), view.parts(axes[1], _SIDE))
    drawn = [[density(one, pair, sides) for one in row] for row in (synthetic, true)]
    top = top_share([one for row in drawn for one in row])
    for row, (line, name) in enumerate(zip(drawn, ("synthetic", "true (private)"), strict=True)):
        for column, shares in enumerate(line):
            place = grid[row][column]
            _map(place, shares, top)
            if row == 0 and len(view.coordinates) == 2 and not view.categorical:
                _outline(found, chosen[column], pair, place)
            place.set_ylabel(
                f"{name}\n{_axis(found, axes[1])}" if column == 0 else "", color=QUIET, fontsize=8
            )
            place.set_xlabel(
                _axis(found, axes[0]) if row == 1 and column == 0 else "", color=QUIET, fontsize=8
            )


def _map(axes: Axes, shares: NDArray[np.float64], top: float) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("share", ["#ffffff", PALETTE[0], "#00273f"])
    axes.imshow(np.sqrt(np.minimum(shares / top, 1.0)), cmap=colours, vmin=0, vmax=1, extent=(0, 1, 0, 1))
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#cccccc")


def _outline(found: PointEvaluation, number: int, pair: tuple[int, int], axes: Axes) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    table, space = found.run.tables[number], found.run.view.space
    cells = leaves(space, space.cells_of(table.codes) >> (space.depth - table.depth), table.depth, _CELLS)
    x, y = pair
    boxes = [
        Rectangle((low[x], low[y]), high[x] - low[x], high[y] - low[y])
        for low, high in zip(cells.low, cells.high, strict=True)
    ]
    axes.add_collection(
        PatchCollection(boxes, facecolor="none", edgecolor=PALETTE[1], linewidth=0.35, alpha=0.8)
    )


def _profile(axes: Axes, shares: NDArray[np.float64], colour: str, width: float, name: str) -> None:
    axes.stairs(shares, np.linspace(0, 1, len(shares) + 1), color=colour, linewidth=width, label=name)
    axes.set_xticks([])


def _distances(found: PointEvaluation, path: Path) -> Path:
    steps = [one.step for one in found.steps]
    with figure(8, 4.2) as made:
        axes = made.subplots()
        kinds = (
            ("released points", [one.distance for one in found.steps], PALETTE[0], "o"),
            ("points spread evenly instead", [one.uniform for one in found.steps], PALETTE[1], "s"),
        )
        for name, distances, colour, marker in kinds:
            low, high, middle = ([getattr(d, end) for d in distances] for end in ("lower", "upper", "value"))
            axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
            axes.plot(steps, middle, color=colour, marker=marker, markersize=4, linewidth=1.8, label=name)
        dress(axes, x="step", y="W1, in sides of the space", title="Distance to the true points")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
        bands = "" if found.steps[-1].distance.how == "exact" else "shaded: certain bounds"
        _finish(made, found, path, bands)
    return path


def _cells(found: PointEvaluation, path: Path) -> Path:
    """How many points are in a wrong cell, by the cells' depth; and how points, cells and depth grew."""
    steps = [one.step for one in found.steps]
    with figure(10, 4.2) as made:
        left, right = made.subplots(1, 2, width_ratios=(3, 2))
        shades = np.linspace(0.25, 1.0, len(found.steps))
        for one, shade in zip(found.steps, shades, strict=True):
            ends = one in (found.steps[0], found.steps[-1])
            left.plot(
                [cell.depth for cell in one.cells],
                [100 * cell.variation for cell in one.cells],
                color=PALETTE[0],
                alpha=float(shade),
                linewidth=1.5,
                label=f"step {one.step}" if ends else None,
            )
        dress(left, x="depth of the cells", y="points in a wrong cell, %", title="Counts of cells")
        left.set_ylim(bottom=0)
        left.legend(frameon=False, fontsize=9, labelcolor=INK)
        right.plot(steps, [one.points for one in found.steps], color=INK, linewidth=1.8, label="points")
        right.step(
            steps,
            [2**one.depth for one in found.steps],
            where="mid",
            color=PALETTE[1],
            label="cells (2^depth)",
        )
        dress(right, x="step", y="number", title="Points and cells")
        right.set_yscale("log")
        right.legend(frameon=False, fontsize=9, labelcolor=INK)
        _finish(made, found, path)
    return path


def _axis(found: PointEvaluation, coordinate: int) -> str:
    view = found.run.view
    low, high = view.ends(coordinate)
    name = view.coordinates[coordinate]
    name = name if len(name) <= 22 else name[:20] + "..."
    return f"{name}, {low} to {high}{view.scale_words(coordinate)}"


def _finish(made: Figure, found: PointEvaluation, path: Path, remark: str = "") -> None:
    # Created with its rights first: the picture is never readable by others, not even while it is written.
    write_private(path, b"")
    save(made, path, f"{LABEL} ({'; '.join(filter(None, (found.stream, remark)))})")
