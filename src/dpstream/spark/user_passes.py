"""The pass that admits: one step's records of users in Spark, and the counters that its step commits.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core import durable
from dpstream.core.errors import ConfigError, DataError, StoreDamagedError
from dpstream.core.tables.access import CounterFile, CounterShards, ShardedEvents, UserCounters
from dpstream.core.tables.counter_files import Generation, damaged_files, missing_files
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES
from dpstream.io.sources.counted_file import CountedView
from dpstream.io.sources.file_opening import UnreadableError
from dpstream.spark.passes import Passes, united
from dpstream.spark.sessions import setting
from dpstream.spark.tasks import PART_TYPE, SHARDED, Reading, Spreading, Tally, Task
from dpstream.spark.user_tasks import Admitting, after

if TYPE_CHECKING:
    from dpstream.core.schema.domain import Clique

#: Shards of a new stream's users: tasks that can work at the same time. 10^9 users are 4 million and 80 MB a shard.
SHARDS = 256


def sharded(frames: Sequence[tuple[Any, Reading]], task: Task, number: int) -> Any:
    """The parts of a task to which the rows of one user or record come together, as a data frame.

    Args:
        frames: with what their rows hold.
        number: of shards.
    """
    # No lambda: Spark sends the objects and the names of their classes, and no code.
    spread = united(
        frame.mapInArrow(Spreading(task.version, task.schema, reading, number).__call__, SHARDED)
        for frame, reading in frames
    )
    return spread.repartition(tasks_of(spread.sparkSession, number), "shard").mapInArrow(
        task.__call__, PART_TYPE
    )


def tasks_of(spark: Any, number: int) -> int:
    """How many tasks go through so many shards."""
    return min(number, int(setting(spark, "spark.sql.shuffle.partitions", "200")))


def begin(folder: Path) -> Generation:
    """The files of one attempt at a step, in a folder that is there then."""
    for one in (folder.parent, folder):
        one.mkdir(mode=0o700, exist_ok=True)
    return Generation(secrets.token_hex(12), secrets.token_bytes(32))


def make_lasting(folder: Path, new: Sequence[CounterFile]) -> None:
    """Look whether the driver sees the files that executors wrote, and put their names on the disk.

    Errors:
        ConfigError: it does not. OSError: the disk failed.
    """
    if missing_files(folder, new):
        raise ConfigError(
            "the executors wrote the files of users or records to a folder that the driver does not see",
            where=str(folder),
            allowed="a state directory that driver and executors see under one path, or a link named users in it to "
            "such a folder",
        )
    for one in (folder, folder.parent, folder.parent.parent):
        durable.sync_directory(one)


@contextlib.contextmanager
def damage_told(folder: Path, shards: CounterShards) -> Iterator[None]:
    """Say of a pass that fails whether its committed files are the reason.

    Errors:
        StoreDamagedError: one was changed or lost.
    """
    try:
        yield
    except UnreadableError:
        raise
    except DataError:
        files = shards.all_files()
        if missing_files(folder, files) or damaged_files(folder, files):
            raise StoreDamagedError(
                "a file in the folder users was changed or lost",
                where=str(folder),
                allowed="the newest state; an older copy of it would spend the budget again",
            ) from None
        raise


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
                was committed. ConfigError: the counters of this stream are no files, or executors and driver do not see
                the same folder. UnreadableError: the session is gone.
        """
        folder, shards = counters.in_files()
        admitted = _AdmittedPasses(self._passes, self.max_events, folder, shards or CounterShards(SHARDS))
        return CountedView(admitted), admitted.admit(self._cliques)


class _AdmittedPasses(Passes):
    """Counts of the rows that are admitted; the hash is that of all rows.

    Guarantee: every pass admits the same rows, because all of them read the committed counters, and must give the hash
    of the same rows.
    """

    def __init__(self, first: Passes, max_events: int, folder: Path, shards: CounterShards) -> None:
        super().__init__(
            first.sides, first.schema, (), first.where, deletes=first.has_deletes, users=first.users
        )
        self.content, self.files = first.content, first.files
        self._most, self._folder, self._shards = max_events, folder, shards
        self._generation: Generation | None = None
        self._tally: Tally | None = None

    def admit(self, cliques: Sequence[Clique]) -> ShardedEvents:
        """Count ``cliques``, and write the counters of all users that gained events."""
        generation = self._generation = begin(self._folder)
        key = bytes(HASH_KEY_BYTES) if self.content is None else self.content[0]
        try:
            self._run(cliques, key)
        finally:
            self._generation = None
        tally = self._tally
        if tally is None:
            return ShardedEvents(self._shards, 0)
        shards, new = after(self._shards, generation, tally.written)
        make_lasting(self._folder, new)
        return ShardedEvents(shards, tally.dropped)

    def _collect(self, cliques: tuple[Clique, ...], key: bytes) -> Any:
        with damage_told(self._folder, self._shards):
            found = super()._collect(cliques, key)
        self._tally = None if found is None else found[0]
        return found

    def _parts(self, cliques: tuple[Clique, ...], key: bytes, version: str, apart: int) -> Any:
        """Rows of one user meet in one task, and what it gives is added up as ever."""
        assert self.users is not None
        task = Admitting(
            version,
            self.schema,
            cliques,
            key[: HASH_KEY_BYTES // 2],
            self.has_deletes,
            apart,
            self._most,
            self.users.key,
            str(self._folder.resolve()),
            self._shards,
            self._generation,
        )
        frames = [(side.frame, self._reading(side)) for side in self.sides]
        return sharded(frames, task, self._shards.number)
