"""The page of a stream of tables."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import ExpectedErrors
from dpstream.core.schema.domain import Clique
from dpstream.core.schema.numeric import average_ends
from dpstream.core.tables import count_marginals
from dpstream.stream.release.estimates import Estimate
from dpstream.stream.release.folding import Group, fold
from dpstream.stream.release.released_verdicts import average_words
from dpstream.tools.evaluate.metrics import churn, cramers_v
from dpstream.tools.evaluate.run_folder import Folder, StepFacts
from dpstream.tools.report import sections_time
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.charts import ChartLine, Charts, Unit, polyline
from dpstream.tools.report.collect import ReportedRun, collect
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.known_errors import measured_words
from dpstream.tools.report.markup import Html, element, integer, join, percent, significant, table

_BARS = 12
#: Right ends of the axes of bars.
_SCALES = (0.01, 0.02, 0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
_FIND_OUT = "dpstream errors finds them by simulation, at no cost in privacy."
_SQUARE = 10
#: Pairs that get a heat map without being asked for: the most associated ones.
MAX_PAIRS = 12
#: Further changes are not listed.
_CHANGES = 8


def columns_section(run: ReportedRun, dates: Calendar) -> Html:
    """The section on single columns: the shares of now, how wrong they may be, and where they come from."""
    title = element("h2", "Column by column")
    if run.codes is None:
        nothing = element("p", "No release has a full table: there is nothing to count.")
        return element("section", title, nothing, id="columns")
    cards = [_card(run, column, dates) for column in range(len(run.schema))]
    said = Counter(footer for _, footer in cards if footer)
    # What is said of most columns is said once.
    common = max(said, key=lambda text: said[text]) if said else ""
    figures = [
        element(
            "figure",
            card,
            element("p", footer, class_="note") if footer and footer != common else None,
            class_="card",
        )
        for card, footer in cards
    ]
    return element(
        "section",
        title,
        element("p", *_introduction(run, dates), f" {common}" if common else ""),
        element("div", figures, class_="columns"),
        id="columns",
    )


def _introduction(run: ReportedRun, dates: Calendar) -> list[str]:
    assert run.last_table is not None
    held = next(facts.holds for facts in run.shown if facts.step == run.last_table)
    text = f"Shares of the {integer(float(run.rows()[-1]))} rows of step {run.last_table}, made from {held}"
    if len(run.tables) > 1:
        text += f"; the line beside each shows it since {dates.name(run.tables[0])}"
    return [f"{text}. ", _error_words(run)]


def _error_words(run: ReportedRun) -> str:
    accuracy = run.accuracy
    known = [run.measured([name]) is not None for name in run.schema.names]
    simulated = run.simulated is not None
    if run.simulated is not None:
        others = f" A bracket marks a 95 % interval by simulation. {run.simulated.words}"
        if accuracy is not None and accuracy.cell is not None:
            others = f" Of the other columns a{others[2:]}"
    elif all(known):
        others = ""
    else:
        others = f" The errors of the other columns are not known. {_FIND_OUT}"
    if any(known):
        others = (
            " Under a share stands what was measured of it: a number of records as of the step that the chart names, "
            "with its exact 95 % interval. One of twenty such intervals misses the truth."
        ) + others
    if accuracy is None:
        bars = "" if simulated else ", so no chart has error bars"
        return f"The manifest does not say how large the noise is{bars}.{others}"
    if accuracy.cell is None:
        if simulated:
            return f"The table comes from a model.{others}"
        if any(known):
            return f"The table comes from a model, and its shares have no error bars.{others}"
        return f"The table comes from a model, and no column was measured by itself.{others}"
    return (
        "Where a column was measured at every step, a bracket marks two standard errors to either side: of the "
        f"noise, and of drawing the rows. What the model adds is not in it.{others}"
    )


def column_error(run: ReportedRun, column: int) -> float | None:
    """Standard error, in rows, of the noise in one value of a column; None where it cannot be given.

    The smallest over the marginals that hold the column and were measured at every step: its values are sums of
    their cells, whose noise is independent.
    """
    accuracy = run.accuracy
    if accuracy is None or accuracy.cell is None:
        return None
    name, domain = run.schema.names[column], run.schema.domain
    cells = [
        domain.cells(domain.clique(names)) // domain.sizes[column]
        for names in accuracy.marginals
        if name in names
    ]
    return accuracy.cell * math.sqrt(min(cells)) if cells else None


def _card(run: ReportedRun, column: int, dates: Calendar) -> tuple[Html, str]:
    """A column's table of bars, and what is to be said of its errors."""
    name = run.schema.names[column]
    counts = run.counts[column][-1]
    groups = run.groups(column, counts, _BARS)
    made = fold(counts.astype(np.float64), groups)
    rows = max(1.0, float(counts.sum()))
    noise = column_error(run, column)
    errors = None
    if noise is not None:
        sizes = np.array([len(group.codes) for group in groups])
        errors = 2.0 * np.sqrt(noise**2 * sizes + made * (1.0 - made / rows)) / rows
    footer, measured = "", run.measured([name])
    if noise is None:
        errors = _by_simulation(run, column, groups, rows)
        footer = "Its errors are not known." if errors is None else "Errors by simulation, 95 %."
    if measured is not None:
        how = "exact" if measured.exact else "by Chebyshev's inequality"
        told = f"Measured: records as of {dates.name(measured.as_of)}, with 95 % intervals ({how})."
        footer = told if errors is None else f"{footer} {told}".lstrip()
    ends = average_ends(run.schema.columns[column], counts)
    average = None
    if ends is not None:
        average = element(
            "p", f"Average: {average_words(ends)}, by where numbers lie in their bins.", class_="note"
        )
    spans = [] if measured is None else _measured_spans(measured, groups)
    # What was measured long ago is no error bar of a share of now.
    fresh = measured is not None and measured.as_of in (run.last_table, run.measured_up_to)
    past = fold(run.shares(column), groups) if len(run.tables) > 1 else None
    bars = _bars(name, groups, made / rows, errors, spans, rows if fresh else None, past)
    return join([bars, average]), footer


