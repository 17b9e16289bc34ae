"""HTML that is escaped unless it was made here: no value of a table can become markup or script."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable
from typing import Any

_VOID = frozenset({"meta", "br", "hr", "input"})


class Html(str):
    """Text that is markup already. Everything else is escaped where it is put in."""

    __slots__ = ()


Child = str | Iterable["str | None"] | None


def raw(text: str) -> Html:
    """Markup from this package's own files; never from data."""
    return Html(text)


def element(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """``<name attributes>children</name>``; ``class_`` is ``class``, ``aria_label`` is ``aria-label``.

    >>> element("td", "</td><script>", class_='"', hidden=True, title=None)
    '<td class="&quot;" hidden>&lt;/td&gt;&lt;script&gt;</td>'
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        parts.append(f" {attribute}" if value is True else f' {attribute}="{html.escape(str(value))}"')
    parts.append(">")
    if name in _VOID:
        return Html("".join(parts))
    parts += [join(children), f"</{name}>"]
    return Html("".join(parts))


def join(children: Iterable[Child]) -> Html:
    """Children side by side: markup as it is, other text escaped, None left out."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(html.escape(child))
        else:
            parts.append(join(child))
    return Html("".join(parts))


def script_json(value: Any) -> Html:
    """JSON that may stand inside ``<script>``: no sign in it can end the element or open a comment.

    >>> script_json(["</script><!--", "ü"])
    '["\\\\u003c/script\\\\u003e\\\\u003c!--","\\\\u00fc"]'
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(text)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], *, caption: str, numeric: int = 1) -> Html:
    """A plain table: the first cell of a row is its heading, those from ``numeric`` on are numbers."""
    titles = list(headings)
    head = [
        element("th", title, scope="col", class_="n" if i >= numeric else None)
        for i, title in enumerate(titles)
    ]
    body = []
    for row in rows:
        first, *rest = row
        cells = [
            element("td", cell, class_="n" if i >= numeric else None) for i, cell in enumerate(rest, start=1)
        ]
        body.append(element("tr", element("th", element("bdi", first), scope="row"), cells))
    made = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", head)),
        element("tbody", body),
        class_="plain",
    )
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def fold(summary: str, *children: Child) -> Html:
    """What most readers need not see: one line that opens."""
    return element("details", element("summary", summary), *children, class_="fold")


def interval_table(rows: Iterable[tuple[str, str, float, float]], *, caption: str) -> Html:
    """Numbers with their errors, and beside each a dot with a band on one scale from 0 (or below).

    Args:
        rows: name, number and error as text, the number, and half the width of its band.
    """
    entries = [(name, text, value, value - band, value + band) for name, text, value, band in rows]
    ends = [end for *_, lower, upper in entries for end in (lower, upper) if math.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    if low < 0:  # where nothing is above it, the line at 0 is still to be seen
        low, high = low - 0.02 * (high - low), high + 0.02 * (high - low)
    span = (high - low) or 1.0

    def at(value: float) -> str:
        return f"{100 * (value - low) / span:.1f}%"

    body = []
    for name, text, value, lower, upper in entries:
        picture = None
        if math.isfinite(value):
            left, right = (lower, upper) if math.isfinite(lower) and math.isfinite(upper) else (value, value)
            band = element("i", class_="band", style=f"left:{at(left)};right:{at(high + low - right)}")
            dot = element("i", class_="dot", style=f"left:{at(value)}")
            zero = element("i", class_="zero", style=f"left:{at(0.0)}") if low < 0 else None
            picture = element("span", zero, band, dot, class_="range")
        body.append(
            element(
                "tr",
                element("th", element("bdi", name), scope="row"),
                element("td", text, class_="n"),
                element("td", picture, class_="picture", aria_hidden="true"),
            )
        )
    made = element("table", element("caption", caption), element("tbody", body), class_="intervals")
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def integer(value: float) -> str:
    """A whole number with groups of three.

    >>> integer(70120.4), integer(-3)
    ('70,120', '−3')
    """
    return f"{round(value):,}".replace("-", "\N{MINUS SIGN}")


def percent(share: float) -> str:
    """A share as percents, with one decimal place; what is there and smaller says so.

    >>> percent(0.1234), percent(0.0002), percent(0), percent(float("nan"))
    ('12.3 %', '<0.1 %', '0.0 %', '–')
    """
    if not math.isfinite(share):
        return "–"
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def significant(value: float) -> str:
    """A number for people: three digits, never in powers of ten unless it is tiny.

    >>> significant(1234.5), significant(15.0812), significant(0.003456)
    ('1,234', '15.1', '0.00346')
    """
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
