"""How long people stay in a state: a curve of a panel, with exact intervals where windows were measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.law import NoiseSum
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.weighted_law import WeightedSum
from dpstream.core.tables.report_tables import PERSON, WEIGHT, called, wide_name
from dpstream.io.sinks import read_table
from dpstream.io.sinks.release_reader import measured_steps
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.evaluate.run_folder import Folder, Told
from dpstream.tools.report.markup import Html, element, interval_table, join, percent

#: Of the intervals of a curve, all together.
_CONFIDENCE = 0.95
#: Shares of fewer people say little.
_LEAST_JUDGED = 30.0
#: Ends of intervals are found to within this part, outwards.
_FINE = 0.001

#: Kinds of noise, and how many draws of each.
_Draws = tuple[tuple[Noise, int], ...]


def staying(
    run: Told, folder: Folder, columns: Sequence[tuple[str, tuple[str, ...]]], yes: str, periods: str
) -> Html | None:
    """How long people stay in the second of two states; None where that is not known.

    Args:
        yes: what that state is called.
        periods: what they are called, in the plural.
    """
    options = run.manifest["mechanism"]["options"]
    names, weighted = options.get("period_names"), "weight" in run.manifest.get("records", {})
    panel = run.manifest["accuracy"]["panel"]
    if not weighted and panel.get("padding_of_a_pattern", panel.get("padding", 0)):
        return None  # invented people would be counted
    last = run.shown[-1].step
    try:
        table = read_table(folder.releases, last)
    except ConfigError:
        return None  # changes only, or a table that is gone
    states, weights = _histories(table, columns, last, names, weighted)
    curve = _survival(states, weights)
    if len(curve) < 3:
        return None
    counts = [one for _, found in measured_steps(folder.releases, last) for one in found]
    measured = measured_staying(counts)[: len(curve) - 1]
    rows: list[tuple[str, str, float, float | tuple[float, float]]] = []
    for k in range(1, len(curve)):
        name = f"{k} more {periods if k > 1 else periods.rstrip('s')}"
        if k <= len(measured):
            share, low, high = measured[k - 1]
            rows.append((name, f"{percent(share)} ({percent(low)} to {percent(high)})", share, (low, high)))
        else:
            # From the last measured point on, what the released histories say.
            share = curve[k] if not measured else measured[-1][0] * curve[k] / curve[len(measured)]
            rows.append((f"{name} (not measured)", percent(share), share, math.nan))
    known = (
        f"What was measured of windows has exact intervals: with a chance of {100 * _CONFIDENCE:g} % or more all of "
        "them hold the truth. What goes beyond"
        if measured
        else "What is said here"
    )
    return join(
        [
            element("h3", f"Of those who became {yes}, how many still are?"),
            element(
                "p",
                f"Over all periods. {known} follows from the released histories, and no public number tells how wrong "
                "it is.",
            ),
            interval_table(rows, caption="Share that is still there after so many periods"),
        ]
    )


def measured_staying(counts: Sequence[NoisyCounts]) -> list[tuple[float, float, float]]:
    """Of those who entered the second of two states, the share still there after 1, 2, ... periods, with the ends of
    intervals that all hold the truth together with ``_CONFIDENCE`` or more.

    A share is a product: in each period some of those who were still there left. A part is in their interval exactly
    if what left, less that part of all, is no larger than its noise may be, whose law is exact (Fieller's argument).
    It ends with what windows hold, or where fewer than 30 people were seen.
    """
    windows = [
        one
        for one in counts
        if one.query["kind"] == "patterns"
        and one.series is None
        and isinstance(one.noise, NoiseSum)
        and len(one.values) == 2 ** int(one.query.get("periods", 0))
    ]
    width = min((int(one.query["periods"]) for one in windows), default=0)
    found: list[tuple[float, float, float]] = []
    confidence = 1 - (1 - _CONFIDENCE) / max(1, width - 2)
    for more in range(1, width - 1):
        (left, noise), (stayed, other) = (_sum_of(windows, (0, *(1,) * more, end)) for end in (0, 1))
        if left + stayed < _LEAST_JUDGED:
            break
        before = found[-1] if found else (1.0, 1.0, 1.0)
        least, most = _part_in(left, noise, stayed, other, confidence)
        part = min(most, max(least, left / (left + stayed)))
        found.append((before[0] * (1 - part), before[1] * (1 - most), before[2] * (1 - least)))
    return found


def _sum_of(windows: Sequence[NoisyCounts], ending: tuple[int, ...]) -> tuple[float, _Draws]:
    """People whose window ends so, over all windows, and the draws of noise that are in their number."""
    total, parts = 0.0, list[tuple[Noise, int]]()
    for one in windows:
        cells = one.values.reshape(-1, 2 ** len(ending))[:, int("".join(map(str, ending)), 2)]
        assert isinstance(one.noise, NoiseSum)
        total += float(cells.sum())
        parts += one.noise.times(len(cells)).parts
    return total, tuple(parts)


def _part_in(
    left: float, noise: _Draws, stayed: float, other: _Draws, confidence: float
) -> tuple[float, float]:
    """The parts that those who left may be of all; from none to all where noise could have made all of them."""

    def inside(part: float) -> bool:
        weights = ((noise, 1 - part), (other, part))
        parts = Counter[tuple[Noise, float]]()
        for draws, weight in weights:
            for draw, many in draws:
                parts[draw, weight] += many
        law = WeightedSum(tuple((draw, weight, many) for (draw, weight), many in parts.items() if weight))
        return abs(left - part * (left + stayed)) <= law.half_width(confidence)

    middle = min(1.0, max(0.0, left / (left + stayed)))
    everything = NoiseSum((*noise, *other)).half_width(confidence)
    if left + stayed <= everything or not inside(middle):
        return 0.0, 1.0
    ends = []
    for end in (0.0, 1.0):
        near, far = middle, end
        if inside(end):
            ends.append(end)
            continue
        while abs(far - near) > _FINE:
            between = (near + far) / 2
            near, far = (between, far) if inside(between) else (near, between)
        ends.append(far)
    return ends[0], ends[1]


def _histories(
    table: Any,
    columns: Sequence[tuple[str, tuple[str, ...]]],
    last: int,
    names: Sequence[str] | None,
    weighted: bool,
) -> tuple[Floats, Floats]:
    """Each person's states (0, 1) and weights, shape (people, periods); a period without weights has none."""
    ((name, labels),) = columns
    people = table.column(PERSON).length()
    states, weights = np.zeros((people, last)), np.full((people, last), 0.0 if weighted else 1.0)
    for period in range(1, last + 1):
        cells = table.column(wide_name(name, called(period, names))).to_pylist()
        states[:, period - 1] = [str(cell).lower() == labels[1].lower() for cell in cells]
        weight = wide_name(WEIGHT, called(period, names))
        if weighted and weight in table.column_names:
            weights[:, period - 1] = table.column(weight).to_numpy(zero_copy_only=False)
    return states, weights


def _survival(states: Floats, weights: Floats) -> list[float]:
    """The share of those who entered a state that is still there after 0, 1, 2, ... further periods (Kaplan, Meier).

    Who is judged at a period counts with that period's weight. It ends where fewer than 30 people are judged.

    >>> people = np.tile([[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]], (10, 1))
    >>> _survival(people, np.ones((30, 4)))[:2]
    [1.0, 0.6666666666666667]
    """
    periods = states.shape[1]
    curve = [1.0]
    for more in range(1, periods - 1):
        risk = left = 0.0
        for end in range(more + 1, periods):
            spell = states[:, end - more : end].all(axis=1) & (states[:, end - more - 1] == 0)
            risk += float(weights[spell, end].sum())
            left += float(weights[spell & (states[:, end] == 0), end].sum())
        if risk < _LEAST_JUDGED:
            break
        curve.append(curve[-1] * (1 - min(1.0, max(0.0, left / risk))))
    return curve
