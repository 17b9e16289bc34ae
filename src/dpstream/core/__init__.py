"""What every family stands on: errors, privacy, schemas, counts, counters, models, contracts. See README.md."""

from __future__ import annotations

__all__: list[str] = []
