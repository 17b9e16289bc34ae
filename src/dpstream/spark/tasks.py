"""What runs in Spark's executors: count, hash and check the rows of one partition, and add such parts up.

Executors get the public schema, the cliques and the half of the hash's key that rows are hashed with; where rows are of
users or have keys, also the keys of ids and of files. They get no budget and no entropy, and give back counts, sums of
hashes and marks of problems: never a row, never a text of one. A task is a pure function of its partition, so that one
that is tried again or run twice changes nothing: Spark takes one of its results. (Accumulators would add both.)

A part is a few rows of ``(part, chunk, data)``: chunk -1 is the ``Tally``, chunks from 0 on are blocks of counts.

**Shards.** Rows of users, and rows with keys, go to the shard of their id (``Spreading``). What is admitted of a user,
and what becomes of a key, follows from the rows of that id and from what is committed for it, as in one process
(``core.tables.contribution``, ``core.tables.keyed_reading``): a shard's task is a pure function of the multiset of its
rows and of the committed files. One that is tried again writes another file with the same content; the result that
Spark takes names its file, and no other file is ever read.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import gc
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.schema.arrow import valid_text
from dpstream.core.schema.code_blocks import CodeBlocks
from dpstream.core.schema.column import PROBLEM_KINDS, Problem
from dpstream.core.tables import HASH_KEY_BYTES, KeyedBatch, MultisetHash
from dpstream.core.tables.access import COUNTER, CounterFile, CounterShards
from dpstream.core.tables.contribution import (
    Words,
    admit,
    as_words,
    hash_ids,
    id_bytes,
    owner_words,
    owners_of,
)
from dpstream.core.tables.counter_files import (
    Generation,
    read_present_shard,
    read_shard,
    shard_of,
    write_file,
    write_present_shard,
)
from dpstream.core.tables.counting import CountPlan, add_counts, count_plan
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

if TYPE_CHECKING:
    from dpstream.core.schema import Clique, Domain, Schema
    from dpstream.io.sources.operations import Operations

#: The columns of a part, as Spark names types.
PART_TYPE = "part int, chunk int, data binary"
#: Counts in one row of a part: 2 MiB.
_CHUNK = 2**18
_ROWS = 2**16
_TALLY = -1
_WORDS = struct.Struct("<9Q")
#: The columns of rows on their way to their shards, as Spark names types.
SHARDED = "shard int, data binary"
#: Stands in the place of a shard where the data is a tally: some rows did not fit.
_PROBLEMS = -1
#: Bits of a tally's last entry: an operation that is none, an id that is none, a row without an order.
WRONG_OPERATION, NO_ID, NO_ORDER = 1, 2, 4
#: More of these bits: events that the rules of keyed records refuse.
REFUSED = {"several": 8, "delete": 16, "update": 32, "insert": 64, "returns": 128}
#: A file that was written: shard, how many earlier files of the shard stay, users or records, attempt, tag.
_WRITTEN = struct.Struct("<IIQQ16s")


class TaskFailure(Exception):
    """A task failed. Spark shows and logs this text; it holds the name of what failed and nothing of the rows."""


@dataclass
class Tally:
    """What a part knows beside its counts. Private.

    Attributes:
        here, gone: hashes of the inserts and of the deletes.
        problems: for each column, bits of ``PROBLEM_KINDS``; the last entry is for the operations and the user ids.
        dropped: rows that are left out, because their users have reached the bound; ``cut``: users of whom one is left
            out for the first time.
        written: which files of users or records were written (``Files.write``).
    """

    problems: NDArray[np.uint8]
    here: MultisetHash = field(default_factory=MultisetHash)
    gone: MultisetHash = field(default_factory=MultisetHash)
    dropped: int = 0
    cut: int = 0
    written: bytes = b""

    @classmethod
    def empty(cls, columns: int) -> Self:
        """Of no rows."""
        return cls(np.zeros(columns + 1, np.uint8))

    def pack(self) -> bytes:
        """As bytes. Rows and totals share no field, so nothing overflows below 2^64 rows."""
        words = [self.dropped, self.cut, len(self.problems)]
        for one in (self.here, self.gone):
            words += [one.rows, one.total % 2**64, one.total >> 64]
        return _WORDS.pack(*words) + self.problems.tobytes() + self.written

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of ``pack``."""
        dropped, cut, columns, *words = _WORDS.unpack_from(data)
        one, two = (MultisetHash(words[i + 1] | words[i + 2] << 64, words[i]) for i in (0, 3))
        end = _WORDS.size + columns
        return cls(
            np.frombuffer(data[_WORDS.size : end], np.uint8).copy(), one, two, dropped, cut, data[end:]
        )

    def mark(self, schema: Schema, problems: Iterable[Problem]) -> None:
        """Remember what kept values from having a code."""
        for problem in problems:
            self.problems[schema.domain.index(problem.column)] |= 1 << PROBLEM_KINDS.index(problem.kind)

    def add(self, other: Tally) -> None:
        """Take in another part."""
        self.here, self.gone = self.here.merge(other.here), self.gone.merge(other.gone)
        self.problems |= other.problems
        self.dropped, self.cut = self.dropped + other.dropped, self.cut + other.cut
        self.written += other.written


