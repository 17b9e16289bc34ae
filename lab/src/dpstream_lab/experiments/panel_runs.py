"""Repeats the two synthesizers on a panel, with real noise. For evaluation only."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import Individual, Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.core.version import __version__
from dpstream.families.panel import (
    AtLeast,
    Consecutive,
    CumulativePlan,
    PanelCumulative,
    PanelSynthesis,
    PanelWindow,
    WindowPlan,
    WindowQuery,
)
from dpstream.families.panel.cumulative import Split
from dpstream.stream.templates import words
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream_lab.experiments.panel_data import Panel, load_panel
from dpstream_lab.experiments.runs import settings_hash

PANEL_RUN_FORMAT = 1
#: k of the paper, and the widths of the questions of its Figures 3 and 4.
PAPER_WINDOW = 3
WIDTHS = (3, 2, 6)
#: What the paper asks of every quarter.
QUESTIONS: dict[str, WindowQuery] = {
    "at least one month": AtLeast(1, width=PAPER_WINDOW),
    "at least two months": AtLeast(2, width=PAPER_WINDOW),
    "two consecutive months": Consecutive(2, width=PAPER_WINDOW),
    "all three months": AtLeast(3, width=PAPER_WINDOW),
}
#: b of the paper's Figures 2 and 8.
BY_MONTH = 3
_SCHEMA = Schema((Categorical("report", ("0", "1")),))
PanelRelation = Literal["replace", "add-remove"]


@dataclass(frozen=True)
class _RepeatedRun:
    """The common part of all runs: a panel, a budget, a relation and a number of repetitions."""

    panel: str
    path: Path | None
    rho: str
    relation: PanelRelation
    repeats: int

    def load(self) -> Panel:
        """The panel that the run is on."""
        return load_panel(self.panel, self.path)

    @property
    def unit(self) -> Individual:
        """One person's whole history."""
        return Individual(self.relation)

    def settings(self, kind: str, options: dict[str, Any]) -> dict[str, Any]:
        """Everything that the result depends on."""
        panel = self.load()
        return {
            "format": PANEL_RUN_FORMAT,
            "program": __version__,
            "kind": kind,
            "panel": panel.name,
            "real": panel.real,
            "data": panel.fingerprint,
            "people": panel.people,
            "periods": panel.periods,
            "rho": self.rho,
            "relation": self.relation,
            "repetitions": self.repeats,
            "options": options,
        }

    def outcome(self, settings: dict[str, Any], begin: float, used: float, **found: Any) -> dict[str, Any]:
        """The result of a run, which is kept in its file."""
        return {
            "label": LABEL,
            "settings": settings,
            "settings_hash": settings_hash(settings),
            **found,
            "seconds": round(time.perf_counter() - begin, 3),
            "cpu_seconds": round(time.process_time() - used, 3),
        }


@dataclass(frozen=True)
class WindowRun(_RepeatedRun):
    """The fixed-window synthesizer: the four questions at each quarter, and the errors of all patterns."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.load().name}--window--rho-{self.rho.replace('/', '-over-')}--{self.relation}"

    def plan(self) -> WindowPlan:
        """The calibrated synthesizer."""
        recipe = PanelWindow(_SCHEMA, PAPER_WINDOW)
        return recipe.calibrate(rho=self.rho, unit=self.unit, horizon=self.load().periods)

    def facts(self) -> tuple[dict[str, Any], float]:
        """See ``Runnable.facts``."""
        panel = self.load()
        options = {
            "window": PAPER_WINDOW,
            "failure": "0.05",
            "plan": words(self.plan(), "described", **self.plan().facts()),
        }
        return self.settings("window", options), self.repeats * panel.periods * (3e3 + panel.people)

    def run(self) -> dict[str, Any]:
        """All repetitions.

        ``points`` has the answers, as lists over (repetition, quarter, question), and the largest error of any
        pattern, over (width, repetition, period). ``final`` has the facts about the run as a whole.
        """
        begin, used = time.perf_counter(), time.process_time()
        panel, plan, randomness = self.load(), self.plan(), Randomness.system()
        quarters = list(range(PAPER_WINDOW, panel.periods + 1, PAPER_WINDOW))
        widths = [width for width in WIDTHS if width <= panel.periods]
        truths = {w: [panel.histogram(t, w) for t in range(w, panel.periods + 1)] for w in widths}
        answers, worst, clipped = [], [], []
        for _ in range(self.repeats):
            state, view = plan.start(panel.people), _View(plan, truths, panel.people)
            quarterly = []
            for period in range(1, panel.periods + 1):
                release = plan.advance(state, panel.reports[:, period - 1], randomness)
                if period < plan.window:
                    continue
                view.add(release)
                if period in quarters:
                    estimates = [release.answer(query) for query in QUESTIONS.values()]
                    quarterly.append([(one.raw_share, one.share, one.share_error) for one in estimates])
            answers.append(quarterly)
            worst.append(view.worst)
            clipped.append(state.clipped)
        # (repetition, quarter, question, kind) -> kind first.
        raw, value, error = np.moveaxis(np.array(answers, dtype=np.float64), -1, 0)
        truth = [[_share(panel, query, t) for query in QUESTIONS.values()] for t in quarters]
        settings, _ = self.facts()
        return self.outcome(
            settings,
            begin,
            used,
            points={
                "quarters": quarters,
                "truth": truth,
                "raw": _rounded(raw),
                "value": _rounded(value),
                "standard_error": _rounded(error),
                "worst": {
                    str(width): {
                        kind: _rounded(np.array([one[width][kind] for one in worst]))
                        for kind in ("debiased", "raw")
                    }
                    for width in widths
                },
            },
            final={"bound": plan.bound, "padding": plan.padding, "clipped": clipped},
        )


class _View:
    """One repetition's synthetic people against the truth: the largest error of any pattern, by width and period."""

    def __init__(self, plan: WindowPlan, truths: dict[int, list[NDArray[np.int64]]], people: int) -> None:
        self._plan, self._truths, self._people = plan, truths, people
        self._codes = np.zeros(0, np.int64)
        #: width -> kind -> one number a period, from the first that has such patterns: errors as shares of people.
        self.worst: dict[int, dict[str, list[float]]] = {w: {"debiased": [], "raw": []} for w in truths}

    def add(self, release: PanelSynthesis) -> None:
        """Compare the people of the next period with the truth."""
        if not len(self._codes):
            self._codes = np.zeros(len(release.history), np.int64)
        for column in release.columns.T:
            self._codes = (2 * self._codes + column) % 2 ** max(WIDTHS)
        padding = self._plan.padding * self._plan.patterns
        for width, truths in self._truths.items():
            if release.period < width:
                continue
            truth = truths[release.period - width]
            counts = np.bincount(self._codes % 2**width, minlength=2**width)
            share = truth / self._people
            # The padding is even over the patterns of the window, and taken to be so over wider ones.
            debiased = (counts - padding / 2**width) / self._people - share
            self.worst[width]["debiased"].append(float(np.abs(debiased).max()))
            self.worst[width]["raw"].append(float(np.abs(counts / max(1, len(self._codes)) - share).max()))


