"""A step's batch, read as its plan declares: frames in this process, or what another engine grants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    CounterShards,
    EngineBatch,
    Granted,
    PrivateBatch,
    ShardedEvents,
    UserCounters,
    UserEvents,
    Wanted,
)
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy.unit import User
from dpstream.core.schema.domain import Codes
from dpstream.core.tables import EncodedBatch, EncodedRecords, EncodedReports, KeyedBatch, Snapshot
from dpstream.core.tables.contribution import (
    ID_BYTES,
    Owners,
    admit,
    read_owners,
)
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.io.sources.counted_file import CountedFile
from dpstream.stream.batch_content import RecordRows
from dpstream.stream.contribution import separate
from dpstream.stream.frames import Batch, encode_batch, encode_blocks

if TYPE_CHECKING:
    from dpstream.core.contracts import StreamPlan
    from dpstream.core.schema import Schema
    from dpstream.stream.store.store import Store


def grant_batch(
    batch: Batch | EngineBatch | KeyedBatch | Snapshot,
    plan: StreamPlan,
    schema: Schema,
    store: Store,
    where: str,
) -> Granted:
    """Give a plan what it reads of a batch, and, where the unit is a user, whose records they are.

    Errors:
        ConfigError: keyed records for a plan that reads what a step brings, or the reverse.
        DataError, SchemaError: records, keys or users that do not fit, or users that the unit does not use.
    """
    unit = plan.unit
    key = store.derived_key(b"record keys" if plan.reads == "present" else b"user ids")
    most = unit.max_events if isinstance(unit, User) else None
    asked = tuple(plan.asked_cliques())
    wanted = Wanted(plan.reads, plan.reading_schema(schema), unit.name, most, key, where, asked)
    if isinstance(batch, (KeyedBatch, Snapshot)):
        _require_kind(plan, where, keyed=True)
        return read_keyed(batch, wanted)
    if isinstance(batch, CountedFile) and (plan.reads != "counts" or most is not None):
        batch = Batch(batch.whole())  # who reads more than counts has the records in memory
    if isinstance(batch, EngineBatch):
        granted = batch.grant(wanted)
        _require_kind(plan, where, keyed=(granted.keyed or granted.sharded) is not None)
        return granted
    _require_kind(plan, where, keyed=False)
    if not isinstance(batch, Batch):
        raise DataError(f"a {type(batch).__name__} is not a batch", where=where, allowed="dpstream.Batch")
    if wanted.reads == "reports":
        return _reports(batch, wanted)
    if most is not None:
        return _bounded(batch, wanted, most)
    if batch.users is not None:
        # The records are read first: what is wrong with them is said first.
        encode_batch(batch, wanted.schema, where=where)
        raise DataError(
            f"the batch says whose records they are, and the unit is {unit.name!r}, which does not use it",
            where=where,
            allowed="a plan with the unit user, or a batch without users",
        )
    kind = EncodedBatch if wanted.reads == "counts" else EncodedRecords
    encoded, inserts, deletes = encode_blocks(batch, wanted.schema, where=where, kind=kind)
    return Granted(encoded, RecordRows(wanted.schema.domain, inserts, deletes))


def admitted(granted: Granted, store: Store) -> tuple[PrivateBatch, UserEvents | ShardedEvents | None]:
    """What a mechanism may see of a batch, and the counters of users that its step commits, where users are bounded.

    Errors:
        ConfigError: the counters are kept where this batch cannot read them. DataError: an engine's records changed
            since their hash was made.
    """
    if granted.bounded is not None:
        return granted.bounded.admit(_Counters(store))
    assert granted.view is not None
    return granted.view, None


@dataclass(frozen=True)
class _Counters:
    """The committed counters of a stream's users; a ``UserCounters``."""

    _store: Store

    def __call__(self, ids: list[bytes]) -> NDArray[np.int64]:
        return self._store.user_events(ids)

    def in_files(self) -> tuple[Path, CounterShards | None]:
        return self._store.counter_files()


def _require_kind(plan: StreamPlan, where: str, *, keyed: bool) -> None:
    """The batch has keys where the plan reads the records that are present, and has none elsewhere."""
    if keyed and plan.reads != "present":
        raise ConfigError(
            f"the batch holds keyed records, and the mechanism {plan.name!r} reads what a step brings",
            where=where,
            allowed="dpstream.Batch(inserts, deletes), or a mechanism with the unit record",
        )
    if not keyed and plan.reads == "present":
        raise ConfigError(
            f"the mechanism {plan.name!r} reads the records that are present, and the batch has no keys",
            where=where,
            allowed="dpstream.KeyedBatch(events, key=...) or dpstream.Snapshot(rows, key=...)",
        )


def _bounded(batch: Batch, wanted: Wanted, most: int) -> Granted:
    """Grant the records together with their users."""
    batch, columns = separate(batch, wanted.schema, wanted.where)
    encoded, inserts, deletes = encode_batch(batch, wanted.schema, where=wanted.where)
    lengths, what = (len(inserts), len(deletes)), "key" if wanted.unit == "record" else "user id"
    owners = read_owners(columns, lengths, key=wanted.key, where=wanted.where, what=what)
    rows = RecordRows(wanted.schema.domain, inserts, deletes, owners.words())
    return Granted(encoded, rows, _Owned(encoded, owners, inserts, deletes, most, wanted.key))


def _reports(batch: Batch, wanted: Wanted) -> Granted:
    """Grant one period of a panel: the reports, with a keyed mark of each person."""
    domain, where = wanted.schema.domain, wanted.where
    if batch.deletes is not None:
        raise DataError(
            "the batch of a panel has deletes", where=where, allowed="reports of people, one a person"
        )
    batch, columns = separate(batch, wanted.schema, where, wanted.unit)
    _, codes, none = encode_batch(batch, wanted.schema, where=where)
    owners = read_owners(columns, (len(codes), 0), key=wanted.key, where=where)
    if len(owners.ids) != len(codes):
        raise DataError(
            "a person has two reports in one period", where=where, allowed="one report a person and period"
        )
    ordered = np.empty_like(codes)
    ordered[owners.inserts] = codes
    marks = np.frombuffer(b"".join(owners.ids), np.uint8).reshape(-1, ID_BYTES)
    return Granted(EncodedReports(domain, ordered, marks), RecordRows(domain, codes, none, owners.words()))


@dataclass(frozen=True, repr=False)
class _Owned:
    """A batch's records and their users, before it is decided which records are admitted. Private."""

    batch: EncodedBatch
    owners: Owners
    inserts: Codes
    deletes: Codes
    max_events: int
    key: bytes

    def admit(self, counters: UserCounters, /) -> tuple[EncodedBatch, UserEvents]:
        """See ``BoundedBatch``."""
        before = counters(self.owners.ids)
        admission = admit(self.inserts, self.deletes, self.owners, before, self.max_events, self.key)
        changes = UserEvents(self.owners.ids, before, admission.counts, admission.dropped)
        return admission.bounded(self.batch, self.inserts, self.deletes), changes
