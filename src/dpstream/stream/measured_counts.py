"""What was measured over time as rows for other tools: one table for all answers, and SDMX-CSV 2.0."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dpstream.core.errors import ConfigError
from dpstream.io.sinks.period_tables import has_periods
from dpstream.io.sinks.release_reader import panel_labels
from dpstream.io.sources.calendar import CALENDAR_PERIODS, period_number
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.estimates import Estimate, label_columns
from dpstream.stream.release.flows import Events, Series, Span, days_of

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
        columns: none for the number of records. period: how long it is measured; empty where epochs differ.
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
    lengths = ({(): ""} if measured else {}) | {
        marginal.columns: str(marginal.query["period"])
        for one in measured
        for marginal in one.marginals
        if "period" in marginal.query and marginal.columns is not None
    }
    if has_periods(release.manifest()):
        lengths = {(name,): "" for name in panel_labels(release.folder)}
    lengths = lengths | {(name,): "" for name in also if (name,) not in lengths}
    found = []
    for columns, period in lengths.items():
        flows = _flows(release, columns, period)
        if flows:
            series = next(iter(flows.values()))
            ends = [span for span, why in zip(series.spans, series.why, strict=True) if not why]
            stride = 1 if most is None else -(-len(ends) // most)
            stocks = [as_of(release, columns, span) for span in ends[::-1][::stride][::-1]]
            found.append(Headline(columns, period or _length(series), flows, tuple(stocks)))
    return found


#: Rows of a file of counts at most; columns that would make it longer are left to ``dpstream measured --column``.
MAX_ROWS = 100_000


def published_counts(release: PublicRelease) -> tuple[list[CountsOf], list[str]]:
    """What ``counts.csv`` beside the releases holds: what came, left and is present, of the number of records, every
    headline and every column; and the columns that are left out, because they have too many values.

    Errors:
        StoreDamagedError: files that differ from the published hashes.
    """
    has_columns = release.measurements() and not has_periods(release.manifest())
    columns = release.columns if has_columns else ()
    counts, left, rows = list[CountsOf](), list[str](), 0
    flowing = {headline.columns: headline for headline in headlines(release, also=columns)}
    number = [()] if has_columns else []
    for names in dict.fromkeys([*number, *flowing, *((name,) for name in columns)]):
        found = _now(release, names)
        if names in flowing:
            headline = flowing[names]
            known = headline.stocks if headline.known else ()
            found = [one for one in headline.counts if one.kind in ("came", "left")] + [*known]
        size = sum(1 if one.estimate is None else one.estimate.values.size for one in found)
        if names and rows + size > MAX_ROWS:
            left.append(" x ".join(names))
        else:
            counts, rows = counts + found, rows + size
    return counts, left


def _now(release: PublicRelease, columns: tuple[str, ...]) -> list[CountsOf]:
    """The newest counts of a marginal whose flows are not known: of all measurements, where it has none by itself."""
    estimate = release.measured(columns) or release.measured(columns, combine="least squares")
    step = release.step if estimate is None else estimate.as_of
    days = days_of(release.manifest(step).get("period"))
    span = Span(step, step, *(days or ()))
    return [CountsOf(PRESENT, columns, span, estimate, "not known" if estimate is None else "measured")]


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


def as_of(release: PublicRelease, columns: Sequence[str], span: Span) -> CountsOf:
    """The counts as of the end of some steps."""
    estimate = release.measured(columns, as_of=span.last)
    if estimate is None and not columns:  # of a census: what is left of those that it has counted
        with suppress(ConfigError):
            estimate = release.flow(end=span.last)
    status = "not known" if estimate is None else "measured"
    return CountsOf(PRESENT, tuple(columns), span, estimate, status)


def to_rows(counts: Iterable[CountsOf], confidence: float = 0.95) -> Any:
    """One row a count, as a pyarrow Table: ``from``, ``to`` (days, or steps), ``kind``, ``column`` (``all``: the number
    of records), ``value``, ``count``, ``standard_error``, ``low95``, ``high95`` (the confidence), ``status``.

    Names and values of several columns are joined by `` x ``. The status is ``exact``: measured, with an exact
    interval; ``least squares``: of measurements that were chosen by earlier ones, without an interval; ``not known``;
    ``from step N``: the value was discovered then, and records before are in the bin for other values.
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
        status = "not known" if own.estimate is None else "exact"
        if own.estimate is not None and own.estimate.chosen:
            status = "least squares"
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
    labels = label_columns(own.estimate.columns, own.estimate.labels)
    return (
        {"count": table["measured"], **{name: table[name] for name in _ERRORS}},
        {name: column.to_pylist() for name, column in labels.items()},
    )


_ERRORS = ("standard_error", "low", "high")

#: SDMX's code list of observation statuses: a normal value; missing; not collected; suppressed.
_STATUS = {"measured": "A", "under way": "O", "not known": "L", "withdrawn": "Q"}
#: SDMX's code for all values of a dimension.
_TOTAL = "_T"


def to_sdmx(counts: Sequence[CountsOf], stream: str, confidence: float = 0.95, unit: str = "records") -> Any:
    """The rows of an SDMX-CSV 2.0 file as a pyarrow Table: a dimension for what is counted and for each column (``_T``:
    all values), ``TIME_PERIOD``, ``OBS_VALUE`` and its attributes.

    Args:
        unit: what is counted: ``records``, ``admitted records``, ``people``.

    Errors:
        ConfigError: the steps have no days.
    """
    import pyarrow as pa

    names = _identifiers(dict.fromkeys(name for own in counts for name in own.columns))
    parts = []
    for own in counts:
        numbers, labels = _cells(own, confidence)
        rows = len(numbers["count"])
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
            "OBS_STATUS": [_STATUS[own.status]] * rows,
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
        raise ConfigError(
            "the steps of this stream have no days", where="--format sdmx-csv", allowed="--format csv"
        )
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
