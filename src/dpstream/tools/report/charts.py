"""Charts of a page: drawn here as SVG with direct labels; the script only reads values out under the pointer.

The curves stretch with the page, and the words beside them are HTML, so that they have the same size on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Html, block, percent, significant

#: Of a drawing: its own units, which stretch.
_WIDE, _HIGH = 1000, 400
#: Heights of a large and of a small chart, and of a line of words, in pixels.
_LARGE, _SMALL, _WORDS = 220, 130, 17


@dataclass(frozen=True)
class Unit:
    """What an axis counts: ``records``, or a share that is shown in percents."""

    words: str
    share: bool = False

    def text(self, value: float) -> str:
        """A value for people.

        >>> Unit("rows").text(70120.0), Unit("share", share=True).text(0.0312)
        ('70,120', '3.1 %')
        """
        return percent(value) if self.share else significant(value)


@dataclass(frozen=True)
class ChartLine:
    """One curve; NaN leaves a gap. ``style`` fixes colour and dashes; ``truth`` is drawn thick and grey.

    Attributes:
        width: half the width of the band around it, for instance two standard errors; None: no band.
        named: whether its name stands at its end; where a title says what it is, its last value is enough.
    """

    label: str
    values: NDArray[np.float64]
    style: int = 1
    truth: bool = False
    width: NDArray[np.float64] | None = None
    named: bool = True


@dataclass
class Charts:
    """Draws charts and collects their values for the script. ``dates``: what the steps are called."""

    dates: Calendar
    specs: list[dict[str, Any]] = field(default_factory=list)

    def lines(
        self,
        title: str,
        steps: Sequence[int],
        lines: Sequence[ChartLine],
        unit: Unit,
        *,
        note: str | None = None,
        small: bool = False,
        from_zero: bool = True,
    ) -> Html:
        """A line chart over steps. Both axes name their unit; the values stand in a table behind it."""
        span = max(1, steps[-1] - steps[0])
        places = {step: (step - steps[0]) / span if len(steps) > 1 else 0.5 for step in steps}
        ticks = _apart_ticks([(t, places[step]) for step, t in self.dates.ticks(steps, 2 if small else 5)])
        names = [self.dates.name(step) for step in steps]
        spec = {"x": [int(step) for step in steps]}
        y = _Axis.of(lines, from_zero)
        paths = _paths(steps, lines, y)
        return self._figure(title, names, lines, unit, y, spec, paths, ticks, note=note, small=small)

    def bars(
        self, title: str, names: Sequence[str], line: ChartLine, unit: Unit, *, note: str | None = None
    ) -> Html:
        """A small chart of a bar a name, each with the ends of its interval; the values stand in a table behind it."""
        many = len(names)
        places = [(i + 0.5) / many for i in range(many)]
        some = sorted({0, many - 1} if many < 5 else {many // 6, many - 1 - many // 6})
        spec = {"x": list(range(many)), "names": list(names)}
        y = _Axis.of([line], from_zero=True)
        paths = _bars(line, places, y)
        ticks = [(names[i], places[i]) for i in some]
        return self._figure(title, names, [line], unit, y, spec, paths, ticks, note=note, small=True)

    def _figure(
        self,
        title: str,
        names: Sequence[str],
        lines: Sequence[ChartLine],
        unit: Unit,
        y: _Axis,
        spec: dict[str, Any],
        paths: Sequence[tuple[str, str]],
        ticks: Sequence[tuple[str, float]],
        *,
        note: str | None,
        small: bool,
    ) -> Html:
        number = len(self.specs)
        self.specs.append({**spec, "share": unit.share, "lines": [_data(line) for line in lines]})
        # A name that begins as the title does need not say it again.
        labels = [line.label.removeprefix(f"{title} ") for line in lines]
        return block(
            "chart",
            "figure",
            number=number,
            title=title,
            small=small,
            unit=None if unit.words.lower() == title.lower() else unit.words,
            described="; ".join(spoken(line, names, unit) for line in lines),
            marks=[(unit.text(mark) if mark else "0", _part(y(mark))) for mark in y.marks],
            wide=_WIDE,
            high=_HIGH,
            paths=paths,
            ends=_ends(lines, labels, unit, y, _SMALL if small else _LARGE),
            ticks=[(text, _part(place)) for text, place in ticks],
            note=note,
        )

    def as_json(self, steps: Iterable[int]) -> dict[str, Any]:
        """For the page's data block; ``steps``: those that may need a name beside the charts'."""
        used = {*steps, *(step for spec in self.specs if "names" not in spec for step in spec["x"])}
        return {"charts": self.specs, "names": {str(step): self.dates.name(step) for step in sorted(used)}}


def spoken(line: ChartLine, names: Sequence[str], unit: Unit) -> str:
    """A curve in words, for who does not see it.

    >>> spoken(ChartLine("rows", np.array([10.0, 30.0, 20.0])), ["step 1", "step 2", "step 3"], Unit("rows"))
    'rows: 10 at step 1, 20 at step 3, between 10 and 30'
    """
    known = [
        (name, float(value)) for name, value in zip(names, line.values, strict=True) if math.isfinite(value)
    ]
    if not known:
        return f"{line.label}: no value"
    (first, start), (last, end) = known[0], known[-1]
    low, high = min(v for _, v in known), max(v for _, v in known)
    if len(known) == 1:
        return f"{line.label}: {unit.text(start)} at {first}"
    return (
        f"{line.label}: {unit.text(start)} at {first}, {unit.text(end)} at {last}, "
        f"between {unit.text(low)} and {unit.text(high)}"
    )


def polyline(
    x: NDArray[np.float64], y: NDArray[np.float64], wide: int, high: int, *, back: bool = False
) -> str:
    """A path through points of the unit square, from its upper left corner; a point that is NaN leaves a gap.

    >>> polyline(np.array([0, 0.5, 1]), np.array([0, np.nan, 1]), 10, 10)
    'M0 0M10 10'
    """
    parts, drawing = [], False
    order = range(len(x) - 1, -1, -1) if back else range(len(x))
    for i in order:
        if not (known := math.isfinite(y[i])):
            drawing = False
            continue
        parts.append(f"{'L' if drawing or back else 'M'}{round(wide * x[i])} {round(high * y[i])}")
        drawing = known
    return "".join(parts)


def _places(steps: Sequence[int]) -> NDArray[np.float64]:
    span = max(1, steps[-1] - steps[0])
    places = (np.array(steps, np.float64) - steps[0]) / span
    return places if len(steps) > 1 else places + 0.5


def _paths(steps: Sequence[int], lines: Sequence[ChartLine], y: _Axis) -> list[tuple[str, str]]:
    """What is drawn, one thing over the other: the classes of each path, and the path."""
    x = _places(steps)
    bands, curves, dots = [], [], []
    for line in lines:
        style = "s0" if line.truth else f"s{line.style}"
        if line.width is not None and np.isfinite(line.width).any():
            bands.append((f"band {style}", _band(x, line, y)))
        curves.append((style, polyline(x, y(line.values), _WIDE, _HIGH)))
        alone = _alone(np.isfinite(line.values))
        if len(steps) <= 12 or alone.any():
            shown = np.where(alone if len(steps) > 12 else np.isfinite(line.values), y(line.values), math.nan)
            places = "".join(
                f"M{round(_WIDE * px)} {round(_HIGH * py)}h0"
                for px, py in zip(x, shown, strict=True)
                if math.isfinite(py)
            )
            dots.append((f"dots {style}", places))
    return [("grid-line", y.grid), *bands, *curves, *dots]


def _bars(line: ChartLine, places: Sequence[float], y: _Axis) -> list[tuple[str, str]]:
    """Bars from 0, and over each the ends of its interval."""
    half = 0.36 / len(places)
    bars, ends, zero = [], [], round(_HIGH * y(0.0))
    for i, (place, value) in enumerate(zip(places, line.values.tolist(), strict=True)):
        if not math.isfinite(value):
            continue
        left, right = round(_WIDE * (place - half)), round(_WIDE * (place + half))
        bars.append(f"M{left} {zero}V{round(_HIGH * y(value))}H{right}V{zero}Z")
        width = math.nan if line.width is None else float(line.width[i])
        if width > 0:
            top, low = (round(_HIGH * y(value + side * width)) for side in (1, -1))
            ends.append(f"M{round(_WIDE * place)} {top}V{low}")
    found = [("grid-line", y.grid), (f"bar-of s{line.style}", "".join(bars))]
    return [*found, ("whisker", "".join(ends))] if ends else found


def _apart_ticks(ticks: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Without those whose words would lie over the next ones."""
    after = [*(place for _, place in ticks[1:]), math.inf]
    return [tick for tick, place in zip(ticks, after, strict=True) if place - tick[1] > 0.12]


