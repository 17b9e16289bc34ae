"""Where the points of a stream are: maps over time, the partition, categories, and what limits them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.evaluate.array_types import Codes, Floats
from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.families.points.map_frames import frame_of
from dpstream.tools.families.points.point_drawings import (
    axis_words,
    drawn_map,
    drawn_partition,
    drawn_profile,
    scale,
)
from dpstream.tools.families.points.point_maps import (
    MOST_PAIRS,
    Leaves,
    density,
    leaves,
    pairs_of,
    profile,
    top_share,
)
from dpstream.tools.families.points.point_releases import PointRun, PointTable, PointTruth
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Html, element, integer, join, percent, significant, table
from dpstream.tools.report.sections_time import states

#: Squares along a side of a map, and of the large one: powers of 2, as cells are. Parts of one coordinate.
_SIDE, _LARGE_SIDE = 32, 64
_PARTS = 128
#: Maps of one row of small multiples, and categories that get a map.
MOST_MAPS = 6
#: Cells that are drawn, about.
_CELLS, _FEW_CELLS = 64, 16
_ROWS = 20


def releases(run: PointRun, charts: Charts) -> Html:
    """How many points, and how fine the partition is."""
    steps = [facts.step for facts in run.shown]
    points = np.array([facts.rows for facts in run.shown], np.float64)
    depths = np.array([depth for depth, _ in run.partition], np.float64)
    cells = np.array([count for _, count in run.partition], np.float64)
    body: Html
    if len(steps) == 1:
        body = element(
            "p",
            f"The release has {integer(points[0])} points, placed in {integer(cells[0])} cells of depth "
            f"{integer(depths[0])}.",
        )
    else:
        figures = [
            charts.lines(
                "Points per release",
                steps,
                [ChartLine("synthetic points", points, named=False)],
                Unit("points"),
                small=True,
                note="The number of points is public: the clock of the stream counts them, so it has no noise.",
            ),
            charts.lines(
                "Cells of the partition",
                steps,
                [ChartLine("cells", cells, style=2, named=False)],
                Unit("cells"),
                small=True,
                note="Deeper cells begin when there are points enough to be counted in them: their number doubles "
                "when the number of points does.",
            ),
            charts.lines(
                "Depth of the partition",
                steps,
                [ChartLine("halvings", depths, style=3, named=False)],
                Unit("halvings"),
                small=True,
            ),
        ]
        body = element("div", figures, class_="grid")
    return element("section", element("h2", "The releases"), states(run.states), body, id="releases")


def where(run: PointRun, truth: PointTruth | None, dates: Calendar) -> Html:
    """The section of maps: the first two coordinates over time, with a slider; other pairs as they are now."""
    title = element("h2", "Where the points are")
    if not run.tables:
        return element("section", title, element("p", "No release has a table with points."), id="where")
    view = run.view
    first, *others = pairs_of(view.coordinates)
    chosen = _spread(len(run.tables))
    made = [view.places(run.tables[i].codes) for i in chosen]
    true = None if truth is None else [view.places(truth.codes[i]) for i in chosen]
    steps = [run.tables[i].step for i in chosen]
    words = (
        "Each map has all points up to its date, as shares: what changes is where points are, not how many."
    )
    if len(first) == 1:
        maps = _row(run, first, made, true, [dates.name(step) for step in steps])
    else:
        maps = _slides(run, first, made, true, [dates.name(step) for step in steps], _LARGE_SIDE)
    last_true = None if truth is None else [view.places(truth.codes[-1])]
    now = [dates.name(steps[-1])]
    rest = [_slides(run, axes, [made[-1]], last_true, now, _SIDE) for axes in others]
    return element(
        "section",
        title,
        element("p", words),
        element("p", f"True maps: {LABEL}.", class_="note") if truth is not None else None,
        maps,
        element("h3", "Other coordinates, in the newest table") if rest else None,
        element("div", [element("div", one) for one in rest], class_="grid") if rest else None,
        _more_pairs(len(view.coordinates)),
        id="where",
    )


def _slides(
    run: PointRun,
    axes: tuple[int, ...],
    made: list[Floats],
    true: list[Floats] | None,
    names: Sequence[str],
    side: int,
) -> Html:
    """Maps in a frame, one after the other, with one scale of colours."""
    sides = _sides(run, axes, side)
    pair = axes[0], axes[1]
    drawn = [density(one, pair, sides) for one in made]
    theirs = [] if true is None else [density(one, pair, sides) for one in true]
    top = top_share([*drawn, *theirs])
    outline = None if run.config is None else run.config.publication.outline
    frame = frame_of(run.view, axes, outline)
    figures = []
    for i, name in enumerate(names):
        maps = [frame.around(drawn_map(drawn[i], top, f"{name}: synthetic points"))]
        if theirs:
            maps.append(frame.around(drawn_map(theirs[i], top, f"{name}: true points, {LABEL}")))
        labels = [element("small", text) for text in ("synthetic", "true")] if theirs else []
        caption = element("figcaption", name)
        figures.append(
            element("figure", caption, maps, labels, class_="twins wide" if theirs else None, data_when=name)
        )
    return join([element("div", figures, class_="slides"), scale(top, sides[0] * sides[1])])


def partition(run: PointRun, dates: Calendar) -> Html:
    """Section 4: the cells that the last release was drawn from."""
    if not run.tables:
        return element("section", id="partition", hidden=True)
    last, view = run.tables[-1], run.view
    dimension = len(view.coordinates)
    words = (
        f"Points up to {dates.words(last.step)} were placed in cells of {last.depth} halvings, and evenly within each. "
        "A number is how many synthetic points its cell has."
    )
    drawn: list[Html | None] = []
    if dimension <= 2:
        category = int(np.bincount(view.categories(last.codes)).argmax())
        which = f" Of {view.category_name(category)}, the commonest category." if view.categorical else ""
        words += (
            f"{which} Drawn are cells until they hold a {_CELLS}th of the points: the tree goes on below."
        )
        own = [_of_category(run, table, category) for table in run.tables]
        drawn.append(element("figure", _partition(run, own[-1], last.depth, category), class_="partition"))
        if len(own) > 1 and dimension == 2:
            drawn += [element("h3", "How it grows"), _growth(run, own, category, dates)]
        drawn.append(_axes(run, pairs_of(view.coordinates)[0]))
    else:
        words += (
            f" In {dimension} coordinates cells lie over each other in any picture, so that none are drawn."
        )
    return element(
        "section",
        element("h2", "The partition"),
        element("p", words),
        element("p", _resolution(run)),
        drawn,
        id="partition",
    )


def categories(run: PointRun, truth: PointTruth | None, dates: Calendar) -> Html | None:
    """Section 5: shares of the categories, and a map of each of the commonest."""
    view = run.view
    if not view.categorical or not run.tables:
        return None
    last = run.tables[-1]
    own = view.categories(last.codes)
    many = view.space.categories
    counts = np.bincount(own, minlength=many)
    true = None if truth is None else np.bincount(view.categories(truth.codes[-1]), minlength=many)
    order = [int(i) for i in np.argsort(-counts, kind="stable")]
    rows = []
    for category in order[:_ROWS]:
        row = [view.category_name(category), integer(counts[category]), percent(_share(counts, category))]
        if true is not None:
            row += [integer(true[category]), percent(_share(true, category))]
        rows.append(row)
    headings = ["category", "points", "share"] + ([] if true is None else ["true points", "true share"])
    label = "" if truth is None else f" ({LABEL})"
    facets = [category for category in order if counts[category]][:MOST_MAPS]
    names = [view.category_name(category) for category in facets]
    made = [view.places(last.codes[own == category]) for category in facets]
    there = None
    if truth is not None:
        theirs = view.categories(truth.codes[-1])
        there = [view.places(truth.codes[-1][theirs == category]) for category in facets]
    left = many - len(rows)
    return element(
        "section",
        element("h2", "Categories"),
        element(
            "p",
            f"{' × '.join(view.categorical)} at {dates.words(last.step)}. Each category has a partition of its "
            "own; its map shows shares of its own points.",
        ),
        table(headings, rows, caption=f"Points by category{label}"),
        element("p", f"{integer(left)} further categories are not listed.", class_="note") if left else None,
        _row(run, pairs_of(view.coordinates)[0], made, there, names) if facets else None,
        id="categories",
    )


def limits(run: PointRun, truth: PointTruth | None, charts: Charts) -> Html:
    """How far the points are from the true ones, or what can be said without these."""
    accuracy = run.manifest.get("accuracy") or {}
    texts = [str(accuracy["words"])] if "words" in accuracy else []
    texts.append(
        "No public number tells how far the points are from the true ones: it depends on where these are. Where they "
        "gather, the partition follows them; where there are few, they are spread over cells that are too large."
    )
    texts.append(
        "Trust shares of regions that hold many points, and distances that are large beside a cell. A single "
        "synthetic point means nothing, and neither does a gap of a cell's size."
    )
    figure = None if truth is None else _distances(run, truth, charts)
    return element(
        "section",
        element("h2", "How wrong it can be"),
        figure,
        [element("p", text) for text in texts],
        id="errors",
    )


_HOW = {
    "exact": "Exact.",
    "grid": "Exact once every point is in the middle of its square of a grid; wrong by one of its sides at most.",
    "samples": "By optimal transport of samples, less what two samples of one set would give.",
}


def _distances(run: PointRun, truth: PointTruth, charts: Charts) -> Html:
    steps = [one.step for one in run.tables]
    lines = [
        ChartLine("released points", np.array([one.value for one in truth.distances])),
        ChartLine("points spread evenly instead", np.array([one.value for one in truth.uniform]), style=2),
    ]
    how = _HOW[truth.distances[-1].how]
    last = truth.distances[-1]
    words = (
        f"At {charts.dates.words(steps[-1])} the average synthetic point would have to move by "
        f"{significant(last.value)} of a side of the space to make the true points of it ({LABEL})."
    )
    if last.how != "exact":
        words += f" Certain bounds: {significant(last.lower)} and {significant(last.upper)}."
    note = (
        f"1-Wasserstein distance, the largest coordinate counting, in sides of the declared bounds. {how} "
        f"Categories are left aside ({LABEL})."
    )
    if len(steps) == 1:
        return join([element("p", words), element("p", note, class_="note")])
    figure = charts.lines("Distance to the true points", steps, lines, Unit("W1, in sides"), note=note)
    return join([element("p", words), figure])


def _row(
    run: PointRun, axes: tuple[int, ...], made: list[Floats], true: list[Floats] | None, names: Sequence[str]
) -> Html:
    """Small multiples with one scale."""
    both = made + (true or [])
    flat = len(axes) == 1
    sides = _sides(run, axes, _PARTS if flat else _SIDE)
    drawn = [profile(one, sides[0]) if flat else density(one, (axes[0], axes[1]), sides) for one in both]
    top = max((float(one.max()) for one in drawn), default=1.0) or 1.0 if flat else top_share(drawn)
    figures = []
    for i, name in enumerate(names):
        theirs = None if true is None else drawn[len(made) + i]
        caption = element("figcaption", element("bdi", name))
        words = f"{name}: synthetic points"
        if flat:
            pictures = [drawn_profile(drawn[i], theirs, top, words)]
        else:
            pictures = [drawn_map(drawn[i], top, words)]
            if theirs is not None:
                pictures.append(drawn_map(theirs, top, f"{name}: true points, {LABEL}"))
        twins = len(pictures) == 2
        labels = [element("small", text) for text in ("synthetic", "true")] if twins else []
        figures.append(element("figure", caption, pictures, labels, class_="twins" if twins else None))
    wide = true is not None and not flat
    key = (
        [element("p", f"Grey line: true ({LABEL}). Blue: synthetic.", class_="note")]
        if flat and true is not None
        else []
    )
    return join(
        [
            element("div", figures, class_="maps pairs" if wide else "maps"),
            _axes(run, axes),
            key if flat else scale(top, sides[0] * sides[1]),
        ]
    )


def _of_category(run: PointRun, table: PointTable, category: int) -> Codes:
    own: Codes = table.codes[run.view.categories(table.codes) == category]
    return own


def _partition(run: PointRun, codes: Codes, depth: int, category: int) -> Html:
    """Draws the cells of the last table over the density of its points."""
    found = _leaves(run, codes, depth, category, _CELLS)
    if not len(found.points):
        text = "The cells are so large that each holds several categories: there is no partition of one to draw yet."
        return element("p", text, class_="note")
    places = run.view.places(codes)
    if len(run.view.coordinates) == 1:
        (parts, _) = _sides(run, (0,), _PARTS)
        shares = profile(places, parts)
        widths = (found.high - found.low)[:, 0]
        # As high as the densest cell, in shares of one part.
        top = float((found.points / widths).max()) / max(1, len(codes)) / parts
    else:
        shares = _density(run, codes, _LARGE_SIDE)
        top = top_share([shares])
    return drawn_partition(
        found, shares, top, f"{len(found.points)} cells of the partition with their points"
    )


def _growth(run: PointRun, own: Sequence[Codes], category: int, dates: Calendar) -> Html:
    """Small maps with the outlines of some cells; one colour scale."""
    chosen = [i for i in _spread(len(own)) if len(own[i])]
    drawn = [_density(run, own[i], _SIDE) for i in chosen]
    top = top_share(drawn)
    figures = []
    for i, shares in zip(chosen, drawn, strict=True):
        table = run.tables[i]
        cells = _leaves(run, own[i], table.depth, category, _FEW_CELLS)
        name = f"{dates.name(table.step)}: {table.depth} halvings"
        figures.append(element("figure", element("figcaption", name), drawn_map(shares, top, name, cells)))
    return element("div", figures, class_="maps")


def _leaves(run: PointRun, codes: Codes, depth: int, category: int, most: int) -> Leaves:
    view = run.view
    cells = view.space.cells_of(codes) >> (view.space.depth - depth)
    found = leaves(view.space, cells, depth, most, view.category_codes(category))
    axes = list(pairs_of(view.coordinates)[0])
    return Leaves(found.low[:, axes], found.high[:, axes], found.points)


def _density(run: PointRun, codes: Codes, wanted: int) -> Floats:
    """The map of the only two coordinates."""
    (first, second) = pairs_of(run.view.coordinates)[0]
    return density(run.view.places(codes), (first, second), _sides(run, (first, second), wanted))


def _sides(run: PointRun, axes: tuple[int, ...], wanted: int) -> tuple[int, int]:
    """Columns and rows of a map (the same twice for one coordinate)."""
    return run.view.parts(axes[0], wanted), run.view.parts(axes[-1], wanted)


def _axes(run: PointRun, axes: tuple[int, ...]) -> Html:
    ends = [run.view.ends(i) for i in axes]
    texts = [
        f" from {low} to {high}{run.view.scale_words(i)}" for i, (low, high) in zip(axes, ends, strict=True)
    ]
    return axis_words([run.view.coordinates[i] for i in axes], texts)


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
    left = max(0, math.comb(dimension, 2) - MOST_PAIRS)
    return (
        element("p", f"{left} further pairs of coordinates are not drawn.", class_="note") if left else None
    )


def _spread(tables: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, tables - 1, min(MOST_MAPS, tables)).round()})


def _share(counts: NDArray[np.int64], category: int) -> float:
    return float(counts[category]) / max(1, int(counts.sum()))
