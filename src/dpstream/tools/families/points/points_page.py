"""The page of a point stream."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpstream.families.points.space import Space
from dpstream.tools.evaluate.array_types import Codes, Floats, Ints
from dpstream.tools.evaluate.run_folder import Folder
from dpstream.tools.families.points.point_releases import PointRun, PointView, collect_points
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.charts import ChartLine, Charts, Unit, round_marks
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Html, element, integer, join, percent, significant, table
from dpstream.tools.report.sections_time import states

#: Squares along a side of a map, and of the large one: powers of 2, as cells are. Parts of one coordinate.
_SIDE, _LARGE_SIDE = 32, 64
_PARTS = 128
#: Dates whose maps are drawn.
MAX_MAPS = 6
#: Cells that are drawn, about.
_CELLS = 64
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
    maps = _profiles(run, made, names) if len(first) == 1 else _slides(run, first, made, names, _LARGE_SIDE)
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
    run: PointRun,
    axes: tuple[int, ...],
    made: list[Floats],
    names: Sequence[str],
    side: int,
) -> Html:
    """Maps in a frame, one after the other, with one scale of colours."""
    sides = _sides(run, axes, side)
    pair = axes[0], axes[1]
    drawn = [density(one, pair, sides) for one in made]
    top = top_share(drawn)
    frame = frame_of(run.view, axes)
    figures = [
        element(
            "figure",
            element("figcaption", name),
            frame.around(drawn_map(shares, top, f"{name}: synthetic points")),
            data_when=name,
        )
        for name, shares in zip(names, drawn, strict=True)
    ]
    return join([element("div", figures, class_="slides"), scale(top, sides[0] * sides[1])])


def _profiles(run: PointRun, made: list[Floats], names: Sequence[str]) -> Html:
    """The density of one coordinate, at several steps with one scale."""
    parts = run.view.parts(0, _PARTS)
    drawn = [profile(places, parts) for places in made]
    top = max(float(shares.max()) for shares in drawn) or 1.0
    figures = [
        element(
            "figure",
            element("figcaption", element("bdi", name)),
            drawn_profile(shares, top, f"{name}: synthetic points"),
        )
        for name, shares in zip(names, drawn, strict=True)
    ]
    return join([element("div", figures, class_="maps"), _axes(run, (0,))])


def partition(run: PointRun, dates: Calendar) -> Html:
    """The cells that the last release was drawn from."""
    if not run.tables:
        return element("section", id="partition", hidden=True)
    last, view = run.tables[-1], run.view
    dimension = len(view.coordinates)
    words = (
        f"Points up to {dates.words(last.step)} were placed in cells of {last.depth} halvings, and evenly within each. "
        "A number is how many synthetic points its cell has."
    )
    drawn: list[Html | None] = []
    if dimension == 2:
        category = int(np.bincount(view.categories(last.codes)).argmax())
        which = f" Of {view.category_name(category)}, the commonest category." if view.categorical else ""
        words += (
            f"{which} Drawn are cells until they hold a {_CELLS}th of the points: the tree goes on below."
        )
        codes = last.codes[view.categories(last.codes) == category]
        drawn.append(element("figure", _partition(run, codes, last.depth, category), class_="partition"))
        drawn.append(_axes(run, pairs_of(view.coordinates)[0]))
    elif dimension > 2:
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
    texts.append(
        "No public number tells how far the points are from the true ones: it depends on where these are. Where they "
        "gather, the partition follows them; where there are few, they are spread over cells that are too large."
    )
    texts.append(
        "Trust shares of regions that hold many points, and distances that are large beside a cell. A single "
        "synthetic point means nothing, and neither does a gap of a cell's size."
    )
    return element(
        "section",
        element("h2", "How wrong it can be"),
        [element("p", text) for text in texts],
        id="errors",
    )


def _partition(run: PointRun, codes: Codes, depth: int, category: int) -> Html:
    """Draws the cells of the last table over the density of its points."""
    found = _leaves(run, codes, depth, category, _CELLS)
    if not len(found.points):
        text = "The cells are so large that each holds several categories: there is no partition of one to draw yet."
        return element("p", text, class_="note")
    (first, second) = pairs_of(run.view.coordinates)[0]
    shares = density(run.view.places(codes), (first, second), _sides(run, (first, second), _LARGE_SIDE))
    words = f"{len(found.points)} cells of the partition with their points"
    return drawn_partition(found, shares, top_share([shares]), words)


def _leaves(run: PointRun, codes: Codes, depth: int, category: int, most: int) -> Leaves:
    view = run.view
    cells = view.space.cells_of(codes) >> (view.space.depth - depth)
    found = leaves(view.space, cells, depth, most, view.category_codes(category))
    axes = list(pairs_of(view.coordinates)[0])
    return Leaves(found.low[:, axes], found.high[:, axes], found.points)


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
    left = max(0, math.comb(dimension, 2) - MAX_PAIRS)
    return (
        element("p", f"{left} further pairs of coordinates are not drawn.", class_="note") if left else None
    )


def _spread(tables: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, tables - 1, min(MAX_MAPS, tables)).round()})


def _share(counts: NDArray[np.int64], category: int) -> float:
    return float(counts[category]) / max(1, int(counts.sum()))


# The frame of a map: its sides with units.


@dataclass(frozen=True)
class Frame:
    """What stands around a map of two coordinates.

    Attributes:
        names: of the coordinate to the right, and of the one upwards.
        marks: of each, (place from 0 to 1, text).
        aspect: width over height.
    """

    names: tuple[str, str]
    marks: tuple[Sequence[tuple[float, str]], Sequence[tuple[float, str]]]
    aspect: float

    def around(self, picture: Html) -> Html:
        """A picture (an SVG that fills its place) with its sides."""
        ups = [element("span", text, style=f"bottom:{100 * at:.1f}%") for at, text in self.marks[1]]
        rights = [element("span", text, style=f"left:{100 * at:.1f}%") for at, text in self.marks[0]]
        return element(
            "div",
            element("div", element("bdi", self.names[1]), class_="up-name"),
            element("div", ups, class_="ups"),
            element("div", picture, class_="view", style=f"aspect-ratio:{self.aspect:.3f}"),
            element("div", rights, class_="rights"),
            element("div", element("bdi", self.names[0]), class_="right-name"),
            class_="framed",
        )


def frame_of(view: PointView, axes: Sequence[int]) -> Frame:
    """Of the maps of two coordinates; a longitude and a latitude have the shape of the country."""
    right, up = axes[0], axes[1]
    names = view.coordinates[right], view.coordinates[up]
    sides, heights = view.bounds(right), view.bounds(up)
    marks = _marks(view, right, sides), _marks(view, up, heights)
    degrees = is_map(view.coordinates, (right, up)) or is_map(view.coordinates, (up, right))
    if not degrees or sides is None or heights is None:
        return Frame(names, marks, 1.0)
    (west, east), (south, north) = sides, heights
    across = (east - west) * math.cos(math.radians((south + north) / 2))
    marks = [(at, f"{text}°") for at, text in marks[0]], [(at, f"{text}°") for at, text in marks[1]]
    # A long and narrow country is still to be seen on a phone.
    aspect = min(3.0, max(0.4, across / (north - south)))
    return Frame(names, marks, aspect)


def _marks(view: PointView, coordinate: int, ends: tuple[float, float] | None) -> list[tuple[float, str]]:
    if ends is None or ends[1] <= ends[0]:
        low, high = view.ends(coordinate)
        return [(0.0, low), (1.0, high)]
    low_value, high_value = ends
    found = round_marks(low_value, high_value)
    return [((one - low_value) / (high_value - low_value), f"{one:g}") for one in found]


# Maps and densities of points, drawn in the page: no script, colours from its style sheet.

#: Side of a drawing in its own units.
_UNITS = 1000
#: A cell smaller than this share of a side has no room for its number.
_ROOM = (0.105, 0.05)


def drawn_map(shares: Floats, top: float, words: str) -> Html:
    """One map. ``top``: the share at which the colour scale ends; the same for all maps that are compared."""
    rows, columns = shares.shape
    return _drawing(_filled(levels(shares, top)), f"0 0 {columns} {rows}", words)


def drawn_profile(shares: Floats, top: float, words: str) -> Html:
    """The density of one coordinate as steps."""
    area = element("path", class_="area", d=_steps(shares, top, closed=True))
    line = element("path", class_="line", d=_steps(shares, top, closed=False))
    return _drawing([area, line], f"0 0 {_UNITS} {_UNITS // 2}", words, class_="map profile")


def drawn_partition(cells: Leaves, shares: Floats, top: float, words: str) -> Html:
    """Every cell with its number of points, where there is room and under the pointer, over a map."""
    rows, columns = shares.shape
    place = f"scale({_UNITS / columns:g} {_UNITS / rows:g})"
    boxes, numbers = [], []
    for low, high, points in zip(cells.low, cells.high, cells.points, strict=True):
        x, y, width, height = _box(low, high)
        boxes.append(_cell(x, y, width, height, int(points)))
        if width >= _ROOM[0] * _UNITS and height >= _ROOM[1] * _UNITS:
            middle = {"x": f"{x + width / 2:g}", "y": f"{y + height / 2:g}"}
            numbers.append(element("text", integer(points), class_="number", **middle))
    inside = element("g", _filled(levels(shares, top)), transform=place)
    return _drawing([inside, *boxes, *numbers], f"0 0 {_UNITS} {_UNITS}", words)


def _cell(x: float, y: float, width: float, height: float, points: int) -> Html:
    title = element("title", f"{integer(points)} points")
    sides = {"x": x, "y": y, "width": width, "height": height}
    return element("rect", title, class_="cell", **{name: f"{value:.6g}" for name, value in sides.items()})


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


def axis_words(names: Sequence[str], texts: Sequence[str]) -> Html:
    """What lies along the sides of the maps: ``→ longitude from -74 to -73``."""
    spans = [
        element("span", f"{sign} ", element("bdi", name), text)
        for sign, name, text in zip("→↑", names, texts, strict=False)
    ]
    return element("p", spans, class_="unit axes")


def _drawing(parts: Sequence[Html | None], box: str, words: str, class_: str = "map") -> Html:
    # SVG's names distinguish capitals; the parser of HTML knows these two.
    return element(
        "svg",
        element("title", words),
        parts,
        viewBox=box,
        preserveAspectRatio="none",
        role="img",
        class_=class_,
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


def _box(low: Floats, high: Floats) -> tuple[float, float, float, float]:
    """Left, top, width and height in the drawing's units; the second coordinate grows upwards."""
    x, width = _UNITS * float(low[0]), _UNITS * float(high[0] - low[0])
    return x, _UNITS * float(1.0 - high[1]), width, _UNITS * float(high[1] - low[1])


