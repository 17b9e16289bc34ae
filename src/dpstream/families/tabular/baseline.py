"""The baseline stream (Algorithm 2): an independent offline run on every batch, added up.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpstream.core.contracts import (
    NoisyCounts,
    Part,
    PrivateBatch,
    Recipe,
    Terms,
)
from dpstream.core.graphical import Model
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema.domain import Clique
from dpstream.families.tabular.baseline_facts import (
    BaselineFacts,
    BaselineOptions,
    BaselineState,
    BatchPart,
    remove_nearest,
    table_synthesis,
)
from dpstream.mechanisms.mwem_pgm import MWEMPGM
from dpstream.mechanisms.plans import event_unit, refuse_deletes
from dpstream.mechanisms.recipe_checks import PRIOR_BOUND, default_rounds
from dpstream.mechanisms.run_outputs import published
from dpstream.mechanisms.table_release import TableSynthesis

#: The most rows that are drawn at one step; the rest is owed. Only absurd noise gets here.
_MAX_ROWS = 1_000_000
#: The most rows that are taken away at one step: each of them is compared with the whole table.
_MAX_DELETES = 20_000


@dataclass(frozen=True)
class Baseline(BaselineOptions, Recipe["BaselinePlan"]):
    """``g_t = g_{t-1} + A(batch_t)`` around any offline mechanism ``A``.

    Guarantee: that of one run of ``A``, for the whole stream: a record is inserted in one batch, and its
    deletion is another event. With ``deletions`` every step runs ``A`` twice, once on the inserts and once on
    the deletes (each event is in one of the two), and takes the second away. Both runs happen at every step,
    whatever the batch holds.

    Args:
        workload: the marginals to preserve.
        offline: the mechanism ``A``; None takes MWEM+PGM with four marginals (a batch is small), or fewer where there
            are fewer.
        deletions: a public statement that the stream may delete records.
        prior: each run starts from the ``previous`` run's model (a released thing, so free of charge), or from the
            ``uniform`` distribution.

    Cost: one or two offline runs a step; the state is the synthetic table, so it grows with its size.

    Reference: Kumar, Strohmer, Vershynin, Algorithm 2, with PGM in place of multiplicative weights.
    """

    def _plan(self, terms: Terms) -> BaselinePlan:
        """Fix the noise of one offline run."""
        protected = event_unit(terms.unit)
        offline = self.offline or MWEMPGM(k=default_rounds(self.workload))
        plan = offline.calibrate(self.workload, protected.per_event(terms.budget), protected.event)
        return BaselinePlan(self, plan, terms.budget, protected, terms.horizon)


@dataclass(frozen=True)
class BaselinePlan(BaselineFacts):
    """See ``Baseline``."""

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
