"""Recipes of streams of tables, and of single tables (``AIM``, ``MWEMPGM``)."""

from __future__ import annotations

from dpstream.families.tabular import (
    AIM,
    MWEMPGM,
    Baseline,
    DPStabs,
    Pooled,
)

__all__ = ["AIM", "MWEMPGM", "Baseline", "DPStabs", "Pooled"]
