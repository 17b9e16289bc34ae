"""The inserts, updates and deletes of a PostgreSQL table by logical replication, cut into steps by their commit times.

The slot keeps a change until the step with it is durable. A reading peeks at the changes and does not consume them. The
step is committed together with a place in the log: all changes before it are in released steps. Only then ``committed``
moves the slot to that place. After a crash in between the slot is behind that place, and the next reading moves it
first. A slot that is ahead of that place has lost changes, and the source refuses it.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.core.tables import KeyedBatch
from dpstream.io.libpq import quoted
from dpstream.io.sources.calendar import Grid, day_number
from dpstream.io.sources.file_opening import UnreadableError
from dpstream.io.sources.keyed_source import free_name
from dpstream.io.sources.operations import DELETE, INSERT, UPDATE
from dpstream.io.sources.pg_session import (
    SYSTEM,
    Relation,
    ServerSource,
    Session,
    back_in_time,
    text_schema,
    text_table,
)
from dpstream.io.sources.query import wanted_columns
from dpstream.io.sources.source import StepInput, step_input
from dpstream.io.sources.source_options import SourceOptions


class Unchanged:
    """The type of ``UNCHANGED``: a large value that the update left as it was, and that the log does not repeat."""


UNCHANGED = Unchanged()
#: The cells of a row: texts, None for nulls, ``UNCHANGED``.
Tuple = list["str | Unchanged | None"]


@dataclass(frozen=True)
class Begin:
    """The begin of a transaction: the place of its commit in the log, and its time (microseconds since 2000 UTC)."""

    commit: int
    moment: int


@dataclass(frozen=True)
class Described:
    """The description of a table: sent before its first change, and again after the table was altered.

    Attributes:
        columns: name and type number of each column.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[tuple[str, int], ...]


@dataclass(frozen=True, repr=False)
class Change:
    """A change of one row.

    Attributes:
        oid: the table's number.
        kind: ``I`` (insert), ``U`` (update) or ``D`` (delete).
        old: the whole old row; None where the log does not have it.
        new: the new row; None for a delete.
        key: the columns of the replica identity in the old row, with nulls in all others. Only where the log has these
            alone: for a delete, and for an update that changes them.
    """

    oid: int
    kind: str
    old: Tuple | None
    new: Tuple | None
    key: Tuple | None = None

    @property
    def oids(self) -> tuple[int, ...]:
        """As of ``Truncate``."""
        return (self.oid,)


@dataclass(frozen=True)
class Truncate:
    """A truncation, with the numbers of the tables that it emptied."""

    oids: tuple[int, ...]


