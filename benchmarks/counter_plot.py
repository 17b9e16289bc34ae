"""Draws the error of every counter against the number of ticks: formula, simulation, and the lower bound.

    python benchmarks/counter_plot.py [--out docs/images]

Two pictures (pure, zCDP). Lines are formulas, dots the root mean square error of 400 simulated cells, with a bar of
two standard errors. Counters with a horizon are built for 1,000 ticks. The dotted line is the bound on the root mean
square over all 1,000 ticks (see ``counter_errors.py``).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from bench import drawing, open_frame, save_figure

from dpstream.core.counters import COUNTER_NAMES, CalibratedCounter, counter_by_name
from dpstream.core.errors import BudgetError
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness

LONG = "about 2 minutes"
HORIZON = 1_000
CELLS = 400
DOTS = (1, 3, 10, 30, 100, 250, 500, 1000)
BUDGETS: dict[str, Budget] = {"pure": PureDP.of(1), "zcdp": ZCDP.of("1/2")}
UNBOUNDED = "--"
#: One for each counter, in the order of their names.
COLOURS = (
    "#444444", "#1f77b4", "#ff7f0e", "#b8860b", "#2ca02c", "#8c564b",
    "#d62728", "#e377c2", "#000080", "#7b2cbf", "#008b8b", "#c71585",
)  # fmt: skip


def calibrated(name: str, budget: Budget) -> CalibratedCounter | None:
    """None for a counter of the other kind of budget."""
    try:
        return counter_by_name(name, horizon=HORIZON).calibrate(budget, Event())
    except BudgetError:
        return None


def simulated(counter: CalibratedCounter) -> dict[int, float]:
    """Root mean square error over all cells at some ticks, with real noise; increments are zeros."""
    state, zeros, system = counter.init(CELLS), np.zeros(CELLS, np.int64), Randomness.system()
    found = {}
    for t in range(1, HORIZON + 1):
        errors = counter.step(state, zeros, system)
        if t in DOTS:
            found[t] = math.sqrt(float((errors.astype(np.float64) ** 2).mean()))
    return found


def lower_bound(budget: Budget) -> float:
    """On the root mean square over ``1 .. HORIZON`` of any linear counter: the nuclear norm of the running sum."""
    angles = (2 * np.arange(1, HORIZON + 1) - 1) * np.pi / (4 * HORIZON + 2)
    bound = float((1 / (2 * np.sin(angles))).sum()) / HORIZON
    return bound * math.sqrt(2) if isinstance(budget, PureDP) else bound


def draw(label: str, budget: Budget, out: Path) -> None:
    """One picture."""
    figure, axes = drawing().subplots(figsize=(8, 5.5))
    ticks = sorted({*np.geomspace(1, HORIZON, 160).astype(int).tolist(), *range(1, 21)})
    ends = []
    for number, name in enumerate(COUNTER_NAMES):
        counter = calibrated(name, budget)
        if counter is None:
            continue
        line = [counter.variance(t) ** 0.5 for t in ticks]
        style = "-" if counter.horizon is not None else UNBOUNDED
        axes.plot(ticks, line, style, color=COLOURS[number], linewidth=1.4)
        dots = simulated(counter)
        bars = [2 * value / math.sqrt(2 * CELLS) for value in dots.values()]
        axes.errorbar(
            list(dots), list(dots.values()), bars, fmt=".", color=COLOURS[number], markersize=5, linewidth=1
        )
        # Labels stand at the mean of the last tenth, so that a tooth of a saw does not decide.
        late = [counter.variance(t) for t in range(HORIZON - HORIZON // 10, HORIZON + 1)]
        ends.append((math.sqrt(sum(late) / len(late)), name, COLOURS[number]))
    axes.axhline(lower_bound(budget), linestyle=":", color="black", linewidth=1)
    axes.text(1, lower_bound(budget) * 1.03, "bound on the mean over 1 .. 1,000", fontsize=8, va="bottom")
    spread_labels(axes, ends)
    axes.set(xscale="log", yscale="log", xlabel="ticks", ylabel="standard deviation of a running count")
    axes.set_title(f"{budget}, one event; solid: horizon of 1,000, dashed: none", fontsize=10)
    axes.set_xlim(0.9, HORIZON * 4)
    open_frame(axes)
    save_figure(figure, out / f"counter-errors-{label}.svg")


def spread_labels(axes, ends) -> None:  # type: ignore[no-untyped-def]
    """Names at the right, moved apart where they would cover each other."""
    least, last = 1.09, 0.0
    for value, name, colour in sorted(ends):
        height = max(value, last * least)
        axes.text(HORIZON * 1.15, height, name, color=colour, fontsize=8, va="center")
        last = height


def main() -> None:
    """Both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out = parser.parse_args().out
    for label, budget in BUDGETS.items():
        draw(label, budget, out)
        print(f"wrote {out / f'counter-errors-{label}.svg'}")


if __name__ == "__main__":
    main()
