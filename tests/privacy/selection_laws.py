"""The laws of the two selections, for tests that compare what was chosen with what had to be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import ExponentialMechanism, PermuteAndFlip


def permute_and_flip_probabilities(
    numerators: Any, denominators: Any, *, epsilon: Any, sensitivity: Any
) -> NDArray[np.float64]:
    """Probability of every outcome of permute-and-flip."""
    return PermuteAndFlip(epsilon, sensitivity).probabilities(numerators, denominators)


def exponential_probabilities(
    numerators: Any, denominators: Any, *, epsilon: Any, sensitivity: Any
) -> NDArray[np.float64]:
    """Probability of every outcome of the exponential mechanism."""
    return ExponentialMechanism(epsilon, sensitivity).probabilities(numerators, denominators)
