"""The page of a panel: what its manifests answer, period by period, and how wrong that may be."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dpstream.core.errors import InputError, StoreDamagedError, unreadable
from dpstream.core.paths import parse_json
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.markup import Html, block, integer, interval_table, percent, significant
from dpstream.tools.report.plain_page import states

#: Names of the reported columns with the labels of their codes.
Columns = Sequence[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True)
class QuestionWords:
    """How reports and periods are called in the words of the table.

    Attributes:
        yes: what a report of 1 says, where a report is one of two.
        period: ``months`` where the periods' names are, else ``periods``.
    """

    yes: str
    period: str

    @classmethod
    def of(cls, run: PublishedRun, columns: Columns) -> QuestionWords:
        """From the columns and the names of periods."""
        names = run.manifest["mechanism"]["options"].get("period_names") or []
        monthly = bool(names) and all(re.fullmatch(r"\d{4}-\d{2}", str(name)) for name in names)
        yes = "1"
        if len(columns) == 1 and len(columns[0][1]) == 2:
            ((name, labels),) = columns
            yes = name if labels == ("false", "true") else f"{name} = {labels[1]}"
        return cls(yes, "months" if monthly else "periods")

    def of_question(self, question: str) -> str:
        """A manifest's words in the table's.

        >>> QuestionWords("poor", "months").of_question("1 in at least 2 of the last 3 periods")
        'poor in at least 2 of the last 3 months'
        >>> QuestionWords("poor", "months").of_question("at least 2 so far")
        'poor in at least 2 months so far'
        """
        words = re.sub(r"^(1 in )?at least", f"{self.yes} in at least", question)
        words = re.sub(r"(at least \d+) so far", rf"\1 {self.period} so far", words)
        return words.replace("periods", self.period)


def columns_of(folder: Folder) -> Columns:
    """The reported columns, from the codebook.

    Errors:
        StoreDamagedError: it cannot be read, or belongs to other releases.
    """
    path = folder.releases / "codebook.json"
    try:
        book = parse_json(path.read_bytes())["dpstream"]
        if book["schema"] != folder.manifest["schema"]:
            raise StoreDamagedError("the codebook is of other releases", where=str(path))
        fields = [one for one in book["panel"]["fields"] if "dpstream" in one]
        return [
            (str(one["name"]), tuple(str(code["label"]) for code in one["dpstream"]["codes"]))
            for one in fields
        ]
    except (OSError, InputError, KeyError, TypeError):
        raise StoreDamagedError("the codebook cannot be read", where=str(path)) from None


#: Questions that get a chart; the others are in the table.
_MAX_CHARTS = 12


@dataclass(frozen=True)
class PanelAnswer:
    """What the releases answer to one question.

    Attributes:
        values: at each shown step, NaN where it is not answered; as shares of all people or as their number.
        measured, errors: what ``values`` came from, with its standard errors; the same as ``values`` but of counts
            that must not fall.
    """

    question: str
    share: bool
    values: Floats
    measured: Floats
    errors: Floats


@dataclass(frozen=True, eq=False)
class PanelRun(PublishedRun):
    """Everything public that the page of a panel shows.

    Attributes:
        people: estimated number, without padding, at each shown step; 0 before the first release.
        answers: in the order of the manifests.
    """

    people: tuple[int, ...]
    answers: tuple[PanelAnswer, ...]


def collect_panel(folder: Folder) -> PanelRun:
    """Read the manifests of a panel. Reads nothing private, and no table.

    Errors:
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    manifests = [folder.manifest_of(step) for step in folder.steps]
    with unreadable("the manifests' answers cannot be read", str(folder.releases)):
        by_step = [
            {_timeless(str(one["question"])): one for one in manifest["accuracy"]["panel"]["answers"]}
            for manifest in manifests
        ]
        people = tuple(int(manifest["rows"]) for manifest in manifests)
        questions = list(dict.fromkeys(question for one in by_step for question in one))
        answers = tuple(_answer(question, [one.get(question) for one in by_step]) for question in questions)
    return PanelRun(folder.manifest, folder.states, folder.facts(), people, answers)


def _timeless(question: str) -> str:
    """The words of a question without its period.

    >>> _timeless("at least 2 of the first 7 periods")
    'at least 2 so far'
    """
    return re.sub(r"of the first \d+ periods", "so far", question)


