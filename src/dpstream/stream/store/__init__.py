"""The durable, secret store of a stream."""

from __future__ import annotations

__all__: list[str] = []
