"""Convex losses of a margin ``m = y <x, theta>``: 1-Lipschitz, smooth."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError

Floats = NDArray[np.float64]
LossName = Literal["logistic", "svm"]


class Loss(ABC):
    """``value`` is convex and does not rise; ``slope`` is its derivative, in [-1, 0].

    Attributes:
        smoothness: Lipschitz constant of ``slope``.
        at_zero: ``value(0)``, rounded up.
        rounding: ``slope`` is computed to within ``rounding (1 + |m|)`` units of 2^-53.
    """

    smoothness: float
    at_zero: float
    rounding: float

    @abstractmethod
    def value(self, margins: Floats) -> Floats:
        """The loss of each margin."""

    @abstractmethod
    def slope(self, margins: Floats) -> Floats:
        """The derivative of the loss."""


class Logistic(Loss):
    """``log(1 + exp(-m))``."""

    smoothness = 0.25
    at_zero = math.nextafter(math.log(2.0), 1.0)
    # exp is right to 4 units in every common library, and the quotient adds two; the rest is a margin.
    rounding = 16.0

    def value(self, margins: Floats) -> Floats:
        return np.logaddexp(0.0, -margins)

    def slope(self, margins: Floats) -> Floats:
        # exp(-|m|) cannot overflow; both branches are quotients of positive numbers without cancellation.
        small = np.exp(-np.abs(margins))
        return -np.where(margins > 0.0, small, 1.0) / (1.0 + small)


class Huber(Loss):
    """The hinge ``max(0, 1 - m)`` with its corner rounded off between ``1/2`` and ``3/2`` (Chapelle 2007)."""

    smoothness = 1.0
    at_zero = 1.0
    rounding = 16.0
    #: Half the width of the rounded corner.
    WIDTH = 0.5

    def value(self, margins: Floats) -> Floats:
        corner = (1.0 + self.WIDTH - margins) ** 2 / (4.0 * self.WIDTH)
        return np.where(
            margins > 1.0 + self.WIDTH, 0.0, np.where(margins < 1.0 - self.WIDTH, 1.0 - margins, corner)
        )

    def slope(self, margins: Floats) -> Floats:
        return -np.clip((1.0 + self.WIDTH - margins) / (2.0 * self.WIDTH), 0.0, 1.0)


def loss_by_name(name: str) -> Loss:
    """The loss that is called ``logistic`` or ``svm``.

    Errors:
        ConfigError: another name.
    """
    if name not in get_args(LossName):
        raise ConfigError(f"unknown loss {name!r}", where="loss", allowed=", ".join(get_args(LossName)))
    return Logistic() if name == "logistic" else Huber()
