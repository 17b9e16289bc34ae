"""The section on time, where flows are measured: how many there are, how many came, what changed.

Every number is a sum of measurements; no table is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.io.sources.calendar import CALENDAR_PERIODS
from dpstream.stream.measured_counts import Compared, Headline, compared, whole
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.flows import Span
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.dates import period_name
from dpstream.tools.report.markup import Html, block, integer

#: Values of a headline that are drawn, newest periods that have a bar, rows of a table of changes.
_VALUES, _BARS, _ROWS = 4, 40, 60
_TITLES = {"came": "Came", "left": "Left", "net": "Came less left"}
#: Of people in panels, who stay while their values change.
_CHANGED = {"came": "Changed to", "left": "Changed from", "net": "Changed to less changed from"}


def time_section(release: PublicRelease, found: Sequence[Headline], charts: Charts) -> Html | None:
    """The section; None where no flow is measured."""
    changes, left = compared(release, found)
    admitted = any(one.change.bound is not None for one in changes)
    parts = []
    for headline in (one for one in found if one not in left):
        name = " × ".join(headline.columns)
        tables = [_table(one) for one in changes if one.headline is headline]
        stocks, bars = _stocks(headline, charts, name), _bars(headline, charts)
        between = [] if bars or tables else _between(release, headline)
        if stocks or bars or tables:
            drawn = {"stocks": stocks, "bars": bars, "tables": tables}
            parts.append({"name": name, "between": between, **drawn})
    if not parts:
        return None
    names = [" × ".join(headline.columns) for headline in left]
    return block("time", "section", headlines=parts, left=names, admitted=admitted, compared=bool(changes))


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
    widths = np.array([estimate.half_widths().ravel() for _, estimate in known])
    has_band = (widths > 0).any()
    labels = known[-1][1].names if name else [""]
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
        labels = next(flow.names for flow in flows if flow) if headline.columns else [""]
        widths = [None if flow is None else flow.half_widths().ravel() for flow in flows]
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
        count, width = flow.values.item(), float(flow.half_widths().max())
        verb = {"came": "came", "left": "left", "net": "came, less those that left"}[events]
        own = {"span": str(flow.span), "count": count, "width": width, "records": flow.records, "verb": verb}
        found.append(own)
    return found


def _word(period: str) -> str:
    """What a period is called in a sentence."""
    length = period.split(",")[0]
    return length if length in CALENDAR_PERIODS else "period"


def _names(spans: Sequence[Span], period: str) -> list[str]:
    """A name for each period; those that would be named alike have their days or steps for names."""
    usual = whole(spans)
    names = [period_name(span, period if span in usual else "") for span in spans]
    many = Counter(names)
    return [name if many[name] == 1 else str(span) for name, span in zip(names, spans, strict=True)]


def _table(one: Compared) -> dict[str, Any]:
    """The facts of one comparison."""
    flows, rows = (one.change.earlier, one.change.later), one.rows
    return {
        "events": one.events,
        "records": flows[1].records,
        "word": _word(one.headline.period),
        "unit": "step" if one.spans[1].days is None else "day",
        "length": one.days[1],
        "judged": rows[0]["seen"] is not None,
        "names": _names(one.spans, one.headline.period),
        "widths": [float(flow.half_widths().max()) for flow in flows],
        "rows": rows[:_ROWS],
        "more": len(rows[_ROWS:]),
    }