class _Bytes:
    """Reads a message from left to right. Numbers are big-endian."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError("message cut short")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def text(self) -> str:
        taken = self.take(self._data.index(b"\0", self._at) - self._at)
        self.take(1)
        return taken.decode()

    def tuple(self) -> Tuple:
        return list(self._cells())

    def _cells(self) -> Iterator[str | Unchanged | None]:
        for _ in range(self.number(2)):
            kind = self.take(1)
            if kind == b"t":
                yield self.take(self.number(4)).decode()
            elif kind == b"n":
                yield None
            elif kind == b"u":
                yield UNCHANGED
            else:
                raise ValueError("unknown kind of cell")


def parse(data: bytes, *, whole: bool = True) -> Begin | Described | Change | Truncate | None:
    """Read one message; None for messages that are not about rows (commits, origins, types).

    Args:
        whole: False: of its first bytes only, a table without its columns and a change without its rows.

    Errors:
        ValueError: the protocol has no such message. The text repeats no value of a row.
    """
    kind, rest = data[:1], _Bytes(data[1:])
    if kind == b"B":
        return Begin(rest.number(8), rest.number(8))
    if kind == b"R":
        return _described(rest, whole)
    if kind in (b"I", b"U", b"D"):
        return _change(kind, rest) if whole else Change(rest.number(4), kind.decode(), None, None)
    if kind == b"T":
        return _truncate(rest)
    if kind in (b"C", b"O", b"Y", b"M"):
        return None
    raise ValueError("unknown kind of message")


def _described(rest: _Bytes, whole: bool) -> Described:
    # The schema pg_catalog is sent as an empty name.
    table = Described(rest.number(4), rest.text() or "pg_catalog", rest.text(), ())
    if not whole:
        return table
    rest.take(1)  # the replica identity, which is not needed: the changes show whether they have the old row
    columns = []
    for _ in range(rest.number(2)):
        rest.take(1)
        column, kind = rest.text(), rest.number(4)
        rest.take(4)
        columns.append((column, kind))
    return replace(table, columns=tuple(columns))


def _change(kind: bytes, rest: _Bytes) -> Change:
    oid, old, key, part = rest.number(4), None, None, rest.take(1)
    if part in (b"K", b"O"):
        cells = rest.tuple()
        old, key = (cells, None) if part == b"O" else (None, cells)
        part = b"" if kind == b"D" else rest.take(1)
    new = rest.tuple() if part == b"N" else None
    return Change(oid, kind.decode(), old, new, key)


def _truncate(rest: _Bytes) -> Truncate:
    count = rest.number(4)
    rest.take(1)
    return Truncate(tuple(rest.number(4) for _ in range(count)))


#: Seconds to wait for open transactions: one that is committing has its commit time a moment before it is in the log.
#: One that stays open longer will have a later commit time.
_GRACE = 5.0
_READ, _DONE = "read", "done"
_ROWS = 2**14
#: As many bytes of a message as ``parse`` needs (names have up to 63). Truncations ("T" = 84) list tables: all bytes.
_HEAD = 160
_PEEK = (
    "SELECT CASE WHEN get_byte(data, 0) = 84 THEN data ELSE substr(data, 1, %s) END "
    "FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, NULL, "
    "'proto_version', '1', 'publication_names', %s)"
)
_BOOLEAN, _CHARACTER = 16, 1042
_ALONE, _ANEW = "a slot for this stream alone", "a new stream on a new slot"


def commit_day(moment: int) -> int:
    """The UTC day (days since 1970) of a commit time (microseconds since 2000).

    >>> commit_day(-1), commit_day(0)
    (10956, 10957)
    """
    return moment // (86400 * 10**6) + day_number(datetime.date(2000, 1, 1))


class ChangedRows:
    """Collects one step's changes as inserted and deleted rows. Values are texts, as a csv file would have them."""

    def __init__(self, relation: Relation, names: list[str], where: str, key: str | None) -> None:
        self._relation, self._names, self._where, self._key = relation, names, where, key
        #: The name of the column of operations.
        self.word = free_name("operation", names)
        self._schema = text_schema([*names, self.word])
        self._rows: list[list[str | None]] = []
        self._tables = [self._schema.empty_table()]
        self._indices: list[int] = []

    def describe(self, message: Described) -> None:
        """Take the order of the columns in the following changes.

        Errors:
            DataError: a column is missing or has another type than in the catalog.
        """
        if message.oid != self._relation.oid:
            return
        sent = {name: (index, kind) for index, (name, kind) in enumerate(message.columns)}
        for name in self._names:
            if name not in sent or sent[name][1] != self._relation.types[name]:
                what = "lacks column" if name not in sent else "has another type in column"
                raise DataError(
                    f"the table was altered: the log {what} {name!r}",
                    where=self._where,
                    allowed="alter columns after all earlier changes are released; publish the column",
                )
        self._indices = [sent[name][0] for name in self._names]

    def add(self, message: Change | Truncate) -> None:
        """Collect one change; changes of other tables are left out.

        Errors:
            DataError: the table was truncated, or the log lacks an old row or a large value.
        """
        if isinstance(message, Truncate):
            if self._relation.oid in message.oids:
                raise DataError(
                    "a truncation deleted rows that the log lacks",
                    where=self._where,
                    allowed=f"DELETE, not TRUNCATE, in {_ANEW}",
                )
            return
        if message.oid == self._relation.oid:
            self._change(message)

    def _change(self, message: Change) -> None:
        if message.kind != "I" and message.old is None:
            raise self._lacking("the old row of a change")
        old = None if message.old is None else self._cells(message.old, None)
        new = None if message.new is None else self._cells(message.new, message.old)
        if old == new:
            return
        for row, word in ((old, DELETE), (new, INSERT)):
            if row is not None:
                self._append(word, row)

    def take(self) -> tuple[Any, Any]:
        """The collected inserts and deletes, as Arrow tables."""
        import pyarrow.compute as pc

        rows = self.events()
        inserted = pc.equal(rows.column(self.word), INSERT)
        rows = rows.drop_columns([self.word])
        return rows.filter(inserted), rows.filter(pc.invert(inserted))

    def events(self) -> Any:
        """All changes in their order, as an Arrow table, with the column ``word`` of their operations."""
        import pyarrow as pa

        self._store()
        return pa.concat_tables(self._tables)

    def _append(self, word: str, row: list[str | None]) -> None:
        self._rows.append([*row, word])
        if len(self._rows) >= _ROWS:
            self._store()

    def _cells(self, row: Tuple, old: Tuple | None) -> list[str | None]:
        cells: list[str | None] = []
        for name, index in zip(self._names, self._indices, strict=True):
            value = row[index]
            if value is UNCHANGED and old is not None:
                value = old[index]
            cells.append(self._text(value, name))
        return cells

    def _text(self, value: str | Unchanged | None, name: str) -> str | None:
        """A cell as a csv file would have it (DataError where the log lacks it)."""
        if not (value is None or isinstance(value, str)):
            raise self._lacking(f"a large value of column {name!r}")
        return _as_cast(value, self._relation.types[name])

    def _lacking(self, what: str) -> DataError:
        return DataError(
            f"the log lacks {what}", where=self._where, allowed="REPLICA IDENTITY FULL, set before the change"
        )

    def _store(self) -> None:
        if self._rows:
            self._tables.append(text_table(self._rows, self._schema))
            self._rows = []


