"""Passes over the records of one step in Spark: what they count, and that they all read the same records.

One kind of pass for all: tasks give parts, which are added up on executors in two levels, so that the driver gets one
sum, whatever the number of partitions. Where records have users or keys, their rows meet in shards before that, and
the pass that admits or applies them writes files, which the step commits.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core import durable
from dpstream.core.errors import ConfigError, DataError, LimitError, StoreDamagedError
from dpstream.core.privacy.randomness import Exact
from dpstream.core.schema import Clique, Domain, Schema
from dpstream.core.schema.column import PROBLEM_KINDS, Problem, problems_error
from dpstream.core.tables import HASH_KEY_BYTES, MultisetHash
from dpstream.core.tables.access import (
    COUNTER,
    CounterFile,
    CounterShards,
    PresentShards,
    ShardedEvents,
    UserCounters,
)
from dpstream.core.tables.counter_files import Generation, damaged_files, missing_files, present_width
from dpstream.core.tables.counting import count_plan
from dpstream.core.tables.keyed_reading import refused_events, sorted_by_key
from dpstream.core.version import __version__
from dpstream.io.sources.counted_file import CountedPasses, CountedView
from dpstream.io.sources.file_opening import UnreadableError
from dpstream.spark.found_files import FoundFiles, changed_records
from dpstream.spark.sessions import core_setting, setting, shielded_from_spark
from dpstream.spark.tasks import (
    NO_ID,
    NO_ORDER,
    PART_TYPE,
    REFUSED,
    SHARDED,
    WRONG_OPERATION,
    Admitting,
    Applying,
    Counting,
    CountingPresent,
    Files,
    KeyedColumns,
    Reading,
    Shared,
    Spreading,
    Summing,
    Tally,
    joined,
)

#: Counts that one pass may keep in each executor and in the driver (8 bytes each: 512 MiB).
MAX_CELLS = 2**26
#: Copies of the result that driver and executor hold at the same time: Spark's own, on the way to Python, and ours.
_COPIES = 5
#: Parts that the middle level of the sum has at most: each of them adds up a share of all partitions.
_MAX_PARTS = 32
#: Shards of a new stream's users or records: tasks that can work at the same time. 10^9 users are 4 million and 80 MB a
#: shard.
SHARDS = 256


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
            allowed="fewer tables in the workload, coarser columns, or more [source] memory",
        )


class Passes(CountedPasses):
    """The passes over one step's records in Spark.

    Cost: a pass reads every record once, in the executors; where rows meet in shards, it shuffles them, encoded.
    """

    def __init__(
        self,
        sides: Sequence[tuple[Any, Reading]],
        schema: Schema,
        cliques: Sequence[Clique],
        where: str,
        *,
        deletes: bool,
    ) -> None:
        """``sides``: Spark data frames, and what their rows hold; at least one."""
        super().__init__(schema, cliques, where, deletes=deletes)
        self.sides = sides
        _, self.reading = sides[0]
        self.files = FoundFiles([frame for frame, _ in sides], where)
        #: What is committed of users or keyed records, where the passes read it.
        self.committed: Files | None = None

    @property
    def spark(self) -> Any:
        """The session."""
        return self.sides[0][0].sparkSession

    def _changed(self) -> DataError:
        return changed_records(self.where)

    def _read(self, cliques: tuple[Clique, ...], key: bytes) -> tuple[MultisetHash, NDArray[np.int64]]:
        domain = self.schema.domain
        require_room_in(self.spark, domain, cliques, has_deletes=self.has_deletes, where=self.where)
        shape = (1 + self.has_deletes, count_plan(domain, cliques, MAX_CELLS).cells)
        tally, counts = self._collect(cliques, key)
        self._check(tally)
        return tally.here.merge(tally.gone), counts.reshape(shape) if counts.size else np.zeros(
            shape, np.int64
        )

    def _collect(self, cliques: tuple[Clique, ...], key: bytes) -> tuple[Tally, NDArray[np.int64]]:
        """The sum of all parts; of no records an empty one without counts."""
        with shielded_from_spark(self.where):
            row_key, apart = key[: HASH_KEY_BYTES // 2], _apart(self.spark)
            parts = self._parts(
                Shared(__version__, self.schema, apart, row_key, cliques, 1 + self.has_deletes)
            )
        with damage_told(self.committed):
            total = summed(self.spark, parts, self.where)
            self.files.check()
        return total or (Tally.empty(len(self.schema)), np.zeros(0, np.int64))

    def _parts(self, shared: Shared) -> Any:
        """The parts of all partitions as a data frame."""
        # No lambda: Spark sends the objects and the names of their classes, and no code.
        return united(
            frame.mapInArrow(Counting(shared, reading).__call__, PART_TYPE) for frame, reading in self.sides
        )

    def _sharded(self, task: Admitting | Applying, number: int) -> Any:
        """The parts of a task to which the rows of one user or record come together."""
        spread = united(
            frame.mapInArrow(Spreading(task.shared, reading, number).__call__, SHARDED)
            for frame, reading in self.sides
        )
        return spread.repartition(tasks_of(self.spark, number), "shard").mapInArrow(task.__call__, PART_TYPE)

    def _written(self, key: bytes, cliques: Sequence[Clique] = (), width: int = COUNTER) -> ShardedEvents:
        """What a pass that writes files commits: these are on the disk then."""
        files = self.committed
        assert files is not None
        try:
            self._run(cliques, key)
        finally:
            self.committed = Files(files.folder, files.shards)  # no other pass writes
        shards, new = files.after(self._tally.written, width)
        make_lasting(files.folder, new)
        return ShardedEvents(shards, self._tally.dropped, self._tally.cut)

    def _check(self, tally: Tally) -> None:
        """Refuse what does not fit (DataError)."""
        self._tally = tally
        problems = problems_of(tally, self.schema, self.reading)
        if problems:
            raise problems_error(problems, self.where)

    def problems(self) -> list[Problem]:
        """What keeps the records from being counted, of all partitions at once; one pass that counts nothing."""
        return problems_of(self._collect((), bytes(HASH_KEY_BYTES))[0], self.schema, self.reading)


@dataclass(frozen=True, repr=False)
class SparkBounded:
    """One step's records and their users, before it is decided which of them are admitted; a ``BoundedBatch``.

    Attributes:
        max_events: the bound.
    """

    _passes: Passes
    _cliques: tuple[Clique, ...]
    max_events: int

    def admit(self, counters: UserCounters, /) -> tuple[CountedView, ShardedEvents]:
        """See ``BoundedBatch``. One pass: it admits, counts what the plan is known to ask, and writes the new counters.

        Errors:
            DataError: the records changed since they were read first. StoreDamagedError: a file of counters is not what
                was committed. ConfigError: the counters of the stream are not files, or executors and driver do not see
                the same folder. UnreadableError: the session is gone.
        """
        folder, shards = counters.in_files()
        admitted = _AdmittedPasses(self._passes, self.max_events, begin(folder, shards))
        return CountedView(admitted), admitted.admit(self._cliques)


class _AdmittedPasses(Passes):
    """Counts of the rows that are admitted; the hash is that of all rows.

    Guarantee: every pass admits the same rows, because all of them read the committed counters, and must give the hash
    of the same rows. The first one writes.
    """

    def __init__(self, first: Passes, max_events: int, files: Files) -> None:
        super().__init__(first.sides, first.schema, (), first.where, deletes=first.has_deletes)
        self.content, self.files = first.content, first.files
        self._most, self.committed = max_events, files

    def admit(self, cliques: Sequence[Clique]) -> ShardedEvents:
        """Count ``cliques``, and write the counters of all users that gained events."""
        key = bytes(HASH_KEY_BYTES) if self.content is None else self.content[0]
        return self._written(key, cliques)

    def _parts(self, shared: Shared) -> Any:
        """Rows of one user meet in one task, and what it gives is added up as ever."""
        assert self.reading.ids is not None
        assert self.committed is not None
        task = Admitting(shared, self.committed, self._most, self.reading.ids.key)
        return self._sharded(task, self.committed.shards.number)


class KeyedPasses(Passes):
    """One step's rows with keys, in Spark; a ``BatchRows`` and a ``KeyedShards``.

    Guarantee: what is applied has the hash that is told, before or afterwards, or the step is refused. Nothing but the
    hash, marks of problems, and exact numbers of records that left reaches the driver.

    Cost: a pass that applies the rows reads and writes the files of the shards that a row falls into: all, where a step
    has some thousand rows.
    """

    def __init__(self, frame: Any, schema: Schema, columns: KeyedColumns, where: str) -> None:
        super().__init__([(frame, columns)], schema, (), where, deletes=False)
        self._columns = columns
        self._step, self._keep_keys = 0, False

    def fingerprint(self, key: bytes) -> bytes:
        """See ``BatchRows``: the hash of the same events in one process, in the order that the order column says."""
        super().fingerprint(key)
        assert self.content is not None
        none = np.zeros((0, 2), np.uint64), np.zeros(0, np.int64), np.zeros((0, len(self.schema)), np.int32)
        rows = sorted_by_key(self._columns.batch, self.schema, self.where, *none)
        return self.content[1].finish(rows.end(), key)

    def problems(self) -> list[Problem]:
        """What keeps the rows from being read, of all partitions at once; one pass."""
        tally = self._collect((), bytes(HASH_KEY_BYTES))[0]
        problems = problems_of(tally, self.schema, self.reading)
        if not problems and tally.problems[-1] & REFUSED["several"]:
            error = self._several()
            problems.append(Problem(self._columns.batch.key, "key", error.what, str(error.allowed)))
        return problems

    def apply(self, present: PresentShards, /) -> tuple[SparkPresent, ShardedEvents]:
        """See ``KeyedShards``.

        Errors:
            DataError: also, the records changed since they were read first. ConfigError: executors and driver do not
            see the same folder. UnreadableError: the session is gone.
        """
        self.committed = begin(present.folder, present.shards)
        self._step, self._keep_keys = present.step, present.keep_keys
        try:
            events = self._written(present.content_key, width=present_width(self.schema.domain))
        finally:
            self.committed, self._step, self._keep_keys = None, 0, False
        departed = np.repeat(np.arange(len(self._left), dtype=np.int32), self._left)
        kept = Files(present.folder.resolve(), events.shards)
        return SparkPresent(self.spark, self.schema, self.where, kept, present.step, departed), events

    def _read(self, cliques: tuple[Clique, ...], key: bytes) -> tuple[MultisetHash, NDArray[np.int64]]:
        tally, left = self._collect((), key)
        self._left = left if left.size else np.zeros(self._step, np.int64)
        self._check(tally)
        return tally.here, np.zeros((1, 0), np.int64)

    def _parts(self, shared: Shared) -> Any:
        task = Applying(shared, self._columns.batch, self.committed, self._step, self._keep_keys)
        return self._sharded(task, SHARDS if self.committed is None else self.committed.shards.number)

    def _check(self, tally: Tally) -> None:
        """Refuse what the rules do not allow, in the order in which one process would say it."""
        self._tally = tally
        marks = int(tally.problems[-1])
        problems = problems_of(tally, self.schema, self.reading)
        events = [kind for kind, bit in REFUSED.items() if marks & bit]
        if problems and not {"delete", "update", "insert"} & set(events):
            raise problems_error(problems, self.where)
        if events:
            raise self._several() if events[0] == "several" else refused_events(events[0], self.where)

    def _several(self) -> DataError:
        if self._columns.batch.rules.repeated == "error":
            return refused_events("several", self.where)
        if self._columns.order is None:
            what, allowed = "order_column is missing", "order_column"
        else:
            what, allowed = f"column {self._columns.order!r} repeats a value", "different values"
        return DataError(
            f"a key has several rows in one step, and {what}",
            where=self.where,
            allowed=f"{allowed}; or one row a key",
        )


class SparkPresent:
    """The records that are present after a step, in files that do not change; a ``PresentRecords``.

    Args:
        step: the one that the records are there after.
    """

    def __init__(
        self, spark: Any, schema: Schema, where: str, files: Files, step: int, departed: NDArray[np.int32]
    ) -> None:
        self._spark, self._schema, self._where = spark, schema, where
        self._files, self._step, self.departed = files, step, departed

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        """See ``PresentRecords``. One pass over all files; none where no record can be so new.

        Errors:
            LimitError: too many cells for the driver. StoreDamagedError: a file was changed. UnreadableError: the
            session is gone.
        """
        wanted = tuple(dict.fromkeys(cliques))
        plan = count_plan(self._schema.domain, wanted)
        counts = np.zeros(plan.cells, np.int64)
        if after < self._step and self._files.shards.files:
            require_room_in(self._spark, self._schema.domain, wanted, has_deletes=False, where=self._where)
            with damage_told(self._files):
                total = summed(self._spark, self._parts(wanted, after), self._where)
            counts = counts if total is None else total[1]
        known = {clique: counts[begin:end] for clique, (begin, end) in zip(wanted, plan.bounds, strict=True)}
        return [Exact(known[clique].copy()) for clique in cliques]

    def __repr__(self) -> str:
        return "SparkPresent(records hidden)"

    def _parts(self, cliques: tuple[Clique, ...], after: int) -> Any:
        with shielded_from_spark(self._where):
            number, apart = self._files.shards.number, _apart(self._spark)
            task = CountingPresent(Shared(__version__, self._schema, apart, b"", cliques), self._files, after)
            shards = self._spark.range(0, number, 1, tasks_of(self._spark, number))
            return shards.mapInArrow(task.__call__, PART_TYPE)


def begin(folder: Path, shards: CounterShards | None) -> Files:
    """The files of one attempt at a step, in a folder that is there then."""
    for place in (folder.parent, folder):
        place.mkdir(mode=0o700, exist_ok=True)
    generation = Generation(secrets.token_hex(12), secrets.token_bytes(32))
    return Files(folder.resolve(), shards or CounterShards(SHARDS), generation)


def make_lasting(folder: Path, new: Sequence[CounterFile]) -> None:
    """Look whether the driver sees the files that executors wrote, and put their names on the disk.

    Errors:
        ConfigError: it does not. OSError: the disk failed.
    """
    if missing_files(folder, new):
        raise ConfigError(
            "the driver cannot see the folder where executors write",
            where=str(folder),
            allowed="a state directory that driver and executors share, or a link named users to one",
        )
    for one in (folder, folder.parent, folder.parent.parent):
        durable.sync_directory(one)


@contextlib.contextmanager
def damage_told(files: Files | None) -> Iterator[None]:
    """Say of a pass that fails whether its committed files are the reason.

    Errors:
        StoreDamagedError: one was changed or lost.
    """
    try:
        yield
    except UnreadableError:
        raise
    except DataError:
        committed = [] if files is None else files.shards.all_files()
        if files is None or not committed:
            raise
        if missing_files(files.folder, committed) or damaged_files(files.folder, committed):
            raise StoreDamagedError(
                "a file in the folder users changed or is lost",
                where=str(files.folder),
                allowed="the newest state; an older copy would spend the budget again",
            ) from None
        raise


def problems_of(tally: Tally, schema: Schema, reading: Reading) -> list[Problem]:
    """What a tally says of columns that do not fit."""
    ids, operations, order = reading.ids, reading.operations, reading.order
    marks = int(tally.problems[-1])
    problems = [
        column.problem(kind)
        for column, bits in zip(schema.columns, tally.problems[:-1].tolist(), strict=True)
        for position, kind in enumerate(PROBLEM_KINDS)
        if bits >> position & 1
    ]
    if marks & NO_ID and ids is not None:
        problems.append(Problem(ids.column, "user", f"lacks a {ids.what}", "a text or whole number"))
    if marks & NO_ORDER and order is not None:
        what = "holds a null, so it cannot order rows"
        problems.append(Problem(order, "order", what, "a value in each row"))
    if marks & WRONG_OPERATION and operations is not None:
        what = "holds a null or unknown operation"
        problems.append(Problem(operations[0], "operation", what, ", ".join(operations[1].words)))
    return problems


def summed(spark: Any, parts: Any, where: str) -> tuple[Tally, NDArray[np.int64]] | None:
    """The sum of all parts, on the driver; None where there is none."""
    with shielded_from_spark(where):
        for level in dict.fromkeys((_apart(spark), 1)):
            parts = parts.repartition(level, "part").mapInArrow(Summing().__call__, PART_TYPE)
        return joined(parts.toArrow().to_batches())


def _apart(spark: Any) -> int:
    """How many parts the middle level of the sum has."""
    return max(1, min(_MAX_PARTS, int(setting(spark, "spark.sql.shuffle.partitions", "8"))))


def tasks_of(spark: Any, number: int) -> int:
    """How many tasks go through so many shards."""
    return min(number, int(setting(spark, "spark.sql.shuffle.partitions", "200")))


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
