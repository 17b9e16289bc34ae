"""Where private records come from, and where releases go. See README.md in this folder."""

from __future__ import annotations

__all__: list[str] = []
