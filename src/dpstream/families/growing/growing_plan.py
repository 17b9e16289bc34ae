"""Schedulers as streams: what is remembered between steps, and when the black box runs.

Trusted base: kernel (holds private records, measures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, Part, PrivateBatch, pack_fields, unpack_fields
from dpstream.core.errors import LimitError, StoreDamagedError
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema.domain import Clique
from dpstream.families.growing.blackbox import Database, refuse_deletes
from dpstream.families.growing.erm_run import LinearClassifier
from dpstream.families.growing.growing_facts import GrowingFacts, LastRun, last_run
from dpstream.families.growing.run_schedule import MAX_RECORDS
from dpstream.families.growing.tables import AnyTable
from dpstream.mechanisms.run_outputs import RunOutput, published

#: Runs that a plan lists one by one among its parts; all later ones are one part.
_LISTED_RUNS = 3


@dataclass
class GrowingState:
    """What is remembered. Secret: ``counts`` are exact.

    Attributes:
        t: number of records; public.
        counts: of the marginals that the black box reads, over all records so far.
        done: the last epoch whose budget was used; -1 before the first run.
        made: about the last run; None before it.
        table: what it released, a table or a classifier; uniform, or of zeros, before it.
        step: the last step; public.
    """

    t: int
    counts: list[NDArray[np.int64]]
    done: int
    made: LastRun | None
    table: AnyTable | LinearClassifier
    step: int = 0


@dataclass(frozen=True)
class GrowingPlan(GrowingFacts):
    """A calibrated ``BBScheduler`` or ``BBImprover``.

    Guarantee: ``budget`` for the values of one record, the number of records at every step being public. Which steps
    run the black box, and with what budget, depends on these numbers only; each run satisfies its budget for the
    database as it is then; the budgets of all runs together are at most ``budget``. In between the last release is
    repeated. Proof: docs/theory/growing.md.

    Attributes:
        box: the black box, fitted.
        schedule: when it runs, and what each run may spend.
        word: the mechanism's name in configuration files.
    """

    def asked_cliques(self) -> Sequence[Clique]:
        """The number of records, and what the black box reads."""
        return ((), *self.box.reads.cliques)

    def parts(self) -> tuple[Part, ...]:
        """The first runs, and all later ones together, for ever."""
        kind = type(self.budget)
        first = list(islice(self.runs(), _LISTED_RUNS))
        parts = [
            Part(f"run at {run.t} records", 1, kind(run.cost), f"{self.box.describe()}, given {run.budget}")
            for run in first
        ]
        rest = self.budget.amount - sum((run.cost for run in first), Fraction(0))
        return (*parts, Part("all later runs", 1, kind(rest), f"for ever: {self._rule()}"))

    # The stream.

    def start(self) -> GrowingState:
        """The state before the first step: no record."""
        reads = self.box.reads
        counts = [np.zeros(reads.domain.cells(clique), np.int64) for clique in reads.cliques]
        return GrowingState(0, counts, -1, None, self._blank())

    def step(self, state: GrowingState, batch: PrivateBatch, randomness: Randomness) -> Any:
        """Add the batch, and run the black box if the schedule says so.

        Cost: counting the batch; a run where one is due. Nothing is done for single arrivals.

        Errors (before anything is drawn): ConfigError: deletes. LimitError: more than 2^32 records.
        """
        refuse_deletes(batch)
        arrived, *counted = batch.count([(), *self.box.reads.cliques], "inserts")
        # Public: under event-replace the number of inserts of every step is.
        t = state.t + int(arrived[0])
        if t > MAX_RECORDS:
            raise LimitError(
                "too many records for the database", where="mechanism", allowed=f"up to {MAX_RECORDS}"
            )
        for total, new in zip(state.counts, counted, strict=True):
            total += new
        state.t = t
        state.step += 1
        outputs: tuple[RunOutput, ...] = ()
        run = self.schedule.due(state.done, t)
        if run is not None:
            # Views that the black box cannot write to.
            data = Database(t, tuple(np.broadcast_to(total, total.shape) for total in state.counts))
            made = self.box.run(run.budget, data, randomness)
            state.table, outputs = self.box.following(made, state.table), made.outputs
            state.made, state.done = last_run(state.made, run), run.last
        synthesis = self._synthesis(state.table, state.t, state.made, state.done)
        if not outputs:
            return synthesis
        # A run reads all records so far, and draws its own noise.
        counts = published(outputs, f"step {state.step}", "inserts", 1, state.step)
        return replace(synthesis, noisy_counts=tuple(counts))

    def pack_state(self, state: GrowingState) -> Packed:
        """The counts, and the last release."""
        return pack_fields(state)

    def unpack_state(self, packed: Packed) -> GrowingState:
        """The inverse of ``pack_state``.

        Errors:
            StoreDamagedError: counts that do not fit each other, or the plan.
        """
        state = unpack_fields(GrowingState, packed, **self._given)
        wanted = [zeros.shape for zeros in self.start().counts]
        sums = [int(values.sum()) for values in state.counts]
        if [values.shape for values in state.counts] != wanted or any(total != state.t for total in sums):
            raise StoreDamagedError("the stored counts contradict each other", where="state")
        return state
