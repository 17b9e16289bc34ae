"""Whether a stream publishes just what its transcript holds: every noisy vector that was drawn, once, and no other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, Synthesis
from dpstream.core.privacy import AnyNoise


def only_drawn(drawn: Iterable[tuple[AnyNoise, NDArray[np.int64]]], counts: Sequence[NoisyCounts]) -> bool:
    """Whether noisy counts are what an audit recorded, value by value and in this order, under names of their own.

    Args:
        drawn: the noise and the released values of every draw.
    """
    recorded = list(drawn)
    return (
        len(recorded) == len(counts)
        and len({one.draw for one in counts}) == len(counts)
        and all(
            one.noise == noise and np.array_equal(one.values, values)
            for (noise, values), one in zip(recorded, counts, strict=True)
        )
    )


def released_arrays(synthesis: Synthesis) -> list[NDArray[Any]]:
    """All that one step releases: its packed form (totals, standard errors, whole models), what its manifest says of
    errors, and its noisy counts."""
    packed = synthesis.pack()
    facts = np.frombuffer(repr((packed.meta, synthesis.accuracy())).encode(), np.uint8)
    return [facts, *packed.arrays.values(), published_lines(synthesis)]


def published_lines(synthesis: Synthesis) -> NDArray[np.uint8]:
    """The file of noisy counts of one step, as bytes that an audit compares."""
    lines = "\n".join(one.line() for one in synthesis.noisy_counts)
    return np.frombuffer(lines.encode(), np.uint8)
