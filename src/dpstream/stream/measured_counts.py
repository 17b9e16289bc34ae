"""What was measured over time as rows for other tools: one table for all answers, and SDMX-CSV 2.0."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dpstream.core.errors import ConfigError
from dpstream.io.sources.calendar import CALENDAR_PERIODS, period_number
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.estimates import Estimate, label_columns
from dpstream.stream.release.flows import Events, Series, Span

#: What a number counts: records that came, left, the first less the second, or those as of a day.
AS_OF: Final = "as of"


@dataclass(frozen=True)
class CountsOf:
    """The counts of a marginal in some steps, or as of the last of them.

    Attributes:
        kind: ``came``, ``left``, ``net`` or ``as of``.
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


def headlines(release: PublicRelease, most: int | None = None) -> list[Headline]:
    """The number of records and every headline, where their flows are measured.

    Args:
        most: stocks of each at most, evenly spaced, with the newest one.

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
    found = []
    for columns, period in lengths.items():
        flows = _flows(release, columns, period)
        if flows:
            series = next(iter(flows.values()))
            ends = [span for span, why in zip(series.spans, series.why, strict=True) if not why]
            stride = 1 if most is None else -(-len(ends) // most)
            stocks = list[CountsOf]()
            # A panel has no table of records that counts could be as of.
            with suppress(ConfigError):
                stocks = [as_of(release, columns, span) for span in ends[::-1][::stride][::-1]]
            found.append(Headline(columns, period or _length(series), flows, tuple(stocks)))
    return found


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
        del known["net"]
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
    status = "not known" if estimate is None else "measured"
    return CountsOf(AS_OF, tuple(columns), span, estimate, status)


def to_rows(counts: Iterable[CountsOf], confidence: float = 0.95, unit: str = "records") -> Any:
    """One row a count, as a pyarrow Table: ``from``, ``to`` (days, or steps), ``kind``, ``column``, ``value``,
    ``count``, ``unit``, ``standard_error``, ``low``, ``high``, ``status``.

    Names and values of several columns are joined by `` x ``.

    Args:
        unit: what is counted: ``records``, ``admitted records``, ``people``.
    """
    import pyarrow as pa

    parts = []
    for own in counts:
        numbers, labels = _cells(own, confidence)
        values = [" x ".join(cell) for cell in zip(*labels.values(), strict=True)] or [""]
        rows = len(numbers["count"])
        first = "" if own.kind == AS_OF else str(own.span.first_day or own.span.first)
        named = {
            "from": first,
            "to": str(own.span.last_day or own.span.last),
            "kind": own.kind,
            "column": " x ".join(own.columns),
        }
        columns: dict[str, Any] = {name: [text] * rows for name, text in named.items()}
        columns |= {
            "value": values if labels else [""] * rows,
            "count": numbers["count"],
            "unit": [unit] * rows,
        }
        columns |= {**numbers, "status": [own.status] * rows}
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


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
    all values), ``TIME_PERIOD``, ``OBS_VALUE`` and its attributes; ``unit`` as in ``to_rows``.

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
        columns["TIME_PERIOD"] = [time_period(own.span, is_stock=own.kind == AS_OF)] * rows
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
