"""What streams spent: accounts, verification, export."""

from __future__ import annotations

__all__: list[str] = []
