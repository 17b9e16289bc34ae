"""Transcripts of streams in which equal rows that come and go within a step cancel (docs/theory/turnover.md).

Neighbours differ in an insert or a delete of a row that no other record is like: alone in its step, beside its own
counterpart, beside several, or with its counterpart a step later. Around it a crowd comes and goes, most of which
cancels.

Controls cancel where it is not allowed: with the step before, marginal by marginal, and under replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import ZCDP, Event, Exact, PureDP, User
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.core.tables.encoded_batch import batch_codes
from dpstream.families.tabular import DPStabs, DPStabsPlan, Pooled, PooledPlan
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream_lab.audits.subjects import rebuilt, stream_pair, transcripts_of

Batches = list[EncodedBatch]

_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
#: Two rows that the crowd never has: its first and last columns are equal.
_ROW, _OTHER = (1, 2, 0), (0, 1, 1)
#: With ``staleness`` 1/2 epochs end at 1, 3 and 7: the event is in an epoch's only step, its last one or its first one.
_STEPS, _AT = 7, (1, 3, 4)
#: Records that come and that leave in each step.
_CAME, _LEFT = 160, 120

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


def turnover_subjects() -> Iterator[Subject]:
    """Pooled and DP-STabS, where come and go cancels; then the controls."""
    half = Fraction(1, 2)
    pooled = Pooled(
        Workload.all_k_way(_DOMAIN, 2), staleness=half, select_share=half, deletions=True, iterations=5
    )
    pure = pooled.calibrate(PureDP.of(1), horizon=_STEPS)
    replaced = pooled.calibrate(PureDP.of(1), unit=Event("replace"), horizon=_STEPS)
    tabs = DPStabs(pooled.workload, k=2, select_share=half, iterations=5, deletions=True)
    for name, plan, scenes in (
        ("pooled, pure", pure, _SCENES),
        ("pooled, zCDP", pooled.calibrate(ZCDP.of("1/8"), horizon=_STEPS), _SCENES),
        ("pooled, user", pooled.calibrate(PureDP.of(1), unit=User(2), horizon=_STEPS), _USERS),
        ("dpstabs, pure", tabs.calibrate(PureDP.of(1)), _SCENES),
    ):
        yield _subject(plan, scenes, f"equal rows that cancel, {name}")
    for name, broken, scenes, reads in (
        ("with those of the step before", pure, _SCENES, _with_the_step_before),
        ("marginal by marginal", pure, _SCENES, _by_marginal),
        ("under replacement", rebuilt(_Unchecked, replaced), _REPLACED, list),
    ):
        yield _subject(broken, scenes, f"equal rows that cancel {name}", reads, control=True)


#: The short one takes about 10 s of a core.
audit_turnover = transcripts_of(turnover_subjects, 1, 20)


def _subject(
    plan: PooledPlan | DPStabsPlan,
    scenes: Sequence[_Scene],
    name: str,
    reads: Callable[[Batches], Batches] = list,
    **more: Any,
) -> Subject:
    """All scenes at their steps, in one direction and the other by turns.

    Args:
        reads: how batches are read; a broken rule in controls.
    """

    def pairs() -> Iterator[Pair]:
        for number, (scene, at) in enumerate((scene, at) for scene in scenes for at in _AT):
            runs = map(reads, _streams(scene, at)[:: -1 if number % 2 else 1])
            yield stream_pair(plan, f"{scene.name}, at step {at}", *runs)

    return Subject(name, plan.budget, pairs, **more)


def _streams(scene: _Scene, at: int) -> list[Batches]:
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
    return found


def _crowd(generator: np.random.Generator, rows: int) -> NDArray[np.int32]:
    first = generator.integers(0, 2, rows)
    return np.column_stack([first, generator.integers(0, 3, rows), first]).astype(np.int32)


# Controls.


def _rows(batch: EncodedBatch) -> list[NDArray[np.int32]]:
    """The private rows that come and that leave, which no mechanism gets to see."""
    return [np.asarray(rows) for rows in batch_codes(batch)]


def _with_the_step_before(batches: Batches) -> Batches:
    """BROKEN: a delete also cancels an equal insert that the step before has counted, and is not read."""
    read, before = Batches(), list[list[int]]()
    for batch in batches:
        came, left = _rows(batch.without_cancelled())
        kept = []
        for row in left.tolist():
            if row in before:
                before.remove(row)
            else:
                kept.append(row)
        before = came.tolist()
        read.append(EncodedBatch(_DOMAIN, came, np.array(kept, np.int32).reshape(-1, left.shape[1])))
    return read


class _NetOfEach(EncodedBatch):
    """BROKEN: every marginal cancels by itself, so that one event may be in both sides."""

    def count(
        self, cliques: Sequence[Clique], part: Literal["net", "inserts", "deletes"] = "net"
    ) -> list[Exact]:
        net = super().count(cliques)
        if part == "net":
            return net
        return [Exact(np.maximum(own if part == "inserts" else -own, 0)) for own in net]

    def without_cancelled(self) -> EncodedBatch:
        return self


def _by_marginal(batches: Batches) -> Batches:
    """BROKEN: see ``_NetOfEach``."""
    return [_NetOfEach(_DOMAIN, *_rows(batch)) for batch in batches]


class _Unchecked(PooledPlan):
    """BROKEN: takes the numbers of inserts and deletes for public, and lets rows cancel all the same."""

    @property
    def cancels(self) -> bool:
        return True
