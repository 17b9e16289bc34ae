"""``[source] kind = "spark"``: a table or a query of a Spark session, one step per public period.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpstream.core.contracts import StreamPlan, option
from dpstream.core.errors import DataError
from dpstream.core.tables import KeyedBatch
from dpstream.core.tables.access import refuse_open
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.query import bounds, check_parameters, placeholders
from dpstream.io.sources.source import PeriodSource, StepInput, require_columns
from dpstream.io.sources.source_keys import SourceKeys, SourceKind, meaningless, shared_keys, wrong_source
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.times import NUMBERS
from dpstream.spark.found_files import AlikeFiles
from dpstream.spark.passes import require_room
from dpstream.spark.sessions import (
    MASTERS,
    NO_TIME,
    is_allowed_setting,
    require_protected,
    require_reading,
    session,
    shielded_from_spark,
)
from dpstream.spark.spark_batch import ORDERED, KeyedSparkBatch, SparkBatch, quoted, refuse_reading
from dpstream.spark.staging import open_staged
from dpstream.spark.tasks import EventColumns

_WHERE = "[source]"
_FOLDER = re.compile(r"(parquet|orc|delta|staged)\.`([^`]+)`")
_REMOTE = "a Spark Connect URL without a token, such as sc://host:15002"
_SIZE = "such as 512m or 8g"
_SETTING = "such as spark.executor.memory=4g"
_SECRET = re.compile(r"secret|password|token|credential|access\.?key", re.IGNORECASE)
_ORDER = "a null in the column {column!r}, or two rows of a key with one value in it, stop the stream"
_PLAIN = (
    "disks and network of the Spark cluster are trusted with counts and records (allow_plain_shuffle = true)"
)


@dataclass(frozen=True)
class SparkKeys:
    """The keys of ``[source]`` that only Spark has."""

    master: str = option(
        "local[*]",
        allowed=MASTERS,
        reason="a laptop",
        meaning="Where a new session runs; not with `spark-submit` or an existing one.",
    )
    remote: str | None = option(
        None,
        allowed=_REMOTE,
        shown="not set",
        reason="replaces master",
        meaning="The Spark Connect server.",
    )
    memory: str = option(
        "2g",
        allowed=_SIZE,
        reason="enough for millions of cells",
        meaning="The driver's memory, into which a step's counts must fit.",
    )
    order_column: str | None = option(
        None,
        allowed=f"a column of {ORDERED}",
        shown="time_column",
        reason="rows of Spark have no order",
        meaning="With `key_column`: the order of a key's rows in a step. Ties stop the stream.",
    )
    settings: tuple[str, ...] = option(
        (),
        allowed='such as ["spark.executor.memory=4g"], without secrets',
        reason="Spark's own defaults",
        meaning="Settings of a new session: memory, cores, shuffles, connections.",
    )
    allow_plain_shuffle: bool = option(
        False,
        allowed="true, false",
        reason="executors handle private counts",
        meaning="Whether shuffle files and connections may be unencrypted (as plan and manifests say).",
    )


class SparkSource(PeriodSource):
    """Private records of a Spark session, which stay there: each step holds a ``SparkBatch``.

    Guarantee: the periods are public, and so is which one is read. In a table the time of a record decides its step; a
    query is trusted to decide about each protected record by that record alone (``options.declared_public``).

    Errors:
        ConfigError: PySpark is missing, the session does not protect the records, or Spark refuses table or query.
        UnreadableError: the session is gone. DataError: records that cannot be read, or have no time.
    """

    def __init__(self, options: SourceOptions, base: Path, columns: Sequence[str]) -> None:
        self.options, self._columns, self._base = options, tuple(columns), base
        self._own: SparkKeys = options.own or SparkKeys()
        self._files: AlikeFiles | None = None
        self._place = "Spark, query" if options.table is None else f"Spark, table {options.table}"

    def _read(self, grid: Grid, last: int, first: int, seen: Mapping[str, int] | None) -> Iterator[StepInput]:
        # Nothing of a step is read before the stream asks for its hash.
        if first > last:
            return
        own, op = self._own, self.options.op_column
        spark = session(own.master, remote=own.remote, memory=own.memory, settings=_settings(own.settings))
        require_protected(spark, allow_plain_shuffle=own.allow_plain_shuffle, where=self._place)
        for step in range(first, last + 1):
            require_reading(spark, self._place)
            frame = self._asked(spark, grid, step)
            batch: SparkBatch | KeyedSparkBatch
            if self.options.key_column is not None:
                batch = self._keyed(frame)
            else:
                operations = None if op is None else (op, self.options.op_values)
                side, users = (frame, EventColumns(operations=operations)), self.options.user_column
                batch = SparkBatch((side,), op is not None, own.allow_plain_shuffle, users)
            yield StepInput(step, grid.batch_id(step), grid.period(step), None, None, engine=batch)

    @property
    def _order(self) -> str | None:
        """The column that says which row of a key comes first."""
        return self._own.order_column or self.options.time_column

    def _keyed(self, frame: Any) -> KeyedSparkBatch:
        options, op = self.options, self.options.op_column
        changed: Literal["null-keeps"] | None = "null-keeps" if options.updates == "changed" else None
        words = None if op is None else options.op_values
        events = KeyedBatch(None, str(options.key_column), op, changed, options.key_rules)
        return KeyedSparkBatch(frame, events, words, self._order, self._own.allow_plain_shuffle)

    def _asked(self, spark: Any, grid: Grid, step: int) -> Any:
        """The records of one step, not read yet, of the table as it is now."""
        limits = bounds(grid, step)
        with shielded_from_spark(self._place):
            if self.options.table is None:
                # As a subquery: no statement that changes something can be one.
                text = f"SELECT * FROM (\n{self.options.query}\n)"
                frame = spark.sql(text, args=list(limits))
            else:
                frame = self._period(self._table(spark), limits, bounds(grid, 1)[0])
            if hasattr(frame, "_jdf"):
                # Files that came since the session has listed them; a view of a session keeps its list.
                frame._jdf.queryExecution().analyzed().refresh()
            options = self.options
            named = (options.op_column, options.user_column, options.key_column, self._own.order_column)
            require_columns(named, frame.columns, self._place)
            return frame

    def _period(self, table: Any, limits: tuple[Any, Any], start: Any) -> Any:
        """The records of a period. One that has no step, as it has no time, would be lost silently: it stops the pass
        that meets it."""
        from pyspark.sql import functions, types

        name, days = str(self.options.time_column), self.options.every is not None
        require_columns((name,), table.columns, self._place)
        kind = table.schema[name].dataType
        dates = (types.DateType, types.TimestampType, types.TimestampNTZType)
        if not isinstance(kind, dates if days else types.IntegralType):
            raise DataError(
                f"time column of type {kind.simpleString()}",
                where=f"{self._place}, column {name!r}",
                allowed="dates or timestamps" if days else NUMBERS,
            )
        column = table[quoted(name)]
        lost = column.isNull() if self.options.continues else column.isNull() | (column < start)
        frame = table.where(lost | ((column >= limits[0]) & (column < limits[1])))
        for used in self._columns[:1]:
            stops = functions.when(lost, functions.raise_error(functions.lit(NO_TIME)))
            frame = frame.withColumn(used, stops.otherwise(table[quoted(used)]))
        needed = self.options.key_column is not None and name == self._order
        return frame if needed or name in self._columns else frame.drop(name)

    def _table(self, spark: Any) -> Any:
        """By its name; a folder that is named by its path is relative to the file that names it, as other paths are."""
        name = str(self.options.table)
        folder = _FOLDER.fullmatch(name)
        if folder is None:
            spark.catalog.refreshTable(name)
            return spark.table(name)
        if "://" in folder[2]:
            return self._alike(spark.table(name), folder[1])
        path = (self._base / folder[2]).absolute()
        if folder[1] == "staged":
            return open_staged(spark, path, self._place)
        return self._alike(spark.table(f"{folder[1]}.`{path}`"), folder[1])

    def _alike(self, table: Any, kind: str) -> Any:
        """A folder's table, after a look at the columns of its files."""
        if kind != "delta":
            self._files = self._files or AlikeFiles(kind, self.ignored, self._place)
            self._files.check(table)
        return table


