"""The recipe of streams of points."""

from __future__ import annotations

from dpstream.families.points import (
    OnlinePoints,
    Points,
)

__all__ = ["OnlinePoints", "Points"]