@dataclass(frozen=True, repr=False)
class Ids:
    """Where a row says whose it is.

    Attributes:
        column: of the ids.
        key: that they are hashed with.
        what: an id is called in messages.
    """

    column: str
    key: bytes
    what: str = "user id"


@dataclass(frozen=True, repr=False)
class Rows:
    """Rows of a block, or of a shard. Private.

    Attributes:
        codes: rows x columns.
        does: what each does: of rows without keys whether it leaves, of others its operation.
        ids: the hashed ids of their users or records, two words each; None: nobody's.
        order: which row of an id comes first, where something says so.
    """

    codes: NDArray[Any]
    does: NDArray[np.uint8]
    ids: Words | None = None
    order: NDArray[np.int64] | None = None

    def side(self, *, leave: bool) -> Rows:
        """Those that leave, or those that come."""
        chosen = self.does == leave
        if chosen.all():
            return self
        return Rows(self.codes[chosen], self.does[chosen], None if self.ids is None else self.ids[chosen])

    def spread(self, number: int, domain: Domain) -> Iterator[tuple[int, bytes]]:
        """The rows of each shard as bytes."""
        assert self.ids is not None
        rows = np.zeros(len(self.does), _row_type(domain))
        rows["ids"], rows["does"], rows["codes"] = self.ids, self.does, self.codes
        if self.order is not None:
            rows["order"] = self.order
        shards = shard_of(self.ids, number)
        order = np.argsort(shards, kind="stable")
        starts = np.searchsorted(shards[order], np.arange(number + 1))
        for shard in np.flatnonzero(np.diff(starts)).tolist():
            yield shard, rows[order[starts[shard] : starts[shard + 1]]].tobytes()

    @classmethod
    def unpack(cls, data: bytes, domain: Domain) -> Rows:
        """The rows of one shard, of all parts that ``spread`` gave; where nothing orders them, the order is 0."""
        rows = np.frombuffer(data, _row_type(domain))
        codes, words = rows["codes"].astype(np.int32), rows["ids"].astype(np.uint64)
        return cls(codes, rows["does"], words, rows["order"].astype(np.int64))

    def hash_into(self, tally: Tally, key: bytes) -> CodeBlocks:
        """Add the hash of these rows, which all come or all leave, and of their users to a tally; gives their codes."""
        blocks, leave = code_blocks(self.codes), bool(self.does.any())
        words = None if self.ids is None else owner_words(self.ids)
        content = MultisetHash.of(blocks, words, key, deletes=leave)
        if leave:
            tally.gone = tally.gone.merge(content)
        else:
            tally.here = tally.here.merge(content)
        return blocks


def _row_type(domain: Domain) -> np.dtype[Any]:
    """Of rows on their way to their shards: codes are narrow, with room for the code that says nothing."""
    codes = PresentTable.empty(domain).codes.dtype
    return np.dtype(
        [("ids", "<u8", 2), ("order", "<i8"), ("does", "u1"), ("codes", codes, len(domain.sizes))]
    )


def code_blocks(codes: NDArray[Any]) -> CodeBlocks:
    """Codes as the compiled loops read them in one process, for which they are compiled."""
    codes = np.asfortranarray(codes, np.int32)
    codes.flags.writeable = False
    return CodeBlocks(codes.shape[1], [codes])


def padded(row_key: bytes) -> bytes:
    """The half of a key that rows are hashed with, at the length of a whole one."""
    return row_key + bytes(HASH_KEY_BYTES - len(row_key))


def require_version(version: str) -> None:
    """That an executor has the driver's version of this package (TaskFailure)."""
    from dpstream.core.version import __version__

    if __version__ != version:
        raise TaskFailure(f"dpstream {__version__} is installed here, and {version} on the driver")


