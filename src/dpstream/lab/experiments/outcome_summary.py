"""What an experiment ends with: a table for people, all numbers for programs, and the files that were written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream.lab.experiments.kumar import Outcome
from dpstream.lab.experiments.kumar_tables import PRINTED_AS

__all__ = ["ExperimentSummary", "summary_of"]


@dataclass(frozen=True)
class ExperimentSummary:
    """For evaluation only: the numbers were computed from private tables.

    Attributes:
        folder, files: what was written; the tables come first.
        numbers: everything, JSON-able, under the name that programs know.
        title, headings, rows: the table; columns in ``right`` hold numbers alone.
        notes: what has to be known to read it.
    """

    folder: Path
    files: tuple[str, ...]
    numbers: dict[str, Any]
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    notes: Sequence[str] = ()
    #: How many of the files hold tables, and what is said of these.
    tables: tuple[int, str] = (3, "")

    @property
    def written(self) -> str:
        """Which files there are, in a sentence."""
        count, what = self.tables
        figures = len(self.files) - count
        return f"Wrote {', '.join(self.files[:count])}{what} and {figures} figures to {self.folder}"


def summary_of(outcome: Outcome) -> ExperimentSummary:
    """Errors of every method, beside the printed ones where there are any."""
    shown = ("AvgWE", "MaxWE", "AvgL1")
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for line in outcome.lines:
        groups.setdefault((line.stream, line.epsilon, line.method), {})[line.metric] = line
    rows = []
    for (stream, epsilon, method), errors in groups.items():
        name = f"{method} (once)" if next(iter(errors.values())).once else method
        rows.append([stream, epsilon, name, *(_cell(errors[metric]) for metric in shown)])
    printed = any(line.published is not None for line in outcome.lines)
    note = "After the slash: the number in print (beside AvgL1 its AvgRelWE, which is of that size; ?: a misprint)."
    return ExperimentSummary(
        outcome.folder,
        outcome.files,
        {"rows": [_numbers(line) for line in outcome.lines]},
        "Errors over the last steps",
        ["stream", "epsilon", "method", *shown],
        rows,
        notes=(note,) if printed else (),
        tables=(3, " (with the spread)"),
    )


def _cell(line: Any) -> str:
    if line.published is None:
        return str(line.mean_text)
    return f"{line.mean_text} / {line.published.value:.4f}{'' if line.published.target else '?'}"


def _numbers(line: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "stream": line.stream,
        "epsilon": line.epsilon,
        "method": line.method,
        "once": line.once,
        "metric": line.metric,
        "mean": line.mean,
        "standard_deviation": line.deviation,
        "lowest": line.low,
        "highest": line.high,
        "repetitions": line.repeats,
    }
    if line.published is not None:
        paper = line.published
        row["published"] = {
            "value": paper.value,
            "metric": PRINTED_AS[line.metric],
            "target": paper.target,
        }
    return row
