"""The first card of a page: what this is, what one may conclude from it, how wrong it may be, and how old it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts.verdicts import (
    MEANING,
    NOT_KNOWN,
    PREDICTED,
    SIMULATED,
    SMALL_GROUP,
    Use,
    Verdict,
)
from dpstream.tools.evaluate.run_folder import Told
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Html, element, integer, join, percent
from dpstream.tools.report.sections_promise import factor_words

if TYPE_CHECKING:
    from dpstream.project.sections import Publication


def banner(run: Told, unfit: str | None) -> Html:
    """What nobody may overlook: noise that can be predicted, rows that nobody can use."""
    warnings = []
    if run.test_seed:
        warnings.append(
            element(
                "div",
                element("strong", "No guarantee."),
                " This stream was made with a test seed: whoever knows it can take the noise away.",
                class_="warning",
            )
        )
    if unfit is not None:
        warnings.append(element("div", element("strong", "unfit:"), f" {unfit}", class_="warning"))
    return element("div", warnings, role="alert") if warnings else Html("")


def opening(
    run: Told,
    dates: Calendar,
    what: str,
    card: Html | None,
    links: Sequence[tuple[str, str]],
    *,
    kicker: str | None = None,
    about: Publication | None = None,
) -> Html:
    """The whole card, with the links to what is below.

    Args:
        what: what was released, up to the noun: ``10,023 invented records with 8 columns``.
        card: what one may conclude; None where the newest manifest is of an early version.
        kicker: what kind of thing this is; that of synthetic data where it is None.
        about: what the owner says to readers, where that is known.
    """
    lead = f"{what}, made from {run.shown[-1].holds}."
    if "invented" in what:
        lead += " No row is a person or a record."
    described = None if about is None else about.description
    return element(
        "header",
        element(
            "p",
            kicker or "Synthetic data: what they are good for",
            class_="kicker",
        ),
        element("h1", element("bdi", title_of(run, about))),
        None if described is None else element("p", described),
        element("p", lead, class_="lead"),
        card,
        element("dl", _age(run, dates), _many(run, dates), _loss(run), class_="facts"),
        element("nav", [element("a", text, href=f"#{name}") for name, text in links], aria_label="Sections"),
    )


def title_of(run: Told, about: Publication | None) -> str:
    """What the owner calls the data set; the stream's name where that is not known."""
    return (None if about is None else about.title) or str(run.manifest["stream"])


def table_of_verdicts(
    verdicts: Sequence[Verdict], size: int, beside: Mapping[Use, str] | None = None, records: str = ""
) -> Html | None:
    """What one may conclude, use by use, each with a band as wide as its error.

    Args:
        size: how many records there are.
        beside: what else is known of the errors of a use.
        records: what they are called, where they are not all that the source has.

    Without a verdict on pairs the table has one column.
    """
    more = beside or {}
    one_column = all(one.use != "pairs" for one in verdicts)
    if not verdicts:
        return None
    # What nobody knows is said once.
    asked = [
        one.use for one in verdicts if one.word == NOT_KNOWN and one.as_of is None and one.use != "averages"
    ]
    unknown = next((use for use in asked if use not in more), None)
    rows = [
        (
            _USES[one.use].format(group=integer(size * SMALL_GROUP)),
            one.word,
            _error(one, size, one.use == unknown, more.get(one.use), one_column, records),
            _picture(one),
        )
        for one in verdicts
    ]
    meaning = "; ".join(f"{word}: {what}" for word, what in MEANING.items())
    return conclusions(
        rows,
        "What these words mean",
        element("p", f"{meaning}. {_range_words(verdicts)}"),
        element("ul", [element("li", one.words) for one in verdicts]),
    )


def conclusions(
    rows: Sequence[tuple[str, str | None, Sequence[Html | str], Html | None]], summary: str, *more: Html
) -> Html:
    """What one may conclude: a row for each use, and below it what opens.

    Args:
        rows: the use, the word on it (None: its error alone speaks), the error in words, and its picture.
    """
    made = [
        element(
            "tr",
            element("th", use, scope="row"),
            element(
                "td",
                None if word is None else element("span", word, class_=f"word {word.replace(' ', '-')}"),
                class_="verdict",
            ),
            element("td", error, class_="error", colspan=2 if picture is None else None),
            None if picture is None else element("td", picture, class_="picture", aria_hidden="true"),
        )
        for use, word, error, picture in rows
    ]
    return join(
        [
            element("h2", "What you may conclude, and how wrong it may be", class_="quiet"),
            element("table", element("tbody", made), class_="verdicts"),
            element("details", element("summary", summary), *more),
        ]
    )


def _range_words(found: Sequence[Verdict]) -> str:
    """How often a range holds the truth, by where its error comes from."""
    hows = {one.how for one in found}
    texts = ["A range is two standard errors to either side, and holds the truth in about 19 of 20 cases."]
    if PREDICTED in hows:
        texts.append("By the plan it is about measured sums: what a model adds is not in it.")
    if SIMULATED in hows:
        texts.append(
            "By simulation a standard error is widened, as in the published intervals, for the few runs and for what "
            "no simulation can see; such intervals held the truth in 90 to 100 % of the cells where this was tried."
        )
    if any(one.share is not None and one.use in ("columns", "pairs") for one in found):
        texts.append(
            "An average count is the table's size divided by the combinations of values. Large counts are further off, "
            "and so are average ones in the other half of the pairs: the range is not one for all counts."
        )
    return " ".join(texts)


