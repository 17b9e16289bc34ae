"""The summary of an experiment: a table for people, all numbers for programs, and the written files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream_lab.experiments.kumar import ExperimentOutcome
from dpstream_lab.experiments.kumar_tables import PRINTED_AS


@dataclass(frozen=True)
class ExperimentSummary:
    """The summary of an experiment. For evaluation only: its numbers were computed from private tables.

    Attributes:
        folder, files: the written files; tables come first.
        numbers: all numbers as JSON values, by the names that programs use.
        title, headings, rows: the table; the columns in ``right`` have numbers only.
        notes: explanations of the table.
        tables: how many of the files are tables, and a remark about them.
    """

    folder: Path
    files: tuple[str, ...]
    numbers: dict[str, Any]
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    notes: Sequence[str] = ()
    tables: tuple[int, str] = (3, "")

    @property
    def written(self) -> str:
        """A sentence that names the files."""
        count, what = self.tables
        figures = len(self.files) - count
        return f"Wrote {', '.join(self.files[:count])}{what} and {figures} figures to {self.folder}"


def summary_of(outcome: ExperimentOutcome) -> ExperimentSummary:
    """The summary of the errors of every method, beside printed numbers where there are any."""
    shown = ("AvgWE", "AvgTV", "MaxWE", "AvgL1")
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