def _steps(shares: Floats, top: float, *, closed: bool) -> str:
    height, width = _UNITS // 2, _UNITS / len(shares)
    level = [round(height * (1.0 - min(1.0, float(share) / top) * 0.96)) for share in shares]
    parts = [f"M0 {height}" if closed else f"M0 {level[0]}"]
    parts += [f"V{y}h{width:.4g}" for y in level]
    return "".join(parts) + (f"V{height}z" if closed else "")


# Densities of points and the cells that hold them, as numbers: what the pictures of a point stream are drawn
# from.
#
# Everything is in the unit cube. A map is an array of shares of all points, ``[row, column]``, the first row
# at the top (the highest second coordinate), so that it is drawn as it is printed.

#: Steps of the colour scale beside "nothing".
LEVELS = 9
#: Pairs of coordinates that are drawn at most.
MAX_PAIRS = 6


@dataclass(frozen=True)
class Leaves:
    """Cells of the partition: corners in the unit cube, each of shape (cells, coordinates), and their points."""

    low: Floats
    high: Floats
    points: Ints


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


def density(points: Floats, axes: tuple[int, int], sides: tuple[int, int]) -> Floats:
    """Shares of all points in ``sides[0]`` columns and ``sides[1]`` rows; zeros without points.

    >>> density(np.array([[0.1, 0.9], [0.2, 1.0], [0.9, 0.1]]), (0, 1), (2, 2)).round(2).tolist()
    [[0.67, 0.0], [0.0, 0.33]]
    """
    columns, rows = sides
    x, y = _places(points[:, axes[0]], columns), _places(points[:, axes[1]], rows)
    counts = np.bincount((rows - 1 - y) * columns + x, minlength=rows * columns).reshape(rows, columns)
    return counts / max(1, len(points))


