"""What was measured over time as rows for other tools: one table for all answers, and SDMX-CSV 2.0."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.io.sinks.period_tables import has_periods
from dpstream.io.sinks.release_reader import panel_labels
from dpstream.io.sources.calendar import CALENDAR_PERIODS, period_number
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.combined import CellsOf
from dpstream.stream.release.estimates import Estimate, label_columns
from dpstream.stream.release.flow_kinds import WindowFlows
from dpstream.stream.release.flows import (
    MAX_COMPARISONS,
    Change,
    Events,
    Series,
    Span,
    days_of,
    no_days,
    simultaneous,
)

#: What a number counts: records that came, left, the first less the second, or those present at the end of a day.
PRESENT: Final = "present"


@dataclass(frozen=True)
class CountsOf:
    """The counts of a marginal in some steps, or as of the last of them.

    Attributes:
        kind: ``came``, ``left``, ``net`` or ``present``.
        estimate: None where ``status`` says why it is missing.
    """

    kind: str
    columns: tuple[str, ...]
    span: Span
    estimate: Estimate | None
    status: str = "measured"


@dataclass(frozen=True)
class Headline:
    """What was measured of a marginal again and again.

    Attributes:
        columns: none for the number of records. period: how long it is measured; empty where epochs differ, and for
            other columns.
        flows: by events, one after the other. stocks: at the end of each measured period.
    """

    columns: tuple[str, ...]
    period: str
    flows: dict[Events, Series]
    stocks: tuple[CountsOf, ...]

    @property
    def known(self) -> list[tuple[int, Estimate]]:
        """The stocks that are measured, by their step."""
        return [(one.span.last, one.estimate) for one in self.stocks if one.estimate is not None]

    @property
    def cells(self) -> int:
        """How many values it has."""
        return max(flow.values.size for series in self.flows.values() for flow in series.flows if flow)

    @property
    def counts(self) -> list[CountsOf]:
        """All of it."""
        found = [one for events, series in self.flows.items() for one in of_series(events, series)]
        return [*found, *self.stocks]


def headlines(release: PublicRelease, most: int | None = None, also: Iterable[str] = ()) -> list[Headline]:
    """The number of records and every headline, where their flows are measured; of a panel each column.

    Args:
        most: stocks of each at most, evenly spaced, with the newest one.
        also: more columns, by the groups of steps that measured them.

    Errors:
        StoreDamagedError: files that differ from the published hashes.
    """
    measured = release.measurements()
    public = release.manifest()["relation"] == "replace"
    lengths = ({(): ""} if measured or public else {}) | {
        marginal.columns: str(marginal.query["period"])
        for one in measured
        for marginal in one.marginals
        if "period" in marginal.query and marginal.columns is not None
    }
    if has_periods(release.manifest()):
        lengths = {(name,): "" for name in panel_labels(release.folder)}
    found, more = [], {(name,): "" for name in also if (name,) not in lengths}
    for columns, period in (lengths | more).items():
        flows = _flows(release, columns, period)
        if flows:
            series = next(iter(flows.values()))
            ends = [span for span, why in zip(series.spans, series.why, strict=True) if not why]
            stride = 1 if most is None else -(-len(ends) // most)
            stocks = [
                present(release, columns, release.measured(columns, as_of=span.last), span)
                for span in ends[::-1][::stride][::-1]
            ]
            length = "" if columns in more else period or _length(series)
            found.append(Headline(columns, length, flows, tuple(stocks)))
    return found


#: Rows of a file of counts at most; columns that would make it longer are left to ``dpstream measured --column``.
MAX_ROWS = 100_000
#: A page names headlines of more cells, and leaves them to the command.
_PAGE_CELLS = 2_000


def published_counts(release: PublicRelease) -> tuple[list[CountsOf], list[str], list[Headline]]:
    """What ``counts.csv`` beside the releases holds: what came, left and is present, of the number of records, every
    headline and every column; the columns that are left out, because they have too many values; and all whose flows
    are known.

    Errors:
        StoreDamagedError: files that differ from the published hashes.
    """
    has_columns = release.measurements() and not has_periods(release.manifest())
    columns = release.columns if has_columns else ()
    counts, left, rows = list[CountsOf](), list[str](), 0
    flowing = {headline.columns: headline for headline in headlines(release, also=columns)}
    number = [()] if has_columns else []
    if has_periods(release.manifest()):
        counts += _of_people(release)
    for names in dict.fromkeys([*number, *flowing, *((name,) for name in columns)]):
        if (headline := flowing.get(names)) is not None:
            known = headline.stocks if headline.known else ()
            found = [one for one in headline.counts if one.kind in ("came", "left")] + [*known]
        else:  # of all measurements, where it has none by itself
            newest = release.measured(names) or release.measured(names, combine="least squares")
            found = [present(release, names, newest)]
        size = sum(1 if one.estimate is None else one.estimate.values.size for one in found)
        if names and rows + size > MAX_ROWS:
            left.append(" x ".join(names))
        else:
            counts, rows = counts + found, rows + size
    return [*counts, *(means(release) if has_columns else ())], left, list(flowing.values())


def means(release: PublicRelease) -> list[CountsOf]:
    """Of every headline that is a mean: what came and left in each period.

    Errors:
        StoreDamagedError: files that differ from the published hashes.
    """
    queries = [one.query for one in release.measurements() if one.query["kind"] == "mean"]
    found = list[CountsOf]()
    for columns, period in {tuple(query["columns"]): query["period"] for query in queries}.items():
        for events in _EVENTS[:2]:
            with suppress(ConfigError):
                found += of_series(events, release.series(columns, period, events=events))
    return found


def _of_people(release: PublicRelease) -> Iterator[CountsOf]:
    """Of a panel, as of each period: all people (nobody joins or leaves), those with each value, or those who reported
    a counted value so many times."""
    labels, people, lines = panel_labels(release.folder), release.people(), release.measurements()
    for last in dict.fromkeys(one.last for one in lines):
        yield CountsOf(PRESENT, (), _span_of(release, last), people)
    for one in lines:
        for name in one.query["columns"]:
            found: Any
            if one.query["kind"] == "patterns":
                found = WindowFlows((one,), {}, (), labels).flow((name,), one.last, one.last, PRESENT)
            else:
                names = (f"{name}, at least {one.query['times']} times",)
                values = ((" or ".join(labels[name][code] for code in one.query["codes"]),),)
                counted, parts = one.values.astype(np.float64), (CellsOf(one, 1.0, 1),)
                found = Estimate(names, values, counted, one.last, ((1, one.last),), False, parts)
            yield CountsOf(PRESENT, found.columns, _span_of(release, one.last), found)


@dataclass(frozen=True)
class Compared:
    """The newest whole period of a headline beside the one just before.

    Attributes:
        change: from the earlier flow to the later one.
        confidence: of all its cells together.
    """

    headline: Headline
    events: Events
    change: Change
    confidence: float

    @property
    def spans(self) -> tuple[Span, Span]:
        """The earlier period and the later one."""
        return self.change.earlier.span, self.change.later.span

    @property
    def days(self) -> list[int]:
        """How many days, or steps, each period has."""
        return [span.length for span in self.spans]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a cell, changes that are seen first: ``name``, ``earlier``, ``later``, ``change``; of records a day (or
        step) ``width``, half an interval of the change, and ``seen``: 1 rose, -1 fell, 0 neither; None: nobody can say,
        such as of admitted records."""
        flows = self.change.earlier, self.change.later, self.change.difference
        cells = flows[1].values.size
        widths = self.change.daily.half_widths(simultaneous(self.confidence, cells)).ravel()
        seen: Any = np.full(cells, None)
        with suppress(ConfigError):
            seen = self.change.direction(self.confidence)
        columns = [
            list(flows[1].names),
            *(one.values.ravel().tolist() for one in flows),
            widths,
            seen.ravel(),
        ]
        names = ("name", "earlier", "later", "change", "width", "seen")
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return sorted(rows, key=lambda row: (-abs(row["seen"] or 0), -abs(row["change"])))


