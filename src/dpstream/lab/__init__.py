"""Audits and reproductions of the papers; loaded on use only. See README.md in this folder."""

from __future__ import annotations

__all__: list[str] = []
