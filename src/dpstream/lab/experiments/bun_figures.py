"""The paper's figures: answers against the truth, and errors against the bound."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.lab.experiments.bun_tables import method_of
from dpstream.lab.experiments.panel_runs import BY_MONTH, PAPER_WINDOW, QUESTIONS, WIDTHS
from dpstream.lab.experiments.private_output import PrivateFolder
from dpstream.stream.release.pictures import INK, PALETTE, QUIET, WARNING, dress, figure
from dpstream.tools.evaluate.private_folder import LABEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FOLDER = "figures"


def draw_bun_figures(runs: Sequence[Mapping[str, Any]], folder: PrivateFolder) -> list[str]:
    """Write PNGs into ``figures/``; returns their names.

    For each window run the answers (paper: Figures 1, 5 to 7), for each panel the cumulative ones (Figures 2 and
    8), and for each window run at the paper's rho the errors over time (Figures 3 and 4).
    """
    names = []
    for run in runs:
        facts = run["settings"]
        if facts["kind"] != "window":
            continue
        place = f"{facts['panel']}-rho-{facts['rho'].replace('/', '-over-')}-{facts['relation']}"
        if facts["panel"] != "all-ones":
            names.append(_write(folder, f"{place}-answers", _answers(run)))
        if facts["panel"] == "all-ones" or facts["rho"] == "0.005":
            names.append(_write(folder, f"{place}-errors", _errors(run)))
    for panel in dict.fromkeys(run["settings"]["panel"] for run in runs):
        own = [r for r in runs if r["settings"]["panel"] == panel and r["settings"]["kind"] == "cumulative"]
        if own:
            names.append(_write(folder, f"{panel}-cumulative", _cumulative(own)))
    return names


def _write(folder: PrivateFolder, name: str, content: bytes) -> str:
    folder.write(f"{_FOLDER}/{name}.png", content)
    return f"{_FOLDER}/{name}.png"


def _title(facts: Mapping[str, Any]) -> str:
    return (
        f"{facts['panel']}: {facts['people']:,} people, {facts['periods']} periods; rho {facts['rho']}, "
        f"{facts['relation']}; {facts['repetitions']:,} repetitions"
    )


def _note(facts: Mapping[str, Any]) -> str:
    return LABEL if facts["real"] else "invented panel"


def _answers(run: Mapping[str, Any]) -> bytes:
    """Raw answers on the left, debiased ones on the right: densities, with the truth as a cross."""
    points, facts = run["points"], run["settings"]
    quarters = points["quarters"]
    with figure(8.4, 8.6) as made:
        grid = made.subplots(len(QUESTIONS), 2, sharex=True, sharey="row", squeeze=False)
        for row, question in enumerate(QUESTIONS):
            truth = np.array(points["truth"])[:, row]
            for column, kind in enumerate(("raw", "value")):
                axes = grid[row][column]
                values = np.array(points[kind])[:, :, row]
                _densities(axes, values, quarters, truth, width=2.0)
                dress(
                    axes,
                    x=f"last period of the {PAPER_WINDOW}" if row == len(QUESTIONS) - 1 else "",
                    y=f"{question}\n(share)" if column == 0 else "",
                    title=("raw: padding included", "debiased")[column] if row == 0 else "",
                )
                axes.set_xticks(quarters)
        made.suptitle(_title(facts), fontsize=10.5, color=INK, x=0.01, ha="left")
        _foot(made, f"{_note(facts)}; crosses: the truth")
        return _png(made)


def _densities(
    axes: Axes, values: NDArray[np.float64], places: Sequence[int], truth: Any, width: float
) -> None:
    """A density for each place; where all repetitions agree, a line."""
    spread = np.flatnonzero(np.ptp(values, axis=0) > 0).tolist()
    if spread:
        drawn: Any = axes.violinplot(
            [values[:, i] for i in spread],
            positions=[places[i] for i in spread],
            widths=width,
            showextrema=False,
        )
        for body in drawn["bodies"]:
            body.set_facecolor(PALETTE[0])
            body.set_alpha(0.45)
            body.set_linewidth(0)
    axes.plot(places, values.mean(axis=0), linestyle="none", marker="_", markersize=12, color=PALETTE[0])
    axes.plot(places, truth, linestyle="none", marker="x", markersize=6, color=INK, zorder=5)


def _cumulative(runs: Sequence[Mapping[str, Any]]) -> bytes:
    """At least three ones by each period: one panel for each run, on one scale."""
    with figure(4.2 * len(runs), 4.0) as made:
        grid = made.subplots(1, len(runs), sharey=True, squeeze=False)[0]
        for axes, run in zip(grid, runs, strict=True):
            points, facts = run["points"], run["settings"]
            periods = points["periods"]
            _densities(axes, np.array(points["value"]), periods, points["truth"], width=0.85)
            first = axes is grid[0]
            dress(
                axes,
                x="period",
                y=f"at least {BY_MONTH} so far (share)" if first else "",
                title=method_of(facts),
            )
            axes.set_xticks(periods)
            axes.text(
                0.03, 0.95, f"rho {facts['rho']}, {facts['relation']}",
                transform=axes.transAxes, fontsize=9, color=QUIET, va="top",
            )  # fmt: skip
        facts = runs[0]["settings"]
        made.suptitle(
            f"{facts['panel']}: {facts['people']:,} people, {facts['periods']} periods; "
            f"{facts['repetitions']:,} repetitions",
            fontsize=10.5, color=INK, x=0.01, ha="left",
        )  # fmt: skip
        _foot(made, f"{_note(facts)}; crosses: the truth")
        return _png(made)


def _errors(run: Mapping[str, Any]) -> bytes:
    """The largest error of a pattern at each period: median, 2.5 and 97.5 %, and the bound as a dashed line."""
    facts = run["settings"]
    widths = [width for width in WIDTHS if width <= facts["periods"]]
    with figure(8.4, 2.6 * len(widths)) as made:
        grid = made.subplots(len(widths), 2, sharex=True, squeeze=False)
        for row, width in enumerate(widths):
            for column, kind in enumerate(("debiased", "raw")):
                axes = grid[row][column]
                _lines(axes, np.array(run["points"]["worst"][str(width)][kind]), width)
                _bound(axes, run, width, kind)
                dress(
                    axes,
                    x="period" if row == len(widths) - 1 else "",
                    y=f"questions of width {width}\n(largest error, share)" if column == 0 else "",
                    title=kind if row == 0 else "",
                )
                axes.set_ylim(bottom=0)
                axes.set_xticks(range(PAPER_WINDOW, facts["periods"] + 1))
        handles, labels = grid[0][0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower right", ncols=3, frameon=False, fontsize=9)
        made.suptitle(
            f"{_title(facts)}; window {PAPER_WINDOW}",
            fontsize=10.5, color=INK, x=0.01, ha="left",
        )  # fmt: skip
        _foot(made, _note(facts))
        return _png(made)


def _lines(axes: Axes, worst: NDArray[np.float64], width: int) -> None:
    # The first synthetic people come at period k.
    periods = np.arange(worst.shape[1]) + max(width, PAPER_WINDOW)
    low, middle, high = np.quantile(worst, [0.025, 0.5, 0.975], axis=0)
    # A line of one period is a dot.
    dot = "o" if len(periods) == 1 else ""
    axes.plot(periods, middle, color=PALETTE[0], linewidth=1.8, marker=dot, label="median")
    for one, label in ((low, "2.5 and 97.5 %"), (high, None)):
        axes.plot(periods, one, color=PALETTE[0], linewidth=1.2, linestyle=":", marker=dot, label=label)


def _bound(axes: Axes, run: Mapping[str, Any], width: int, kind: str) -> None:
    """The theorem's bound; a narrower question adds up bins. A wider one has none: the window's own stands there."""
    facts, final = run["settings"], run["final"]
    if width > PAPER_WINDOW:
        note = f"wider than the window: no bound (dashed: of width {PAPER_WINDOW})"
        axes.set_title(note, loc="left", fontsize=9, color=WARNING)
    people, bins = facts["people"], 2 ** max(0, PAPER_WINDOW - width)
    bound = bins * final["bound"] / people
    if kind == "raw":
        # A share of n* people, n <= n* <= n + 2^k (padding + bound): the paper's Corollary 3.1, for a share of 1.
        bound += (bins * final["padding"] + 2**PAPER_WINDOW * (final["padding"] + final["bound"])) / people
    axes.axhline(bound, color=WARNING, linewidth=1.2, linestyle="--", label="bound")


def _foot(made: Any, text: str) -> None:
    made.supxlabel(text, fontsize=8.5, color=QUIET, x=0.01, ha="left")


def _png(made: Any) -> bytes:
    out = io.BytesIO()
    made.savefig(out, format="png", dpi=100)
    return out.getvalue()
