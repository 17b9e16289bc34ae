"""What people do around a stream: simulate, evaluate, report. See README.md in this folder."""

from __future__ import annotations

__all__: list[str] = []
