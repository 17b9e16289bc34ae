"""What a stream takes in.

A batch in any form is read as its plan declares (frames of this process, or what another engine grants); events of
users are admitted up to their bound; a fingerprint tells a repetition from other records; and what is present of keyed
records is kept between steps.

Trusted base: kernel (takes in private records).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PrivateBatch, StreamPlan, ends
from dpstream.core.contracts.plugins import Plugins
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy.unit import Record, Unit, User
from dpstream.core.schema import CodeBlocks, Codes, Domain, Schema, arrow
from dpstream.core.tables import (
    EncodedBatch,
    EncodedRecords,
    EncodedReports,
    KeyedBatch,
    MultisetHash,
    PresentBatch,
    PresentTable,
    PresentView,
    Snapshot,
)
from dpstream.core.tables.access import (
    BatchAccess,
    CounterShards,
    EngineBatch,
    FrameKind,
    PresentShards,
    ReadRequest,
    ShardedEvents,
    UserCounters,
    UserEvents,
    refuse_open,
)
from dpstream.core.tables.contribution import ID_BYTES, Columns, Owners, admit, read_owners
from dpstream.core.tables.keyed_reading import read_keyed, refuse_returns
from dpstream.core.tables.undiscovered import DiscoveringBatch, EpochCounts, Undiscovered
from dpstream.io.sources.counted_file import CountedFile
from dpstream.stream.store.summed_rows import PresentChange

if TYPE_CHECKING:
    from dpstream.stream.store.store import Store


#: Data frames of engines, which a stream counts in the engine itself, by the root package of their classes. Nothing of
#: an engine is imported before one of its frames is given.
_FRAMES = Plugins(
    "dpstream.frames", "the frames of", FrameKind, {"pyspark": "dpstream.spark.spark_batch:FRAMES"}
)


@dataclass(frozen=True, repr=False)
class Batch:
    """The private records of one step.

    Args:
        inserts: records that arrive: a dict of arrays, a pyarrow table, a pandas, Polars or DuckDB frame,
            or an int32 array of codes (records x columns) that is already encoded. None: no record.
        deletes: records that leave, in the same form. None: no record.
        users: whose records they are, with the unit ``user`` only: the name of a column of both frames, or the ids
            of the inserts (texts or whole numbers, one for each record), or a pair of those of the inserts and
            those of the deletes.

    Both may be empty. The representation never shows a value or a number of records.

    >>> Batch({"zip": ["94102"], "paid": [True]})
    Batch(records hidden)
    """

    inserts: Any = None
    deletes: Any = None
    users: Any = None

    def __repr__(self) -> str:
        return "Batch(records hidden)"


def as_batch(
    given: Any, deletes: Any = None, users: Any = None
) -> Batch | EngineBatch | KeyedBatch | Snapshot:
    """A batch as it is; or a batch made of a frame of inserts, by the engine whose frame it is.

    Errors:
        ConfigError: a batch, and deletes or users beside it.
    """
    # By its class: a frame may have a column of any name.
    engine = callable(getattr(type(given), "grant", None))
    if not engine and not isinstance(given, (Batch, KeyedBatch, Snapshot)):
        kind = _engine_of(given, deletes)
        return (kind and kind.batch(given, deletes, users)) or Batch(given, deletes, users)
    if deletes is not None or users is not None:
        raise ConfigError(
            "deletes and users belong inside the batch",
            where="step",
            allowed="dpstream.Batch, or a frame",
        )
    if isinstance(given, (KeyedBatch, Snapshot)):
        kind = _engine_of(given.events if isinstance(given, KeyedBatch) else given.rows)
        return (kind and kind.keyed and kind.keyed(given)) or given
    return cast("Batch | EngineBatch", given)


def _engine_of(*frames: Any) -> FrameKind | None:
    """The engine whose own frames these are; None for other objects.

    Errors:
        ConfigError: the engine's package is broken.
    """
    roots = (type(frame).__module__.partition(".")[0] for frame in frames)
    return next((_FRAMES.get(root) for root in roots if root in _FRAMES.names()), None)


def encode_batch(batch: Batch, schema: Schema, *, where: str = "step") -> tuple[EncodedBatch, Codes, Codes]:
    """The batch as a plan reads it, and its codes as int32 arrays.

    Errors:
        DataError: values that do not fit the schema (columns are named, no values). Nothing was spent.
    """
    encoded, inserts, deletes = encode_blocks(batch, schema, where=where)
    return encoded, inserts.whole(), deletes.whole()


def encode_blocks(
    batch: Batch, schema: Schema, *, where: str = "step", kind: type[EncodedBatch] = EncodedBatch
) -> tuple[EncodedBatch, CodeBlocks, CodeBlocks]:
    """As ``encode_batch``, with codes in blocks of their narrowest type."""
    inserts = _codes(batch.inserts, schema, f"{where}, inserts")
    deletes = _codes(batch.deletes, schema, f"{where}, deletes")
    # "None" and "no rows" differ: a source without deletions declares none, whatever the step holds.
    declared = None if batch.deletes is None else deletes
    if kind is not EncodedBatch:  # who reads records reads them as one array
        inserts = CodeBlocks(inserts.columns, [inserts.whole()])
    return kind(schema.domain, inserts, declared), inserts, deletes


def _codes(frame: Any, schema: Schema, where: str) -> CodeBlocks:
    if frame is None:
        return CodeBlocks(len(schema.domain), ())
    if not isinstance(frame, np.ndarray):
        return schema.encode_blocks(frame, where=where)
    if frame.ndim != 2 or frame.dtype != np.int32:
        raise DataError(
            "codes need type int32 and two dimensions",
            where=where,
            allowed="records x columns",
        )
    if frame.shape[1] == len(schema.domain):  # whoever counts says it of another number of columns
        schema.require_possible(frame, where)
    return CodeBlocks(len(schema.domain), [frame])


def separate(batch: Batch, schema: Schema, where: str, unit: str = "user") -> tuple[Batch, Columns]:
    """Split a batch into the batch without its user ids, and the ids of its inserts and deletes as Arrow columns.

    Errors:
        DataError: the batch does not say whose records they are.
        ConfigError: the column of user ids is an attribute of the schema.
    """
    users = batch.users
    if users is None:
        raise DataError(f"the unit {unit!r} needs users", where=where, allowed="Batch(..., users=...)")
    if not isinstance(users, str):
        pair = users if isinstance(users, tuple) else (users, None)
        if len(pair) != 2:
            raise DataError(
                "expected users as a pair",
                where=where,
                allowed="(ids of inserts, ids of deletes)",
            )
        first, second = (
            None if ids is None else arrow.to_table({"ids": ids}, where).column("ids") for ids in pair
        )
        return batch, (first, second)
    if users in schema.names:
        raise ConfigError(
            f"column {users!r} is in the schema too",
            where=where,
            allowed="another column, or a renamed copy",
        )
    inserts, first = _split(batch.inserts, users, where)
    deletes, second = _split(batch.deletes, users, where)
    return Batch(inserts, deletes), (first, second)


def _split(frame: Any, name: str, where: str) -> tuple[Any, Any]:
    if frame is None:
        return None, None
    if isinstance(frame, np.ndarray):
        raise DataError("codes have no column of user ids", where=where, allowed="users as arrays")
    table = arrow.to_table(frame, where)
    if name not in table.column_names:
        raise DataError(f"column {name!r} is missing", where=where, allowed="the column of user ids")
    return table.drop_columns([name]), table.column(name)


# The store keeps a keyed fingerprint (``MultisetHash``) of a batch, so that a repetition can be told from other
# records. A batch is a multiset: a retry that reads the same records in another order is the same batch.

#: What the key of the fingerprint is derived for, and that of the hashes of undiscovered values.
ROWS, VALUES = b"rows", b"undiscovered values"

RowWords = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class RecordRows:
    """The records of frames as a multiset; a ``BatchRows``. Private.

    Attributes:
        inserts, deletes: the records as codes, whose type changes nothing.
        owners: whose records they are, in integers (records x words) of the inserts and of the deletes; part of the
            content. None: nobody's.
        values: of the inserts, what their codes do not say (``Undiscovered.words``).
    """

    domain: Domain
    inserts: Codes | CodeBlocks
    deletes: Codes | CodeBlocks
    owners: tuple[RowWords, RowWords] | None = None
    values: RowWords | None = None

    def fingerprint(self, key: bytes) -> bytes:
        """See ``BatchRows``. Cost: linear in the records."""
        first, second = (None, None) if self.owners is None else self.owners
        if self.values is not None:
            first = self.values if first is None else np.concatenate([first, self.values], axis=1)
        here = MultisetHash.of(self.inserts, first, key)
        gone = MultisetHash.of(self.deletes, second, key, deletes=True)
        return here.merge(gone).finish(self.domain.sizes, key)


def grant_batch(
    batch: Batch | EngineBatch | KeyedBatch | Snapshot,
    plan: StreamPlan,
    schema: Schema,
    store: Store,
    where: str,
) -> BatchAccess:
    """Give a plan what it reads of a batch, and, where the unit is a user, whose records they are.

    Errors:
        ConfigError: keyed records for a plan that reads what a step brings, or the reverse.
        DataError, SchemaError: records, keys or users that do not fit, or users that the unit does not use.
    """
    unit = plan.unit
    key = store.derived_key(b"record keys" if plan.reads == "present" else b"user ids")
    most = unit.max_events if isinstance(unit, User) else None
    asked = tuple(plan.asked_cliques())
    wanted = ReadRequest(plan.reads, plan.reading_schema(schema), unit.name, most, key, where, asked)
    if isinstance(batch, (KeyedBatch, Snapshot)):
        _require_kind(plan, where, keyed=True)
        return read_keyed(batch, wanted)
    if isinstance(batch, CountedFile) and (plan.reads != "counts" or most is not None):
        batch = Batch(batch.whole())  # who reads more than counts has the records in memory
    if isinstance(batch, EngineBatch):
        refuse_open(wanted.schema.open_columns, where)
        granted = batch.grant(wanted)
        _require_kind(plan, where, keyed=(granted.keyed or granted.sharded) is not None)
        return granted
    _require_kind(plan, where, keyed=False)
    if not isinstance(batch, Batch):
        raise DataError(
            f"expected a batch, got {type(batch).__name__}", where=where, allowed="dpstream.Batch"
        )
    if wanted.reads == "reports":
        return _reports(batch, wanted)
    if most is not None:
        return _bounded(batch, wanted, most, store.derived_key(VALUES))
    if batch.users is not None:
        # The records are read first: what is wrong with them is said first.
        encode_batch(batch, wanted.schema, where=where)
        raise DataError(
            f"the unit {unit.name!r} takes no users",
            where=where,
            allowed="a batch without users",
        )
    kind = EncodedBatch if wanted.reads == "counts" else EncodedRecords
    encoded, inserts, deletes = encode_blocks(batch, wanted.schema, where=where, kind=kind)
    new = Undiscovered.of(batch.inserts, wanted.schema, where)
    if new is None:
        return BatchAccess(encoded, RecordRows(wanted.schema.domain, inserts, deletes))
    rows = RecordRows(wanted.schema.domain, inserts, deletes, values=new.words(store.derived_key(VALUES)))
    counted = EpochCounts(wanted.schema.open_columns, new.counts())
    return BatchAccess(DiscoveringBatch(encoded, counted), rows)


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
            f"the mechanism {plan.name!r} reads records without keys",
            where=where,
            allowed="dpstream.Batch, or the unit record",
        )
    if not keyed and plan.reads == "present":
        raise ConfigError(
            f"the mechanism {plan.name!r} reads records with keys",
            where=where,
            allowed="dpstream.KeyedBatch or dpstream.Snapshot",
        )


def _bounded(batch: Batch, wanted: ReadRequest, most: int, values_key: bytes) -> BatchAccess:
    """Grant the records together with their users."""
    batch, columns = separate(batch, wanted.schema, wanted.where)
    encoded, inserts, deletes = encode_batch(batch, wanted.schema, where=wanted.where)
    lengths, what = (len(inserts), len(deletes)), "key" if wanted.unit == "record" else "user id"
    owners = read_owners(columns, lengths, key=wanted.key, where=wanted.where, what=what)
    new = Undiscovered.of(batch.inserts, wanted.schema, wanted.where)
    values = None if new is None else new.words(values_key)
    rows = RecordRows(wanted.schema.domain, inserts, deletes, owners.words(), values)
    counted = None if new is None else (wanted.schema.open_columns, new, values)
    return BatchAccess(encoded, rows, _Owned(encoded, owners, inserts, deletes, most, wanted.key, counted))


def _reports(batch: Batch, wanted: ReadRequest) -> BatchAccess:
    """Grant one period of a panel: the reports, with a keyed mark of each person."""
    domain, where = wanted.schema.domain, wanted.where
    if batch.deletes is not None:
        raise DataError("panels have no deletes", where=where, allowed="one report a person")
    batch, columns = separate(batch, wanted.schema, where, wanted.unit)
    _, codes, none = encode_batch(batch, wanted.schema, where=where)
    owners = read_owners(columns, (len(codes), 0), key=wanted.key, where=where)
    if len(owners.ids) != len(codes):
        raise DataError("a person reports twice in one period", where=where, allowed="one report a person")
    ordered = np.empty_like(codes)
    ordered[owners.inserts] = codes
    marks = np.frombuffer(b"".join(owners.ids), np.uint8).reshape(-1, ID_BYTES)
    return BatchAccess(
        EncodedReports(domain, ordered, marks), RecordRows(domain, codes, none, owners.words())
    )


@dataclass(frozen=True, repr=False)
class _Owned:
    """A batch's records and their users, before it is decided which records are admitted. Private."""

    batch: EncodedBatch
    owners: Owners
    inserts: Codes
    deletes: Codes
    max_events: int
    key: bytes
    #: The open columns, the undiscovered values of the inserts, and their words.
    counted: tuple[tuple[str, ...], Undiscovered, RowWords | None] | None = None

    def admit(self, counters: UserCounters, /) -> tuple[PrivateBatch, UserEvents]:
        """See ``BoundedBatch``."""
        before = counters(self.owners.ids)
        values = None if self.counted is None else self.counted[2]
        admission = admit(self.inserts, self.deletes, self.owners, before, self.max_events, self.key, values)
        changes = UserEvents(self.owners.ids, before, admission.counts, admission.dropped, admission.cut)
        view = admission.bounded(self.batch, self.inserts, self.deletes)
        if self.counted is None:
            return view, changes
        columns, new, _ = self.counted
        return DiscoveringBatch(view, EpochCounts(columns, new.counts(admission.inserts))), changes


