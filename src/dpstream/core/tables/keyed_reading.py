"""What happened to keyed records in one step (events by key, or the whole table), read for a plan that reads the
records that are present.

Guarantee: what becomes of a key follows from the rows of that key and from whether it was there before, never from
other keys, their order or their number. So two steps that differ in one key change the present records in that key
alone. Only a halting may depend on several: what stops a step is said in ``declared.py``.

Trusted base: kernel (reads keyed private records).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, UnconfirmedError
from dpstream.core.schema import Schema, arrow
from dpstream.core.schema.column import NO_NULLS, NULL, problems_error
from dpstream.core.tables.access import BatchAccess, ReadRequest
from dpstream.core.tables.contribution import hash_ids, id_bytes, plain_chunks
from dpstream.core.tables.multiset_hash import MultisetHash
from dpstream.core.tables.present_table import KeyedChanges, PresentTable
from dpstream.core.tables.undiscovered import PresentTexts, Undiscovered

#: The words of an operation column. Without such a column every row is an upsert.
OPERATIONS = ("insert", "update", "delete")

_Unknown = Literal["error", "drop"]
_Known = Literal["error", "update"]
_Repeated = Literal["error", "last"]

#: Operations of rows, in the order of ``OPERATIONS``; then rows without one, and rows of a snapshot.
_INSERT, _UPDATE, DELETE, UPSERT, _ROW = range(5)
_PRESENT = 'keys of present records, or unknown = "drop"'
#: What the rules refuse, in the order in which it is said: what, and what is allowed. ``null`` is about a column.
_REFUSED = {
    "several": ("a key has several rows in one step", 'one row per key, or repeated = "last"'),
    "delete": ("a delete has an unknown key", _PRESENT),
    "update": ("an update has an unknown key", _PRESENT),
    "insert": (
        "an insert has a present key",
        'new keys, or known = "update"',
    ),
    "returns": (
        'a key returns after an absence, despite returns = "refuse"',
        'new keys for new records, or returns = "new"',
    ),
    "null": (
        "column {column!r} holds nulls in whole records, and declares no missing bin",
        NO_NULLS,
    ),
}
#: Stands for a value that the row does not say.
_UNSAID = NULL

Codes = NDArray[np.int32]
Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class KeyRules:
    """What becomes of events that do not fit. Each rule looks at one key alone, so that no record moves another's.

    Null keys are always an error. Under ``error`` nothing of the step is spent or reserved. What a key is that comes
    back after an absence says the unit (``Record.returns``).

    Args:
        unknown: a delete or an update of a key that is not there. ``drop``: it is left out.
        known: an insert of a key that is there. ``update``: it gives the record new values, and no new stay.
        repeated: several rows of one key in a step. ``last``: each is applied in the order of the source, so that the
            last one says what holds at the end; of a snapshot's rows the last one counts.
        shrinks: a snapshot that has less than this share of the records that are present, or none at all, halts the
            stream until its owner has confirmed it. 0: an empty one only.

    Errors:
        ConfigError: an unknown word, or a share outside 0 to 1.
    """

    unknown: _Unknown = "error"
    known: _Known = "update"
    repeated: _Repeated = "last"
    shrinks: float = 0.1

    def __post_init__(self) -> None:
        for name, words in (("unknown", _Unknown), ("known", _Known), ("repeated", _Repeated)):
            if getattr(self, name) not in get_args(words):
                raise ConfigError(
                    f"unknown rule {name} = {getattr(self, name)!r}",
                    where="rules of keyed records",
                    allowed=", ".join(get_args(words)),
                )
        share = self.shrinks
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise ConfigError(
                f"shrinks = {share!r}: expected a share", where="rules of keyed records", allowed="0 to 1"
            )


@dataclass(frozen=True, repr=False)
class KeyedBatch:
    """What happened to keyed records in one step, in the order of the source.

    Args:
        events: a table (pandas, Polars, pyarrow, a dict of arrays): the schema's columns and the key column. Of a
            delete only its key is read. None: nothing happened.
        key: name of the key column, which the schema does not have.
        operation: name of the column with ``insert``, ``update`` or ``delete``; None: every row is an upsert (an
            update where the key is there, else an insert).
        changed: None: an update gives the whole row. ``null-keeps``: a null cell of an update (or of an upsert of a
            key that is there) keeps the value that the record has. An insert always gives the whole row.

    Errors:
        ConfigError: names that cannot be told apart, or an unknown ``changed``.
    """

    events: Any
    key: str
    operation: str | None = None
    changed: Literal["null-keeps"] | None = None
    rules: KeyRules = KeyRules()

    def __post_init__(self) -> None:
        if self.changed not in (None, "null-keeps"):
            raise ConfigError(f"unknown changed = {self.changed!r}", where="step", allowed="None, null-keeps")
        if self.key == self.operation:
            raise ConfigError(
                f"column {self.key!r} is both key and operation",
                where="step",
                allowed="a column for each",
            )

    def __repr__(self) -> str:
        return f"KeyedBatch(key={self.key!r}, records hidden)"


@dataclass(frozen=True, repr=False)
class Snapshot:
    """The whole table as it is at the end of the step.

    Args:
        rows: a table as in ``KeyedBatch.events``; a record whose key is not in it has left. None: no record.
        key: name of the key column, which the schema does not have.
        rules: ``repeated`` and ``shrinks`` count; a snapshot has no unknown or known keys.
        confirmed: the owner has confirmed that so many records left.
    """

    rows: Any
    key: str
    rules: KeyRules = KeyRules()
    confirmed: bool = False
    operation: ClassVar[None] = None
    changed: ClassVar[None] = None

    def __repr__(self) -> str:
        return f"Snapshot(key={self.key!r}, records hidden)"


class EventsError(DataError):
    """The declared rules refuse an event. Names no key, no value and no number.

    Attributes:
        kind: ``several``, ``delete``, ``update``, ``insert``, ``returns`` or ``null``.
        column: of a null.
    """

    kind = ""
    column: str | None = None


def refused_events(kind: str, where: str, column: str | None = None) -> EventsError:
    """The refusal of events, which may have been found elsewhere."""
    what, allowed = _REFUSED[kind]
    error = EventsError(what.format(column=column), where=where, allowed=allowed)
    error.kind, error.column = kind, column
    return error


def refuse_returns(
    present: PresentTable, changes: KeyedChanges, left_before: Callable[[Keys], bool], where: str
) -> Keys:
    """The keys that leave at a step, where no key may come back.

    Args:
        present: before the step.
        left_before: whether any of some keys has left already.

    Errors:
        EventsError: a key comes back.
    """
    _, there = present.find(changes.keys)
    if left_before(changes.keys[changes.present & ~there]):
        raise refused_events("returns", where)
    return changes.keys[there & ~changes.present]


def read_keyed(batch: KeyedBatch | Snapshot, wanted: ReadRequest) -> BatchAccess:
    """What a plan reads of keyed records; the stream gives the present ones (``BatchAccess.keyed``).

    Errors:
        DataError, SchemaError: keys, operations or values that do not fit, or rows of one key where ``repeated`` is
            ``error``. ConfigError: a key or operation column that the schema declares. Nothing was spent.

    Cost: a keyed hash of each different key, one sort of the rows' hashes.
    """
    schema, where, operation = wanted.schema, wanted.where, batch.operation
    for name in (batch.key, operation):
        if name in schema.names:
            raise ConfigError(
                f"column {name!r} of the keys or operations is also in the schema",
                where=where,
                allowed=f"another column, or a renamed copy of {name!r}",
            )
    given = batch.events if isinstance(batch, KeyedBatch) else batch.rows
    keys, operations = np.zeros((0, 2), np.uint64), np.zeros(0, np.int64)
    codes, said = np.zeros((0, len(schema)), np.int32, order="F"), operations
    private: Any = None
    if given is not None:
        table = arrow.to_table(given, where)
        keys = hash_keys(_column(table, batch.key, "keys", where), wanted.key, where)
        operations = np.full(table.num_rows, _ROW if isinstance(batch, Snapshot) else UPSERT, np.int64)
        if operation is not None:
            operations = operation_numbers(_column(table, operation, "operations", where), operation, where)
        if batch.changed is not None and schema.rules is not None and schema.rules.read:
            raise ConfigError(
                f"updates leave out unchanged values, so derived columns "
                f"({', '.join(column.name for column in schema.rules.read)}) cannot be checked",
                where=where,
                allowed="[schema.constraints] read = false for these columns, or updates with whole records",
            )
        private = table.drop_columns([name for name in (batch.key, operation) if name is not None])
        codes = encode_events(private, operations, schema, where, keeping=batch.changed is not None)
        said = np.flatnonzero(operations != DELETE)
    new = Undiscovered.of(private.take(said) if len(said) else None, schema, where)
    if new is not None:
        new.number(codes, said, schema)
    rows = sorted_by_key(batch, schema, where, keys, operations, codes, () if new is None else new.texts)
    return BatchAccess(None, rows, keyed=rows)


def hash_keys(column: Any, key: bytes, where: str) -> Keys:
    """The keyed hashes of a column of keys, two words each, in the order of the column.

    Keys are compared as texts: 12 and "12" are one key, "012" and "12 " are others. Two of a thousand million keys
    share a hash with a probability below 10^-20.

    Errors:
        DataError: a null or empty key, or another type.

    Cost: about a microsecond a key.
    """
    return hash_ids(id_bytes(column, where, "key"), key, b"record")


def sorted_by_key(
    batch: KeyedBatch | Snapshot,
    schema: Schema,
    where: str,
    keys: Keys,
    operations: Positions,
    codes: Codes,
    texts: tuple[Any, ...] = (),
) -> SortedRows:
    """Rows that are encoded already; those of one key are in the order of the source.

    Errors:
        EventsError: several rows of one key where ``repeated`` is ``error``.
    """
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: rows of one key stay in the order of the source
    keys = keys[order]
    new = np.ones(len(keys), np.bool_)
    new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    if batch.rules.repeated == "error" and len(starts) < len(keys):
        raise refused_events("several", where)
    rules = replace(batch, rows=None) if isinstance(batch, Snapshot) else replace(batch, events=None)
    return SortedRows(rules, schema, where, keys, starts, operations[order], _taken(codes, order), texts)


@dataclass(frozen=True, repr=False)
class SortedRows:
    """The rows of a step, sorted by key, each key's in the order of the source; ``BatchRows`` and ``KeyedRows``.
    Private.

    Attributes:
        batch: names and rules of what was read; no rows.
        starts: position of each key's first row.
        codes: ``_UNSAID`` where a row says no value: deletes, and cells of an update that keep what is there.
        texts: of each open column, by number (``PresentTexts``).
    """

    batch: KeyedBatch | Snapshot
    schema: Schema
    where: str
    keys: Keys
    starts: Positions
    operations: Positions
    codes: Codes
    texts: tuple[Any, ...] = ()

    @property
    def ends(self) -> Positions:
        """Position of each key's last row."""
        return np.append(self.starts[1:], len(self.keys)).astype(np.int64)[: len(self.starts)] - 1

    @property
    def group(self) -> Positions:
        """For each row the position of its key among the different ones."""
        found = np.zeros(len(self.keys), np.int64)
        found[self.starts[1:]] = 1
        return np.cumsum(found)

    def fingerprint(self, key: bytes) -> bytes:
        """See ``BatchRows``. The order of the rows of one key is part of it, that of different keys is not."""
        return self.content(key).finish(self.end(), key)

    def content(self, key: bytes) -> MultisetHash:
        """The hash of the rows; those of different keys add up."""
        words = np.empty((len(self.keys), 4), np.int64)
        words[:, :2] = self.keys.view(np.int64)
        words[:, 2] = np.arange(len(self.keys)) - self.starts[self.group] if len(self.keys) else 0
        words[:, 3] = self.operations
        if not self.texts:
            return MultisetHash.of(self.codes, words, key)
        held = PresentTexts.of(self.schema, self.texts)
        hashes = held.rows(self.codes).words(key)
        return MultisetHash.of(held.public(self.codes), np.concatenate([words, hashes], axis=1), key)

    def end(self) -> tuple[int, ...]:
        """What the hash ends with: public facts, the same for all keys."""
        rules = self.batch.rules
        # Without rows an events' step and a snapshot's differ: the one changes nothing, the other removes everything.
        # The same rows under other rules are another batch: they may change other records.
        return (
            *self.schema.domain.sizes,
            int(isinstance(self.batch, Snapshot)),
            int(rules.unknown == "drop"),
            int(rules.known == "update"),
            int(rules.repeated == "last"),
            int.from_bytes(struct.pack("<d", float(rules.shrinks)), "little"),
            int(self.batch.changed is not None),
        )

    def changes(self, present: PresentTable) -> KeyedChanges:
        """What they change of the present records.

        Errors:
            DataError: what the rules refuse, and records that violate a public constraint where no bin is declared for
                them. No key and no number is named. UnconfirmedError: a snapshot is empty, or much smaller, and its
                owner has not confirmed it.

        Cost: a merge of sorted keys, some passes over the cells.
        """
        rows, held = self, present.texts
        if held is not None:
            held, codes = held.with_rows(self.texts, self.codes, self.schema)
            rows = replace(self, codes=codes)
        elif self.texts:
            rows = replace(self, codes=PresentTexts.of(self.schema, self.texts).public(self.codes))
        if isinstance(self.batch, Snapshot):
            changed = rows._differences(self.batch, present)
        else:
            changed = rows._applied(present)
        return replace(changed, texts=held)

    def _applied(self, present: PresentTable) -> KeyedChanges:
        """Each key's rows, applied in the order of the source."""
        operations = self.operations
        distinct = self.keys[self.starts]
        place, there = present.find(distinct)
        if not len(distinct):
            return KeyedChanges(distinct, there, self.codes)
        starts, ends = self.starts, self.ends
        here = self._present_before(there)
        self._check(here)
        gives_all = (operations == _INSERT) | ((operations == UPSERT) & ~here)
        last = _last_where(operations != _UPDATE)[ends]
        stays = np.where(last >= starts, operations[last] != DELETE, there)
        at = np.minimum(place, max(len(present.codes) - 1, 0))
        codes = np.empty((len(distinct), self.codes.shape[1]), np.int32, order="F")
        changed = stays != there
        for column in range(codes.shape[1]):
            values = self.codes[:, column]
            null = gives_all & (values == _UNSAID)
            if null.any():
                values = np.where(null, self._null(column), values)
            # Deletes say nothing. An update that is dropped counts nowhere: an insert that follows says everything.
            source = _last_where(values != _UNSAID)[ends]
            said = source >= starts
            codes[:, column] = np.where(said, values[source], 0)
            kept = ~said & there
            codes[kept, column] = present.codes[at[kept], column]
        if self.batch.changed is not None and self.schema.rules is not None:
            # Rows that keep values are held against public constraints once a record is put together.
            left = codes[stays]
            problems = self.schema.rules.settle(left, ())
            if problems:
                raise problems_error(problems, self.where)
            codes[stays] = left
        both = there & stays
        for column in range(codes.shape[1]):
            changed[both] |= codes[both, column] != present.codes[at[both], column]
        return KeyedChanges(distinct[changed], stays[changed], _taken(codes, np.flatnonzero(changed & stays)))

    def _present_before(self, there: Mask) -> Mask:
        """For each row whether its key is there before it: what the last event before it that decides says."""
        last = _last_where(self.operations != _UPDATE)
        before = np.concatenate([[-1], last[:-1]])
        group = self.group
        return np.where(before >= self.starts[group], self.operations[before] != DELETE, there[group])

    def _check(self, here: Mask) -> None:
        operations, rules = self.operations, self.batch.rules
        if rules.unknown == "error":
            for number, kind in ((DELETE, "delete"), (_UPDATE, "update")):
                if ((operations == number) & ~here).any():
                    raise refused_events(kind, self.where)
        if rules.known == "error" and ((operations == _INSERT) & here).any():
            raise refused_events("insert", self.where)

    def _null(self, position: int) -> int:
        """The code that stands for a null of a column in a row that gives a whole record."""
        column = self.schema.columns[position]
        if column.missing_code is None:
            raise refused_events("null", self.where, column.name)
        return column.missing_code

    def _differences(self, snapshot: Snapshot, present: PresentTable) -> KeyedChanges:
        """How the whole table differs from the present records."""
        ends = self.ends
        keys = self.keys[ends]
        records = len(present.codes)
        # A product of a whole number and a double: the same comparison at every repetition.
        if (
            records
            and not snapshot.confirmed
            and (not len(keys) or len(keys) < self.batch.rules.shrinks * records)
        ):
            raise UnconfirmedError(
                "the snapshot is empty, or below the declared share (shrinks) of the present records",
                where=self.where,
                allowed="a whole snapshot; or Snapshot(..., confirmed=True), once the owner confirms that records left",
            )
        place, there = present.find(keys)
        at = place[there]
        differs = ~there
        same = np.ones(len(at), np.bool_)
        for column in range(self.codes.shape[1]):
            same &= self.codes[ends[there], column] == present.codes[at, column]
        differs[there] = ~same
        stays = np.zeros(records, np.bool_)
        stays[at] = True
        gone = present.keys[~stays]
        come = keys[differs]
        both = np.concatenate([come, gone])
        order = np.lexsort((both[:, 1], both[:, 0]))
        return KeyedChanges(both[order], order < len(come), _taken(self.codes, ends[differs]))


