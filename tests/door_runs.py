"""Streams through the door of audits: the loss of a whole stream, and whether it publishes what it measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import AnyNoise, PureDP, Randomness
from dpstream.tools.audit.door import (
    Door,
    Loss,
    Run,
    Streamed,
    Wrap,
    as_it_is,
    published_lines,
    record,
    replay,
    stream_run,
    transcript_loss,
)


def run_loss(base: Run, other: Run, randomness: Randomness, *, pure: bool, wrap: Wrap = as_it_is) -> Loss:
    """The largest loss of one random transcript of ``base`` against ``other``; infinite where something is revealed
    beside the door."""
    first = record(base, randomness, wrap)
    second, differs = replay(other, first, wrap)
    return Loss(math.inf, 0.0) if differs else transcript_loss(first, second, pure=pure)


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


def published_beside(
    plan: Any, base: Iterable[Any], other: Iterable[Any], counted: set[str] | None = None
) -> str:
    """Why noisy counts of a stream are not exactly numbers that came out of its door; empty: they are.

    Args:
        other: records that have nothing in common with those of ``base`` but public facts.
        counted: gets what the noisy counts are about.
    """
    counts = list[NoisyCounts]()

    def run(batches: Iterable[Any]) -> Run:
        def steps(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
            state = plan.start()
            for batch in batches:
                made = plan.step(state, batch, randomness)
                counts.extend(made.noisy_counts)
                yield [published_lines(made)]

        return steps

    first = record(run(base), Randomness.seeded("published"))
    published = list(counts)
    if counted is not None:
        counted.update(one.counted for one in published)
    if len({one.draw for one in published}) != len(published):
        return "two noisy counts have one name"
    if not published:
        return "nothing is published"
    # A panel's window adds public people, which it does not publish.
    padding = getattr(plan, "padding", 0) if published[0].query["kind"] == "patterns" else 0
    single = [one for one in published if one.series is None]
    drawn = [(one.noise, (one.noisy - padding).tolist()) for one in first.door.measured]
    said, sums = [(one.noise, one.values.tolist()) for one in single], dict[Any, Any]()
    # Counters measure running sums, and each gain is published.
    if getattr(plan, "selector", None) is not None:
        for place, one in enumerate(single):
            key = one.counted, one.columns
            sums[key] = sums.get(key, 0) + one.values
            said[place] = one.noise, sums[key].tolist()
    if len(single) == len(published) and said != drawn:
        return "what is published is not what was measured"
    return replay(run(other), first)[1]
