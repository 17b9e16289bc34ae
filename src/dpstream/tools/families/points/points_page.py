"""The page of a point stream."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.evaluate.array_types import Floats, Ints
from dpstream.tools.evaluate.run_folder import Folder
from dpstream.tools.families.points.point_releases import PointRun, PointView, collect_points
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.charts import Charts
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Html, block, integer, percent
from dpstream.tools.report.plain_page import rows_over_time, states

#: Squares along a side of a map, and of the large one: powers of 2, as cells are; parts of a single coordinate.
_SIDE, _LARGE_SIDE = 32, 64
_PARTS = 128
#: Dates whose maps are drawn.
MAX_MAPS = 6
_ROWS = 20


def _releases(run: PointRun, charts: Charts) -> Html:
    """How many points there are, and how fine the partition of the newest table is."""
    depth = run.tables[-1].depth if run.tables else None
    figure = rows_over_time(run, charts)
    return block("points", "releases", states=states(run.states), depth=depth, figure=figure)


def _where(run: PointRun, dates: Calendar) -> Html:
    """The section of maps: the first two coordinates over time, with a slider; other pairs as they are now."""
    if not run.tables:
        return block("points", "where", maps=None)
    view = run.view
    first, *others = pairs_of(view.coordinates)
    chosen = sorted({int(i) for i in np.linspace(0, len(run.tables) - 1, MAX_MAPS).round()})
    made = [view.places(run.tables[i].codes) for i in chosen]
    names = [dates.name(run.tables[i].step) for i in chosen]
    return block(
        "points",
        "where",
        maps=_slides(view, first, made, names, _LARGE_SIDE),
        others=[_slides(view, axes, made[-1:], names[-1:], _SIDE) for axes in others],
        left=math.comb(len(view.coordinates), 2) - MAX_PAIRS,
    )


def _slides(
    view: PointView, axes: tuple[int, ...], made: list[Floats], names: Sequence[str], side: int
) -> Html:
    """Maps, one after the other, with one scale of colours."""
    # One coordinate is a map of one row.
    rows = view.parts(axes[1], side) if len(axes) > 1 else 1
    columns = view.parts(axes[0], side if len(axes) > 1 else _PARTS)
    drawn = [density(places, axes, (columns, rows)) for places in made]
    top = top_share(drawn)
    return block(
        "points",
        "slides",
        maps=[
            (name, columns, rows, map_paths(shares, top)) for name, shares in zip(names, drawn, strict=True)
        ],
        sides=[(view.coordinates[axis], view.scale_words(axis), *view.ends(axis)) for axis in axes],
        even=top * columns * rows,
        levels=LEVELS,
    )


def _categories(run: PointRun, dates: Calendar) -> Html | None:
    """Shares of the categories."""
    view = run.view
    if not view.categorical or not run.tables:
        return None
    last, many = run.tables[-1], view.space.categories
    counts = np.bincount(view.categories(last.codes), minlength=many)
    rows = [
        [view.category_name(category), integer(counts[category]), percent(counts[category] / len(last.codes))]
        for category in np.argsort(-counts, kind="stable")[:_ROWS].tolist()
    ]
    when = dates.words(last.step)
    return block("points", "categories", names=view.categorical, when=when, rows=rows, left=many - len(rows))


def _errors(run: PointRun) -> Html:
    """What can be said about how far the points are from the true ones, and how large the smallest cells are."""
    cell, view = [], run.view
    if run.tables:
        low, high = view.space.boxes(np.zeros(1, np.int64), run.tables[-1].depth)
        shares = ((high - low)[0] / np.array(view.space.sizes))[~np.array(view.space.categorical)]
        cell = list(zip(view.coordinates, shares.tolist(), strict=True))
    return block("points", "errors", words=run.manifest["accuracy"]["words"], cell=cell)


# Maps and densities of points, drawn in the page: no script, colours from its style sheet.


def map_paths(shares: Floats, top: float) -> list[tuple[int, str]]:
    """One path for each step of the colour scale. ``top``: the share at which the scale ends; the same for all maps
    that are compared."""
    steps = levels(shares, top)
    return [(level, _runs(steps == level)) for level in range(1, LEVELS + 1) if (steps == level).any()]


def _runs(mask: NDArray[np.bool_]) -> str:
    """Squares of a mask as a path: one rectangle for each run in a row."""
    padded = np.pad(mask, ((0, 0), (1, 1))).astype(np.int8)
    change = np.diff(padded, axis=1)
    rows, starts = np.nonzero(change == 1)
    ends = np.nonzero(change == -1)[1]
    return "".join(
        f"M{x} {y}h{end - x}v1h-{end - x}z"
        for y, x, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)
    )


# Densities of points as numbers: what the pictures of a point stream are drawn from.
#
# Everything is in the unit cube. A map is an array of shares of all points, ``[row, column]``, the first row
# at the top (the highest second coordinate), so that it is drawn as it is printed.

#: Steps of the colour scale beside "nothing".
LEVELS = 9
#: Pairs of coordinates that are drawn at most.
MAX_PAIRS = 6


def pairs_of(names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The coordinates that are drawn together: one alone, or all pairs up to six; first the one that goes to the right.

    A latitude goes upwards beside a longitude, as on every map.

    >>> pairs_of(["price"]), pairs_of(["x", "y", "hour"]), pairs_of(["latitude", "longitude"])
    (((0,),), ((0, 1), (0, 2), (1, 2)), ((1, 0),))
    """
    if len(names) == 1:
        return ((0,),)
    pairs = itertools.islice(itertools.combinations(range(len(names)), 2), MAX_PAIRS)
    return tuple(pair[::-1] if is_map(names, pair) else pair for pair in pairs)


