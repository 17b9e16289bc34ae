"""An attack on what one configuration publishes, as somebody would make it who knows all records but some.

The stream is invented (``invented``), the program is run on it again and again, and a coin decides of each target
record whether it is there. The first half of the runs teaches a linear discriminant how released tables look with a
target and without it (shadow models; Stadler et al. 2022), the second half judges its guesses. The same is done with
the program without noise, which must be caught. It sees released tables and nothing else of the program: no door and no
law, so that it would find a leak on a way that nobody thought of. What it proves is far below the exact losses of
transcripts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.foreign import from_extra
from dpstream.core.privacy import ZCDP, AnyNoise, Budget, Randomness, Relay, User, zcdp_to_epsilon
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import count_marginals
from dpstream.families.panel.people import PeoplePlan
from dpstream.tools.audit.finding import Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.invented import InventedStream
from dpstream.tools.evaluate.array_types import Codes, Floats

if TYPE_CHECKING:
    from dpstream.project import Config


def clopper_pearson(successes: ArrayLike, trials: ArrayLike, alpha: float) -> tuple[Floats, Floats]:
    """The exact lower and upper limits of binomial probabilities. Each fails with probability at most ``alpha``.

    Together they are a two-sided interval of confidence ``1 - 2 alpha``. Arguments may be arrays. ``successes`` may be
    fractions (for planning), but the guarantee holds for whole numbers only.

    >>> low, high = clopper_pearson(0, 10, 0.05)
    >>> float(low), round(float(high), 4)
    (0.0, 0.2589)
    """
    with from_extra("evaluate", "audit"):
        from scipy.special import betaincinv

    check_rate(alpha, "alpha")
    k, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    if np.any(n < 1) or np.any(k < 0) or np.any(k > n):
        raise DataError(
            "successes are not between 0 and trials",
            where="clopper_pearson",
            allowed="0 <= successes <= trials",
        )
    # The limits solve P(X >= k) = alpha and P(X <= k) = alpha, which are incomplete beta functions. For k = 0 and k = n
    # the inverse is not defined, and the limit is 0 or 1.
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, betaincinv(np.maximum(k, 1e-300), n - k + 1, alpha), 0.0)
        high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1e-300), 1 - alpha), 1.0)
    return low, high


def check_rate(value: float, name: str) -> None:
    """Refuse what is not strictly between 0 and 1 (ConfigError)."""
    if not 0.0 < value < 1.0:
        raise ConfigError(f"{name} = {value} is outside of 0 to 1", where="audit", allowed="between 0 and 1")


Coins = NDArray[np.bool_]

#: The limit of CPU where nothing else is said, in minutes.
MINUTES = 0.5
#: The probability that chance alone accuses an honest program.
ERROR = 1e-7
#: Shares of all targets about which something is guessed, and the errors of the limits that choose among them.
_SHARES, _CHOOSING = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02), (ERROR, 0.001)
#: Runs at least, and at most: half of them teach, half are judged. Those without noise: a share, more where needed.
_MIN_RUNS, _MAX_RUNS, _SILENT_SHARE, _MAX_SILENT_SHARE = 12, 2_000, 0.25, 0.6
#: Without noise not each guess is right.
_ROOM = 3.0
#: Parts into which shadow runs are cut, so that thresholds are chosen on scores of runs that were not learnt from.
_FOLDS = 4
#: Targets at most, and records among which they are looked for; steps whose tables are looked at, at most.
_TARGETS, _TRIED, _LOOKED = 16, 2_000, 6
#: Classes into which long columns are cut before records are compared.
_CLASSES = 8
#: How much a column that differs takes from the kernel; records that count as the error of a rare pair of values.
_KERNEL, _FLOOR = 0.25, 4.0


class NothingToAttackError(ConfigError):
    """A stream that publishes no tables of the declared columns."""


class TooShortError(ConfigError):
    """The limit of CPU does not do for an attack that could prove anything."""


class Silence(Relay):
    """A control: no noise at all. Choices are made as they are."""

    measure, test = Randomness.measure, Randomness.test

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        """Zeros."""
        return np.zeros(size, np.int64)


# What guesses prove.


@dataclass(frozen=True)
class Guesses:
    """Guesses that were judged: how many were right, of how many."""

    right: int
    made: int

    def proved(self, error: float) -> float:
        """The loss of one unit that is proved."""
        low = float(clopper_pearson(self.right, self.made, error)[0]) if self.made else 0.0
        return math.log(low / (1 - low)) if low > 0.5 else 0.0

    def words(self) -> str:
        """How many were right."""
        if not self.made:
            return "no guesses"
        return f"{self.right:,} of {self.made:,} guesses right ({100 * self.right / self.made:.1f} %)"


def claimed_loss(budget: Budget, coins: int) -> tuple[float, float]:
    """The epsilon that is claimed, and the error that is left for the guesses, of so many targets in all runs."""
    if isinstance(budget, ZCDP):
        return zcdp_to_epsilon(budget, f"{ERROR / (4 * max(1, coins)):.20f}"), ERROR / 2
    return float(budget.epsilon), ERROR


def needed_guesses(epsilon: float, error: float) -> int:
    """So many guesses, all of them right, prove a loss above ``epsilon``."""
    return math.ceil(math.log(1 / error) / math.log1p(math.exp(-epsilon)))


def guess(taught: Floats, there: Coins, asked: Floats, truth: Coins) -> Guesses:
    """Thresholds are chosen on scores of shadow runs, and judged on others."""
    best, chosen = (-1.0,) * len(_CHOOSING), (-math.inf, math.inf)
    for share in _SHARES:
        low, high = float(np.quantile(taught, share / 2)), float(np.quantile(taught, 1 - share / 2))
        for limits in ((low, high), (-math.inf, high), (low, math.inf)):
            made = _judged(taught, there, *limits)
            value = tuple(made.proved(error) for error in _CHOOSING)
            if value > best:
                best, chosen = value, limits
    return _judged(asked, truth, *chosen)


def _judged(scores: Floats, there: Coins, low: float, high: float) -> Guesses:
    """There from ``high`` on, not there up to ``low``. Both: a score that says nothing."""
    said_there, said_not = scores >= high, scores <= low
    both = said_there & said_not
    said_there, said_not = said_there & ~both, said_not & ~both
    right = int((said_there & there).sum() + (said_not & ~there).sum())
    return Guesses(right, int((said_there | said_not).sum()))


# What is learnt from shadow runs.


def discriminant(features: Floats, there: Coins) -> Callable[[Floats], Floats]:
    """Scores of features, higher where a target is likelier there: a linear discriminant about each target's middle.

    Args:
        features: shape (runs, targets, numbers). there: shape (runs, targets).
    """
    inside, outside = _means(features, there), _means(features, ~there)
    middle, apart = (inside + outside) / 2, (inside - outside).mean(axis=0)
    rest = (features - np.where(there[:, :, None], inside, outside)).reshape(-1, features.shape[2])
    spread = np.sqrt((rest**2).mean(axis=0))
    spread[spread < 1e-12 * (1 + np.abs(features).max())] = 1.0
    scaled = rest / spread
    shrink = min(0.9, 0.05 + scaled.shape[1] / max(1, len(scaled)))
    covariance = (1 - shrink) * (scaled.T @ scaled / len(scaled)) + shrink * np.eye(scaled.shape[1])
    weights = np.linalg.solve(covariance, apart / spread) / spread

    def scores(asked: Floats) -> Floats:
        found: Floats = (asked - middle) @ weights
        return found

    return scores


def _means(features: Floats, chosen: Coins) -> Floats:
    found: Floats = (features * chosen[:, :, None]).sum(axis=0) / np.maximum(1, chosen.sum(axis=0))[:, None]
    return found


def attacked(features: Floats, there: Coins) -> Guesses:
    """The guesses about the second half of some runs, after the first half."""
    half = len(features) // 2
    taught, scores = np.arange(half), np.zeros(there[:half].shape)
    for part in np.array_split(taught, min(_FOLDS, half)):
        others = np.setdiff1d(taught, part)
        scores[part] = discriminant(features[others], there[others])(features[part])
    asked = discriminant(features[:half], there[:half])(features[half:])
    return guess(scores, there[:half], asked, there[half:])


# Runs.


class AttackedStream:
    """The invented stream of a configuration with its targets, and what a released table says of each.

    Errors:
        NothingToAttackError: it publishes no tables of the declared columns.
    """

    def __init__(self, config: Config, randomness: Randomness) -> None:
        closed = not config.family.asked and not config.plan().open_columns
        released = config.plan().released_schema(config.schema()) if closed else None
        self.people = not config.family.asked and isinstance(config.plan(), PeoplePlan)
        if released is None or not (self.people or released.domain == config.schema().domain):
            raise NothingToAttackError(
                "expected tables of the declared columns",
                where=str(config.path),
                allowed="dpstream lab audit",
            )
        self.stream, self.randomness = InventedStream(config), randomness
        stream = self.stream
        self.usual, self.at = stream.usual(), 1 + stream.steps // 4
        self.copies = stream.unit.max_events if isinstance(stream.unit, User) else 1
        generator = np.random.default_rng(23)
        sizes = stream.reading.domain.sizes
        tried = generator.integers(sizes, size=(_TRIED, len(sizes)), dtype=np.int32)
        self.targets = tried[_apart(self.classes(tried))]
        late = range(1 if self.people else self.at, stream.steps + 1)
        self.looked = {late[round(place)] for place in np.linspace(0, len(late) - 1, min(len(late), _LOOKED))}

    def classes(self, rows: Codes) -> Codes:
        """Rows as they are compared: long columns are cut into classes."""
        domain, rows = self._declared(rows)
        sizes = np.array(domain.sizes)
        classes: Codes = np.where(sizes > _CLASSES**2, rows * _CLASSES // sizes, rows).astype(np.int32)
        return classes

    def _declared(self, rows: Codes) -> tuple[Domain, Codes]:
        """Rows in declared codes, where a column whose mean is measured is read in finer ones."""
        sums = getattr(self.stream.plan, "sums", None)
        return (self.stream.reading.domain, rows) if sums is None else (sums.domain, sums.codes(rows))

    def run(self, noise: Randomness) -> tuple[Coins, Floats]:
        """Which targets were there, and what the tables said of them: shape (targets, numbers)."""
        stream, plan = self.stream, self.stream.plan
        game = np.random.default_rng(self.randomness.coins("which targets are there", 4))
        there = game.integers(2, size=len(self.targets)) == 1
        steps = stream.with_rows(self.usual, self.at, self.targets[there], self.copies)
        if stream.replaces:
            steps = _without(steps, int(there.sum()), self.at, self.people)
        state = plan.start() if stream.base is None else plan.start_from(stream.base)
        features, newest = [], dict[str, NoisyCounts]()
        for number, batch in enumerate(stream.admit(steps), start=1):
            synthesis = plan.step(state, batch, noise)
            # Running sums share draws: only the newest of a series counts.
            newest |= {one.series or one.draw + str(number): one for one in synthesis.noisy_counts}
            if number in self.looked:
                features.append(self._looks(self._table(synthesis), number))
        return there, np.concatenate([*features, self._counted(newest.values())], axis=1)

    def _counted(self, noisy: Iterable[NoisyCounts]) -> Floats:
        """What noisy counts say of each target: their sum in its cells, as their variance weighs it, by how fine they
        are."""
        sums = np.zeros((len(self.targets), _CLASSES))
        for one in noisy:
            share = self._share(one) / max(one.variance, 1e-9)
            for place, target in enumerate(self.targets) if share else ():
                added = self._added(one, target)
                if added is not None:
                    sums[place, min(len(added).bit_length(), _CLASSES) - 1] += share * float(
                        added @ one.values
                    )
        return sums

    def _share(self, one: NoisyCounts) -> float:
        """The probability that a target is among the records that were counted."""
        if self.people:
            return 1.0
        if one.counted in ("deletes", "left"):
            return 0.0  # targets stay
        if one.counted != "points":
            return float(one.first <= self.at <= one.last)
        # The order of a step's points is drawn: of a part of them only its size is known.
        ends = np.cumsum([0, *(len(step.came) for step in self.usual)])[self.at - 1 : self.at + 1]
        inside = min(ends[1], one.last) - max(ends[0] + 1, one.first) + 1
        return max(0.0, float(inside / (ends[1] - ends[0])))

    def _added(self, one: NoisyCounts, target: Codes) -> NDArray[np.int64] | None:
        """What a target adds to these counts, if it was counted; None for a query that is not known here."""
        kind, plan = one.query["kind"], self.stream.plan
        if kind == "cells":
            depth, space = int(one.query["depth"]), plan.space  # type: ignore[attr-defined]
            cell = int(space.cells_of(np.asfortranarray(target[None]))[0]) >> (space.depth - depth)
            return np.bincount([cell], minlength=2**depth).astype(np.int64)
        if kind == "patterns":
            cell = int(self._cells(target) * (len(one.values) - 1) // (plan.codes - 1))  # type: ignore[attr-defined]
            return np.bincount([cell], minlength=len(one.values)).astype(np.int64)
        if kind == "at least":
            return np.array([self._cells(target)], np.int64)
        if kind == "mean":
            return plan.sums.of(one.query["columns"], target)  # type: ignore[attr-defined, no-any-return]
        domain, declared = self._declared(target[None])
        return counts_of(one.query, declared, domain)

    def _cells(self, targets: Codes) -> Any:
        """The reports of people who report one thing all the time, as a panel has them."""
        plan: Any = self.stream.plan
        cells = np.ravel_multi_index(tuple(targets.T), plan.columns.sizes)
        return plan.followed(cells)

    def _table(self, synthesis: Any) -> Codes:
        stream = self.stream
        if self.people:
            history: Codes = synthesis.history.astype(np.int32)
            return history
        rows = synthesis.rows(stream.schema, 10**6)
        seed = int(self.randomness.coins("another draw of a table")[0]) >> 1
        none = np.zeros((0, len(stream.reading.domain)), np.int32)
        return self.classes(
            stream.reading.encode(synthesis.released(stream.schema, rows, seed)) if rows else none
        )

    def _looks(self, table: Codes, step: int) -> Floats:
        """How much a table looks like each target: by its columns, by pairs of columns, and as a whole."""
        rows = self._shown(step)
        plan: Any = self.stream.plan
        if self.people and table.shape[1] == step:
            rows, table = plan.summed_up(rows, step), plan.summed_up(table, step)
        if not len(table) or table.shape[1] != rows.shape[1]:
            return np.zeros((len(rows), 3))
        looks = []
        for row, rarity in zip(rows, self._rarities, strict=True):
            same = (table == row).astype(np.float32)
            likeness = (same.T @ same).astype(np.float64) * (1.0 if self.people else rarity)
            whole = _KERNEL ** (rows.shape[1] - same.sum(axis=1, dtype=np.float64))
            looks.append([np.trace(likeness), np.triu(likeness, 1).sum(), whole.sum()])
        return np.array(looks)

    @cached_property
    def _rarities(self) -> list[Floats]:
        """What a target's values, alone and in pairs, weigh: less where many usual records have them."""
        usual = self.classes(np.concatenate([step.came for step in self.usual]))
        same = [(usual == row).astype(np.float32) for row in self.classes(self.targets)]
        return [1.0 / (_FLOOR + (one.T @ one).astype(np.float64)) for one in same]

    def _shown(self, step: int) -> Codes:
        if not self.people:
            return self.classes(self.targets)
        cells = self._cells(self.targets)
        return np.repeat(cells[:, None], step, axis=1).astype(np.int32)


