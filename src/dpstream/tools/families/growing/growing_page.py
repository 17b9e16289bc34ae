"""The page of a growing database: of its tables, or of the classifier that is trained on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpstream.core.errors import ConfigError, unreadable
from dpstream.io.sinks import read_table
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun, thin
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.markup import Html, block, interval_table, significant
from dpstream.tools.report.plain_page import states
from dpstream.tools.report.table_page import TABLES_PAGE

#: Releases that are read, and features that are listed.
_MAX_TABLES, _MAX_FEATURES = 40, 30
#: Bands of more features would lie over each other.
_MAX_LINES = 3


@dataclass(frozen=True, eq=False)
class _Classifier(PublishedRun):
    """What the releases of a classifier tell.

    Attributes:
        steps: those that were read.
        coefficients, errors: with their standard errors; shape (steps, features). The released errors are of what was
            measured; shrunk as the coefficients are, they are these.
        records: of each shown step.
    """

    steps: tuple[int, ...]
    features: tuple[str, ...]
    coefficients: Floats
    errors: Floats
    records: tuple[int, ...]


def _draw(folder: Folder, pairs: Pairs) -> Page:
    box = folder.manifest["mechanism"].get("options", {}).get("black_box", {})
    if not isinstance(box, dict) or box.get("name") != "erm":
        return TABLES_PAGE.draw(folder, pairs)
    if pairs:
        raise ConfigError("classifiers lack heat maps", where="report", allowed="a report without them")
    run, target = _collect(folder), str(box["target"])
    charts, accuracy = charts_of(run), run.manifest["accuracy"]
    columns, records = len(box["columns"]), run.records[-1]
    errors = block("growing", "errors", words=accuracy.get("words"), next=accuracy.get("next_run_at"))
    sections = [
        ("weights", "Coefficients", _coefficients(run, target, charts)),
        ("releases", "Over time", _over_time(run, charts)),
        ("errors", "Errors", errors),
    ]
    return Page(
        run,
        sections,
        block("growing", "what", loss=box["loss"], target=target, columns=columns, records=records),
        charts,
        tables=len(run.steps),
        kicker="A released classifier",
        card=_card(run),
        rules=block("growing", "rules", target=target),
    )


def _collect(folder: Folder) -> _Classifier:
    steps = thin(folder.full, _MAX_TABLES)
    with unreadable("the coefficients cannot be read", str(folder.releases)):
        tables = [read_table(folder.releases, step).to_pydict() for step in steps]
        features = tuple(str(name) for name in tables[-1]["feature"]) if tables else ()
        rows = [[table[key] for table in tables] for key in ("coefficient", "standard_error", "measured")]
        values, errors, measured = (
            np.array([[math.nan if v is None else v for v in one] for one in part], np.float64)
            for part in rows
        )
        shrunk = np.divide(values, measured, out=np.ones_like(values), where=measured != 0)
    records = tuple(int(folder.manifest_of(step)["rows"]) for step in folder.steps)
    return _Classifier(
        folder.manifest, folder.states, folder.facts(), steps, features, values, errors * shrunk, records
    )


def _card(run: _Classifier) -> Html:
    """What one may conclude: how often it is right is not known, and which coefficients are beyond the noise is."""
    if not run.steps:
        return block("growing", "card", noise=None)
    errors = 2 * run.errors[-1]
    beyond = int((np.abs(run.coefficients[-1]) > errors).sum())
    return block("growing", "card", noise=float(errors.max()), beyond=beyond, many=len(errors))


def _coefficients(run: _Classifier, target: str, charts: Charts) -> Html:
    if not run.steps:
        return block("growing", "weights", when=None)
    rows = []
    for i in np.argsort(-np.abs(run.coefficients[-1]), kind="stable")[:_MAX_FEATURES]:
        value, error = float(run.coefficients[-1, i]), 2 * float(run.errors[-1, i])
        text = f"{value:+.2f} ± {significant(error)}".replace("-", "\N{MINUS SIGN}")
        rows.append((run.features[i], text, value, error))
    return block(
        "growing",
        "weights",
        when=charts.dates.words(run.steps[-1]),
        target=target,
        unsure=sum(abs(value) <= error for _, _, value, error in rows),
        shown=len(rows),
        table=interval_table(rows, caption="Coefficients"),
    )


def _over_time(run: _Classifier, charts: Charts) -> Html:
    figures: list[Html] = []
    if len(run.steps) > 1:
        order = np.argsort(-np.abs(run.coefficients[-1]), kind="stable")[:_MAX_LINES]
        lines = [
            ChartLine(run.features[i], run.coefficients[:, i], style=place + 1, width=2 * run.errors[:, i])
            for place, i in enumerate(order)
        ]
        note = "The band is two standard errors. Flat lines: no new training."
        title, unit = "The largest coefficients", Unit("coefficient")
        figures.append(charts.lines(title, run.steps, lines, unit, note=note, from_zero=False))
    if len(run.shown) > 1:
        line = ChartLine("records", np.array(run.records, np.float64), named=False)
        steps = [facts.step for facts in run.shown]
        figures.append(charts.lines("Records so far", steps, [line], Unit("records"), small=True))
    return block("growing", "releases", states=states(run.states), figures=figures)


GROWING_PAGE: Final = FamilyPage(_draw, pairs=True)
