"""The exact loss of streams in which equal rows that come and go within a step cancel (docs/theory/turnover.md).

Transcripts of whole streams, as for pooled streams and DP-STabS, on neighbours that differ in an insert or a delete of
a row that no other record is like: alone in its step, beside its own counterpart, beside several, or with its
counterpart a step later. Around it a crowd comes and goes, most of which cancels.

Controls cancel where it is not allowed: with the step before, marginal by marginal, and under replacement.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PrivateBatch
from dpstream.core.privacy import Event, PureDP, Randomness, User
from dpstream.core.privacy.budget import ZCDP
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import DPStabs, DPStabsPlan, Pooled, PooledPlan
from dpstream.families.tabular.pooled_state import PooledState
from dpstream.lab.audits.door import stream_loss
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.transcripts import transcript_loss
from dpstream.mechanisms.table_release import ModelSynthesis

_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
#: Two rows that the crowd never has: its first and last columns are equal.
_ROW, _OTHER = (1, 2, 0), (0, 1, 1)
#: With ``staleness`` 1/2 epochs end at 1, 3 and 7: the event is in an epoch's only step, its last one or its first one.
_STEPS, _AT = 7, (1, 3, 4)
#: Records that come and that leave in each step.
_CAME, _LEFT = 160, 120
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 1, "long": 20}

_SIDES = ("came", "left")
#: One event: so many steps after the scene's step, which of the sides, which row.
_Event = tuple[int, str, tuple[int, ...]]


@dataclass(frozen=True)
class _Scene:
    """Neighbours: ``common`` events are in both streams, ``fewer`` in one of them, ``more`` in the other."""

    name: str
    common: Sequence[_Event]
    more: Sequence[_Event]
    fewer: Sequence[_Event] = ()


_SCENES: Sequence[_Scene] = (
    _Scene("an insert alone", (), [(0, "came", _ROW)]),
    _Scene("a delete alone", (), [(0, "left", _ROW)]),
    _Scene("an insert whose delete is there", [(0, "left", _ROW)], [(0, "came", _ROW)]),
    _Scene("a delete whose insert is there", [(0, "came", _ROW)], [(0, "left", _ROW)]),
    _Scene(
        "one insert more among equal ones",
        [(0, "came", _ROW), (0, "came", _ROW), *[(0, "left", _ROW)] * 3],
        [(0, "came", _ROW)],
    ),
    _Scene("an insert whose delete comes a step later", [(1, "left", _ROW)], [(0, "came", _ROW)]),
)
#: Of one user with two events.
_USERS: Sequence[_Scene] = (
    _Scene("a user who comes and goes", (), [(0, "came", _ROW), (0, "left", _ROW)]),
    _Scene("a user who goes a step later", (), [(0, "came", _ROW), (1, "left", _ROW)]),
    _Scene("a user who tips the balance twice", [(0, "left", _ROW)], [(0, "came", _ROW), (0, "came", _ROW)]),
)
_REPLACED: Sequence[_Scene] = (
    _Scene(
        "another row in place of one whose delete is there",
        [(0, "left", _ROW)],
        [(0, "came", _OTHER)],
        [(0, "came", _ROW)],
    ),
)


def audit_turnover(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Pooled and DP-STabS, where come and go cancels; then the controls. Cost: short: about 10 s of a core."""
    pooled = Pooled(
        Workload.all_k_way(_DOMAIN, 2),
        staleness=Fraction(1, 2),
        select_share=Fraction(1, 2),
        deletions=True,
        iterations=5,
    )
    runs, pure = _TRANSCRIPTS[length], pooled.calibrate(PureDP.of(1), horizon=_STEPS)
    tabs = DPStabs(
        pooled.workload,
        k=2,
        select_share=Fraction(1, 2),
        iterations=5,
        deletions=True,
    )
    for name, plan, scenes in (
        ("pooled, pure", pure, _SCENES),
        ("pooled, zCDP", pooled.calibrate(ZCDP.of("1/8"), horizon=_STEPS), _SCENES),
        ("pooled, user", pooled.calibrate(PureDP.of(1), unit=User(2), horizon=_STEPS), _USERS),
        ("dpstabs, pure", tabs.calibrate(PureDP.of(1)), _SCENES),
    ):
        subject = f"equal rows that cancel, {name}"
        progress(subject)
        yield exact_turnover(plan, scenes, runs, randomness, subject)
    for name, broken, scenes in (
        ("with those of the step before", _as(_StepBefore, pure), _SCENES),
        ("marginal by marginal", _as(_ByMarginal, pure), _SCENES),
        ("under replacement", _Unchecked.of(pooled), _REPLACED),
    ):
        subject = f"equal rows that cancel {name}"
        progress(f"control: {subject}")
        yield exact_turnover(broken, scenes, 1, randomness, subject, control=True)


