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

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import UNPACKED
from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Measurement
from dpstream.mechanisms.workload_cells import Cells

# One marginal over the epochs: a random walk, and a season where there is one. Public: it reads outputs only.

_Floats = NDArray[np.float64]

#: The drifts that are compared: how far a distribution walks over the whole stream, as the sum of its cells' variances.
_DRIFTS = np.concatenate(([0.0], 10.0 ** np.arange(-3.0, 3.5, 1.0)))
#: The swings that are compared where there is a season: how far it moves a distribution, in the same measure.
_SWINGS = np.array([0.0, 1e-3, 1e-2, 1e-1])
#: Waves of a season: once, twice and three times a season, with parts 1, 1/4 and 1/9 of its swing.
_WAVES = (1, 2, 3)
#: From this drift on, a marginal of several columns says nothing of other epochs.
VOLATILE_DRIFT = 0.01
#: How many rounds estimate how common each drift is.
_DRIFT_ROUNDS = 20
#: Columns are steady if each has a lasting drift, or a season, with less than this probability.
_STEADY_BELOW = 0.5


@dataclass(frozen=True)
class Hypotheses:
    """Drifts and swings that are compared, pair by pair."""

    drifts: _Floats
    swings: _Floats

    @property
    def weights(self) -> _Floats:
        """How likely each is beforehand: as likely with a swing as without; each drift, and each swing, the same."""
        swinging = max(int((np.unique(self.swings) > 0.0).sum()), 1)
        return np.where(self.swings > 0.0, 1.0 / swinging, 1.0)


#: The least variance of noise beside that of the sample: what floating point can tell apart.
_LEAST_NOISE = 1e-9
PLAIN = Hypotheses(_DRIFTS, np.zeros(len(_DRIFTS)))
SEASONAL = Hypotheses(np.tile(_DRIFTS, len(_SWINGS)), np.repeat(_SWINGS, len(_DRIFTS)))


def waves(season: float | None, begins: Sequence[int], ends: Sequence[int]) -> _Floats:
    """Where stretches of steps are in the season: means over their steps of its waves, shape (stretches, waves).

    Args:
        season: its length in steps; None: without seasons and waves.
        begins, ends: the last step before each stretch, and its last step.

    >>> (waves(4.0, [0, 0], [1, 4]).round(3) + 0.0)[:, :2].tolist()
    [[0.632, 0.632], [0.0, 0.0]]
    """
    own = () if season is None else tuple(wave for wave in _WAVES if 2 * wave <= season)
    found = np.zeros((len(ends), 2 * len(own)))
    strength = math.sqrt(sum(1.0 / wave**2 for wave in own)) if own else 1.0
    for row, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        for place, wave in enumerate(own):
            turns = 2.0 * math.pi * wave * (np.arange(begin, end) + 0.5) / (season or 1.0)
            found[row, 2 * place : 2 * place + 2] = np.cos(turns).mean(), np.sin(turns).mean()
            found[row, 2 * place : 2 * place + 2] /= wave * strength
    return found


