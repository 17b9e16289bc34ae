"""The laws of the two selections, for tests that compare what was chosen with what had to be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.select import _exponential_law, _flip_law, _read


def permute_and_flip_probabilities(
    numerators: Any, denominators: Any, *, epsilon: Any, sensitivity: Any
) -> NDArray[np.float64]:
    """Probability of every outcome of ``permute_and_flip``."""
    return _flip_law(_read(numerators, denominators, epsilon, sensitivity).near)


def exponential_probabilities(
    numerators: Any, denominators: Any, *, epsilon: Any, sensitivity: Any
) -> NDArray[np.float64]:
    """Probability of every outcome of ``exponential_mechanism``."""
    return _exponential_law(_read(numerators, denominators, epsilon, sensitivity).near)
