"""Makes the shared parts of the small stream importable by name (tests are no packages)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("cli", "sources", "evaluate")]