@dataclass(frozen=True)
class Walk:
    """One marginal's measurements, as distributions less their bases; everything for all drifts at once.

    Attributes:
        reads: of each measurement, the parts of its events that are in each epoch, shape (measurements, epochs);
            ``noise``: its variance.
        times: the middles of all epochs, as shares of the stream; ``records``: their events.
        diversity: ``1 - sum p^2``: a sampled record's variance, of all cells together.
        season: of all epochs, from ``waves``.
    """

    reads: _Floats
    times: _Floats
    apart: _Floats
    noise: _Floats
    records: _Floats
    diversity: float
    hypotheses: Hypotheses
    season: _Floats

    @cached_property
    def sampling(self) -> _Floats:
        """Variance of an epoch's records around their distribution, of one cell on average."""
        return np.asarray(self.diversity / (self.apart.shape[1] * self.records))

    @cached_property
    def walk(self) -> _Floats:
        """The covariance of a walk of drift 1."""
        return np.asarray(np.minimum(self.times[:, None], self.times) / self.apart.shape[1])

    @cached_property
    def swing(self) -> _Floats:
        """The covariance of a season of swing 1."""
        return np.asarray(self.season @ self.season.T / self.apart.shape[1])

    @cached_property
    def inverse(self) -> _Floats:
        """The inverse of the measurements' covariance, for every hypothesis."""
        reads, among = self.reads, self.hypotheses
        own = (reads * self.sampling) @ reads.T
        # Measurements of the same epochs share their sample: without any noise the matrix has no inverse.
        own = own + np.diag(np.maximum(self.noise, _LEAST_NOISE * np.diag(own)))
        moved = among.drifts[:, None, None] * (reads @ self.walk @ reads.T)
        if among.swings.any():
            moved = moved + among.swings[:, None, None] * (reads @ self.swing @ reads.T)
        return np.asarray(np.linalg.inv(moved + own))

    @cached_property
    def likelihood(self) -> _Floats:
        """The logarithm of each hypothesis's likelihood, where the walk may begin anywhere."""
        ones = self.inverse.sum(axis=2)
        precision = ones.sum(axis=1)
        apart = self.inverse - ones[:, :, None] * ones[:, None, :] / precision[:, None, None]
        spread = np.log(precision) - np.linalg.slogdet(self.inverse)[1]
        squares = np.einsum("gij,ij->g", apart, self.apart @ self.apart.T)
        return np.asarray(-0.5 * (self.apart.shape[1] * spread + squares))

    def path(self, hypothesis: int) -> tuple[_Floats, float]:
        """The distance from the base in every epoch, and the variance of one cell of its sum over all events."""
        inverse, walk = self.inverse[hypothesis], self.hypotheses.drifts[hypothesis] * self.walk
        if self.hypotheses.swings[hypothesis]:
            walk = walk + self.hypotheses.swings[hypothesis] * self.swing
        # An epoch's own sample is in the sum.
        shared = walk @ self.reads.T + self.sampling[:, None] * self.reads.T
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

    def ahead(self, hypothesis: int, times: _Floats, season: _Floats) -> _Floats:
        """The distance from the base at some later times, shape (times, cells); ``season``: from ``waves``."""
        return np.asarray(self.ahead_weights(hypothesis, times, season) @ self.apart)

    def ahead_weights(self, hypothesis: int, times: _Floats, season: _Floats) -> _Floats:
        """The weights of the measurements in ``ahead``, shape (times, measurements)."""
        inverse, among = self.inverse[hypothesis], self.hypotheses
        shared = np.minimum(times[:, None], self.times) * among.drifts[hypothesis]
        shared = (shared + among.swings[hypothesis] * (season @ self.season.T)) @ self.reads.T
        plain = shared / self.apart.shape[1] @ inverse
        ones = inverse.sum(axis=0)
        return np.asarray(plain + np.outer(1.0 - plain.sum(axis=1), ones / ones.sum()))


def choose(likelihood: _Floats) -> list[int]:
    """The hypothesis of each marginal: its likelihood times how common each one is (empirical Bayes)."""
    scaled = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    common = np.full(likelihood.shape[1], 1.0 / likelihood.shape[1])
    for _ in range(_DRIFT_ROUNDS):
        own = scaled * common
        # One marginal more in which every hypothesis is as likely.
        counted = (own / own.sum(axis=1, keepdims=True)).sum(axis=0) + 1.0 / len(common)
        common = counted / counted.sum()
    return [int(one) for one in (scaled * common).argmax(axis=1)]


def steady(likelihood: _Floats, among: Hypotheses) -> bool:
    """Whether no column drifts or swings: the data have to say so. With few or noisy epochs any drift is as likely as
    none.

    Every column for itself, all drifts as likely beforehand: the others must not outvote the one that drifts.
    """
    odds = np.exp(likelihood - likelihood.max(axis=1, keepdims=True)) * among.weights
    lasting = (among.drifts >= VOLATILE_DRIFT) | (among.swings > 0.0)
    drifting = odds[:, lasting].sum(axis=1) / odds.sum(axis=1)
    return bool(drifting.max() < _STEADY_BELOW)


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


class Answer(NamedTuple):
    """What is known of the running sums.

    Attributes:
        values: all cells. variances: of the noise in one cell of each marginal.
        steady: whether no column drifts. volatile: the marginals of several columns that drift.
    """

    values: _Floats
    variances: _Floats
    steady: bool
    volatile: tuple[int, ...]


