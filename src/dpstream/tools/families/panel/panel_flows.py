"""Who moves between states from one period to the next: pictures of a panel."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpstream.core.errors import InputError, StoreDamagedError
from dpstream.core.paths import parse_json
from dpstream.io.sinks.release_reader import measured_steps
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.evaluate.run_folder import Folder, Told
from dpstream.tools.families.panel.panel_staying import staying
from dpstream.tools.report.charts import ChartLine, Charts, Unit
from dpstream.tools.report.markup import Html, element, integer, interval_table

#: Names of the reported columns with the labels of their codes.
Columns = Sequence[tuple[str, tuple[str, ...]]]

#: States that can be told apart in a picture of flows, and flows that are listed.
_MOST_STATES, _MOST_FLOWS = 6, 8
_HIGH, _WIDE = 260, 400
#: A ribbon of nobody is still to be seen.
_THIN = 1.0


@dataclass(frozen=True)
class QuestionWords:
    """How reports and periods are called in the words of the table.

    Attributes:
        states: of a report, by its code.
        yes: what a report of 1 says, where a report is one of two.
        period: ``months`` where the periods' names are, else ``periods``.
    """

    states: tuple[str, ...]
    yes: str
    period: str

    @classmethod
    def of(cls, run: Told, columns: Columns) -> QuestionWords:
        """From the columns and the names of periods."""
        names = run.manifest["mechanism"]["options"].get("period_names") or []
        monthly = bool(names) and all(re.fullmatch(r"\d{4}-\d{2}", str(name)) for name in names)
        period = "months" if monthly else "periods"
        if len(columns) != 1:
            return cls((), "1", period)
        ((name, labels),) = columns
        if labels == ("false", "true"):
            return cls((f"not {name}", name), name, period)
        return cls(labels, f"{name} = {labels[1]}" if len(labels) == 2 else "1", period)

    def of_question(self, question: str) -> str:
        """A manifest's words in the table's.

        >>> QuestionWords((), "poor", "months").of_question("1 in at least 2 of the last 3 periods")
        'poor in at least 2 of the last 3 months'
        >>> QuestionWords((), "poor", "months").of_question("at least 2 so far")
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
        told = parse_json(path.read_bytes())["dpstream"]
        if told["schema"] != folder.manifest["schema"]:
            raise StoreDamagedError("the codebook belongs to other releases", where=str(path))
        fields = [one for one in told["panel"]["fields"] if "dpstream" in one]
        return [
            (str(one["name"]), tuple(str(code["label"]) for code in one["dpstream"]["codes"]))
            for one in fields
        ]
    except (OSError, InputError, KeyError, TypeError):
        raise StoreDamagedError("the codebook cannot be read", where=str(path)) from None


def flows_section(
    run: Told, folder: Folder, columns: Columns, words: QuestionWords, charts: Charts
) -> Html | None:
    """Flows between the last two periods, the flows over time, and how long people stay; None where none is known."""
    if not 2 <= len(words.states) <= _MOST_STATES or not run.shown[-1].rows:
        return None
    moves = _moves(run, folder, len(words.states))
    stay = staying(run, folder, columns, words.yes, words.period) if len(words.states) == 2 else None
    if not moves and stay is None:
        return None
    parts: list[Html | None] = []
    if moves:
        last = max(moves)
        before, now = charts.dates.name(last - 1), charts.dates.name(last)
        flows, error = moves[last]
        parts = [
            element(
                "p",
                f"People from {before} to {now}, as they were measured.",
            ),
            _picture(flows, words.states, before, now),
            _list(flows, error, words.states),
            _over_time(moves, words, charts),
        ]
    return element("section", element("h2", "Who moves, and who stays"), *parts, stay, id="flows")


