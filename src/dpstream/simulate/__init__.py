"""Invented example streams with drift, deletions and odd values, ready to run, and an invented panel."""

from __future__ import annotations

from dpstream.simulate.example import Example
from dpstream.simulate.panel import PovertyPanel
from dpstream.simulate.write import EXAMPLES, simulate

__all__ = ["EXAMPLES", "Example", "PovertyPanel", "simulate"]