def _answer(question: str, by_step: list[dict[str, Any] | None]) -> PanelAnswer:
    share = any("share" in one for one in by_step if one is not None)
    key = "share" if share else "count"
    falls = any("unbiased" in one for one in by_step if one is not None)
    measured = "unbiased" if falls else key

    def values(name: str) -> Floats:
        found = [None if one is None else one[name] for one in by_step]
        return np.array([math.nan if value is None else float(value) for value in found])

    return PanelAnswer(question, share, values(key), values(measured), values(f"{measured}_standard_error"))


def _draw(folder: Folder, pairs: Pairs) -> Page:
    run = collect_panel(folder)
    columns = columns_of(folder)
    charts, people = charts_of(run), run.people[-1]
    panel, padded = run.manifest["accuracy"]["panel"], _padded(run)
    public = run.manifest["accuracy"]["total_standard_error"] == 0
    errors = block(
        "panel",
        "errors",
        words=run.manifest["accuracy"]["words"],
        failure=panel["failure"] if run.answers else None,
    )
    sections = [
        ("answers", "Answers", _answers(run, QuestionWords.of(run, columns), charts)),
        ("releases", "People", _releases(run, charts, "a public number" if public else "estimated")),
        ("errors", "Errors", errors),
    ]
    what = block("panel", "what", rows=run.shown[-1].rows, people=people, padded=padded, public=public)
    return Page(run, sections, what, charts, size=people, columns=len(columns))


PANEL_PAGE: Final = FamilyPage(_draw)


def _releases(run: PanelRun, charts: Charts, number: str) -> Html:
    rows = np.array([facts.rows for facts in run.shown], np.float64)
    people = np.array(run.people, np.float64)
    known = rows > 0
    lines = [
        ChartLine("synthetic people in the table", np.where(known, rows, np.nan)),
        ChartLine(f"people ({number})", np.where(known, people, np.nan), style=2),
    ]
    weighted = "weight" in run.manifest.get("records", {})
    note = block("panel", "people_note", padded=_padded(run), weighted=weighted, late=not known.all())
    figure = charts.lines("People", [facts.step for facts in run.shown], lines, Unit("people"), note=note)
    return block("panel", "releases", states=states(run.states), figure=figure)


def _padded(run: PanelRun) -> bool:
    """Whether the table holds padding."""
    panel = run.manifest["accuracy"]["panel"]
    return bool(panel.get("padding_of_a_pattern", panel.get("padding", 0)))


def _answers(run: PanelRun, words: QuestionWords, charts: Charts) -> Html:
    steps = [facts.step for facts in run.shown]
    figures = [
        _figure(answer, words.of_question(answer.question), steps, charts)
        for answer in run.answers[:_MAX_CHARTS]
    ]
    return block(
        "panel",
        "answers",
        figures=figures,
        when=charts.dates.name(steps[-1], long=True),
        padded=_padded(run),
        table=_last_answers(run, words) if figures else None,
        left=len(run.answers) - len(figures),
    )


def _figure(answer: PanelAnswer, title: str, steps: list[int], charts: Charts) -> Html:
    unit = Unit("share of all people", share=True) if answer.share else Unit("people")
    band = ChartLine("released", answer.measured, width=2 * answer.errors, named=False)
    lines = [band]
    if not np.array_equal(answer.values, answer.measured, equal_nan=True):
        lines = [replace(band, label="measured", named=True), ChartLine("released", answer.values, style=2)]
    return charts.lines(title, steps, lines, unit, small=True, from_zero=False)


def _last_answers(run: PanelRun, words: QuestionWords) -> Html:
    """Every answer with a band as wide as two standard errors, on one scale."""
    known = [
        (
            words.of_question(one.question),
            float(one.measured[-1]),
            2 * float(one.errors[-1]),
            one.share,
            one.values[-1],
        )
        for one in run.answers
    ]
    rows = [
        (
            name,
            (f"{percent(value)} ± {percent(error)}" if share else f"{_whole(value)} ± {significant(error)}")
            + ("" if released == value else f" (released: {_whole(released)})"),
            value if share else value / max(1, run.people[-1]),
            error if share else error / max(1, run.people[-1]),
        )
        for name, value, error, share, released in known
    ]
    return interval_table(rows, caption="Shares or numbers, with two standard errors")


def _whole(value: float) -> str:
    """A whole number, or a dash for none."""
    return integer(value) if math.isfinite(value) else "–"