def counts_of(query: Mapping[str, Any], codes: Codes, domain: Domain) -> NDArray[np.int64] | None:
    """The exact answer to a query on records; None for a kind of query that attackers do not understand here."""
    kind = query["kind"]
    if kind in ("marginal", "marginals"):
        cliques = [query["columns"]] if kind == "marginal" else query["columns"]
        places = [tuple(domain.names.index(name) for name in names) for names in cliques]
        return np.concatenate(count_marginals(np.asfortranarray(codes), domain, places))
    if kind == "signs":
        signs = 2 * codes.astype(np.int64) - 1
        terms = [[domain.names.index(name) for name in term] for term in query["terms"]]
        return np.array([signs[:, term].prod(axis=1).sum() for term in terms], np.int64)
    return None


def _apart(rows: Codes) -> list[int]:
    """Rare rows that have at most half of their values in common with each other."""
    chosen: list[int] = []
    for place, row in enumerate(rows):
        if not chosen or (rows[chosen] == row).sum(axis=1).max() <= rows.shape[1] // 2:
            chosen.append(place)
        if len(chosen) == _TARGETS:
            break
    return chosen


def _without(steps: Sequence[Any], many: int, at: int, everywhere: bool) -> list[Any]:
    """The steps with so many usual records less at one step, or at all of them: their number is public."""
    return [
        type(step)(step.came[many:], step.left, step.owners[many:], step.leavers)
        if everywhere or number == at
        else step
        for number, step in enumerate(steps, start=1)
    ]


