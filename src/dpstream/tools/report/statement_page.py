"""The privacy statement of a stream as a page, in the design of the reports."""

from __future__ import annotations

from collections.abc import Mapping

from dpstream.project.statement import Statement
from dpstream.stream.release.fitness import Fitness
from dpstream.stream.release.verdicts import Use
from dpstream.tools.report.assembly import frame, table_of_verdicts
from dpstream.tools.report.markup import Html, element, fold

#: Says what the file is.
_MARKER = "<!-- a privacy statement by dpstream -->"
#: Long lists of clauses, which open.
_FOLDED = 6


def statement_page(made: Statement, fit: Fitness, size: int, beside: Mapping[Use, str] | None = None) -> str:
    """The whole page as text: no script, no address, for reading and for printing.

    Args:
        fit: what the newest table is fit for.
        size: how many records it stands for.
        beside: what else is known of its errors.
    """
    (first, opening, _), *rest = made.sections
    kicker, title = made.title.split(": ", 1)
    head = element(
        "header",
        element("p", kicker, class_="kicker"),
        element("h1", element("bdi", title)),
        element("h2", first, class_="quiet"),
        [element("p", text) for text in opening],
        table_of_verdicts(fit.verdicts, size, beside),
    )
    sections = [_section(*one) for one in rest if one[0] != "What it is fit for" or not fit.verdicts]
    above = []
    if fit.unfit is not None:
        warning = element("div", element("strong", "unfit:"), f" {fit.unfit}", class_="warning")
        above.append(element("div", warning, role="alert"))
    return frame(made.title, above, [head, element("main", sections)], _FOOTER, marker=_MARKER)


def _section(heading: str, paragraphs: tuple[str, ...], bullets: bool) -> Html:
    if not bullets:
        return element("section", element("h2", heading), [element("p", text) for text in paragraphs])
    items = [element("li", text) for text in paragraphs]
    shown = element("ul", items[:_FOLDED], class_="prose")
    more = fold("More", element("ul", items[_FOLDED:], class_="prose")) if len(items) > _FOLDED else None
    return element("section", element("h2", heading), shown, more)


_FOOTER = (
    "Made by dpstream from the plan of the stream and from how far it is; all of it is public. The words are about the "
    "program's guarantee, they are no legal advice.",
)
