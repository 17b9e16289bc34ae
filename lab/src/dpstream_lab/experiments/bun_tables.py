"""Tables over the repetitions: errors, bias, coverage of the predicted standard errors, and failures of bounds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.evaluate.private_folder import LABEL
from dpstream_lab.experiments.panel_runs import BY_MONTH, PAPER_WINDOW, QUESTIONS

_HEADS = (
    "panel", "method", "rho", "relation", "question", "period", "repetitions", "truth", "mean_raw", "mean",
    "standard_deviation", "bias", "bias_error", "predicted_error", "coverage", "label",
)  # fmt: skip


@dataclass(frozen=True)
class AnswerLine:
    """One question at one period, over the repetitions. All numbers are shares of the people.

    Attributes:
        mean_raw: of the synthetic people as they are, padding included; of the monotone answers of a cumulative run.
        mean, deviation: of the debiased answers.
        predicted: the mean standard error that stands beside the answers.
        coverage: in what part of the repetitions the truth was within 1.96 standard errors.
    """

    settings: Mapping[str, Any]
    question: str
    period: int
    truth: float
    mean_raw: float
    mean: float
    deviation: float
    predicted: float
    coverage: float

    @property
    def bias(self) -> float:
        """The mean error."""
        return self.mean - self.truth

    @property
    def bias_error(self) -> float:
        """The standard error of the mean, to compare with the bias."""
        return self.deviation / math.sqrt(self.settings["repetitions"])

    def as_dict(self) -> dict[str, Any]:
        """All numbers, without the settings."""
        return {name: getattr(self, name) for name in _FIELDS}


_FIELDS = (
    "question", "period", "truth", "mean_raw", "mean", "deviation", "bias", "bias_error", "predicted", "coverage"
)  # fmt: skip


def lines_of(values: Mapping[str, Any]) -> list[AnswerLine]:
    """The lines of one run."""
    settings, points = values["settings"], values["points"]
    if settings["kind"] == "cumulative":
        # The counters' own estimates are unbiased; the monotone answers are what a reader of the people sees.
        # Their means are compared with each other as raw and debiased ones are.
        sets = [_array(points[kind]) for kind in ("value", "unbiased", "standard_error")]
        question = f"at least {BY_MONTH} months so far"
        return [
            _line(settings, question, t, points["truth"][i], *(one[:, i] for one in sets))
            for i, t in enumerate(points["periods"])
        ]
    sets = [_array(points[kind]) for kind in ("raw", "value", "standard_error")]
    return [
        _line(settings, question, t, points["truth"][i][j], *(one[:, i, j] for one in sets))
        for j, question in enumerate(QUESTIONS)
        for i, t in enumerate(points["quarters"])
    ]


def _array(values: Any) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def _line(
    settings: Mapping[str, Any],
    question: str,
    period: int,
    truth: float,
    raw: NDArray[np.float64],
    value: NDArray[np.float64],
    error: NDArray[np.float64],
) -> AnswerLine:
    return AnswerLine(
        settings=settings,
        question=question,
        period=period,
        truth=truth,
        mean_raw=float(raw.mean()),
        mean=float(value.mean()),
        deviation=float(value.std(ddof=1)),
        predicted=float(error.mean()),
        coverage=float((np.abs(value - truth) <= 1.96 * error).mean()),
    )


def answers_csv(runs: Sequence[Mapping[str, Any]]) -> str:
    """All lines of all runs as CSV; the last column is the label of such numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADS)
    for run in runs:
        for line in lines_of(run):
            facts = line.settings
            shares = (
                line.truth, line.mean_raw, line.mean, line.deviation, line.bias, line.bias_error, line.predicted
            )  # fmt: skip
            writer.writerow(
                [
                    *(facts["panel"], method_of(facts), facts["rho"], facts["relation"]),
                    *(line.question, line.period, facts["repetitions"]),
                    *(f"{share:.6g}" for share in shares),
                    f"{line.coverage:.4g}",
                    LABEL,
                ]
            )
    return out.getvalue()


def method_of(settings: Mapping[str, Any]) -> str:
    """``window of 3`` or ``cumulative (best, error)``: counters, and how the budget is split."""
    if settings["kind"] == "window":
        return f"window of {PAPER_WINDOW}"
    options = settings["options"]
    return f"cumulative ({options['counter']}, {options['split']})"


