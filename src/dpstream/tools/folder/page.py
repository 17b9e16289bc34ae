"""The page of a folder of releases: what came, left and is present, what changed, and all counts. It needs no server.

Everything on it is in ``counts.csv``, or is a comparison of two periods of it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.stream.measured_counts import CountsOf
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.flows import Change, Span

#: Rows that the page holds, changes that it lists.
_MOST_ROWS, _CHANGES = 8_000, 6
_CONFIDENCE = 0.95


def page_facts(release: PublicRelease, counts: Sequence[CountsOf], rows: Any) -> dict[str, Any]:
    """What the template needs beside the facts of the text.

    Args:
        rows: of the counts, as a pyarrow Table.
    """
    script = files("dpstream.tools.folder").joinpath("templates/page.js").read_text("utf-8")
    groups, cut = _groups(counts, rows)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "script": script,
        "data": _for_script(groups) if groups else None,
        "cut": cut,
        "cards": _cards(counts),
        **_changes(release, counts),
    }


def _for_script(value: Any) -> str:
    """JSON that may stand inside ``<script>``: no sign in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _groups(counts: Sequence[CountsOf], rows: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The counts of each column and kind, period after period; and the columns that are too long for the page."""
    found = dict[tuple[str, str], dict[str, Any]]()
    numbers = [rows[name].to_pylist() for name in ("value", "count", "low95", "high95")]
    place, cut, size = 0, list[str](), 0
    for one in counts:
        many = 1 if one.estimate is None else one.estimate.values.size
        column, cells = " x ".join(one.columns) or "all", slice(place, place + many)
        place += many
        if column in cut or (column != "all" and size + many > _MOST_ROWS):
            cut += [] if column in cut else [column]
            found = {key: group for key, group in found.items() if key[0] != column}
            continue
        size += many
        new = {"column": column, "kind": one.kind, "values": [], "spans": [], "own": []}
        group = found.setdefault((column, one.kind), new)
        values, measured, low, high = (column_values[cells] for column_values in numbers)
        group["spans"].append(_when(one.span, one.kind))
        halves = [
            None if end is None else round(end - start, 1) / 2 for start, end in zip(low, high, strict=True)
        ]
        own = None
        if one.estimate is not None:
            group["values"] = values
            pairs = zip(measured, halves, strict=True)
            own = [None if count is None else [round(count, 1), half] for count, half in pairs]
        group["own"].append(own)
    groups = [group for group in found.values() if group["values"]]
    for group in groups:
        many = len(group["values"])
        group["cells"] = list(itertools.chain.from_iterable(own or [None] * many for own in group.pop("own")))
    return groups, cut


def _when(span: Span, kind: str) -> str:
    """What a period is called; the name is its end where records are present."""
    first, last = span.first_day or span.first, span.last_day or span.last
    word = "" if span.first_day else "step " if first == last or kind == "present" else "steps "
    return f"{word}{last}" if kind == "present" or first == last else f"{word}{first} to {last}"


def _cards(counts: Sequence[CountsOf]) -> list[dict[str, str]]:
    """The newest number of records of each kind."""
    newest = {one.kind: one for one in counts if not one.columns and one.estimate is not None}
    cards = []
    for kind in ("came", "left", "present"):
        interval = None if kind not in newest else newest[kind].estimate.interval(_CONFIDENCE)  # type: ignore[union-attr]
        if interval is not None:
            low, high = (float(end) for end in interval)
            when = _when(newest[kind].span, kind)
            cards.append(
                {
                    "kind": kind,
                    "when": when,
                    "count": _whole((low + high) / 2),
                    "width": _whole((high - low) / 2),
                }
            )
    return cards


def _whole(number: float) -> str:
    return f"{round(number):,}".replace("-", "\N{MINUS SIGN}")


def _changes(release: PublicRelease, counts: Sequence[CountsOf]) -> dict[str, Any]:
    """The values of which more or fewer came or left a day in the last period than in the one before, as far as noise
    lets anybody say so; all comparisons hold together."""
    periods = dict[tuple[tuple[str, ...], str], list[Span]]()
    for one in counts:
        if one.kind != "present" and one.estimate is not None and len(one.columns) < 2:
            periods.setdefault((one.columns, one.kind), []).append(one.span)
    compared = list[tuple[str, Change]]()
    for (columns, kind), spans in periods.items():
        if len(spans) > 1:
            ends = ((span.first, span.last) for span in spans[-2:])
            earlier, later = ends
            change = release.change(columns, earlier=earlier, later=later, events=kind)  # type: ignore[arg-type]
            compared.append((kind, change))
    cells = sum(change.later.values.size for _, change in compared)
    found = list[dict[str, Any]]()
    try:
        for kind, change in compared:
            share = change.later.values.size / cells
            seen = change.direction(1.0 - (1.0 - _CONFIDENCE) * share).ravel()
            names = [" x ".join(cell) for cell in itertools.product(*change.later.labels)]
            for place in np.flatnonzero(seen):
                rates = [_rate(flow.values.flat[place], flow.span) for flow in (change.earlier, change.later)]
                name = f"{change.later.columns[0]} {names[place]}" if change.later.columns else "all"
                facts = {"name": name, "kind": kind, "before": rates[0], "last": rates[1]}
                found.append(
                    {**facts, "seen": int(seen[place]), "size": abs(float(change.daily.values.flat[place]))}
                )
    except ConfigError:  # bounds make periods incomparable
        compared = []
    if not compared:
        return {"changes": None, "hidden": 0, "more_changes": "", "unit": ""}
    found.sort(key=lambda change: -change["size"])
    more = len(found) - _CHANGES
    return {
        "changes": found[:_CHANGES],
        "hidden": cells - len(found),
        "more_changes": f" {more} smaller changes are not listed." if more > 0 else "",
        "unit": "day" if compared[0][1].later.span.days else "step",
    }


def _rate(count: float, span: Any) -> str:
    return f"{count / (span.days or span.last - span.first + 1):,.1f}".replace("-", "\N{MINUS SIGN}")