def guarded(version: str, parts: Iterator[Any]) -> Iterator[Any]:
    """What a task gives, from an executor that has the driver's version of this package.

    Errors:
        TaskFailure: another version, or the task failed; nothing of its rows is said.
    """
    require_version(version)
    failed = None
    try:
        yield from parts
    except (MemoryError, OSError):
        raise  # the machine's, not the rows': Spark tries again elsewhere
    except Exception as error:  # noqa: BLE001 (its text may quote a row, and Spark logs every text)
        failed = type(error).__name__
    if failed is not None:
        raise TaskFailure(f"a partition cannot be counted ({failed})")


@dataclass(frozen=True, repr=False)
class Shared:
    """What all tasks of a pass have.

    Attributes:
        version: of the package on the driver; executors with another one refuse.
        schema: the columns.
        apart: the number of parts that the results are spread over.
        row_key: the half of the hash's key that rows are hashed with.
        cliques: what is counted.
        sides: 2 where inserts and deletes are counted apart, else 1.
    """

    version: str
    schema: Schema
    apart: int
    row_key: bytes
    cliques: tuple[Clique, ...]
    sides: int = 1


@dataclass(frozen=True, repr=False)
class Task(ABC):
    """What one partition becomes: Spark's ``mapInArrow`` calls it with the partition's record batches."""

    shared: Shared

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.shared.schema

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Parts, or rows of ``SHARDED``; nothing for an empty partition.

        Errors:
            TaskFailure: a file was changed, or anything else but rows that do not fit, which are marked in the tally.
            OSError: a file cannot be read or written.
        """
        yield from guarded(self.shared.version, self._parts(batches))

    @abstractmethod
    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]: ...


@dataclass(frozen=True, repr=False, kw_only=True)
class Reading(ABC):
    """What the rows of a frame hold beside the columns of the schema.

    Attributes:
        ids: whose records they are, or which; None: nobody's.
        operations: the column that says what a row does, and its words; None: all rows do the same.
        order: the column that says which row of a key comes first; None: nothing does.
    """

    ids: Ids | None = None
    operations: tuple[str, Operations] | None = None
    order: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        ids = None if self.ids is None else self.ids.column
        columns = (ids, None if self.operations is None else self.operations[0], self.order)
        return tuple(dict.fromkeys(name for name in columns if name is not None))

    @abstractmethod
    def encoded(self, table: Any, schema: Schema, tally: Tally) -> Rows | None:
        """The rows; None where some do not fit, which ``tally`` is told."""


@dataclass(frozen=True, repr=False, kw_only=True)
class EventColumns(Reading):
    """Of records that come and go.

    Attributes:
        deletes: without ``operations``, whether the rows leave.
    """

    deletes: bool = False

    def encoded(self, table: Any, schema: Schema, tally: Tally) -> Rows | None:
        """See ``Reading``."""
        flags, ids, wrong = np.full(table.num_rows, self.deletes), None, 0
        if self.operations is not None:
            name, words = self.operations
            try:
                flags = words.deletes(table.column(name), name=name, where="")
            except DataError:
                wrong |= WRONG_OPERATION
            table = table.drop_columns([name])
        if self.ids is not None:
            name = self.ids.column
            try:
                ids = hash_ids(id_bytes(table.column(name), ""), self.ids.key)
            except DataError:
                wrong |= NO_ID
            table = table.drop_columns([name])
        tally.problems[-1] |= wrong
        try:
            codes = schema.encode(table)
        except DataError:
            tally.mark(schema, schema.problems(table))
            return None
        return None if wrong else Rows(codes, flags.astype(np.uint8), ids)


@dataclass(frozen=True, repr=False, kw_only=True)
class KeyedColumns(Reading):
    """Of records that have keys and change. Without ``operations`` each row says what its record is.

    Attributes:
        ids: the keys.
        batch: the rules; no events.
    """

    ids: Ids
    batch: KeyedBatch

    def encoded(self, table: Any, schema: Schema, tally: Tally) -> Rows | None:
        """See ``Reading``."""
        import pyarrow as pa

        wrong, operations = 0, np.full(table.num_rows, UPSERT, np.int64)
        if self.operations is not None:
            name, listed = self.operations
            try:
                read = listed.read(table.column(name), name=name, where="")
            except DataError:
                tally.problems[-1] |= WRONG_OPERATION  # which rows are deletes is not known: no other look
                return None
            kept = read != "ignore"
            table, words = table.filter(pa.array(kept)), pa.chunked_array([pa.array(read[kept], pa.string())])
            operations = operation_numbers(words, name, "")
        keys, order = np.zeros((0, 2), np.uint64), None
        try:
            keys = hash_keys(table.column(self.ids.column), self.ids.key, "")
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


def _whole_numbers(column: Any) -> NDArray[np.int64]:
    """Whole numbers, days and moments as numbers that ascend with them."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    found = column.cast(pa.int64()).to_numpy()
    return np.asarray(found, np.int64)


