"""Invented example streams with drift, deletions and odd values, ready to run, and an invented panel."""

from __future__ import annotations

from dpstream.tools.simulate.example import Example
from dpstream.tools.simulate.poverty_panel import PovertyPanel
from dpstream.tools.simulate.write import EXAMPLES, simulate

__all__ = ["EXAMPLES", "Example", "PovertyPanel", "simulate"]
