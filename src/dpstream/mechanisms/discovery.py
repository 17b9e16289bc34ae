"""Which values of a column enter at the end of a discovery epoch, with their noisy counts.

Trusted base: kernel (which values are published).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dpstream.core.contracts import UndiscoveredCounts
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.core.privacy.discovery import Threshold
from dpstream.core.schema.discrete import Found
from dpstream.core.schema.pattern import Pattern, may_enter

#: Counts that get noise at a time.
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Rule:
    """How one discovery epoch of a column is published. Public.

    Attributes:
        known: values that have entered already, and those that are there from the beginning.
        pattern: the universe of a threshold without a delta; other values are never counted.
        most: only so many of the values enter, by their noisy counts; None: all.
    """

    threshold: Threshold
    known: frozenset[str] = frozenset()
    pattern: Pattern | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.threshold.universe != (self.pattern.size if self.pattern else None):
            raise ConfigError("the threshold is for other values", where="discovery")

    def publish(self, counts: Iterable[tuple[str, int]], randomness: Randomness) -> list[tuple[str, int]]:
        """The values that enter, with their noisy counts, in the order of the values.

        Guarantee: the threshold's (docs/theory/discovery.md). What is returned is a function of the set of values that
        pass: the order in which they came does not show.

        Args:
            counts: each value once, with how often it occurs in the epoch; private, read once.
        """
        passed, tau, noise = dict[str, int](), self.threshold.tau, self.threshold.noise
        if self.pattern is not None:
            assert isinstance(noise, DiscreteLaplace)
            drawn = randomness.exceeding(noise, tau, self.pattern.size)
            passed = {value: n for rank, n in drawn if (value := self.pattern.value(rank)) not in self.known}
        # A count of 0 is never looked at.
        occurring = ((value, count) for value, count in counts if count > 0 and self._fits(value))
        while block := list(islice(occurring, _BLOCK)):
            exact = np.array([count for _, count in block], dtype=np.int64)
            noisy = randomness.measure(exact, noise).tolist()
            for (value, _), number in zip(block, noisy, strict=True):
                # What a pattern's value got as if it did not occur is not used.
                passed.pop(value, None)
                if number > tau:
                    passed[value] = number
        chosen = sorted(passed, key=lambda value: (-passed[value], value))[: self.most]
        return [(value, passed[value]) for value in sorted(chosen)]

    def _fits(self, value: str) -> bool:
        if value in self.known:
            return False
        return may_enter(value) if self.pattern is None else self.pattern.rank(value) is not None


def entering(
    rules: Mapping[str, Rule],
    counts: UndiscoveredCounts | None,
    span: tuple[int, int],
    randomness: Randomness,
) -> dict[str, list[Found]]:
    """The values of each column that enter with the step after a discovery epoch, with their noisy counts.

    Args:
        span: the epoch before, and this one, by their last steps.

    Errors:
        ConfigError: the batch grants no values; nothing was drawn.
    """
    if counts is None:
        what = "the batch lacks the values of its records"
        raise ConfigError(what, where="mechanism", allowed="a stream of dp.open")
    begun, end = span
    passed = {column: rule.publish(counts.of(column, begun), randomness) for column, rule in rules.items()}
    found = {column: [Found(value, end + 1, n) for value, n in values] for column, values in passed.items()}
    return {column: values for column, values in found.items() if values}
