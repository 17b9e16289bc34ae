"""A PostgreSQL table's changes by key, by logical replication.

The default replica identity is enough: a delete is logged with the primary key alone, an update with the new row.
"""

from __future__ import annotations

from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.core.tables import KeyedBatch
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.keyed_operations import DELETE, INSERT, UPDATE
from dpstream.io.sources.keyed_options import key_rules
from dpstream.io.sources.keyed_source import free_name
from dpstream.io.sources.pg_session import Relation, Session, text_table
from dpstream.io.sources.pgoutput import Change, Tuple
from dpstream.io.sources.replication import ChangedRows, ChangeSource
from dpstream.io.sources.step import StepInput
from dpstream.io.sources.table import wanted_columns


class KeyedChangeSource(ChangeSource):
    """Private changes of one table by the key of its rows. Guarantee, memory and cost as of ``ChangeSource``.

    An update that changes the key is a delete of the old key and an insert of the new one. If a transaction changes a
    row several times, each change is handed out, in order.

    Errors: those of ``ChangeSource``; ConfigError: the log does not hold the key of updated and deleted rows.
    """

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
                f"the log does not hold the {key!r} of updated and deleted rows",
                where="[source] key_column",
                allowed=f'PRIMARY KEY ("{key}"), or ALTER TABLE {relation.name} REPLICA IDENTITY USING INDEX of a '
                "unique index on this column alone, or REPLICA IDENTITY FULL (each partition too), before the slot is "
                "made",
            )

    def _rows(self, relation: Relation, where: str) -> ChangedRows:
        key = str(self.options.key_column)
        columns = [*self._columns, key] if self._columns else ()
        return _KeyedRows(relation, wanted_columns(relation, self.options, columns), where, key)

    def _entry(self, grid: Grid, step: int, rows: ChangedRows) -> StepInput:
        assert isinstance(rows, _KeyedRows)
        keyed = KeyedBatch(*rows.events(), rules=key_rules(self.options))
        return StepInput(step, grid.batch_id(step), grid.period(step), None, None, keyed=keyed)


class _KeyedRows(ChangedRows):
    """Collects one step's changes in their order: the operation, and the new row (of a delete: only the key)."""

    def __init__(self, relation: Relation, names: list[str], where: str, key: str) -> None:
        super().__init__(relation, names, where)
        self._key = names.index(key)
        self._changes: list[list[str | None]] = []
        self._words: list[str] = []
        self._tables: list[Any] = []

    def events(self) -> tuple[Any, str, str]:
        """All changes as a table, and the names of its key column and of its operation column."""
        import pyarrow as pa

        self._flush()
        name = free_name("operation", self._names)
        empty = self._schema.append(pa.field(name, pa.string())).empty_table()
        return pa.concat_tables([empty, *self._tables]), self._names[self._key], name

    def _change(self, message: Change) -> None:
        before = message.old if message.old is not None else message.key
        gone = None if before is None else self._key_of(before)
        if message.new is None:
            self._append(DELETE, self._key_only(gone))
            return
        row = self._cells(message.new, message.old)
        if message.kind == "U" and gone is not None and gone != row[self._key]:
            self._append(DELETE, self._key_only(gone))
            self._append(INSERT, row)
        else:
            self._append(UPDATE if message.kind == "U" else INSERT, row)

    def _key_of(self, row: Tuple) -> str | None:
        """The row's key as text. The log may hold nothing else of the row."""
        value = row[self._indices[self._key]]
        return self._text(value, self._names[self._key])

    def _key_only(self, key: str | None) -> list[str | None]:
        return [key if number == self._key else None for number in range(len(self._names))]

    def _append(self, word: str, row: list[str | None]) -> None:
        self._changes.append(row)
        self._words.append(word)
        if len(self._changes) >= 2**14:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._changes:
            table = text_table(self._changes, self._schema)
            name = free_name("operation", self._names)
            self._tables.append(table.append_column(name, pa.array(self._words, pa.string())))
            self._changes, self._words = [], []
