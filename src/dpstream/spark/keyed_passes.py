"""A batch of records with keys, whose rows are a Spark data frame: what happened to them in one step.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy.randomness import Exact
from dpstream.core.schema.column import Problem, problems_error
from dpstream.core.tables import KeyedBatch, KeyRules, MultisetHash, Snapshot
from dpstream.core.tables.access import BatchAccess, CounterShards, PresentShards, ReadRequest, ShardedEvents
from dpstream.core.tables.counter_files import present_width, require_cipher
from dpstream.core.tables.counting import count_plan
from dpstream.core.tables.keyed_reading import refused_events, sorted_by_key
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES
from dpstream.core.version import __version__
from dpstream.io.sources.operations import Operations
from dpstream.spark.found_files import FoundFiles, changed_records
from dpstream.spark.keyed_tasks import REFUSED, Applying, Before, CountingPresent, KeyedColumns
from dpstream.spark.passes import is_frame, prepared, problems_of, refuse_declared, require_room_in, summed
from dpstream.spark.tasks import PART_TYPE, Ids, Tally
from dpstream.spark.user_passes import SHARDS, begin, damage_told, make_lasting, sharded, tasks_of
from dpstream.spark.user_tasks import after

if TYPE_CHECKING:
    from dpstream.core.schema import Problem, Schema
    from dpstream.core.schema.domain import Clique


class KeyedPasses:
    """One step's rows with keys, in Spark; a ``BatchRows`` and a ``KeyedShards``.

    Guarantee: what is applied has the hash that is told, before or afterwards, or the step is refused. Nothing but the
    hash, marks of problems, and exact numbers of records that left reaches the driver.

    Cost: a pass with a shuffle of the step's encoded rows. One that applies them reads and writes the files of the
    shards that a row falls into: all, where a step has some thousand rows.
    """

    def __init__(self, frame: Any, schema: Schema, columns: KeyedColumns, where: str) -> None:
        self._frame, self._schema, self._columns, self._where = frame, schema, columns, where
        self._content: tuple[bytes, MultisetHash] | None = None
        self._files = FoundFiles([frame], where)

    def fingerprint(self, key: bytes) -> bytes:
        """See ``BatchRows``: the hash of the same events in one process, in the order that the order column says."""
        if self._content is None or not hmac.compare_digest(self._content[0], key):
            self._content = (key, self._checked(self._run(key, None)).here)
        none = np.zeros((0, 2), np.uint64), np.zeros(0, np.int64), np.zeros((0, len(self._schema)), np.int32)
        rows = sorted_by_key(self._columns.batch, self._schema, self._where, *none)
        return self._content[1].finish(rows.end(), key)

    def problems(self) -> list[Problem]:
        """What keeps the rows from being read, of all partitions at once; one pass."""
        found = self._run(bytes(HASH_KEY_BYTES), None)
        problems = self._problems(found)
        if not problems and found.problems[-1] & REFUSED["several"]:
            error = self._several()
            problems.append(Problem(self._columns.batch.key, "key", error.what, str(error.allowed)))
        return problems

    def apply(self, present: PresentShards, /) -> tuple[SparkPresent, ShardedEvents]:
        """See ``KeyedShards``.

        Errors:
            DataError: also, the records changed since they were read first. ConfigError: executors and driver do not
            see the same folder. UnreadableError: the session is gone.
        """
        shards = present.shards or CounterShards(SHARDS)
        generation = begin(present.folder)
        folder = str(present.folder.resolve())
        before = Before(folder, shards, generation, present.step, present.keep_keys)
        key, known = present.content_key, self._content
        with damage_told(present.folder, shards):
            found = self._run(key, before)
        tally = self._checked(found)
        if known is not None and hmac.compare_digest(known[0], key) and known[1] != tally.here:
            raise changed_records(self._where)
        self._content = (key, tally.here)
        width = present_width(self._schema.domain)
        files, new = after(shards, generation, tally.written, width)
        make_lasting(present.folder, new)
        left = self._left
        departed = np.repeat(np.arange(len(left), dtype=np.int32), left)
        spark = self._frame.sparkSession
        counted = SparkPresent(
            spark, self._schema, self._where, present.folder, files, present.step, departed
        )
        return counted, ShardedEvents(files, 0)

    def _run(self, key: bytes, before: Before | None) -> Tally:
        row_key, batch = key[: HASH_KEY_BYTES // 2], self._columns.batch
        number = SHARDS if before is None else before.shards.number
        spark = self._frame.sparkSession

        def parts(apart: int) -> Any:
            applying = Applying(__version__, self._schema, batch, row_key, apart, before)
            return sharded([(self._frame, self._columns)], applying, number)

        found = summed(spark, parts, self._where)
        self._files.check()
        steps = 0 if before is None else before.step
        tally, self._left = found or (Tally.empty(len(self._schema)), np.zeros(steps, np.int64))
        return tally

    def _checked(self, tally: Tally) -> Tally:
        """The tally, of rows that the rules allow.

        Errors:
            DataError: in the order in which one process would say it.
        """
        marks = int(tally.problems[-1])
        problems = self._problems(tally)
        events = [kind for kind, bit in REFUSED.items() if marks & bit]
        if problems and not {"delete", "update", "insert"} & set(events):
            raise problems_error(problems, self._where)
        if events:
            raise self._several() if events[0] == "several" else refused_events(events[0], self._where)
        return tally

    def _several(self) -> DataError:
        if self._columns.batch.rules.repeated == "error":
            return refused_events("several", self._where)
        if self._columns.order is None:
            what, allowed = "nothing says which comes first", "order_column, a column that says it"
        else:
            what = f"the column {self._columns.order!r} does not say which comes first"
            allowed = "another value in each of them"
        return DataError(
            f"a key has several rows in one step, and {what}",
            where=self._where,
            allowed=f"{allowed}; or one row a key",
        )

    def _problems(self, tally: Tally) -> list[Problem]:
        batch, words = self._columns.batch, self._columns.words
        operations = None
        if words is not None:
            operations = str(batch.operation), words.words
        return problems_of(tally, self._schema, (batch.key, "key"), operations, self._columns.order)


class SparkPresent:
    """The records that are present after a step, in files that do not change; a ``PresentRecords``."""

    def __init__(
        self,
        spark: Any,
        schema: Schema,
        where: str,
        folder: Path,
        shards: CounterShards,
        step: int,
        departed: NDArray[np.int32],
    ) -> None:
        """``step``: the one that the records are there after."""
        self._spark, self._schema, self._where = spark, schema, where
        self._folder, self._shards, self._step = folder, shards, step
        self.departed = departed

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        """See ``PresentRecords``. One pass over all files; none where no record can be so new.

        Errors:
            LimitError: too many cells for the driver. StoreDamagedError: a file was changed. UnreadableError: the
            session is gone.
        """
        wanted = tuple(dict.fromkeys(cliques))
        plan = count_plan(self._schema.domain, wanted)
        counts = np.zeros(plan.cells, np.int64)
        if after < self._step and self._shards.files:
            require_room_in(self._spark, self._schema.domain, wanted, has_deletes=False, where=self._where)
            with damage_told(self._folder, self._shards):
                found = summed(self._spark, lambda apart: self._parts(wanted, after, apart), self._where)
            counts = counts if found is None else found[1]
        known = {clique: counts[begin:end] for clique, (begin, end) in zip(wanted, plan.bounds, strict=True)}
        return [Exact(known[one].copy()) for one in cliques]

    def __repr__(self) -> str:
        return "SparkPresent(records hidden)"

    def _parts(self, cliques: tuple[Clique, ...], after: int, apart: int) -> Any:
        spark, number = self._spark, self._shards.number
        folder = str(self._folder.resolve())
        counting = CountingPresent(__version__, self._schema, cliques, after, folder, self._shards, apart)
        return spark.range(0, number, 1, tasks_of(spark, number)).mapInArrow(counting.__call__, PART_TYPE)


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
    words: Operations | None
    order: str | None
    allow_plain_shuffle: bool = False

    def __repr__(self) -> str:
        return "KeyedSparkBatch(records hidden)"

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        """See ``EngineBatch``. Names and types are checked here; the rows are read when their hash is asked for."""
        if wanted.reads != "present":
            raise ConfigError(
                "the batch holds keyed records, and the mechanism reads what a step brings",
                where=wanted.where,
                allowed="dpstream.spark.batch(inserts, deletes), or a mechanism with the unit record",
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
        batch, columns = self.batch, KeyedColumns(self.batch, self.words, self.order, secret)
        refuse_declared(schema, where, keys=batch.key, operations=batch.operation)
        frame = prepared(
            self.frame,
            schema,
            [name for name in columns.names if name not in schema.names],
            Ids(batch.key, b"", "key"),
            where,
            allow_plain_shuffle=self.allow_plain_shuffle,
            check=lambda: self._check_others(self.frame, where),
        )
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