def _by_simulation(
    run: ReportedRun, column: int, groups: Sequence[Group], rows: float
) -> NDArray[np.float64] | None:
    """The half widths of 95 % intervals about some groups of a column's values, as shares of the rows."""
    if run.simulated is None:
        return None
    widths = []
    for group in groups:
        cells = np.zeros(run.schema.domain.sizes[column], dtype=bool)
        cells[list(group.codes)] = True
        found = run.simulated.of_question([run.schema.names[column]], cells)
        if found is None:
            return None
        widths.append(found.half_width() / rows)
    return np.array(widths)


def _measured_spans(measured: Estimate, groups: Sequence[Group]) -> list[tuple[float, float]]:
    """What was measured of some groups of a column's values, and the half width of its interval; in records."""
    spans = []
    for group in groups:
        cells = np.zeros(measured.values.shape, dtype=bool)
        cells[list(group.codes)] = True
        spans.append((float(measured.values[cells].sum()), float(measured.law(cells).half_width(0.95))))
    return spans


def _bars(
    name: str,
    groups: Sequence[Group],
    shares: NDArray[np.float64],
    errors: NDArray[np.float64] | None,
    measured: Sequence[tuple[float, float]],
    rows: float | None,
    past: NDArray[np.float64] | None,
) -> Html:
    """A table whose cells are bars: it reads as numbers where it is not seen.

    Args:
        measured: numbers of records with half the width of their intervals.
        rows: of the table; None where what was measured is too old to be drawn beside its shares.
        past: shares over time, shape (tables, groups).
    """
    reach = float(np.nanmax(shares + (0.0 if errors is None else errors)))
    top = next((one for one in _SCALES if reach <= one), 1.0)
    lines = []
    for i, group in enumerate(groups):
        bars = [element("i", class_="bar synthetic", style=_width(shares[i], top))]
        numbers: list[Html | str] = [percent(float(shares[i]))]
        if errors is not None:
            bars.append(_bracket(shares[i] - errors[i], shares[i] + errors[i], top))
            numbers.append(element("small", f"± {percent(float(errors[i]))}"))
        if measured:
            value, width = measured[i]
            if errors is None and rows is not None:
                bars.append(_bracket((value - width) / rows, (value + width) / rows, top))
            numbers.append(
                element(
                    "small",
                    element("span", "measured ", class_="hidden"),
                    f"{integer(value)} ± {integer(width)}",
                )
            )
        lines.append(
            element(
                "tr",
                element("th", element("bdi", group.label), scope="row", title=group.label),
                element("td", bars, class_="track", aria_hidden="true"),
                element("td", numbers, class_="n"),
                None
                if past is None
                else element("td", _past(past[:, i], past), class_="past", aria_hidden="true"),
            )
        )
    return element(
        "table",
        element("caption", element("bdi", name)),
        element("tbody", lines),
        class_="bars",
    )


