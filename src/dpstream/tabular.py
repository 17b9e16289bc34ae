"""Recipes: streams of tables, tables whose records change (``Census``), and single tables (``AIM``, ``MWEMPGM``)."""

from __future__ import annotations

from dpstream.families.census import Census
from dpstream.families.tabular import (
    AIM,
    MWEMPGM,
    Baseline,
    DPStabs,
    Pooled,
)

__all__ = ["AIM", "MWEMPGM", "Baseline", "Census", "DPStabs", "Pooled"]