@dataclass
class Estimates:
    """All measurements, and the running sums.

    Attributes:
        records: noisy number of events of each epoch.
        ends: steps at which epochs ended.
        epochs, marginals, variances: of each measurement: its last epoch, its marginal, and the variance of its noise.
        spans: how many epochs each measurement is about: periods may hold several.
        measured: the measurements' cells.
        sums: of all epochs' values, measured or answered (all cells), and ``variance`` of one cell (per marginal).
        open_sums, open_variance: the part of these that no period has measured yet.
        season: how many steps a season has that columns and rates of events may follow; None: none.
        spreads: with a season, the variance of the noise in each epoch's number of events.
    """

    cells: Cells = field(metadata=UNPACKED)
    sums: _Floats
    variance: _Floats
    records: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    marginals: list[int] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    measured: list[_Floats] = field(default_factory=list)
    season: float | None = field(default=None, metadata=UNPACKED)
    spreads: list[float] = field(default_factory=list)
    spans: list[int] = field(default_factory=list)
    open_sums: _Floats = field(default_factory=lambda: np.zeros(0))
    open_variance: _Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def fresh(cls, cells: Cells, season: float | None = None) -> Estimates:
        """The estimates before the first epoch."""
        sums, variance = np.zeros(cells.total), np.zeros(len(cells.cliques))
        return cls(cells, sums, variance, season=season, open_sums=sums.copy(), open_variance=variance.copy())

    def add(self, epoch: Epoch, end: int, spread: float = 0.0) -> None:
        """Take in one epoch that ended at a step; ``spread``: the variance of the noise in its number of events."""
        if self.season is not None:
            self.spreads.append(spread)
        for index in np.flatnonzero(epoch.measured).tolist():
            values = epoch.values[self.cells.part(index)].copy()
            self._measure(len(self.records), 1, index, values, float(epoch.variance[index]))
        # An epoch without (noisily) any record says nothing about a distribution.
        self.records.append(max(epoch.records, 1.0))
        self.ends.append(end)
        self.sums += epoch.values
        self.variance += epoch.variance
        self.open_sums += epoch.values
        self.open_variance += epoch.variance

    def add_flows(self, index: int, first: int, values: _Floats, variance: float) -> None:
        """Take in what periods gave of a marginal, over the epochs from ``first`` to the newest one."""
        part, newest = self.cells.part(index), len(self.records) - 1
        self._measure(newest, newest - first + 1, index, values.copy(), variance)
        self.sums[part] += values - self.open_sums[part]
        self.variance[index] += variance - self.open_variance[index]
        self.open_sums[part], self.open_variance[index] = 0.0, 0.0

    def _measure(self, epoch: int, span: int, index: int, values: _Floats, variance: float) -> None:
        self.epochs.append(epoch)
        self.spans.append(span)
        self.marginals.append(index)
        self.variances.append(variance)
        self.measured.append(values)

    def _reads(self, mine: Sequence[int]) -> tuple[_Floats, _Floats]:
        """Of some measurements: the parts of their events in each epoch, and their numbers of events."""
        reads, events = np.zeros((len(mine), len(self.records))), self._events(mine)
        for row, j in enumerate(mine):
            epochs = self._epochs(j)
            reads[row, epochs] = np.array(self.records[epochs]) / events[row]
        return reads, events

    def _events(self, mine: Sequence[int]) -> _Floats:
        """How many events some measurements are about."""
        return np.array([sum(self.records[self._epochs(j)]) for j in mine])

    def _epochs(self, j: int) -> slice:
        """The epochs that a measurement is about."""
        return slice(self.epochs[j] + 1 - self.spans[j], self.epochs[j] + 1)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which marginals have been measured: all that is said of the others is a model's."""
        return np.bincount(self.marginals, minlength=len(self.cells.cliques)) > 0

    @property
    def seen(self) -> _Floats:
        """Number of events in the epochs that measured each marginal."""
        records = self._events(range(len(self.epochs)))
        events = np.bincount(self.marginals, weights=records, minlength=len(self.cells.cliques))
        return events.astype(np.float64)

    def together(self, index: int) -> tuple[_Floats, float, float]:
        """See ``Evidence``: of the epochs that measured the marginal."""
        mine = [j for j, own in enumerate(self.marginals) if own == index]
        measured = np.sum([self.measured[j] for j in mine], axis=0)
        records = float(sum(self._events(mine)))
        return measured, records, float(sum(self.variances[j] for j in mine))

    def answer(self, shape: _Floats) -> Answer:
        """The estimate of every running sum, and what drifts.

        Args:
            shape: a model's answer to all marginals, of any total.
        """
        values, variances, stays, volatile = self.sums.copy(), self.variance.copy(), False, list[int]()
        owners = np.array(self.marginals, dtype=np.int64)
        known = np.flatnonzero(self.known).tolist()
        records, shares = np.array(self.records), self._shares(shape)
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
                self._walk(np.flatnonzero(owners == i), base, shares[self.cells.part(i)], wide=wide)
                for i, base in zip(group, bases, strict=True)
            ]
            likelihood = np.array([walk.likelihood for walk in walks])
            drifts = choose(likelihood)
            if not wide:
                stays = steady(likelihood, walks[0].hypotheses)
            for i, base, walk, drift in zip(group, bases, walks, drifts, strict=True):
                if wide and walk.hypotheses.drifts[drift] >= VOLATILE_DRIFT:
                    volatile.append(i)
                    continue
                path, variances[i] = walk.path(drift)
                path += base
                values[self.cells.part(i)] = records @ path
                if not wide:
                    paths[self.cells.cliques[i][0]] = np.maximum(path, 1e-6)
        return Answer(values, variances, stays, tuple(volatile))

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
            np.eye(len(records)),
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
        reads, events = self._reads(mine.tolist())
        return self._walk_of(
            reads,
            np.array([self.measured[j] for j in mine]) / events[:, None] - reads @ base,
            np.array(self.variances)[mine] / events**2,
            max(1.0 - float(shares @ shares), 0.0),
            self._hypotheses(wide=wide),
        )

    def _walk_of(
        self, reads: _Floats, apart: _Floats, noise: _Floats, diversity: float, among: Hypotheses
    ) -> Walk:
        ends = np.array(self.ends, dtype=np.float64)
        times = (ends + np.append(0.0, ends[:-1])) / (2.0 * ends[-1])
        season = waves(None if among is PLAIN else self.season, [0, *self.ends[:-1]], self.ends)
        return Walk(reads, times, apart, noise, np.array(self.records), diversity, among, season)

    def check(self) -> None:
        """StoreDamagedError if these do not fit the marginals."""
        cells, epochs = self.cells, len(self.records)
        sizes = [len(self.sums), len(self.variance), len(self.open_sums), len(self.open_variance)]
        sizes += [len(self.ends), *map(len, self.measured)]
        wanted = [
            cells.total,
            len(cells.cliques),
            cells.total,
            len(cells.cliques),
            epochs,
            *cells.sizes[self.marginals].tolist(),
        ]
        lists = {len(self.epochs), len(self.marginals), len(self.variances), len(self.spans)}
        if sizes != wanted or len(lists) > 1 or (self.season is not None and len(self.spreads) != epochs):
            raise StoreDamagedError("the epochs' measurements do not fit the workload", where="state")


