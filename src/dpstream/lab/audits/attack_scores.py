"""What attackers compute from the releases of one run, and what they learn from runs whose targets they know.

- *Closest record*: how many columns the most alike released record has otherwise, in any release.
- *DOMIAS* (van Breugel et al. 2023): the density of the last released table at the target over that of records of
  the same kind that were never in the stream; densities by kernels on the number of columns that differ.
- *Likelihood ratio* (LiRA; Carlini et al. 2022): how much the released tables look like the target, step by step;
  normal laws with and without it, for each target, from shadow runs.
- *Shadow models* (Groundhog; Stadler et al. 2022): a linear discriminant of several such numbers of all steps,
  learnt on the shadow runs of all targets.
- *Noisy counts*: the likelihood ratio of the noisy counts that are published beside the tables, by the noise's own
  law, and all targets at once by least squares. They are attacked where they are not published, too: the guarantee is
  theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.lab.audits.attack_queries import log_likelihood_ratio
from dpstream.lab.audits.attack_streams import AttackedStream
from dpstream.tools.evaluate.array_types import Codes, Floats

#: How much a column that differs takes from the kernel.
_KERNEL = 0.25
#: Of a pair of values that is rare: so many records count as its error.
_FLOOR = 4.0
#: Steps that are looked at, at most.
_MOST_LOOKED = 8


@dataclass(frozen=True, eq=False)
class Run:
    """What one run planted, and what was seen of each target; the first targets are members.

    Attributes:
        there: of each member. values: of each known target.
        alike: shape (steps, rows, 3): how much a table looks like a row: by columns, by pairs, as a whole.
        closest: shape (steps, rows): columns in which the most alike record differs.
        density: shape (rows,): of the last table, over that of the reference; its logarithm.
        counts: shape (rows, groups + 1): log-likelihood ratios of noisy counts, each target by itself; in the last
            column all targets at once, by least squares.
        counted: whether there were any.
    """

    there: NDArray[np.bool_]
    values: NDArray[np.int64]
    alike: Floats
    closest: Floats
    density: Floats
    counts: Floats
    counted: bool


class Watcher:
    """Watches the releases of a stream. Rows: the members, and then each known target with each of its values."""

    def __init__(self, stream: AttackedStream) -> None:
        self._stream, targets = stream, stream.targets
        columns = targets.members.shape[1]
        self.rows = np.concatenate([targets.members, targets.known.reshape(-1, columns)])
        late = list(range(targets.at, stream.steps + 1))
        places = np.linspace(0, len(late) - 1, min(len(late), _MOST_LOOKED))
        self.looked = sorted({late[round(place)] for place in places})
        self._weights: dict[int, tuple[Floats, Floats]] = {}
        self._far = _kernel(stream.shown(self.rows, stream.steps), stream.reference, None)[0]

    def look(
        self, released: Sequence[tuple[int, Codes, Floats | None]], noisy: Sequence[NoisyCounts], planted: Run
    ) -> Run:
        """``planted``, with what the released tables and counts say of each row."""
        alike, closest, density = [], [], np.zeros(len(self.rows))
        for step, codes, weights in released:
            rows = self._stream.shown(self.rows, step)
            kernel, nearest, columns, pairs = _looks(rows, codes, weights, *self._rarity(step))
            alike.append(np.stack([columns, pairs, kernel], axis=1))
            closest.append(nearest)
            total = max(1.0, len(codes) if weights is None else float(weights.sum()))
            if step == self._stream.steps:
                # Half a record of the least likeness: where nothing is alike, nothing is known.
                least = 0.5 * _KERNEL ** rows.shape[1]
                own = (np.maximum(kernel, 0) + least) / total
                density = np.log(own) - np.log((self._far + least) / max(1, len(self._stream.reference)))
        counts, counted = self._counts(noisy)
        return Run(
            planted.there,
            planted.values,
            np.array(alike),
            np.array(closest),
            density,
            counts,
            counted,
        )

    def _rarity(self, step: int) -> tuple[Floats, Floats]:
        """What a column's and a pair's likeness weighs for each row: less where many records have the values."""
        key = (
            step if self._stream.shown(self.rows[:1], step).shape[1] != self._stream.reference.shape[1] else 0
        )
        if key not in self._weights:
            rows, other = self._stream.shown(self.rows, step), self._stream.reference
            if key:
                # Windows of a panel that are not full yet: no reference, equal weights.
                ones = np.ones((len(rows), rows.shape[1]))
                self._weights[key] = ones, np.ones((len(rows), rows.shape[1], rows.shape[1]))
            else:
                singles, pairs = [], []
                scale = self._stream.records / max(1, len(other))
                for row in rows:
                    same = (other == row).astype(np.float32)
                    both = scale * (same.T @ same)
                    pairs.append(1.0 / (_FLOOR + both))
                    singles.append(1.0 / (_FLOOR + np.diag(both)))
                self._weights[key] = np.array(singles), np.array(pairs)
        return self._weights[key]

    def _counts(self, noisy: Sequence[NoisyCounts]) -> tuple[Floats, bool]:
        found, counted = np.zeros((len(self.rows), self._stream.groups)), False
        newest: dict[str, NoisyCounts] = {}
        for one in noisy:
            # Running sums share draws: only the newest of a series counts.
            newest[one.draw if one.series is None else one.series] = one
        targets, stream = self._stream.targets, self._stream
        many = len(targets.members)
        squares, sums = np.zeros((len(self.rows),) * 2), np.zeros(len(self.rows))
        for one in newest.values():
            base = stream.expected(one)
            if base is None:
                continue
            counted, chance = True, stream.chance(one)
            added = np.array([targets.copies * stream.added(one, row) for row in self.rows])
            own = added[many:].reshape(*targets.known.shape[:2], added.shape[1]).mean(axis=1)
            others = 0.5 * added[:many].sum(axis=0) + own.sum(axis=0)
            fillers, apart, rest = None, chance * added, np.zeros(added.shape[1])
            if targets.fillers is not None:
                fillers = np.array([targets.copies * stream.added(one, row) for row in targets.fillers])
                others = others + 0.5 * fillers.sum(axis=0)
                apart[:many] -= chance * fillers
                rest = chance * fillers.sum(axis=0)
            squares += apart @ apart.T / max(one.variance, 1e-9)
            sums += apart @ (one.values - base - rest) / max(one.variance, 1e-9)
            for place, more in enumerate(added):
                if place < many:
                    mean = 0.5 * more + (0.0 if fillers is None else 0.5 * fillers[place])
                else:
                    mean = own[(place - many) // targets.known.shape[1]]
                rest = np.rint(others - mean).astype(np.int64)
                noise = one.values - base - rest
                ratio = log_likelihood_ratio(one, noise, more)
                if fillers is not None and place < many:
                    ratio -= log_likelihood_ratio(one, noise, fillers[place])
                found[place, stream.group(one)] += (
                    ratio if chance == 1.0 else math.log1p(chance * math.expm1(ratio))
                )
        # All targets at once, by least squares: what is left where there is next to no noise.
        ridge = 1e-6 * max(1e-9, float(np.trace(squares))) * np.eye(len(squares))
        together = np.linalg.solve(squares + ridge, sums)
        return np.concatenate([found, together[:, None]], axis=1), counted


def _kernel(rows: Codes, codes: Codes, weights: Floats | None) -> tuple[Floats, Floats]:
    """The kernel's sum over records at each row, and the columns in which the most alike record differs."""
    sums, nearest = np.zeros(len(rows)), np.full(len(rows), float(rows.shape[1]))
    if rows.shape[1] != codes.shape[1] or not len(codes):
        return sums, nearest
    for place, row in enumerate(rows):
        differ = (codes != row).sum(axis=1)
        kernel = _KERNEL ** differ.astype(np.float64)
        sums[place] = kernel.sum() if weights is None else kernel @ weights
        nearest[place] = float(differ.min())
    return sums, nearest