def profile(points: Floats, side: int) -> Floats:
    """Shares of all points in ``side`` parts of the only coordinate."""
    return np.bincount(_places(points[:, 0], side), minlength=side) / max(1, len(points))


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


def leaves(space: Space, cells: Ints, depth: int, most: int, category: tuple[int, ...] = ()) -> Leaves:
    """The cells that hold records, each cut as long as it holds more than ``1/most`` of them and the tree goes on.

    A cell that is cut no more counts its records; cells without any are among them, so that the whole space is covered.

    Args:
        cells: of the records, at ``depth``; released ones, whose tree this is.
        category: code of each categorical column, which all these records have; the cells are those within it.
    """
    limit, level, ordered = len(cells) / most, 0, np.sort(cells)
    waiting, found = np.zeros(1, np.int64), []
    while len(waiting):
        ends = np.stack([waiting, waiting + 1]) << (depth - level)
        before, until = np.searchsorted(ordered, ends)
        counts = until - before
        low, high = space.boxes(waiting, level)
        first, sizes = np.array(space.categorical), high - low
        inside = (sizes[:, first] == 1).all(axis=1) & (low[:, first] == category).all(axis=1)
        done = (counts <= limit) | (sizes[:, ~first] == 1).all(axis=1) | (level == depth)
        keep = inside & done
        found.append((low[keep][:, ~first], high[keep][:, ~first], counts[keep]))
        # A cell of several categories is cut whatever it holds; one of another category leads nowhere.
        touches = (low[:, first] <= category).all(axis=1) & (np.array(category) < high[:, first]).all(axis=1)
        on = waiting[touches & ~keep & (level < depth)]
        # The second half of a cell with one code is that cell again.
        waiting, level = np.stack([on << 1, on << 1 | 1], axis=1).ravel(), level + 1
    lows, highs, counts_ = (np.concatenate(parts) for parts in zip(*found, strict=True))
    whole = np.array(space.sizes)[~np.array(space.categorical)]
    return Leaves(lows / whole, highs / whole, counts_)


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
        (
            "categories",
            "Categories" if view.categorical else "",
            categories(run, dates),
        ),
        ("partition", "Partition" if run.tables else "", partition(run, dates)),
        ("errors", "Errors", limits(run)),
    ]
    more = f" in {integer(view.space.categories)} categories" if view.categorical else ""
    what = f"{integer(last.rows)} invented points with {integer(len(view.coordinates))} coordinates{more}"
    return Page(run, sections, what, charts, tables=len(run.tables))


POINTS_PAGE: Final = FamilyPage(
    _draw, refusal=("all pairs of coordinates are drawn, and heat maps are for tables", "none")
)
