"""The page of an evaluation, for the owner alone: the verdict first, then what it rests on. In the reports' design."""

from __future__ import annotations

from dpstream.core.version import __version__
from dpstream.tools.evaluate.contract import EvaluationResult, SummaryTable
from dpstream.tools.evaluate.evaluation import Evaluation
from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.evaluate.measures import verdict_words
from dpstream.tools.report.assembly import frame
from dpstream.tools.report.charts import Charts
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.evaluation_sections import (
    broken_section,
    changes_section,
    columns_section,
    errors_section,
    groups_section,
    learning_section,
    measures_table,
    reading_section,
)
from dpstream.tools.report.markup import Child, Html, element, integer, join, table

#: Says what the file is.
_MARKER = "<!-- an evaluation by dpstream -->"
_WARNING = " Computed from the private table, without noise. Do not publish this page or send it on."
_FOOTER = (
    "Made by dpstream {version} from the private table and the releases.",
    "Do not choose options by these numbers and then publish with them: no guarantee covers that. Choose with invented "
    "data, or old public data of the same kind.",
    "The page loads nothing.",
)


def evaluation_page(result: EvaluationResult) -> str:
    """The whole page as text. It holds private truth: it belongs into a folder of ``open_private_folder``."""
    found = result.tables
    body, charts = (_told(result), None) if found is None else _tables(found)
    warning = element("div", element("strong", LABEL), _WARNING, class_="warning private")
    data = None
    if charts is not None and found is not None:
        data = {**charts.as_json(one.step for one in found.steps), "heat": {}}
    return frame(
        f"{result.stream}: dpstream evaluation ({LABEL})",
        [element("div", warning, role="alert")],
        body,
        [text.format(version=__version__) for text in _FOOTER],
        data=data,
        private=True,
        marker=_MARKER,
    )


def _head(stream: str, *content: Child) -> Html:
    kicker = element("p", "Evaluation: the releases against the private table", class_="kicker")
    return element("header", kicker, element("h1", element("bdi", stream)), *content)


def _tables(found: Evaluation) -> tuple[list[Html], Charts]:
    dates = Calendar({one.step: one.period for one in found.steps if one.period})
    charts = Charts(dates)
    last, judged = found.last, found.judgement
    sections: list[tuple[str, str, Html | None]] = [("errors", "Over time", errors_section(found, charts))]
    lead = "The private table or the released one is empty: there is nothing to judge."
    if judged is not None:
        lead = judged.words
        sections += [
            ("changes", "Changes", changes_section(judged, charts)),
            ("columns", "Columns and pairs", columns_section(judged)),
            ("groups", "Groups", groups_section(judged)),
            ("learning", "Learning", learning_section(judged)),
            ("broken", "Constraints", broken_section(judged)),
        ]
    sections.append(("reading", "How to read it", reading_section(found)))
    compared = "published table" if found.synthetic == "tables" else "model in the secret state"
    about = (
        f"The {compared} as of {dates.words(last.step)}: {integer(last.rows)} invented records, compared with "
        f"{integer(last.records)} private ones."
    )
    nav = [element("a", title, href=f"#{name}") for name, title, made in sections if made is not None]
    head = _head(
        found.stream,
        element("p", lead, class_="lead"),
        None if judged is None else measures_table(judged.measures),
        element("p", about, class_="note"),
        [
            element("p", text, class_="note")
            for text in (*found.notes, *(() if judged is None else judged.missing))
        ],
        element("nav", nav, aria_label="Sections"),
    )
    main = element("main", [made for _, _, made in sections])
    return [head, main], charts


def _told(result: EvaluationResult) -> list[Html]:
    """What any family told, in its order: sentences on top, tables below."""
    said = [one for one in result.told if isinstance(one, str)]
    shown = [one for one in result.told if isinstance(one, SummaryTable)]
    sections = [
        element(
            "section",
            element("h2", one.title),
            table(one.headings, one.rows, caption=LABEL, numeric=min(one.right, default=len(one.headings))),
        )
        for one in shown
    ]
    verdict = None
    if result.measures:
        lead = element("p", verdict_words(result.measures), class_="lead")
        verdict = join([lead, measures_table(result.measures)])
    return [_head(result.stream, verdict, [element("p", text) for text in said]), element("main", sections)]
