"""Follows records that have keys as the stream will: for ``dpstream check``, and for the truth of an evaluation.

Trusted base: owner (shows the owner problems of private records).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import UnconfirmedError
from dpstream.core.tables import KeyedBatch, PresentTable, ReadRequest, Snapshot
from dpstream.core.tables.contribution import as_ids
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.stream.admission import Admission
from dpstream.stream.store.summed_rows import PresentChange

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.io.sources import StepInput
    from dpstream.stream.store.store import Store

Codes = NDArray[np.int32]


def checked_rows(keyed: KeyedBatch | Snapshot) -> Iterator[tuple[Any, bool]]:
    """The rows whose values have to fit the schema, and whether nulls among them say nothing."""
    import pyarrow.compute as pc

    if isinstance(keyed, Snapshot):
        yield keyed.rows.drop_columns([keyed.key]), False
        return
    rows = keyed.events.drop_columns([keyed.key])
    if keyed.operation is None:
        yield rows, False
        return
    words = rows.column(keyed.operation)
    rows = rows.drop_columns([keyed.operation])
    keeps = keyed.changed is not None
    yield rows.filter(pc.equal(words, "insert")), False
    yield rows.filter(pc.equal(words, "update")), keeps


@dataclass(repr=False)
class _Memory:
    """Stands in for the store of a stream that nobody runs: what ``Admission`` asks of it. Private."""

    last_step: int = 0
    departed: set[bytes] = field(default_factory=set)

    def present(self, schema: Schema) -> PresentTable:
        """No record, before step 1."""
        return PresentTable.empty(schema.domain)

    def any_departed(self, keys: NDArray[np.uint64]) -> bool:
        """Whether any of these keys left before."""
        return not self.departed.isdisjoint(as_ids(keys))


@dataclass(repr=False)
class KeyedCheck:
    """Follows the records that are there, as the stream will. Private.

    Attributes:
        present: the records at the end of the last step that was added.
        rows: codes of the rows that came at that step, and of those that went; a changed record is in both.
        came, left, changed: how many records did, step by step.
    """

    schema: Schema
    unit: Any
    present: PresentTable = field(init=False)
    rows: tuple[Codes, Codes] = field(init=False)
    came: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _memory: _Memory = field(default_factory=lambda: _Memory())

    def __post_init__(self) -> None:
        self.present = PresentTable.empty(self.schema.domain)
        self._records = Admission(self.schema, self.unit, cast("Store", self._memory))

    def add(self, entry: StepInput) -> str | None:
        """Take a step. A sentence where it would stop the stream; nobody and no number is named.

        After a step that does not fit, nothing is known of the records any more: call it no further then.
        """
        keyed, note = entry.keyed, None
        assert keyed is not None
        self._memory.last_step = entry.step - 1
        try:
            change = self._change(keyed, entry)
        except UnconfirmedError as error:
            note = f"{error.what}; dpstream run --confirm-shrink takes it, once you have looked"
            assert isinstance(keyed, Snapshot)
            change = self._change(replace(keyed, confirmed=True), entry)
        changes, before, self.present = change.changes, change.before, change.after
        place, there = before.find(changes.keys)
        gone = there & ~changes.present
        self.rows = changes.codes, before.codes[place[there]].astype(np.int32)
        self.came.append(int((~there & changes.present).sum()))
        self.left.append(int(gone.sum()))
        self.changed.append(int((there & changes.present).sum()))
        if change.keep_keys:
            self._memory.departed.update(as_ids(changes.keys[gone]))
        self._records.committed(change)
        return note

    def sentences(self, length: str | None = None) -> list[str]:
        """What was understood, with exact numbers: for the owner's eyes only.

        Args:
            length: of a step, as ``[source] every`` has it.
        """
        step = "step" if length in (None, "files") else length
        first = self.came[0] if self.came else 0
        words = f"{len(self.present):,} records present at the end; {first:,} at the first step"
        if len(self.came) > 1:
            mean = [float(np.mean(numbers[1:])) for numbers in (self.came, self.left, self.changed)]
            each = f"a {step}" if str(step).isalpha() else f"in {step}"
            words += ", then {} new, {} gone and {} changed {}".format(*map(_rounded, mean), each)
        return [words]

    def _change(self, keyed: KeyedBatch | Snapshot, entry: StepInput) -> PresentChange:
        where = f"step {entry.batch_id}"
        wanted = ReadRequest("present", self.schema, self.unit.name, None, self._key, where)
        change = self._records.admit(read_keyed(keyed, wanted), where).keyed
        assert isinstance(change, PresentChange)
        return change


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.3g}"
