"""The page of a stream of tables."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, InputError, StoreDamagedError
from dpstream.core.schema import Clique, Schema
from dpstream.core.tables import Workload, count_marginals
from dpstream.io.sinks import released_schema
from dpstream.io.sinks.release_reader import released_alike
from dpstream.io.sinks.simulated_errors import SimulatedErrors, simulated_errors
from dpstream.stream.release.estimates import Estimate, Published
from dpstream.stream.release.folding import Group, fold, groups_of
from dpstream.stream.release.released_verdicts import average_ends, average_words
from dpstream.tools.evaluate.metrics import cramers_v
from dpstream.tools.evaluate.run_folder import Accuracy, Folder, PublishedRun, StepFacts, released_codes
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import Html, block, integer, percent, significant, table
from dpstream.tools.report.plain_page import rows_over_time, states

#: Tables that are read of a long stream, if its reader does not ask for more.
MAX_TABLES = 40


@dataclass(frozen=True, eq=False)
class ReportedRun(PublishedRun):
    """Everything public that a page shows.

    Attributes:
        releases: the folder.
        schema: the columns; from the configuration, or rebuilt from the codebook.
        last_table: the step of the last full table; None if there is none.
        codes: its records.
        workload: the marginals that the mechanism was asked to keep.
    """

    releases: Path
    schema: Schema
    last_table: int | None
    codes: NDArray[np.int32] | None
    workload: Workload

    @cached_property
    def counts(self) -> tuple[NDArray[np.int64], ...]:
        """By column, the last table's rows by code."""
        assert self.codes is not None
        return tuple(
            np.bincount(self.codes[:, column], minlength=size)
            for column, size in enumerate(self.schema.domain.sizes)
        )

    @cached_property
    def published(self) -> Published | None:
        """The noisy counts of the steps up to the last table; None where none say how wrong its counts are."""
        if self.last_table is None or "base" in self.manifest:
            return None
        found = Published.read(self.releases, self.schema, self.last_table)
        return found if found.counts else None

    def measured(self, names: Sequence[str]) -> Estimate | None:
        """What was measured of a marginal, added up over all steps; None where it was not measured without a gap."""
        found = None if self.published is None else self.published.estimate(names)
        return found if isinstance(found, Estimate) else None

    @cached_property
    def simulated(self) -> SimulatedErrors | None:
        """What was published about the errors of the last table; None where they were not simulated."""
        return None if self.last_table is None else simulated_errors(self.releases, self.last_table)

    @property
    def can_be_simulated(self) -> bool:
        """Whether ``dpstream errors`` would say more: not of discovered values, nor twice."""
        return self.simulated is None and not self.schema.open_columns

    @property
    def accuracy(self) -> Accuracy:
        """Of the last table; without one, of the last step."""
        tables = (facts.accuracy for facts in self.shown if facts.step == self.last_table)
        return next(tables, self.shown[-1].accuracy)

    def labels(self, column: int) -> tuple[str, ...]:
        """Labels of a column's codes as the released table can tell them apart."""
        kind = self.schema.columns[column]
        labels = list(kind.labels())
        if released_alike(kind):
            labels[-1] = f"{kind.missing} or {kind.other}"
        return tuple(labels)

    def groups(self, column: int, counts: NDArray[np.int64], most: int) -> tuple[Group, ...]:
        """A column's codes in at most about ``most`` groups; codes that are released as the same null are in one."""
        kind = self.schema.columns[column]
        groups = groups_of(kind, self.labels(column), counts, most)
        if not released_alike(kind):
            return groups
        other, null = groups[-2:]
        return (*groups[:-2], Group(null.label, (*other.codes, *null.codes)))


def collect(folder: Folder) -> ReportedRun:
    """Read the last table of a stream of tables. Reads nothing private.

    Errors:
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    releases, last = folder.releases, folder.manifest
    schema = released_schema(releases, last)
    step = folder.full[-1] if folder.full else None
    codes = None if step is None else released_codes(schema, releases, step)
    facts = folder.facts(folder.full[-1:])
    workload = _workload(schema, last, releases)
    return ReportedRun(last, folder.states, facts, releases, schema, step, codes, workload)


def _workload(schema: Schema, manifest: dict[str, Any], releases: Path) -> Workload:
    """The mechanism's, or all single columns for a mechanism that has none."""
    try:
        options = manifest["mechanism"]["options"]
        # A scheduler or an improver asks its black box for marginals.
        own = {"workload": "all-1-way", **options.get("black_box", {}), **options}
        spec = own["workload"]
        return Workload.parse(schema.domain, spec)
    except (InputError, KeyError, TypeError, AttributeError):
        raise StoreDamagedError(
            "the manifest's workload does not fit the columns", where=str(releases)
        ) from None


