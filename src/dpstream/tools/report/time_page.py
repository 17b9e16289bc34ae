"""The section on time, where flows are measured: how many there are, how many came, what changed.

Every number is a sum of measurements; no table is read.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.io.sources.calendar import CALENDAR_PERIODS
from dpstream.stream.measured_counts import Headline
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.estimates import Estimate
from dpstream.stream.release.flows import MAX_COMPARISONS, Change, Events, Span, simultaneous
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.dates import period_name
from dpstream.tools.report.markup import Html, block, integer

_CONFIDENCE = 0.95
#: Values of a headline that are drawn, newest periods that have a bar, rows of a table of changes.
_VALUES, _BARS, _ROWS = 4, 40, 60
#: A page names headlines of more cells, and leaves them to the command.
_MOST_CELLS = 2_000
_TITLES = {"came": "Came", "left": "Left", "net": "Came less left"}
#: Of people in panels, who stay while their values change.
_CHANGED = {"came": "Changed to", "left": "Changed from", "net": "Changed to less changed from"}


@dataclass(frozen=True)
class _Compared:
    """The newest measured period of a headline beside the one before."""

    events: Events
    spans: tuple[Span, Span]
    change: Change


def time_section(release: PublicRelease, found: Sequence[Headline], charts: Charts) -> Html | None:
    """The section; None where no flow is measured."""
    shown, compared, cells = list[Headline](), dict[tuple[str, ...], list[_Compared]](), 0
    for headline in found:
        own = _compared(release, headline) if _cells(headline) <= _MOST_CELLS else []
        many = sum(one.change.later.values.size for one in own)
        if _cells(headline) <= _MOST_CELLS and cells + many <= MAX_COMPARISONS:
            shown.append(headline)
            compared[headline.columns], cells = own, cells + many
    admitted = any(one.change.bound is not None for own in compared.values() for one in own)
    parts = []
    for headline in shown:
        name = " × ".join(headline.columns)
        tables = [_table(headline, one, cells) for one in compared[headline.columns]]
        stocks, bars = _stocks(headline, charts, name), _bars(headline, charts)
        between = [] if bars or tables else _between(release, headline)
        if stocks or bars or tables:
            drawn = {"stocks": stocks, "bars": bars, "tables": tables}
            parts.append({"name": name, "between": between, **drawn})
    if not parts:
        return None
    left = [" × ".join(headline.columns) for headline in found if headline not in shown]
    return block("time", "section", headlines=parts, left=left, admitted=admitted, compared=cells > 0)


def _cells(headline: Headline) -> int:
    return max(flow.values.size for series in headline.flows.values() for flow in series.flows if flow)


def _labels(estimate: Estimate) -> list[str]:
    """The name of each cell."""
    return [" × ".join(cell) for cell in itertools.product(*estimate.labels)]


def _half_widths(estimate: Estimate, confidence: float = _CONFIDENCE) -> NDArray[np.float64]:
    """Of each cell."""
    interval = estimate.interval(confidence)
    if interval is None:
        return np.full(estimate.values.size, math.nan)
    return ((interval[1] - interval[0]) / 2).reshape(-1)


def _largest(headline: Headline) -> list[int]:
    """The cells with the most records, largest first."""
    known = [estimate for _, estimate in headline.known]
    series = next(iter(headline.flows.values()))
    values = (known or [flow for flow in series.flows if flow])[-1].values.ravel()
    return [int(cell) for cell in np.argsort(-values, kind="stable")[:_VALUES]]


def _stocks(headline: Headline, charts: Charts, name: str) -> Html | None:
    """A line for each of the largest values: how many there are at the end of each period."""
    known = headline.known
    if len(known) < 2:
        return None
    steps = [step for step, _ in known]
    values = np.array([estimate.values.ravel() for _, estimate in known])
    widths = np.array([_half_widths(estimate) for _, estimate in known])
    has_band = (widths > 0).any()
    labels = _labels(known[-1][1]) if name else [""]
    largest = _largest(headline)
    lines = [
        ChartLine(
            labels[cell] or "measured",
            values[:, cell],
            place,
            width=widths[:, cell] if has_band else None,
            named=bool(name),
        )
        for place, cell in enumerate(largest, 1)
    ]
    rest = values.shape[1] - len(largest)
    note = f"{integer(rest)} smaller values are not drawn." if rest else None
    title = f"{name}: number of records" if name else "Number of records"
    return charts.lines(title, steps, lines, Unit(title), note=note)


def _bars(headline: Headline, charts: Charts) -> list[Html]:
    """A chart of bars for the number of records, or for each of the largest values."""
    made = []
    for events, series in headline.flows.items():
        # Bars of spans that differ would mislead; a value has one chart.
        if not headline.period or (events != "came" and headline.columns and "came" in headline.flows):
            continue
        if events == "net" and "left" in headline.flows:
            continue
        spans, flows = series.spans[-_BARS:], series.flows[-_BARS:]
        labels = next(_labels(flow) for flow in flows if flow) if headline.columns else [""]
        widths = [None if flow is None else _half_widths(flow) for flow in flows]
        names = _names(spans, headline.period)
        left = len(series.spans) - len(spans)
        note = f"The newest {_BARS} periods; {integer(left)} earlier ones have no bar." if left else None
        for cell in _largest(headline):
            values = np.array([math.nan if flow is None else flow.values.flat[cell] for flow in flows])
            style = 2 if events == "left" else 1
            width = np.array([math.nan if own is None else own[cell] for own in widths])
            records = next(flow.records for flow in flows if flow)
            name = (_CHANGED if records == "people" else _TITLES)[events]
            line = ChartLine(name, values, style, width=width, named=False)
            title = f"{name}: {labels[cell]}" if labels[cell] else name
            unit = Unit(f"{records} a {_word(headline.period)}")
            made.append(charts.bars(title, names, line, unit, note=note))
    return made


def _between(release: PublicRelease, headline: Headline) -> list[dict[str, Any]]:
    """What came and what left between the two newest numbers of records, where spans differ too much for bars."""
    steps = [step for step, _ in headline.known][-2:]
    if headline.columns or len(steps) < 2:
        return []
    found = []
    for events in (own for own in headline.flows if own != "net" or len(headline.flows) == 1):
        try:
            flow = release.flow((), steps[0] + 1, steps[1], events=events)
        except ConfigError:  # not known
            continue
        count, width = flow.values.item(), float(_half_widths(flow).max())
        verb = {"came": "came", "left": "left", "net": "came, less those that left"}[events]
        own = {"span": str(flow.span), "count": count, "width": width, "records": flow.records, "verb": verb}
        found.append(own)
    return found


def _word(period: str) -> str:
    """What a period is called in a sentence."""
    length = period.split(",")[0]
    return length if length in CALENDAR_PERIODS else "period"


def _whole(spans: Sequence[Span]) -> list[Span]:
    """Those that are about as long as most: a stream's end cuts a period, and its first records may be one."""
    lengths = [span.days or span.last - span.first + 1 for span in spans]
    usual = float(np.median(lengths))
    return [span for span, length in zip(spans, lengths, strict=True) if length > 0.75 * usual]