def markdown_page(runs: Sequence[Mapping[str, Any]], quick: bool) -> str:
    """The page ``table.md``: first facts about whole runs, then the answers."""
    blocks = [
        f"**{LABEL}**" if any(_real(run) for run in runs) else "All panels here are invented.",
        "# Panels: the paper's experiments, run with dpstream",
        "All numbers are shares of the people unless they say otherwise. Real noise, so another run gives other "
        "numbers." + (" **A quick run: too few repetitions for more than a first look.**" if quick else ""),
        "## The window synthesizer over all periods\n\n" + _windows(runs),
        "## The cumulative synthesizer over all periods\n\n" + _cumulatives(runs),
    ]
    for panel in dict.fromkeys(run["settings"]["panel"] for run in runs):
        own = [run for run in runs if run["settings"]["panel"] == panel]
        blocks.append(f"## Answers: {panel}\n\n" + _answers(own))
    return "\n\n".join(blocks) + "\n"


def _real(run: Mapping[str, Any]) -> bool:
    return bool(run["settings"]["real"])


def _windows(runs: Sequence[Mapping[str, Any]]) -> str:
    heads = [
        "panel", "rho", "relation", "repetitions", "bound (people)", "97.5 % of the largest error (people)",
        "repetitions beyond the bound", "with a clipped group", "error at the first period", "at the last",
    ]  # fmt: skip
    rows = []
    for run in runs:
        facts, final = run["settings"], run["final"]
        if facts["kind"] != "window":
            continue
        errors = _array(run["points"]["worst"][str(PAPER_WINDOW)]["debiased"]) * facts["people"]
        largest = errors.max(axis=1)
        medians = np.median(errors, axis=0)
        rows.append(
            [
                facts["panel"], facts["rho"], facts["relation"], facts["repetitions"],
                f"{final['bound']:.1f}", f"{np.quantile(largest, 0.975):.1f}",
                f"{(largest > final['bound']).mean():.2%}", f"{np.mean(_array(final['clipped']) > 0):.2%}",
                f"{medians[0]:.1f}", f"{medians[-1]:.1f}",
            ]
        )  # fmt: skip
    note = (
        "The largest error is over all patterns and periods of a repetition, debiased; the bound is stated to fail "
        "in at most 5 % of them. The last two columns are the median of the largest error of a pattern at that "
        "period: the same at the first as at the last where the error does not grow."
    )
    return f"{_table(heads, rows)}\n\n{note}"


def _cumulatives(runs: Sequence[Mapping[str, Any]]) -> str:
    heads = [
        "panel", "method", "rho", "relation", "repetitions", "bound at the end (people)",
        "97.5 % of the error, as a share of the bound", "repetitions beyond the bound",
    ]  # fmt: skip
    rows = []
    for run in runs:
        facts, final = run["settings"], run["final"]
        if facts["kind"] == "cumulative":
            part = _array(final["of_bound"])
            rows.append(
                [
                    facts["panel"], method_of(facts), facts["rho"], facts["relation"], facts["repetitions"],
                    f"{final['bound']:.1f}", f"{np.quantile(part, 0.975):.2f}", f"{(part > 1).mean():.2%}",
                ]
            )  # fmt: skip
    return _table(heads, rows) if rows else "Not run."


def _answers(runs: Sequence[Mapping[str, Any]]) -> str:
    heads = [
        "method", "rho", "relation", "question", "period", "truth", "mean, raw or monotone",
        "mean, debiased", "bias (its standard error)", "standard deviation", "predicted", "coverage of 95 %",
    ]  # fmt: skip
    rows = []
    for run in runs:
        for line in lines_of(run):
            facts = line.settings
            rows.append(
                [
                    method_of(facts), facts["rho"], facts["relation"], line.question, line.period,
                    f"{line.truth:.4f}", f"{line.mean_raw:.4f}", f"{line.mean:.4f}",
                    f"{line.bias:+.5f} ({line.bias_error:.5f})", f"{line.deviation:.5f}", f"{line.predicted:.5f}",
                    f"{line.coverage:.1%}",
                ]
            )  # fmt: skip
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    body = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in body)
