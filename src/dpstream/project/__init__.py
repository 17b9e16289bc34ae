"""``dpstream.toml``: read, checked, and turned into plan, source and stream. See README.md in this folder."""

from __future__ import annotations

from dpstream.core.contracts import Key
from dpstream.project.config import Config
from dpstream.project.keys import SECTIONS
from dpstream.project.pending import (
    TakenStep,
    check_recheck,
    expected_steps,
    last_wanted,
    taken_steps,
)
from dpstream.project.planning import describe, guarantee
from dpstream.project.reader import EffectiveSetting
from dpstream.project.schema_file import read_schema, write_schema
from dpstream.project.sections import BudgetOptions
from dpstream.project.status import Watch
