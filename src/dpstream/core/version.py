"""The version of this program, below everything that prints it."""

from __future__ import annotations

__version__ = "0.1.0"
