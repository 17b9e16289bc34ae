"""Scripts, no tests: ``make faults`` runs them."""

from __future__ import annotations

collect_ignore_glob = ["*.py"]