@dataclass(frozen=True, repr=False)
class Admitted:
    """What a step takes in. Private.

    Attributes:
        view: what its mechanism may see.
        users: counters of users that the step commits, where users are bounded.
        keyed: changes of the present records that it commits, where records have keys.
        undiscovered: counts of values that it commits, where values are discovered; of keyed records, numbers.
    """

    view: PrivateBatch
    users: UserEvents | ShardedEvents | None = None
    keyed: PresentChange | ShardedEvents | None = None
    undiscovered: EpochCounts | None = None

    @property
    def remembered(self) -> bool:
        """Whether the step leaves counters of users or present records."""
        return self.users is not None or self.keyed is not None


class Admission:
    """What a stream admits, and what it knows of keyed records between its steps.

    Their table is read from the store at the first step, and kept while it is the committed one: whatever stops a step,
    the next one reads it again.

    Where no key may come back, what counts is that a key was there at the end of a step: one that came and went within
    a step was in no table, and nothing is kept of it.

    Records of an engine that keeps the present ones in files are never here.
    """

    def __init__(self, schema: Schema, unit: Unit, store: Store) -> None:
        #: The columns as the plan reads them, with the values that were discovered so far.
        self.schema, self._store = schema, store
        self._per = unit.per if isinstance(unit, User) else None
        self._final = isinstance(unit, Record) and unit.returns == "refuse"
        self._table: PresentTable | None = None

    def admit(self, granted: BatchAccess, where: str) -> Admitted:
        """What the next step takes in of a batch.

        Errors:
            DataError: events that the declared rules refuse, a key that came back where none may, or records of an
                engine that changed since their hash was made. Nothing was spent. StoreDamagedError: the stored records
                do not hold together. ConfigError: records or counters are kept where this batch cannot read them.
        """
        users = None
        if granted.bounded is not None:
            view, users = granted.bounded.admit(_Counters(self._store))
        elif granted.view is not None:
            view = granted.view
        if granted.bounded is not None or granted.view is not None:
            if not isinstance(view, DiscoveringBatch):
                return Admitted(view, users=users)
            view = view.within(self._store.undiscovered)
            return Admitted(view, users=users, undiscovered=view.undiscovered)
        if granted.sharded is not None:
            folder, shards = self._store.present_files()
            key, step = self._store.derived_key(ROWS), self._store.last_step + 1
            present, files = granted.sharded.apply(PresentShards(folder, shards, step, self._final, key))
            return Admitted(PresentBatch(present), keyed=files)
        assert granted.keyed is not None
        if self._table is None:
            self._table = self._store.present(self.schema)
        before = self._table.under(self.schema)
        changes = granted.keyed.changes(before)
        if self._final:
            refuse_returns(before, changes, self._store.any_departed, where)
        after, departed = before.after(changes, self._store.last_step + 1)
        self._table = None
        change = PresentChange(before, after, changes, self._final)
        present = PresentView(after, departed)
        if before.texts is None or after.texts is None:
            return Admitted(PresentBatch(present), keyed=change)
        numbers = EpochCounts(self.schema.open_columns, after.texts.since(before.texts))
        return Admitted(PresentBatch(present, present), keyed=change, undiscovered=numbers)

    def forgets(self, step: int, horizon: int | None) -> bool:
        """Whether no later step reads the counters of users, or the present records: a period of users, or the plan,
        ends with this step.

        The first step of a period finds no counter, and begins at 0 for everybody.
        """
        return step == horizon or (self._per is not None and ends(self._per, step))

    def committed(self, change: PresentChange | ShardedEvents | None) -> None:
        """The step is in the store."""
        self._table = change.after if isinstance(change, PresentChange) else None


def require_record(plan: StreamPlan) -> None:
    """Present records are protected as whole stays, and by mechanisms that read them.

    Errors:
        ConfigError: the unit is another one, or the mechanism reads what a step brings.
    """
    if (plan.reads == "present") != isinstance(plan.unit, Record):
        raise ConfigError(
            f"the mechanism {plan.name!r} cannot protect the unit {plan.unit.name!r}",
            where="stream",
            allowed="the unit record" if plan.reads == "present" else "another unit",
        )