@dataclass(frozen=True, repr=False)
class Spreading(Task):
    """Encodes the rows of a partition, and sends them to the shards of their users or records.

    Attributes:
        reading: says what the rows hold.
        number: of shards.
    """

    reading: Reading
    number: int

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        tally = Tally.empty(len(self.schema))
        for table in row_blocks(batches):
            rows = self.reading.encoded(table, self.schema, tally)
            if rows is not None:
                yield _shard_batch(list(rows.spread(self.number, self.schema.domain)))
        if tally.problems.any():
            yield _shard_batch([(_PROBLEMS, tally.pack())])


@dataclass(frozen=True, repr=False)
class Pass(Task):
    """A task whose partition becomes a part."""

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        tally, counts = Tally.empty(len(self.schema)), self._no_counts()
        if self._work(batches, tally, counts):
            yield from part_rows(partition() % self.shared.apart, tally, counts.reshape(-1))

    def _no_counts(self) -> NDArray[np.int64]:
        return np.zeros((self.shared.sides, self._plan().cells), np.int64)

    @abstractmethod
    def _work(self, batches: Iterable[Any], tally: Tally, counts: NDArray[np.int64]) -> bool:
        """Add what the partition holds; whether it holds anything."""

    def _plan(self) -> CountPlan:
        return count_plan(self.schema.domain, self.shared.cliques)

    def _count(self, blocks: CodeBlocks, counts: NDArray[np.int64]) -> None:
        add_counts(self._plan(), blocks, 1, counts)


@dataclass(frozen=True, repr=False)
class Counting(Pass):
    """Counts and hashes the rows of a partition; ``reading`` says what they hold."""

    reading: Reading

    def _work(self, batches: Iterable[Any], tally: Tally, counts: NDArray[np.int64]) -> bool:
        some = False
        for table in row_blocks(batches):
            some = some or table.num_rows > 0
            rows = self.reading.encoded(table, self.schema, tally)
            if rows is None:
                continue  # the pass goes on: all problems are told at once, and none of the counts is used
            for leave in (False, True):
                side = rows.side(leave=leave)
                if len(side.does):
                    self._count(side.hash_into(tally, padded(self.shared.row_key)), counts[int(leave)])
        return some


@dataclass(frozen=True, repr=False)
class Files:
    """What is committed of a stream's users or keyed records, in files, and the files that a step writes.

    Attributes:
        shards: the committed ones.
        generation: of the files that are written; None: nothing is written.
    """

    folder: Path
    shards: CounterShards
    generation: Generation | None = None

    def of(self, shard: int) -> tuple[CounterFile, ...]:
        """The committed files of a shard."""
        return self.shards.files.get(shard, ())

    def write(
        self, tally: Tally, shard: int, stay: int, write: Callable[..., CounterFile], *content: Any
    ) -> None:
        """Write a file, and say so in ``tally``; so many earlier files of the shard ``stay``."""
        assert self.generation is not None
        tried = attempt()
        file = write(self.folder, self.generation, self.generation.file_name(shard, tried), *content)
        tally.written += _WRITTEN.pack(shard, stay, file.users, tried, file.tag)

    def after(self, written: bytes, width: int = COUNTER) -> tuple[CounterShards, list[CounterFile]]:
        """What is committed after a step, in rows of ``width`` bytes, and which of its files are new."""
        assert self.generation is not None
        files, new = dict(self.shards.files), []
        for shard, stay, users, tried, tag in _WRITTEN.iter_unpack(written):
            name = self.generation.file_name(shard, tried)
            file = CounterFile(name, users, tag, self.generation.key, width)
            files[shard] = (*self.of(shard)[:stay], file)
            new.append(file)
        return CounterShards(self.shards.number, files), new


