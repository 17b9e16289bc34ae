"""A batch whose records are a Spark data frame: what a stream gets of it is counted in the executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dpstream.core.contracts import Events, Granted, Wanted
from dpstream.core.contracts.engine_frames import FrameKind
from dpstream.core.errors import ConfigError, UnitError
from dpstream.spark.passes import Passes, Side
from dpstream.spark.sessions import require_protected, setting, shielded_from_spark

if TYPE_CHECKING:
    import numpy as np

    from dpstream.core.schema import Problem, Schema
    from dpstream.core.schema.domain import Clique
    from dpstream.io.sources.operations import Operations

__all__ = ["FRAMES", "SparkBatch", "batch", "quoted", "refuse_reading", "require_utc", "with_operations"]

_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00")


def batch(inserts: Any, deletes: Any = None, *, allow_plain_shuffle: bool = False) -> SparkBatch:
    """The records of one step, for ``Stream.step``: Spark data frames, of which nothing is collected.

    Args:
        inserts: records that arrive. None: no record.
        deletes: records that leave, in the same columns. None: the stream has no deletes.
        allow_plain_shuffle: whether disks and network of the cluster are trusted with counts of parts of the records.

    Errors:
        ConfigError: neither is a Spark data frame.

    >>> batch(None, [1])
    Traceback (most recent call last):
    dpstream.core.errors.ConfigError: step: a list is no Spark data frame (allowed: a pyspark.sql.DataFrame)
    """
    given = [frame for frame in (inserts, deletes) if frame is not None]
    for frame in given or (None,):
        if not _is_frame(frame):
            raise ConfigError(
                f"a {type(frame).__name__} is no Spark data frame",
                where="step",
                allowed="a pyspark.sql.DataFrame",
            )
    sides = [
        Side(frame, deletes=leaves)
        for frame, leaves in ((inserts, False), (deletes, True))
        if frame is not None
    ]
    return SparkBatch(tuple(sides), deletes is not None, allow_plain_shuffle)


def refuse_reading(reads: str, unit: str, where: str, *, bounded: bool) -> None:
    """Refuse what cannot be had of records that stay in Spark.

    Errors:
        ConfigError: a mechanism that reads records, or records with keys. UnitError: a unit that is a user.
    """
    if reads != "counts":
        kind = {"records": "records", "reports": "reports of people", "present": "records by key"}[reads]
        raise ConfigError(
            f"the mechanism reads {kind}, and of a Spark table only counts leave the executors",
            where=where,
            allowed="a mechanism that reads counts, such as pooled, dpstabs or baseline; or the same records as files",
        )
    if bounded:
        raise UnitError(
            f"the unit is {unit!r}, whose events are bounded record by record, which is not done in Spark",
            where=where,
            allowed="the unit event or event-replace; or the same records as files or from a database",
        )


@dataclass(frozen=True, repr=False)
class SparkBatch:
    """One step's records in Spark; an ``EngineBatch``.

    Attributes:
        sides: what comes and what goes.
        declares_deletes: whether the source has deletes at all.
        allow_plain_shuffle: see ``batch``.
    """

    sides: tuple[Side, ...]
    declares_deletes: bool
    allow_plain_shuffle: bool = False

    def __repr__(self) -> str:
        return "SparkBatch(records hidden)"

    def grant(self, wanted: Wanted) -> Granted:
        """See ``EngineBatch``. Names and types are checked here; the records are read when their hash is asked for."""
        refuse_reading(wanted.reads, wanted.unit, wanted.where, bounded=wanted.max_events is not None)
        found = self.passes(wanted.schema, wanted.cliques, wanted.where)
        return Granted(SparkView(found), SparkRows(found))

    def passes(self, schema: Schema, cliques: Sequence[Clique], where: str) -> Passes:
        """The passes over these records, after a look at names, types and settings.

        Errors:
            ConfigError: the session does not protect the records, or Spark refuses the query. SchemaError, DataError:
            columns that do not fit. UnreadableError: the session is gone.
        """
        if schema.constraints is not None:
            raise ConfigError(
                "records that stay in Spark cannot follow public constraints",
                where="schema.constraints",
                allowed="records from another source, or a schema without constraints",
            )
        sides = []
        for side in self.sides:
            spark = side.frame.sparkSession
            require_protected(spark, allow_plain_shuffle=self.allow_plain_shuffle, where=where)
            own = () if side.operations is None else (side.operations[0],)
            with shielded_from_spark(where):
                _check_columns(side.frame, schema, own, where)
                frame = side.frame.select(*(quoted(name) for name in (*schema.names, *own)))
            sides.append(Side(frame, side.operations, side.deletes))
        return Passes(sides, schema, cliques, where, deletes=self.declares_deletes)

    def problems(self, schema: Schema, where: str) -> list[Problem]:
        """What keeps the records from being counted, column by column; for ``dpstream check``."""
        return self.passes(schema, (), where).problems()


@dataclass(frozen=True, repr=False)
class SparkView:
    """Counts of records in Spark; a ``PrivateBatch``."""

    _passes: Passes

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[NDArray[np.int64]]:
        """See ``PrivateBatch``. Both parts are counted in one pass, so that no reading comes after noise was drawn.

        Errors:
            DataError: the records changed since they were read first. LimitError: too many cells for the driver.
        """
        if part not in ("net", "inserts", "deletes"):
            raise ConfigError(f"unknown part {part!r}", where="count", allowed="net, inserts, deletes")
        found = self._passes.counts(cliques)
        if not self._passes.has_deletes:
            return [counts[0].copy() if part != "deletes" else 0 * counts[0] for counts in found]
        return [
            counts[0] - counts[1] if part == "net" else counts[int(part == "deletes")].copy()
            for counts in found
        ]

    @property
    def declares_deletes(self) -> bool:
        """See ``PrivateBatch``."""
        return self._passes.has_deletes

    @property
    def records(self) -> None:
        """None: only counts are granted."""
        return None

    @property
    def marks(self) -> None:
        """None: whose records they are is not granted."""
        return None

    @property
    def present(self) -> None:
        """None: the records have no keys."""
        return None


@dataclass(frozen=True, repr=False)
class SparkRows:
    """The records as a multiset; a ``BatchRows``."""

    _passes: Passes

    def fingerprint(self, key: bytes) -> bytes:
        """See ``BatchRows``. The half of ``key`` that rows are hashed with goes to the executors. The other half stays
        here; without it a stored hash says nothing."""
        return self._passes.fingerprint(key)

    def in_order(self) -> None:
        """None: the records stay in Spark."""


def with_operations(
    frame: Any, operations: tuple[str, Operations] | None, *, allow_plain_shuffle: bool
) -> SparkBatch:
    """A batch of one frame, whose column of operations says which rows leave."""
    return SparkBatch((Side(frame, operations),), operations is not None, allow_plain_shuffle)


def _check_columns(frame: Any, schema: Schema, own: tuple[str, ...], where: str) -> None:
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
    used = [one.dataType for one in frame.schema.fields if one.name in schema.names]
    require_utc(frame.sparkSession, used, where)


def require_utc(spark: Any, kinds: Sequence[Any], where: str) -> None:
    """That times are read as every other source reads them.

    Args:
        kinds: Spark's types of the columns.

    Errors:
        ConfigError: one of them is a moment, and the session shows moments in another zone.
    """
    moments = any(kind.typeName() == "timestamp" for kind in kinds)
    if moments and setting(spark, "spark.sql.session.timeZone") not in _UTC:
        raise ConfigError(
            "the Spark session reads times in a time zone of its own",
            where=where,
            allowed="spark.sql.session.timeZone = UTC, or columns of the type TIMESTAMP_NTZ",
        )


def quoted(name: str) -> str:
    """A name of a column as Spark's SQL reads it."""
    return "`" + name.replace("`", "``") + "`"


def _is_frame(frame: Any) -> bool:
    kinds = type(frame).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql") for kind in kinds)


def _recognised(inserts: Any, deletes: Any, users: Any) -> SparkBatch | None:
    """The batch of data frames given to ``Stream.step``."""
    if not any(map(_is_frame, (inserts, deletes))):
        return None
    if users is not None:
        refuse_reading("counts", "user", "step", bounded=True)
    return batch(inserts, deletes)


FRAMES = FrameKind(_recognised)
