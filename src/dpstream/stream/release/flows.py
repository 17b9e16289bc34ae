"""Flows, changes and series: what published measurements say of spans of time. No secret is needed.

A flow is the number of records that came (or left, or came less those that left) in a span of steps. It is the sum of
measurements that lie in the span; so its error does not hold what lies before. Nothing is the difference of two tables.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, counted
from dpstream.core.privacy.law import check_confidence
from dpstream.io.sources.calendar import CALENDAR_PERIODS, period_number
from dpstream.stream.release.estimates import Combine, Estimate, Flowing, Missing, sum_of

#: A day, as text or date, or the number of a step.
Moment = str | datetime.date | int
#: Which events a flow counts: those that came, those that left, or the first less the second.
Events = Literal["net", "came", "left"]
#: Records a day that are none.
_ROUNDING = 1e-9
#: Comparisons of one answer at most.
MAX_COMPARISONS = 50_000


@dataclass(frozen=True)
class Span:
    """Steps that follow each other, and their first and last day where they have days."""

    first: int
    last: int
    first_day: datetime.date | None = None
    last_day: datetime.date | None = None

    @property
    def days(self) -> int | None:
        """How many days it has."""
        if self.first_day is None or self.last_day is None:
            return None
        return (self.last_day - self.first_day).days + 1

    @property
    def length(self) -> int:
        """Its days; its steps where it has no days."""
        return self.days or self.last - self.first + 1

    def __str__(self) -> str:
        steps = f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"
        return steps if self.first_day is None else f"{self.first_day} to {self.last_day} ({steps})"


@dataclass(frozen=True)
class Timeline:
    """The days of a stream's steps, and what was measured in them.

    Attributes:
        days: first and last day of each step that has any; ``steps``: the published steps, in order.
        periods: by length, the last step of each public period by its first one, as manifests have them.
        bound: that the first events of a user count, where others are left out; None where all count.
    """

    published: Flowing
    days: Mapping[int, tuple[datetime.date, datetime.date]]
    steps: tuple[int, ...]
    periods: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    bound: str | None = None

    @classmethod
    def of(cls, published: Flowing, manifests: Sequence[Mapping[str, Any]]) -> Timeline:
        """From the manifests of published steps."""
        days = {
            int(manifest["step"]): span
            for manifest in manifests
            if (span := days_of(manifest.get("period"))) is not None
        }
        periods = dict[str, dict[int, int]]()
        for period in itertools.chain.from_iterable(manifest.get("periods", ()) for manifest in manifests):
            periods.setdefault(period["length"], {})[int(period["first"])] = int(period["last"])
        steps = tuple(int(manifest["step"]) for manifest in manifests)
        unit = manifests[-1].get("unit", {}) if manifests else {}
        return cls(published, days, steps, periods, _bound(unit))

    def span(self, first: int, last: int) -> Span:
        """Some steps, with their days."""
        if first not in self.days or last not in self.days:
            return Span(first, last)
        return Span(first, last, self.days[first][0], self.days[last][1])

    def asked(self, start: Moment | None, end: Moment | None) -> Span:
        """The steps whose last day lies in the asked days, both included; or the steps with these numbers.

        Errors:
            ConfigError: something else than a day or a step; a span that holds no step; days where steps have none.
        """
        first = self.steps[0] if start is None else self._first(start)
        last = self.steps[-1] if end is None else self._last(end)
        if first > last or last > self.steps[-1]:
            allowed = str(self.span(self.steps[0], self.steps[-1]))
            raise ConfigError(f"no published step lies from {start} to {end}", where="span", allowed=allowed)
        return self.span(first, last)

    def _first(self, moment: Moment) -> int:
        if isinstance(moment, int):
            return _whole(moment)
        day = self._day(moment)
        return min((step for step, (_, last) in self.days.items() if last >= day), default=self.steps[-1] + 1)

    def _last(self, moment: Moment) -> int:
        if isinstance(moment, int):
            return _whole(moment)
        day = self._day(moment)
        return max((step for step, (_, last) in self.days.items() if last <= day), default=0)

    def _day(self, moment: str | datetime.date) -> datetime.date:
        try:
            day = datetime.date.fromisoformat(moment) if isinstance(moment, str) else moment
        except ValueError:
            raise ConfigError(
                f"{moment!r} names no day", where="span", allowed="2024-03-31, or a step"
            ) from None
        if not self.days:
            raise no_days("span", "numbers of steps")
        return day

    def flow(
        self, names: Sequence[str], span: Span, events: Events, combine: Combine, *, cover: bool = False
    ) -> Estimate:
        """The flow of a span.

        Errors:
            ConfigError: it is not measured; ``allowed`` names the nearest spans that are.
        """
        names = (names,) if isinstance(names, str) else names
        found = self.published.flow(names, span.first - 1, span.last, events, combine)
        if isinstance(found, Missing):
            borders = self.published.borders(names, events, combine)
            outer = _outer(borders, span)
            if cover and outer is not None:
                span = self.span(*outer)
                found = self.published.flow(names, span.first - 1, span.last, events, combine)
            elif cover and found.wider is not None:
                found = found.wider
        if isinstance(found, Missing):
            ends = dict.fromkeys(one for one in (_outer(borders, span), _inner(borders, span)) if one)
            others = {one: self.published.flow(names, one[0] - 1, one[1], events, combine) for one in ends}
            near = [self.span(*one) for one, known in others.items() if isinstance(known, Estimate)]
            allowed = " or ".join(map(str, near)) or found.instead or _advice(names)
            what = "has gaps" if found.steps or near else "is not measured"
            raise ConfigError(f"{span} {what}: {found.reason.rstrip('.')}", where="flow", allowed=allowed)
        about = found.about or f"the {found.records} that {_DID[events]} {span}"
        return replace(found, about=about, span=span)


def no_days(where: str, allowed: str) -> ConfigError:
    """The refusal of days where steps are numbers."""
    return ConfigError("the steps of this stream have no days", where=where, allowed=allowed)


def days_of(period: str | None) -> tuple[datetime.date, datetime.date] | None:
    """First and last day of a step's period; None where it has no dates.

    >>> days_of("2005-04"), days_of("wave 3")
    ((datetime.date(2005, 4, 1), datetime.date(2005, 4, 30)), None)
    """
    begin, _, end = (period or "").partition("/")
    try:
        if len(begin) == 7:
            first = datetime.date.fromisoformat(f"{begin}-01")
            return first, (first + datetime.timedelta(days=31)).replace(day=1) - datetime.timedelta(days=1)
        first = datetime.date.fromisoformat(begin[:10])
        return first, datetime.date.fromisoformat((end or begin)[:10])
    except ValueError:
        return None


def _advice(names: Sequence[str]) -> str:
    return f"[accuracy] headline with {' x '.join(names) or 'the number of records'} measures every period"


def _whole(step: int) -> int:
    if isinstance(step, bool) or step < 1:
        raise ConfigError(f"{step!r} is unusable as a step", where="span", allowed="a day, or a step from 1")
    return step


_DID = {"net": "came less those that left, in", "came": "came in", "left": "left in"}


def _outer(borders: Sequence[int], span: Span) -> tuple[int, int] | None:
    before = [border for border in borders if border < span.first]
    after = [border for border in borders if border >= span.last]
    return (max(before) + 1, min(after)) if before and after else None


def _inner(borders: Sequence[int], span: Span) -> tuple[int, int] | None:
    inside = [border for border in borders if span.first - 1 <= border <= span.last]
    return (min(inside) + 1, max(inside)) if len(inside) > 1 else None


@dataclass(frozen=True)
class Change:
    """A later flow less an earlier one. Periods in both cancel, with their noise.

    Attributes:
        earlier, later: the flows. difference: the later one less the earlier one.
        daily: the same of records a day (of steps without days: a step); what "higher than" compares, as spans differ
            in length.
        bound: as of ``Timeline``; where there is one, nothing is called higher or lower.
    """

    earlier: Estimate
    later: Estimate
    difference: Estimate
    daily: Estimate
    bound: str | None = None

    @property
    def note(self) -> str:
        """What the error of the difference means, and what a contribution bound does to it."""
        return "; ".join(text for text in (self.difference.note, bound_words(self.bound)) if text)

    def direction(self, confidence: float = 0.95) -> NDArray[np.int64]:
        """Of every cell: 1 where records a day rose, -1 where they fell, 0 where no difference can be seen, or a value
        was discovered in between. All cells together hold with the stated confidence.

        Errors:
            ConfigError: too many cells; a difference without an interval; a contribution bound.
        """
        if self.bound is not None:
            raise ConfigError(bound_words(self.bound), where="change", allowed="the numbers, in difference")
        own = self.daily
        interval = own.interval(simultaneous(confidence, own.values.size))
        if interval is None:
            raise ConfigError(own.note, where="change", allowed="combine = mean")
        low, high = interval
        # Differences of exact public numbers are what is left by rounding.
        seen = (low > _ROUNDING).astype(np.int64) - (high < -_ROUNDING).astype(np.int64)
        return np.where(self._moved, 0, seen)

    @property
    def _moved(self) -> NDArray[np.bool_]:
        """The cells of values that were discovered after the first step of either flow, and of the bins before them."""
        moved = np.zeros(self.later.values.shape, dtype=bool)
        for flow in (self.earlier, self.later):
            names = [*(value for value, _ in flow.began), *flow.left]
            for axis, labels in enumerate(flow.labels):
                shape = [-1 if axis == other else 1 for other in range(moved.ndim)]
                moved |= np.isin(labels, names).reshape(shape)
        return moved

    def to_table(self, confidence: float = 0.95) -> Any:
        """One row a cell: labels, ``earlier``, ``later``, ``change``, its ``standard_error``, ``low``, ``high`` and
        ``seen``: rose, fell, nothing, or not compared (a contribution bound, a value discovered in between); as a
        pyarrow Table."""
        import pyarrow as pa

        table = self.difference.to_table(confidence)
        if self.bound is None:
            pairs = zip(self.direction(confidence).ravel(), self._moved.ravel(), strict=True)
            seen = [_HIDDEN if moved else _SEEN[int(one)] for one, moved in pairs]
        else:
            seen = [_HIDDEN] * table.num_rows
        labels = {name: table[name] for name in self.difference.columns}
        both = {"earlier": self.earlier.values.ravel(), "later": self.later.values.ravel()}
        rest = {name: table[name] for name in ("standard_error", "low", "high")}
        return pa.table(
            {**labels, **both, "change": table["measured"], **rest, "seen": pa.array(seen, pa.string())}
        )


_HIDDEN = "not compared"
_SEEN = {1: "rose", 0: "no difference can be seen", -1: "fell"}


def _bound(unit: Mapping[str, Any]) -> str | None:
    """What a contribution bound does to flows."""
    if unit.get("max_events") is None:
        return None
    first = f"the first {counted(unit['max_events'], 'event')} of a user count"
    if unit.get("per") is None:
        return f"{first}, so later periods hold fewer admitted records"
    return f"{first} in each period ({unit['per']}), so its late steps hold fewer admitted records"


def bound_words(bound: str | None) -> str:
    """The same, and that nothing is compared."""
    return "" if bound is None else f"{bound}: nothing is called higher or lower"


def simultaneous(confidence: float, comparisons: int) -> float:
    """The confidence of each of so many intervals that hold together with the stated one, whatever joins their errors
    (Bonferroni).

    Errors:
        ConfigError: too many.
    """
    check_confidence(confidence)
    if comparisons > MAX_COMPARISONS:
        raise ConfigError(f"{comparisons} comparisons", where="change", allowed=f"{MAX_COMPARISONS} at most")
    return 1.0 - (1.0 - confidence) / max(comparisons, 1)


@dataclass(frozen=True)
class Series:
    """Flows of periods that follow each other.

    Attributes:
        spans: the periods. flows: of each; None where it is not measured, and ``why``.
        bound: as of ``Timeline``.
    """

    columns: tuple[str, ...]
    spans: tuple[Span, ...]
    flows: tuple[Estimate | None, ...]
    why: tuple[str, ...]
    bound: str | None = None

    def to_table(self, confidence: float = 0.95) -> Any:
        """One row a period and cell: ``from``, ``to`` (days, or steps), labels, ``count``, ``standard_error``, ``low``,
        ``high``, ``status`` (measured, approximate, why not, or from which step on); as a pyarrow Table."""
        import pyarrow as pa

        tables = [None if own is None else own.to_table(confidence) for own in self.flows]
        known, parts = next(table for table in tables if table is not None), []
        for span, table, why, own in zip(self.spans, tables, self.why, self.flows, strict=True):
            rows = 1 if table is None else table.num_rows
            start, end = (span.first_day or span.first), (span.last_day or span.last)
            row = {"from": pa.array([str(start)] * rows), "to": pa.array([str(end)] * rows)}
            for name, source in (*((name, name) for name in self.columns), *_NUMBERS.items()):
                row[name] = pa.nulls(1, known[source].type) if table is None else table[source]
            status = [why or ("approximate" if own is not None and own.approximate else "measured")] * rows
            if own is not None and own.began:
                ahead = own.begins.ravel().tolist()
                status = [f"from step {at}" if at > span.last else status[0] for at in ahead]
            parts.append(pa.table({**row, "status": pa.array(status)}))
        return pa.concat_tables(parts)


#: Columns of a series, by those of its flows.
_NUMBERS = {"count": "measured", **{name: name for name in ("standard_error", "low", "high")}}


def change(
    timeline: Timeline, names: Sequence[str], earlier: Span, later: Span, events: Events, combine: Combine
) -> Change:
    """The change from one span to another.

    Errors:
        ConfigError: a span that is not measured.
    """
    first, second = (timeline.flow(names, span, events, combine) for span in (earlier, later))
    overlap = earlier.first <= later.last and later.first <= earlier.last
    if overlap and events != "net" and not timeline.published.adds_up:
        raise ConfigError(
            "people who changed in one period and back in another are in no sum of periods",
            where="change",
            allowed='periods that do not overlap, or events = "net"',
        )
    gone, added = (
        [timeline.flow(names, span, events, combine) for span in _without(*pair)]
        for pair in ((earlier, later), (later, earlier))
    )
    about = f"the change from {earlier} to {later}"
    difference = sum_of([*((-1.0, one) for one in gone), *((1.0, one) for one in added)], first)
    rates = [1.0 / own.length for own in (earlier, later)]
    common = Span(max(earlier.first, later.first), min(earlier.last, later.last))
    shared: list[Estimate] = []
    if common.first <= common.last and rates[0] != rates[1]:
        shared = [timeline.flow(names, common, events, combine)]
    weighted = zip((-rates[0], rates[1], rates[1] - rates[0]), (gone, added, shared), strict=True)
    daily = sum_of([(weight, one) for weight, flows in weighted for one in flows], first)
    daily = replace(daily, about=f"{about}, a {'day' if earlier.days and later.days else 'step'}")
    return Change(first, second, replace(difference, about=about), daily, timeline.bound)


def _without(span: Span, other: Span) -> list[Span]:
    """The steps of a span that another one has not."""
    ends = [(span.first, min(span.last, other.first - 1)), (max(span.first, other.last + 1), span.last)]
    if other.last < span.first or span.last < other.first:
        return [span]
    return [Span(first, last) for first, last in ends if first <= last]


def series(
    timeline: Timeline, names: Sequence[str], every: str | int | None, events: Events, combine: Combine
) -> Series:
    """The flows of periods, one after the other.

    Args:
        every: ``week``, ``month``, ``quarter``, ``year``, a number of steps; None: as the headline was measured.

    Errors:
        ConfigError: an unknown length, or days where steps have none; nothing is measured.
    """
    spans, flows, why = _spans(timeline, names, every, events, combine), list[Estimate | None](), list[str]()
    ends = timeline.periods.get(str(every), {})
    for span in spans:
        if ends.get(span.first, span.last) > span.last:
            flows.append(None)
            why.append("under way")
            continue
        found = timeline.published.flow(names, span.first - 1, span.last, events, combine)
        flow = replace(found, span=span) if isinstance(found, Estimate) else None
        flows.append(flow)
        why.append(_status(timeline, names, span) if flow is None else "")
    if all(why):
        found = timeline.published.flow(names, 0, timeline.steps[-1], events, combine)
        what = "none of these periods is measured as a whole"
        if isinstance(found, Missing) and found.instead:
            raise ConfigError(f"{what}: {found.reason}", where="series", allowed=found.instead)
        raise ConfigError(what, where="series", allowed=_advice(names))
    columns = timeline.published.names(names)
    return Series(columns, tuple(spans), tuple(flows), tuple(why), timeline.bound)


def _status(timeline: Timeline, names: Sequence[str], span: Span) -> str:
    if set(range(span.first, span.last + 1)) - set(timeline.steps):
        return "withdrawn"
    return "under way" if span.last > timeline.published.reach(names) else "not known"


def _spans(
    timeline: Timeline, names: Sequence[str], every: str | int | None, events: Events, combine: Combine
) -> list[Span]:
    first, last = timeline.steps[0], timeline.steps[-1]
    if every is None:
        borders = timeline.published.borders(names, events, combine)
        return [timeline.span(begin + 1, end) for begin, end in pairwise(borders)]
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        starts = range(1, last + 1, every)
        return [timeline.span(start, min(start + every - 1, last)) for start in starts]
    if isinstance(every, str) and every in timeline.periods:
        return [timeline.span(begin, min(end, last)) for begin, end in timeline.periods[every].items()]
    if every not in CALENDAR_PERIODS:
        allowed = f"{', '.join(CALENDAR_PERIODS)}, or a number of steps"
        raise ConfigError(f"every = {every!r}", where="series", allowed=allowed)
    if not timeline.days:
        raise no_days("series", "a number of steps")
    # A step belongs to the period that holds its last day.
    groups: dict[int, list[int]] = {}
    for step in range(first, last + 1):
        if step in timeline.days:
            groups.setdefault(period_number(str(every), timeline.days[step][1]), []).append(step)
    return [timeline.span(steps[0], steps[-1]) for steps in groups.values()]


@dataclass(frozen=True)
class AskedFlow:
    """A question about time in texts, as the command and the feed take it.

    Attributes:
        start, end: the first and the last day, or step. earlier: ``DAY/DAY``, what a change is from.
        every: the length of a series' periods.
    """

    columns: tuple[str, ...]
    start: str | None = None
    end: str | None = None
    earlier: str | None = None
    every: str | None = None
    events: Events = "net"
    cover: bool = False

    def of(self, release: Any) -> Estimate | Change | Series:
        """The answer of a release.

        Errors:
            ConfigError: texts that do not go together; others as ``PublicRelease.flow``, ``change`` and ``series``.
        """
        how: dict[str, Any] = {"events": self.events}
        if self.every is not None:
            if self.start or self.end or self.earlier:
                what = "it gives all periods"
                raise ConfigError(what, where="every", allowed="without from, to and change")
            length = self.every.removesuffix("steps").removesuffix("step").strip()
            return release.series(self.columns, int(length) if length.isdigit() else self.every, **how)  # type: ignore[no-any-return]
        span = _moment(self.start), _moment(self.end)
        if self.earlier is None:
            return release.flow(self.columns, *span, cover=self.cover, **how)  # type: ignore[no-any-return]
        first, slash, last = self.earlier.partition("/")
        if not slash or None in span:
            allowed = "from DAY, to DAY, change DAY/DAY, all included"
            raise ConfigError("a change is between two spans of days", where="change", allowed=allowed)
        return release.change(self.columns, earlier=(_moment(first), _moment(last)), later=span, **how)  # type: ignore[no-any-return]


def _moment(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdigit() else text


def span_facts(span: Span | None) -> dict[str, Any] | None:
    """A flow's steps and days, JSON-able; None for other estimates."""
    if span is None:
        return None
    days = [None if day is None else day.isoformat() for day in (span.first_day, span.last_day)]
    return {"first_step": span.first, "last_step": span.last, "first_day": days[0], "last_day": days[1]}


def answer_facts(answer: Estimate | Change | Series, confidence: float) -> dict[str, Any]:
    """An answer for programs, JSON-able: what ``dpstream measured --json`` prints."""
    if isinstance(answer, Series):
        note = bound_words(answer.bound)
        return {"confidence": confidence, "note": note, "rows": answer.to_table(confidence).to_pylist()}
    if isinstance(answer, Change):
        return {
            "earlier": span_facts(answer.earlier.span),
            "later": span_facts(answer.later.span),
            "confidence": confidence,
            "note": answer.note,
            "rows": answer.to_table(confidence).to_pylist(),
        }
    return {
        "columns": list(answer.columns),
        "as_of": answer.as_of,
        "span": span_facts(answer.span),
        "epochs": [list(epoch) for epoch in answer.epochs],
        "standard_error": answer.standard_error,
        "exact": answer.exact,
        "confidence": confidence,
        "note": answer.note,
        "cells": answer.to_table(confidence).drop_columns(["standard_error"]).to_pylist(),
    }