def compared(release: PublicRelease, found: Iterable[Headline]) -> tuple[list[Compared], list[Headline]]:
    """The two newest whole periods of each headline, where one follows the other; and the headlines that have too many
    cells for a page, or more with those before than may be compared.

    All comparisons hold together with a probability of 95 %, which they share by their cells.
    """
    made, left, cells = list[tuple[Headline, Events, Change]](), list[Headline](), 0
    for headline in found:
        size, own = headline.cells, list(_pairs(headline)) if headline.period else []
        if size > _PAGE_CELLS or cells + size * len(own) > MAX_COMPARISONS:
            left.append(headline)
            continue
        cells += size * len(own)
        for events, spans in own:
            earlier, later = ((span.first, span.last) for span in spans)
            change = release.change(headline.columns, earlier=earlier, later=later, events=events)
            made.append((headline, events, change))
    return [Compared(*one, 1.0 - 0.05 * one[0].cells / cells) for one in made], left


def _pairs(headline: Headline) -> Iterator[tuple[Events, list[Span]]]:
    """Where the last two whole periods that are measured follow each other: these. What came is compared, not net."""
    for events, series in headline.flows.items():
        spans = whole([span for span, why in zip(series.spans, series.why, strict=True) if not why])[-2:]
        adjacent = len(spans) == 2 and spans[0].last + 1 == spans[1].first
        if adjacent and (events != "net" or "came" not in headline.flows):
            yield events, spans


