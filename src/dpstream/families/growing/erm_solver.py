"""Regularised empirical risk: its minimiser up to a distance that is certified, not assumed.

``F(theta) = (1/t) sum_i loss(y_i <x_i, theta>) + (lam/2) |theta|^2`` is ``lam``-strongly convex, so every point lies
within ``|grad F| / lam`` of the minimiser. The gradient is computed in floating point with a bound on its error that
holds for all data; a point is given out only where computed norm and bound together are small enough. The proofs, of
the bound and that such a point is always reached, are in docs/theory/erm.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import LimitError
from dpstream.families.growing.erm_features import FeatureMap
from dpstream.families.growing.erm_loss import Loss

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]

#: The relative rounding error of one operation.
_ROUNDING_UNIT = 2.0**-53
#: Records that one running sum takes: its rounding error grows with their number.
_CHUNK = 4096
#: How close to the minimiser, as a share of ``1 / (lam t)``, half of what one record can move it by.
_WANTED_SHARE = 2.0**-10
#: The largest distance that is allowed, in the same unit: beyond it the sensitivity would suffer.
_LARGEST_SHARE = 0.25


@dataclass(frozen=True)
class GradientCertificate:
    """What a point has to satisfy, from public numbers only.

    Args:
        features: the feature map; its dimension and block sizes enter.
        loss: the loss.
        lam: strength of the regularisation.
        t: number of records.
    """

    features: FeatureMap
    loss: Loss
    lam: float
    t: int

    @property
    def condition(self) -> float:
        """Smoothness over strong convexity of ``F``."""
        return 1.0 + self.loss.smoothness / self.lam

    @property
    def ball(self) -> float:
        """Twice the largest norm of a minimiser: ``(lam/2) |theta|^2 <= F(0) = loss(0)`` there."""
        return 2.0 * math.sqrt(2.0 * self.loss.at_zero / self.lam)

    @cached_property
    def rounding(self) -> float:
        """No computed gradient inside the ball is further than this from the exact one."""
        sizes = [len(block) for block in self.features.blocks]
        margin = self.loss.smoothness * (len(sizes) + max(sizes) + 4) * self.ball
        slope = self.loss.rounding * (1.0 + self.ball)
        sums = _CHUNK + self.t / _CHUNK + max(sizes) + 8
        regular = 4.0 * (1.0 + self.lam * self.ball)
        # Twice, for products of rounding errors and for the rounding of this very number.
        return 2.0 * _ROUNDING_UNIT * (margin + slope + sums + regular)

    @cached_property
    def gradient(self) -> float:
        """The largest exact norm of the gradient at a point that is given out: ``lam * distance``."""
        return max(_WANTED_SHARE / self.t, 8.0 * self.condition * self.rounding)

    @property
    def share(self) -> float:
        """Largest distance from the minimiser, as a share of ``1 / (lam t)``; at least ``gradient * t``."""
        return math.nextafter(self.gradient * self.t, math.inf)

    @property
    def usable(self) -> bool:
        """Whether the distance hardly adds to the sensitivity."""
        return self.share <= _LARGEST_SHARE

    def check(self) -> None:
        """Refuse sizes at which floating point cannot certify a useful distance; depends on public numbers only.

        Errors:
            LimitError: too many records, or too little regularisation.
        """
        if not self.usable:
            raise LimitError(
                "the minimiser cannot be certified in double precision with so many records and so little "
                "regularisation",
                where="erm",
                allowed=f"t * (1 + smoothness / lam) * 8 * {self.rounding:.1e} up to {_LARGEST_SHARE}",
            )

    def holds(self, point: Floats, gradient: Floats) -> bool:
        """Whether ``point``, with this computed gradient, is within the distance."""
        norm = float(np.linalg.norm(gradient)) * (1.0 + 1e-9)
        return norm + self.rounding <= self.gradient and float(np.linalg.norm(point)) <= 0.99 * self.ball


class Rows:
    """Different records with their multiplicities, in the columns that matter. Private.

    Attributes:
        columns: codes of each feature column. labels: 1 or -1. weights: multiplicities; they add up to ``total``.
    """

    def __init__(
        self, features: FeatureMap, columns: Sequence[Ints], labels: Floats, weights: Floats, total: int
    ) -> None:
        self.features, self.total = features, total
        self.columns, self.labels, self.weights = list(columns), labels, weights

    @classmethod
    def of_records(cls, features: FeatureMap, records: NDArray[np.int32]) -> Rows:
        """Rows made from codes of all columns, shape (records, columns)."""
        labels = features.labels(records)
        columns = [records[:, position] for position in features.positions]
        sizes = [2, *(len(block) for block in features.blocks)]
        if math.prod(sizes) >= 2**62:
            own = [np.ascontiguousarray(column) for column in columns]
            return cls(features, own, labels, np.ones(len(records)), len(records))
        keys = np.ravel_multi_index(((labels > 0).astype(np.int64), *columns), sizes)
        distinct, counts = np.unique(keys, return_counts=True)
        positive, *rest = np.unravel_index(distinct, sizes)
        weights = counts.astype(np.float64)
        return cls(features, rest, np.where(positive > 0, 1.0, -1.0), weights, len(records))

    @classmethod
    def of_counts(cls, features: FeatureMap, counts: NDArray[np.int64], total: int) -> Rows:
        """Rows made from the marginal of ``features.clique``, flat in C order."""
        clique = features.clique
        occupied = np.flatnonzero(counts)
        codes = dict(zip(clique, np.unravel_index(occupied, features.domain.shape(clique)), strict=True))
        target = codes[features.domain.index(features.target)]
        labels = np.where(target == features.positive, 1.0, -1.0)
        columns = [codes[position] for position in features.positions]
        return cls(features, columns, labels, counts[occupied].astype(np.float64), total)

    def margins(self, theta: Floats) -> Floats:
        """``y <x, theta>`` of each different record."""
        scores, constant = self.features.scores(theta)
        total = np.full(len(self.labels), constant)
        for column, score in zip(self.columns, scores, strict=True):
            total += score[column]
        return total * self.labels

    def gradient(self, loss: Loss, lam: float, theta: Floats) -> Floats:
        """The gradient of ``F`` at ``theta``; sums are cut into chunks, so that their rounding stays small."""
        pulls = loss.slope(self.margins(theta)) * self.labels * self.weights
        sums = [np.zeros(block.shape[0]) for block in self.features.blocks]
        total = 0.0
        for start in range(0, len(pulls), _CHUNK):
            part = slice(start, start + _CHUNK)
            total += float(pulls[part].sum())
            for sum_, column in zip(sums, self.columns, strict=True):
                sum_ += np.bincount(column[part], weights=pulls[part], minlength=len(sum_))
        return self.features.gathered(sums, total) / self.total + lam * theta


def minimise(rows: Rows, certificate: GradientCertificate) -> Floats:
    """A point within ``certificate.share / (lam t)`` of the exact minimiser.

    Accelerated gradient steps, then as many plain ones as the proof of termination needs.

    Cost: about ``sqrt(smoothness / lam) * log(t)`` passes over the different records.
    """
    root = math.sqrt(certificate.condition)
    momentum = (root - 1.0) / (root + 1.0)
    accuracy = math.log(8.0 * certificate.condition / certificate.gradient)
    accelerated, plain = math.ceil(4.0 * root * accuracy), math.ceil(4.0 * root * root * accuracy)
    for steps, weight in ((accelerated, momentum), (plain, 0.0)):
        point = _descend(rows, certificate, steps, weight)
        if point is not None:
            return point
    raise AssertionError("gradient descent ended outside the bounds of its proof")


def _descend(rows: Rows, certificate: GradientCertificate, steps: int, momentum: float) -> Floats | None:
    """A point for which the certificate holds, if gradient descent from the origin gets there in so many steps."""
    loss, lam = certificate.loss, certificate.lam
    length = 1.0 / (loss.smoothness + lam)
    before = point = np.zeros(certificate.features.dimension)
    for _ in range(steps + 1):
        gradient = rows.gradient(loss, lam, point)
        if certificate.holds(point, gradient):
            return point
        moved = point - length * gradient
        point, before = moved + momentum * (moved - before), moved
    return None


def risk(features: FeatureMap, loss: Loss, records: NDArray[np.int32], coefficients: Floats) -> float:
    """The mean loss over some records, without regularisation. Private where the records are."""
    margins = features.margins(records, coefficients) * features.labels(records)
    return float(loss.value(margins).mean())
