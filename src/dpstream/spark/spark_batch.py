"""Batches whose records are Spark data frames: what a stream gets of them is counted in the executors.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.tables import BatchAccess, FrameKind, KeyedBatch, KeyRules, ReadRequest, Snapshot
from dpstream.core.tables.contribution import id_problem, no_ids_of
from dpstream.core.tables.counter_files import require_cipher
from dpstream.io.sources.counted_file import CountedView
from dpstream.io.sources.operations import Operations
from dpstream.io.sources.source import require_columns
from dpstream.spark.passes import KeyedPasses, Passes, SparkBounded
from dpstream.spark.sessions import require_protected, require_reading, shielded_from_spark
from dpstream.spark.tasks import EventColumns, Ids, KeyedColumns, Reading

if TYPE_CHECKING:
    from dpstream.core.schema import Clique, Problem, Schema


def batch(
    inserts: Any, deletes: Any = None, *, users: str | None = None, allow_plain_shuffle: bool = False
) -> SparkBatch:
    """The records of one step, for ``Stream.step``: Spark data frames, of which nothing is collected.

    Args:
        inserts: records that arrive. None: no record.
        deletes: records that leave, in the same columns. None: the stream has no deletes.
        users: the column that says whose records they are, with the unit ``user`` only.
        allow_plain_shuffle: whether disks and network of the cluster are trusted with counts of parts of the records.

    Errors:
        ConfigError: neither is a Spark data frame, or ``users`` is not a name.

    >>> batch(None, [1])
    Traceback (most recent call last):
    dpstream.core.errors.ConfigError: step: expected a Spark data frame, got list (allowed: a pyspark.sql.DataFrame)
    """
    given = [frame for frame in (inserts, deletes) if frame is not None]
    _require_frames(*given or (None,))
    if users is not None and not isinstance(users, str):
        raise ConfigError(
            f"users: expected a column, got {type(users).__name__}", where="step", allowed="its name"
        )
    sides = tuple(
        (frame, EventColumns(deletes=leaves))
        for frame, leaves in ((inserts, False), (deletes, True))
        if frame is not None
    )
    return SparkBatch(sides, deletes is not None, allow_plain_shuffle, users)


def refuse_reading(reads: str, where: str) -> None:
    """Refuse what cannot be had of records that stay in Spark.

    Errors:
        ConfigError: a mechanism that reads records, or reports of people.
    """
    if reads in ("records", "reports"):
        raise ConfigError(
            f"the mechanism reads {reads}; only counts leave Spark's executors",
            where=where,
            allowed="pooled, dpstabs, baseline; or the records as files",
        )


@dataclass(frozen=True, repr=False)
class SparkBatch:
    """One step's records in Spark; an ``EngineBatch``.

    Attributes:
        sides: Spark data frames of what comes and what goes.
        declares_deletes: whether the source has deletes at all.
        allow_plain_shuffle, users: see ``batch``.
    """

    sides: tuple[tuple[Any, EventColumns], ...]
    declares_deletes: bool
    allow_plain_shuffle: bool = False
    users: str | None = None

    def __repr__(self) -> str:
        return "SparkBatch(records hidden)"

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        """See ``EngineBatch``. Names and types are checked here; the records are read when their hash is asked for."""
        refuse_reading(wanted.reads, wanted.where)
        if wanted.reads == "present":
            raise ConfigError(
                "the mechanism needs keys of the present records",
                where=wanted.where,
                allowed='dpstream.spark.keyed_batch(frame, key="KEY")',
            )
        if wanted.max_events is None and self.users is not None:
            raise DataError(
                f"the unit {wanted.unit!r} has no users",
                where=wanted.where,
                allowed="a plan with unit user, or no users",
            )
        if wanted.max_events is None:
            found = self.passes(wanted.schema, wanted.cliques, wanted.where)
            return BatchAccess(CountedView(found), found)
        if self.users is None:
            raise DataError(
                f"the unit {wanted.unit!r} needs the batch's users",
                where=wanted.where,
                allowed='batch(..., users="COLUMN")',
            )
        require_cipher()
        what = "key" if wanted.unit == "record" else "user id"
        found = self.passes(wanted.schema, (), wanted.where, Ids(self.users, wanted.key, what))
        bounded = SparkBounded(found, wanted.cliques, wanted.max_events)
        return BatchAccess(CountedView(found), found, bounded)

    def passes(self, schema: Schema, cliques: Sequence[Clique], where: str, ids: Ids | None = None) -> Passes:
        """The passes over these records, after a look at names, types and settings.

        Args:
            ids: whose records they are, and how they are hashed; without it, as ``dpstream check`` needs it.

        Errors: those of ``prepared``.
        """
        if ids is None and self.users is not None:
            ids = Ids(self.users, b"")
        plain, sides = self.allow_plain_shuffle, []
        for side, columns in self.sides:
            reading = replace(columns, ids=ids)
            sides.append((prepared(side, schema, reading, where, allow_plain_shuffle=plain), reading))
        return Passes(sides, schema, cliques, where, deletes=self.declares_deletes)

    def problems(self, schema: Schema, where: str) -> list[Problem]:
        """What keeps the records from being counted, column by column; for ``dpstream check``."""
        return self.passes(schema, (), where).problems()


#: The types of a column that orders the rows of a key.
ORDERED = "whole numbers, dates or timestamps"
#: The words of ``KeyedBatch``.
_PLAIN = Operations(("insert",), ("delete",), ("update",), ())


def keyed_batch(
    events: Any,
    key: str,
    *,
    operation: str | None = None,
    order: str | None = None,
    changed: Literal["null-keeps"] | None = None,
    rules: KeyRules | None = None,
    allow_plain_shuffle: bool = False,
) -> KeyedSparkBatch:
    """What happened to keyed records in a step, for ``Stream.step``; nothing of the Spark frame is collected.

    Args:
        events: the schema's columns, and the others that are named here. Of a delete only its key is read.
        key: the column of the keys, which the schema does not have. changed, rules: as in ``KeyedBatch``.
        operation: the column with ``insert``, ``update`` or ``delete``; None: every row is an upsert.
        order: the column of numbers or times that orders the rows of a key; without it a key has one row.
        allow_plain_shuffle: whether disks and network of the cluster are trusted with records on their way.

    Errors:
        ConfigError: something else than a Spark data frame, or names that cannot be told apart.

    >>> keyed_batch([1], "id")
    Traceback (most recent call last):
    dpstream.core.errors.ConfigError: step: expected a Spark data frame, got list (allowed: a pyspark.sql.DataFrame)
    """
    _require_frames(events)
    batch = KeyedBatch(None, key, operation, changed, rules or KeyRules())
    words = None if operation is None else _PLAIN
    return KeyedSparkBatch(events, batch, words, order, allow_plain_shuffle)


def recognised(given: KeyedBatch | Snapshot) -> KeyedSparkBatch | None:
    """The batch of a ``KeyedBatch`` whose events are a Spark data frame; None where they are none.

    Errors:
        ConfigError: a whole table.
    """
    if isinstance(given, Snapshot):
        raise ConfigError(
            "Spark takes changes of keyed records, not the whole table",
            where="step",
            allowed="dpstream.spark.keyed_batch(changes, key=...), or another frame",
        )
    if not is_frame(given.events):
        return None
    words = None if given.operation is None else _PLAIN
    return KeyedSparkBatch(given.events, replace(given, events=None), words, None)


@dataclass(frozen=True, repr=False)
class KeyedSparkBatch:
    """One step's rows with keys in Spark; an ``EngineBatch``.

    Attributes:
        frame: the rows.
        batch: the names of their columns, and the rules; no events.
        words: of the operations; None: every row is an upsert.
        order, allow_plain_shuffle: see ``keyed_batch``.
    """

    frame: Any
    batch: KeyedBatch
    words: Operations | None
    order: str | None
    allow_plain_shuffle: bool = False

    def __repr__(self) -> str:
        return "KeyedSparkBatch(records hidden)"

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        """See ``EngineBatch``. Names and types are checked here; the rows are read when their hash is asked for."""
        if wanted.reads != "present":
            raise ConfigError(
                "the mechanism needs inserts and deletes, not keyed records",
                where=wanted.where,
                allowed="dpstream.spark.batch(inserts, deletes), or the unit record",
            )
        require_cipher()
        found = self.passes(wanted.schema, wanted.where, wanted.key)
        return BatchAccess(None, found, sharded=found)

    def problems(self, schema: Schema, where: str) -> list[Problem]:
        """What keeps the rows from being read, column by column; for ``dpstream check``."""
        return self.passes(schema, where, b"").problems()

    def passes(self, schema: Schema, where: str, secret: bytes) -> KeyedPasses:
        """The passes over these rows, after a look at names, types and settings.

        Args:
            secret: that keys are hashed with.

        Errors: those of ``prepared``.
        """
        operations = None if self.words is None else (str(self.batch.operation), self.words)
        ids = Ids(self.batch.key, secret, "key")
        columns = KeyedColumns(ids=ids, operations=operations, order=self.order, batch=self.batch)
        frame = prepared(self.frame, schema, columns, where, allow_plain_shuffle=self.allow_plain_shuffle)
        return KeyedPasses(frame, schema, columns, where)


def prepared(frame: Any, schema: Schema, reading: Reading, where: str, *, allow_plain_shuffle: bool) -> Any:
    """The columns of a data frame that are read, after a look at names, types and settings; no row is read.

    Errors:
        ConfigError: the session does not protect the records, or Spark refuses the query; public constraints, which
        rows are held against before they are counted. SchemaError, DataError: columns that do not fit.
        UnreadableError: the session is gone.
    """
    own = [name for name in reading.names if name not in schema.names]
    _refuse_declared(schema, reading, where)
    if schema.constraints is not None:
        raise ConfigError(
            "records in Spark cannot follow public constraints",
            where="schema.constraints",
            allowed="another source, or none",
        )
    require_protected(frame.sparkSession, allow_plain_shuffle=allow_plain_shuffle, where=where)
    require_reading(frame.sparkSession, where)
    with shielded_from_spark(where):
        _check_columns(frame, schema, own, where)
        _check_others(frame, reading, where)
        return frame.select(*(quoted(name) for name in (*schema.names, *own)))


def _refuse_declared(schema: Schema, reading: Reading, where: str) -> None:
    """Refuse a column of ids or operations that is an attribute too (ConfigError)."""
    ids, operations = reading.ids, reading.operations
    columns = [] if ids is None else [(f"{ids.what}s", ids.column)]
    columns += [] if operations is None else [("operations", operations[0])]
    for what, name in columns:
        if name in schema.names:
            raise ConfigError(
                f"column {name!r} of the {what} is also in the schema",
                where=where,
                allowed="another column, or a renamed copy",
            )


def _check_columns(frame: Any, schema: Schema, own: Sequence[str], where: str) -> None:
    """Check names and types on a table without rows, as the executors will see it."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    fields = []
    for one in frame.schema.fields:
        if one.name in own:
            continue
        try:
            kind = to_arrow_type(one.dataType, timezone="UTC")
        except PySparkException:
            kind = pa.struct([])  # a type that no column reads
        fields.append((one.name, kind))
    names = [name for name, _ in fields]
    empty = pa.Table.from_arrays([pa.array([], kind) for _, kind in fields], names=names)
    schema.encode(empty, where=where)