def _alone(known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Points without a neighbour, which would be no line."""
    padded = np.pad(known, 1)
    return known & ~padded[:-2] & ~padded[2:]


def _band(x: NDArray[np.float64], line: ChartLine, y: Any) -> str:
    assert line.width is not None
    known = np.isfinite(line.values) & np.isfinite(line.width)
    parts = []
    for run in np.split(np.arange(len(x)), np.flatnonzero(np.diff(known.astype(int))) + 1):
        if len(run) and known[run[0]]:
            upper = np.clip(y(line.values[run] + line.width[run]), -0.1, 1.1)
            lower = np.clip(y(line.values[run] - line.width[run]), -0.1, 1.1)
            parts.append(
                f"{polyline(x[run], upper, _WIDE, _HIGH)}{polyline(x[run], lower, _WIDE, _HIGH, back=True)}Z"
            )
    return "".join(parts)


@dataclass(frozen=True)
class _Axis:
    """Places of values, from the upper end of an axis to the lower one, and a few round marks."""

    low: float
    high: float
    marks: list[float]

    def __call__(self, value: Any) -> Any:
        return (self.high - value) / (self.high - self.low)

    @property
    def grid(self) -> str:
        """A line at each mark."""
        return "".join(f"M0 {round(_HIGH * self(mark))}H{_WIDE}" for mark in self.marks)

    @classmethod
    def of(cls, lines: Sequence[ChartLine], from_zero: bool) -> _Axis:
        """The axis that shows some lines."""
        values = [line.values for line in lines]
        # A band that is many times as high as its line would flatten it: it may leave the picture.
        values += [line.values + s * line.width for line in lines if line.width is not None for s in (-1, 1)]
        known = np.concatenate([v[np.isfinite(v)] for v in values]) if values else np.zeros(0)
        curves = np.concatenate([line.values[np.isfinite(line.values)] for line in lines])
        if not len(known):
            return cls(0.0, 1.0, [0.0])
        low, high = float(known.min()), float(known.max())
        if from_zero:
            low, high = min(0.0, float(curves.min())), min(high, max(3.0 * float(curves.max()), 1e-12))
            high = max(high, float(curves.max()))
        if high <= low:
            high = low + (abs(low) or 1.0)
        marks = round_marks(low, high)
        room = 0.04 * (high - low)
        return cls(low if from_zero and low == 0 else low - room, high + room, marks)


def round_marks(low: float, high: float) -> list[float]:
    """Up to five round numbers between two others, evenly apart.

    >>> round_marks(0, 10023), round_marks(46.9, 47.0)
    ([0.0, 5000.0, 10000.0], [46.9, 46.925, 46.95, 46.975, 47.0])
    """
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    step = next(step * k for k in (1, 2, 2.5, 5, 10) if (high - low) / (step * k) <= 4 + 1e-9)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _part(place: float) -> str:
    return f"{100 * place:.1f}%"


def _ends(
    lines: Sequence[ChartLine], names: Sequence[str], unit: Unit, y: Any, height: int
) -> list[dict[str, Any]]:
    """The names of the curves with their last values, moved apart where they would lie over each other."""
    known: list[tuple[float, ChartLine, str, str]] = []
    for line, name in zip(lines, names, strict=True):
        there = np.flatnonzero(np.isfinite(line.values))
        if len(there):
            value = float(line.values[there[-1]])
            known.append((height * min(1.0, max(0.0, float(y(value)))), line, name, unit.text(value)))
    known.sort(key=lambda entry: entry[0])
    # A value, and what it is, in a line of words each.
    lines_of_words = 2 if any(line.named for _, line, _, _ in known) else 1
    places = _apart([entry[0] for entry in known], _WORDS * lines_of_words, height)
    return [
        {
            "value": value,
            "name": name if line.named else None,
            "label": line.label,
            "style": 0 if line.truth else line.style,
            "top": _part(place / height),
        }
        for place, (_, line, name, value) in zip(places, known, strict=True)
    ]


def _apart(places: list[float], room: float, height: float) -> list[float]:
    """Ascending places moved so that each has its room, and all stay within the height.

    >>> _apart([50.0, 52.0, 99.0], 20, 100)
    [50.0, 70.0, 90.0]
    """
    room = min(room, height / max(1, len(places)))
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + room)
    limit = height - room / 2
    for i in reversed(range(len(places))):
        places[i] = min(places[i], limit)
        limit = places[i] - room
    return places


def _data(line: ChartLine) -> dict[str, Any]:
    facts = {
        "label": line.label,
        "style": 0 if line.truth else line.style,
        "values": _plain(line.values),
    }
    return facts if line.width is None else {**facts, "width": _plain(line.width)}


def _plain(values: NDArray[np.float64]) -> list[float | int | None]:
    """Four significant digits carry a chart; NaN becomes a gap."""
    plain: list[float | int | None] = []
    for value in values:
        number = float(value)
        if not math.isfinite(number):
            plain.append(None)
        elif number == int(number):
            plain.append(int(number))
        else:
            plain.append(float(f"{number:.4g}"))
    return plain
