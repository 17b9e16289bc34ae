"""``dpstream.toml``: read, checked, and turned into plan, source and stream. See README.md in this folder."""

from __future__ import annotations

from dpstream.config.config import Config
from dpstream.config.description import describe, guarantee
from dpstream.config.feed import Pending, expected_steps, pending_steps
from dpstream.config.keys import KEYS, MECHANISMS, SECTIONS, Key
from dpstream.config.reader import Used
from dpstream.config.sections import BudgetOptions, OutputOptions
from dpstream.config.watch import Watch

__all__ = [
    "KEYS",
    "MECHANISMS",
    "SECTIONS",
    "BudgetOptions",
    "Config",
    "Key",
    "OutputOptions",
    "Pending",
    "Used",
    "Watch",
    "describe",
    "expected_steps",
    "guarantee",
    "pending_steps",
]