_BARS = 12
#: The probability that an interval holds the truth.
_PART = 0.95
#: Right ends of the axes of bars.
_SCALES = (0.01, 0.02, 0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
_SQUARE = 10
#: Pairs that get a heat map without being asked for: the most associated ones.
_MAX_PAIRS = 12


def _columns(run: ReportedRun, dates: Calendar) -> Html | None:
    """The section on single columns: the shares of now, and how wrong they may be."""
    if run.codes is None:
        return None
    cards = [_card(run, column, dates) for column in range(len(run.schema))]
    footers = Counter(card["footer"] for card in cards if card["footer"])
    return block(
        "tables",
        "columns",
        cards=cards,
        rows=float(len(run.codes)),
        step=run.last_table,
        holds=next(facts.holds for facts in run.shown if facts.step == run.last_table),
        errors=_column_errors(run),
        # What is said of most columns is said once.
        common=max(footers, key=lambda text: footers[text]) if footers else "",
    )


def _column_errors(run: ReportedRun) -> Html:
    measured = [run.measured([name]) is not None for name in run.schema.names]
    return block(
        "tables",
        "column_errors",
        cell=run.accuracy.cell is not None,
        simulated=None if run.simulated is None else run.simulated.words,
        some_measured=any(measured),
        all_measured=all(measured),
        can_be_simulated=run.can_be_simulated,
    )


def _card(run: ReportedRun, column: int, dates: Calendar) -> dict[str, Any]:
    """A column's table of bars, which reads as numbers where it is not seen, and what is to be said of its errors."""
    name = run.schema.names[column]
    counts = run.counts[column]
    groups = run.groups(column, counts, _BARS)
    made = fold(counts.astype(np.float64), groups)
    rows = max(1.0, float(counts.sum()))
    shares = made / rows
    domain = dict(zip(run.schema.names, run.schema.domain.sizes, strict=True))
    noise = run.accuracy.column_error(name, domain)
    measured = run.measured([name])
    if noise is None:
        errors = _by_simulation(run, column, groups, rows)
    else:
        sizes = np.array([len(group.codes) for group in groups])
        errors = 2.0 * np.sqrt(noise**2 * sizes + made * (1.0 - shares)) / rows
    spans = [] if measured is None else _measured_spans(measured, groups)
    # Old measurements give no error bar of a present share.
    fresh = measured is not None and measured.as_of in (run.last_table, run.measured_up_to)
    reach = float(np.nanmax(shares + (0.0 if errors is None else errors)))
    top = next((scale for scale in _SCALES if reach <= scale), 1.0)
    lines = []
    for i, (group, share) in enumerate(zip(groups, shares.tolist(), strict=True)):
        ends = None
        if errors is not None:
            ends = (share - errors[i], share + errors[i])
        elif fresh:
            value, width = spans[i]
            ends = ((value - width) / rows, (value + width) / rows)
        lines.append(
            {
                "label": group.label,
                "share": share,
                "error": None if errors is None else float(errors[i]),
                "measured": spans[i] if spans else None,
                "width": _at(min(share, top), top),
                "bracket": None if ends is None else _bracket(*ends, top),
            }
        )
    average = average_ends(run.schema.columns[column], counts)
    when = None if measured is None else {"when": dates.name(measured.as_of), "exact": measured.exact}
    known = {"noise": noise is not None, "simulated": errors is not None, "measured": when}
    return {
        "name": name,
        "lines": lines,
        "average": None if average is None else average_words(run.schema.columns[column], average),
        "footer": " ".join(block("tables", "column_footer", **known).split()),
    }


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


def _bracket(low: float, high: float, top: float) -> tuple[str, str]:
    low, high = min(top, max(0.0, low)), min(top, max(0.0, high))
    return _at(low, top), _at(top - high, top)


def _at(value: float, top: float) -> str:
    return f"{100 * max(0.0, value) / top:.1f}%"


def _chosen_pairs(run: ReportedRun, asked: Sequence[tuple[str, str]]) -> tuple[Clique, ...]:
    """Pairs that get a heat map: those asked for, then the most associated ones in the last release while they
    fit (public: computed from the released table).

    Errors:
        SchemaError: an unknown column. ConfigError: one column twice.
    """
    domain = run.schema.domain
    first = [domain.clique(pair) for pair in asked]
    if any(len(pair) != 2 for pair in first):
        raise ConfigError("a pair repeats or lacks a column", where="pairs", allowed="two different columns")
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
    best = sorted(every, key=lambda pair: -strength[pair])[:_MAX_PAIRS]
    return tuple(dict.fromkeys((*first, *best)))


def _heat(run: ReportedRun, chosen: Sequence[Clique]) -> dict[str, Any]:
    """Folded pairs as shares in units of 0.01 %, for the page's script."""
    if run.codes is None:
        return {}
    used = sorted({column for pair in chosen for column in pair})
    groups = {column: run.groups(column, run.counts[column], _SQUARE) for column in used}
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
    names, accuracy = [run.schema.names[column] for column in pair], run.accuracy
    errors = None if run.simulated is None else run.simulated.of_cells(names)
    said = block(
        "tables",
        "pair_errors",
        measured=run.measured(names),
        cell=accuracy.cell if frozenset(names) in accuracy.marginals else None,
        rows=max(1, len(run.codes) if run.codes is not None else 1),
        simulated=None if errors is None else float(errors.mean()),
        can_be_simulated=run.can_be_simulated,
    )
    return " ".join(said.unescape().split())


def _pairs(run: ReportedRun, chosen: Sequence[Clique]) -> Html | None:
    """The section of the heat maps."""
    if not chosen:
        return None
    names = [[run.schema.names[column] for column in pair] for pair in chosen]
    return block("tables", "pairs", pairs=names, every=math.comb(len(run.schema), 2))


# How wrong the releases can be over time, and where they are weakest.


_WORST = 12
_TOTAL = "the number of records"


def _errors(run: ReportedRun, charts: Charts) -> Html:
    """The section "How wrong it can be": standard errors over steps, as the plan predicts and the manifests say."""
    # Where the number of records is expected in between, single steps without neighbours would be no lines.
    counted = tuple(f for f in run.shown if f.accuracy.total is not None)
    shown = counted or run.shown
    lines, figures, single = _noise_lines(shown), [], list[tuple[str, float]]()
    if len(shown) == 1:
        single = [(line.label, float(line.values[0])) for line in lines]
    elif lines:
        labels = [line.label for line in lines]
        title = "Noise of the number of records" if labels == [_TOTAL] else "Noise of a count"
        steps, unit = [facts.step for facts in shown], Unit("standard error, records")
        figures = [charts.lines(title, steps, lines, unit, note="Standard deviation of the noise.")]
    simulated = None
    if run.simulated is not None:
        simulated = {"words": run.simulated.words, "sizes": run.simulated.facts["sizes"]}
    return block(
        "tables",
        "errors",
        words=run.accuracy.words,
        lines=single or lines,
        figures=figures,
        simulated=simulated,
        step=run.last_table,
    )


def _noise_lines(shown: Sequence[StepFacts]) -> list[ChartLine]:
    every = _known([facts.accuracy.cell for facts in shown])
    lines = [ChartLine("a count measured at every step", every, style=1)]
    totals = _known([facts.accuracy.total for facts in shown])
    # A public number has no noise to be drawn.
    if totals.any():
        lines.append(ChartLine(_TOTAL, totals, style=3))
    return [line for line in lines if np.isfinite(line.values).any()]


def _known(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _weak(run: ReportedRun, dates: Calendar) -> Html | None:
    """The section "Where it is weak"."""
    if run.codes is None:
        return None
    error = run.accuracy.cell
    least = None if error is None else math.ceil(2 * error)
    unknown = error is None and run.simulated is None
    return block(
        "tables",
        "weak",
        error=error,
        least=least,
        simulated=run.simulated is not None,
        measured=measured_words(run, dates) if unknown else None,
        always=len(run.accuracy.marginals),
        many=len(run.workload),
        published=run.published is not None,
        can_be_simulated=run.can_be_simulated,
        lagging=run.measured_up_to if run.measured_up_to < run.shown[-1].step else None,
        table=_thin_marginals(run, least),
    )


def _thin_marginals(run: ReportedRun, least: int | None) -> Html:
    """The marginals whose rows are spread over the smallest counts."""
    assert run.codes is not None
    domain = run.schema.domain
    rows = max(1, len(run.codes))
    always = run.accuracy.marginals
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
        row = [" × ".join(domain.names[i] for i in clique), integer(cells), significant(rows / cells)]
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


def _draw(folder: Folder, pairs: Pairs) -> Page:
    run = collect(folder)
    chosen = _chosen_pairs(run, pairs)
    charts = charts_of(run)
    dates = charts.dates
    # The measured number says more than the rows that were drawn of it.
    is_measured = any(not one.columns and len(one.known) > 1 for one in folder.headlines)
    rows = None if is_measured else rows_over_time(run, charts)
    sections = [
        ("releases", "Releases", block("plain", "releases", states=states(run.states), rows=rows)),
        ("columns", "Columns", _columns(run, dates)),
        ("pairs", "Pairs", _pairs(run, chosen)),
        ("weak", "Weak spots", _weak(run, dates)),
        ("errors", "Errors", _errors(run, charts)),
    ]
    return Page(
        run,
        sections,
        f"{integer(run.shown[-1].rows)} invented records with {integer(len(run.schema))} columns",
        charts,
        tables=int(run.codes is not None),
        heat=_heat(run, chosen),
        measured=partial(measured_words, run, dates),
        columns=len(run.schema),
    )


TABLES_PAGE: Final = FamilyPage(_draw, pairs=True)


def measured_words(run: ReportedRun, dates: Calendar) -> str | None:
    """How far the measured numbers of single columns may be off; None where none has an interval."""
    widths, ends = [], set()
    for name in run.schema.names:
        one = run.measured([name])
        if one is not None and not one.chosen:
            widths.append(float(one.law().half_width(_PART)))
            ends.add(one.as_of)
    if not widths:
        return None
    low, high = integer(min(widths)), integer(max(widths))
    to = low if low == high else f"{low} to {high}"
    when = f" as of {dates.name(ends.pop())}" if len(ends) == 1 else ""
    some = "" if len(widths) == len(run.schema) else f" of {len(widths)} columns"
    return f"measured numbers{some} are right to within {to} records{when}"
