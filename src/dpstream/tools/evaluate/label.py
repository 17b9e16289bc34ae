"""The words that stand on every number which touches private truth."""

from __future__ import annotations

from typing import Final

#: On screen and in every file: such a number was computed from the private table itself, without noise.
LABEL: Final = "evaluation only, not releasable"