def _as_cast(text: str | None, kind: int) -> str | None:
    """The text that SQL's ``value::text`` gives, which differs from the log's for booleans and padded characters."""
    if text is not None and kind == _BOOLEAN:
        return {"t": "true", "f": "false"}.get(text, text)
    return text.rstrip(" ") if text is not None and kind == _CHARACTER else text


class _KeyedRows(ChangedRows):
    """Collects one step's changes by key: the operation, and the new row (of a delete: only the key)."""

    def _change(self, message: Change) -> None:
        place = self._names.index(str(self._key))
        before = message.old if message.old is not None else message.key
        # The log may hold nothing but the key of the old row.
        gone = None if before is None else self._text(before[self._indices[place]], self._names[place])
        left = [gone if number == place else None for number in range(len(self._names))]
        if message.new is None:
            self._append(DELETE, left)
            return
        row = self._cells(message.new, message.old)
        moved = message.kind == "U" and gone is not None and gone != row[place]
        if moved:
            self._append(DELETE, left)
        self._append(UPDATE if message.kind == "U" and not moved else INSERT, row)


@dataclass
class _Survey:
    """The places (LSNs) in the log of each step's first and last commit.

    Attributes:
        read: the place up to which the log is read.
        first: step -> place of its first commit.
        last: step -> place of its last commit.
    """

    read: int
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    def add(self, step: int, commit: int) -> None:
        self.first[step] = min(commit, self.first.get(step, commit))
        self.last[step] = max(commit, self.last.get(step, commit))

    def done(self, step: int) -> int:
        """The place before which the log has no change of a step after ``step``."""
        return min((place for later, place in self.first.items() if later > step), default=self.read)