def _settings(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.partition("=")[::2] for text in texts)


def _check(options: SourceKeys) -> None:
    """See ``SourceKind.check``."""
    if options.query is not None:
        check_parameters("changes", placeholders(options.query, r"--[^\n]*"))
    own = options.own
    if isinstance(own, SparkKeys):
        _check_own(own)
        if own.order_column is not None and options.key_column is None:
            raise meaningless("order_column", "without key_column")
        if own.order_column is not None and own.order_column == options.key_column:
            raise wrong_source("key_column and order_column name one column", "two columns")


def _check_own(own: SparkKeys) -> None:
    if own.remote is not None and (not own.remote.startswith("sc://") or _SECRET.search(own.remote)):
        raise wrong_source("unusable remote", f"{_REMOTE}; tokens in the environment")
    if not re.fullmatch(r"[1-9][0-9]{0,5}[kmgt]b?", own.memory.lower()):
        raise wrong_source(f"unusable memory = {own.memory!r}", _SIZE)
    for text in own.settings:
        name, found, _ = text.partition("=")
        if not found or not name.startswith("spark."):
            raise wrong_source(f"unknown Spark setting {name!r}", _SETTING)
        if not is_allowed_setting(name) and not _SECRET.search(name):
            raise wrong_source(
                f"the setting {name} may not change", f"memory, cores, shuffles, connections: {_SETTING}"
            )
        if _SECRET.search(name):
            raise wrong_source(f"the setting {name} is secret, this file public", "spark-defaults.conf")


def _fits(options: SourceOptions, plan: StreamPlan) -> None:
    """See ``SourceKind.fits``."""
    own: SparkKeys = options.own or SparkKeys()
    refuse_reading(plan.reads, "kind")
    refuse_open(plan.open_columns, "kind")
    require_room(
        plan.domain,
        plan.asked_cliques(),
        has_deletes=options.op_column is not None and options.key_column is None,
        memory=own.memory,
        where="kind",
    )


def _public(options: SourceOptions) -> tuple[str, ...]:
    """See ``SourceKind.public``."""
    own: SparkKeys = options.own or SparkKeys()
    order = own.order_column or options.time_column
    ordered = options.key_column is not None and order is not None
    facts = (_ORDER.format(column=order),) if ordered else ()
    return (*facts, _PLAIN) if own.allow_plain_shuffle else facts


SOURCE = SourceKind(
    SparkSource,
    keys=shared_keys("spark"),
    public=_public,
    options=SparkKeys,
    movable=("master", "remote", "memory", "settings"),
    keyed=True,
    repeatable=True,
    cancels=False,
    check=_check,
    fits=_fits,
)
