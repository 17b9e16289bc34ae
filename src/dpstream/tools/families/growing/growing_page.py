"""The page of a growing database: of its tables, or of the classifier that is trained on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.io.sinks import read_table
from dpstream.stream.release.verdicts import NOT_KNOWN
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun, thin
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of, conclusions, errors_section
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.markup import Html, element, integer, interval_table, significant
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
        raise ConfigError(
            "a report about a classifier has no heat maps", where="report", allowed="a report without them"
        )
    run = _collect(folder)
    charts = charts_of(run)
    kind = {"logistic": "logistic regression"}.get(str(box["loss"]), "linear support vector machine")
    what = (
        f"A classifier ({kind}) of {box['target']} by {len(box['columns'])} column"
        f"{'' if len(box['columns']) == 1 else 's'}, trained on "
        f"{integer(run.records[-1])} records"
    )
    sections = [
        ("weights", "Coefficients", _coefficients(run, str(box["target"]), charts)),
        ("releases", "Over time", _over_time(run, charts)),
        ("errors", "Errors", _errors(run)),
    ]
    return Page(
        run,
        sections,
        what,
        charts,
        tables=len(run.steps),
        kicker="A released classifier: what it is good for",
        card=_card(run),
        rules=_rules(str(box["target"])),
    )


def _collect(folder: Folder) -> _Classifier:
    steps = thin(folder.full, _MAX_TABLES)
    try:
        tables = [read_table(folder.releases, step).to_pydict() for step in steps]
        features = tuple(str(name) for name in tables[-1]["feature"]) if tables else ()
        rows = [[table[key] for table in tables] for key in ("coefficient", "standard_error", "measured")]
        values, errors, measured = (
            np.array([[math.nan if v is None else v for v in one] for one in part], np.float64)
            for part in rows
        )
        shrunk = np.divide(values, measured, out=np.ones_like(values), where=measured != 0)
    except (KeyError, TypeError, ValueError):
        raise StoreDamagedError("the coefficients cannot be read", where=str(folder.releases)) from None
    records = tuple(int(folder.manifest_of(step)["rows"]) for step in folder.steps)
    return _Classifier(
        folder.manifest, folder.states, folder.facts(), steps, features, values, errors * shrunk, records
    )


def _card(run: _Classifier) -> Html:
    """What one may conclude: how often it is right is not known, and which coefficients are beyond the noise is."""
    unknown = (
        "nobody has counted it; whoever has records whose answer is known can let it predict them, and count"
    )
    rows: list[tuple[str, str | None, list[Html | str], None]] = [
        ("How often it is right", NOT_KNOWN, [unknown], None)
    ]
    if run.steps:
        errors = 2 * run.errors[-1]
        beyond = int((np.abs(run.coefficients[-1]) > errors).sum())
        noise = f"±\N{NO-BREAK SPACE}{significant(float(errors.max()))}"
        text = f"{integer(beyond)} of {integer(len(errors))} are beyond the noise ({noise})"
        rows.append(("Its coefficients", None, [text], None))
    meaning = (
        "Beyond the noise: further than two standard errors of the noise from 0; by chance one in twenty such bands "
        "misses.",
        "How often a classifier is right depends on the records that it is used for. To count it on the records of "
        "this stream would cost a budget, and none was planned for it: no command of dpstream tells it. Its owner can "
        "count it on records that were kept out of the stream, and must not publish that count.",
    )
    return conclusions(rows, "What these words mean", *(element("p", text) for text in meaning))


def _rules(target: str) -> tuple[str, ...]:
    return (
        "Count how often it is right on records whose answer you know before you rely on it.",
        "Add up the coefficients of a record's values; one of a number or of a column of two values counts times the "
        f"value's place from \N{MINUS SIGN}1 to 1. Above 0 speaks for {target}.",
        "A coefficient is no cause. One within its band of 0 says nothing.",
    )


def _coefficients(run: _Classifier, target: str, charts: Charts) -> Html:
    title = element("h2", "What speaks for it, and what against")
    if not run.steps:
        return element("section", title, element("p", "No release has its table."), id="weights")
    order = np.argsort(-np.abs(run.coefficients[-1]), kind="stable")[:_MAX_FEATURES]
    rows = []
    for i in order:
        value, error = float(run.coefficients[-1, i]), 2 * float(run.errors[-1, i])
        text = f"{value:+.2f} ± {significant(error)}".replace("-", "\N{MINUS SIGN}")
        rows.append((run.features[i], text, value, error))
    unsure = sum(1 for _, _, value, error in rows if abs(value) <= error)
    words = (
        f"Coefficients of {charts.dates.words(run.steps[-1])}: right of the line a feature speaks for {target}, "
        "left of it against. The band is two standard errors of the noise to either side."
    )
    if unsure:
        words += (
            f" {integer(unsure)} of {integer(len(rows))} are within their band of none: leave these alone."
        )
    return element(
        "section", title, element("p", words), interval_table(rows, caption="Coefficients"), id="weights"
    )


def _over_time(run: _Classifier, charts: Charts) -> Html:
    parts: list[Html | None] = [states(run.states)]
    if len(run.steps) > 1:
        order = np.argsort(-np.abs(run.coefficients[-1]), kind="stable")[:_MAX_LINES]
        lines = [
            ChartLine(run.features[i], run.coefficients[:, i], style=place + 1, width=2 * run.errors[:, i])
            for place, i in enumerate(order)
        ]
        note = "The band is two standard errors of the noise. Where nothing was trained anew, a line is flat."
        parts.append(
            charts.lines(
                "The largest coefficients", run.steps, lines, Unit("coefficient"), note=note, from_zero=False
            )
        )
    line = ChartLine("records", np.array(run.records, np.float64), named=False)
    if len(run.shown) > 1:
        steps = [facts.step for facts in run.shown]
        parts.append(charts.lines("Records so far", steps, [line], Unit("records"), small=True))
    return element("section", element("h2", "Over time"), *parts, id="releases")


def _errors(run: _Classifier) -> Html:
    told: dict[str, Any] = run.manifest.get("accuracy") or {}
    texts = [str(told["words"])] if "words" in told else []
    if told.get("next_run_at") is not None:
        texts.append(f"It is trained again when there are {integer(told['next_run_at'])} records.")
    texts.append(
        "A coefficient is no cause. How often the classifier is right is not told here: it would have to be measured "
        "with a budget of its own, or on records that are public."
    )
    return errors_section(texts)


GROWING_PAGE: Final = FamilyPage(_draw, pairs=True)
