"""A batch whose records are a Spark data frame: what a stream gets of it is counted in the executors.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.tables.access import BatchAccess, FrameKind, ReadRequest
from dpstream.core.tables.counter_files import require_cipher
from dpstream.io.sources.counted_file import CountedView
from dpstream.spark.keyed_passes import recognised
from dpstream.spark.passes import BatchFrame, Passes, is_frame, prepared, refuse_declared
from dpstream.spark.tasks import Ids
from dpstream.spark.user_passes import SparkBounded

if TYPE_CHECKING:
    from dpstream.core.schema import Problem, Schema
    from dpstream.core.schema.domain import Clique
    from dpstream.io.sources.operations import Operations


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
        ConfigError: neither is a Spark data frame, or ``users`` is no name.

    >>> batch(None, [1])
    Traceback (most recent call last):
    dpstream.core.errors.ConfigError: step: a list is no Spark data frame (allowed: a pyspark.sql.DataFrame)
    """
    given = [frame for frame in (inserts, deletes) if frame is not None]
    for frame in given or (None,):
        if not is_frame(frame):
            raise ConfigError(
                f"a {type(frame).__name__} is no Spark data frame",
                where="step",
                allowed="a pyspark.sql.DataFrame",
            )
    if users is not None and not isinstance(users, str):
        raise ConfigError(
            f"users is a {type(users).__name__}",
            where="step",
            allowed="the name of a column of the Spark data frames",
        )
    sides = [
        BatchFrame(frame, deletes=leaves)
        for frame, leaves in ((inserts, False), (deletes, True))
        if frame is not None
    ]
    return SparkBatch(tuple(sides), deletes is not None, allow_plain_shuffle, users)


def refuse_reading(reads: str, where: str) -> None:
    """Refuse what cannot be had of records that stay in Spark.

    Errors:
        ConfigError: a mechanism that reads records, or reports of people.
    """
    if reads in ("records", "reports"):
        kind = {"records": "records", "reports": "reports of people"}[reads]
        raise ConfigError(
            f"the mechanism reads {kind}, and of a Spark table only counts leave the executors",
            where=where,
            allowed="a mechanism that reads counts, such as pooled, dpstabs or baseline; or the same records as files",
        )


@dataclass(frozen=True, repr=False)
class SparkBatch:
    """One step's records in Spark; an ``EngineBatch``.

    Attributes:
        sides: what comes and what goes.
        declares_deletes: whether the source has deletes at all.
        allow_plain_shuffle, users: see ``batch``.
    """

    sides: tuple[BatchFrame, ...]
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
                "the mechanism reads the records that are present, and the batch has no keys",
                where=wanted.where,
                allowed='dpstream.spark.keyed_batch(frame, key="the column of the keys")',
            )
        if wanted.max_events is None and self.users is not None:
            raise DataError(
                f"the batch says whose records they are, and the unit is {wanted.unit!r}, which does not use it",
                where=wanted.where,
                allowed="a plan with the unit user, or a batch without users",
            )
        if wanted.max_events is None:
            found = self.passes(wanted.schema, wanted.cliques, wanted.where)
            return BatchAccess(CountedView(found), found)
        if self.users is None:
            raise DataError(
                f"the unit is {wanted.unit!r}, and the batch does not say whose records they are",
                where=wanted.where,
                allowed='batch(..., users="the column of the user ids")',
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
        if ids is not None:
            refuse_declared(schema, where, **{f"{ids.what}s": ids.column})
        plain, sides = self.allow_plain_shuffle, []
        for side in self.sides:
            own = [] if side.operations is None else [side.operations[0]]
            own += [] if ids is None else [ids.column]
            frame = prepared(side.frame, schema, own, ids, where, allow_plain_shuffle=plain)
            sides.append(BatchFrame(frame, side.operations, side.deletes))
        return Passes(sides, schema, cliques, where, deletes=self.declares_deletes, users=ids)

    def problems(self, schema: Schema, where: str) -> list[Problem]:
        """What keeps the records from being counted, column by column; for ``dpstream check``."""
        return self.passes(schema, (), where).problems()


def with_operations(
    frame: Any,
    operations: tuple[str, Operations] | None,
    *,
    allow_plain_shuffle: bool,
    users: str | None = None,
) -> SparkBatch:
    """A batch of one frame, whose column of operations says which rows leave."""
    return SparkBatch((BatchFrame(frame, operations),), operations is not None, allow_plain_shuffle, users)


def _recognised(inserts: Any, deletes: Any, users: Any) -> SparkBatch | None:
    """The batch of data frames given to ``Stream.step``."""
    if not any(map(is_frame, (inserts, deletes))):
        return None
    return batch(inserts, deletes, users=users)


FRAMES = FrameKind(_recognised, recognised)
