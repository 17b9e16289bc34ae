"""Invented example streams with drift, deletions and odd values, an invented panel, and an invented register."""

from __future__ import annotations

from dpstream.tools.simulate.example import Example
from dpstream.tools.simulate.poverty_panel import PovertyPanel
from dpstream.tools.simulate.stock import Stock
from dpstream.tools.simulate.write import EXAMPLES, simulate

__all__ = ["EXAMPLES", "Example", "PovertyPanel", "Stock", "simulate"]