@dataclass(frozen=True, repr=False)
class ShardPass(Pass):
    """Goes through shards, where all rows of one user or record come together."""

    def _work(self, batches: Iterable[Any], tally: Tally, counts: NDArray[np.int64]) -> bool:
        shards = gathered(batches, tally)
        for shard in sorted(shards or ()):
            data = b"".join((shards or {}).pop(shard))
            self._shard(shard, Rows.unpack(data, self.schema.domain), tally, counts)
        return shards is not None

    @abstractmethod
    def _shard(self, shard: int, rows: Rows, tally: Tally, counts: NDArray[np.int64]) -> None: ...


@dataclass(frozen=True, repr=False)
class Admitting(ShardPass):
    """Admits the rows of users, counts those that are admitted and hashes all, and writes the users' new counters.

    Attributes:
        files: of counters.
        max_events: the bound.
        ids_key: that ids are hashed with, and by which it is decided which of a user's events are admitted.
    """

    files: Files
    max_events: int
    ids_key: bytes

    def _shard(self, shard: int, rows: Rows, tally: Tally, counts: NDArray[np.int64]) -> None:
        came, went = rows.side(leave=False), rows.side(leave=True)
        for side in (came, went):
            side.hash_into(tally, padded(self.shared.row_key))
        assert came.ids is not None
        assert went.ids is not None
        owners = owners_of(np.concatenate([came.ids, went.ids]), len(came.ids))
        ids, known = as_words(owners.ids), read_shard(self.files.folder, self.files.of(shard))
        before = known.events(ids)
        admitted = admit(came.codes, went.codes, owners, before, self.max_events, self.ids_key)
        for leave, codes in enumerate((came.codes[admitted.inserts], went.codes[admitted.deletes])):
            if len(codes):
                self._count(code_blocks(codes), counts[leave])
        tally.dropped, tally.cut = tally.dropped + admitted.dropped, tally.cut + admitted.cut
        changed = admitted.counts != before
        if self.files.generation is not None and changed.any():
            stay, ids, after = known.grown(ids[changed], admitted.counts[changed])
            self.files.write(tally, shard, stay, write_file, ids, after)


@dataclass(frozen=True, repr=False)
class Applying(ShardPass):
    """Hashes the rows of keyed records; with ``files`` it applies them to the present records, and writes those anew.

    The counts of a part are of the records that left, by their first step.

    Attributes:
        batch: the rules.
        files: of the present records; None: rows are hashed, and looked at by themselves.
        step: that comes.
        keep_keys: whether hashes of keys that left are kept, because no key may come back.
    """

    batch: KeyedBatch
    files: Files | None
    step: int
    keep_keys: bool

    def _no_counts(self) -> NDArray[np.int64]:
        return np.zeros(self.step, np.int64)

    def _shard(self, shard: int, rows: Rows, tally: Tally, counts: NDArray[np.int64]) -> None:
        try:
            self._apply(shard, rows, tally, counts)
        except EventsError as error:
            if error.column is None:
                tally.problems[-1] |= REFUSED[error.kind]
            else:
                at = self.schema.domain.index(error.column)
                tally.problems[at] |= 1 << PROBLEM_KINDS.index(error.kind)

    def _apply(self, shard: int, rows: Rows, tally: Tally, left: NDArray[np.int64]) -> None:
        assert rows.ids is not None
        assert rows.order is not None
        by = np.lexsort((rows.order, rows.ids[:, 1], rows.ids[:, 0]))
        keys, order, operations = rows.ids[by], rows.order[by], rows.does[by].astype(np.int64)
        # Nothing says which of two rows of one key comes first.
        tied = (keys[1:] == keys[:-1]).all(axis=1) & (order[1:] == order[:-1])
        if self.batch.rules.repeated != "error" and tied.any():
            raise refused_events("several", "")
        step_rows = sorted_by_key(self.batch, self.schema, "", keys, operations, rows.codes[by])
        tally.here = tally.here.merge(step_rows.content(padded(self.shared.row_key)))
        if self.files is None:
            return
        present, departed = read_present_shard(self.files.folder, self.files.of(shard), self.schema.domain)
        changes = step_rows.changes(present)
        if self.keep_keys:
            left_before = partial(holds, departed)
            departed = np.concatenate([departed, refuse_returns(present, changes, left_before, "")])
        after, gone = present.after(changes, self.step)
        left += np.bincount(gone, minlength=len(left))
        if len(changes.keys):
            self.files.write(tally, shard, 0, write_present_shard, after, departed)


