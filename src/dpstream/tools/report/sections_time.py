"""The table over time: which releases there are, its size, and how its columns moved."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.stream.release.folding import top_codes
from dpstream.tools.evaluate.run_folder import PublishedRun, StepFacts
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.collect import ReportedRun
from dpstream.tools.report.markup import Html, element, integer, join, table

#: Columns that get a chart of their own: those that moved most.
MAX_COLUMNS = 6
_VALUES = 4
#: Changes from one state of releases to another that are told one by one.
_MAX_SPANS = 12
_STATES = {
    "full": ("full table", "the table and its manifest are there"),
    "dropped": ("table dropped", "the keep policy removed the table; the manifest is there"),
    "change": ("change only", "a change against the step before"),
    "withdrawn": ("withdrawn", "the owner has taken the release back"),
}


def releases(run: ReportedRun, charts: Charts) -> Html:
    """The section on the table over time: its size, and the columns that moved most."""
    return element(
        "section",
        element("h2", "The table over time"),
        states(run.states),
        rows_over_time(run, charts),
        _movement(run, charts),
        element("p", _thinned(run), class_="note") if _thinned(run) else None,
        id="releases",
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
    if len(spans) > _MAX_SPANS:
        heading = "how many"
        rows = [[integer(many), *_STATES.get(state, (state, ""))] for state, many in counts.items()]
    return join(
        [
            element("div", pieces if len(spans) <= 24 else None, class_="states", aria_hidden="true"),
            table([heading, "what is there", "meaning"], rows, caption="State of the releases", numeric=9),
        ]
    )


def rows_over_time(run: PublishedRun, charts: Charts) -> Html:
    """How many rows each release has, with a band of two standard errors where these are known."""
    steps = [facts.step for facts in run.shown]
    rows = np.array([facts.rows for facts in run.shown], dtype=np.float64)
    if len(steps) == 1:
        return element("p", f"The release has {integer(rows[0])} rows, {run.shown[0].counted}.")
    errors = np.array([_error_of_rows(facts) for facts in run.shown], dtype=np.float64)
    public = errors[-1] == 0
    band = 2 * errors if (errors > 0).any() else None
    lines = [ChartLine("released" if public else "released (noisy)", rows, width=band, named=False)]
    note = "" if public else "The number of records is private, so tables have a noisy number of rows."
    if public:
        note = f"{note} The owner has declared the numbers of records public: they have no noise.".lstrip()
    elif band is not None:
        note += " The band is two standard errors to either side"
        note += ", where they are known." if np.isnan(errors).any() else "."
    return charts.lines("Rows per release", steps, lines, Unit("rows"), note=note)


def _error_of_rows(facts: StepFacts) -> float:
    error = None if facts.accuracy is None else facts.accuracy.total
    return math.nan if error is None else error


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
    moving = []
    for column in range(len(run.schema)):
        shares = run.shares(column)
        # Early tables are small, and mostly noise.
        late = shares[len(shares) // 3 :]
        spread = np.ptp(late[np.isfinite(late[:, 0])], axis=0) if np.isfinite(late).any() else np.zeros(1)
        if spread.max() > 0:
            moving.append((float(spread.max()), column, shares))
    drawn = sorted(moving, key=lambda entry: -entry[0])[:MAX_COLUMNS]
    figures = [_column(run, column, shares, charts) for _, column, shares in drawn]
    if not figures:
        return element("p", "All columns are the same in every release.")
    which = "the columns that moved most" if len(drawn) < len(moving) else "each column that moved"
    return join(
        [
            element("h3", "What moved"),
            element(
                "p",
                f"Share of the rows: the commonest values of {which}. Where a table is small, most of its movement is "
                "noise.",
            ),
            element("div", figures, class_="grid"),
        ]
    )


def _column(run: ReportedRun, column: int, shares: NDArray[np.float64], charts: Charts) -> Html:
    labels, size = run.labels(column), run.schema.domain.sizes[column]
    if size == 2:
        codes = [1]  # the other one mirrors it
    else:
        weights = np.nansum(shares, axis=0) * 1e6
        codes = [code for code in top_codes(weights.astype(np.int64), _VALUES) if weights[code] > 0]
    # Of two values only one is drawn, and it may be called "true", which means something else on these pages.
    name = f"{run.schema.names[column]} = " if size == 2 else ""
    lines = [ChartLine(f"{name}{labels[code]}", shares[:, code], style=i + 1) for i, code in enumerate(codes)]
    rest = size - len(codes)
    note = None if size <= len(codes) + 1 else f"{rest} other values are not drawn."
    unit = Unit("share of rows", share=True)
    return charts.lines(run.schema.names[column], run.tables, lines, unit, note=note, small=True)
