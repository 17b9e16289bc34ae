"""What executors run where records have keys and change: rows go to their key's shard, and each shard applies them.

Guarantee: what becomes of a key follows from that key's own rows in the step, in the order that a column of theirs
says, and from the record that is committed for it, as in one process (``core.tables.keyed_reading``, which runs here).
A shard's task is a pure function of the multiset of its rows and of the committed file: one that is tried again writes
another file with the same content, and Spark takes one of its results, which names its file.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.schema.column import PROBLEM_KINDS
from dpstream.core.tables import KeyedBatch
from dpstream.core.tables.access import CounterShards
from dpstream.core.tables.counter_files import Generation, read_present_shard, write_present_shard
from dpstream.core.tables.counting import count_plan
from dpstream.core.tables.keyed_reading import (
    DELETE,
    UPSERT,
    EventsError,
    encode_events,
    hash_keys,
    operation_numbers,
    refuse_returns,
    refused_events,
    sorted_by_key,
)
from dpstream.core.tables.present_table import PresentTable, holds
from dpstream.spark.tasks import (
    NO_ID,
    NO_ORDER,
    WRONG_OPERATION,
    Rows,
    Tally,
    Task,
    attempt,
    gathered,
    padded,
    part_rows,
    partition,
)
from dpstream.spark.user_tasks import written_file

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.core.schema.domain import Clique
    from dpstream.io.sources.operations import Operations

#: More bits of a tally's last entry: events that the rules refuse.
REFUSED = {"several": 8, "delete": 16, "update": 32, "insert": 64, "returns": 128}


@dataclass(frozen=True, repr=False)
class KeyedColumns:
    """What the rows of a step have beside the columns of the schema; a ``Reading``.

    Attributes:
        batch: the names of the columns of keys and operations, and the rules; no events.
        words: of the operations; None: each row says what its record is.
        order: the column that says which row of a key comes first; None: nothing does.
        secret: that keys are hashed with.
    """

    batch: KeyedBatch
    words: Operations | None
    order: str | None
    secret: bytes

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        columns = (self.batch.key, self.batch.operation, self.order)
        return tuple(dict.fromkeys(name for name in columns if name is not None))

    def kind(self, schema: Schema) -> np.dtype[Any]:
        """See ``Reading``: narrow, with room for the code that says nothing."""
        return PresentTable.empty(schema.domain).codes.dtype

    def encoded(self, table: Any, schema: Schema, tally: Tally) -> Rows | None:
        """See ``Reading``."""
        import pyarrow as pa

        wrong, operations = 0, np.full(table.num_rows, UPSERT, np.int64)
        if self.words is not None:
            name = str(self.batch.operation)
            try:
                read = self.words.read(table.column(name), name=name, where="")
            except DataError:
                tally.problems[-1] |= WRONG_OPERATION  # which rows are deletes is not known: no other look
                return None
            kept = read != "ignore"
            table, words = table.filter(pa.array(kept)), pa.chunked_array([pa.array(read[kept], pa.string())])
            operations = operation_numbers(words, name, "")
        keys, order = np.zeros((0, 2), np.uint64), None
        try:
            keys = hash_keys(table.column(self.batch.key), self.secret, "")
        except DataError:
            wrong |= NO_ID
        if self.order is not None:
            column = table.column(self.order)
            if column.null_count:
                wrong |= NO_ORDER
            else:
                order = _whole_numbers(column)
        tally.problems[-1] |= wrong
        codes = self._codes(table.select(list(schema.names)), operations, schema, tally)
        return None if wrong or codes is None else Rows(codes, operations.astype(np.uint8), keys, order)

    def _codes(
        self, table: Any, operations: NDArray[np.int64], schema: Schema, tally: Tally
    ) -> NDArray[np.int32] | None:
        import pyarrow as pa

        keeping = self.batch.changed is not None
        try:
            return encode_events(table, operations, schema, "", keeping=keeping)
        except DataError:
            problems = schema.problems(table.filter(pa.array(operations != DELETE)))
            tally.mark(schema, (one for one in problems if not (keeping and one.kind == "null")))
        return None


@dataclass(frozen=True, repr=False)
class Before:
    """The present records that a step changes, and where it writes them.

    Attributes:
        folder: of the files.
        shards: the committed ones.
        generation: of the files that are written.
        step: that comes.
        keep_keys: whether hashes of keys that left are kept, because no key may come back.
    """

    folder: str
    shards: CounterShards
    generation: Generation
    step: int
    keep_keys: bool


@dataclass(frozen=True, repr=False)
class Applying(Task):
    """Hashes the rows of some shards; with ``before`` it applies them to the present records, and writes those anew.

    The counts of a part are of the records that left, by their first step.

    Attributes:
        batch: the rules.
        row_key: the half of the hash's key that rows are hashed with.
        apart: the number of parts that the results are spread over.
        before: the present records; None: rows are hashed, and looked at by themselves.
    """

    batch: KeyedBatch
    row_key: bytes
    apart: int
    before: Before | None

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        tally = Tally.empty(len(self.schema))
        left = np.zeros(0 if self.before is None else self.before.step, np.int64)
        found = gathered(batches, tally, PresentTable.empty(self.schema.domain).codes.dtype)
        for shard in sorted(found or ()):
            try:
                self._apply(shard, Rows.joined((found or {}).pop(shard)), tally, left)
            except EventsError as error:
                if error.column is None:
                    tally.problems[-1] |= REFUSED[error.kind]
                else:
                    at = self.schema.domain.index(error.column)
                    tally.problems[at] |= 1 << PROBLEM_KINDS.index(error.kind)
        if found is not None:
            yield from part_rows(partition() % self.apart, tally, left)

    def _apply(self, shard: int, rows: Rows, tally: Tally, left: NDArray[np.int64]) -> None:
        assert rows.ids is not None
        order = np.zeros(len(rows.does), np.int64) if rows.order is None else rows.order
        by = np.lexsort((order, rows.ids[:, 1], rows.ids[:, 0]))
        keys, order, operations = rows.ids[by], order[by], rows.does[by].astype(np.int64)
        # Nothing says which of two rows of one key comes first.
        tied = (keys[1:] == keys[:-1]).all(axis=1) & (order[1:] == order[:-1])
        if self.batch.rules.repeated != "error" and tied.any():
            raise refused_events("several", "")
        step_rows = sorted_by_key(self.batch, self.schema, "", keys, operations, rows.codes[by])
        tally.here = tally.here.merge(step_rows.content(padded(self.row_key)))
        before = self.before
        if before is None:
            return
        folder, domain = Path(before.folder), self.schema.domain
        present, departed = read_present_shard(folder, before.shards.files.get(shard, ()), domain)
        changes = step_rows.changes(present)
        if before.keep_keys:
            left_before = partial(holds, departed)
            departed = np.concatenate([departed, refuse_returns(present, changes, left_before, "")])
        after, gone = present.after(changes, before.step)
        left += np.bincount(gone, minlength=len(left))
        if len(changes.keys):
            tried = attempt()
            name = before.generation.file_name(shard, tried)
            file = write_present_shard(folder, before.generation, name, after, departed)
            tally.written += written_file(shard, 0, file, tried)


@dataclass(frozen=True, repr=False)
class CountingPresent(Task):
    """Counts the present records of the shards that the column ``id`` names, of files that do not change.

    Attributes:
        cliques: what is counted.
        after: of the records whose first step is later.
        folder, shards: the files.
        apart: the number of parts that the results are spread over.
    """

    cliques: tuple[Clique, ...]
    after: int
    folder: str
    shards: CounterShards
    apart: int

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        domain, some = self.schema.domain, False
        counts = np.zeros(count_plan(domain, self.cliques).cells, np.int64)
        for batch in batches:
            for shard in batch.column("id").to_pylist():
                files = self.shards.files.get(shard, ())
                if files:
                    table, some = read_present_shard(Path(self.folder), files, domain)[0], True
                    counts += np.concatenate(table.count(self.cliques, self.after))
        if some:
            yield from part_rows(partition() % self.apart, Tally.empty(len(self.schema)), counts)


def _whole_numbers(column: Any) -> NDArray[np.int64]:
    """Whole numbers, days and moments as numbers that ascend with them."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    found = column.cast(pa.int64()).to_numpy()
    return np.asarray(found, np.int64)
