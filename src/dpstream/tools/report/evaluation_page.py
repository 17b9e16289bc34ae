"""The page of an evaluation, for the owner alone: the verdict first, then what it rests on. In the reports' design.

Trusted base: owner (shows the owner a comparison with the private table).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpstream.core.version import __version__
from dpstream.stream.release.verdicts import THRESHOLDS
from dpstream.tools.evaluate.contract import EvaluationResult, SummaryTable
from dpstream.tools.evaluate.evaluation import Evaluation
from dpstream.tools.evaluate.judgement import TEACHES, Judgement
from dpstream.tools.evaluate.measures import YARDSTICKS, Measure, verdict_words
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.evaluate.trends import CLEAR
from dpstream.tools.report.assembly import frame
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Html, block, integer, part, percent

_SAMPLES, _ONCE = YARDSTICKS
#: Says what the file is.
_MARKER = "<!-- an evaluation by dpstream -->"


def evaluation_page(result: EvaluationResult) -> str:
    """The whole page as text. It holds private truth: it belongs into a folder of ``open_private_folder``."""
    data = None
    if result.tables is None:
        body = block(
            "evaluation",
            "summary",
            stream=result.stream,
            label=LABEL,
            verdict=verdict_words(result.measures) if result.measures else None,
            measures=measures_table(result.measures),
            sentences=[one for one in result.summary if isinstance(one, str)],
            tables=[one for one in result.summary if isinstance(one, SummaryTable)],
        )
    else:
        found = result.tables
        charts = Charts(Calendar({one.step: one.period for one in found.steps if one.period}))
        body = block("evaluation", "tables", **_facts(found, charts))
        data = {**charts.as_json(one.step for one in found.steps), "heat": {}}
    return frame(
        f"{result.stream}: dpstream evaluation ({LABEL})",
        block("evaluation", "above", label=LABEL),
        body,
        (
            f"Made by dpstream {__version__} from the private table and the releases.",
            "The guarantee excludes options chosen by these numbers.",
        ),
        data=data,
        private=True,
        marker=_MARKER,
    )


def _facts(found: Evaluation, charts: Charts) -> dict[str, Any]:
    """What the page of a stream of tables says; the charts are drawn in their order on it."""
    last, judged = found.last, found.judgement
    facts: dict[str, Any] = {
        "charts": _errors_over_time(found, charts),
        "trends": None,
        "verdict": None,
        "measures": None,
        "sections": [],
        "sets": None,
    }
    if judged is not None:
        trends = judged.trends
        facts |= {
            "trends": trends,
            "wrong": round(trends.wrong * trends.changes) if trends.changes else 0,
            "moved": _moved(judged, charts) if len(trends.steps) > 1 else [],
            "verdict": judged.words,
            "measures": measures_table(judged.measures),
            "sections": [section for section in _tables(judged) if section["rows"]],
            "weak": [one.column for one in judged.targets if not one.areas["real"] > TEACHES],
            "sets": judged.sets,
        }
    return facts | {
        "stream": found.stream,
        "when": charts.dates.words(last.step),
        "rows": last.rows,
        "records": last.records,
        "notes": (*found.notes, *(() if judged is None else judged.missing)),
        "steps": len(found.steps),
        "released": found.released,
        "marginals": len(found.cliques),
        "workload": found.workload,
        "guarantee": found.guarantee,
        "clear": f"{100 * CLEAR:g}",
    }


def measures_table(measures: Sequence[Measure]) -> Html:
    """What may be wrong, measure by measure: a word, the number, and both yardsticks."""
    rows = [(one.question[:1].upper() + one.question[1:], one.word, _number(one), None) for one in measures]
    meaning = block("evaluation", "meaning", thresholds=THRESHOLDS, measures=measures)
    title = "Wrong shares"
    return part("conclusions", rows, "What these numbers mean", meaning, title)


def _number(one: Measure) -> Html:
    yardsticks = ((_SAMPLES, one.floor), (_ONCE, one.ceiling))
    beside = [
        f"{name} {one.text(value).removesuffix(' of 1,000')}".replace(" %", "\N{NO-BREAK SPACE}%")
        for name, value in yardsticks
        if not math.isnan(value)
    ]
    return block(
        "evaluation",
        "number",
        name=one.name,
        value=None if math.isnan(one.value) else one.text(one.value),
        unit=one.unit,
        beside=beside,
        few=one.few,
        clear=f"{100 * CLEAR:g}",
    )


def _errors_over_time(found: Evaluation, charts: Charts) -> list[Html]:
    """The errors of the evaluated steps, and the sizes of both tables."""
    steps = [one.step for one in found.steps]
    mean, largest = (
        np.array([one.errors.as_dict()[name] for one in found.steps]) for name in ("AvgTV", "MaxTV")
    )
    errors = [ChartLine("mean", mean), ChartLine("largest", largest, style=2)]
    sizes = [
        ChartLine("true", np.array([float(one.records) for one in found.steps]), truth=True),
        ChartLine("released", np.array([float(one.rows) for one in found.steps])),
    ]
    unit = Unit("share of the table at a wrong place", share=True)
    return [
        charts.lines("Total variation of the marginals", steps, errors, unit),
        charts.lines("Records", steps, sizes, Unit("records")),
    ]


def _moved(judged: Judgement, charts: Charts) -> list[Html]:
    """The values whose true shares moved most."""
    unit = Unit("share of the table", share=True)
    return [
        charts.lines(
            one.name,
            judged.trends.steps,
            [ChartLine("true", one.true, truth=True), ChartLine("released", one.made)],
            unit,
            small=True,
            from_zero=False,
        )
        for one in judged.trends.moved
    ]


def _tables(judged: Judgement) -> list[dict[str, Any]]:
    """What is told in tables, the worst rows first; those without rows are left out."""
    real, once = (
        {one.words: percent(one.typical) for one in groups}
        for groups in (judged.floor_groups, judged.ceiling_groups)
    )
    teachers = {"synthetic": "released", "real": "real records", "sample": "a real sample", "offline": _ONCE}
    taught = [key for key in teachers if any(key in one.areas for one in judged.targets)]
    worst = sorted(judged.columns.items(), key=lambda one: -np.nan_to_num(one[1][0], nan=-1.0))
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
    learned = [
        [one.column, *(f"{one.areas[key]:.2f}" if key in one.areas else "–" for key in taught)]
        for one in sorted(judged.targets, key=lambda one: one.areas.get("synthetic", 0.5) - one.areas["real"])
    ]
    columns = [[name, *map(percent, values)] for name, values in worst]
    pairs = [
        [" x ".join(one.columns), *map(percent, (one.value, one.floor, one.ceiling))] for one in judged.pairs
    ]
    rules = [[words, integer(many)] for words, many in judged.broken.items()]
    beside, sizes = ("released", _SAMPLES, _ONCE), ("groups", "typical error", "nine of ten within")
    heads = ["true size", *sizes, _SAMPLES, _ONCE, "lost"]
    areas = ["predicted column", *(teachers[key] for key in taught)]
    every = (
        ("columns", "Columns", "Which columns are furthest off", ["column", *beside], columns),
        ("pairs", "Pairs", "Which pairs are furthest off", ["pair", *beside], pairs),
        ("groups", "Groups", "How wrong are small groups?", heads, groups),
        ("learning", "Learning", "Can one learn from it?", areas, learned),
        ("broken", "Constraints", "Is every row possible?", ["constraint", "rows"], rules),
    )
    keys = ("name", "link", "title", "headings", "rows")
    return [dict(zip(keys, section, strict=True)) for section in every]
