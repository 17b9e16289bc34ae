"""How the templates write times, shares and amounts, and the words that they share."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jinja2
from markupsafe import Markup, escape

from dpstream.core.showing import shown, templates
from dpstream.service.desk import ROLES, Person
from dpstream.service.desk.facts import rounded_up
from dpstream.service.pages.visits import link
from dpstream.stream.ledger.limit import shown_amount
from dpstream.tools.report.markup import integer, percent, percent_points, significant

#: A page refreshes itself so many times: one that nobody looks at lets the login run out.
MAX_TURNS = 20
#: Pages for everybody who may do something, in the list of pages.
_MENU = (
    ("plan", "/board", "Planning board"),
    ("decisions", "/decisions", "Decisions"),
    ("accounts", "/accounts", "Accounts"),
    ("people", "/people", "People"),
)
#: The same of one stream.
_TABS = (
    ("ledger", "ledger", "Ledger"),
    ("decide", "withdraw", "Withdraw"),
    ("price", "ask", "Questions"),
)
#: Words of health and of tasks, by what they look like.
_LOOKS = {
    **dict.fromkeys(("healthy", "done"), "good"),
    **dict.fromkeys(("held", "begun", "stale", "unpublished", "not-started", "used-up", "waiting"), "poor"),
    **dict.fromkeys(("failed", "restored", "state", "releases", "other-plan", "no-guarantee"), "unfit"),
    **dict.fromkeys(("unknown", "cancelled", "not known"), ""),
}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2} [A-Z][a-z]{2,8} [0-9]{4}|[0-9]{2}:[0-9]{2} UTC")
#: What a page says after something was done; an address names one of these, and never brings words of its own.
_TOLD = {
    "reject": "The step is rejected.",
    "withdraw": "The worker withdraws the step.",
    "ask": "The worker answers the question.",
    "run": "The worker looks now.",
    "people": "Done, and in the log.",
    "expired": "Your login had ended; nothing was done.",
    "out": "You are signed out.",
}


def environment(service: str) -> jinja2.Environment:
    """Everything is escaped, and nothing that cannot be seen is written (see ``core.showing``)."""
    made = templates("dpstream.service.pages", autoescape=True, finalize=_seen)
    filters: dict[str, Callable[..., Any]] = {
        "amount": lambda text: shown_amount(Fraction(text)),
        "about": rounded_up,
        "exact": lambda text: Markup(escape(text)),
        "number": lambda amount: float(Fraction(amount)),
        "percent": percent,
        "period": lambda text: _unbroken("–" if not text else str(text).replace("/", " to ")),
        "points": percent_points,
        "share": lambda value: "not predicted" if value is None else percent(value),
        "short": significant,
        "verdict": _verdict,
        "when": lambda text: _unbroken(_when(text)),
        "whole": integer,
        "wide": lambda error: f"{100 * error:.1f} points",
    }
    made.filters |= filters
    made.globals |= {
        "LOOKS": _LOOKS,
        "MENU": _MENU,
        "MAX_TURNS": MAX_TURNS,
        "ROLES": ROLES,
        "TABS": _TABS,
        "TOLD": _TOLD,
        "link": link,
        "service": service,
    }
    return made


def _seen(value: Any) -> Any:
    return value if isinstance(value, Markup | jinja2.Undefined) else shown(str(value))


def _when(text: str | None) -> str:
    """A time of the desk for people.

    >>> _when("2026-11-22T09:05:07+00:00"), _when("2026-11-23"), _when(None)
    ('22 November 2026, 09:05 UTC', '23 November 2026', '–')
    """
    if not text:
        return "–"
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    day = f"{moment.day} {moment:%B %Y}"
    if len(text) <= len("2026-11-23"):
        return day
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def _unbroken(text: str) -> Markup:
    """Days in a text stay on one line.

    >>> print(_unbroken("2026-11-16 to <b>, 09:05 UTC"))
    <span class="day">2026-11-16</span> to &lt;b&gt;, <span class="day">09:05 UTC</span>
    """
    return Markup(_DAY.sub(r'<span class="day">\g<0></span>', str(escape(shown(text)))))


def _verdict(words: str, person: Person) -> str:
    """A verdict for somebody on the pages: a command is for whoever has the machine."""
    if "owner" in person.roles:
        return words
    line = words.replace(": run dpstream errors", ": ask the owner to run dpstream errors")
    return line.replace("(dpstream plan --compare", "(for the owner: dpstream plan --compare")
