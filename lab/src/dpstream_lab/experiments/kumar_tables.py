"""What the runs say together: means over the last ten steps, and their spread over repetitions."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpstream.tools.evaluate.metrics import METRICS
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream_lab.experiments.grid import Result
from dpstream_lab.experiments.printed_numbers import PrintedNumber

#: (stream, epsilon, metric, method) -> the number in print.
Printed = Mapping[tuple[str, Fraction, str, str], PrintedNumber]

#: Beside which printed metric ours stands. The printed relative errors are of the size of L1 errors, and far below
#: any cell by cell relative error, so both are put beside them.
PRINTED_AS: dict[str, str] = {
    "AvgWE": "AvgWE",
    "MaxWE": "MaxWE",
    "AvgRelWE": "AvgRelWE",
    "MaxRelWE": "MaxRelWE",
    "AvgRelWEFloor": "AvgRelWE",
    "MaxRelWEFloor": "MaxRelWE",
    "AvgL1": "AvgRelWE",
    "MaxL1": "MaxRelWE",
}


_HEADS = (
    "stream", "epsilon", "method", "runs", "metric", "mean", "standard_deviation", "lowest", "highest",
    "repetitions", "published", "published_metric", "published_in", "is_target", "label",
)  # fmt: skip


@dataclass(frozen=True)
class ErrorLine:
    """One metric of one method on one stream: mean, deviation and range over the repetitions.

    ``mean`` and the others are None where no repetition has a number (an empty table).
    """

    stream: str
    epsilon: str
    method: str
    once: bool
    metric: str
    mean: float | None
    deviation: float | None
    low: float | None
    high: float | None
    repeats: int
    published: PrintedNumber | None = None

    @property
    def text(self) -> str:
        """``0.0036 (0.0035-0.0037)``; the range only where there are several repetitions."""
        if self.mean is None or self.low is None or self.high is None:
            return "none"
        spread = f" ({_number(self.low)}-{_number(self.high)})" if self.repeats > 1 else ""
        return f"{self.mean_text}{spread}"

    @property
    def mean_text(self) -> str:
        """The mean alone."""
        return "none" if self.mean is None else _number(self.mean)


def _number(value: float) -> str:
    """Four decimals as in the paper, three digits from 1 on.

    >>> _number(0.00361), _number(12.345), _number(0.00004)
    ('0.0036', '12.3', '4.0e-05')
    """
    if value != 0.0 and value < 0.001:
        return f"{value:.5f}" if value >= 0.0001 else f"{value:.1e}"
    return f"{value:.4f}" if value < 1.0 else f"{value:.3g}"


def error_lines(results: Sequence[Result], printed: Printed | None = None) -> list[ErrorLine]:
    """One line per stream, epsilon, method and metric, in the order of the results."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        task = result.task
        groups.setdefault((task.source.label, task.epsilon, task.method.label), []).append(result)
    lines = []
    for (stream, epsilon, method), group in groups.items():
        for metric in METRICS:
            values = [value for r in group if (value := r.values["final"].get(metric)) is not None]
            found = (
                None
                if printed is None
                else printed.get((stream, Fraction(epsilon), PRINTED_AS.get(metric, metric), method))
            )
            lines.append(
                ErrorLine(
                    stream,
                    epsilon,
                    method,
                    group[0].task.once,
                    metric,
                    statistics.fmean(values) if values else None,
                    statistics.stdev(values) if len(values) > 1 else None,
                    min(values, default=None),
                    max(values, default=None),
                    len(group),
                    found,
                )
            )
    return lines


def errors_csv(lines: Sequence[ErrorLine]) -> str:
    """Everything, one line per metric; the last column says what such numbers are."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADS)
    for line in lines:
        paper = line.published
        known = ("", "", "", "") if paper is None else (
            paper.value, PRINTED_AS[line.metric], paper.table, "yes" if paper.target else "no"
        )  # fmt: skip
        numbers = [_exact(v) for v in (line.mean, line.deviation, line.low, line.high)]
        runs = "once, on the final table" if line.once else "at every step"
        writer.writerow(
            [line.stream, line.epsilon, line.method, runs, line.metric, *numbers, line.repeats, *known, LABEL]
        )
    return out.getvalue()


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"


def markdown_table(
    lines: Sequence[ErrorLine], metrics: Sequence[str], printed_beside: Sequence[str] = ()
) -> str:
    """One table per stream: a row per epsilon and method.

    Args:
        printed_beside: metrics after whose column the printed number stands.
    """
    heads = ["epsilon", "method"]
    for metric in metrics:
        heads += [metric, "paper"] if metric in printed_beside else [metric]
    blocks = []
    for stream in dict.fromkeys(line.stream for line in lines):
        rows: dict[tuple[str, str], dict[str, ErrorLine]] = {}
        for line in lines:
            if line.stream == stream:
                rows.setdefault((line.epsilon, line.method), {})[line.metric] = line
        block = [f"### {stream}", "", _row(heads), _row(["---"] * len(heads))]
        for (epsilon, method), found in sorted(rows.items(), key=lambda item: Fraction(item[0][0])):
            any_line = next(iter(found.values()))
            cells = [epsilon, f"{method} (once, final table)" if any_line.once else method]
            for metric in metrics:
                cells.append(found[metric].text)
                if metric in printed_beside:
                    cells.append(_paper(found[metric].published))
            block.append(_row(cells))
        blocks.append("\n".join(block))
    return "\n\n".join(blocks) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _paper(found: PrintedNumber | None) -> str:
    """A number in print; a surely misprinted one is struck through; blank where there is none."""
    if found is None:
        return ""
    return f"{found.value:.4f}" if found.target else f"~~{found.value:.4f}~~"


def at_or_below_print(lines: Sequence[ErrorLine], metric: str) -> dict[str, tuple[int, int]]:
    """Method -> (in how many places ours is at or below the printed number, number of places)."""
    counts: dict[str, tuple[int, int]] = {}
    for line in lines:
        paper = line.published
        if line.metric == metric and paper is not None and paper.target and line.mean is not None:
            below, of = counts.get(line.method, (0, 0))
            counts[line.method] = (below + (line.mean <= paper.value), of + 1)
    return counts
