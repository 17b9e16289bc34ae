"""From committed rows to published files."""

from __future__ import annotations

__all__: list[str] = []
