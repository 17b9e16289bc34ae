"""What is known of a side's marginals from the epochs so far. Public: everything follows from released values.

A column's distribution is taken to walk at random from epoch to epoch; an epoch's records are a sample from it; some
epochs measured it, with noise. The best linear estimate of the running sum is a weighted sum of the measurements, with
weights from public variances: what a Kalman filter and smoother over the epochs would give, written as one small linear
system. How fast a column walks is judged by the likelihood of what was measured.

Of a wider marginal the same is done with what it has beside the model and its columns in each epoch: what is measured
once tells of all epochs. Where that drifts, it says nothing of other epochs: the sum of what the epochs gave is kept.

As long as the columns are found not to drift, epochs need not measure all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StoreDamagedError
from dpstream.families.tabular.workload_cells import Cells

__all__ = ["ARRAYS", "Epoch", "Estimates"]

#: Names of the arrays that hold ``Estimates``.
ARRAYS = ("records", "ends", "epochs", "marginals", "variances", "measured", "sums", "variance", "steady")

_Floats = NDArray[np.float64]

#: The drifts that are compared: how far a distribution walks over the whole stream, as the sum of its cells' variances.
_DRIFTS = np.concatenate(([0.0], 10.0 ** np.arange(-3.0, 3.5, 1.0)))
#: From this drift on, a marginal of several columns says nothing of other epochs.
_FLEETING_DRIFT = 0.01
#: How many rounds estimate how common each drift is.
_DRIFT_ROUNDS = 20
#: How many sweeps move a marginal to its columns.
_COLUMN_SWEEPS = 2
#: Columns are steady if each has a lasting drift with less than this probability.
_STEADY_BELOW = 0.5


@dataclass(frozen=True)
class Epoch:
    """What one epoch's run gave.

    Attributes:
        values: of every followed marginal, all cells: as measured, or the answer of the epoch's model.
        variance: per marginal, of the noise in one cell of a measurement; of the others what is assumed of an answer.
        measured: which marginals were measured.
        records: noisy number of events.
    """

    values: _Floats
    variance: _Floats
    measured: NDArray[np.bool_]
    records: float


@dataclass
class Estimates:
    """All measurements, and the running sums.

    Attributes:
        records: noisy number of events of each epoch.
        ends: steps at which epochs ended.
        epochs, marginals, variances: of each measurement: its epoch and marginal, and the variance of its noise.
        measured: the measurements' cells.
        sums: of all epochs' values, measured or answered (all cells), and ``variance`` of one cell (per marginal).
        steady: whether the last ``answer`` found that no column drifts.
    """

    cells: Cells
    sums: _Floats
    variance: _Floats
    records: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    marginals: list[int] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    measured: list[_Floats] = field(default_factory=list)
    steady: bool = False

    @classmethod
    def fresh(cls, cells: Cells) -> Estimates:
        """The estimates before the first epoch."""
        return cls(cells, np.zeros(cells.total), np.zeros(len(cells.cliques)))

    def add(self, epoch: Epoch, end: int) -> None:
        """Take in one epoch that ended at a step."""
        for index in np.flatnonzero(epoch.measured).tolist():
            self.epochs.append(len(self.records))
            self.marginals.append(index)
            self.variances.append(float(epoch.variance[index]))
            self.measured.append(epoch.values[self.cells.part(index)].copy())
        # An epoch without (noisily) any record says nothing about a distribution.
        self.records.append(max(epoch.records, 1.0))
        self.ends.append(end)
        self.sums += epoch.values
        self.variance += epoch.variance

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which marginals have been measured: all that is said of the others is a model's."""
        return np.bincount(self.marginals, minlength=len(self.cells.cliques)) > 0

    @property
    def seen(self) -> _Floats:
        """Number of events in the epochs that measured each marginal."""
        records = np.array(self.records)[self.epochs] if self.epochs else np.empty(0)
        events = np.bincount(self.marginals, weights=records, minlength=len(self.cells.cliques))
        return events.astype(np.float64)

    def answer(self, shape: _Floats) -> tuple[_Floats, _Floats]:
        """The estimate of every running sum (all cells), and the variance of its noise per cell (per marginal).

        Args:
            shape: a model's answer to all marginals, of any total.
        """
        values, variances = self.sums.copy(), self.variance.copy()
        owners = np.array(self.marginals, dtype=np.int64)
        known = np.flatnonzero(self.known).tolist()
        records = np.array(self.records)
        shares = np.maximum(shape, 1e-9)  # a noisy total may be nothing, or less
        shares /= np.repeat(np.add.reduceat(shares, self.cells.starts), self.cells.sizes)
        paths = {
            clique[0]: np.maximum(shares[self.cells.part(i)], 1e-6)
            for i, clique in enumerate(self.cells.cliques)
            if len(clique) == 1
        }
        for wide in (False, True):
            group = [i for i in known if (len(self.cells.cliques[i]) > 1) == wide]
            if not group:
                continue
            bases = [self._base(i, shares, paths) for i in group]
            walks = [
                self._walk(np.flatnonzero(owners == i), base, shares[self.cells.part(i)])
                for i, base in zip(group, bases, strict=True)
            ]
            likelihood = np.array([walk.likelihood for walk in walks])
            drifts = _choose(likelihood)
            if not wide:
                self.steady = _steady(likelihood)
            for i, base, walk, drift in zip(group, bases, walks, drifts, strict=True):
                if wide and _DRIFTS[drift] >= _FLEETING_DRIFT:
                    continue
                path, variances[i] = walk.path(drift)
                path += base
                values[self.cells.part(i)] = records @ path
                if not wide:
                    paths[self.cells.cliques[i][0]] = np.maximum(path, 1e-6)
        return values, variances

    def _base(self, index: int, shares: _Floats, paths: dict[int, _Floats]) -> _Floats:
        """What a marginal's columns let expect of it in every epoch: a model's answer, moved to the columns there."""
        clique, own = self.cells.cliques[index], shares[self.cells.part(index)]
        if len(clique) == 1:
            return np.zeros((len(self.records), len(own)))
        positive = np.maximum(own, 1e-9)
        sizes = self.cells.workload.domain.shape(clique)
        table = np.repeat(positive[None], len(self.records), axis=0).reshape(-1, *sizes)
        for axis, column in list(enumerate(clique, 1)) * _COLUMN_SWEEPS:
            others = tuple(a for a in range(1, table.ndim) if a != axis)
            table *= np.expand_dims(paths[column] / table.sum(axis=others), others)
        base = table.reshape(len(self.records), -1)
        return np.asarray(base / base.sum(axis=1, keepdims=True))

    def _walk(self, mine: NDArray[np.int64], base: _Floats, shares: _Floats) -> _Walk:
        """The measurements of one marginal as a walk."""
        at, records = np.array(self.epochs)[mine], np.array(self.records)
        ends = np.array(self.ends, dtype=np.float64)
        return _Walk(
            at=at,
            times=(ends + np.append(0.0, ends[:-1])) / (2.0 * ends[-1]),
            apart=np.array([self.measured[j] for j in mine]) / records[at, None] - base[at],
            noise=np.array(self.variances)[mine] / records[at] ** 2,
            records=records,
            diversity=max(1.0 - float(shares @ shares), 0.0),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """These estimates, exactly, as arrays."""
        return {
            "records": np.array(self.records, dtype=np.float64),
            "ends": np.array(self.ends, dtype=np.int64),
            "epochs": np.array(self.epochs, dtype=np.int64),
            "marginals": np.array(self.marginals, dtype=np.int64),
            "variances": np.array(self.variances, dtype=np.float64),
            "measured": np.concatenate([np.empty(0), *self.measured]),
            "sums": self.sums,
            "variance": self.variance,
            "steady": np.array([self.steady]),
        }

    @classmethod
    def of(cls, cells: Cells, arrays: dict[str, NDArray[Any]]) -> Estimates:
        """The inverse of ``arrays``; StoreDamagedError if they do not fit the marginals."""
        sizes = cells.sizes[arrays["marginals"]]
        wanted = {
            "measured": int(sizes.sum()),
            "sums": cells.total,
            "variance": len(cells.cliques),
            "steady": 1,
        }
        wanted |= {name: len(sizes) for name in ("epochs", "variances")} | {"ends": len(arrays["records"])}
        if any(len(arrays[name]) != size for name, size in wanted.items()):
            raise StoreDamagedError("the measurements of epochs do not fit the workload", where="state")
        parts = np.split(arrays["measured"].copy(), np.cumsum(sizes)[:-1]) if len(sizes) else []
        lists = {name: arrays[name].tolist() for name in ARRAYS[:5]}
        lists |= {"measured": parts, "steady": bool(arrays["steady"][0])}
        return cls(cells, arrays["sums"].copy(), arrays["variance"].copy(), **lists)


@dataclass(frozen=True)
class _Walk:
    """One marginal's measurements, as distributions less their bases; everything for all drifts at once.

    Attributes:
        at: epochs that measured it; ``noise``: variances there.
        times: the middles of all epochs, as shares of the stream; ``records``: their events.
        diversity: ``1 - sum p^2``: a sampled record's variance, of all cells together.
    """

    at: NDArray[np.int64]
    times: _Floats
    apart: _Floats
    noise: _Floats
    records: _Floats
    diversity: float

    @cached_property
    def sampling(self) -> _Floats:
        """Variance of an epoch's records around their distribution, of one cell on average."""
        return np.asarray(self.diversity / (self.apart.shape[1] * self.records))

    @cached_property
    def walk(self) -> _Floats:
        """The covariance of a walk of drift 1."""
        return np.asarray(np.minimum(self.times[:, None], self.times) / self.apart.shape[1])

    @cached_property
    def inverse(self) -> _Floats:
        """The inverse of the measurements' covariance, for every drift."""
        own = np.diag(self.sampling[self.at] + self.noise)
        return np.asarray(np.linalg.inv(_DRIFTS[:, None, None] * self.walk[np.ix_(self.at, self.at)] + own))

    @cached_property
    def likelihood(self) -> _Floats:
        """The logarithm of each drift's likelihood, where the walk may begin anywhere."""
        ones = self.inverse.sum(axis=2)
        precision = ones.sum(axis=1)
        apart = self.inverse - ones[:, :, None] * ones[:, None, :] / precision[:, None, None]
        spread = np.log(precision) - np.linalg.slogdet(self.inverse)[1]
        squares = np.einsum("gij,ij->g", apart, self.apart @ self.apart.T)
        return np.asarray(-0.5 * (self.apart.shape[1] * spread + squares))

    def path(self, drift: int) -> tuple[_Floats, float]:
        """The distance from the base in every epoch, and the variance of one cell of its sum over all events."""
        inverse, walk = self.inverse[drift], _DRIFTS[drift] * self.walk
        shared = walk[:, self.at]
        shared[self.at, np.arange(len(self.at))] += self.sampling[
            self.at
        ]  # an epoch's own sample is in the sum
        ones = inverse.sum(axis=0)
        plain = shared @ inverse
        missing = 1.0 - plain.sum(axis=1)
        weights = plain + np.outer(missing, ones / ones.sum())
        records, together = self.records, self.records @ shared
        variance = (
            records @ walk @ records + (records**2 * self.sampling).sum() - together @ inverse @ together
        )
        variance += (records @ missing) ** 2 / ones.sum()
        return weights @ self.apart, max(float(variance), 0.0)


def _choose(likelihood: _Floats) -> list[int]:
    """The drift of each marginal: its likelihood times how common each drift is (empirical Bayes)."""
    scaled = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    common = np.full(likelihood.shape[1], 1.0 / likelihood.shape[1])
    for _ in range(_DRIFT_ROUNDS):
        own = scaled * common
        # One marginal more in which every drift is as likely.
        counted = (own / own.sum(axis=1, keepdims=True)).sum(axis=0) + 1.0 / len(common)
        common = counted / counted.sum()
    return [int(drift) for drift in (scaled * common).argmax(axis=1)]


def _steady(likelihood: _Floats) -> bool:
    """Whether no column drifts: the data have to say so. With few or noisy epochs any drift is as likely as none.

    Every column for itself, all drifts as likely beforehand: the others must not outvote the one that drifts.
    """
    odds = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    drifting = odds[:, _DRIFTS >= _FLEETING_DRIFT].sum(axis=1) / odds.sum(axis=1)
    return bool(drifting.max() < _STEADY_BELOW)
