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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StoreDamagedError
from dpstream.families.tabular.pooled_walks import (
    PLAIN,
    SEASONAL,
    VOLATILE_DRIFT,
    Hypotheses,
    Walk,
    choose,
    steady,
    waves,
)
from dpstream.families.tabular.workload_cells import Cells

#: Names of the arrays that hold ``Estimates``.
ARRAYS = ("records", "ends", "epochs", "marginals", "variances", "measured", "sums", "variance", "steady")

_Floats = NDArray[np.float64]

#: How many sweeps move a marginal to its columns.
_COLUMN_SWEEPS = 2


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
        steady: whether the last ``answer`` found that no column drifts; ``volatile``: the marginals of several columns
            that it found to drift (not kept).
        season: how many steps a season has that columns and rates of events may follow; None: none.
        spreads: with a season, the variance of the noise in each epoch's number of events.
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
    season: float | None = None
    spreads: list[float] = field(default_factory=list)
    volatile: list[int] = field(default_factory=list)

    @classmethod
    def fresh(cls, cells: Cells, season: float | None = None) -> Estimates:
        """The estimates before the first epoch."""
        return cls(cells, np.zeros(cells.total), np.zeros(len(cells.cliques)), season=season)

    def add(self, epoch: Epoch, end: int, spread: float = 0.0) -> None:
        """Take in one epoch that ended at a step; ``spread``: the variance of the noise in its number of events."""
        if self.season is not None:
            self.spreads.append(spread)
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

    def together(self, index: int) -> tuple[_Floats, float, float]:
        """See ``Evidence``: of the epochs that measured the marginal."""
        mine = [j for j, own in enumerate(self.marginals) if own == index]
        measured = np.sum([self.measured[j] for j in mine], axis=0)
        records = sum(self.records[self.epochs[j]] for j in mine)
        return measured, records, float(sum(self.variances[j] for j in mine))

    def answer(self, shape: _Floats) -> tuple[_Floats, _Floats]:
        """The estimate of every running sum (all cells), and the variance of its noise per cell (per marginal).

        Args:
            shape: a model's answer to all marginals, of any total.
        """
        values, variances = self.sums.copy(), self.variance.copy()
        owners = np.array(self.marginals, dtype=np.int64)
        known = np.flatnonzero(self.known).tolist()
        records, shares = np.array(self.records), self._shares(shape)
        paths = {
            clique[0]: np.maximum(shares[self.cells.part(i)], 1e-6)
            for i, clique in enumerate(self.cells.cliques)
            if len(clique) == 1
        }
        self.volatile = []
        for wide in (False, True):
            group = [i for i in known if (len(self.cells.cliques[i]) > 1) == wide]
            if not group:
                continue
            bases = [self._base(i, shares, paths) for i in group]
            walks = [
                self._walk(np.flatnonzero(owners == i), base, shares[self.cells.part(i)], wide=wide)
                for i, base in zip(group, bases, strict=True)
            ]
            likelihood = np.array([walk.likelihood for walk in walks])
            drifts = choose(likelihood)
            if not wide:
                self.steady = steady(likelihood, walks[0].hypotheses)
            for i, base, walk, drift in zip(group, bases, walks, drifts, strict=True):
                if wide and walk.hypotheses.drifts[drift] >= VOLATILE_DRIFT:
                    self.volatile.append(i)
                    continue
                path, variances[i] = walk.path(drift)
                path += base
                values[self.cells.part(i)] = records @ path
                if not wide:
                    paths[self.cells.cliques[i][0]] = np.maximum(path, 1e-6)
        return values, variances

    def _shares(self, shape: _Floats) -> _Floats:
        shares = np.maximum(shape, 1e-9)  # a noisy total may be nothing, or less
        shares /= np.repeat(np.add.reduceat(shares, self.cells.starts), self.cells.sizes)
        return shares

    def expected_rates(self, steps: Sequence[int]) -> _Floats:
        """How many events each of some later steps lets expect: the mean over all hypotheses, by their likelihood."""
        ends, records = np.array(self.ends, dtype=np.float64), np.array(self.records)
        rates = records / np.diff(ends, prepend=0.0)
        usual = float(rates.mean())
        walk = self._walk_of(
            np.arange(len(records)),
            (rates / usual)[:, None],
            np.array(self.spreads) / records**2,
            1.0,
            self._hypotheses(wide=False),
        )
        odds = np.exp(walk.likelihood - walk.likelihood.max())
        ahead = [walk.ahead(i, *self._ahead(steps))[:, 0] for i in range(len(odds))]
        return np.asarray(np.maximum(odds @ np.array(ahead) / odds.sum(), 0.0) * usual)

    def expected_columns(self, shape: _Floats, steps: Sequence[int]) -> _Floats:
        """The distribution of every column in some later steps, side by side: shape (steps, cells of the columns).

        Args:
            shape: a model's answer to all marginals, for columns that were never measured.
        """
        shares, owners = self._shares(shape), np.array(self.marginals, dtype=np.int64)
        columns = [i for i, clique in enumerate(self.cells.cliques) if len(clique) == 1]
        found = {i: np.repeat(shares[self.cells.part(i)][None], len(steps), axis=0) for i in columns}
        known = [i for i in columns if (owners == i).any()]
        walks = [
            self._walk(
                np.flatnonzero(owners == i), self._base(i, shares, {}), shares[self.cells.part(i)], wide=False
            )
            for i in known
        ]
        if walks:
            chosen = choose(np.array([walk.likelihood for walk in walks]))
            for i, walk, one in zip(known, walks, chosen, strict=True):
                path = np.maximum(walk.ahead(one, *self._ahead(steps)), 1e-6)
                found[i] = path / path.sum(axis=1, keepdims=True)
        return np.concatenate([found[i] for i in columns], axis=1)

    def _ahead(self, steps: Sequence[int]) -> tuple[_Floats, _Floats]:
        """Some later steps as times of a walk, and where they are in the season."""
        times = (np.array(steps, dtype=np.float64) - 0.5) / float(self.ends[-1])
        return times, waves(self.season, [step - 1 for step in steps], steps)

    def _hypotheses(self, *, wide: bool) -> Hypotheses:
        return PLAIN if wide or self.season is None else SEASONAL

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

    def _walk(self, mine: NDArray[np.int64], base: _Floats, shares: _Floats, *, wide: bool) -> Walk:
        """The measurements of one marginal as a walk."""
        at, records = np.array(self.epochs)[mine], np.array(self.records)
        return self._walk_of(
            at,
            np.array([self.measured[j] for j in mine]) / records[at, None] - base[at],
            np.array(self.variances)[mine] / records[at] ** 2,
            max(1.0 - float(shares @ shares), 0.0),
            self._hypotheses(wide=wide),
        )

    def _walk_of(
        self, at: NDArray[np.int64], apart: _Floats, noise: _Floats, diversity: float, among: Hypotheses
    ) -> Walk:
        ends = np.array(self.ends, dtype=np.float64)
        times = (ends + np.append(0.0, ends[:-1])) / (2.0 * ends[-1])
        season = waves(None if among is PLAIN else self.season, [0, *self.ends[:-1]], self.ends)
        return Walk(at, times, apart, noise, np.array(self.records), diversity, among, season)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """These estimates, exactly, as arrays."""
        seasonal = {} if self.season is None else {"spreads": np.array(self.spreads, dtype=np.float64)}
        return seasonal | {
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
    def of(cls, cells: Cells, arrays: dict[str, NDArray[Any]], season: float | None = None) -> Estimates:
        """The inverse of ``arrays``; StoreDamagedError if they do not fit the marginals."""
        sizes = cells.sizes[arrays["marginals"]]
        wanted = {
            "measured": int(sizes.sum()),
            "sums": cells.total,
            "variance": len(cells.cliques),
            "steady": 1,
        }
        wanted |= {name: len(sizes) for name in ("epochs", "variances")} | {"ends": len(arrays["records"])}
        wanted |= {} if season is None else {"spreads": len(arrays["records"])}
        if any(len(arrays[name]) != size for name, size in wanted.items()):
            raise StoreDamagedError("the measurements of epochs do not fit the workload", where="state")
        parts = np.split(arrays["measured"].copy(), np.cumsum(sizes)[:-1]) if len(sizes) else []
        lists = {name: arrays[name].tolist() for name in ARRAYS[:5]}
        lists |= {"measured": parts, "steady": bool(arrays["steady"][0]), "season": season}
        lists |= {} if season is None else {"spreads": arrays["spreads"].tolist()}
        return cls(cells, arrays["sums"].copy(), arrays["variance"].copy(), **lists)