def whole(spans: Sequence[Span]) -> list[Span]:
    """Those that are about as long as most: a stream's end cuts a period, and its first records may be one."""
    lengths = [span.length for span in spans]
    usual = float(np.median(lengths)) if lengths else 0.0
    return [span for span, length in zip(spans, lengths, strict=True) if length > 0.75 * usual]


def present(
    release: PublicRelease, columns: Sequence[str], estimate: Estimate | None, span: Span | None = None
) -> CountsOf:
    """The counts as of the end of some steps; by default of the step of the estimate, or the newest one."""
    if span is None:
        span = _span_of(release, release.step if estimate is None else estimate.as_of)
    status = "not known" if estimate is None else "measured"
    return CountsOf(PRESENT, tuple(columns), span, estimate, status)


def _span_of(release: PublicRelease, step: int) -> Span:
    return Span(step, step, *(days_of(release.manifest(step).get("period")) or ()))


def variances_add(counts: Iterable[CountsOf]) -> bool:
    """Whether the variances of counts of periods add: no draw of noise is in two of them."""
    seen = set[str]()
    for one in counts:
        draws = set() if one.estimate is None else one.estimate.shared
        if not seen.isdisjoint(draws):
            return False
        seen |= draws
    return True


def _length(series: Series) -> str:
    """The length of periods that are not public by themselves; empty where they differ."""
    lengths = {span.last - span.first + 1 for span in series.spans}
    return f"{lengths.pop()} steps" if len(lengths) == 1 else ""


def _flows(release: PublicRelease, columns: tuple[str, ...], period: str) -> dict[Events, Series]:
    """Where records only come, what came is all there is."""
    known = dict[Events, Series]()
    for events in _EVENTS:
        # Public periods are known whatever was withdrawn; of other streams what was measured says them.
        for every in (period, None) if period else (None,):
            with suppress(ConfigError):
                known[events] = release.series(columns, every, events=events)
                break
    if "came" in known and "left" not in known:
        known.pop("net", None)
    return known


_EVENTS: Final[tuple[Events, ...]] = ("came", "left", "net")


