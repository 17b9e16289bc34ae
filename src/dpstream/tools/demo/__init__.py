"""One command from nothing to a picture: simulate, run, compare. See README.md in this folder."""

from __future__ import annotations

from dpstream.tools.demo.demo_run import run_demo
from dpstream.tools.demo.series import Line, Panel, Series, compare

__all__ = ["Line", "Panel", "Series", "compare", "run_demo"]