def _share(panel: Panel, query: WindowQuery, period: int) -> float:
    return float(query.weights(2) @ panel.histogram(period, query.width)) / panel.people


@dataclass(frozen=True)
class CumulativeRun(_RepeatedRun):
    """The cumulative synthesizer: at least three ones by each period.

    Attributes:
        counter, split: as in ``PanelCumulative``.
    """

    counter: str = "best"
    split: str = "error"

    @property
    def name(self) -> str:
        """The name of its file."""
        amount = self.rho.replace("/", "-over-")
        return f"{self.load().name}--cumulative-{self.counter}--rho-{amount}--{self.relation}"

    def plan(self) -> CumulativePlan:
        """The calibrated synthesizer."""
        recipe = PanelCumulative(_SCHEMA, ("1",), counter=self.counter, split=cast(Split, self.split))
        return recipe.calibrate(rho=self.rho, unit=self.unit, horizon=self.load().periods)

    def facts(self) -> tuple[dict[str, Any], float]:
        """See ``Runnable.facts``."""
        panel = self.load()
        options = {
            "counter": self.counter,
            "split": self.split,
            "failure": "0.05",
            "plan": words(self.plan(), "described", **self.plan().facts()),
        }
        cost = self.repeats * panel.periods * (1e4 * panel.periods / 12 + panel.people)
        return self.settings("cumulative", options), cost

    def run(self) -> dict[str, Any]:
        """All repetitions; ``points`` has the answers as lists over (repetition, period)."""
        begin, used = time.perf_counter(), time.process_time()
        panel, plan, randomness = self.load(), self.plan(), Randomness.system()
        periods = range(1, panel.periods + 1)
        truth = np.array([[panel.at_least(b, t) for b in periods] for t in periods])
        answers, over = [], []
        for _ in range(self.repeats):
            state, farthest, found = plan.start(panel.people), 0.0, []
            for t in periods:
                release = plan.advance(state, panel.reports[:, t - 1], randomness)
                error = np.abs(release.counts[1 : t + 1] - truth[t - 1, :t]).max()
                farthest = max(farthest, float(error) / plan.bounds[t - 1])
                if t >= BY_MONTH:
                    estimate = release.answer(BY_MONTH)
                    found.append((estimate.share, estimate.unbiased, estimate.count_error))
            answers.append(found)
            over.append(farthest)
        value, unbiased, error = np.moveaxis(np.array(answers, dtype=np.float64), -1, 0)
        settings, _ = self.facts()
        return self.outcome(
            settings,
            begin,
            used,
            points={
                "periods": [t for t in periods if t >= BY_MONTH],
                "truth": [int(truth[t - 1, BY_MONTH - 1]) / panel.people for t in periods if t >= BY_MONTH],
                "value": _rounded(value),
                "unbiased": _rounded(unbiased / panel.people),
                "standard_error": _rounded(error / panel.people),
            },
            final={"bound": plan.bounds[-1], "padding": plan.padding, "of_bound": _rounded(np.array(over))},
        )


def _rounded(values: NDArray[np.float64]) -> Any:
    """An array as nested lists, rounded to eight decimals."""
    return np.round(values, 8).tolist()