def of_series(events: Events, series: Series) -> list[CountsOf]:
    """The counts of each period."""
    return [
        CountsOf(events, series.columns, span, flow, why or "measured")
        for span, flow, why in zip(series.spans, series.flows, series.why, strict=True)
    ]


def to_rows(counts: Iterable[CountsOf], confidence: float = 0.95) -> Any:
    """One row a count, as a pyarrow Table: ``from``, ``to`` (days, or steps), ``kind``, ``column`` (``all``: the number
    of records), ``value``, ``count``, ``standard_error``, ``low95``, ``high95`` (the confidence), ``status``.

    Names and values of several columns are joined by `` x ``. The status is ``exact``: measured, with an exact
    interval; ``approximate``: a sum of draws some of which decided how many follow; ``least squares``: of measurements
    that were chosen by earlier ones, without an interval; ``not known``; ``from step N``: the value was discovered
    then, and records before are in the bin for other values.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = (*("from", "to", "kind", "column", "value"), "status")
    texts: dict[str, list[str]] = {name: [] for name in names}
    numbers: dict[str, list[Any]] = {name: [] for name in ("count", *_ERRORS)}
    for own in counts:
        measured, labels = _cells(own, confidence)
        values = [" x ".join(cell) for cell in zip(*labels.values(), strict=True)]
        rows = len(measured["count"])
        first = "" if own.kind == PRESENT else str(own.span.first_day or own.span.first)
        last, column = str(own.span.last_day or own.span.last), " x ".join(own.columns) or "all"
        status = "not known" if own.estimate is None else own.estimate.kind
        for name, text in zip(names, (first, last, own.kind, column, None, status), strict=True):
            texts[name] += (values or [""] * rows) if text is None else [text] * rows
        if own.estimate is not None and own.estimate.began:
            ahead = own.estimate.begins.ravel().tolist()
            texts["status"][-rows:] = [f"from step {at}" if at else status for at in ahead]
        for name, column_values in measured.items():
            numbers[name] += pc.round(column_values, 3).to_pylist()
    percent, status_of = f"{100 * confidence:g}", texts.pop("status")
    called = {"low": f"low{percent}", "high": f"high{percent}"}
    columns = {name: pa.array(cells, pa.string()) for name, cells in texts.items()}
    columns |= {called.get(name, name): pa.array(cells, pa.float64()) for name, cells in numbers.items()}
    return pa.table({**columns, "status": pa.array(status_of, pa.string())})


def _cells(own: CountsOf, confidence: float) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The numbers of each cell, and its labels by column."""
    import pyarrow as pa

    if own.estimate is None:
        return {name: pa.nulls(1, pa.float64()) for name in ("count", *_ERRORS)}, {}
    table = own.estimate.to_table(confidence)
    labels = label_columns(*own.estimate.groups)
    return (
        {"count": table["measured"], **{name: table[name] for name in _ERRORS}},
        {name: column.to_pylist() for name, column in labels.items()},
    )


_ERRORS = ("standard_error", "low", "high")

#: SDMX's code list of observation statuses: a normal value; an estimated one; missing; not collected; suppressed.
_STATUS = {"measured": "A", "approximate": "E", "under way": "O", "not known": "L", "withdrawn": "Q"}
#: SDMX's code for all values of a dimension.
_TOTAL = "_T"


