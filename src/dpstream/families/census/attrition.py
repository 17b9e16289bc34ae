"""Which values leave sooner: a cohort that grows old looks less and less like it did when it was counted. Public.

A record with values x is taken to leave at its level's hazard times ``exp(sum of the pulls of its values)``. To first
order in the pulls, a cohort of exposure e (hazard times steps since it was counted) then looks like its model times
``exp(-e * pull)`` for each value: factors of single columns, which a graphical model takes exactly. A census of a
higher level counts again who was counted before, and shows how the columns have moved meanwhile: a linear regression.
How large pulls are beforehand is unknown: regressions for several sizes, none among them, run side by side, and the
likeliest is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model
from dpstream.core.schema.domain import Domain

_Floats = NDArray[np.float64]

#: Variance of a pull before anything is known of it, in each regression.
PRIORS: _Floats = np.array([0.0, 0.01, 0.05, 0.25])
#: What a pull drifts from one census of a higher level to the next, in parts of that.
_DRIFT = 0.02
#: A cohort does not go on changing: who leaves soon has left. More exposure than this has no effect.
_LARGEST_EXPOSURE = 1.5
#: Columns with more values together are not followed.
_MOST_CELLS = 600
#: A share that is predicted is wrong by about this part besides.
_MISFIT = 0.02


@dataclass(frozen=True)
class Aged:
    """A part of the records that a census counts: its model when it was counted, its weight, and its exposure."""

    model: Model
    weight: float
    exposure: float


@dataclass
class Attrition:
    """What is known of the pulls of all values, column by column.

    Attributes:
        pulls, variances: in each regression, shape (regressions, values).
        fits: logarithms of the regressions' likelihoods.
    """

    domain: Domain
    pulls: _Floats
    variances: _Floats
    fits: _Floats

    @classmethod
    def fresh(cls, domain: Domain) -> Attrition:
        """Nothing is known."""
        shape = (len(PRIORS), sum(domain.sizes))
        variances = np.repeat(PRIORS[:, None], shape[1], axis=1)
        return cls(domain, np.zeros(shape), variances, np.zeros(len(PRIORS)))

    @property
    def best(self) -> int:
        """The likeliest regression; the smallest pulls where several are."""
        return int(self.fits.argmax())

    def aged(self, model: Model, exposure: float, regression: int | None = None) -> Model:
        """What is left of the records of a model, with the model's total."""
        pulls = self.pulls[self.best if regression is None else regression]
        if exposure <= 0.0 or not pulls.any():
            return model
        potentials = model.potentials
        potentials[: len(pulls)] -= min(exposure, _LARGEST_EXPOSURE) * pulls
        return Model(model.tree, potentials, model.total, cliques=model.cliques, report=model.report)

    def learn(
        self, parts: Sequence[Aged], columns: Sequence[int], found: Sequence[_Floats], noise: _Floats
    ) -> None:
        """Take in some columns' shares in a census of records that were counted before.

        Args:
            parts: what the records are made of.
            found: each column's shares as measured.
            noise: the variance of one of them, for each column; infinite: not measured.
        """
        if self.pulls.shape[1] > _MOST_CELLS:
            return
        sizes = self.domain.sizes
        starts = np.concatenate([[0], np.cumsum(sizes)])
        seen = [
            (column, own, v)
            for column, own, v in zip(columns, found, noise.tolist(), strict=True)
            if v < np.inf
        ]
        if not seen:
            return
        place = np.concatenate([np.arange(starts[c], starts[c + 1]) for c, _, _ in seen])
        shares = np.concatenate([own + (1.0 - own.sum()) / len(own) for _, own, _ in seen])
        spread = np.concatenate([np.full(sizes[c], v) for c, _, v in seen])
        for number, prior in enumerate(PRIORS.tolist()):
            self._regress(number, prior, parts, place, shares, spread)
        self.fits = self.fits - self.fits.max()

    def _regress(
        self,
        number: int,
        prior: float,
        parts: Sequence[Aged],
        place: NDArray[np.int64],
        shares: _Floats,
        spread: _Floats,
    ) -> None:
        """One regression's share of ``learn``."""
        expected, slope = self._expected(parts, number)
        expected, slope = expected[place], slope[place]
        surprise = shares - expected
        variances = np.minimum(self.variances[number] + _DRIFT * prior, prior)
        with_pulls = slope * variances
        seen = with_pulls @ slope.T + np.diag(spread + (_MISFIT * expected) ** 2)
        weighed = np.linalg.solve(seen, np.column_stack([surprise, with_pulls]))
        self.fits[number] -= 0.5 * (np.linalg.slogdet(seen)[1] + surprise @ weighed[:, 0])
        gain = weighed[:, 1:].T
        self.pulls[number] += gain @ surprise
        self.variances[number] = np.maximum(variances - np.einsum("ij,ji->i", gain, with_pulls), 0.0)

    def _expected(self, parts: Sequence[Aged], regression: int) -> tuple[_Floats, _Floats]:
        """The columns' shares in all parts together, and how they change with the pulls."""
        whole, cells = sum(part.weight for part in parts), self.pulls.shape[1]
        expected, slope = np.zeros(cells), np.zeros((cells, cells))
        for part in parts:
            shares, together = self._shares(self.aged(part.model, part.exposure, regression))
            weight, exposure = part.weight / whole, min(part.exposure, _LARGEST_EXPOSURE)
            expected += weight * shares
            slope -= weight * exposure * (together - np.outer(shares, shares))
        return expected, slope

    def _shares(self, model: Model) -> tuple[_Floats, _Floats]:
        """The columns' distributions, and the joint ones of all pairs of values."""
        sizes, columns = self.domain.sizes, len(self.domain.sizes)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        one = model.with_total(1.0)
        shares = one.marginals([(i,) for i in range(columns)])
        pairs = [(i, j) for i in range(columns) for j in range(i + 1, columns)]
        together = np.zeros((starts[-1], starts[-1]))
        for (i, j), table in zip(pairs, one.marginals(pairs), strict=True):
            block = table.reshape(sizes[i], sizes[j])
            together[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
            together[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
        joined = np.concatenate(shares)
        np.fill_diagonal(together, joined)
        return joined, together
