"""What executors run where the events of a user are bounded: rows go to their user's shard, and each shard admits.

Guarantee: what is admitted of a user, and the user's new counter, follow from that user's own rows and from the
counter that is committed, as in one process (``core.tables.contribution``): both tasks are pure functions of the
multiset of rows of their users. A task that is tried again, or runs twice, gives the same counts and writes another
file with the same content; Spark takes one of its results, the result names its file, and no other file is ever read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import CounterFile, CounterShards
from dpstream.core.contracts.user_counters import COUNTER
from dpstream.core.schema.code_blocks import narrow_type
from dpstream.core.tables.contribution import Words, admit, as_words, owners_of
from dpstream.core.tables.counter_files import Generation, read_shard, shard_of, write_file
from dpstream.core.tables.counting import CountPlan, add_counts, count_plan
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES
from dpstream.spark.tasks import Counting, Rows, Tally, attempt, guarded, part_rows, partition, row_blocks

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.core.schema.domain import Clique

#: The columns of rows on their way to their shards, as Spark names types.
SHARDED = "shard int, data binary"
#: Stands in the place of a shard where the data is a tally: some rows did not fit.
PROBLEMS = -1
#: Before some rows: how many, and whether they are deletes. Their hashed ids follow, and their codes.
_HEAD = struct.Struct("<QB")
#: A file that was written: shard, how many earlier files of the shard stay, users, attempt, tag.
_WRITTEN = struct.Struct("<IIQQ16s")


@dataclass(frozen=True, repr=False)
class Spreading:
    """Encodes the rows of a partition, and sends them to the shards of their users.

    Attributes:
        reading: says what the rows hold; counts nothing.
        number: of shards.
    """

    reading: Counting
    number: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Rows of ``SHARDED``, some for each block and shard.

        Errors:
            TaskFailure: anything but rows that do not fit, which are told in a tally.
        """
        yield from guarded(self.reading.version, self._parts(batches))

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        tally = Tally.empty(len(self.reading.schema))
        for table in row_blocks(batches):
            found = self.reading.encoded(table, tally)
            if found is not None:
                yield shard_batch([one for rows in found for one in self._spread(rows)])
        if tally.problems.any():
            yield shard_batch([(PROBLEMS, tally.pack())])

    def _spread(self, rows: Rows) -> Iterator[tuple[int, bytes]]:
        assert rows.owners is not None
        codes = np.ascontiguousarray(rows.codes, narrow_type(self.reading.schema.domain.sizes))
        shards = shard_of(rows.owners, self.number)
        order = np.argsort(shards, kind="stable")
        starts = np.searchsorted(shards[order], np.arange(self.number + 1))
        for shard in np.flatnonzero(np.diff(starts)).tolist():
            chosen = order[starts[shard] : starts[shard + 1]]
            head = _HEAD.pack(len(chosen), rows.leave)
            yield shard, head + rows.owners[chosen].astype("<u8").tobytes() + codes[chosen].tobytes()


def shard_batch(rows: list[tuple[int, bytes]]) -> Any:
    """Rows of ``SHARDED``."""
    import pyarrow as pa

    kinds = pa.schema([("shard", pa.int32()), ("data", pa.binary())])
    columns = {"shard": [shard for shard, _ in rows], "data": [data for _, data in rows]}
    return pa.RecordBatch.from_pydict(columns, schema=kinds)


