"""One self-contained page about a run. See ``write_report``."""

from __future__ import annotations

from dpstream.tools.report.report_writing import write_report

__all__ = ["write_report"]
