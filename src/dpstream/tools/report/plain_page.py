"""The page of any stream whose family brings none: what manifests, catalogue and codebook say.

``states`` and ``rows_over_time`` are on other pages, too.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from dpstream.io.sinks import released_schema
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun, StepFacts
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.markup import Html, block, integer, part


def states(every: Sequence[tuple[int, str]]) -> Html:
    """Says what is left of each release; ``every`` has every step and its state."""
    spans = []
    for state, entries in itertools.groupby(every, key=lambda entry: entry[1]):
        steps = [step for step, _ in entries]
        spans.append((state, steps[0], steps[-1]))
    counts = Counter(state for _, state in every)
    full = counts["full"] == len(every)
    return block(
        "tables", "states", steps=len(every), all_full=full, spans=spans, counts=list(counts.items())
    )


def rows_over_time(run: PublishedRun, charts: Charts) -> Html:
    """How many rows each release has, with a band of two standard errors where these are known."""
    steps = [facts.step for facts in run.shown]
    rows = np.array([facts.rows for facts in run.shown], dtype=np.float64)
    if len(steps) == 1:
        return block("plain", "one_release", rows=rows[0], counted=run.shown[0].counted)
    errors = np.array([_error_of_rows(facts) for facts in run.shown], dtype=np.float64)
    public = errors[-1] == 0
    band = 2 * errors if (errors > 0).any() else None
    lines = [ChartLine("released" if public else "released (noisy)", rows, width=band, named=False)]
    note = "The number of rows is noisy."
    if public:
        note = "The numbers of records are public."
    elif band is not None:
        note += " The band is two standard errors"
        note += ", where they are known." if np.isnan(errors).any() else "."
    return charts.lines("Rows per release", steps, lines, Unit("rows"), note=note)


def _error_of_rows(facts: StepFacts) -> float:
    error = facts.accuracy.total
    return math.nan if error is None else error


def _draw(folder: Folder, pairs: Pairs) -> Page:
    run = PublishedRun(folder.manifest, folder.states, folder.facts())
    schema = released_schema(folder.releases, run.manifest)
    charts = charts_of(run)
    releases = block("plain", "releases", states=states(run.states), rows=rows_over_time(run, charts))
    sections = [
        ("releases", "Releases", releases),
        ("columns", "Columns", block("plain", "columns", columns=schema.columns)),
        (
            "errors",
            "Error",
            part("section", "errors", "How wrong it can be", [run.shown[-1].accuracy.words]),
        ),
    ]
    what = f"{integer(run.shown[-1].rows)} invented records with {integer(len(schema))} columns"
    return Page(run, sections, what, charts)


PLAIN_PAGE: Final = FamilyPage(_draw)