@dataclass(frozen=True, repr=False)
class Admitting:
    """Admits the rows of some shards, counts and hashes them, and writes the shards' new counters.

    Attributes:
        version: of the package on the driver.
        schema: the columns.
        cliques: what is counted of the admitted rows, of inserts and of deletes apart.
        row_key: the half of the hash's key that rows are hashed with.
        has_deletes: whether counts of deletes are kept.
        apart: the number of parts that the results are spread over.
        max_events: the bound.
        ids_key: that ids are hashed with, and by which it is decided which of a user's events are admitted.
        folder: where the files of counters are.
        shards: the committed counters.
        generation: of the files that are written; None: nothing is written.
    """

    version: str
    schema: Schema
    cliques: tuple[Clique, ...]
    row_key: bytes
    has_deletes: bool
    apart: int
    max_events: int
    ids_key: bytes
    folder: str
    shards: CounterShards
    generation: Generation | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One part; nothing for a partition without rows.

        Errors:
            TaskFailure: a file of counters was changed, or anything else. OSError: a file cannot be read or written.
        """
        yield from guarded(self.version, self._parts(batches))

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        plan = count_plan(self.schema.domain, self.cliques)
        tally = Tally.empty(len(self.schema))
        counts = np.zeros((2 if self.has_deletes else 1, plan.cells), np.int64)
        found: dict[int, list[Rows]] = {}
        some = False
        for batch in batches:
            for shard, data in zip(batch.column("shard").to_pylist(), batch.column("data"), strict=True):
                some = True
                if shard == PROBLEMS:
                    tally.add(Tally.unpack(data.as_py()))
                else:
                    found.setdefault(shard, []).append(self._rows(data.as_py()))
        for shard in sorted(found):
            self._admit(shard, found.pop(shard), plan, tally, counts)
        if some:
            yield from part_rows(partition() % self.apart, tally, counts.reshape(-1))

    def _rows(self, data: bytes) -> Rows:
        number, leave = _HEAD.unpack_from(data)
        end = _HEAD.size + 16 * number
        words = np.frombuffer(data[_HEAD.size : end], "<u8").reshape(-1, 2).astype(np.uint64)
        kind = narrow_type(self.schema.domain.sizes)
        return Rows(np.frombuffer(data[end:], kind).reshape(number, -1), bool(leave), words)

    def _admit(
        self, shard: int, rows: list[Rows], plan: CountPlan, tally: Tally, counts: NDArray[np.int64]
    ) -> None:
        (inserts, came), (deletes, gone) = (self._side(rows, leave=leave) for leave in (False, True))
        key = self.row_key + bytes(HASH_KEY_BYTES - len(self.row_key))
        for codes, leave, words in ((inserts, False, came), (deletes, True, gone)):
            one = Rows(codes, leave, words)
            one.hash_into(tally, one.blocks(), key)
        owners = owners_of(np.concatenate([came, gone]), len(came))
        ids, folder = as_words(owners.ids), Path(self.folder)
        known = read_shard(folder, self.shards.files.get(shard, ()))
        before = known.events(ids)
        found = admit(inserts, deletes, owners, before, self.max_events, self.ids_key)
        for codes, leave in ((inserts[found.inserts], False), (deletes[found.deletes], True)):
            if len(codes):
                add_counts(plan, Rows(codes, leave).blocks(), 1, counts[int(leave)], "auto")
        tally.dropped += found.dropped
        changed = found.counts != before
        if self.generation is not None and changed.any():
            stay, ids, after = known.grown(ids[changed], found.counts[changed])
            tried = attempt()
            name = self.generation.file_name(shard, tried)
            file = write_file(folder, self.generation, name, ids, after)
            tally.written += written_file(shard, stay, file, tried)

    def _side(self, rows: list[Rows], *, leave: bool) -> tuple[NDArray[np.int32], Words]:
        """The codes and users of all rows that come, or of all that leave."""
        chosen = [one for one in rows if one.leave == leave]
        codes = [np.zeros((0, len(self.schema)), np.int32), *(one.codes.astype(np.int32) for one in chosen)]
        words = [np.zeros((0, 2), np.uint64), *(one.owners for one in chosen if one.owners is not None)]
        return np.concatenate(codes), np.concatenate(words)


def written_file(shard: int, stay: int, file: CounterFile, tried: int) -> bytes:
    """What a result says of a file, for ``after``.

    Args:
        stay: how many earlier files of the shard stay.
        tried: the number of the attempt.
    """
    return _WRITTEN.pack(shard, stay, file.users, tried, file.tag)


def after(
    before: CounterShards, generation: Generation, written: bytes, width: int = COUNTER
) -> tuple[CounterShards, list[CounterFile]]:
    """The counters after a step (or the records, in rows of ``width`` bytes), and which of their files are new."""
    files, new = dict(before.files), []
    for shard, stay, users, tried, tag in _WRITTEN.iter_unpack(written):
        file = CounterFile(generation.file_name(shard, tried), users, tag, generation.key, width)
        files[shard] = (*before.files.get(shard, ())[:stay], file)
        new.append(file)
    return CounterShards(before.number, files), new
