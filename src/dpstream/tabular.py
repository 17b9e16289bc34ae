"""Recipes: streams of tables, tables whose records change (``Census``), and single tables (``AIM``, ``MWEMPGM``)."""

from __future__ import annotations

from dpstream.families.census import Census
from dpstream.families.tabular import Baseline, DPStabs, Pooled
from dpstream.mechanisms import AIM, MWEMPGM

__all__ = ["AIM", "MWEMPGM", "Baseline", "Census", "DPStabs", "Pooled"]
