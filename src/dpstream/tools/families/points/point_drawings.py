"""Maps and densities of points, drawn in the page: no script, colours from its style sheet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.families.points.point_maps import LEVELS, Leaves, levels
from dpstream.tools.report.markup import Html, element, integer, significant

#: Side of a drawing in its own units.
_UNITS = 1000
#: A cell smaller than this share of a side has no room for its number.
_ROOM = (0.105, 0.05)


def drawn_map(shares: Floats, top: float, words: str, cells: Leaves | None = None) -> Html:
    """One map. ``top``: the share at which the colour scale ends; the same for all maps that are compared."""
    rows, columns = shares.shape
    outline = None if cells is None else element("path", class_="cells", d=_outline(cells, columns, rows))
    return _drawing([*_filled(levels(shares, top)), outline], f"0 0 {columns} {rows}", words)


def drawn_profile(made: Floats, true: Floats | None, top: float, words: str) -> Html:
    """The density of one coordinate as steps; the true one as a thick line behind it."""
    behind = None if true is None else element("path", class_="true", d=_steps(true, top, closed=False))
    area = element("path", class_="area", d=_steps(made, top, closed=True))
    line = element("path", class_="line", d=_steps(made, top, closed=False))
    return _drawing([behind, area, line], f"0 0 {_UNITS} {_UNITS // 2}", words, class_="map profile")


def drawn_partition(cells: Leaves, shares: Floats, top: float, words: str) -> Html:
    """Every cell with its number of points, where there is room and under the pointer: over a map, or of one coordinate
    as bars whose areas are the numbers."""
    if shares.ndim == 1:
        return _drawing(_bars(cells, top * len(shares)), f"0 0 {_UNITS} {_UNITS // 2}", words, "map profile")
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


def _bars(cells: Leaves, top: float) -> list[Html]:
    """``top``: the density that is drawn as high as there is room."""
    total, bars = max(1, int(cells.points.sum())), []
    for low, high, points in zip(cells.low[:, 0], cells.high[:, 0], cells.points, strict=True):
        density = float(points) / total / float(high - low)
        height = 0.96 * _UNITS / 2 * min(1.0, density / top)
        x, width = _UNITS * float(low), _UNITS * float(high - low)
        bars.append(_cell(x, _UNITS / 2 - height, width, height, int(points), class_="cell bar-cell"))
    return bars


def _cell(x: float, y: float, width: float, height: float, points: int, class_: str = "cell") -> Html:
    title = element("title", f"{integer(points)} points")
    sides = {"x": x, "y": y, "width": width, "height": height}
    return element("rect", title, class_=class_, **{name: f"{value:.6g}" for name, value in sides.items()})


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


def _outline(cells: Leaves, columns: int, rows: int) -> str:
    parts = []
    for low, high in zip(cells.low, cells.high, strict=True):
        x, y, width, height = (value / _UNITS for value in _box(low, high))
        w, h = width * columns, height * rows
        parts.append(f"M{x * columns:.4g} {y * rows:.4g}h{w:.4g}v{h:.4g}h-{w:.4g}z")
    return "".join(parts)


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
