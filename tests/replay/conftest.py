"""Scripts, no tests: ``make replay`` runs them."""

from __future__ import annotations

collect_ignore_glob = ["*.py"]
