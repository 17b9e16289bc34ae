"""The baseline stream (Algorithm 2): an independent offline run on every batch, added up.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    ExpectedErrors,
    ExpectedTable,
    NoisyCounts,
    Packed,
    Part,
    PrivateBatch,
    Recipe,
    StartTable,
    StreamPlan,
    Terms,
    check_words,
    option,
)
from dpstream.core.contracts.expectations import check_steps, with_table
from dpstream.core.graphical import Model
from dpstream.core.privacy import Budget, EventUnit, Randomness
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import Workload
from dpstream.mechanisms import AIM, options
from dpstream.mechanisms.description import TICKS, table_facts
from dpstream.mechanisms.limits import PRIOR_BOUND, check_domain, default_rounds
from dpstream.mechanisms.mwem_pgm import MWEMPGM, MWEMPGMPlan, OfflineMechanism, OfflinePlan
from dpstream.mechanisms.plans import event_unit, refuse_deletes
from dpstream.mechanisms.run_outputs import published
from dpstream.mechanisms.table_release import TableSynthesis, pack_models, unpack_models

Prior = Literal["previous", "uniform"]
#: Offline mechanisms by their names in files; the first is the default.
OFFLINE = {"mwem-pgm": MWEMPGM, "aim": AIM}
BatchPart = Literal["inserts", "deletes"]


@dataclass
class BaselineState:
    """The synthetic table so far (all of it public).

    A noisy total is a real number and can be negative; rows are whole. What is not paid out in rows at one
    step is owed at the next, so that rounding and clipping do not add up. ``variance`` is that of ``total``;
    None where a run does not tell.
    """

    step: int
    codes: NDArray[np.int32]
    total: float
    owed_inserts: float
    owed_deletes: float
    models: dict[BatchPart, Model]
    variance: float | None = 0.0


def table_synthesis(domain: Domain, state: BaselineState) -> TableSynthesis:
    error = None if state.variance is None else state.variance**0.5
    return TableSynthesis(domain, state.codes, state.total, error)


def remove_nearest(table: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Take away, for every target, the row that agrees with it in the most columns.

    Public post-processing: a synthetic deletion seldom equals a synthetic record in every column, and a
    table cannot hold a negative record. Cost: targets x rows x columns.

    >>> remove_nearest(np.array([[0, 0], [0, 1], [1, 1]], dtype=np.int32), np.array([[1, 1]])).tolist()
    [[0, 0], [0, 1]]
    """
    kept = np.ones(len(table), dtype=bool)
    for target in targets:
        agreement = np.count_nonzero(table == target, axis=1)
        agreement[~kept] = -1
        kept[int(np.argmax(agreement))] = False
    return table[kept]


#: The most rows that are drawn at one step; the rest is owed. Only absurd noise gets here.
_MAX_ROWS = 1_000_000
#: The most rows that are taken away at one step: each of them is compared with the whole table.
_MAX_DELETES = 20_000


@dataclass(frozen=True)
class Baseline(Recipe["BaselinePlan"]):
    """``g_t = g_{t-1} + A(batch_t)`` around any offline mechanism ``A``.

    Guarantee: that of one run of ``A``, for the whole stream: a record is inserted in one batch, and its deletion is
    another event. With ``deletions`` every step runs ``A`` on the inserts and on the deletes.

    Args:
        workload: the marginals to preserve.
        offline: the mechanism ``A``; None: MWEM+PGM with four marginals, or fewer where there are fewer.
        deletions: a public statement that records may leave.
        prior: a run starts from the ``previous`` run's model (released, so free of charge), or the ``uniform`` one.

    Cost: one or two offline runs a step; the state is the synthetic table.

    Reference: Kumar, Strohmer, Vershynin, Algorithm 2, with PGM in place of multiplicative weights.
    """

    workload: Workload = option(of=options.WORKLOAD)
    offline: OfflineMechanism | None = option(None, options.OFFLINE, one_of=OFFLINE)
    deletions: bool = False
    prior: Prior = option("previous", options.PRIOR)

    def __post_init__(self) -> None:
        check_words(self)

    def _plan(self, terms: Terms) -> BaselinePlan:
        """Fix the noise of one offline run."""
        protected = event_unit(terms.unit)
        offline = self.offline or MWEMPGM(k=default_rounds(self.workload))
        plan = offline.calibrate(self.workload, protected.per_event(terms.budget), protected.event)
        return BaselinePlan(self, plan, terms.budget, protected, terms.horizon)


