"""The file of noisy counts beside each release: what was measured at a step, one JSON object a line.

Nothing is ever taken out of it again: sums of later steps rest on it. It stays when a table expires or is withdrawn;
a step that is held publishes it with its table, and a step that was rejected publishes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpstream.core.contracts import NoisyCounts
from dpstream.io.sinks.publisher import MEASUREMENTS

__all__ = ["measurement_file"]


def measurement_file(noisy_counts: Sequence[NoisyCounts]) -> dict[str, bytes]:
    """The file by its name; no file where a step measured nothing."""
    if not noisy_counts:
        return {}
    return {MEASUREMENTS: "".join(f"{one.line()}\n" for one in noisy_counts).encode()}
