"""Makes the shared stays of these tests importable by name (tests are no packages)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
