"""Kinds of streams: one folder each. See README.md in this folder."""

from __future__ import annotations

__all__: list[str] = []
