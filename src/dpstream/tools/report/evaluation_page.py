"""The page of an evaluation, for the owner alone: the verdict first, then what it rests on. In the reports' design.

Trusted base: owner (shows the owner a comparison with the private table).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpstream.core.version import __version__
from dpstream.stream.release.verdicts import THRESHOLDS
from dpstream.tools.evaluate.contract import EvaluationResult, SummaryTable
from dpstream.tools.evaluate.evaluation import Evaluation
from dpstream.tools.evaluate.judgement import TEACHES, Judgement
from dpstream.tools.evaluate.measures import Measure, verdict_words
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.evaluate.trends import CLEAR
from dpstream.tools.report.assembly import conclusions, frame
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Child, Html, element, fold, integer, join, percent, table

_SAMPLES = "two real samples"
_ONCE = "one offline run"
#: Rows of a table that are shown; the others open.
_SHOWN = 12


def measures_table(measures: Sequence[Measure]) -> Html:
    """What may be wrong, measure by measure: a word, the number, and both yardsticks."""
    limits = ", ".join(f"{word} up to {100 * most:g} %" for word, most in THRESHOLDS.items())
    return conclusions(
        [
            (one.question[:1].upper() + one.question[1:], one.word, _number(one), _picture(one))
            for one in measures
        ],
        "What these numbers mean",
        element(
            "p",
            f"Every number is a share that is wrong: {limits}, unfit above; never worse than good where two samples of "
            "real records differ as much, and not known where these differ by more than "
            f"{100 * max(THRESHOLDS.values()):g} %: there are too few records to tell. The bar ends at the number; the "
            "thin line in it stands where two real samples are.",
        ),
        element("ul", [element("li", element("b", one.question), f": {one.meaning}") for one in measures]),
        title="What is wrong, and how much would be wrong anyway",
    )


def _number(one: Measure) -> list[Html | str]:
    if math.isnan(one.value):
        return [_WHY_NOT.get(one.name, "not known")]
    beside = [
        f"{name} {one.text(value).removesuffix(' of 1,000')}"
        for name, value in ((_SAMPLES, one.floor), (_ONCE, one.ceiling))
        if not math.isnan(value)
    ]
    whole = "; ".join(beside).replace(" %", "\N{NO-BREAK SPACE}%")
    whole += ": too few records to tell" if one.few else ""
    small = [element("br"), element("small", whole)] if beside else []
    return [f"{one.text(one.value)} {one.unit}", *small]


_WHY_NOT = {
    "groups": "no combination of two values has so many records",
    "rows": "not known: too few rows, or no scikit-learn",
    "learning": "not known: real records teach next to nothing, are too few, or there is no scikit-learn",
    "changes": f"fewer than five shares changed by {100 * CLEAR:g} % of the table between the evaluated steps",
}


def _picture(one: Measure) -> Html | None:
    if math.isnan(one.value):
        return None
    over = " over" if one.word in ("poor", "unfit") else ""
    reach = min(1.0, one.value)
    band = element("i", class_=f"band{over}", style=f"left:0%;right:{100 * (1 - reach):.1f}%")
    floor = None
    if not math.isnan(one.floor):
        floor = element("i", class_="zero", style=f"left:{100 * min(1.0, one.floor):.1f}%")
    return element("span", band, floor, class_="range")


def errors_section(found: Evaluation, charts: Charts) -> Html:
    """The errors of the evaluated steps, and the sizes of both tables."""
    steps = [one.step for one in found.steps]
    mean, largest = (
        np.array([one.errors.as_dict()[name] for one in found.steps]) for name in ("AvgTV", "MaxTV")
    )
    sizes = [
        ChartLine("true", np.array([float(one.records) for one in found.steps]), truth=True),
        ChartLine("released", np.array([float(one.rows) for one in found.steps])),
    ]
    errors = [ChartLine("mean", mean), ChartLine("largest", largest, style=2)]
    unit = Unit("share of the table at a wrong place", share=True)
    return element(
        "section",
        element("h2", "Over time"),
        element(
            "p",
            f"{integer(len(steps))} of {integer(found.released)} steps were compared, over "
            f"{integer(len(found.cliques))} marginals ({found.workload}).",
        ),
        charts.lines("Total variation of the marginals", steps, errors, unit),
        charts.lines("Records", steps, sizes, Unit("records")),
        id="errors",
    )


def changes_section(judged: Judgement, charts: Charts) -> Html | None:
    """Whether the released table moves as the private one does."""
    trends = judged.trends
    if len(trends.steps) < 2:
        return None
    if trends.changes:
        wrong = round(trends.wrong * trends.changes)
        text = (
            f"Between {integer(len(trends.compared))} steps evenly apart, and from the first to the last, "
            f"{integer(trends.changes)} true shares changed by {100 * CLEAR:g} % of the table or more. "
            f"{integer(trends.changes - wrong)} of these changes go the right way in the released tables, "
            f"{integer(wrong)} do not; altogether they show {percent(trends.size)} of the true size of the changes."
        )
    else:
        text = f"No share changed by {100 * CLEAR:g} % of the table or more between the steps that were compared."
    unit = Unit("share of the table", share=True)
    figures = [
        charts.lines(
            one.name,
            trends.steps,
            [ChartLine("true", one.true, truth=True), ChartLine("released", one.made)],
            unit,
            small=True,
            from_zero=False,
        )
        for one in trends.moved
    ]
    return element(
        "section",
        element("h2", "Does it move as the private table does?"),
        element("p", text),
        element("h3", "The values whose true shares moved most") if figures else None,
        element("div", figures, class_="grid"),
        id="changes",
    )


def _tables(judged: Judgement) -> list[tuple[str, str, Html | None]]:
    """What is told in tables: name, title in the list of links, and section."""
    real, once = (
        {one.words: percent(one.typical) for one in groups}
        for groups in (judged.floor_groups, judged.ceiling_groups)
    )
    teachers = {"synthetic": "released", "real": "real records", "sample": "a real sample", "offline": _ONCE}
    taught = [key for key in teachers if any(key in one.areas for one in judged.targets)]
    weak = [one.column for one in judged.targets if not one.areas["real"] > TEACHES]
    note = f"Real records teach next to nothing about {', '.join(weak)}: left out of the verdict."
    worst = sorted(judged.columns.items(), key=lambda one: -_known(one[1][0]))
    off = "Share of the table that stands at a wrong value (total variation)."
    of_groups = (
        "A group is a combination of two columns' values. Its error is the difference of the counts, as a share of the "
        "true one; lost are groups that no released record is in."
    )
    groups = [
        [
            one.words,
            integer(one.groups),
            *map(percent, (one.typical, one.most)),
            *(typical.get(one.words, "–") for typical in (real, once)),
            percent(one.lost),
        ]
        for one in judged.groups
    ]
    of_learning = (
        "A decision tree learns to predict each column from the others, from released rows or from real ones, and is "
        "tested on the same real records, which it has not seen. The number is the area under the ROC curve: 0.5 is "
        "guessing, 1 is always right."
    )
    learned = [
        [one.column, *(f"{one.areas[key]:.2f}" if key in one.areas else "–" for key in taught)]
        for one in sorted(judged.targets, key=lambda one: one.areas.get("synthetic", 0.5) - one.areas["real"])
    ]
    of_rules = (
        "What the schema excludes, and how many released rows are there all the same: none is expected."
    )
    columns = [[name, *map(percent, values)] for name, values in worst]
    pairs = [
        [" x ".join(one.columns), *map(percent, (one.value, one.floor, one.ceiling))] for one in judged.pairs
    ]
    beside, sizes = ("released", _SAMPLES, _ONCE), ("groups", "typical error", "nine of ten within")
    return [
        _section("columns", "Columns", "Which columns are furthest off", off, ["column", *beside], columns),
        _section("pairs", "Pairs", "Which pairs are furthest off", off, ["pair", *beside], pairs),
        _section(
            "groups",
            "Groups",
            "How wrong are small groups?",
            of_groups,
            ["true size", *sizes, _SAMPLES, _ONCE, "lost"],
            groups,
        ),
        _section(
            "learning",
            "Learning",
            "Can one learn from it?",
            of_learning,
            ["predicted column", *(teachers[key] for key in taught)],
            learned,
            note if weak else None,
        ),
        _section(
            "broken",
            "Constraints",
            "Is every row possible?",
            of_rules,
            ["constraint", "rows"],
            [[words, integer(many)] for words, many in judged.broken.items()],
        ),
    ]


def _section(
    name: str,
    link: str,
    title: str,
    text: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    note: str | None = None,
) -> tuple[str, str, Html | None]:
    """A section of one table, the worst rows first, whose further rows open; none without rows."""
    if not rows:
        return name, link, None
    shown, more = rows[:_SHOWN], rows[_SHOWN:]
    content = [
        element("h2", title),
        element("p", text),
        table(headings, shown, caption=title),
        fold(f"{len(more)} more", table(headings, more, caption=title)) if more else None,
        element("p", note, class_="note") if note else None,
    ]
    return name, link, element("section", content, id=name)


def reading_section(found: Evaluation) -> Html:
    """What the two yardsticks are, and what these numbers may be used for."""
    score = "" if found.judgement is None else f" Here it is over {integer(found.judgement.sets)} sets."
    items = [
        "Two real samples: two tables drawn from the real records with replacement, as large as the private and the "
        "released table, compared in the same way. So much two surveys of the same people would differ. A table that "
        "is as near is as good as a sample; it can be nearer, because records are dealt more evenly than by chance.",
        "One offline run: AIM, a mechanism for tables that do not change, once on the last private table with the "
        "whole budget of the stream. Its noise can be predicted, and nothing of it is released. A stream that releases "
        "at every step has to share its budget among them.",
        "The k-marginal score is that of NIST's synthetic data challenges." + score,
        "Of large tables a classifier sees 20,000 rows; of more than 500 pairs or 200 sets of columns some are drawn "
        "from a public seed.",
        "The errors of papers (WE, RelWE, L1) stand in steps.csv beside this page.",
        f"What the releases promise: {found.guarantee}.".replace("..", "."),
    ]
    return element(
        "section",
        element("h2", "How to read it"),
        element("ul", [element("li", text) for text in items], class_="prose"),
        id="reading",
    )


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value


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
    body, charts = (_summary(result), None) if found is None else _of_tables(found)
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


def _of_tables(found: Evaluation) -> tuple[list[Html], Charts]:
    dates = Calendar({one.step: one.period for one in found.steps if one.period})
    charts = Charts(dates)
    last, judged = found.last, found.judgement
    sections: list[tuple[str, str, Html | None]] = [("errors", "Over time", errors_section(found, charts))]
    lead = "The private table or the released one is empty: there is nothing to judge."
    if judged is not None:
        lead = judged.words
        sections += [
            ("changes", "Changes", changes_section(judged, charts)),
            *_tables(judged),
        ]
    sections.append(("reading", "How to read it", reading_section(found)))
    about = (
        f"The published table as of {dates.words(last.step)}: {integer(last.rows)} invented records, compared with "
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


def _summary(result: EvaluationResult) -> list[Html]:
    """The summary of any family, in its order: sentences on top, tables below."""
    said = [one for one in result.summary if isinstance(one, str)]
    shown = [one for one in result.summary if isinstance(one, SummaryTable)]
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
