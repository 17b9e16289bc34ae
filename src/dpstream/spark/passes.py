"""Passes over the records of one step in Spark: what they count, and that they all read the same records."""

from __future__ import annotations

import functools
import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import BatchBase, Events
from dpstream.core.errors import ConfigError, DataError, LimitError
from dpstream.core.schema.column import PROBLEM_KINDS, Problem, problems_error
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import MultisetHash
from dpstream.core.tables.contribution import id_problem, no_ids_of
from dpstream.core.tables.counting import count_plan
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES
from dpstream.spark.found_files import FoundFiles, changed_records
from dpstream.spark.sessions import core_setting, setting, shielded_from_spark
from dpstream.spark.tasks import NO_ID, PART_TYPE, WRONG_OPERATION, Counting, Ids, Summing, Tally, joined

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.io.sources.operations import Operations


def refuse_constraints(schema: Schema) -> None:
    """Refuse public constraints, which rows are held against before they are counted.

    Errors:
        ConfigError: the schema has some.
    """
    if schema.constraints is not None:
        raise ConfigError(
            "records that stay in Spark cannot follow public constraints",
            where="schema.constraints",
            allowed="records from another source, or a schema without constraints",
        )


def check_columns(frame: Any, schema: Schema, own: tuple[str, ...], where: str) -> None:
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


def check_ids(frame: Any, ids: Ids, where: str) -> None:
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


class Passes:
    """The passes over one step's records.

    Guarantee: all passes read the same multiset of records, or the step is refused. What comes out is exact and
    private: counts and a hash for the plan, marks of problems for messages.

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
        self.sides, self.schema, self.where = sides, schema, where
        self.has_deletes, self.users = deletes, users
        self._cliques = tuple(dict.fromkeys(cliques))
        self._known: dict[Clique, NDArray[np.int64]] = {}
        self.files = FoundFiles([side.frame for side in sides], where)
        #: The key of the last pass, and the hash of what it read.
        self.content: tuple[bytes, MultisetHash] | None = None

    def fingerprint(self, key: bytes) -> bytes:
        """The hash of all records; the first call reads them, and counts what is known to be asked."""
        if self.content is None or not hmac.compare_digest(self.content[0], key):
            self._run([one for one in self._cliques if one not in self._known], key)
        assert self.content is not None
        return self.content[1].finish(self.schema.domain.sizes, key)

    def counts(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """Counts of inserts and deletes, shape (1 or 2, cells) each; reads the records again where some are missing."""
        missing = [one for one in dict.fromkeys(cliques) if one not in self._known]
        if missing:
            # Without a fingerprint before it there is nothing to compare with, and any key will do.
            self._run(missing, bytes(HASH_KEY_BYTES) if self.content is None else self.content[0])
        return [self._known[one] for one in cliques]

    def _run(self, cliques: Sequence[Clique], key: bytes) -> None:
        domain, spark = self.schema.domain, self.sides[0].frame.sparkSession
        require_room_in(spark, domain, cliques, has_deletes=self.has_deletes, where=self.where)
        found = self._collect(tuple(cliques), key)
        tally, counts = found or (Tally.empty(len(self.schema)), np.zeros(0, np.int64))
        problems = self._problems(tally)
        if problems:
            raise problems_error(problems, self.where)
        content = tally.here.merge(tally.gone)
        before = self.content
        if before is not None and hmac.compare_digest(before[0], key) and before[1] != content:
            raise changed_records(self.where)
        self.content = (key, content)
        plan = count_plan(domain, tuple(cliques), MAX_CELLS)
        shape = (2 if self.has_deletes else 1, plan.cells)
        table = counts.reshape(shape) if found else np.zeros(shape, np.int64)
        for clique, (begin, end) in zip(cliques, plan.bounds, strict=True):
            self._known[clique] = table[:, begin:end]

    def _collect(self, cliques: tuple[Clique, ...], key: bytes) -> tuple[Tally, NDArray[np.int64]] | None:
        from dpstream.core.version import __version__

        spark = self.sides[0].frame.sparkSession
        found = summed(spark, lambda apart: self._parts(cliques, key, __version__, apart), self.where)
        self.files.check()
        return found

    def _parts(self, cliques: tuple[Clique, ...], key: bytes, version: str, apart: int) -> Any:
        """A part for each partition, as a data frame."""
        tasks = ((side, self._task(side, cliques, key, version, apart)) for side in self.sides)
        # No lambda: Spark sends the object and the name of its class, and no code.
        return united(side.frame.mapInArrow(task.__call__, PART_TYPE) for side, task in tasks)

    def _task(
        self, side: BatchFrame, cliques: tuple[Clique, ...], key: bytes, version: str, apart: int
    ) -> Counting:
        return Counting(
            version,
            self.schema,
            cliques,
            key[: HASH_KEY_BYTES // 2],
            side.operations,
            side.deletes,
            self.has_deletes,
            apart,
            self.users,
        )

    def problems(self) -> list[Problem]:
        """What keeps the records from being counted, of all partitions at once; one pass that counts nothing."""
        found = self._collect((), bytes(HASH_KEY_BYTES))
        return [] if found is None else self._problems(found[0])

    def _problems(self, tally: Tally) -> list[Problem]:
        problems = [
            column.problem(kind)
            for column, bits in zip(self.schema.columns, tally.problems[:-1].tolist(), strict=True)
            for position, kind in enumerate(PROBLEM_KINDS)
            if bits >> position & 1
        ]
        operations = next((side.operations for side in self.sides if side.operations is not None), None)
        if tally.problems[-1] & NO_ID and self.users is not None:
            what = f"cannot be used as {self.users.what}s: there is a record without a {self.users.what}"
            allowed = "texts or whole numbers, one for each record"
            problems.append(Problem(self.users.column, "user", what, allowed))
        if tally.problems[-1] & WRONG_OPERATION and operations is not None:
            name, words = operations
            allowed = ", ".join((*words.insert, *words.delete))
            problems.append(Problem(name, "operation", "holds a null or an unknown operation", allowed))
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


@dataclass(frozen=True, repr=False)
class SparkView(BatchBase):
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


@dataclass(frozen=True, repr=False)
class SparkRows:
    """The records as a multiset; a ``BatchRows``."""

    _passes: Passes

    def fingerprint(self, key: bytes) -> bytes:
        """See ``BatchRows``. The half of ``key`` that rows are hashed with goes to the executors. The other half stays
        here; without it a stored hash says nothing."""
        return self._passes.fingerprint(key)
