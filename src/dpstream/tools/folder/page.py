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

from dpstream.stream.measured_counts import CountsOf, Headline, compared
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.estimates import Estimate
from dpstream.stream.release.flows import Span

#: Rows that the page holds, changes that it lists.
_MOST_ROWS, _CHANGES = 8_000, 200


def page_facts(
    release: PublicRelease, counts: Sequence[CountsOf], flowing: Sequence[Headline]
) -> dict[str, Any]:
    """What the template needs beside the facts of the text."""
    scripts = ("folder/templates/page.js", "report/assets/sortable.js")
    script = "".join(files("dpstream.tools").joinpath(name).read_text("utf-8") for name in scripts)
    groups, cut = _groups(counts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "script": script,
        "data": _for_script(groups) if groups else None,
        "cut": cut,
        "cards": _cards(counts),
        **_changes(release, flowing),
    }


def _for_script(value: Any) -> str:
    """JSON that may stand inside ``<script>``: no sign in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _groups(counts: Sequence[CountsOf]) -> tuple[list[dict[str, Any]], list[str]]:
    """The counts of each column and kind, period after period; and the columns that are too long for the page."""
    found, cut, size = dict[tuple[str, str], list[CountsOf]](), list[str](), 0
    for one in counts:
        many = 1 if one.estimate is None else one.estimate.values.size
        column = " x ".join(one.columns) or "all"
        if column in cut or (column != "all" and size + many > _MOST_ROWS):
            cut += [] if column in cut else [column]
            found = {key: group for key, group in found.items() if key[0] != column}
            continue
        size += many
        found.setdefault((column, one.kind), []).append(one)
    groups = list[dict[str, Any]]()
    for (column, kind), group in found.items():
        known = [one.estimate.names for one in group if one.estimate is not None]
        if known:
            nothing = [None] * len(known[-1])
            parts = (_cells(one.estimate) if one.estimate else nothing for one in group)
            facts = {"column": column, "kind": kind, "values": known[-1]}
            spans = [_when(one.span, kind) for one in group]
            groups.append({**facts, "spans": spans, "cells": list(itertools.chain.from_iterable(parts))})
    return groups, cut


def _cells(estimate: Estimate) -> list[list[float | None] | None]:
    """The number of each cell, and half its interval; None where its value was discovered later."""
    table = estimate.to_table()
    columns = [table[name].to_pylist() for name in ("measured", "low", "high")]
    return [
        None if count is None else [round(count, 1), None if low is None else round(high - low, 1) / 2]
        for count, low, high in zip(*columns, strict=True)
    ]


def _when(span: Span, kind: str) -> str:
    """What a period is called; the name is its end where records are present."""
    first, last = span.first_day or span.first, span.last_day or span.last
    word = "" if span.first_day else "step " if first == last or kind == "present" else "steps "
    return f"{word}{last}" if kind == "present" or first == last else f"{word}{first} to {last}"


def _cards(counts: Sequence[CountsOf]) -> list[dict[str, str]]:
    """The newest number of records of each kind."""
    newest = {one.kind: one for one in counts if not one.columns and one.estimate and not one.estimate.chosen}
    return [
        {"kind": kind, "when": _when(one.span, kind), "count": figure(one.estimate.values.item())}
        | {"width": figure(one.estimate.half_widths().item())}
        for kind in ("came", "left", "present")
        if (one := newest.get(kind)) is not None and one.estimate is not None
    ]


def figure(number: float, digits: int = 0) -> str:
    """A number for people.

    >>> figure(-1234.56, 1), figure(-0.3)
    ('\u22121,234.6', '0')
    """
    return f"{round(number, digits) + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _changes(release: PublicRelease, found: Sequence[Headline]) -> dict[str, Any]:
    """Of the last whole period of each headline and the one before: records a day, and what is seen of their change."""
    made = [one for one in compared(release, found)[0] if one.rows[0]["seen"] is not None]
    rows = [
        {**row, "column": " x ".join(one.headline.columns) or "all", "kind": one.events}
        | {"before": row["earlier"] / one.days[0], "last": row["later"] / one.days[1]}
        for one in made
        for row in one.rows
    ]
    rows.sort(key=lambda row: (not row["seen"], -abs(row["last"] - row["before"])))
    return {
        "changes": rows[:_CHANGES],
        "hidden": sum(not row["seen"] for row in rows),
        "more_changes": len(rows[_CHANGES:]),
        "who": made[0].change.later.records if made else "",
        "unit": "step" if made and made[0].spans[1].days is None else "day",
    }
