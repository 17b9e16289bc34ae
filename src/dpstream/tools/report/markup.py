"""Pages as HTML that is escaped unless it was made here: no value of a table can become markup or script.

Prose, frames and drawings are templates in ``templates``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dpstream.core.showing import templates

if TYPE_CHECKING:
    from jinja2 import Environment

#: Text that is markup already. Everything else is escaped where it is put in.
Html = Markup


def block(template: str, name: str, /, **facts: Any) -> Html:
    """A block of a template; None is printed as nothing, and a fact that is not given is an error."""
    loaded = _environment().get_template(f"{template}.html")
    return Html("".join(loaded.blocks[name](loaded.new_context(facts))).strip())


def part(name: str, /, *facts: Any, **more: Any) -> Html:
    """What the macro of that name in ``parts.html`` makes."""
    made: Html = getattr(_environment().globals["parts"], name)(*facts, **more).strip()
    return made


def page(**facts: Any) -> str:
    """``frame.html``: a whole page."""
    return _environment().get_template("frame.html").render(facts)


@cache
def _environment() -> Environment:
    made = templates(
        "dpstream.tools.report",
        autoescape=True,
        finalize=lambda value: "" if value is None else value,
        keep_trailing_newline=True,
    )
    made.filters |= {"integer": integer, "percent": percent, "significant": significant}
    made.globals["parts"] = made.get_template("parts.html").module
    return made


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], *, caption: str, numeric: int = 1) -> Html:
    """A plain table: the first cell of a row is its heading, those from ``numeric`` on are numbers."""
    return part("table", headings, rows, caption, numeric)


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

    made = []
    for name, text, value, lower, upper in entries:
        left, right = (lower, upper) if math.isfinite(lower) and math.isfinite(upper) else (value, value)
        places = {"dot": at(value), "left": at(left), "right": at(high + low - right)}
        drawn = places if math.isfinite(value) else {"dot": None}
        made.append({"name": name, "text": text, "zero": at(0.0) if low < 0 else None, **drawn})
    return part("intervals", made, caption)


def integer(value: float) -> str:
    """A whole number with groups of three.

    >>> integer(70120.4), integer(-3)
    ('70,120', '−3')
    """
    return f"{round(value):,}".replace("-", "\N{MINUS SIGN}")


def percent_points(change: float) -> str:
    """A difference of shares.

    >>> percent_points(0.0123), percent_points(-0.1)
    ('+1.2 points', '−10.0 points')
    """
    return f"{'+' if change >= 0 else chr(0x2212)}{100 * abs(change):.1f} points"


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