def is_map(names: Sequence[str], pair: tuple[int, int]) -> bool:
    """Whether the two are a latitude and a longitude, in this order."""
    first, second = (names[i].lower() for i in pair)
    return first.startswith("lat") and second.startswith(("lon", "lng"))


def density(points: Floats, axes: tuple[int, ...], sides: tuple[int, int]) -> Floats:
    """Shares of all points in ``sides[0]`` columns and ``sides[1]`` rows; zeros without points.

    >>> density(np.array([[0.1, 0.9], [0.2, 1.0], [0.9, 0.1]]), (0, 1), (2, 2)).round(2).tolist()
    [[0.67, 0.0], [0.0, 0.33]]
    """
    columns, rows = sides
    x, y = _places(points[:, axes[0]], columns), _places(points[:, axes[-1]], rows)
    counts = np.bincount((rows - 1 - y) * columns + x, minlength=rows * columns).reshape(rows, columns)
    return counts / max(1, len(points))


def top_share(maps: Sequence[Floats]) -> float:
    """Where a colour scale for all these maps ends: the largest share but for the densest hundredth of filled squares.

    One spike (an address that thousands share) would make everything else look empty.

    >>> top_share([np.zeros((2, 2))])
    1.0
    """
    filled = np.concatenate([one[one > 0].ravel() for one in maps]) if maps else np.zeros(0)
    return float(np.quantile(filled, 0.99)) if len(filled) else 1.0


def levels(shares: Floats, top: float) -> Ints:
    """0 for nothing, then 1 to ``LEVELS`` by the square root of the share: thin parts are seen as well.

    >>> levels(np.array([0.0, 0.0001, 0.25, 1.0, 2.0]), 1.0).tolist()
    [0, 1, 5, 9, 9]
    """
    steps = np.ceil(LEVELS * np.sqrt(np.minimum(shares / top, 1.0)) - 1e-9)
    return np.where(shares > 0, np.maximum(steps, 1), 0).astype(np.int64)


def _places(values: Floats, side: int) -> Ints:
    return np.clip((values * side).astype(np.int64), 0, side - 1)


def _draw(folder: Folder, pairs: Pairs) -> Page:
    run = collect_points(folder)
    charts, view = charts_of(run), run.view
    dates = charts.dates
    sections = [
        ("where", "Maps", _where(run, dates)),
        ("releases", "Over time", _releases(run, charts)),
        ("categories", "Categories", _categories(run, dates)),
        ("errors", "Errors", _errors(run)),
    ]
    what = block(
        "points",
        "what",
        points=run.shown[-1].rows,
        coordinates=len(view.coordinates),
        categories=view.space.categories if view.categorical else None,
    )
    return Page(run, sections, what, charts, tables=len(run.tables), columns=len(view.schema))


POINTS_PAGE: Final = FamilyPage(_draw)
