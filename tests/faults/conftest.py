"""Scripts (``make faults``), and a test of what they plant."""

from __future__ import annotations

collect_ignore = ["audited.py", "plant.py", "planted.py"]