class ChangeSource(ServerSource):
    """Private changes of one table, from a slot of the plugin ``pgoutput``.

    Guarantee: a change belongs to the step of its transaction's commit time (UTC). If the log did not have it when that
    step was read, it is late, and ``late`` says what happens (this needs a server's clock that was set back). No change
    moves the changes of another transaction. An update is a delete of the old row and an insert of the new one; an
    update that leaves all columns of the stream as they were is left out.

    Errors: those of ``Session``; ConfigError: the slot or the publication is missing, or the log lacks old rows;
    StepError: another server, or a slot that is ahead of the released steps; DataError: a truncation, an altered
    column, a late change with ``late = "error"``.

    Memory: the changes of one step (the server keeps a large answer on its disk). Cost: the server decodes the log from
    the slot's place on once to find the steps, and then once up to the end of each step.
    """

    _collector: type[ChangedRows] = ChangedRows

    def committed(self, position: Mapping[str, int]) -> None:
        """See ``Source``: move the slot to the place before which all changes are in durable steps."""
        with Session(self.options) as session:
            self._advance(session, position[_DONE])

    def _read(self, grid: Grid, last: int, first: int, seen: Mapping[str, int] | None) -> Iterator[StepInput]:
        """Each step is read in a session of its own."""
        if last < first == 1:
            self._check_all()  # already before step 1: changes that are committed before there is a slot are lost
        if self._begun is not None and self._begun[0] == first <= last:
            held = self._begun[1]
            yield from self._read_from(_StepFinder(grid, first, seen, self.options), first, held)
            first, seen = first + 1, held
        yield from self._read_from(_StepFinder(grid, first, seen, self.options), last)

    def _read_from(
        self, place: _StepFinder, last: int, held: Mapping[str, int] | None = None
    ) -> Iterator[StepInput]:
        """The steps from ``place.start`` to ``last``: from the whole log, or as far as it was read at ``held``."""
        if place.start > last:
            return
        with Session(self.options) as session:
            self._check(session)
            system = session.system(place.seen, held)
            if place.seen is not None and not self._position:
                # Only before the first step of a reading. From then on ``committed`` moves the slot: it is called when
                # the step is durable.
                self._advance(session, place.seen[_DONE])
            session.settle(_GRACE)
            written = _written(session)
            if any(known is not None and written < known[_READ] for known in (place.seen, held)):
                raise back_in_time(self._where())
            survey = self._survey(session, place, last, written if held is None else held[_READ])
        for step in range(place.start, last + 1):
            with Session(self.options) as session:
                relation = session.relation(str(self.options.table))
                names = wanted_columns(relation.types, self.options, self._columns, session.where)
                rows = self._collector(relation, names, session.where, self.options.key_column)
                if step in survey.last:
                    self._collect(session, place, survey, step, rows)
                entry = self._entry(place.grid, step, rows)
            self._position = {SYSTEM: system, _READ: survey.read, _DONE: survey.done(step)}
            yield entry

    def _entry(self, grid: Grid, step: int, rows: ChangedRows) -> StepInput:
        """The step with the collected changes."""
        return step_input(self.options, grid, step, *rows.take())

    def _check_all(self) -> None:
        """Check that slot, publication and columns exist."""
        with Session(self.options) as session:
            self._check(session)
            self._slot_place(session)
            relation = session.relation(str(self.options.table))
            wanted_columns(relation.types, self.options, self._columns, session.where)

    def _survey(self, session: Session, place: _StepFinder, last: int, upto: int) -> _Survey:
        survey, relation = _Survey(upto), session.relation(str(self.options.table))
        ours, begin, counted = {relation.oid}, Begin(0, 0), False
        for data in self._peek(session, survey.read, _HEAD):
            message = self._message(session, data, whole=False)
            if isinstance(message, Begin):
                begin, counted = message, False
            elif isinstance(message, Described):
                if f"{quoted(message.schema)}.{quoted(message.name)}" == relation.name:
                    ours.add(message.oid)
            elif message is not None and not ours.isdisjoint(message.oids):
                step = 0 if counted or begin.commit >= survey.read else place.step(begin, session.where)
                counted = True
                if step > 0:
                    if isinstance(message, Change) and message.oid != relation.oid:
                        raise DataError(
                            "another table took this name before all changes were released",
                            where=session.where,
                            allowed="the old table until then",
                        )
                    # Steps that are not due yet count as one: only the place where they begin matters.
                    survey.add(min(step, last + 1), begin.commit)
        return survey

    def _collect(
        self, session: Session, place: _StepFinder, survey: _Survey, step: int, rows: ChangedRows
    ) -> None:
        chosen = False
        # The server stops behind the first record that reaches this place.
        for data in self._peek(session, survey.last[step] + 1, 2**30):
            message = self._message(session, data)
            if isinstance(message, Begin):
                # None, so that this cannot raise: a late transaction may change only other tables.
                chosen = place.step(message, None) == step
            elif isinstance(message, Described):
                rows.describe(message)
            elif chosen and isinstance(message, Change | Truncate):
                rows.add(message)

    def _message(self, session: Session, data: bytes, *, whole: bool = True) -> Any:
        try:
            return parse(data, whole=whole)
        except (ValueError, UnicodeDecodeError):
            raise DataError(
                "unreadable change feed", where=session.where, allowed="pgoutput, protocol version 1"
            ) from None

    def _peek(self, session: Session, upto: int, length: int) -> Iterator[bytes]:
        """The first ``length`` bytes of each message from the slot's place on. The slot is not moved.

        Errors:
            UnreadableError: somebody else moved the slot meanwhile.
        """
        slot, publication = str(self.options.slot), str(self.options.publication)
        # A list of names, quoted as identifiers.
        names = '"' + publication.replace('"', '""') + '"'
        before = self._slot_place(session)
        with session.transaction():
            for block in session.stream(_PEEK, (length, slot, _lsn(upto), names), binary=True, size=_ROWS):
                for (data,) in block:
                    yield bytes(data)
        if self._slot_place(session) != before:
            raise UnreadableError(
                "another reader moved the slot",
                where=self._where(),
                allowed=_ALONE,
            )

    def _slot_place(self, session: Session) -> int:
        """The place in the log up to which the slot's changes are consumed.

        Errors:
            ConfigError: the database lacks the slot. StepError: the server removed changes that the slot
                had not given out.
        """
        answer = session.rows(
            "SELECT plugin::text, database = current_database(), coalesce(wal_status, '') = 'lost', "
            "(confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s",
            (self.options.slot,),
        )
        if not answer or answer[0][0] != "pgoutput" or not answer[0][1]:
            raise ConfigError(
                f"the database lacks a slot {self.options.slot!r} of the plugin pgoutput",
                where="[source] slot",
                allowed=f"SELECT pg_create_logical_replication_slot('{self.options.slot}', 'pgoutput'), after the "
                "publication, before the first period",
            )
        if answer[0][2] or answer[0][3] is None:
            raise StepError(
                "the server removed needed log (max_slot_wal_keep_size): changes are lost",
                where=self._where(),
                allowed=_ANEW,
            )
        return int(answer[0][3])

    def _advance(self, session: Session, done: int) -> None:
        place = self._slot_place(session)
        if place > done:
            raise StepError(
                "the slot is ahead of the released steps: changes are lost",
                where=self._where(),
                allowed=f"{_ALONE}; else {_ANEW}",
            )
        if place < done:
            session.rows(
                "SELECT end_lsn FROM pg_replication_slot_advance(%s, %s::pg_lsn)",
                (self.options.slot, _lsn(done)),
            )

    def _check(self, session: Session) -> None:
        """Check that the publication sends every change of the table, with old rows.

        Errors:
            ConfigError: it does not; ``allowed`` is the SQL statement that mends it.
        """
        relation = session.relation(str(self.options.table))
        name = self.options.publication
        answer = session.rows(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication "
            "WHERE pubname = %s",
            (name,),
        )
        listed = session.rows(
            "SELECT 1 FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname "
            "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename "
            "WHERE t.pubname = %s AND c.oid = %s::oid",
            (name, relation.oid),
        )
        if not answer or not answer[0][0] or not listed:
            raise ConfigError(
                f"the publication {name!r} must send inserts, updates, deletes and truncations",
                where="[source] publication",
                allowed=f'CREATE PUBLICATION "{name}" FOR TABLE {relation.name} (partitioned: WITH '
                "(publish_via_partition_root = true))",
            )
        self._check_identity(session, relation)

    def _check_identity(self, session: Session, relation: Relation) -> None:
        """Check that the log has the whole old row of an update or a delete (ConfigError)."""
        partial = session.rows(
            "SELECT 1 FROM pg_partition_tree(%s::oid) t JOIN pg_class c ON c.oid = t.relid "
            "WHERE t.isleaf AND c.relreplident <> 'f'",
            (relation.oid,),
        )
        if not relation.full or partial:
            raise ConfigError(
                "the log lacks old rows",
                where="[source] table",
                allowed=f"ALTER TABLE {relation.name} REPLICA IDENTITY FULL (partitions too), before the slot",
            )

    def _where(self) -> str:
        return f"PostgreSQL, slot {self.options.slot}"


