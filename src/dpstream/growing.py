"""Recipes of growing databases: schedules, black boxes, and questions asked one after the other."""

from __future__ import annotations

from dpstream.families.growing import (
    ERM,
    PMWG,
    BBImprover,
    BBScheduler,
    BlackBox,
    LinearQuery,
    MWEMPGMBox,
    OwnMechanism,
    SmallDB,
)

__all__ = [
    "ERM",
    "PMWG",
    "BBImprover",
    "BBScheduler",
    "BlackBox",
    "LinearQuery",
    "MWEMPGMBox",
    "OwnMechanism",
    "SmallDB",
]
