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
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of, errors_section
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Html, element, integer, join, percent, significant, table
from dpstream.tools.report.plain_page import states

#: Squares along a side of a map, and of the large one: powers of 2, as cells are; parts of a single coordinate.
_SIDE, _LARGE_SIDE = 32, 64
_PARTS = 128
#: Dates whose maps are drawn.
MAX_MAPS = 6
_ROWS = 20


def releases(run: PointRun, charts: Charts) -> Html:
    """How many points there are, and how fine the partition of the newest table is."""
    steps, points = [facts.step for facts in run.shown], [facts.rows for facts in run.shown]
    words = f"{integer(points[-1])} points"
    if run.tables:
        depth = run.tables[-1].depth
        words += f", placed in {integer(2**depth)} cells of depth {depth}"
    figure = None
    if len(steps) > 1:
        figure = charts.lines(
            "Points per release",
            steps,
            [ChartLine("synthetic points", np.array(points, np.float64), named=False)],
            Unit("points"),
            small=True,
            note="The number of points is public: the clock of the stream counts them, so it has no noise. Deeper "
            "cells begin when there are points enough to be counted in them.",
        )
    newest = element("p", f"The newest release has {words}.")
    return element(
        "section", element("h2", "The releases"), states(run.states), newest, figure, id="releases"
    )


def where(run: PointRun, dates: Calendar) -> Html:
    """The section of maps: the first two coordinates over time, with a slider; other pairs as they are now."""
    title = element("h2", "Where the points are")
    if not run.tables:
        return element("section", title, element("p", "No release has a table with points."), id="where")
    view = run.view
    first, *others = pairs_of(view.coordinates)
    chosen = _spread(len(run.tables))
    made = [view.places(run.tables[i].codes) for i in chosen]
    steps = [run.tables[i].step for i in chosen]
    words = (
        "Each map has all points up to its date, as shares: what changes is where points are, not how many."
    )
    names = [dates.name(step) for step in steps]
    maps = _slides(run, first, made, names, _LARGE_SIDE)
    rest = [_slides(run, axes, made[-1:], names[-1:], _SIDE) for axes in others]
    return element(
        "section",
        title,
        element("p", words),
        maps,
        element("h3", "Other coordinates, in the newest table") if rest else None,
        element("div", [element("div", one) for one in rest], class_="grid") if rest else None,
        _more_pairs(len(view.coordinates)),
        id="where",
    )


def _slides(
    run: PointRun, axes: tuple[int, ...], made: list[Floats], names: Sequence[str], side: int
) -> Html:
    """Maps, one after the other, with one scale of colours."""
    # One coordinate is a map of one row.
    rows = run.view.parts(axes[1], side) if len(axes) > 1 else 1
    sides = run.view.parts(axes[0], side if len(axes) > 1 else _PARTS), rows
    drawn = [density(one, axes, sides) for one in made]
    top = top_share(drawn)
    figures = [
        element(
            "figure",
            element("figcaption", name),
            drawn_map(shares, top, f"{name}: synthetic points"),
            data_when=name,
        )
        for name, shares in zip(names, drawn, strict=True)
    ]
    words = element("p", _sides(run.view, axes), class_="note")
    return join([element("div", figures, class_="slides"), words, scale(top, sides[0] * sides[1])])


def categories(run: PointRun, dates: Calendar) -> Html | None:
    """Shares of the categories."""
    view = run.view
    if not view.categorical or not run.tables:
        return None
    last = run.tables[-1]
    many = view.space.categories
    counts = np.bincount(view.categories(last.codes), minlength=many)
    order = [int(i) for i in np.argsort(-counts, kind="stable")]
    rows = [
        [view.category_name(category), integer(counts[category]), percent(_share(counts, category))]
        for category in order[:_ROWS]
    ]
    left = many - len(rows)
    return element(
        "section",
        element("h2", "Categories"),
        element(
            "p",
            f"{' × '.join(view.categorical)} at {dates.words(last.step)}. Each category has a partition of its own.",
        ),
        table(["category", "points", "share"], rows, caption="Points by category"),
        element("p", f"{integer(left)} further categories are not listed.", class_="note") if left else None,
        id="categories",
    )