class _StepFinder:
    """Finds the step of each transaction, by its own commit time and by whether the log had it already at ``seen``."""

    def __init__(
        self, grid: Grid, start: int, seen: Mapping[str, int] | None, options: SourceOptions
    ) -> None:
        self.grid, self.start, self.seen = grid, start, seen
        self._read = None if seen is None else seen[_READ]
        self._late = options.late

    def step(self, begin: Begin, where: str | None) -> int:
        """The transaction's step; 0 where it is in a released step already or belongs to no step.

        Errors:
            DataError: with ``late = "error"`` the transaction is late, and ``where`` is not None.
        """
        own = self.grid.step(commit_day(begin.moment))
        if own >= self.start:
            return own
        if own < 1 or self._read is None or begin.commit < self._read:
            return 0  # before the public start, or in a released step already
        if self._late == "next-step":
            return self.start
        if self._late == "error" and where is not None:
            raise DataError(
                "a change falls into a released step (the server's clock went back)",
                where=where,
                allowed='[source] late = "next-step" or "drop-and-count-nothing"',
            )
        return 0


def _written(session: Session) -> int:
    """The place up to which the log is on the server's disk, after all commits so far (only that can be decoded)."""
    session.flush()
    return int(session.one("SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint"))


def _lsn(place: int) -> str:
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