def _bracket(low: float, high: float, top: float) -> Html:
    low, high = min(top, max(0.0, low)), min(top, max(0.0, high))
    return element("i", class_="bracket", style=f"left:{_at(low, top)};right:{_at(top - high, top)}")


def _past(values: NDArray[np.float64], column: NDArray[np.float64]) -> Html:
    """One value's share over time, on the scale of its column; the first tables are small, and may leave it."""
    top = (
        float(np.nanmax(column[len(column) // 4 :])) if np.isfinite(column[len(column) // 4 :]).any() else 1.0
    )
    x = np.linspace(0, 1, len(values))
    path = element("path", d=polyline(x, np.clip(1 - values / (1.05 * top or 1.0), -0.1, 1.0), 100, 40))
    return element("svg", path, viewBox="0 0 100 40", preserveAspectRatio="none")


def _at(value: float, top: float) -> str:
    return f"{100 * max(0.0, value) / top:.1f}%"


def _width(share: float, top: float) -> str:
    return f"width:{_at(min(share, top), top)}"


def chosen_pairs(run: ReportedRun, asked: Sequence[tuple[str, str]]) -> tuple[Clique, ...]:
    """Pairs that get a heat map: those asked for, then the most associated ones in the last release while they
    fit (public: computed from the released table).

    Errors:
        SchemaError: an unknown column.
    """
    domain = run.schema.domain
    first = [domain.clique(pair) for pair in asked]
    if run.codes is None or len(domain) < 2:
        return ()
    every = list(itertools.combinations(range(len(domain)), 2))
    if len(every) > 5_000:  # a first choice by what was asked of the mechanism
        every = [clique for clique in run.workload.cliques if len(clique) == 2][:5_000]
    every = [pair for pair in every if domain.cells(pair) <= 10**6]
    counts = count_marginals(run.codes, domain, every)
    strength = {
        pair: np.nan_to_num(cramers_v(table.reshape(domain.shape(pair))))
        for pair, table in zip(every, counts, strict=True)
    }
    best = sorted(every, key=lambda pair: -strength[pair])[:MAX_PAIRS]
    return tuple(dict.fromkeys((*first, *best)))


def changes_section(run: ReportedRun, dates: Calendar) -> Html | None:
    """The section on what changed since last time: the shares that moved most between the last two tables."""
    if run.codes is None or run.before is None or not len(run.codes) or not len(run.before[1]):
        return None
    step, before = run.before
    assert run.last_table is not None
    moved = []
    for column, size in enumerate(run.schema.domain.sizes):
        now, then = (np.bincount(codes[:, column], minlength=size) for codes in (run.codes, before))
        groups = run.groups(column, now, _BARS)
        shares = [fold(counts.astype(np.float64), groups) / max(1, counts.sum()) for counts in (now, then)]
        # Of two values the other one mirrors it.
        for i, group in list(enumerate(groups))[1 if size == 2 else 0 :]:
            moved.append((f"{run.schema.names[column]} = {group.label}", shares[1][i], shares[0][i]))
    moved = [
        (name, now, then)
        for name, now, then in sorted(moved, key=lambda change: -abs(change[2] - change[1]))
        if percent(now) != percent(then) and abs(now - then) >= 0.0005
    ][:_CHANGES]
    cliques = run.workload.cliques
    old, new = (count_marginals(codes, run.schema.domain, cliques) for codes in (before, run.codes))
    more = len(run.codes) - len(before)
    text = (
        f"{dates.name(run.last_table)} against {dates.name(step)}: {integer(abs(more))} rows "
        f"{'more' if more >= 0 else 'fewer'}. In the mean over the {integer(len(cliques))} marginals asked for, "
        f"{percent(churn(old, new))} of the table are different; new records and noise alike are in that."
    )
    widest = max((abs(b - a) for _, a, b in moved), default=1.0)
    rows = [
        element(
            "tr",
            element("th", element("bdi", name), scope="row"),
            element("td", f"{percent(then)} → {percent(now)}", class_="n"),
            element("td", _step(now - then, widest), class_="move", aria_hidden="true"),
            element("td", _points(now - then), class_="n"),
        )
        for name, then, now in moved
    ]
    table_of = element("table", element("caption", "What moved most"), element("tbody", rows), class_="moves")
    return element(
        "section",
        element("h2", "What changed since last time"),
        element("p", text),
        element("div", table_of, class_="scroll") if rows else None,
        id="changed",
    )


def _step(change: float, widest: float) -> Html:
    size = f"width:{50 * abs(change) / widest:.1f}%"
    return element("i", class_="more" if change > 0 else "less", style=size)


def _points(change: float) -> str:
    """A difference of shares.

    >>> _points(0.0123), _points(-0.1)
    ('+1.2 points', '−10.0 points')
    """
    return f"{'+' if change >= 0 else chr(0x2212)}{100 * abs(change):.1f} points"


def heat_json(run: ReportedRun, chosen: Sequence[Clique]) -> dict[str, Any]:
    """Folded pairs as shares in units of 0.01 %, for the page's script."""
    if run.codes is None:
        return {}
    used = sorted({column for pair in chosen for column in pair})
    groups = {column: run.groups(column, run.counts[column][-1], _SQUARE) for column in used}
    made = count_marginals(run.codes, run.schema.domain, list(chosen)) if chosen else []
    pairs = []
    for pair, counts in zip(chosen, made, strict=True):
        pairs.append({"c": list(pair), "v": _folded(counts, pair, run, groups), "e": _pair_error(run, pair)})
    return {
        "columns": {
            str(c): {"name": run.schema.names[c], "groups": [g.label for g in groups[c]]} for c in used
        },
        "pairs": pairs,
    }


def _folded(
    counts: NDArray[np.int64], pair: Clique, run: ReportedRun, groups: dict[int, tuple[Group, ...]]
) -> list[list[int]]:
    shaped = counts.reshape(run.schema.domain.shape(pair)).astype(np.float64)
    folded = fold(shaped, groups[pair[0]], groups[pair[1]])
    whole = max(1.0, float(counts.sum()))
    shares: list[list[int]] = np.round(1e4 * folded / whole).astype(int).tolist()
    return shares


def _pair_error(run: ReportedRun, pair: Clique) -> str:
    """What is known of the errors of a pair's cells."""
    names = [run.schema.names[column] for column in pair]
    errors = None if run.simulated is None else run.simulated.of_cells(names)
    simulated = ""
    if errors is not None:
        mean = significant(float(errors.mean()))
        simulated = f" By simulation the standard error of a cell is {mean} records in the mean."
    if (measured := run.measured(names)) is not None:
        return (
            f"The pair was measured up to step {measured.as_of}: the standard error of a cell is "
            f"{significant(measured.standard_error)} records. dpstream measured shows the numbers; what the model adds "
            f"is not in it.{simulated}"
        )
    accuracy = run.accuracy
    if accuracy is not None and accuracy.cell is not None and frozenset(names) in accuracy.marginals:
        rows = max(1, len(run.codes) if run.codes is not None else 1)
        return (
            f"Standard error of the noise in one cell: {significant(accuracy.cell)} records "
            f"({percent(accuracy.cell / rows)} of the rows); what the model adds is not in it."
        )
    if simulated:
        return f"The pair was not measured by itself.{simulated}"
    if run.simulated is not None:
        return "The pair was not measured by itself, and is none of those whose errors were simulated."
    return f"The pair was not measured by itself, and its errors are not known. {_FIND_OUT}"


def pairs_section(run: ReportedRun, chosen: Sequence[Clique]) -> Html:
    """Section 3, second half: the frame of the heat maps."""
    total = math.comb(len(run.schema), 2)
    if not chosen:
        return element("section", id="pairs", hidden=True)
    left = (
        f"{integer(len(chosen))} of {integer(total)} pairs are on this page, the most associated ones in the release."
        if len(chosen) < total
        else None
    )
    options = [
        element("option", " × ".join(run.schema.names[column] for column in pair), value=i)
        for i, pair in enumerate(chosen)
    ]
    return element(
        "section",
        element("h2", "Two columns together"),
        element(
            "p",
            "Share of all rows in each combination of two columns' values, in percent; the stronger the colour, "
            "the more. The list begins with the pairs that are associated most.",
        ),
        element(
            "div",
            element("label", "Pair ", element("select", options, id="heat-pair"), class_="choose"),
            class_="controls",
        ),
        element("div", class_="scroll", id="heat", tabindex=0, role="region", aria_label="The chosen pair"),
        element("p", class_="note", id="heat-note", aria_live="polite"),
        element("p", left, class_="note") if left else None,
        id="pairs",
    )


# How wrong the releases can be over time, and where they are weakest.


_WORST = 12
_TOTAL, _IN_TURN = "the number of records", "a count measured in turn (predicted)"


def errors_section(run: ReportedRun, charts: Charts) -> Html:
    """The section "How wrong it can be"."""
    return element(
        "section",
        element("h2", "How wrong it can be"),
        _noise(run, charts),
        _simulated_cells(run),
        id="errors",
    )


def _predicted(run: ReportedRun, steps: Sequence[int]) -> tuple[ExpectedErrors, ...] | None:
    return None if run.config is None else run.config.plan().expected_errors(steps)


def _simulated_cells(run: ReportedRun) -> Html | None:
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
    # Where the number of records is expected in between, single steps without neighbours would be no lines.
    counted = tuple(f for f in run.shown if f.accuracy is not None and f.accuracy.total is not None)
    shown = counted or run.shown
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
    if len(shown) < len(run.shown):
        note += (
            " In between the releases that are drawn the number of records is expected, not measured, and has no "
            "standard error."
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


def weak_section(run: ReportedRun, dates: Calendar) -> Html:
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
    if accuracy is None:
        return "The manifest does not say which marginals were measured."
    always = len(accuracy.marginals)
    if always == many:
        return "All marginals asked for were measured at every step."
    which = f"{integer(always)} of the {integer(many)} marginals were" if always else "No marginal was"
    words = f"{which} measured of the whole table at every step."
    if run.published is None:
        words += " What else was measured is not published"
    else:
        words += " What was measured, and when, is published beside the tables (dpstream measured)"
    words += "; what was not measured is what the model expects."
    if run.measured_up_to < run.shown[-1].step:
        words += f" A change after step {run.measured_up_to} is not seen before it is measured."
    return words


def _thin_marginals(run: ReportedRun, least: int | None) -> Html:
    """The marginals whose rows are spread over the smallest counts."""
    assert run.codes is not None
    domain = run.schema.domain
    rows = max(1, len(run.codes))
    always = frozenset[frozenset[str]]() if run.accuracy is None else run.accuracy.marginals
    found = []
    for clique, counts in zip(
        run.workload.cliques, count_marginals(run.codes, domain, run.workload.cliques), strict=True
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


def _draw(folder: Folder, pairs: Pairs) -> Page:
    run = collect(folder)
    chosen = chosen_pairs(run, pairs)
    charts = charts_of(run)
    dates = charts.dates
    news = changes_section(run, dates)
    sections = [
        ("releases", "Over time", sections_time.releases(run, charts)),
        ("columns", "Columns", columns_section(run, dates)),
        ("pairs", "Pairs" if chosen else "", pairs_section(run, chosen)),
        ("changed", "What changed" if news else "", news),
        ("weak", "Weak spots", weak_section(run, dates)),
        ("errors", "Errors", errors_section(run, charts)),
    ]
    what = f"{integer(run.shown[-1].rows)} invented records with {integer(len(run.schema))} columns"
    heat = heat_json(run, chosen)
    return Page(
        run,
        sections,
        what,
        charts,
        tables=len(run.tables),
        heat=heat,
        measured=partial(measured_words, run, dates),
        columns=len(run.schema),
    )


TABLES_PAGE: Final = FamilyPage(_draw, pairs=True)