def rate_weights(
    begun: int, ends: Sequence[int], events: Sequence[float], noise: Sequence[float] | _Floats
) -> _Floats:
    """The weights of the rates of periods in the rate of the step after the newest one.

    The rate walks at random from period to period, with as much drift as the periods make likely.

    Args:
        begun: the step before the first period. noise: variances of the noise in ``events``.
    """
    last = np.array(ends, dtype=np.float64) - begun
    lengths, counts = np.diff(last, prepend=0.0), np.maximum(np.array(events), 1.0)
    usual = max(float(np.sum(events)) / float(last[-1]), 1e-9)
    times = (last - lengths / 2.0) / last[-1]
    season = waves(None, [0] * len(last), [1] * len(last))
    walk = Walk(
        np.eye(len(last)), times, (np.array(events) / lengths / usual)[:, None],
        np.array(noise) / (lengths * usual) ** 2, counts, 1.0, PLAIN, season,
    )  # fmt: skip
    odds = np.exp(walk.likelihood - walk.likelihood.max())
    weights = odds @ np.array(
        [walk.ahead_weights(i, np.array([1.0]), season[:1])[0] for i in range(len(odds))]
    )
    return np.asarray(weights / odds.sum())


def expected_rate(
    begun: int, ends: Sequence[int], events: Sequence[float], noise: Sequence[float]
) -> tuple[float, float]:
    """How many events a step after the newest period lets expect, and the variance of the noise in that; arguments as
    of ``rate_weights``."""
    lengths = np.diff(np.array(ends, dtype=np.float64), prepend=begun)
    weights = rate_weights(begun, ends, events, noise) / lengths
    return max(float(weights @ np.array(events)), 0.0), float(weights**2 @ np.array(noise))


