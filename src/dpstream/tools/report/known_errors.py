"""What is known of errors beside the verdicts, in sentences: measured columns, and all single counts by simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.io.sinks.simulated_errors import SimulatedErrors, error_steps, simulated_errors, t_within
from dpstream.stream.release.verdicts import Use
from dpstream.tools.report.collect import ReportedRun
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import integer

#: Of so many counts the range on the card holds the truth.
_PART = 0.95


def beside_verdicts(releases: Path, step: int, measured: str | None = None) -> dict[Use, str]:
    """For the first card: what the verdicts on columns and pairs do not say; empty where there is nothing.

    Args:
        step: of the newest table.
        measured: how far the measured numbers of columns may be off, where how wrong the table's are is not known.

    Errors:
        StoreDamagedError: published errors that cannot be read.
    """
    known = [one for one in error_steps(releases) if one <= step]
    simulated = simulated_errors(releases, max(known)) if known else None
    if simulated is None:
        return {} if measured is None else {"columns": f"{measured}; the table's errors are not known"}
    found: dict[Use, str] = {}
    reaches: dict[Use, float | None] = {
        "columns": reach_of_counts(simulated, 1),
        "pairs": reach_of_counts(simulated, 2),
    }
    for use, reach in reaches.items():
        if reach is not None:
            when = "" if max(known) == step else f" as of step {max(known)}"
            found[use] = f"19 of 20 single counts to within {integer(reach)} records{when}"
    return found


def measured_words(run: ReportedRun, dates: Calendar) -> str | None:
    """How far the measured numbers of single columns may be off; None where none has an interval."""
    widths, ends = [], set()
    for name in run.schema.names:
        one = run.measured([name])
        if one is not None and not one.chosen:
            widths.append(float(one.law().half_width(_PART)))
            ends.add(one.as_of)
    if not widths:
        return None
    low, high = integer(min(widths)), integer(max(widths))
    to = low if low == high else f"{low} to {high}"
    when = f" as of {dates.name(ends.pop())}" if len(ends) == 1 else ""
    some = "" if len(widths) == len(run.schema) else f" of {len(widths)} columns"
    return f"measured numbers{some} are right to within {to} records{when}"


def reach_of_counts(found: SimulatedErrors, width: int) -> float | None:
    """In records: as far as 19 of 20 cells of all marginals of so many columns are off at most; None where none was
    simulated.

    Each cell is off by Student's t times its own standard error, as in the published intervals: this is the 95 %
    quantile of all of them together.
    """
    marginals = [one["columns"] for one in found.facts["cells"]["marginals"] if len(one["columns"]) == width]
    cells = [one.ravel() for names in marginals if (one := found.of_cells(names)) is not None]
    if not cells:
        return None
    errors: NDArray[np.float64] = np.concatenate(cells)
    runs = int(found.facts["runs"])
    low, high = 0.0, float(errors.max()) * 1e3
    if not high:
        return 0.0
    known = errors[errors > 0]
    for _ in range(60):
        middle = (low + high) / 2
        inside = (len(errors) - len(known) + t_within(middle / known, runs).sum()) / len(errors)
        low, high = (middle, high) if inside < _PART else (low, middle)
    return high
