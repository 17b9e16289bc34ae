"""The frame of a map: its sides with units, a scale in kilometres, and a public outline under the points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpstream.core.errors import ConfigError, InputError
from dpstream.core.paths import parse_json, read_bytes
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.families.points.point_maps import is_map
from dpstream.tools.families.points.point_view import PointView
from dpstream.tools.report.charts import polyline, round_marks
from dpstream.tools.report.markup import Html, element, significant

#: Kilometres of a degree of latitude.
_DEGREE = 111.2
#: Of an outline: points that are drawn at most, and its own units along a side.
_MOST_POINTS, _UNITS = 6000, 1000


@dataclass(frozen=True)
class Frame:
    """What stands around a map of two coordinates.

    Attributes:
        names: of the coordinate to the right, and of the one upwards.
        marks: of each, (place from 0 to 1, text).
        aspect: width over height.
        kilometres: a round length, and which share of the width it is; None where the sides are no degrees.
        outline: paths in units of a thousandth of the sides; empty for none.
    """

    names: tuple[str, str]
    marks: tuple[Sequence[tuple[float, str]], Sequence[tuple[float, str]]]
    aspect: float
    kilometres: tuple[str, float] | None
    outline: str = ""

    def around(self, picture: Html) -> Html:
        """A picture (an SVG that fills its place) with its sides."""
        ups = [element("span", text, style=f"bottom:{100 * at:.1f}%") for at, text in self.marks[1]]
        rights = [element("span", text, style=f"left:{100 * at:.1f}%") for at, text in self.marks[0]]
        lines = None
        if self.outline:
            path = element("path", d=self.outline)
            box = f"0 0 {_UNITS} {_UNITS}"
            lines = element(
                "svg", path, viewBox=box, preserveAspectRatio="none", class_="outline", aria_hidden="true"
            )
        scale = None
        if self.kilometres is not None:
            text, share = self.kilometres
            scale = element("span", text, class_="km", style=f"width:{100 * share:.1f}%")
        return element(
            "div",
            element("div", element("bdi", self.names[1]), class_="up-name"),
            element("div", ups, class_="ups"),
            element("div", picture, lines, scale, class_="view", style=f"aspect-ratio:{self.aspect:.3f}"),
            element("div", rights, class_="rights"),
            element("div", element("bdi", self.names[0]), class_="right-name"),
            class_="framed",
        )


def frame_of(view: PointView, axes: Sequence[int], outline: Path | None) -> Frame:
    """Of the maps of two coordinates; the outline is drawn where these are a longitude and a latitude.

    Errors:
        ConfigError: an outline that cannot be read.
    """
    right, up = axes[0], axes[1]
    names = view.coordinates[right], view.coordinates[up]
    sides, heights = view.bounds(right), view.bounds(up)
    marks = _marks(view, right, sides), _marks(view, up, heights)
    degrees = is_map(view.coordinates, (right, up)) or is_map(view.coordinates, (up, right))
    if not degrees or sides is None or heights is None:
        return Frame(names, marks, 1.0, None)
    (west, east), (south, north) = sides, heights
    across = (east - west) * _DEGREE * math.cos(math.radians((south + north) / 2))
    high = (north - south) * _DEGREE
    drawn = "" if outline is None else _drawn(read_outline(outline), sides, heights)
    marks = [(at, f"{text}°") for at, text in marks[0]], [(at, f"{text}°") for at, text in marks[1]]
    # A long and narrow country is still to be seen on a phone.
    aspect = min(3.0, max(0.4, across / high))
    return Frame(names, marks, aspect, _kilometres(across), drawn)


def read_outline(path: Path) -> list[Floats]:
    """The lines of a GeoJSON file, each of shape (points, 2): longitude and latitude.

    Errors:
        ConfigError: it cannot be read, is no GeoJSON, has neither lines nor areas, or leaves the globe.
    """
    where = f"[report] outline ({path})"
    try:
        data = read_bytes(path)
    except OSError as error:
        raise ConfigError(
            f"the file cannot be read: {error.strerror}", where=where, allowed="a GeoJSON file, or no outline"
        ) from None
    try:
        lines = [np.array(line, np.float64)[:, :2] for line in _lines(parse_json(data))]
    except (InputError, KeyError, TypeError, ValueError, IndexError, RecursionError):
        raise ConfigError(
            "the file is no GeoJSON", where=where, allowed="lines or areas in degrees"
        ) from None
    if not any(len(line) > 1 for line in lines):
        raise ConfigError("the file has no lines", where=where, allowed="lines or areas in degrees")
    if any((np.abs(line) > (180.0, 90.0)).any() for line in lines):
        raise ConfigError(
            "a place is not on the globe",
            where=where,
            allowed="longitudes from -180 to 180, then latitudes from -90 to 90, in degrees",
        )
    return lines


def _lines(value: Any) -> Iterator[Any]:
    kind = value["type"]
    if kind == "FeatureCollection":
        parts = value["features"]
    elif kind == "Feature":
        parts = [] if value["geometry"] is None else [value["geometry"]]
    elif kind == "GeometryCollection":
        parts = value["geometries"]
    else:
        shape = value["coordinates"]
        depth = {"LineString": 0, "MultiLineString": 1, "Polygon": 1, "MultiPolygon": 2}.get(kind)
        if depth == 0:
            yield shape
        elif depth == 1:
            yield from shape
        elif depth == 2:
            for area in shape:
                yield from area
        return
    for part in parts:
        yield from _lines(part)


def _drawn(lines: Sequence[Floats], east: tuple[float, float], north: tuple[float, float]) -> str:
    """A path in the frame; points are left out evenly where there are too many, and what is far outside is."""
    every = max(1, math.ceil(sum(map(len, lines)) / _MOST_POINTS))
    parts = []
    for line in lines:
        kept = np.concatenate([line[:-1:every], line[-1:]])
        x = (kept[:, 0] - east[0]) / (east[1] - east[0])
        y = 1.0 - (kept[:, 1] - north[0]) / (north[1] - north[0])
        if x.max() >= 0 and x.min() <= 1 and y.max() >= 0 and y.min() <= 1:
            parts.append(polyline(np.clip(x, -5, 6), np.clip(y, -5, 6), _UNITS, _UNITS))
    return "".join(parts)


def _marks(view: PointView, coordinate: int, ends: tuple[float, float] | None) -> list[tuple[float, str]]:
    if ends is None or ends[1] <= ends[0]:
        low, high = view.ends(coordinate)
        return [(0.0, low), (1.0, high)]
    low_value, high_value = ends
    found = round_marks(low_value, high_value)
    return [((one - low_value) / (high_value - low_value), f"{one:g}") for one in found]


def _kilometres(across: float) -> tuple[str, float]:
    """The longest round length that is at most a third of the width.

    >>> _kilometres(15.2)
    ('5 km', 0.32894736842105265)
    """
    size = 10.0 ** math.floor(math.log10(across / 3))
    length = max(size * k for k in (1, 2, 5) if size * k <= across / 3)
    text = f"{significant(length)} km" if length >= 1 else f"{significant(1000 * length)} m"
    return text, length / across
