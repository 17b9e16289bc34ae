"""Audits of dpstream itself and reproductions of the papers; loaded on use only. See README.md beside ``src``."""

from __future__ import annotations

__all__: list[str] = []