@dataclass(frozen=True)
class BaselinePlan(StreamPlan):
    """See ``Baseline``."""

    recipe: Baseline
    offline: OfflinePlan
    budget: Budget
    unit: EventUnit
    horizon: int | None
    name = "baseline"
    follows_constraints = True

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.recipe.workload.domain

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        return {
            "deletions": self.recipe.deletions,
            "prior": self.recipe.prior,
            "workload": self.recipe.workload.as_option(),
            **self.offline.options(),
        }

    def facts(self) -> dict[str, Any]:
        """The noise of a run. Every step adds an independent one, so the variances add up."""
        variance = self.offline.cell_variance if isinstance(self.offline, MWEMPGMPlan) else None
        sums = {} if variance is None else {str(n): math.sqrt(variance) * math.sqrt(n) for n in TICKS}
        facts = table_facts(self.recipe.workload, sums.get("1"), sums)
        numbers = self.offline.numbers()
        if numbers is not None:
            first, most = (number * (2 if self.recipe.deletions else 1) for number in numbers)
            facts["noisy_counts"] = {"first": first, "most": most, "at": "every_step"}
        return facts

    def start(self) -> BaselineState:
        """The state before the first step: an empty table."""
        return BaselineState(0, np.empty((0, len(self.domain)), dtype=np.int32), 0.0, 0.0, 0.0, {})

    def start_from(self, base: StartTable) -> BaselineState:
        """The state that begins with the base's records; what its noisy number of records has more is owed."""
        check_domain(base, self.domain)
        codes = base.records()
        variance = None if base.total_error is None else base.total_error**2
        return BaselineState(0, codes, base.total, base.total - len(codes), 0.0, {}, variance)

    def expected_errors(
        self, steps: Sequence[int], expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...] | None:
        """See ``StreamPlan.expected_errors``: of sums of what independent runs measure, not of their models."""
        asked, cliques = check_steps(steps, self.horizon), self.recipe.workload.cliques
        if not isinstance(self.offline, MWEMPGMPlan):
            return None
        sides = 2 if self.recipe.deletions else 1
        cell, total = self.offline.cell_variance * sides, self.offline.total_variance() * sides
        errors = []
        for step in asked:
            every, whole = math.sqrt(cell * step), math.sqrt(total * step)
            errors.append(ExpectedErrors(step, 0.0, whole, every_step=every))
        return with_table(errors, self.domain, cliques if self.offline.k >= len(cliques) else (), expected)

    def pack_state(self, state: BaselineState) -> Packed:
        """The table, what is owed, and the last models."""
        packed = table_synthesis(self.domain, state).pack()
        owed = [state.owed_inserts, state.owed_deletes]
        meta: dict[str, Any] = {"step": state.step, "owed": owed, "variance": state.variance}
        metas, arrays = pack_models(list(state.models.values()))
        meta["models"] = dict(zip(state.models, metas, strict=True))
        return Packed({**packed.meta, **meta}, {**packed.arrays, **arrays})

    def unpack_state(self, packed: Packed) -> BaselineState:
        """The inverse of ``pack_state``."""
        table = TableSynthesis.unpack(packed)
        meta = packed.meta
        models = unpack_models(list(meta["models"].values()), packed.arrays)
        named = dict(zip(meta["models"], models, strict=True))
        inserts, deletes = meta["owed"]
        return BaselineState(
            meta["step"], table.codes, table.records, inserts, deletes, named, meta["variance"]
        )

    def unpack_synthesis(self, packed: Packed) -> TableSynthesis:
        """The inverse of ``TableSynthesis.pack``."""
        return TableSynthesis.unpack(packed)

    def parts(self) -> tuple[Part, ...]:
        """The parts of one offline run: the costliest any single event meets; of a user's events, all together."""
        factor = self.unit.factor(self.budget)
        return tuple(replace(part, times=part.times * factor) for part in self.offline.parts())

    def step(self, state: BaselineState, batch: PrivateBatch, randomness: Randomness) -> TableSynthesis:
        """Run the offline mechanism on the batch, add what it says, take away what it says was deleted."""
        refuse_deletes(batch, deletions=self.recipe.deletions)
        coins = randomness.coins("seeds for drawing records from public models", 2)
        seeds = [int(word >> np.uint64(1)) for word in coins]
        measured: list[NoisyCounts] = []
        inserted = self._run(state, batch, "inserts", randomness, measured)
        state.total += inserted.total
        state.owed_inserts += inserted.total
        rows = min(max(0, round(state.owed_inserts)), _MAX_ROWS)
        state.owed_inserts -= rows
        state.codes = np.concatenate([state.codes, inserted.sample(rows, seeds[0])])
        if self.recipe.deletions:
            deleted = self._run(state, batch, "deletes", randomness, measured)
            state.total -= deleted.total
            state.owed_deletes += deleted.total
            gone = min(max(0, round(state.owed_deletes)), len(state.codes), _MAX_DELETES)
            state.owed_deletes -= gone
            state.codes = remove_nearest(state.codes, deleted.sample(gone, seeds[1]))
        state.step += 1
        return replace(table_synthesis(self.domain, state), noisy_counts=tuple(measured))

    def _run(
        self,
        state: BaselineState,
        batch: PrivateBatch,
        part: BatchPart,
        randomness: Randomness,
        measured: list[NoisyCounts],
    ) -> Model:
        """One offline run, from the same part's previous model where that is asked for; what it drew is added to
        ``measured``."""
        prior = state.models.get(part) if self.recipe.prior == "previous" else None
        prior = None if prior is None else prior.bounded(PRIOR_BOUND)
        run, step = self.offline.run(batch, part, randomness, prior), state.step + 1
        model, variance = run.model, run.total_variance
        measured += published(run.outputs, f"step {step}, {part}", part, step, step)
        # Runs are independent, whether their records are added or taken away.
        if state.variance is not None:
            state.variance = None if variance is None else state.variance + variance
        state.models[part] = model
        return model

    def asked_cliques(self) -> Sequence[Clique]:
        """Those of the offline mechanism."""
        return self.offline.counted
