"""Releases over time, and how the columns moved."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.evaluate.run_folder import Told
from dpstream.tools.report.charts import MOST_LINES, ChartLine, Charts, Unit
from dpstream.tools.report.collect import ReportedRun
from dpstream.tools.report.folding import top_codes
from dpstream.tools.report.markup import Html, element, integer, join, table
from dpstream.tools.report.private_side import Truth

__all__ = ["movement", "releases", "rows_over_time", "states"]

#: Columns that get a chart of their own; the others are named.
MOST_COLUMNS = 40
_VALUES = 4
#: Changes from one state of releases to another that are told one by one.
_MOST_SPANS = 12
_STATES = {
    "full": ("full table", "the table and its manifest are there"),
    "dropped": ("table dropped", "the keep policy removed the table; the manifest is there"),
    "change": ("change only", "a change against the step before"),
    "withdrawn": ("withdrawn", "the owner has taken the release back"),
}


def releases(run: ReportedRun, truth: Truth | None, charts: Charts) -> Html:
    """The section on the releases and their sizes."""
    return element(
        "section",
        element("h2", "The releases"),
        states(run.states),
        element("div", rows_over_time(run, charts, truth), _churn(run, charts), class_="grid wide"),
        element("p", _thinned(run), class_="note") if _thinned(run) else None,
        id="releases",
    )


def movement(run: ReportedRun, charts: Charts) -> Html:
    """The section on how much the releases move."""
    return element(
        "section",
        element("h2", "Change over time"),
        _movement(run, charts),
        id="movement",
    )


def states(told: Sequence[tuple[int, str]]) -> Html:
    """Says what is left of each release; ``told`` has every step and its state."""
    spans = [
        (state, group[0], group[-1])
        for state, group in (
            (state, [step for step, _ in part])
            for state, part in itertools.groupby(told, key=lambda entry: entry[1])
        )
    ]
    counts = Counter(state for _, state in told)
    if counts["full"] == len(told):
        if len(told) == 1:
            return element("p", "One release so far, a full table.")
        all_of = "Both" if len(told) == 2 else f"All {integer(len(told))}"
        return element("p", f"{all_of} releases are full tables.")
    pieces = [
        element(
            "span",
            _STATES.get(state, (state, ""))[0],
            class_=f"state {state}" if state in _STATES else "state",
            style=f"flex-grow:{last - first + 1}",
        )
        for state, first, last in spans
    ]
    heading = "steps"
    rows = [
        [f"{first}" if first == last else f"{first} to {last}", *_STATES.get(state, (state, ""))]
        for state, first, last in spans
    ]
    if len(spans) > _MOST_SPANS:
        heading = "how many"
        rows = [[integer(many), *_STATES.get(state, (state, ""))] for state, many in counts.items()]
    return join(
        [
            element("div", pieces if len(spans) <= 24 else None, class_="states", aria_hidden="true"),
            table([heading, "what is there", "meaning"], rows, caption="State of the releases", numeric=9),
        ]
    )


def rows_over_time(run: Told, charts: Charts, truth: Truth | None = None) -> Html:
    """How many rows each release has."""
    steps = [facts.step for facts in run.shown]
    rows = np.array([facts.rows for facts in run.shown], dtype=np.float64)
    if len(steps) == 1 and truth is None:
        return element("p", f"The release has {integer(rows[0])} rows, {run.shown[0].counted}.")
    errors = [None if facts.accuracy is None else facts.accuracy.total for facts in run.shown]
    public = errors[-1] == 0
    lines = [ChartLine("released" if public else "released (noisy)", rows)]
    note = "" if public else "The number of records is private, so tables have a noisy number of rows."
    if truth is not None:
        known = {compared.step: float(compared.records) for compared in truth.steps}
        true = np.array([known.get(step, np.nan) for step in steps])
        lines.insert(0, ChartLine("true", true, truth=True))
        note = f"True numbers: {LABEL}."
    if public:
        note = f"{note} The owner has declared the numbers of records public: they have no noise.".lstrip()
    elif errors[-1] is not None:
        error = errors[-1]
        note += f" Standard error of the last one: {integer(error)} rows."
    return charts.lines("Rows per release", steps, lines, Unit("rows"), note=note)


def _churn(run: ReportedRun, charts: Charts) -> Html | None:
    if len(run.tables) < 2:
        return None
    gaps = sorted({b - a for a, b in itertools.pairwise(run.tables)})
    apart = "the release before" if gaps == [1] else f"the release drawn before it ({_apart(gaps)} earlier)"
    return charts.lines(
        "How much a release differs from the one before",
        run.tables[1:],
        [ChartLine("distance", np.array(run.churn))],
        Unit("total variation distance, share of rows", share=True),
        note=f"Mean over the {integer(len(run.workload))} marginals asked for, compared with {apart}. It holds the "
        "new records and the noise alike: in a steady stream it falls as the table grows.",
    )


def _apart(gaps: Sequence[int]) -> str:
    return f"{gaps[0]} steps" if len(gaps) == 1 else f"{gaps[0]} to {gaps[-1]} steps"


def _thinned(run: ReportedRun) -> str | None:
    """Says which steps are not drawn."""
    told = sum(1 for _, state in run.states if state != "withdrawn")
    full = sum(1 for _, state in run.states if state == "full")
    if len(run.shown) >= told and len(run.tables) == full:
        return None
    return (
        f"{integer(len(run.tables))} of {integer(full)} tables were read for this page, evenly spaced with the first "
        "and the last: what happened only in between is not seen."
    )


def _movement(run: ReportedRun, charts: Charts) -> Html:
    if len(run.tables) < 2:
        there = "One release has a full table" if run.tables else "No release has a full table"
        return element("p", f"{there}, so there is no change over time to show yet.")
    rows = run.rows().astype(np.float64)
    moving: list[tuple[float, int, NDArray[np.float64]]] = []
    still: list[tuple[float, int, NDArray[np.float64]]] = []
    for column in range(len(run.schema)):
        shares = _shares(run.counts[column], rows)
        spread = (
            np.nanmax(shares, axis=0) - np.nanmin(shares, axis=0)
            if np.isfinite(shares).any()
            else np.zeros(1)
        )
        (moving if spread.max() > 0 else still).append((float(spread.max()), column, shares))
    drawn = {column for _, column, _ in sorted(moving, key=lambda entry: -entry[0])[:MOST_COLUMNS]}
    figures = [_column(run, column, shares, charts) for _, column, shares in moving if column in drawn]
    left = [run.schema.names[column] for _, column, _ in moving if column not in drawn]
    constant = [run.schema.names[column] for _, column, _ in still]
    return join(
        [
            element(
                "p",
                "Share of the rows, for the commonest values of each column. Where a release is small, most of its "
                "movement is noise.",
            ),
            element("div", figures, class_="grid") if figures else None,
            element("p", f"Not drawn, they moved least: {', '.join(left)}.", class_="note") if left else None,
            element("p", f"The same in every release: {', '.join(constant)}.", class_="note")
            if constant
            else None,
        ]
    )


def _shares(counts: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of each table's rows; NaN where a table is empty."""
    whole = np.where(rows > 0, rows, np.nan)
    return counts / whole[:, None]


def _column(run: ReportedRun, column: int, shares: NDArray[np.float64], charts: Charts) -> Html:
    labels, size = run.labels(column), run.schema.domain.sizes[column]
    if size == 2:
        codes = [1]  # the other one mirrors it
    else:
        weights = np.nansum(shares, axis=0) * 1e6
        codes = top_codes(weights.astype(np.int64), min(_VALUES, MOST_LINES))
        codes = [code for code in codes if weights[code] > 0]
    # Of two values only one is drawn, and it may be called "true", which means something else on these pages.
    name = f"{run.schema.names[column]} = " if size == 2 else ""
    lines = [ChartLine(f"{name}{labels[code]}", shares[:, code], style=i + 1) for i, code in enumerate(codes)]
    rest = size - len(codes)
    note = None if size <= len(codes) + 1 else f"{rest} other values are not drawn."
    return charts.lines(
        run.schema.names[column],
        run.tables,
        lines,
        Unit("share of rows", share=True),
        note=note,
        small=True,
    )
