"""The privacy statement of a stream as a page, in the design of the reports."""

from __future__ import annotations

from pathlib import Path

from dpstream.project.statement import Statement, newest_release
from dpstream.stream.release.fitness import fitness_of
from dpstream.tools.report.assembly import frame, table_of_verdicts
from dpstream.tools.report.markup import Html, block, part

#: Says what the file is.
_MARKER = "<!-- a privacy statement by dpstream -->"
_FOOTER = (
    "Made by dpstream from public facts. This text describes the "
    "program's guarantee. It is not legal advice.",
)


def statement_page(made: Statement, releases: Path, columns: int) -> str:
    """The whole page as text: no script, no address, for reading and for printing.

    Args:
        releases: says what the newest table is fit for.
        columns: how many the stream has.

    Errors:
        StoreDamagedError, StoreFormatError: released files that differ from their hashes, or cannot be read.
    """
    (first, opening, _), *rest = made.sections
    annex = made.annex[0][0]
    kicker, title = made.title.split(": ", 1)
    fit, newest = fitness_of(releases), newest_release(releases)
    size = 0 if newest is None else int(newest.manifest["rows"])
    body = block(
        "statement",
        "body",
        kicker=kicker,
        title=title,
        first=first,
        opening=opening,
        verdicts=table_of_verdicts(fit.verdicts, size, columns=columns),
        sections=[one for one in rest if one[0] != "What it is fit for" or not fit.verdicts],
        annex=annex,
    )
    above = Html("") if fit.unfit is None else part("warning", "unfit:", fit.unfit)
    return frame(made.title, above, body, _FOOTER, marker=_MARKER)