def _looks(
    rows: Codes, codes: Codes, weights: Floats | None, singles: Floats, pairs: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    kernel, nearest = _kernel(rows, codes, weights)
    own, both = np.zeros(len(rows)), np.zeros(len(rows))
    for place, row in enumerate(rows):
        same = (codes == row).astype(np.float32)
        weighed = same if weights is None else same * weights[:, None]
        found = (same.T @ weighed).astype(np.float64)
        own[place] = np.diag(found) @ singles[place]
        both[place] = (np.triu(found, 1) * pairs[place]).sum()
    return kernel, nearest, own, both


# What is learnt from shadow runs.


@dataclass(frozen=True)
class _Discriminant:
    """A linear discriminant about each target's own middle."""

    middle: Floats
    weights: Floats

    def scores(self, features: Floats) -> Floats:
        """Of features, shape (runs, targets, numbers): higher where the target is likelier there."""
        found: Floats = np.einsum("rtf,tf->rt", features - self.middle, self.weights)
        return found


def _learn(features: Floats, there: NDArray[np.bool_], *, own: bool) -> _Discriminant:
    """
    Args:
        features: shape (runs, targets, numbers). there: shape (runs, targets).
        own: each target has its own means with and without it; else all share the difference.
    """
    runs, _, numbers = features.shape
    inside, outside = _means(features, there), _means(features, ~there)
    middle, apart = (inside + outside) / 2, inside - outside
    rest = features - np.where(there[:, :, None], inside, outside)
    flat = rest.reshape(-1, numbers)
    spread = np.sqrt((flat**2).mean(axis=0))
    spread[spread < 1e-12 * (1 + np.abs(features).max())] = 1.0
    scaled = flat / spread
    covariance = scaled.T @ scaled / len(scaled)
    shrink = min(0.9, 0.05 + numbers / max(1, len(scaled)))
    covariance = (1 - shrink) * covariance + shrink * np.eye(numbers)
    common = apart.mean(axis=0, keepdims=True)
    if own:
        # A target's own difference is known as well as its runs allow: drawn to that of all targets.
        keep = runs / (runs + 60.0)
        common = keep * apart + (1 - keep) * common
    common = np.broadcast_to(common, apart.shape)
    weights = np.linalg.solve(covariance, (common / spread).T).T / spread
    return _Discriminant(middle, weights)


def _means(features: Floats, chosen: NDArray[np.bool_]) -> Floats:
    many = np.maximum(1, chosen.sum(axis=0))[:, None]
    found: Floats = (features * chosen[:, :, None]).sum(axis=0) / many
    return found


#: Attacks on members, by their names on the page.
NOISY_COUNTS = "noisy counts"
MEMBER_ATTACKS: tuple[str, ...] = (
    "closest record",
    "density ratio (DOMIAS)",
    "likelihood ratio (LiRA)",
    "shadow models",
    NOISY_COUNTS,
)


def member_scores(name: str, taught: Sequence[Run], asked: Sequence[Run]) -> Floats:
    """Scores, shape (runs, members), higher where a member is likelier there.

    Args:
        taught: shadow runs. asked: others.
    """
    there = np.array([run.there for run in taught])
    many = there.shape[1]
    if name == "closest record":
        return np.array([-run.closest[:, :many].min(axis=0) for run in asked])
    if name == "density ratio (DOMIAS)":
        return np.array([run.density[:many] for run in asked])
    if name == NOISY_COUNTS:
        counts = [np.array([run.counts[:many] for run in runs]) for runs in (taught, asked)]
        return _learn(counts[0], there, own=False).scores(counts[1])
    own = name == "likelihood ratio (LiRA)"

    def features(runs: Sequence[Run]) -> Floats:
        parts = [run.alike[:, :many, 1:2] if own else run.alike[:, :many] for run in runs]
        return np.array([part.transpose(1, 0, 2).reshape(many, -1) for part in parts])

    return _learn(features(taught), there, own=own).scores(features(asked))


def known_scores(taught: Sequence[Run], asked: Sequence[Run], shape: tuple[int, int]) -> Floats:
    """Scores, shape (runs, known targets, values), of the values that a known target may have.

    Args:
        shape: how many known targets there are, and values.
    """

    def features(runs: Sequence[Run]) -> Floats:
        first = [len(run.there) for run in runs]
        found = [
            np.concatenate(
                [run.alike[:, at:].transpose(1, 0, 2).reshape(shape[0] * shape[1], -1), run.counts[at:]],
                axis=1,
            )
            for run, at in zip(runs, first, strict=True)
        ]
        return np.array(found)

    values = np.array([run.values for run in taught])
    chosen = (values[:, :, None] == np.arange(shape[1])).reshape(len(taught), -1)
    learnt = _learn(features(taught), chosen, own=False)
    return learnt.scores(features(asked)).reshape(len(asked), *shape)
