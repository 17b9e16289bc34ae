"""What evaluating a family means, so that the command asks no family's name; and how every result is written."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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


SUMMARIES: Final = ("summary.md", "summary.json")
#: The page of an evaluation, in its folder; and its measures, where there are some.
PAGE: Final = "evaluation.html"
MEASURES: Final = "measures.csv"
#: What an option is called on the command line, where that is another name.
_OPTIONS: Final = {"synthetic": "from", "ceiling": "no-ceiling"}


@dataclass(frozen=True)
class EvaluationRequest:
    """What an evaluation was asked for; None: what the family does by default.

    Attributes:
        releases: where the run left them.
        state: where the secret state is, if elsewhere than the file says.
        workload, target, synthetic, ceiling: see ``evaluate_run``; ``workload`` by its name.
        steps, every: which steps.
        progress: is called after every evaluated step.
    """

    releases: Path
    state: Path | None = None
    workload: str | None = None
    steps: Sequence[int] | None = None
    every: int | None = None
    synthetic: str | None = None
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
        told: the sentences and tables of the summary, in order: what is printed, and ``summary.md``.
        files: further files by name, whose bytes carry the label.
        measures: numbers with a word each, and yardsticks; ``measures.csv`` and the top of the page.
        tables: of a stream of tables, everything that was found; None: the page shows what is told.
    """

    stream: str
    facts: Mapping[str, Any] = field(repr=False)
    told: Sequence[str | SummaryTable] = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)
    measures: Sequence[Measure] = field(default=(), repr=False)
    tables: Evaluation | None = field(default=None, repr=False)


@dataclass(frozen=True)
class FamilyEvaluation:
    """How the releases of a family are compared with its private table.

    Attributes:
        options: fields of ``EvaluationRequest`` that apply beside ``releases`` and ``progress``.
        refusal: what the stream is, and what is compared of it: said where another option is given.
        files: names of all files that it may write beside ``SUMMARIES``.
        find: compares; writes nothing.
    """

    options: tuple[str, ...]
    refusal: str
    files: tuple[str, ...]
    find: Callable[[Config, EvaluationRequest], EvaluationResult]

    def check(self, asked: EvaluationRequest) -> None:
        """Refuse options that do not apply, before anything is read.

        Errors:
            ConfigError: an option that does not apply.
        """
        strange = [
            name
            for name in ("workload", "steps", "every", "synthetic", "target", "ceiling", "state")
            if name not in self.options and getattr(asked, name) is not None
        ]
        if strange:
            words = [_OPTIONS.get(name, name) for name in self.options]
            raise ConfigError(
                self.refusal,
                where="evaluate",
                allowed=", ".join(f"--{name}" for name in ("out", "releases", *words, "json")),
            )


def write_result_files(
    found: EvaluationResult, folder: Path, names: Sequence[str], page: str | None = None
) -> tuple[Path, ...]:
    """Write all files into a folder that ``open_private_folder`` gave; what is there is replaced.

    Args:
        names: of all files that this kind of evaluation may write: those that it has nothing for now are removed.
        page: what ``tools.report.evaluation_page`` made of it.
    """
    # A label may hold half of a surrogate pair, which no file can.
    shown = {} if page is None else {PAGE: page.encode("utf-8", "replace")}
    if found.measures:
        shown[MEASURES] = _measures(found.measures)
    contents = {
        **shown,
        **found.files,
        "summary.md": summary_text(found).encode(),
        "summary.json": json_bytes(found.facts),
    }
    written = tuple(write_private(folder / name, data) for name, data in contents.items())
    for name in {*names, PAGE, MEASURES} - contents.keys():
        durable.unlink(folder / name)
    return written


def measures_told(measures: Sequence[Measure]) -> SummaryTable:
    """Measures as a table of a summary."""
    headings = measure_headings(measures)
    numbers = range(2, len(headings))  # without an offline run there is one fewer
    return SummaryTable("What may be wrong", headings, measure_rows(measures), right=numbers)


def _measures(measures: Sequence[Measure]) -> bytes:
    rows = (
        [one.name, one.question, one.word, one.value, one.floor, one.ceiling, one.meaning] for one in measures
    )
    headings = [
        "measure",
        "question",
        "verdict",
        "released",
        "two_real_samples",
        "one_offline_run",
        "meaning",
    ]
    return csv_bytes(headings, rows)


def summary_text(found: EvaluationResult) -> str:
    """The main numbers as Markdown."""
    lines = [f"# {found.stream}: {LABEL}", ""]
    for one in found.told:
        if isinstance(one, str):
            lines += [one, ""]
            continue
        marks = ["---:" if place in one.right else "---" for place in range(len(one.headings))]
        lines += [f"## {one.title}: {LABEL}", ""]
        lines += [_row(one.headings), f"|{'|'.join(marks)}|", *map(_row, one.rows), ""]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def number(value: float | None) -> str:
    """Four digits, or a dash for none."""
    return "-" if value is None or math.isnan(value) else f"{value:.4g}"


def csv_bytes(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """A table whose last column is the label, in every row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*headings, "label"])
    for row in rows:
        cells = ["" if value is None else value for value in blank(list(row))]
        writer.writerow([*cells, LABEL])
    return text.getvalue().encode()


def json_bytes(value: Any) -> bytes:
    """JSON for people and programs; NaN becomes null."""
    return (json.dumps(blank(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def blank(value: Any) -> Any:
    """Replaces NaN by None, also inside lists and tables: JSON knows no NaN."""
    if isinstance(value, dict):
        return {key: blank(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [blank(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
