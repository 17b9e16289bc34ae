"""Transcripts of streams of users who are protected in each public period (docs/theory/users.md).

Neighbours differ in all that one user does in one period, or in several. Others, and the same user's other periods, are
in both. Admission is that of the program.

Controls: two periods under the claim of one; counters that are never set back, or in the middle of a period.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpstream.core.contracts import StepPeriods, ends
from dpstream.core.privacy import PureDP, User
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.core.tables.contribution import admit, read_owners
from dpstream.families.tabular import Pooled, PooledPlan
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream_lab.audits.subjects import stream_pair, transcripts_of

_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
_KEY = b"k" * 32
#: With ``staleness`` 1/2 epochs end at 1, 3 and 7, and no period does: steps 1 and 2, 3 and 4, 5 and 6.
_STEPS, _PER, _BOUND = 7, StepPeriods(2), 2
#: Of the user, in even and odd steps: events of two steps do not make up for each other.
_ROWS = (1, 2, 0), (0, 1, 1)
_CROWD = 60


def period_subjects() -> Iterator[Subject]:
    """Users of one, two and three periods; then the controls."""
    half = Fraction(1, 2)
    recipe = Pooled(Workload.all_k_way(_DOMAIN, 2), staleness=half, select_share=half, iterations=5)
    plan = recipe.calibrate(PureDP.of(1), unit=User(_BOUND, _PER), horizon=_STEPS)
    for several in ((1,), (0, 2), (0, 1, 2)):
        claim = PureDP.of(len(several))
        yield Subject(f"users of {len(several)} periods", claim, _Pairs(plan, [several]))
    one = PureDP.of(1)
    yield Subject("users of 2 periods, by one", one, _Pairs(plan, [(0, 1)]), control=True)
    for name, borders in (("never", ()), ("in the middle of a period", (1, 3, 5))):
        pairs = _Pairs(plan, [(0,), (1,), (2,)], borders)
        yield Subject(f"counters set back {name}", one, pairs, control=True)


#: The short one takes some seconds.
audit_periods = transcripts_of(period_subjects, 1, 20)


@dataclass(frozen=True)
class _Pairs:
    """Pairs of streams with and without a user in some periods.

    Attributes:
        several: periods, from 0.
        borders: steps after which counters are set back.
    """

    plan: PooledPlan
    several: Sequence[tuple[int, ...]]
    borders: Sequence[int] = field(default_factory=lambda: [s for s in range(1, _STEPS) if ends(_PER, s)])

    def __call__(self) -> Iterator[Pair]:
        for absent in self.several:
            # More events than the bound, in both steps of a period.
            there = dict.fromkeys(range(1, _STEPS), 3)
            gone = {step: many * (_PER.number(step) not in absent) for step, many in there.items()}
            for name, runs in (("without", (there, gone)), ("with", (gone, there))):
                yield stream_pair(self.plan, f"{name} the periods {absent}", *map(self._admitted, runs))

    def _admitted(self, events: dict[int, int]) -> list[EncodedBatch]:
        """What a mechanism sees of the user's events and of a crowd."""
        used, batches, generator = dict[bytes, int](), [], np.random.default_rng(1)
        for step in range(1, _STEPS + 1):
            crowd = generator.integers(_DOMAIN.sizes, size=(_CROWD, 3), dtype=np.int32)
            own = np.repeat(np.array([_ROWS[step % 2]], np.int32), events.get(step, 0), axis=0)
            ids = [*(f"{step} {number}" for number in range(_CROWD)), *["user"] * len(own)]
            batches.append(self._step(np.concatenate([crowd, own]), ids, used))
            if step in self.borders:
                used.clear()
        return batches

    def _step(self, rows: NDArray[np.int32], ids: list[str], used: dict[bytes, int]) -> EncodedBatch:
        column = pa.chunked_array([pa.array(ids, pa.string())])
        owners = read_owners((column, None), (len(rows), 0), key=_KEY, where="audit")
        before = np.array([used.get(user, 0) for user in owners.ids], np.int64)
        taken = admit(rows, rows[:0], owners, before, _BOUND, _KEY)
        used.update(zip(owners.ids, taken.counts.tolist(), strict=True))
        return EncodedBatch(_DOMAIN, rows[taken.inserts])
