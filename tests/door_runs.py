"""Streams through the door of audits: the loss of a whole stream, and whether it publishes what it measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import AnyNoise, PureDP, Randomness
from dpstream.tools.audit.door import Door, Streamed, run_loss, stream_run


def stream_loss(
    plan: Streamed,
    base: Iterable[Any],
    neighbour: Iterable[Any],
    randomness: Randomness,
) -> float:
    """As ``run_loss``, of a stream, in the unit of the plan's budget."""
    runs = stream_run(plan, base), stream_run(plan, neighbour)
    return run_loss(*runs, randomness, pure=isinstance(plan.budget, PureDP)).total


def drawn_and_published(
    plan: Streamed, batches: Iterable[Any], randomness: Randomness
) -> tuple[list[tuple[AnyNoise, NDArray[np.int64]]], list[NoisyCounts]]:
    """What a stream measures, as its door has it; and what it publishes of it."""
    door, state, published = Door(randomness.coins("a test", 4).tobytes()), plan.start(), list[NoisyCounts]()
    for batch in batches:
        published += plan.step(state, batch, door).noisy_counts
    return [(one.noise, one.noisy) for one in door.measured], published


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