def limits(run: PointRun) -> Html:
    """What can be said about how far the points are from the true ones."""
    accuracy = run.manifest.get("accuracy") or {}
    texts = [str(accuracy["words"])] if "words" in accuracy else []
    texts += [_resolution(run)] if run.tables else []
    texts.append(
        "No public number tells how far the points are from the true ones: it depends on where these are. Where they "
        "gather, the partition follows them; where there are few, they are spread over cells that are too large."
    )
    texts.append(
        "Trust shares of regions that hold many points, and distances that are large beside a cell. A single "
        "synthetic point means nothing, and neither does a gap of a cell's size."
    )
    return errors_section(texts)


def _resolution(run: PointRun) -> str:
    """How large the smallest cells are, as a share of each coordinate's range."""
    depth, view = run.tables[-1].depth, run.view
    low, high = view.space.boxes(np.zeros(1, np.int64), depth)
    sizes = np.array(view.space.sizes)
    shares = ((high - low)[0] / sizes)[~np.array(view.space.categorical)]
    parts = [
        f"{name} {significant(100 * share)} %" for name, share in zip(view.coordinates, shares, strict=True)
    ]
    return (
        f"A cell is this part of each coordinate's range: {', '.join(parts)}. What is finer than that is not in the "
        "releases; more points make more cells."
    )


def _more_pairs(dimension: int) -> Html | None:
    left = max(0, math.comb(dimension, 2) - MAX_PAIRS)
    return (
        element("p", f"{left} further pairs of coordinates are not drawn.", class_="note") if left else None
    )


def _spread(tables: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, tables - 1, min(MAX_MAPS, tables)).round()})


def _share(counts: NDArray[np.int64], category: int) -> float:
    return float(counts[category]) / max(1, int(counts.sum()))


def _sides(view: PointView, axes: Sequence[int]) -> str:
    """What is to the right of a map of one or two coordinates, and what upwards."""
    parts = []
    for axis, direction in zip(axes, ("to the right", "upwards"), strict=False):
        low, high = view.ends(axis)
        parts.append(f"{direction} {view.coordinates[axis]}{view.scale_words(axis)} from {low} to {high}")
    return "; ".join(parts)


# Maps and densities of points, drawn in the page: no script, colours from its style sheet.


def drawn_map(shares: Floats, top: float, words: str) -> Html:
    """One map. ``top``: the share at which the colour scale ends; the same for all maps that are compared."""
    rows, columns = shares.shape
    # SVG's names distinguish capitals; the parser of HTML knows these two.
    return element(
        "svg",
        element("title", words),
        _filled(levels(shares, top)),
        viewBox=f"0 0 {columns} {rows}",
        style="aspect-ratio:8" if rows == 1 else None,
        preserveAspectRatio="none",
        role="img",
        class_="map",
    )


def _filled(steps: NDArray[np.int64]) -> list[Html]:
    """One path for each step of the colour scale."""
    return [
        element("path", class_=f"l{level}", d=_runs(steps == level))
        for level in range(1, LEVELS + 1)
        if (steps == level).any()
    ]


def scale(top: float, squares: int) -> Html:
    """The colour scale: what the steps mean, in multiples of the even density."""
    even = top * squares
    keys = [
        element(
            "i", class_=f"key-map l{level}", title=f"up to {significant(even * (level / LEVELS) ** 2)} times"
        )
        for level in range(LEVELS + 1)
    ]
    return element(
        "p",
        "none ",
        element("span", keys, class_="scale-map", aria_hidden="true"),
        f" {significant(even)} times the even density, or more",
        class_="note scale-line",
    )


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
    last = run.shown[-1]
    dates = charts.dates
    sections = [
        ("where", "Maps", where(run, dates)),
        ("releases", "Over time", releases(run, charts)),
        ("categories", "Categories" if view.categorical else "", categories(run, dates)),
        ("errors", "Errors", limits(run)),
    ]
    more = f" in {integer(view.space.categories)} categories" if view.categorical else ""
    many = len(view.coordinates)
    coordinates = f"{integer(many)} coordinate{'' if many == 1 else 's'}"
    what = f"{integer(last.rows)} invented points with {coordinates}{more}"
    return Page(run, sections, what, charts, tables=len(run.tables), columns=len(view.schema))


POINTS_PAGE: Final = FamilyPage(
    _draw, refusal=("all pairs of coordinates are drawn, and heat maps are for tables", "none")
)