def _moves(run: Told, folder: Folder, states: int) -> dict[int, tuple[Floats, float]]:
    """By period: people by their state one period before and now, and the standard error of one such number."""
    found: dict[int, tuple[Floats, float]] = {}
    shown = {facts.step for facts in run.shown}
    for _, counts in measured_steps(folder.releases, run.shown[-1].step):
        for one in counts:
            width = one.query.get("periods", 0)
            if one.query["kind"] != "patterns" or width < 2 or len(one.values) != states**width:
                continue
            if one.last in shown:
                cells = one.values.reshape(-1, states, states)
                found[one.last] = cells.sum(axis=0).astype(np.float64), math.sqrt(len(cells) * one.variance)
    return found


def _picture(flows: Floats, states: Sequence[str], before: str, now: str) -> Html:
    """States of the period before on the left, of now on the right; ribbons as wide as people are many."""
    people = np.maximum(flows, 0.0)
    total = float(people.sum()) or 1.0
    gap = 0.06
    scale = (1 - gap * (len(states) - 1)) * _HIGH / total
    left, right = people.sum(axis=1) * scale, people.sum(axis=0) * scale
    tops = [np.concatenate([[0], np.cumsum(side + gap * _HIGH)[:-1]]) for side in (left, right)]
    places, ribbons = [tops[0].copy(), tops[1].copy()], []
    for i in range(len(states)):
        for j in range(len(states)):
            size = max(_THIN if flows[i, j] > 0 else 0.0, float(people[i, j]) * scale)
            a, b = places[0][i], places[1][j]
            places[0][i] += size
            places[1][j] += size
            middle = _WIDE / 2
            d = (
                f"M0 {a:.1f}C{middle} {a:.1f} {middle} {b:.1f} {_WIDE} {b:.1f}V{b + size:.1f}"
                f"C{middle} {b + size:.1f} {middle} {a + size:.1f} 0 {a + size:.1f}Z"
            )
            title = element("title", f"{states[i]} to {states[j]}: {integer(people[i, j])}")
            ribbons.append(element("path", title, class_=f"flow-{i}", d=d))
    drawing = element(
        "svg", ribbons, viewBox=f"0 0 {_WIDE} {_HIGH}", preserveAspectRatio="none", aria_hidden="true"
    )
    sides = [
        [
            element(
                "span",
                element("bdi", name),
                " ",
                element("b", integer(size / scale)),
                style=f"top:{100 * (top + size / 2) / _HIGH:.1f}%",
            )
            for name, top, size in zip(states, tops[k], side, strict=True)
        ]
        for k, side in enumerate((left, right))
    ]
    return element(
        "div",
        element("div", sides[0], class_="from"),
        element("div", drawing),
        element("div", sides[1], class_="to"),
        class_="flows",
        role="img",
        aria_label=f"Flows between states from {before} to {now}; the numbers stand in the table below.",
    )


def _list(flows: Floats, error: float, states: Sequence[str]) -> Html:
    order = np.argsort(-flows, axis=None)[:_MOST_FLOWS]
    rows = []
    for cell in order:
        i, j = divmod(int(cell), len(states))
        value = float(flows[i, j])
        name = f"stayed {states[i]}" if i == j else f"{states[i]} → {states[j]}"
        whole = f"{value:,.0f}".replace("-", "\N{MINUS SIGN}")
        rows.append((name, f"{whole} ± {integer(2 * error)}", value, 2 * error))
    return interval_table(rows, caption="People who stayed and who moved, with two standard errors")


def _over_time(moves: dict[int, tuple[Floats, float]], words: QuestionWords, charts: Charts) -> Html | None:
    if len(moves) < 2 or len(words.states) != 2:
        return None
    steps = sorted(moves)
    figures = []
    for title, (i, j) in ((f"became {words.states[1]}", (0, 1)), (f"no longer {words.states[1]}", (1, 0))):
        values = np.array([moves[step][0][i, j] for step in steps])
        errors = np.array([2 * moves[step][1] for step in steps])
        line = ChartLine("people", values, style=1 + i, width=errors, named=False)
        figures.append(charts.lines(title, steps, [line], Unit("people a period"), small=True))
    return element("div", figures, class_="grid")
