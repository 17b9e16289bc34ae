"""AIM: measure the columns, then again and again what the model explains worst, with a model that grows.

Trusted base: kernel (selects and measures).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, Part, PrivateBatch, check_share, check_whole, option
from dpstream.core.errors import LimitError
from dpstream.core.graphical import Model, TreeSizes, tree_cells
from dpstream.core.privacy import Budget, Event, HistogramsNoise, Noise, PureDP, Randomness, noise_for
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.mechanisms import options
from dpstream.mechanisms.engine import Run, Selector
from dpstream.mechanisms.joint_groups import draws, noise_of
from dpstream.mechanisms.limits import check_each, check_fit
from dpstream.mechanisms.mwem_pgm import OfflineMechanism, OfflinePlan, OfflineRun
from dpstream.mechanisms.run_outputs import MIN_VARIANCE
from dpstream.mechanisms.workload_cells import MAX_RECORDS, Cells

#: Unions of three columns that may be candidates. (All of them up to 23 columns.)
_MAX_UNIONS = 1800


def parts_of(clique: Clique) -> list[Clique]:
    """All marginals that a clique contains, itself included."""
    return [part for size in range(1, len(clique) + 1) for part in itertools.combinations(clique, size)]


def _unions(workload: Workload) -> tuple[Clique, ...]:
    """Three columns with at least two of the workload's pairs, where one measurement beats one of each."""
    domain = workload.domain
    own, pairs = set(workload.cliques), [c for c in workload.cliques if len(c) == 2]
    beside: dict[int, set[int]] = {}
    for a, b in pairs:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    triples = {tuple(sorted((a, b, c))) for a, b in pairs for c in beside[a] | beside[b] if c not in (a, b)}
    judged: list[tuple[float, Clique]] = []
    for triple in sorted(triples - own):
        inside = [pair for pair in itertools.combinations(triple, 2) if pair in own]
        louder = np.mean([math.sqrt(domain.cells(triple) / domain.cells(pair)) for pair in inside])
        if louder <= len(inside):
            judged.append((float(louder) / len(inside), triple))
    return tuple(sorted(triple for _, triple in sorted(judged)[:_MAX_UNIONS]))


# What each measurement of AIM would be worth: exact scores, and by how much a record moves them.

#: Grid of the distances in scores: 1/256 of a record. With ``_LARGEST`` no score passes 2^61.
_GRID_BITS = 8
#: Bound of the sum of a candidate's coefficients.
_LARGEST = 1 << 16
#: Mean absolute value of noise of standard deviation 1 (as if it were normal: only a correction).
_MEAN_NOISE = math.sqrt(2.0 / math.pi)