def _taken(codes: Codes, rows: NDArray[Any]) -> Codes:
    """Some rows, column-major; a column at a time, which needs no second copy."""
    out = np.empty((len(rows), codes.shape[1]), np.int32, order="F")
    for column in range(codes.shape[1]):
        out[:, column] = codes[rows, column]
    return out


def _last_where(mask: Mask) -> Positions:
    """For each row the last position up to it where ``mask`` holds; -1 where there is none."""
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))


def _column(table: Any, name: str, what: str, where: str) -> Any:
    if name not in table.column_names:
        raise DataError(f"unknown column {name!r}", where=where, allowed=f"the column of the {what}")
    return table.column(name)


def operation_numbers(column: Any, name: str, where: str) -> Positions:
    """What each row does, from a column of ``OPERATIONS``.

    Errors:
        DataError: anything else is in it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = [np.zeros(0, np.int64)]
    for chunk in plain_chunks(column):
        text = pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type)
        words = pc.index_in(chunk, value_set=pa.array(OPERATIONS, chunk.type)) if text else None
        if words is None or words.null_count:
            raise DataError(
                f"column {name!r}: expected operations",
                where=where,
                allowed=", ".join(OPERATIONS),
            )
        numbers.append(words.to_numpy(zero_copy_only=False).astype(np.int64))
    return np.concatenate(numbers)


def encode_events(table: Any, operations: Positions, schema: Schema, where: str, *, keeping: bool) -> Codes:
    """The codes of all rows; ``_UNSAID`` in deletes, and where ``keeping`` in null cells."""
    import pyarrow as pa

    deletes = operations == DELETE
    codes = np.full((len(operations), len(schema)), _UNSAID, np.int32, order="F")
    if deletes.all() and not set(table.column_names) & set(schema.names):
        return codes
    rows = table.filter(pa.array(~deletes)) if deletes.any() else table
    encode = schema.encode_keeping_nulls if keeping else schema.encode
    said = encode(rows, where=where)
    if not deletes.any():
        return np.asfortranarray(said)
    codes[~deletes] = said
    return codes
