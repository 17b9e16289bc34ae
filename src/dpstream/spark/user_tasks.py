"""What executors run where the events of a user are bounded: rows go to their user's shard, and each shard admits.

Guarantee: what is admitted of a user, and the user's new counter, follow from that user's own rows and from the
counter that is committed, as in one process (``core.tables.contribution``): both tasks are pure functions of the
multiset of rows of their users. A task that is tried again, or runs twice, gives the same counts and writes another
file with the same content; Spark takes one of its results, the result names its file, and no other file is ever read.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.tables.access import COUNTER, CounterFile, CounterShards
from dpstream.core.tables.contribution import admit, as_words, owners_of
from dpstream.core.tables.counter_files import Generation, read_shard, write_file
from dpstream.core.tables.counting import CountPlan, add_counts, count_plan
from dpstream.spark.tasks import (
    EventColumns,
    Rows,
    Tally,
    Task,
    attempt,
    code_blocks,
    gathered,
    padded,
    part_rows,
    partition,
)

if TYPE_CHECKING:
    from dpstream.core.schema.domain import Clique

#: A file that was written: shard, how many earlier files of the shard stay, users, attempt, tag.
_WRITTEN = struct.Struct("<IIQQ16s")


@dataclass(frozen=True, repr=False)
class Admitting(Task):
    """Admits the rows of some shards, counts and hashes them, and writes the shards' new counters.

    Attributes:
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

    cliques: tuple[Clique, ...]
    row_key: bytes
    has_deletes: bool
    apart: int
    max_events: int
    ids_key: bytes
    folder: str
    shards: CounterShards
    generation: Generation | None

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        plan = count_plan(self.schema.domain, self.cliques)
        tally = Tally.empty(len(self.schema))
        counts = np.zeros((2 if self.has_deletes else 1, plan.cells), np.int64)
        found = gathered(batches, tally, EventColumns().kind(self.schema))
        for shard in sorted(found or ()):
            self._admit(shard, Rows.joined((found or {}).pop(shard)), plan, tally, counts)
        if found is not None:
            yield from part_rows(partition() % self.apart, tally, counts.reshape(-1))

    def _admit(
        self, shard: int, rows: Rows, plan: CountPlan, tally: Tally, counts: NDArray[np.int64]
    ) -> None:
        came, went = rows.side(leave=False), rows.side(leave=True)
        for side in (came, went):
            side.hash_into(tally, padded(self.row_key))
        assert came.ids is not None
        assert went.ids is not None
        owners = owners_of(np.concatenate([came.ids, went.ids]), len(came.ids))
        ids, folder = as_words(owners.ids), Path(self.folder)
        known = read_shard(folder, self.shards.files.get(shard, ()))
        before = known.events(ids)
        found = admit(came.codes, went.codes, owners, before, self.max_events, self.ids_key)
        for leave, codes in enumerate((came.codes[found.inserts], went.codes[found.deletes])):
            if len(codes):
                add_counts(plan, code_blocks(codes), 1, counts[leave])
        tally.dropped += found.dropped
        changed = found.counts != before
        if self.generation is not None and changed.any():
            stay, ids, after = known.grown(ids[changed], found.counts[changed])
            tried = attempt()
            name = self.generation.file_name(shard, tried)
            file = write_file(folder, self.generation, name, ids, after)
            tally.written += written_file(shard, stay, file, tried)


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