def to_sdmx(counts: Sequence[CountsOf], stream: str, confidence: float = 0.95, unit: str = "records") -> Any:
    """The rows of an SDMX-CSV 2.0 file as a pyarrow Table: a dimension for what is counted and for each column (``_T``:
    all values), ``TIME_PERIOD``, ``OBS_VALUE`` and its attributes.

    Means are left out.

    Args:
        unit: what is counted: ``records``, ``admitted records``, ``people``.

    Errors:
        ConfigError: the steps have no days.
    """
    import pyarrow as pa

    counts = [own for own in counts if own.estimate is None or own.estimate.ends is None]
    names = _identifiers(dict.fromkeys(name for own in counts for name in own.columns))
    parts = []
    for own in counts:
        numbers, labels = _cells(own, confidence)
        rows, is_about = len(numbers["count"]), own.estimate is not None and own.estimate.approximate
        fixed = {
            "STRUCTURE": "dataflow",
            "STRUCTURE_ID": f"DPSTREAM:{_identifier(stream)}(1.0.0)",
            "ACTION": "I",
            "COUNTED": _identifier(own.kind),
        }
        columns: dict[str, Any] = {name: [text] * rows for name, text in fixed.items()}
        columns |= {other: labels.get(name, [_TOTAL] * rows) for name, other in names.items()}
        columns["TIME_PERIOD"] = [time_period(own.span, is_stock=own.kind == PRESENT)] * rows
        columns |= {
            "OBS_VALUE": numbers["count"],
            "UNIT_MEASURE": [_identifier(unit)] * rows,
            "STD_ERROR": numbers["standard_error"],
            "LOWER": numbers["low"],
            "UPPER": numbers["high"],
            "CONFIDENCE": [f"{100 * confidence:g}"] * rows,
            "OBS_STATUS": [_STATUS["approximate" if is_about else own.status]] * rows,
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def _identifier(text: str) -> str:
    """A name as SDMX identifiers are: capitals, digits and underscores after a letter.

    >>> _identifier("as of"), _identifier("2nd reason")
    ('AS_OF', 'X_2ND_REASON')
    """
    plain = re.sub(r"[^A-Z0-9_]", "_", text.upper())
    return plain if "A" <= plain[:1] <= "Z" else f"X_{plain}"


#: Components of the file beside columns.
_TAKEN = (
    *("STRUCTURE", "STRUCTURE_ID", "ACTION", "COUNTED", "TIME_PERIOD", "OBS_VALUE", "STD_ERROR"),
    *("UNIT_MEASURE", "LOWER", "UPPER", "CONFIDENCE", "OBS_STATUS"),
)


def _identifiers(names: Iterable[str]) -> dict[str, str]:
    """An identifier for each column; two are never the same."""
    found: dict[str, str] = {}
    for name in names:
        plain, number = _identifier(name), 2
        while plain in (*_TAKEN, *found.values()):
            plain, number = f"{_identifier(name)}_{number}", number + 1
        found[name] = plain
    return found


def time_period(span: Span, *, is_stock: bool = False) -> str:
    """Days as SDMX writes them: a whole year, quarter, month or week by its name, other days by the first one and their
    number; a stock by its day.

    >>> day = datetime.date.fromisoformat
    >>> [time_period(Span(1, 1, day(a), day(b))) for a, b in (("2024-01-01", "2024-03-31"),
    ...     ("2024-03-01", "2024-03-31"), ("2024-01-29", "2024-02-04"), ("2023-12-25", "2024-03-24"))]
    ['2024-Q1', '2024-03', '2024-W05', '2023-12-25/P91D']

    Errors:
        ConfigError: the steps have no days.
    """
    first, last = span.first_day, span.last_day
    if first is None or last is None:
        raise no_days("--format sdmx-csv", "--format csv")
    if is_stock or first == last:
        return last.isoformat()
    # Whole: the days around it are of other periods.
    around = first - datetime.timedelta(days=1), last + datetime.timedelta(days=1)
    for length in CALENDAR_PERIODS:
        before, begin, end, after = (
            period_number(length, day) for day in (around[0], first, last, around[1])
        )
        if before < begin == end < after:
            year, week, _ = first.isocalendar()
            return {
                "week": f"{year}-W{week:02d}",
                "month": f"{first:%Y-%m}",
                "quarter": f"{first.year}-Q{(first.month + 2) // 3}",
                "year": f"{first.year}",
            }[length]
    return f"{first}/P{span.days}D"