# What an epoch's measurements tell of columns, and a model's answers moved to them. Public: measurements only.


def with_margins(
    cells: Cells, measured: Mapping[int, Measurement], repeated: Collection[int]
) -> dict[int, Measurement]:
    """The measurements, and of every column in any of them the mean by precision of all that tells of it.

    A sum over the other columns' cells has the sum of their noises' variances.

    Args:
        measured: one run's measurements, by marginal.
        repeated: marginals that were made from their columns' measurements: they tell nothing new of these.
    """
    place = {clique[0]: i for i, clique in enumerate(cells.cliques) if len(clique) == 1}
    told = dict[int, list[tuple[NDArray[np.float64], float]]]()
    for index, own in measured.items():
        clique = cells.cliques[index]
        table = own.values.reshape(cells.workload.domain.shape(clique))
        for axis, column in enumerate(clique):
            if column not in place or (index in repeated and len(clique) > 1):
                continue
            others = tuple(a for a in range(table.ndim) if a != axis)
            summed = table.size / table.shape[axis]
            told.setdefault(place[column], []).append((table.sum(axis=others), own.variance * summed))
    found = dict(measured)
    for index, parts in told.items():
        precision = sum(1.0 / variance for _, variance in parts)
        values = np.sum([values / variance for values, variance in parts], axis=0) / precision
        found[index] = Measurement(cells.cliques[index], values, 1.0 / precision)
    return found


#: Marginals of one shape are moved together, at most so many cells at a time.
_CELLS_AT_ONCE = 1 << 20


def move_to_columns(
    cells: Cells, values: NDArray[np.float64], measured: NDArray[np.bool_], total: float
) -> None:
    """Move the answers of marginals that were not measured, in place, to their columns, where these were.

    A model has no negative counts: where noise is large it gives rare values too many records, always to the same
    side, and that would add up over epochs. Measured columns are right on average.

    Args:
        values: of all marginals: of the measured ones as they were measured, of the others a model's answers.
        total: number of records.
    """
    domain, groups = cells.workload.domain, cells.of_shape
    place = np.full(len(domain), -1, dtype=np.int64)
    for i, clique in enumerate(cells.cliques):
        if len(clique) == 1:
            place[clique[0]] = i
    for shape, (indices, members) in groups.items():
        if len(shape) < 2:
            continue
        left = ~measured[indices]
        at_once = max(1, _CELLS_AT_ONCE // int(np.prod(shape)))
        wanted, owners = indices[left], place[members[left]]
        for begin in range(0, len(wanted), at_once):
            own = wanted[begin : begin + at_once]
            _move(cells, values, measured, total, own, owners[begin : begin + at_once], shape)


def _move(
    cells: Cells,
    values: NDArray[np.float64],
    measured: NDArray[np.bool_],
    total: float,
    indices: NDArray[np.int64],
    columns: NDArray[np.int64],
    shape: tuple[int, ...],
) -> None:
    """Marginals of one shape; ``columns``: the positions of their columns, shape (marginals, axes)."""
    size = int(np.prod(shape))
    parts = cells.starts[indices, None] + np.arange(size)
    tables = values[parts].reshape(len(indices), *shape)
    for axis, length in enumerate(shape):
        place = columns[:, axis]
        known = np.flatnonzero((place >= 0) & measured[place])
        if not len(known):
            continue
        wanted = values[cells.starts[place[known], None] + np.arange(length)]
        wanted = wanted + ((total - wanted.sum(axis=1)) / length)[:, None]
        own = tables[known]
        others = tuple(i for i in range(1, tables.ndim) if i != axis + 1)
        excess = (wanted - own.sum(axis=others)) * length / size
        tables[known] = own + np.expand_dims(excess, others)
    values[parts] = tables.reshape(len(indices), size)
