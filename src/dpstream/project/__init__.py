"""``dpstream.toml``: read, checked, and turned into plan, source and stream. See README.md in this folder."""

from __future__ import annotations

from dpstream.project.config import Config
from dpstream.project.description import describe, guarantee
from dpstream.project.due_steps import Watch
from dpstream.project.keys import KEYS, MECHANISMS, SECTIONS, Key
from dpstream.project.pending import Pending, expected_steps, pending_steps
from dpstream.project.reader import Used
from dpstream.project.sections import BudgetOptions, OutputOptions

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
