"""The recipe of streams of points."""

from __future__ import annotations

from dpstream.families.points import Points

__all__ = ["Points"]