@dataclass(frozen=True)
class Candidates:
    """The marginals that may be measured: those of the workload, and unions of three columns.

    One record lies in one cell of a union as it does in one cell of a pair, so that one measurement of a union tells
    of three pairs at the price of one, with the noise of several cells in each of theirs. Under pure DP, where ``m``
    measurements have ``m`` times the noise each, that pays where ``mean sqrt(cells of the union / cells of a pair) <=
    m``; under zCDP (``sqrt(m)`` times the noise) hardly ever.

    Score of candidate ``r``, over the workload's marginals ``s`` that it contains, with ``S`` the L1 distance between
    the private marginal and what the model expects (records)::

        sum_s  c_s max(0, S_s - E_s(r))      c_s: integers proportional to w_s |s|^power

    ``E_s(r)`` is the expected L1 error that ``s`` would have after measuring ``r``, by public noise scales, with what
    is known of ``s`` already. One record moves every ``S_s`` by at most 1 (a replaced one by 2), ``max(0, .)`` does
    not enlarge that, so the score's sensitivity is the largest ``sum_s c_s`` (twice that).

    ``power``: -1 judges by the mean cell, 0 by the sum. In between, small marginals are not forgotten and large ones
    not left to chance: the noise of a selection is that of the smallest. Where choosing is dear (pure), nearer to 0.
    """

    workload: Workload
    unit: Event
    unions: bool
    power: float = -0.25

    @cached_property
    def cells(self) -> Cells:
        """The workload's marginals as one vector."""
        return Cells(self.workload)

    @cached_property
    def columns(self) -> tuple[Clique, ...]:
        """Every column of the workload."""
        return tuple((column,) for column in sorted({i for c in self.workload.cliques for i in c}))

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """The candidates: the workload's own, then unions."""
        return self.workload.cliques + (_unions(self.workload) if self.unions else ())

    @cached_property
    def counted(self) -> tuple[Clique, ...]:
        """All marginals whose counts a run may read: the candidates, then columns that are none."""
        own = set(self.cliques)
        return self.cliques + tuple(c for c in self.columns if c not in own)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of cells of each candidate."""
        return np.array([self.workload.domain.cells(c) for c in self.cliques], dtype=np.int64)

    def parts(self, clique: Clique) -> list[int]:
        """The workload's marginals that a clique contains."""
        own = set(clique)
        return [i for i, c in enumerate(self.workload.cliques) if own.issuperset(c)]

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Candidate and workload marginal in it, for every such pair; where each candidate's begin."""
        place = {clique: i for i, clique in enumerate(self.workload.cliques)}
        parts_of_each = [
            [place[part] for part in parts_of(clique) if part in place] for clique in self.cliques
        ]
        owners = np.repeat(np.arange(len(parts_of_each)), [len(parts) for parts in parts_of_each])
        starts = np.concatenate(([0], np.cumsum([len(parts) for parts in parts_of_each])[:-1])).astype(
            np.int64
        )
        return owners, np.array([s for parts in parts_of_each for s in parts], dtype=np.int64), starts

    @cached_property
    def coefficients(self) -> NDArray[np.int64]:
        """The coefficients ``c_s``, at least 1 each."""
        _, inside, starts = self._pairs
        weights = np.array([float(w) for w in self.workload.weights])
        raw = weights * self.cells.sizes.astype(np.float64) ** self.power
        widest = float(np.add.reduceat(raw[inside], starts).max())
        return np.maximum(np.rint(raw / widest * (_LARGEST // 4)).astype(np.int64), 1)

    @cached_property
    def sensitivity(self) -> int:
        """The sensitivity of every score, in its own units."""
        _, inside, starts = self._pairs
        largest = int(np.add.reduceat(self.coefficients[inside], starts).max())
        if largest > _LARGEST:
            raise LimitError(
                "a marginal of the workload contains too many others",
                where="workload",
                allowed="fewer columns each",
            )
        return (largest << _GRID_BITS) * self.unit.changed_cells

    def scores(
        self,
        counts: NDArray[np.int64],
        expected: NDArray[np.float64],
        variance: float,
        precision: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """All candidates' scores, exact.

        Args:
            counts: private, all cells of the workload's marginals.
            expected: public, what the model says of them.
            variance: of the noise that a measured cell would get.
            precision: inverse variance of a cell of each workload marginal, as far as it is known.
        """
        cells = self.cells
        events = int(np.add.reduceat(np.abs(counts), cells.starts).max())
        if events > MAX_RECORDS:
            raise LimitError("too many events in a batch", where="score", allowed=f"up to {MAX_RECORDS}")
        # Public, so it may be clipped; with the bound above no distance passes 2^34 records.
        bound = np.repeat(MAX_RECORDS / cells.sizes, cells.sizes)
        grid = np.rint(np.ldexp(np.clip(expected, -bound, bound), _GRID_BITS)).astype(np.int64)
        distance = np.add.reduceat(np.abs((counts << _GRID_BITS) - grid), cells.starts)
        owners, inside, starts = self._pairs
        size = cells.sizes[inside].astype(np.float64)
        known = size / (variance * self.sizes[owners]) + precision[inside]
        noise = np.minimum(_MEAN_NOISE * size / np.sqrt(known), 4.0 * MAX_RECORDS)
        error = np.rint(np.ldexp(noise, _GRID_BITS)).astype(np.int64)
        gains = self.coefficients[inside] * np.maximum(distance[inside] - error, 0)
        summed: NDArray[np.int64] = np.add.reduceat(gains, starts)
        return summed

    @cached_property
    def cover(self) -> tuple[int, ...]:
        """Candidates that contain the whole workload: always the one with the most that is not contained yet."""
        owners, inside, _ = self._pairs
        left = np.ones(len(self.cells.cliques), dtype=bool)
        chosen: list[int] = []
        while left.any():
            gained = np.bincount(owners, weights=left[inside], minlength=len(self.cliques))
            best = int(np.lexsort((self.sizes, -gained))[0])
            chosen.append(best)
            left[inside[owners == best]] = False
        return tuple(chosen)

    @cached_property
    def covered(self) -> float:
        """Share of the workload's marginals that are in a union."""
        owners, inside, _ = self._pairs
        own = len(self.workload.cliques)
        return len(set(inside[owners >= own].tolist())) / own


#: The most rounds of a run, however large the budget: each costs a fit.
MAX_ROUNDS = 100


#: Columns get their number, divided by this times the number of rounds, as their part of the budget.
_COLUMNS_DIVISOR = 5
#: The part of the budget for the number of records, from which the number of rounds follows.
_TOTAL_SHARE = Fraction(1, 100)


#: Factors of ``rounds_for``, from runs on two real and two invented tables of 500 to 50,000 records.
_PURE_ROUNDS, _ZCDP_ROUNDS = 1 / 19, 0.2


@dataclass(frozen=True)
class AIM(OfflineMechanism):
    """AIM with fixed amounts per round: columns first, then select, measure and fit. Theory: docs/theory/aim.md.

    Guarantee: pure epsilon (zCDP with a zCDP budget) for one record. Columns get their part of the budget, every round
    the same part of the rest. How many rounds there are follows from noisy values; the amounts add up to the budget.

    Args:
        rounds: how many; None: ``rounds_for`` of the noisy number of records.
        columns_share: of the budget, for the columns at least. measure_share: of a round's; None: 4/5 (pure), 9/10.
        unions: whether unions of three columns may be measured for their pairs (pure DP only).
        iterations, final_iterations: of the fit after a round, and after the last one.
        max_cells: limit on the junction tree at the end. prior_weight: as in ``MWEMPGM``.

    Cost: ``rounds`` fits and evaluations of the workload; 0.1 to 0.5 s for 13 columns.
    Reference: McKenna, Mullins, Sheldon, Miklau (2022).
    """

    rounds: int | None = None
    columns_share: Fraction = Fraction(3, 20)
    measure_share: Fraction | None = None
    unions: bool = True
    iterations: int = option(10, options.ITERATIONS)
    final_iterations: int = 100
    max_cells: int = option(50_000, options.TREE_CELLS)
    prior_weight: float = 0.1

    def __post_init__(self) -> None:
        if self.rounds is not None:
            check_whole(self.rounds, "rounds", 1, MAX_ROUNDS)
        object.__setattr__(self, "columns_share", check_share(self.columns_share, "columns_share"))
        if self.measure_share is not None:
            object.__setattr__(self, "measure_share", check_share(self.measure_share, "measure_share"))
        check_fit(min(self.iterations, self.final_iterations), self.max_cells, self.prior_weight)

    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> AIMPlan:
        """Fix what may be measured and how the budget is shared."""
        check_each(workload, self.max_cells)
        return AIMPlan(self, workload, budget, unit)


@dataclass(frozen=True)
class AIMPlan(OfflinePlan):
    """See ``AIM``."""

    recipe: AIM
    workload: Workload
    budget: Budget
    unit: Event

    @property
    def counted(self) -> tuple[Clique, ...]:
        """The marginals whose counts ``run_on`` takes, in order."""
        return self.candidates.counted

    @property
    def measure_share(self) -> Fraction:
        """Part of a round's budget for measuring."""
        given = self.recipe.measure_share
        return given if given is not None else Fraction(4, 5) if self._pure else Fraction(9, 10)

    def noise(self, budget: Budget) -> Noise:
        """The noise of a measured cell: a histogram moves by 1 in ``unit.changed_cells`` cells."""
        return noise_for(budget, self.unit.changed_cells, self.unit.changed_cells)

    def columns_for(self, rounds: int) -> Fraction:
        """Part of the budget for the columns: the fewer rounds there are, the more is left to independence."""
        fair = Fraction(len(self.candidates.columns), _COLUMNS_DIVISOR * rounds)
        return min(max(self.recipe.columns_share, fair), Fraction(1))

    def parts(self) -> tuple[Part, ...]:
        """Columns and rounds; the rounds' own division follows from noisy values."""
        if self.whole:
            return (Part("measure", 1, self.budget, f"marginals with {self._noise_words()}"),)
        total = self.budget.scaled(self._total_share)
        rest = self.budget.scaled(1 - self._total_share)
        how = f"selecting ({Selector(rest).describe()}) and measuring ({self.measure_share} of it)"
        lines = (
            Part(
                "columns and rounds",
                1,
                rest,
                f"columns with {self._noise_words()} or less; equal rounds of {how}",
            ),
        )
        if not total.amount:
            return lines
        return (Part("total", 1, total, f"number of records with {self.noise(total).describe()}"), *lines)

    @property
    def _total_share(self) -> Fraction:
        """Part of the budget for the number of records; none where it is public."""
        return Fraction(0) if self.unit.relation == "replace" else _TOTAL_SHARE

    @cached_property
    def first_noises(self) -> list[tuple[tuple[Clique, ...], Noise | HistogramsNoise]]:
        """What every run measures, in groups of one draw each, with their noise at most: the cover, or the columns."""
        own, share = self.candidates, Fraction(1)
        cliques: Sequence[Clique] = [own.cliques[i] for i in own.cover]
        if not self.whole:
            cliques, share = own.columns, (1 - self._total_share) * self.recipe.columns_share
        sizes = [self.workload.domain.cells(clique) for clique in cliques]
        return [
            (tuple(cliques[i] for i in group), noise_of(budget, [sizes[i] for i in group], self.unit))
            for group, budget in draws(sizes, self.budget.scaled(share), self.unit)
        ]

    def _noise_words(self) -> str:
        return ", ".join(dict.fromkeys(noise.describe() for _, noise in self.first_noises))

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        return {"offline": "aim", **options.as_json(self.recipe, measure_share=self.measure_share)}

    def run(
        self, batch: PrivateBatch, part: Events, randomness: Randomness, prior: Model | None = None
    ) -> OfflineRun:
        """See ``OfflinePlan.run``."""
        return self.run_on(batch.count(self.counted, part), randomness, prior=prior)

    def run_on(
        self,
        counts: Sequence[NDArray[np.int64]],
        randomness: Randomness,
        *,
        prior: Model | None = None,
        expected: float | None = None,
    ) -> OfflineRun:
        """Spend the budget once on counts that are given.

        Args:
            counts: private, one array per clique of ``counted``.
            prior: public: a model that every fit is held to, as in ``MWEMPGM``.
            expected: public: about how many records there are. None: a hundredth of the budget tells.
        """
        by_clique = {(): counts[0].sum(keepdims=True)} | dict(zip(self.counted, counts, strict=True))
        run = _AIMRun(self.workload.domain, by_clique, self.unit, randomness, prior, plan=self)
        cover = self.candidates.cover
        if self.whole:
            return run.measure_all(cover)
        if expected is None:
            expected = run.measure_total()
        rounds = self.rounds_for(expected)
        run.measure_columns(self.columns_for(rounds))
        if run.spent == self.budget.amount:
            return run.outcome()  # too few records for anything but columns
        if len(cover) <= rounds and self._fits(cover):
            return run.measure_all(cover)
        return run.select_and_measure(rounds)

    @cached_property
    def candidates(self) -> Candidates:
        """The marginals that may be measured."""
        power = -0.25 if self._pure else -0.5
        unions = self.recipe.unions and self._pure
        return Candidates(self.workload, self.unit, unions, power)

    @property
    def _pure(self) -> bool:
        return isinstance(self.budget, PureDP)

    @cached_property
    def whole(self) -> bool:
        """Whether the workload is held by no more candidates than columns, and by the model: nothing is selected."""
        own = self.candidates
        return len(own.cover) <= len(own.columns) and self._fits(own.cover)

    def _fits(self, chosen: Sequence[int]) -> bool:
        cliques = [self.candidates.cliques[i] for i in chosen]
        return tree_cells(self.workload.domain, cliques) <= self.recipe.max_cells

    def rounds_for(self, records: float) -> int:
        """Rounds for a table of so many records (a noisy or public number).

        More rounds leave less to the model and more to the noise. If what the model leaves falls with the square of
        the number of rounds, the best number grows with ``(epsilon n)^(1/3)`` (pure: noise ``rounds / epsilon``), or
        ``(sqrt(rho) n)^(2/5)`` (zCDP: ``sqrt(rounds / rho)``). A union stands for two pairs and more; and the
        more columns there are, the more pairs depend on each other in more than a chance way.
        """
        if self.recipe.rounds is not None:
            return self.recipe.rounds
        amount, known = float(self.budget.amount), max(records, 1.0)
        if self._pure:
            wanted = _PURE_ROUNDS * (2.0 - self.candidates.covered) * (amount * known) ** (1 / 3)
        else:
            wanted = _ZCDP_ROUNDS * (amount**0.5 * known) ** (2 / 5)
        wanted *= len(self.candidates.columns) ** 0.75
        return int(min(max(round(wanted), 1), MAX_ROUNDS))

    def numbers(self) -> tuple[int, int]:
        """See ``OfflinePlan.numbers``: the number of records, columns, and what the most rounds can choose."""
        own, domain = self.candidates, self.workload.domain
        cover = sum(domain.cells(own.cliques[i]) for i in own.cover)
        if self.whole:
            return cover, cover
        columns = sum(domain.sizes[i] for (i,) in own.columns)
        total, largest = int(self.unit.relation != "replace"), max(map(domain.cells, own.cliques))
        chosen = max((self.recipe.rounds or MAX_ROUNDS) * largest, cover)
        return total + columns, total + columns + chosen


@dataclass
class _AIMRun(Run):
    """A run of AIM, and how well each marginal of the workload is known."""

    plan: AIMPlan = field(kw_only=True)
    rounds: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.precision = np.zeros(len(self.plan.candidates.cells.cliques))

    def _measure(self, cliques: Sequence[Clique], budget: Budget, *, chosen: bool = False) -> None:
        """Measure marginals by one draw, and note what that says of the workload's marginals in them."""
        own = self.plan.candidates
        for fresh in self.measure(cliques, budget, chosen=chosen):
            for i in own.parts(fresh.clique):
                self.precision[i] += float(own.cells.sizes[i]) / (fresh.variance * len(fresh.values))

    def _measure_all(self, cliques: Sequence[Clique], share: Fraction) -> None:
        """Measure these, fixed beforehand, with this share of what is left of the budget, together where that pays."""
        sizes = [self.domain.cells(clique) for clique in cliques]
        for group, budget in draws(sizes, self._rest(share), self.plan.unit):
            self._measure([cliques[i] for i in group], budget)
        self._fit(self.plan.recipe.final_iterations)

    def _fit(self, iterations: int) -> None:
        recipe = self.plan.recipe
        self.fit(
            iterations if self.prior is None else recipe.final_iterations,
            max(recipe.max_cells, tree_cells(self.domain, self._wide)),
            recipe.prior_weight,
        )

    @property
    def _wide(self) -> list[Clique]:
        """The measured marginals of several columns."""
        return list(dict.fromkeys(m.clique for m in self.measured if len(m.clique) > 1))

    def _rest(self, share: Fraction) -> Budget:
        """A part of the budget that is not spent."""
        budget = self.plan.budget
        return budget.scaled(share * (1 - self.spent / budget.amount))

    def measure_total(self) -> float:
        """Measure the number of records, unless it is public."""
        if self.public_total is None:
            self._measure([()], self.plan.budget.scaled(_TOTAL_SHARE))
        return self.total[0]

    def measure_columns(self, share: Fraction) -> None:
        """Measure all columns with this share of what is left of the budget."""
        self._measure_all(self.plan.candidates.columns, share)

    def measure_all(self, cover: Sequence[int]) -> OfflineRun:
        """Measure all of these with what is left of the budget, and select nothing."""
        self._measure_all([self.plan.candidates.cliques[i] for i in cover], Fraction(1))
        return self.outcome()

    def select_and_measure(self, rounds: int) -> OfflineRun:
        """``rounds`` times: choose among what the model may hold, measure, fit."""
        plan, own = self.plan, self.plan.candidates
        turn = self._rest(Fraction(1, rounds))
        measure, select = turn.scaled(plan.measure_share), turn.scaled(1 - plan.measure_share)
        variance = max(plan.noise(measure).variance, MIN_VARIANCE)
        counts = np.concatenate([self.counts[c] for c in own.cells.cliques])
        tree = TreeSizes(self.domain, own.cliques, self._wide)
        for number in range(rounds):
            allowed = self._allowed(tree, (self.spent + turn.amount) / plan.budget.amount)
            if not len(allowed):
                break  # the model is full: what is left of the budget is charged, and not used
            expected = self.model.flat_marginals(own.cells.cliques)
            scores = own.scores(counts, expected, variance, self.precision)
            exact = scores, np.ones_like(scores)
            chosen = own.cliques[self.select(exact, Fraction(own.sensitivity), allowed, select)]
            self.rounds += 1
            self._measure([chosen], measure, chosen=True)
            tree.add(chosen)
            if number < rounds - 1:
                self._fit(plan.recipe.iterations)
        self._fit(plan.recipe.final_iterations)
        return self.outcome()

    def _allowed(self, tree: TreeSizes, share: Fraction) -> NDArray[np.int64]:
        """Candidates with which the model keeps to its share of ``max_cells``, or else to all of it."""
        limit, everything = self.plan.recipe.max_cells, np.arange(len(self.plan.candidates.cliques))
        fitting = np.flatnonzero(tree.within(everything, limit * float(share)))
        return fitting if len(fitting) else np.flatnonzero(tree.within(everything, limit))

    def outcome(self) -> OfflineRun:
        """What the run released."""
        total, variance = self.total
        model, measured, outputs = self.model.with_total(total), tuple(self.measured), tuple(self.outputs)
        return OfflineRun(model, variance, measured, outputs, self.rounds, self.spent, tuple(self.sums))
