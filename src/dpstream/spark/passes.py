"""Passes over the records of one step in Spark: what they count, and that they all read the same records.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, LimitError
from dpstream.core.schema.column import PROBLEM_KINDS, Problem, problems_error
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import MultisetHash
from dpstream.core.tables.contribution import id_problem, no_ids_of
from dpstream.core.tables.counting import count_plan
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES
from dpstream.io.sources.counted_file import CountedPasses
from dpstream.spark.found_files import FoundFiles, changed_records
from dpstream.spark.sessions import (
    core_setting,
    require_protected,
    require_reading,
    setting,
    shielded_from_spark,
)
from dpstream.spark.tasks import (
    NO_ID,
    NO_ORDER,
    PART_TYPE,
    WRONG_OPERATION,
    Counting,
    EventColumns,
    Ids,
    Summing,
    Tally,
    joined,
)

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.io.sources.operations import Operations


def prepared(
    frame: Any,
    schema: Schema,
    own: Sequence[str],
    ids: Ids | None,
    where: str,
    *,
    allow_plain_shuffle: bool,
    check: Callable[[], None] = lambda: None,
) -> Any:
    """The columns of a data frame that are read, after a look at names, types and settings; no row is read.

    Args:
        own: the columns beside those of the schema.
        ids: where a row says whose it is.
        check: looks at further columns.

    Errors:
        ConfigError: the session does not protect the records, or Spark refuses the query; public constraints, which
        rows are held against before they are counted. SchemaError, DataError: columns that do not fit.
        UnreadableError: the session is gone.
    """
    if schema.constraints is not None:
        raise ConfigError(
            "records that stay in Spark cannot follow public constraints",
            where="schema.constraints",
            allowed="records from another source, or a schema without constraints",
        )
    require_protected(frame.sparkSession, allow_plain_shuffle=allow_plain_shuffle, where=where)
    require_reading(frame.sparkSession, where)
    with shielded_from_spark(where):
        _check_columns(frame, schema, own, where)
        if ids is not None:
            _check_ids(frame, ids, where)
        check()
        return frame.select(*(quoted(name) for name in (*schema.names, *own)))


def refuse_declared(schema: Schema, where: str, **columns: str | None) -> None:
    """Refuse a column of ids or operations, by what it holds, that is an attribute too (ConfigError)."""
    for what, name in columns.items():
        if name in schema.names:
            raise ConfigError(
                f"the column {name!r} of the {what} is declared in the schema as well",
                where=where,
                allowed=f"another column, or a copy of {name!r} under another name",
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


def _check_ids(frame: Any, ids: Ids, where: str) -> None:
    """Check name and type of the column of the ids."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    if ids.column not in frame.columns:
        allowed = f"the column of the {ids.what}s"
        raise DataError(f"there is no column {ids.column!r}", where=where, allowed=allowed)
    kind = frame.schema[ids.column].dataType
    try:
        wrong = id_problem(to_arrow_type(kind, timezone="UTC"), where, ids.what)
    except PySparkException:  # a type that Arrow does not have
        wrong = no_ids_of(kind.simpleString(), where, ids.what)
    if wrong is not None:
        raise wrong


def quoted(name: str) -> str:
    """A name of a column as Spark's SQL reads it."""
    return "`" + name.replace("`", "``") + "`"


def is_frame(frame: Any) -> bool:
    """Whether it is a data frame of Spark, told by its class: nothing of Spark is imported for others."""
    kinds = type(frame).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql") for kind in kinds)


#: Counts that one pass may keep in each executor and in the driver (8 bytes each: 512 MiB).
MAX_CELLS = 2**26
#: Copies of the result that driver and executor hold at the same time: Spark's own, on the way to Python, and ours.
_COPIES = 5
#: Parts that the middle level of the sum has at most: each of them adds up a share of all partitions.
_MAX_PARTS = 32


@dataclass(frozen=True, repr=False)
class BatchFrame:
    """One frame of a batch.

    Attributes:
        frame: a Spark data frame with the columns of the schema, and the operation column where it has one.
        operations: that column and its words.
        deletes: without it, whether the rows leave.
    """

    frame: Any
    operations: tuple[str, Operations] | None = None
    deletes: bool = False


def require_room(
    domain: Domain, cliques: Sequence[Clique], *, has_deletes: bool, memory: str, where: str
) -> None:
    """That the counts of one pass fit into the driver's memory.

    Errors:
        LimitError: they do not. Nothing was read, and nothing was spent.
    """
    cells = sum(map(domain.cells, cliques)) * (2 if has_deletes else 1)
    what = None
    if cells > MAX_CELLS:
        what = f"more than the limit of {MAX_CELLS}"
    elif 8 * cells * _COPIES > _bytes(memory):
        needed, there = _mebibytes(8 * cells * _COPIES), _mebibytes(_bytes(memory))
        what = f"which need {needed} MiB of the Spark driver's {there} MiB"
    if what is not None:
        raise LimitError(
            f"a pass would count {cells} cells, {what}",
            where=where,
            allowed="fewer tables in the workload, coarser columns, or a driver with more memory ([source] memory, "
            "spark.driver.memory)",
        )