def _check_others(frame: Any, reading: Reading, where: str) -> None:
    """Check the names of the columns of ids, operations and order, and the types of ids and order."""
    from pyspark.errors import PySparkException
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_type

    require_columns(reading.names, frame.columns, where)
    ids, order = reading.ids, reading.order
    if ids is not None:
        kind = frame.schema[ids.column].dataType
        try:
            wrong = id_problem(to_arrow_type(kind, timezone="UTC"), where, ids.what)
        except PySparkException:  # a type that Arrow does not have
            wrong = no_ids_of(kind.simpleString(), where, ids.what)
        if wrong is not None:
            raise wrong
    if order is not None:
        kind = frame.schema[order].dataType
        times = (types.DateType, types.TimestampType, types.TimestampNTZType)
        if not isinstance(kind, (types.IntegralType, *times)):
            raise DataError(
                f"column {order!r} of type {kind.simpleString()} cannot order rows",
                where=where,
                allowed=ORDERED,
            )


def _require_frames(*frames: Any) -> None:
    """Check that these are data frames of Spark (ConfigError)."""
    for frame in frames:
        if not is_frame(frame):
            raise ConfigError(
                f"expected a Spark data frame, got {type(frame).__name__}",
                where="step",
                allowed="a pyspark.sql.DataFrame",
            )


def quoted(name: str) -> str:
    """A name of a column as Spark's SQL reads it."""
    return "`" + name.replace("`", "``") + "`"


def is_frame(frame: Any) -> bool:
    """Whether it is a data frame of Spark, told by its class: nothing of Spark is imported for others."""
    kinds = type(frame).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql") for kind in kinds)


def _recognised(inserts: Any, deletes: Any, users: Any) -> SparkBatch | None:
    """The batch of data frames given to ``Stream.step``."""
    if not any(map(is_frame, (inserts, deletes))):
        return None
    return batch(inserts, deletes, users=users)


FRAMES = FrameKind(_recognised, recognised)
