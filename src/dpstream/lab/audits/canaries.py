"""Tiny neighbouring streams for audits: a canary, one invented record more, at one step.

All records are invented and public. A *scene* has one tiny stream without the canary, variations of it, and a list of
pairs among these streams that are neighbours (or a stated number of events apart).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.tools.evaluate.array_types import Codes

Record = tuple[int, ...]


@dataclass(frozen=True)
class TinyStream:
    """Records by step. ``deletes`` is None for a stream without deletes."""

    domain: Domain
    inserts: tuple[Codes, ...]
    deletes: tuple[Codes, ...] | None = None

    def __len__(self) -> int:
        return len(self.inserts)

    def with_insert(self, record: Record, at: int) -> TinyStream:
        """The stream with one more record, inserted at step ``at`` (1, 2, ...)."""
        return TinyStream(self.domain, _more(self.inserts, record, at), self.deletes)

    def with_delete(self, record: Record, at: int) -> TinyStream:
        """The stream with one more delete, at step ``at``. Only for streams with deletes."""
        assert self.deletes is not None
        return TinyStream(self.domain, self.inserts, _more(self.deletes, record, at))

    def with_replaced(self, record: Record, at: int) -> TinyStream:
        """The stream with ``record`` in place of the first insert of step ``at``; batch sizes stay the same."""
        changed = self.inserts[at - 1].copy()
        changed[0] = record
        return TinyStream(self.domain, (*self.inserts[: at - 1], changed, *self.inserts[at:]), self.deletes)

    def batches(self) -> tuple[EncodedBatch, ...]:
        """The batches for a plan, step by step."""
        deletes: Sequence[Codes | None] = self.deletes or [None] * len(self)
        return tuple(EncodedBatch(self.domain, *pair) for pair in zip(self.inserts, deletes, strict=True))


def crowded(domain: Domain, steps: int, each: int, *, deletions: bool = False) -> TinyStream:
    """A stream with every combination of values ``each`` times at every step, so that no fit clips a count at zero.

    With ``deletions``, every step but the first deletes half as many.
    """
    every = np.indices(domain.sizes).reshape(len(domain), -1).T.astype(np.int32)
    inserts = (np.repeat(every, each, axis=0),) * steps
    if not deletions:
        return TinyStream(domain, inserts)
    gone = np.repeat(every, each // 2, axis=0)
    return TinyStream(domain, inserts, (gone[:0], *(gone,) * (steps - 1)))


def empty(domain: Domain, steps: int) -> TinyStream:
    """A stream without records."""
    return TinyStream(domain, (np.empty((0, len(domain)), np.int32),) * steps)


@dataclass(frozen=True)
class Pair:
    """Two streams of a scene, by their numbers, which differ in so many events."""

    name: str
    first: int
    second: int
    events: int = 1


@dataclass(frozen=True)
class Scene:
    """Tiny streams of one length over one domain. The others are variations of number 0."""

    streams: tuple[TinyStream, ...]
    pairs: tuple[Pair, ...]

    @classmethod
    def inserted(cls, base: TinyStream, record: Record, steps: Sequence[int]) -> Scene:
        """Variations with a canary inserted at one of these steps."""
        streams = (base, *(base.with_insert(record, at) for at in steps))
        pairs = (Pair(f"canary at step {at}", 0, i) for i, at in enumerate(steps, start=1))
        return cls(streams, tuple(pairs))

    @classmethod
    def replaced(cls, base: TinyStream, record: Record, steps: Sequence[int]) -> Scene:
        """Variations with other values in the first record of one of these steps."""
        streams = (base, *(base.with_replaced(record, at) for at in steps))
        pairs = (Pair(f"record replaced at step {at}", 0, i) for i, at in enumerate(steps, start=1))
        return cls(streams, tuple(pairs))

    @classmethod
    def come_and_gone(cls, base: TinyStream, record: Record, at: int, gone: int) -> Scene:
        """Variations with a canary inserted at step ``at``, and with the same canary deleted at step ``gone``: 2
        events."""
        inserted = base.with_insert(record, at)
        pairs = (
            Pair(f"canary at step {at}", 0, 1),
            Pair(f"deletion of the canary at step {gone} or not", 1, 2),
            Pair(f"canary at step {at}, deleted at step {gone}", 0, 2, events=2),
        )
        return cls((base, inserted, inserted.with_delete(record, gone)), pairs)

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.streams[0].domain

    def __len__(self) -> int:
        return len(self.streams[0])


def _more(batches: tuple[Codes, ...], record: Record, at: int) -> tuple[Codes, ...]:
    grown = np.vstack([batches[at - 1], np.array([record], np.int32)])
    return (*batches[: at - 1], grown, *batches[at:])