class Passes(CountedPasses):
    """The passes over one step's records in Spark.

    Cost: a pass reads every record once, in the executors. What reaches the driver is one sum, whatever the number of
    partitions.
    """

    def __init__(
        self,
        sides: Sequence[BatchFrame],
        schema: Schema,
        cliques: Sequence[Clique],
        where: str,
        *,
        deletes: bool,
        users: Ids | None = None,
    ) -> None:
        """``users``: whose records they are, which is part of the content."""
        super().__init__(schema, cliques, where, deletes=deletes)
        self.sides, self.users = sides, users
        self.files = FoundFiles([side.frame for side in sides], where)

    def _changed(self) -> DataError:
        return changed_records(self.where)

    def _read(self, cliques: tuple[Clique, ...], key: bytes) -> tuple[MultisetHash, NDArray[np.int64]]:
        domain, spark = self.schema.domain, self.sides[0].frame.sparkSession
        require_room_in(spark, domain, cliques, has_deletes=self.has_deletes, where=self.where)
        shape = (2 if self.has_deletes else 1, count_plan(domain, cliques, MAX_CELLS).cells)
        tally, counts = self._collect(cliques, key) or (
            Tally.empty(len(self.schema)),
            np.zeros(shape, np.int64),
        )
        problems = self._problems(tally)
        if problems:
            raise problems_error(problems, self.where)
        return tally.here.merge(tally.gone), counts.reshape(shape)

    def _collect(self, cliques: tuple[Clique, ...], key: bytes) -> tuple[Tally, NDArray[np.int64]] | None:
        from dpstream.core.version import __version__

        spark = self.sides[0].frame.sparkSession
        found = summed(spark, lambda apart: self._parts(cliques, key, __version__, apart), self.where)
        self.files.check()
        return found

    def _parts(self, cliques: tuple[Clique, ...], key: bytes, version: str, apart: int) -> Any:
        """A part for each partition, as a data frame."""
        side_key, frames = key[: HASH_KEY_BYTES // 2], []
        for side in self.sides:
            task = Counting(
                version, self.schema, cliques, side_key, self._reading(side), self.has_deletes, apart
            )
            # No lambda: Spark sends the object and the name of its class, and no code.
            frames.append(side.frame.mapInArrow(task.__call__, PART_TYPE))
        return united(frames)

    def _reading(self, side: BatchFrame) -> EventColumns:
        return EventColumns(side.operations, side.deletes, self.users)

    def problems(self) -> list[Problem]:
        """What keeps the records from being counted, of all partitions at once; one pass that counts nothing."""
        found = self._collect((), bytes(HASH_KEY_BYTES))
        return [] if found is None else self._problems(found[0])

    def _problems(self, tally: Tally) -> list[Problem]:
        operations = next((side.operations for side in self.sides if side.operations is not None), None)
        ids = None if self.users is None else (self.users.column, self.users.what)
        if operations is None:
            return problems_of(tally, self.schema, ids)
        name, words = operations
        return problems_of(tally, self.schema, ids, (name, words.words))


def problems_of(
    tally: Tally,
    schema: Schema,
    ids: tuple[str, str] | None,
    operations: tuple[str, Sequence[str]] | None = None,
    order: str | None = None,
) -> list[Problem]:
    """What a tally says of columns that do not fit.

    Args:
        ids: the column of ids, and what one is called.
        operations: the column of operations, and all words that it may have.
        order: the column that orders the rows of a key.
    """
    marks = int(tally.problems[-1])
    problems = [
        column.problem(kind)
        for column, bits in zip(schema.columns, tally.problems[:-1].tolist(), strict=True)
        for position, kind in enumerate(PROBLEM_KINDS)
        if bits >> position & 1
    ]
    if marks & NO_ID and ids is not None:
        what = f"cannot be used as {ids[1]}s: there is a record without a {ids[1]}"
        problems.append(Problem(ids[0], "user", what, "texts or whole numbers, one for each record"))
    if marks & NO_ORDER and order is not None:
        what = "cannot order the rows of a key: there is a null"
        problems.append(Problem(order, "order", what, "a value in each row"))
    if marks & WRONG_OPERATION and operations is not None:
        what = "holds a null or an unknown operation"
        problems.append(Problem(operations[0], "operation", what, ", ".join(operations[1])))
    return problems


def summed(spark: Any, parts: Callable[[int], Any], where: str) -> tuple[Tally, NDArray[np.int64]] | None:
    """The sum of all parts, on the driver; None where there is none.

    Args:
        parts: makes a data frame of parts, which are spread over the given number.
    """
    with shielded_from_spark(where):
        apart = max(1, min(_MAX_PARTS, int(setting(spark, "spark.sql.shuffle.partitions", "8"))))
        frame = parts(apart)
        for level in dict.fromkeys((apart, 1)):
            frame = frame.repartition(level, "part").mapInArrow(Summing().__call__, PART_TYPE)
        return joined(frame.toArrow().to_batches())


def require_room_in(
    spark: Any, domain: Domain, cliques: Sequence[Clique], *, has_deletes: bool, where: str
) -> None:
    """``require_room`` in the driver of a session."""
    with shielded_from_spark(where):
        memory = core_setting(spark, "spark.driver.memory", "1g")
    require_room(domain, cliques, has_deletes=has_deletes, memory=memory, where=where)


def united(frames: Iterable[Any]) -> Any:
    """The rows of all data frames."""
    return functools.reduce(lambda one, other: one.unionAll(other), frames)


def _bytes(memory: str) -> int:
    """Spark's way to write sizes: ``512m``, ``2g``; a bare number is in mebibytes."""
    text = memory.strip().lower().removesuffix("b")
    factor = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}.get(text[-1:], 2**20)
    digits = text.rstrip("kmgt")
    return int(digits) * factor if digits.isdecimal() else 2**30


def _mebibytes(size: int) -> int:
    return -(-size // 2**20)