@dataclass(frozen=True, repr=False)
class CountingPresent(Pass):
    """Counts the present records of the shards that the column ``id`` names, of files that do not change.

    Attributes:
        files: of the present records.
        after: of the records whose first step is later.
    """

    files: Files
    after: int

    def _work(self, batches: Iterable[Any], tally: Tally, counts: NDArray[np.int64]) -> bool:
        some = False
        for batch in batches:
            for shard in batch.column("id").to_pylist():
                files = self.files.of(shard)
                if files:
                    table, some = read_present_shard(self.files.folder, files, self.schema.domain)[0], True
                    counts[0] += np.concatenate(table.count(self.shared.cliques, self.after))
        return some


def _shard_batch(rows: list[tuple[int, bytes]]) -> Any:
    """Rows of ``SHARDED``."""
    import pyarrow as pa

    kinds = pa.schema([("shard", pa.int32()), ("data", pa.binary())])
    columns = {"shard": [shard for shard, _ in rows], "data": [data for _, data in rows]}
    return pa.RecordBatch.from_pydict(columns, schema=kinds)


def gathered(batches: Iterable[Any], tally: Tally) -> dict[int, list[bytes]] | None:
    """The rows of ``SHARDED`` by shard, to be joined; what did not fit goes into ``tally``. None: no row."""
    found: dict[int, list[bytes]] | None = None
    for batch in batches:
        for shard, data in zip(batch.column("shard").to_pylist(), batch.column("data"), strict=True):
            found = found or {}
            if shard == _PROBLEMS:
                tally.add(Tally.unpack(data.as_py()))
            else:
                found.setdefault(shard, []).append(data.as_py())
    return found


class Summing:
    """Adds up the parts of a partition of parts."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One part; nothing where there is none."""
        total = joined(batches)
        if total is not None:
            yield from part_rows(0, *total)


def joined(batches: Iterable[Any]) -> tuple[Tally, NDArray[np.int64]] | None:
    """The sum of all parts in some Arrow batches; None where there is none. Order changes nothing."""
    tally: Tally | None = None
    chunks: dict[int, NDArray[np.int64]] = {}
    for batch in batches:
        for chunk, data in zip(batch.column("chunk").to_pylist(), batch.column("data"), strict=True):
            raw = data.as_buffer()
            if chunk == _TALLY:
                one = Tally.unpack(raw.to_pybytes())
                if tally is None:
                    tally = one
                else:
                    tally.add(one)
            elif chunk in chunks:
                chunks[chunk] += np.frombuffer(raw, "<i8")
            else:
                chunks[chunk] = np.frombuffer(raw, "<i8").astype(np.int64)
    if tally is None:
        return None
    ordered = [chunks[chunk] for chunk in sorted(chunks)]
    return tally, np.concatenate(ordered) if ordered else np.zeros(0, np.int64)


def part_rows(part: int, tally: Tally, counts: NDArray[np.int64]) -> Iterator[Any]:
    """A part as Arrow batches, one row each: none is larger than a chunk."""
    import pyarrow as pa

    kinds = pa.schema([("part", pa.int32()), ("chunk", pa.int32()), ("data", pa.binary())])

    def row(chunk: int, data: bytes) -> Any:
        return pa.RecordBatch.from_pydict({"part": [part], "chunk": [chunk], "data": [data]}, schema=kinds)

    yield row(_TALLY, tally.pack())
    for chunk, start in enumerate(range(0, len(counts), _CHUNK)):
        yield row(chunk, counts[start : start + _CHUNK].astype("<i8").tobytes())


def row_blocks(batches: Iterable[Any]) -> Iterator[Any]:
    """Tables of about ``_ROWS`` rows, whose texts are UTF-8 as those of files are: Spark's own batches are small."""
    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield _table(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _table(waiting)


def _table(batches: list[Any]) -> Any:
    import pyarrow as pa

    table = pa.Table.from_batches(batches)
    return pa.table([valid_text(column) for column in table.columns], names=table.column_names)


def partition() -> int:
    """The number of the task's partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0
    _set_apart()
    return int(context.partitionId())


def attempt() -> int:
    """A number that no other attempt at a task has in this session; 0 on the driver."""
    try:
        from pyspark import TaskContext
    except ImportError:
        return 0
    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


#: Once in each worker: what is imported by now stays in memory. Spark collects garbage after each task, and would look
#: through all of it every time, which takes longer than to count a thousand rows.
_set_apart = cache(gc.freeze)