def attack_of(config: Config, minutes: float = MINUTES) -> Audit:
    """The attack on a configuration, as an audit.

    Args:
        minutes: of CPU of this process. Runs are planned by the time that the first ones take.

    Errors (of this function, before anything runs):
        NothingToAttackError: see ``AttackedStream``. ConfigError: a wrong limit.
    """
    if isinstance(minutes, bool) or not 0 < minutes < math.inf:
        raise ConfigError(f"minutes = {minutes!r}", where="--minutes", allowed="a number above 0")
    AttackedStream(config, Randomness.seeded(0))

    def attack(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        began, stream = time.perf_counter(), AttackedStream(config, randomness)
        budget = config.budget.budget
        runs = _planned(stream, 60 * minutes, budget, progress)
        for control in (True, False):
            noise, made = Silence(randomness) if control else randomness, list[tuple[Coins, Floats]]()
            what = "without noise" if control else "as it is configured"
            for number in range(1, runs[control] + 1):
                progress(f"attack: run {number} of {runs[control]} {what}")
                made.append(stream.run(noise))
            guesses = attacked(np.array([own for _, own in made]), np.array([coins for coins, _ in made]))
            judged = len(made) - len(made) // 2
            claimed, error = claimed_loss(budget, judged * len(stream.targets))
            if control and guesses.proved(error) <= claimed:
                raise TooShortError(
                    f"without noise {minutes:g} minutes prove only {guesses.proved(error):.3g} "
                    f"of epsilon {claimed:.3g}",
                    where="audit",
                    allowed=f"--minutes {4 * minutes:g}, or other parts (--only)",
                )
            allowed = f"the claim allows {100 / (1 + math.exp(-claimed)):.1f} %"
            yield AuditFinding.of(
                began,
                subject=f"attack on the releases{', without noise' if control else ''}",
                claimed=claimed,
                found=guesses.proved(error),
                confidence=1 - ERROR,
                runs=judged,
                control=control,
                detail=f"{guesses.words()}; {allowed}; {len(stream.targets)} targets among "
                f"{sum(len(step.came) for step in stream.usual):,} records",
            )

    return attack


def _planned(
    stream: AttackedStream, seconds: float, budget: Budget, progress: AuditProgress
) -> tuple[int, int]:
    """How many runs there is time for, as configured and without noise.

    Errors:
        TooShortError: too few to prove anything.
    """
    progress("duration of a run")
    stream.run(Silence(stream.randomness))  # compiles what is compiled
    began = time.process_time()
    stream.run(stream.randomness)
    each = max(1e-3, time.process_time() - began)
    claimed, error = claimed_loss(budget, len(stream.targets) * _MAX_RUNS)
    needed = 2 * math.ceil(_ROOM * needed_guesses(claimed, error) / len(stream.targets))
    total = min(2 * _MAX_RUNS, int(seconds / each))
    silent = max(_MIN_RUNS, needed, math.ceil(_SILENT_SHARE * total))
    wanted = max(silent / _MAX_SILENT_SHARE, silent + _MIN_RUNS)
    if wanted > total:
        can = wanted <= 2 * _MAX_RUNS
        raise TooShortError(
            f"{seconds / 60:g} minutes cannot catch a program without noise at epsilon {claimed:.3g}"
            + ("" if can else ": the claim is too large"),
            where="audit",
            allowed=(f"--minutes {1.2 * wanted * each / 60:.2g}, or " if can else "")
            + "other parts (--only)",
        )
    return min(_MAX_RUNS, total - silent), min(_MAX_RUNS, silent)