class KeyedChangeSource(ChangeSource):
    """Private changes of one table by the key of its rows. Guarantee, memory and cost as of ``ChangeSource``.

    An update that changes the key is a delete of the old key and an insert of the new one. If a transaction changes a
    row several times, each change is handed out, in order.

    Errors: those of ``ChangeSource``; ConfigError: the log does not hold the key of updated and deleted rows.
    """

    _collector = _KeyedRows

    def _check_identity(self, session: Session, relation: Relation) -> None:
        key = str(self.options.key_column)
        leaves = session.rows(
            "SELECT relid::bigint FROM pg_partition_tree(%s::oid) WHERE isleaf", (relation.oid,)
        )
        fits = session.rows(
            "SELECT c.relreplident = 'f' OR coalesce((SELECT array_agg(a.attname::text) = ARRAY[%s] "
            "FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN "
            "i.indisreplident ELSE false END), false) FROM pg_class c WHERE c.oid = ANY(%s::oid[])",
            # A table without partitions has no leaves.
            (key, [leaf for (leaf,) in leaves] or [relation.oid]),
        )
        if not all(named for (named,) in fits):
            raise ConfigError(
                f"the log lacks the {key!r} of updated and deleted rows",
                where="[source] key_column",
                allowed=f'PRIMARY KEY ("{key}"), REPLICA IDENTITY USING INDEX of a unique index on it, or '
                f"FULL (ALTER TABLE {relation.name}, partitions too), before the slot",
            )

    def _entry(self, grid: Grid, step: int, rows: ChangedRows) -> StepInput:
        keyed = KeyedBatch(
            rows.events(), str(self.options.key_column), rows.word, rules=self.options.key_rules
        )
        return StepInput(step, grid.batch_id(step), grid.period(step), None, None, keyed=keyed)
