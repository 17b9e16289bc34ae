"""What evaluating a family means, so that the command asks no family's name; and how every result is written.

Trusted base: owner (hands on a comparison with the private table).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.tools.evaluate.measures import EvaluationProgress, Measure, measure_headings, measure_rows
from dpstream.tools.evaluate.private_folder import LABEL, write_private

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.tools.evaluate.evaluation import Evaluation


#: The files of an evaluation: the page, the main numbers for programs, and a row for each compared step.
FILES: Final = ("evaluation.html", "summary.json", "steps.csv")
PAGE: Final = FILES[0]
#: What an option is called on the command line, where that is another name.
_OPTIONS: Final = {"ceiling": "no-ceiling"}


@dataclass(frozen=True)
class EvaluationRequest:
    """What an evaluation was asked for; None: what the family does by default.

    Attributes:
        releases: where the run left them.
        workload, target, ceiling: see ``evaluate_run``; ``workload`` by its name.
        steps, every: which steps.
        progress: is called after every evaluated step.
    """

    releases: Path
    workload: str | None = None
    steps: Sequence[int] | None = None
    every: int | None = None
    target: str | None = None
    ceiling: bool | None = None
    progress: EvaluationProgress | None = None


@dataclass(frozen=True)
class SummaryTable:
    """A table of a summary; the columns in ``right`` are numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """What an evaluation found. Evaluation only, not releasable.

    Attributes:
        facts: the main numbers, JSON-able: ``summary.json``; the label comes first.
        summary: sentences and tables in order: what is printed.
        steps: ``steps.csv``: rows of equal names, one or more for each compared step.
        measures: numbers with a word each, and yardsticks: the top of the page.
        tables: of a stream of tables, everything that was found; None: the page shows the summary.
    """

    stream: str
    facts: Mapping[str, Any] = field(repr=False)
    summary: Sequence[str | SummaryTable] = field(repr=False)
    steps: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    measures: Sequence[Measure] = field(default=(), repr=False)
    tables: Evaluation | None = field(default=None, repr=False)


@dataclass(frozen=True)
class FamilyEvaluation:
    """How the releases of a family are compared with its private table.

    Attributes:
        options: fields of ``EvaluationRequest`` that apply beside ``releases`` and ``progress``.
        find: compares; writes nothing.
    """

    options: tuple[str, ...]
    find: Callable[[Config, EvaluationRequest], EvaluationResult]

    def check(self, asked: EvaluationRequest) -> None:
        """Refuse options that do not apply, before anything is read.

        Errors:
            ConfigError: an option that does not apply.
        """
        strange = [
            name
            for name in ("workload", "steps", "every", "target", "ceiling")
            if name not in self.options and getattr(asked, name) is not None
        ]
        if strange:
            words = [_OPTIONS.get(name, name) for name in self.options]
            raise ConfigError(
                f"--{_OPTIONS.get(strange[0], strange[0])} does not fit this stream",
                where="evaluate",
                allowed=", ".join(f"--{name}" for name in ("out", "releases", *words, "json")),
            )


def write_result_files(found: EvaluationResult, folder: Path, page: str | None = None) -> tuple[Path, ...]:
    """Write the files into a folder that ``open_private_folder`` gave; earlier ones are replaced or removed.

    Args:
        page: what ``tools.report.evaluation_page`` made of it.
    """
    contents = {
        # A label may hold half of a surrogate pair, which no file can.
        FILES[0]: None if page is None else page.encode("utf-8", "replace"),
        FILES[1]: _json_bytes(found.facts),
        FILES[2]: _csv_bytes(found.steps) if found.steps else None,
    }
    written = []
    for name, data in contents.items():
        if data is None:
            durable.unlink(folder / name)
        else:
            written.append(write_private(folder / name, data))
    return tuple(written)


def measures_table(measures: Sequence[Measure]) -> SummaryTable:
    """Measures as a table of a summary."""
    headings = measure_headings(measures)
    numbers = range(2, len(headings))  # without an offline run there is one fewer
    return SummaryTable("What may be wrong", headings, measure_rows(measures), right=numbers)


def number(value: float | None) -> str:
    """Four digits, or a dash for none."""
    return "-" if value is None or math.isnan(value) else f"{value:.4g}"


def _csv_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A table whose last column is the label, in every row: a row that is copied elsewhere keeps it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*rows[0], "label"])
    for row in rows:
        writer.writerow([*("" if value is None else value for value in blank(list(row.values()))), LABEL])
    return text.getvalue().encode()


def _json_bytes(value: Any) -> bytes:
    """JSON for people and programs; NaN becomes null."""
    return (json.dumps(blank(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def blank(value: Any) -> Any:
    """Replaces NaN by None, also inside lists and tables: JSON knows no NaN."""
    if isinstance(value, dict):
        return {key: blank(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [blank(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