_USES = {
    "totals": "How many there are",
    "columns": "Counts of one column",
    "pairs": "Two columns together",
    "small groups": "A group of 1 % ({group})",
    "averages": "Averages of binned numbers",
}
_WHERE = {"columns": "in every column ", "pairs": "in half of the pairs "}
_HOW = {"predicted": "by the plan", "simulated": "by simulation", "modelled": "by its model", "exact": ""}


def _error(
    one: Verdict, size: int, first_unknown: bool, more: str | None, one_column: bool, records: str
) -> list[Html | str]:
    if one.share is None:
        if one.word == NOT_KNOWN and one.as_of is not None:
            return [one.words.split(": ", 2)[-1]]
        if one.use == "averages":
            return [one.words.split(": ", 1)[-1]]
        if one.word == NOT_KNOWN:
            command = "how wrong is not known; the publisher can find out with dpstream errors"
            return [text for text in (more, command if first_unknown else None) if text]
        return [one.words.split(": ", 1)[-1]]
    if one.word == "unfit" and one.use == "totals" and "standard error" not in one.words:
        return [one.words.split(": ", 1)[-1]]
    off = 2 * one.share
    if off == 0:
        return ["exact" if one.use != "totals" else f"{integer(size)}, a public number"]
    number = {"totals": float(size), "small groups": size * SMALL_GROUP}.get(one.use)
    by = percent(off) if number is None else f"{integer(number * off)}"
    words = {
        "totals": f"{integer(size)}{records and f' {records}'}, give or take {by}",
        "small groups": f"give or take {by}" + (": more than there are" if off > 1 else ""),
    }.get(
        one.use,
        f"{'' if one_column else _WHERE.get(one.use, '')}an average count is right to within {by}",
    )
    if one.as_of is not None:
        words += f" as of step {one.as_of}"
    if more:
        words += f"; {more}" + ("" if one.how == SIMULATED else " by simulation")
    how = _HOW.get(one.how or "", "")
    return [words, " ", element("small", how) if how else ""]


def _picture(one: Verdict) -> Html | None:
    """The number as a dot in the middle, and as far as it may be off to either side: nothing to the whole number."""
    if one.share is None:
        return None
    reach = min(1.0, 2 * one.share)
    over = " over" if 2 * one.share > 1 else ""
    band = element(
        "i", class_=f"band{over}", style=f"left:{50 * (1 - reach):.1f}%;right:{50 * (1 - reach):.1f}%"
    )
    return element("span", band, element("i", class_="dot"), class_=f"range {one.word}")


def _age(run: Told, dates: Calendar) -> Html:
    last = run.shown[-1].step
    measured = run.measured_up_to
    day = dates.day(last)
    # The page's script adds how long ago that was; the page itself is the same whenever it is made.
    age = element("time", day, datetime=day, class_="age") if day else None
    more: list[Html | str | None] = [f"release {last}" if dates.name(last) != f"step {last}" else None, age]
    if measured < last:
        more.append(f"measured up to {dates.name(measured)}; what came since is expected")
    return _fact("Newest table", dates.name(last), _with_commas(more))


def _many(run: Told, dates: Calendar) -> Html:
    steps = [facts.step for facts in run.shown]
    often = dates.every(steps) if len(run.states) == len(run.shown) else ""
    horizon = run.manifest["horizon"]
    planned = None if horizon is None else f"of {integer(horizon)} planned"
    more = [planned, often, f"since {dates.name(run.states[0][0])}" if len(run.states) > 1 else None]
    return _fact("Releases", integer(len(run.states)), _with_commas(more))


def _loss(run: Told) -> Html:
    guarantee = run.manifest["guarantee"]
    whom = str(run.manifest["unit"]["words"]).split(" (")[0].split(":")[0].split(";")[0]
    if run.test_seed:
        return _fact("Privacy", "no guarantee", [f"otherwise {_short(guarantee)}"])
    return _fact("Privacy", _short(guarantee), [f"protects {whom}: {factor_words(guarantee)}"])


def _fact(name: str, value: str, more: Sequence[Html | str]) -> Html:
    return element(
        "div", element("dt", name), element("dd", value, class_="big"), element("dd", *more, class_="more")
    )


def _with_commas(parts: Sequence[Html | str | None]) -> list[Html | str]:
    there = [part for part in parts if part]
    return [x for i, part in enumerate(there) for x in ((", ", part) if i else (part,))]


def _short(guarantee: dict[str, Any]) -> str:
    """Rounded up to three digits.

    >>> _short({"definition": "pure", "epsilon": "1/2"}), _short({"definition": "zCDP", "rho": "0.0243559703"})
    ('ε = 0.5', 'ρ = 0.0244')
    """
    sign, key = ("ε", "epsilon") if guarantee["definition"] == "pure" else ("ρ", "rho")
    amount = Fraction(guarantee[key])
    digits = 2 - math.floor(math.log10(amount)) if amount else 0
    short = Fraction(math.ceil(amount * Fraction(10) ** digits)) / Fraction(10) ** digits
    return f"{sign} = {float(short):.10g}"
