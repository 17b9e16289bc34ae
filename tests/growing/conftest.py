"""The helpers beside these tests are imported by their names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
# The fault harness of the streams.
sys.path.insert(0, str(Path(__file__).parents[1] / "streams"))
