"""Which exact selector a budget pays for.

Trusted base: kernel (the selection a budget pays for).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.select import exponential_mechanism, permute_and_flip, selection_epsilon


@dataclass(frozen=True)
class Selector:
    """Choose the (about) largest of some exact scores.

    Guarantee: ``budget`` for one choice. Pure: permute-and-flip, never worse than the exponential mechanism
    (McKenna, Sheldon 2020). zCDP: the exponential mechanism, whose range is bounded, so that
    ``rho = epsilon^2 / 8`` (Cesar, Rogers 2021).
    """

    budget: Budget

    def describe(self) -> str:
        """The selector's name."""
        return "permute-and-flip" if isinstance(self.budget, PureDP) else "exponential mechanism"

    def choose(
        self,
        numerators: NDArray[Any],
        denominators: NDArray[Any],
        allowed: Sequence[int] | NDArray[np.int64],
        sensitivity: Fraction,
        randomness: Randomness,
    ) -> int:
        """The index that is chosen among ``allowed`` (a public set)."""
        index = np.asarray(allowed, dtype=np.int64)
        if isinstance(self.budget, PureDP):
            choice = permute_and_flip(
                numerators[index],
                denominators[index],
                epsilon=self.budget.epsilon,
                sensitivity=sensitivity,
                randomness=randomness,
            )
        else:
            choice = exponential_mechanism(
                numerators[index],
                denominators[index],
                epsilon=selection_epsilon(self.budget.rho),
                sensitivity=sensitivity,
                randomness=randomness,
            )
        return int(index[choice])