def exact_turnover(
    plan: PooledPlan | DPStabsPlan,
    scenes: Sequence[_Scene],
    transcripts: int,
    randomness: Randomness,
    subject: str,
    *,
    control: bool = False,
) -> AuditFinding:
    """The largest loss over scenes, their steps, and transcripts, in one direction and the other by turns."""
    began, worst, tried = time.perf_counter(), Largest(), 0
    for scene in scenes:
        for at in _AT:
            one, two = _streams(scene, at)
            for _ in range(transcripts):
                base, other = (one, two) if tried % 2 else (two, one)
                worst.see(_loss(plan, base, other, randomness), f"{scene.name}, at step {at}")
                tried += 1
    return AuditFinding.exact(
        began,
        subject=f"{subject}, transcripts",
        claimed=plan.budget,
        found=worst.loss,
        control=control,
        detail=f"{tried} transcripts of {_STEPS} steps; most with {worst.where}",
    )


def _loss(
    plan: PooledPlan | DPStabsPlan,
    base: list[EncodedBatch],
    neighbour: list[EncodedBatch],
    randomness: Randomness,
) -> float:
    if isinstance(plan, PooledPlan):
        return stream_loss(plan, base, neighbour, randomness)
    return abs(transcript_loss(plan, base, neighbour, randomness).total)


def _streams(scene: _Scene, at: int) -> tuple[list[EncodedBatch], list[EncodedBatch]]:
    """A crowd with the common events, and with the one or the other ones besides."""
    found = []
    for own in (scene.more, scene.fewer):
        generator, stream = np.random.default_rng(at), list[EncodedBatch]()
        for step in range(1, _STEPS + 1):
            crowd = [_crowd(generator, rows) for rows in (_CAME, _LEFT)]
            for number, side in enumerate(_SIDES):
                here = [
                    row for after, where, row in (*scene.common, *own) if (at + after, where) == (step, side)
                ]
                crowd[number] = np.concatenate([crowd[number], np.array(here, np.int32).reshape(-1, 3)])
            stream.append(EncodedBatch(_DOMAIN, *crowd))
        found.append(stream)
    return found[0], found[1]


def _crowd(generator: np.random.Generator, rows: int) -> NDArray[np.int32]:
    first = generator.integers(0, 2, rows)
    return np.column_stack([first, generator.integers(0, 3, rows), first]).astype(np.int32)


# Controls.


def _rows(batch: Any, side: str) -> NDArray[np.int32]:
    """The private rows of one side of a batch, which no mechanism gets to see."""
    rows = batch._inserts if side == "came" else batch._deletes
    return np.asarray(rows)


class _StepBefore(PooledPlan):
    """BROKEN: a delete also cancels an equal insert that the step before has counted, and is not read."""

    def step(self, state: PooledState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        now = batch.without_cancelled()  # type: ignore[attr-defined]
        came, left = _rows(now, "came"), _rows(now, "left")
        before = getattr(state, "came_before", came[:0]).tolist()
        kept = []
        for row in left.tolist():
            if row in before:
                before.remove(row)
            else:
                kept.append(row)
        object.__setattr__(state, "came_before", came)
        left = np.array(kept, np.int32).reshape(-1, left.shape[1])
        return super().step(state, EncodedBatch(self.domain, came, left), randomness)


class _NetOfEach(EncodedBatch):
    """BROKEN: every marginal cancels by itself, so that one event may be in both sides."""

    def count(
        self, cliques: Sequence[Clique], part: Literal["net", "inserts", "deletes"] = "net"
    ) -> list[NDArray[np.int64]]:
        net = super().count(cliques)
        if part == "net":
            return net
        return [np.maximum(own if part == "inserts" else -own, 0) for own in net]

    def without_cancelled(self) -> EncodedBatch:
        return self


class _ByMarginal(PooledPlan):
    """BROKEN: see ``_NetOfEach``."""

    def step(self, state: PooledState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        each = _NetOfEach(self.domain, _rows(batch, "came"), _rows(batch, "left"))
        return super().step(state, each, randomness)


class _Unchecked(PooledPlan):
    """BROKEN: takes the numbers of inserts and deletes for public, and lets rows cancel all the same."""

    @property
    def cancels(self) -> bool:
        return True

    @classmethod
    def of(cls, recipe: Pooled) -> PooledPlan:
        return _as(cls, recipe.calibrate(PureDP.of(1), unit=Event("replace"), horizon=_STEPS))


def _as(kind: type[PooledPlan], plan: PooledPlan) -> PooledPlan:
    return kind(plan.recipe, plan.budget, plan.unit, plan.horizon, plan.runner)