def _names(spans: Sequence[Span], period: str) -> list[str]:
    """A name for each period; those that would be named alike have their days or steps for names."""
    whole = _whole(spans)
    names = [period_name(span, period if span in whole else "") for span in spans]
    many = Counter(names)
    return [name if many[name] == 1 else str(span) for name, span in zip(names, spans, strict=True)]


def _compared(release: PublicRelease, headline: Headline) -> list[_Compared]:
    found = []
    for events, series in headline.flows.items():
        known = [span for span, why in zip(series.spans, series.why, strict=True) if not why]
        known = _whole(known)[-2:] if known else known
        if not headline.period or len(known) < 2 or (events == "net" and "came" in headline.flows):
            continue
        earlier, later = ((span.first, span.last) for span in known)
        change = release.change(headline.columns, earlier=earlier, later=later, events=events)
        found.append(_Compared(events, (known[0], known[1]), change))
    return found


def _table(headline: Headline, one: _Compared, cells: int) -> dict[str, Any]:
    """The facts of one comparison; all of the page hold together with the confidence."""
    change, spans = one.change, one.spans
    many = change.later.values.size
    confidence = 1 - (1 - _CONFIDENCE) * many / cells
    seen = _seen(change, confidence)
    # Records a day, in the length of the later period.
    each = simultaneous(confidence, many)
    length = spans[1].days or spans[1].last - spans[1].first + 1
    columns = {
        "name": _labels(change.later),
        "earlier": change.earlier.values.ravel().tolist(),
        "later": change.later.values.ravel().tolist(),
        "change": change.difference.values.ravel().tolist(),
        "width": (_half_widths(change.daily, each) * length).tolist(),
        "seen": [None] * many if seen is None else seen.tolist(),
    }
    rows = [dict(zip(columns, cell, strict=True)) for cell in zip(*columns.values(), strict=True)]
    rows.sort(key=lambda row: (-abs(row["seen"] or 0), -abs(row["change"])))
    names = _names(spans, headline.period)
    return {
        "events": one.events,
        "records": change.later.records,
        "word": _word(headline.period),
        "unit": "step" if spans[1].days is None else "day",
        "adjacent": spans[0].last + 1 == spans[1].first,
        "judged": seen is not None,
        "names": names,
        "widths": [float(_half_widths(part).max()) for part in (change.earlier, change.later)],
        "rows": rows[:_ROWS],
        "more": len(rows[_ROWS:]),
    }


def _seen(change: Change, confidence: float) -> NDArray[np.int64] | None:
    """What rose and what fell; None where periods are not comparable, such as those of admitted records."""
    try:
        return change.direction(confidence).ravel()
    except ConfigError:
        return None
