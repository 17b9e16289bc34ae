"""Which values of a column enter at the end of a discovery epoch, with their noisy counts.

Trusted base: kernel (which values are published).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import islice

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.core.privacy.discovery import Threshold
from dpstream.core.schema.pattern import Pattern, may_enter

#: Counts that get noise at a time.
_BLOCK = 1 << 16


def discovered(
    counts: Iterable[tuple[str, int]],
    threshold: Threshold,
    randomness: Randomness,
    *,
    known: Container[str] = frozenset(),
    pattern: Pattern | None = None,
    most: int | None = None,
) -> list[tuple[str, int]]:
    """The values that enter, with their noisy counts, in the order of the values.

    Guarantee: the threshold's, for one discovery epoch and one column (docs/theory/discovery.md). What is returned is a
    function of the set of values that pass: the order in which they came does not show.

    Args:
        counts: each value once, with how often it occurs in the epoch; private, read once.
        known: values that have entered already, and public ones: public.
        pattern: the universe of a threshold without a delta; other values are never counted.
        most: only so many of the values enter, by their noisy counts.
    """
    if threshold.universe != (pattern.size if pattern else None):
        raise ConfigError("the threshold is for other values", where="discovery")
    passed = dict[str, int]()
    if pattern is not None:
        assert isinstance(threshold.noise, DiscreteLaplace)
        drawn = randomness.exceeding(threshold.noise, threshold.tau, pattern.size)
        passed = {value: noisy for rank, noisy in drawn if (value := pattern.value(rank)) not in known}

    def fits(value: str) -> bool:
        return value not in known and (
            may_enter(value) if pattern is None else pattern.rank(value) is not None
        )

    # A count of 0 is never looked at.
    occurring = ((value, count) for value, count in counts if count > 0 and fits(value))
    while block := list(islice(occurring, _BLOCK)):
        exact = np.array([count for _, count in block], dtype=np.int64)
        noisy = randomness.measure(exact, threshold.noise)
        for (value, _), sum_ in zip(block, noisy.tolist(), strict=True):
            # What a pattern's value got as if it did not occur is not used.
            passed.pop(value, None)
            if sum_ > threshold.tau:
                passed[value] = sum_
    chosen = sorted(passed, key=lambda value: (-passed[value], value))[:most]
    return [(value, passed[value]) for value in sorted(chosen)]
