"""Whole streams that are broken on purpose: an audit that does not catch them is blind.

**Never use them on real data.** No configuration file can name them, and nothing outside the audits imports them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpstream.core.contracts import Packed, PrivateBatch
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.randomness import Randomness
from dpstream.families.tabular import DPStabsPlan
from dpstream.families.tabular.dpstabs_state import DPStabsState
from dpstream.families.tabular.table_release import ModelSynthesis
from dpstream.lab.audits.controls import broken_quiet_counter


def two_thirds_of_the_noise(plan: DPStabsPlan) -> DPStabsPlan:
    """BROKEN: counters whose noise is scaled by 2/3. They lose 3/2 of their epsilon, 9/4 of their rho."""
    return replace(plan, counter=broken_quiet_counter(plan.counter))


def a_quarter_of_the_noise(plan: DPStabsPlan) -> DPStabsPlan:
    """BROKEN: counters whose noise is scaled by 1/4. They lose 4 times their epsilon, 16 times their rho."""
    return _with_counters_at(plan, 4 if isinstance(plan.budget, PureDP) else 16)


def spent_once_per_counter(plan: DPStabsPlan) -> DPStabsPlan:
    """BROKEN: each of the ``k`` counters that an event enters spends the budget that all of them should share."""
    return _with_counters_at(plan, plan.recipe.rounds)


def _with_counters_at(plan: DPStabsPlan, factor: int) -> DPStabsPlan:
    counter = plan.counter
    assert isinstance(counter, CalibratedIntervalCounter)
    return replace(plan, counter=counter.recipe.calibrate(counter.budget.scaled(factor), counter.unit))


@dataclass
class _CountedBox:
    inner: DPStabsState
    records: int


@dataclass(frozen=True)
class ExactTotal:
    """BROKEN: the stream of a correct plan, with the true number of records in place of the noisy one."""

    plan: DPStabsPlan

    def start(self) -> _CountedBox:
        """A new state, before any record."""
        return _CountedBox(self.plan.start(), 0)

    def step(self, state: _CountedBox, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """The plan's synthesis with an exact total."""
        synthesis = self.plan.step(state.inner, batch, randomness)
        state.records += int(batch.count([()])[0][0])
        return replace(synthesis, records=float(state.records))

    def pack_state(self, state: _CountedBox) -> Packed:
        """The plan's state and the exact number of records."""
        packed = self.plan.pack_state(state.inner)
        return Packed({"inner": packed.meta, "records": state.records}, packed.arrays)

    def unpack_state(self, packed: Packed) -> _CountedBox:
        """The inverse of ``pack_state``."""
        inner = self.plan.unpack_state(Packed(packed.meta["inner"], packed.arrays))
        return _CountedBox(inner, packed.meta["records"])
