"""Attacks on the whole sequence of releases of one configuration, as somebody would make them who knows all but one.

The stream is invented (``attack_streams``), the program is run on it again and again, and what is released is attacked.
The first half of the runs teaches the attackers (shadow runs: they know what was planted), the second half judges
them. The same is done with a control: the program without noise, which must be caught.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import (
    ZCDP,
    AnyNoise,
    Budget,
    Randomness,
    Relay,
    group,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dpstream.tools.audit.attack_families import attacked_stream, check_attackable, log_likelihood_ratio
from dpstream.tools.audit.attack_streams import AttackedStream
from dpstream.tools.audit.binomial import clopper_pearson
from dpstream.tools.audit.finding import Attacked, Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.tools.evaluate.array_types import Codes, Floats

if TYPE_CHECKING:
    from dpstream.project import Config


#: The probability that chance alone accuses one honest attack's subject.
ERROR = 1e-7
#: Shares of all targets about which something is guessed.
_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
#: The errors of the limits that choose among these: what proves most, and of equals what would with more runs.
_CHOOSING = (ERROR, 0.001)


@dataclass(frozen=True)
class Guesses:
    """Guesses that were judged.

    Attributes:
        right: how many were right, of ``made``. asked: about how many targets something could have been guessed.
        values: among how many possibilities.
        curve: false and true positive rates of members, from all scores; empty for values.
    """

    right: int
    made: int
    asked: int
    values: int = 2
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def share(self) -> float:
        """Of right guesses; by chance, where none were made."""
        return self.right / self.made if self.made else 1 / self.values

    def lower(self, error: float) -> float:
        """The lower limit of what the share could be."""
        return float(clopper_pearson(self.right, self.made, error)[0]) if self.made else 0.0

    def proved(self, error: float) -> float:
        """The loss of a changed value (of members: of a record) that is proved."""
        low = self.lower(error)
        if low <= 1 / self.values:
            return 0.0
        return math.log(low * (self.values - 1) / (1 - low))

    def hopes(self) -> tuple[float, ...]:
        """What shadow runs would prove: by this thresholds are chosen."""
        return tuple(self.proved(error) for error in _CHOOSING)

    def interval(self) -> tuple[float, float]:
        """The exact limits of 95 % of the share of right guesses."""
        if not self.made:
            return 0.0, 1.0
        low, high = clopper_pearson(self.right, self.made, 0.025)
        return float(low), float(high)


def claimed_loss(budget: Budget, coins: int, *, two: bool) -> tuple[float, float]:
    """The epsilon that is claimed, and the error that is left for the guesses.

    Args:
        coins: how many targets there are in all runs that are judged.
        two: a changed value is a removal and an insertion.
    """
    whole = group(budget, 2) if two else budget
    if isinstance(whole, ZCDP):
        return zcdp_to_epsilon(whole, f"{ERROR / (4 * max(1, coins)):.20f}"), ERROR / 2
    return float(whole.epsilon), ERROR


def needed_guesses(epsilon: float, error: float) -> int:
    """So many guesses, all of them right, prove a loss above ``epsilon``."""
    return math.ceil(math.log(1 / error) / math.log1p(math.exp(-epsilon)))


def guess_members(
    taught: Floats, there: NDArray[np.bool_], asked: Floats, truth: NDArray[np.bool_]
) -> Guesses:
    """Thresholds are chosen on scores of shadow runs (made by what was learnt on others of them), and judged on
    others."""
    best: tuple[float, ...] = (-1.0,)
    chosen = (-math.inf, math.inf)
    for share in _SHARES:
        for low, high in (
            (np.quantile(taught, share / 2), np.quantile(taught, 1 - share / 2)),
            (-math.inf, np.quantile(taught, 1 - share / 2)),
            (np.quantile(taught, share / 2), math.inf),
        ):
            right, made = _counted(taught, there, float(low), float(high))
            value = Guesses(right, made, taught.size).hopes()
            if value > best:
                best, chosen = value, (float(low), float(high))
    right, made = _counted(asked, truth, *chosen)
    return Guesses(right, made, asked.size, 2, _curve(asked, truth))


def _counted(scores: Floats, there: NDArray[np.bool_], low: float, high: float) -> tuple[int, int]:
    """Right guesses, and all: there from ``high`` on, not there up to ``low``. Both: a score that says nothing."""
    said_there, said_not = scores >= high, scores <= low
    both = said_there & said_not
    said_there, said_not = said_there & ~both, said_not & ~both
    return int((said_there & there).sum() + (said_not & ~there).sum()), int((said_there | said_not).sum())


def _curve(scores: Floats, there: NDArray[np.bool_]) -> tuple[tuple[float, float], ...]:
    """False and true positive rates at the thresholds, 40 points at most."""
    own, others = np.sort(scores[there]), np.sort(scores[~there])
    if not len(own) or not len(others):
        return ()
    levels = np.unique(np.quantile(scores, np.linspace(0, 1, 40)))
    true = 1 - np.searchsorted(own, levels) / len(own)
    false = 1 - np.searchsorted(others, levels) / len(others)
    return tuple((round(float(f), 4), round(float(t), 4)) for f, t in zip(false, true, strict=True))


def guess_values(
    taught: Floats, drawn: NDArray[np.int64], asked: Floats, truth: NDArray[np.int64]
) -> Guesses:
    """As for members, of values: the one with the highest score, where it leads by enough."""
    values = asked.shape[2]
    lead, first = _leads(taught)
    best: tuple[float, ...] = (-1.0,)
    least = 0.0
    for share in _SHARES:
        edge = float(np.quantile(lead, 1 - share))
        made = lead >= edge
        value = Guesses(int((made & (first == drawn)).sum()), int(made.sum()), lead.size, values)
        if (found := value.hopes()) > best:
            best, least = found, edge
    lead, first = _leads(asked)
    made = lead >= least
    return Guesses(int((made & (first == truth)).sum()), int(made.sum()), lead.size, values)


def _leads(scores: Floats) -> tuple[Floats, NDArray[np.int64]]:
    ordered = np.sort(scores, axis=2)
    return ordered[:, :, -1] - ordered[:, :, -2], scores.argmax(axis=2)


def region(budget: Budget, rates: Sequence[float]) -> list[float]:
    """The largest true positive rate that a budget allows at each false positive rate."""
    if isinstance(budget, ZCDP):
        rho = float(budget.rho)
        levels = [
            (e, zcdp_to_delta(budget, f"{e:.9f}")) for e in np.linspace(0.001, rho + 8 * math.sqrt(rho), 60)
        ]
    else:
        levels = [(float(budget.epsilon), 0.0)]
    return [
        min(
            1.0,
            *(min(math.exp(e) * f + d, 1 - math.exp(-e) * (1 - d - f)) for e, d in levels),
        )
        for f in rates
    ]


# What attackers compute from the releases of one run, and what they learn from runs whose targets they know.
#
# - *Closest record*: how many columns the most alike released record has otherwise, in any release.
# - *DOMIAS* (van Breugel et al. 2023): the density of the last released table at the target over that of
# records of
#   the same kind that were never in the stream; densities by kernels on the number of columns that differ.
# - *Likelihood ratio* (LiRA; Carlini et al. 2022): how much the released tables look like the target, step by
# step;
#   normal laws with and without it, for each target, from shadow runs.
# - *Shadow models* (Groundhog; Stadler et al. 2022): a linear discriminant of several such numbers of all
# steps,
#   learnt on the shadow runs of all targets.
# - *Noisy counts*: the likelihood ratio of the noisy counts that are published beside the tables, by the
# noise's own
#   law, and all targets at once by least squares. They are attacked where they are not published, too: the
#   guarantee is
#   theirs.

#: How much a column that differs takes from the kernel.
_KERNEL = 0.25
#: Of a pair of values that is rare: so many records count as its error.
_FLOOR = 4.0
#: Steps that are looked at, at most.
_MAX_LOOKED = 8


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
        places = np.linspace(0, len(late) - 1, min(len(late), _MAX_LOOKED))
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


#: The limit of CPU where nothing else is said, in minutes.
MINUTES = 2.0
RECONSTRUCTION = "a known person's row"
#: Runs at least, and at most: half of them teach, half are judged.
_MIN_RUNS, _MAX_RUNS = 12, 2_000
#: Of the runs, those without noise: more where the claim is large.
_CONTROL_SHARE, _MAX_CONTROL_SHARE = 0.25, 0.6
#: Without noise not each guess is right.
_ROOM = 1.5
#: Parts into which shadow runs are cut, so that thresholds are chosen on scores of runs that were not learnt from.
_FOLDS = 4
#: False positive rates of the line that the claim draws.
_RATES = tuple(round(x, 3) for x in np.linspace(0, 1, 41).tolist())


class TooShortError(ConfigError):
    """The limit of CPU does not do for attacks that could prove anything."""


class Silence(Relay):
    """A control: no noise at all. Choices are made as they are."""

    measure, test = Randomness.measure, Randomness.test

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        """Zeros."""
        return np.zeros(size, np.int64)


def attacks_of(config: Config, minutes: float = MINUTES) -> Audit:
    """The attacks on a configuration, as an audit.

    Args:
        minutes: of CPU of this process. Runs are planned by the time that the first ones take.

    Errors (of this function, before anything runs):
        NothingToAttackError: see ``check_attackable``. ConfigError: a wrong limit.
    """
    if isinstance(minutes, bool) or not 0 < minutes < math.inf:
        raise ConfigError(f"minutes = {minutes!r}", where="--minutes", allowed="a number above 0")
    check_attackable(config)

    def attacks(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        runner = Runner(attacked_stream(config, 0), randomness)
        real, silent = runner.plan_runs(minutes * 60, progress)
        yield from attack(runner, real, silent, progress)

    return attacks


@dataclass(frozen=True)
class _Half:
    """Runs of one kind: those that teach, and those that are judged."""

    taught: Sequence[Run]
    asked: Sequence[Run]


def attack(runner: Runner, real: int, silent: int, progress: AuditProgress) -> Iterator[AuditFinding]:
    """The findings of so many runs as configured, and so many without noise."""
    began, stream = time.perf_counter(), runner.stream
    many = len(stream.targets.members)
    runs = {}
    for control, wanted in ((False, real), (True, silent)):
        made = []
        for number in range(1, wanted + 1):
            what = "without noise" if control else "as it is configured"
            progress(f"attacks: run {number} of {wanted} {what}")
            made.append(runner.run(silent=control))
        runs[control] = _Half(made[: wanted // 2], made[wanted // 2 :])
    caught: list[AuditFinding] = []
    for name in (*MEMBER_ATTACKS, RECONSTRUCTION):
        progress(f"attacks: {name}")
        found = _judged(name, runs[False], stream)
        if found is None:
            continue
        broken = _judged(name, runs[True], stream) or Guesses(0, 0, 0, found.values)
        two = name == RECONSTRUCTION and not _replaces(stream)
        coins = (len(stream.targets.known) if name == RECONSTRUCTION else many) * len(runs[False].asked)
        claimed, error = claimed_loss(stream.config.budget.budget, coins, two=two)
        evidence = _evidence(stream, found, broken, claimed, error)
        what = "two changes" if two else "one unit"
        said = f"{_right(found)}; the claim allows {100 * _most(claimed, found.values):.1f} % for {what}"
        yield AuditFinding(
            f"attack: {name}",
            "attack",
            claimed,
            found.proved(error),
            1 - ERROR,
            len(runs[False].asked),
            False,
            said,
            time.perf_counter() - began,
            attack=evidence,
        )
        if not two:
            words = f"{name}: {_right(broken)}; {stream.words}"
            caught.append(
                AuditFinding(
                    "attack: the same without noise",
                    "attack",
                    claimed,
                    broken.proved(error),
                    1 - ERROR,
                    len(runs[True].asked),
                    True,
                    words,
                    time.perf_counter() - began,
                )
            )
    yield max(caught, key=lambda finding: finding.found)


def _right(found: Guesses) -> str:
    if not found.made:
        return "no guess was worth making"
    return f"{found.right:,} of {found.made:,} guesses right ({100 * found.share:.1f} %)"


def _most(claimed: float, values: int) -> float:
    """The largest share of right guesses that a loss allows."""
    return 1 / (1 + (values - 1) * math.exp(-claimed))


def _replaces(stream: AttackedStream) -> bool:
    return getattr(stream.config.unit, "relation", "add-remove") == "replace"


def _evidence(
    stream: AttackedStream, found: Guesses, broken: Guesses, claimed: float, error: float
) -> Attacked:
    budget = stream.config.budget.budget
    return Attacked(
        right=found.right,
        made=found.made,
        values=found.values,
        interval=found.interval(),
        without_noise=broken.share,
        allowed=_most(claimed, found.values),
        curve=found.curve,
        allowed_curve=tuple(zip(_RATES, region(budget, _RATES), strict=True)) if found.curve else (),
        stream=stream.words,
        blind=broken.proved(error) == 0,
    )


def _judged(name: str, half: _Half, stream: AttackedStream) -> Guesses | None:
    if name == RECONSTRUCTION:
        shape = stream.targets.known.shape[:2]
        if not shape[0] or shape[1] < 2:
            return None
        drawn, truth = (np.array([run.values for run in runs]) for runs in (half.taught, half.asked))
        taught = _folded(half.taught, lambda own, other: known_scores(own, other, shape))
        return guess_values(taught, drawn, known_scores(half.taught, half.asked, shape), truth)
    if name == NOISY_COUNTS and not any(run.counted for run in (*half.taught, *half.asked)):
        return None
    there, truth = (np.array([run.there for run in runs]) for runs in (half.taught, half.asked))
    asked = member_scores(name, half.taught, half.asked)
    taught = _folded(half.taught, lambda own, other: member_scores(name, own, other))
    return guess_members(taught, there, asked, truth)


def _folded(runs: Sequence[Run], score: Any) -> Floats:
    """Scores of shadow runs, each by what was learnt on other ones."""
    parts = np.array_split(np.arange(len(runs)), min(_FOLDS, len(runs)))
    found = []
    for part in parts:
        own = [run for place, run in enumerate(runs) if place not in set(part.tolist())]
        found.append(score(own, [runs[int(place)] for place in part]))
    return np.concatenate(found)


class Runner:
    """Runs the plan on the stream with its targets, again and again."""

    def __init__(self, stream: AttackedStream, randomness: Randomness) -> None:
        self.stream, self._randomness = stream, randomness
        self._plan, self._watcher = stream.config.plan(), Watcher(stream)
        self._kept: dict[bool, list[Run]] = {False: [], True: []}

    def plan_runs(self, seconds: float, progress: AuditProgress) -> tuple[int, int]:
        """How many runs there is time for, as configured and without noise.

        Errors:
            TooShortError: too few to prove anything.
        """
        progress("attacks: how long a run takes")
        self._kept[True].append(self._run(silent=True))  # compiles what is compiled
        began = time.process_time()
        self._kept[False].append(self._run(silent=False))
        each = max(1e-3, time.process_time() - began)
        stream = self.stream
        members = max(1, len(stream.targets.members))
        budget = stream.config.budget.budget
        claimed, error = claimed_loss(budget, members * _MAX_RUNS, two=False)
        needed = 2 * math.ceil(_ROOM * needed_guesses(claimed, error) / members)
        total = min(2 * _MAX_RUNS, int(seconds / each))
        control = max(_MIN_RUNS, needed, math.ceil(_CONTROL_SHARE * total))
        if control > _MAX_CONTROL_SHARE * total or total - control < _MIN_RUNS:
            wanted = max(control / _MAX_CONTROL_SHARE, control + _MIN_RUNS)
            can = wanted <= 2 * _MAX_RUNS
            raise TooShortError(
                f"{seconds / 60:g} minutes of CPU do not do to catch a program without noise at a claim of "
                f"epsilon {claimed:.3g}"
                + ("" if can else f", and {2 * _MAX_RUNS:,} runs would not: so large a claim is hardly one"),
                where="audit",
                allowed=(f"--minutes {math.ceil(1.2 * wanted * each / 60)}, or " if can else "")
                + "the other parts of the audit (--only)",
            )
        return min(_MAX_RUNS, total - control), min(_MAX_RUNS, control)

    def run(self, *, silent: bool) -> Run:
        """One run; those that were made to see how long they take come first."""
        return self._kept[silent].pop() if self._kept[silent] else self._run(silent=silent)

    def _run(self, *, silent: bool) -> Run:
        stream, targets, randomness = self.stream, self.stream.targets, self._randomness
        game = np.random.default_rng(randomness.coins("who is there, and with which values", 4))
        there = game.integers(2, size=len(targets.members)) == 1
        values: NDArray[np.int64] = game.integers(max(1, targets.known.shape[1]), size=len(targets.known))
        plan, base = self._plan, stream.base
        state = plan.start() if base is None else plan.start_from(base)
        noise: Randomness = Silence(randomness) if silent else randomness
        released: list[tuple[int, Codes, Floats | None]] = []
        noisy: list[NoisyCounts] = []
        for step, batch in enumerate(stream.batches(targets.rows(there.tolist(), values.tolist())), start=1):
            synthesis = plan.step(state, batch, noise)
            noisy += synthesis.noisy_counts
            if step in self._watcher.looked:
                released.append((step, *stream.seen(synthesis, step, int(game.integers(2**31)))))
        empty = np.zeros(0)
        planted = Run(there, values, empty, empty, empty, empty, counted=False)
        return self._watcher.look(released, noisy, planted)
