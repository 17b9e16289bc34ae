"""A batch of records with keys, whose rows are a Spark data frame: what happened to them in one step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dpstream.core.contracts import Granted, Wanted
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.tables import KeyedBatch, KeyRules, Snapshot
from dpstream.core.tables.counter_files import require_cipher
from dpstream.io.sources.keyed_operations import KeyedOperations
from dpstream.spark.frame_checks import check_columns, check_ids, is_frame, quoted, refuse_constraints
from dpstream.spark.keyed_passes import KeyedPasses
from dpstream.spark.keyed_tasks import KeyedColumns
from dpstream.spark.sessions import require_protected, require_reading, shielded_from_spark
from dpstream.spark.tasks import Ids

if TYPE_CHECKING:
    from dpstream.core.schema import Problem, Schema

#: The words of ``KeyedBatch``.
_PLAIN = KeyedOperations(("insert",), ("delete",), ("update",), ())


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
    """What happened to keyed records in one step, for ``Stream.step``: a Spark data frame, of which nothing is
    collected.

    Args:
        events: the schema's columns, and the others that are named here. Of a delete only its key is read.
        key: the column of the keys, which the schema does not have.
        operation: the column with ``insert``, ``update`` or ``delete``; None: every row is an upsert.
        order: the column (whole numbers, dates or timestamps) that says which row of a key comes first. Spark's rows
            have no order of their own: without it, and where it is the same, a key has one row in a step.
        changed, rules: as in ``KeyedBatch``.
        allow_plain_shuffle: whether disks and network of the cluster are trusted with records on their way.

    Errors:
        ConfigError: no Spark data frame, or names that cannot be told apart.

    >>> keyed_batch([1], "id")
    Traceback (most recent call last):
    dpstream.core.errors.ConfigError: step: a list is no Spark data frame (allowed: a pyspark.sql.DataFrame)
    """
    if not is_frame(events):
        raise ConfigError(
            f"a {type(events).__name__} is no Spark data frame",
            where="step",
            allowed="a pyspark.sql.DataFrame",
        )
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
            "a whole table of keyed records cannot be read from Spark, where a step is what changed",
            where="step",
            allowed="dpstream.spark.keyed_batch(changes, key=...), or the table as a frame of this process",
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
    words: KeyedOperations | None
    order: str | None
    allow_plain_shuffle: bool = False

    def __repr__(self) -> str:
        return "KeyedSparkBatch(records hidden)"

    def grant(self, wanted: Wanted) -> Granted:
        """See ``EngineBatch``. Names and types are checked here; the rows are read when their hash is asked for."""
        if wanted.reads != "present":
            raise ConfigError(
                "the batch holds keyed records, and the mechanism reads what a step brings",
                where=wanted.where,
                allowed="dpstream.spark.batch(inserts, deletes), or a mechanism with the unit record",
            )
        require_cipher()
        found = self.passes(wanted.schema, wanted.where, wanted.key)
        return Granted(None, found, sharded=found)

    def problems(self, schema: Schema, where: str) -> list[Problem]:
        """What keeps the rows from being read, column by column; for ``dpstream check``."""
        return self.passes(schema, where, b"").problems()

    def passes(self, schema: Schema, where: str, secret: bytes) -> KeyedPasses:
        """The passes over these rows, after a look at names, types and settings.

        Args:
            secret: that keys are hashed with.

        Errors:
            ConfigError: the session does not protect the records, or Spark refuses the query. SchemaError, DataError:
            columns that do not fit. UnreadableError: the session is gone.
        """
        refuse_constraints(schema)
        columns = KeyedColumns(self.batch, self.words, self.order, secret)
        for name in (self.batch.key, self.batch.operation):
            if name in schema.names:
                raise ConfigError(
                    f"the column {name!r} of the keys or operations is declared in the schema as well",
                    where=where,
                    allowed=f"another column, or a copy of {name!r} under another name",
                )
        frame = self.frame
        require_protected(frame.sparkSession, allow_plain_shuffle=self.allow_plain_shuffle, where=where)
        require_reading(frame.sparkSession, where)
        own = tuple(name for name in columns.names if name not in schema.names)
        with shielded_from_spark(where):
            check_columns(frame, schema, own, where)
            check_ids(frame, Ids(self.batch.key, b"", "key"), where)
            self._check_others(frame, where)
            frame = frame.select(*(quoted(name) for name in (*schema.names, *own)))
        return KeyedPasses(frame, schema, columns, where)

    def _check_others(self, frame: Any, where: str) -> None:
        """Check names and types of the columns of operations and of the order."""
        from pyspark.sql import types

        if self.batch.operation is not None and self.batch.operation not in frame.columns:
            raise DataError(
                f"there is no column {self.batch.operation!r}",
                where=where,
                allowed="the column of the operations",
            )
        if self.order is None:
            return
        if self.order not in frame.columns:
            allowed = "the column that orders the rows of a key"
            raise DataError(f"there is no column {self.order!r}", where=where, allowed=allowed)
        kind = frame.schema[self.order].dataType
        if not isinstance(
            kind, (types.IntegralType, types.DateType, types.TimestampType, types.TimestampNTZType)
        ):
            raise DataError(
                f"the column {self.order!r} that orders the rows of a key has the type {kind.simpleString()}",
                where=where,
                allowed="whole numbers, dates or timestamps",
            )
