"""The present records of a live stream: in memory between its steps, and what the next step changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpstream.core.contracts import Granted, PresentShards, PrivateBatch, ShardedEvents, StreamPlan
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy.unit import Record
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView
from dpstream.stream.batch_content import ROWS
from dpstream.stream.store.present_rows import PresentChange

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.stream.store.store import Store


class KeyedRecords:
    """What a stream of keyed records knows between its steps.

    The table is read from the store at the first step, and kept while it is the committed one: whatever stops a step,
    the next one reads it again.

    Where no key may come back, what counts is that a key was there at the end of a step: one that came and went within
    a step was in no table, and nothing is kept of it.

    Records of an engine that keeps the present ones in files are never here.
    """

    def __init__(self, plan: StreamPlan, schema: Schema, store: Store) -> None:
        self._domain = plan.reading_schema(schema).domain
        self._store = store
        self._final = isinstance(plan.unit, Record) and plan.unit.returns == "refuse"
        self._table: PresentTable | None = None

    def change(
        self, granted: Granted, where: str
    ) -> tuple[PresentChange | ShardedEvents | None, PrivateBatch]:
        """What the next step changes (None where records have no keys), and what its mechanism reads.

        Errors:
            DataError: events that the declared rules refuse, or a key that came back where none may. Nothing was
                spent. StoreDamagedError: the stored records do not hold together. ConfigError: they are kept where
                this batch cannot read them.
        """
        if granted.sharded is not None:
            folder, shards = self._store.present_files()
            key, step = self._store.derived_key(ROWS), self._store.last_step + 1
            present, files = granted.sharded.apply(PresentShards(folder, shards, step, self._final, key))
            return files, PresentBatch(present)
        if granted.keyed is None:
            assert granted.view is not None
            return None, granted.view
        if self._table is None:
            self._table = self._store.present(self._domain)
        before = self._table
        effect = granted.keyed.changes(before)
        changes = KeyedChanges(effect.keys, effect.present, effect.codes)
        if self._final:
            self._refuse_returns(before, changes, where)
        after, departed = before.after(changes, self._store.last_step + 1)
        self._table = None
        return PresentChange(before, after, changes, self._final), PresentBatch(PresentView(after, departed))

    def committed(self, change: PresentChange | ShardedEvents | None) -> None:
        """The step is in the store."""
        self._table = change.after if isinstance(change, PresentChange) else None

    def _refuse_returns(self, before: PresentTable, changes: KeyedChanges, where: str) -> None:
        _, there = before.find(changes.keys)
        if self._store.any_departed(changes.keys[changes.present & ~there]):
            raise DataError(
                'a key comes back after it was absent, and the unit says that none does (returns = "refuse")',
                where=where,
                allowed='a new key for a new record, or a stream with returns = "new"',
            )


def require_record(plan: StreamPlan) -> None:
    """Present records are protected as whole stays, and by mechanisms that read them.

    Errors:
        ConfigError: the unit is another one, or the mechanism reads what a step brings.
    """
    if (plan.reads == "present") != isinstance(plan.unit, Record):
        reads = "the records that are present" if plan.reads == "present" else "what a step brings"
        raise ConfigError(
            f"the mechanism {plan.name!r} reads {reads}, and the unit is {plan.unit.name!r}",
            where="stream",
            allowed="the unit record where a mechanism reads present records, and another unit elsewhere",
        )
