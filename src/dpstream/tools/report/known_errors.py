"""How far the measured numbers of single columns may be off, in a sentence."""

from __future__ import annotations

from dpstream.tools.report.collect import ReportedRun
from dpstream.tools.report.dates import Calendar
from dpstream.tools.report.markup import integer

#: The probability that an interval holds the truth.
_PART = 0.95


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
