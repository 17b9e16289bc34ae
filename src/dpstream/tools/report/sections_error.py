"""How wrong the releases can be over time, and where they are weakest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PredictedError
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import count_marginals
from dpstream.tools.evaluate.run_folder import StepFacts
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.collect import ReportedRun
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.known_errors import measured_words
from dpstream.tools.report.markup import Html, element, integer, join, percent, significant, table

_WORST = 12
_TOTAL, _IN_TURN = "the number of records", "a count measured in turn (predicted)"


def errors(run: ReportedRun, charts: Charts) -> Html:
    """The section "How wrong it can be"."""
    return element(
        "section",
        element("h2", "How wrong it can be"),
        _noise(run, charts),
        _by_simulation(run),
        id="errors",
    )


def _predicted(run: ReportedRun, steps: Sequence[int]) -> tuple[PredictedError, ...] | None:
    return None if run.config is None else run.config.plan().predicted_errors(steps)


def _by_simulation(run: ReportedRun) -> Html | None:
    """What simulations found about the last table, the number of records and cells by their size."""
    if run.simulated is None:
        return None
    sizes = run.simulated.facts["sizes"]
    words = (
        f"By simulation, at step {run.last_table}, the standard error of a cell of the largest marginals stands below, "
        f"by the cell's size. {run.simulated.words}"
    )
    rows = [
        [f"{integer(one['from'])} or more", integer(one["cells"]), significant(one["standard_error"])]
        for one in sizes
    ]
    made = table(
        ["records in a cell", "cells", "standard error, records"],
        rows,
        caption="Errors by simulation, everything included that a simulation can see",
    )
    return join([element("p", words), made if sizes else None])


def _noise(run: ReportedRun, charts: Charts) -> Html:
    """Standard errors over steps: what the plan predicts, and what the manifests say."""
    shown = run.shown
    if run.in_epochs:
        # Single steps without neighbours would be no lines: those that end an epoch are joined.
        shown = tuple(f for f in shown if f.accuracy is not None and f.accuracy.total is not None)
    steps = [facts.step for facts in shown]
    predicted = _predicted(run, steps) if steps else None
    lines = []
    if predicted is not None:
        lines += [
            ChartLine(
                "a count measured at every step (predicted)",
                _known([p.every_step for p in predicted]),
                style=1,
            ),
        ]
        if any(p.measurements < p.step for p in predicted):
            lines.append(ChartLine(_IN_TURN, _known([p.even_share for p in predicted]), style=2))
    told = [facts.accuracy for facts in shown]
    if predicted is None:
        lines.append(
            ChartLine(
                "a count measured at every step",
                _known([None if a is None else a.cell for a in told]),
                style=1,
            )
        )
    totals = _known([None if a is None else a.total for a in told])
    # A public number has no noise to be drawn.
    if totals.any():
        lines.append(ChartLine(_TOTAL, totals, style=3))
    lines = [line for line in lines if np.isfinite(line.values).any()]
    words = run.accuracy.words if run.accuracy is not None else None
    if not lines:
        unknown = "Neither the manifests nor a configuration say how large the noise is, so no standard error can be "
        unknown += "given."
        return element("p", words or unknown)
    if len(steps) == 1:
        known = "; ".join(f"{line.label}: {significant(float(line.values[0]))} records" for line in lines)
        return join(
            [element("p", f"Standard errors of the noise: {known}."), element("p", words) if words else None]
        )
    note, title = "Standard deviation of the noise, from public scales alone.", "Noise of a count"
    if any(line.label == _IN_TURN for line in lines):
        note += (
            " In turn: all marginals are measured equally often. What the model guesses about steps at which a "
            "marginal was not measured is not in it, and no public number tells how wrong that is."
        )
    elif [line.label for line in lines] == [_TOTAL]:
        title = "Noise of the number of records"
    if run.in_epochs:
        title = "Noise of the number of records"
        note = (
            "Standard deviation of the noise, from public scales alone, in the releases that end an epoch. In between "
            "the number of records is expected, not measured, and has no standard error."
        )
    figure = charts.lines(title, steps, lines, Unit("standard error, records"), note=note)
    both = element("div", figure, _relative(shown, lines, charts), class_="grid wide")
    return join([element("p", words) if words else None, both])


def _relative(shown: Sequence[StepFacts], lines: Sequence[ChartLine], charts: Charts) -> Html:
    """The noise as a share of the table, which is what a reader of shares sees."""
    rows = np.array([facts.rows for facts in shown], dtype=np.float64)
    whole = np.where(rows > 0, rows, np.nan)
    shares = [ChartLine(line.label, line.values / whole, style=line.style) for line in lines]
    # The first tables are tiny; their noise would flatten everything after it.
    shares = [
        ChartLine(line.label, np.where(line.values > 1.0, np.nan, line.values), line.style) for line in shares
    ]
    return charts.lines(
        "The same noise as a share of the table",
        [facts.step for facts in shown],
        shares,
        Unit("standard error, share of released rows", share=True),
        note="Above 100 % nothing is drawn: there the noise is larger than the table.",
    )


def _known(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def weak(run: ReportedRun, dates: Calendar) -> Html:
    """The section "Where it is weak"."""
    if run.codes is None:
        body = element("p", "No release has a full table to look at.")
    else:
        body = _weakness(run, dates)
    return element("section", element("h2", "Where it is weak"), body, id="weak")


def _weakness(run: ReportedRun, dates: Calendar) -> Html:
    error, source = _cell_error(run)
    texts = [_measured_words(run)]
    if error is not None:
        least = math.ceil(2 * error)
        texts.insert(
            0,
            f"A count under about {integer(least)} is mostly noise: that is two standard errors of {source} "
            f"({significant(error)} records). What the model guesses comes on top, so that larger counts can be wrong "
            "too. Sums over several cells are safer than single ones.",
        )
        made = _thin_marginals(run, least)
    else:
        least_words = (
            "How large a count must be to be more than noise cannot be told from what is public here."
        )
        if run.simulated is not None:
            least_words = (
                "How wrong a count is, by its size, was found by simulation: the table below tells it. A count under "
                "two of its standard errors is mostly noise."
            )
        else:
            if (measured := measured_words(run, dates)) is not None:
                least_words = f"Of single columns {measured}: where a count is smaller, it is mostly noise. "
                least_words += "How wrong counts of the table's rows are is not known."
            least_words += " The publisher can find out with dpstream errors, at no cost in privacy."
        texts.insert(0, least_words)
        made = _thin_marginals(run, None)
    texts.append(
        "The model keeps the marginals that it was asked for. How columns outside of one such marginal go together "
        "is a guess: combinations of more columns than a marginal has are not measured at all."
    )
    return join([[element("p", text) for text in texts], made])


def _cell_error(run: ReportedRun) -> tuple[float | None, str]:
    accuracy = run.accuracy
    if accuracy is not None and accuracy.cell is not None:
        return accuracy.cell, "a count that was measured at every step"
    assert run.last_table is not None
    predicted = _predicted(run, [run.last_table])
    if predicted is not None and predicted[0].even_share is not None:
        one = predicted[0]
        how = "in turn" if one.measurements < one.step else "at every step"
        return one.even_share, f"a count measured {how}, as the plan predicts them"
    return None, ""


def _measured_words(run: ReportedRun) -> str:
    many, accuracy = len(run.workload), run.accuracy
    always = 0 if accuracy is None else len(accuracy.marginals)
    options = run.manifest["mechanism"]["options"]
    rounds = options.get("k")
    per_step = (
        f" {rounds} of the {integer(many)} marginals are measured at each step, the ones that seem to need it most."
        if isinstance(rounds, int) and rounds < many
        else ""
    )
    if run.in_epochs:
        which = (
            "is not published" if run.published is None else "stands beside the tables (dpstream measured)"
        )
        return (
            "Steps are measured together, in epochs of a public length: what was chosen to be measured of an epoch is "
            f"measured once for all of its records. Which marginals that were {which}; what was not measured is what "
            "the model expects. A change within the newest, open epoch is not seen before it ends."
        )
    if "black_box" in options:
        return _runs_words(options["black_box"], many)
    if "offline" in options:
        which = "marginals that it selects"
        if isinstance(rounds, int):
            which = f"{'all' if rounds >= many else rounds} of the {integer(many)} marginals"
        return (
            f"Every step has a run of its own, which measures {which}. A table is drawn from models fitted to these "
            "measurements, and no public number tells how wrong a model is."
        )
    if accuracy is None:
        return f"The manifest does not say which marginals were measured.{per_step}"
    if always == many:
        return "All marginals asked for were measured at every step."
    if always == 0 and isinstance(rounds, int) and rounds >= many:
        return (
            "All marginals asked for are measured at every step, of what came since the stream began. No public number "
            "tells how wrong the table is that it began with."
        )
    if always == 0 and run.published is not None:
        return (
            f"No marginal was measured of the whole table at every step.{per_step} What was measured, and when, is "
            "published beside the tables (dpstream measured); what was not measured is what the model expects."
        )
    if always == 0:
        return (
            f"No marginal is known to have been measured at every step.{per_step} How often each one was is not "
            "published; what was not measured is what the model expects."
        )
    return (
        f"{integer(always)} of the {integer(many)} marginals were measured at every step.{per_step} How often each of "
        "the others was is not published; what was not measured is what the model expects."
    )


def _runs_words(box: dict[str, Any], many: int) -> str:
    """What a black box that runs again and again measures."""
    name, rounds = box.get("name"), box.get("k")
    what = "What a run measures is the black box's own."
    if name == "smalldb":
        what = "A run measures nothing: it chooses one of all small databases at random, the better the likelier."
    elif name == "mwem":
        what = f"A run measures {box.get('rounds')} cells of marginals, which it selects."
    elif isinstance(rounds, int):
        which = f"all {integer(many)}" if rounds >= many else f"{rounds} of the {integer(many)}"
        what = f"A run measures {which} marginals."
    return (
        f"Nothing is measured at every step: the black box runs on all records so far, at planned sizes of the table, "
        f"and its last table is repeated in between. {what} No public number tells how wrong a count is."
    )


def _thin_marginals(run: ReportedRun, least: int | None) -> Html:
    """The marginals whose rows are spread over the smallest counts."""
    assert run.codes is not None
    domain = run.schema.domain
    rows = max(1, len(run.codes))
    always = frozenset[frozenset[str]]() if run.accuracy is None else run.accuracy.marginals
    found = []
    for clique, counts in zip(
        run.workload.cliques, count_marginals(run.codes, domain, run.workload.cliques, "numpy"), strict=True
    ):
        small = counts < (least or 0)
        found.append((float(counts[small].sum()) / rows, domain.cells(clique), clique))
    found.sort(key=lambda entry: (-entry[0], -entry[1]))
    lines = []
    for share, cells, clique in found[:_WORST]:
        names = frozenset(domain.names[i] for i in clique)
        row = [_marginal_name(run, clique), integer(cells), significant(rows / cells)]
        if least is not None:
            row.append(percent(share))
        if always:
            row.append("every step" if names in always else "not at every step")
        lines.append(row)
    headings = ["marginal", "cells", "rows per cell"]
    headings += [] if least is None else [f"rows in cells under {integer(least)}"]
    headings += ["measured"] if always else []
    return table(
        headings,
        lines,
        caption=f"The thinnest of {integer(len(run.workload))} marginals at step {run.last_table}",
    )


def _marginal_name(run: ReportedRun, clique: Clique) -> str:
    return " × ".join(run.schema.names[i] for i in clique)
