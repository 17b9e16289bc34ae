"""Released files that wait on the disk, or are made again from what the store keeps, byte for byte.

Once a step is published its bytes leave the store; those of a large table were never in it. What they were made from
stays, as long as the keep policy keeps the table: model, seed and number of rows are public. A file whose hash is not
the committed one is never given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import Synthesis
from dpstream.core.errors import StoreDamagedError, StoreError
from dpstream.core.tables.change_tables import content_sha256
from dpstream.io.sinks.drawing import DRAWN_TABLE, Drawing, drawn_table
from dpstream.io.sinks.publisher import MANIFEST
from dpstream.io.sinks.staged_file import Content, StagedFile, sha256_of
from dpstream.stream.release.label import Label, labelled
from dpstream.stream.release.manifest import DRAWN
from dpstream.stream.release.persistent_records import PersistentRecords, carry, records_before
from dpstream.stream.release.sink import Sink
from dpstream.stream.release.table_blocks import decoded_blocks, drawing, write_blocks
from dpstream.stream.store.store import Store

if TYPE_CHECKING:
    from dpstream.core.schema import Schema


class NotMadeError(StoreError):
    """A file of a committed step is gone, and cannot be made again with the committed bytes."""


class RemadeFiles:
    """Makes files of committed steps again; quickest where steps are asked for in their order.

    Args:
        schema: the released columns.
        synthesis_of: the stored model of a step; None where it was dropped.
        last: the records of the last step, where records persist.
    """

    def __init__(
        self,
        store: Store,
        sink: Sink,
        schema: Schema,
        synthesis_of: Callable[[int], Synthesis | None],
        last: PersistentRecords | None,
    ) -> None:
        self._store = store
        self._sink = sink
        self._schema = schema
        self._synthesis_of = synthesis_of
        self._last = last
        #: The step made last, its files and its table; where records persist, also the records and the first free id.
        self._step = 0
        self._files: Mapping[str, Content] = {}
        self._table: Any = None
        self._records: PersistentRecords | None = None
        self._next_id = 1

    def file(self, step: int, name: str) -> Content:
        """One file of a committed step; also its whole table where it was published as changes. A file that waits on
        the disk stays there until the store is swept.

        Errors:
            NotMadeError: it cannot be made again with the committed bytes.
        """
        if name == MANIFEST:
            return self._manifest(step)
        if name == self._sink.table_name and name not in self._store.file_names(step):
            return self.whole(step)[name]
        digest, remembered = self._store.remembered_file(step, name)
        content: Content | None = remembered
        if content is None:
            content = self._store.staging.find(step, name, digest, self._store.sealing)
        if content is None:
            if step != self._step or isinstance(self._files.get(name), StagedFile):
                self._make(step)
            content = self._files.get(name)
        if content is None or sha256_of(content) != digest:
            raise NotMadeError(
                f"{name} of step {step} is missing, and cannot be made again with the bytes that were committed",
                where=str(self._sink.directory),
                allowed="the file from a copy of the releases; the [output] format and the program's version that it "
                "was made with (a keep policy may have dropped what it followed from); or dpstream withdraw, which "
                "tells readers that it is gone",
            )
        return content

    def drawing(self, step: int) -> Drawing:
        """What the table of a committed step is drawn from.

        Errors:
            NotMadeError: its model is gone.
        """
        facts, synthesis = json.loads(self._manifest(step)), self._synthesis_of(step)
        if synthesis is None:
            raise NotMadeError(
                f"the model of step {step} is gone, and its table cannot be drawn again",
                where=str(self._sink.directory),
                allowed="the partition from a copy of the table; or dpstream withdraw, which tells readers that it is "
                "gone",
            )
        label = facts.get("label")
        rows, seed = facts["rows_in_table"], facts["sampling_seed"]
        return drawing(synthesis, self._schema_of(label), rows, seed, facts.get(DRAWN), label)

    def whole(self, step: int) -> dict[str, bytes]:
        """The files of the table that a step's changes led to; its manifest has the hash of the content.

        Errors:
            NotMadeError: it cannot be made again.
        """
        if step == self._store.last_step and self._last is not None:
            table = self._last.with_ids
        else:
            if step != self._step:
                self._make(step)
            table = self._table
        facts = json.loads(self._manifest(step))
        records = facts.get("records") or {}
        if table is None or content_sha256(table) != records.get("content_sha256"):
            raise NotMadeError(
                f"the whole table of step {step} cannot be made again, and the database does not hold the step before",
                where=str(self._sink.directory),
                allowed="a copy of the database; or the program's version that the step was made with (a keep policy "
                "may have dropped what it followed from)",
            )
        return self._sink.render(labelled(table, facts.get("label")))

    def _make(self, step: int) -> None:
        facts = json.loads(self._manifest(step))
        kind = (facts.get("records") or {}).get("kind")
        if kind == "persistent":
            self._follow(step)
            return
        synthesis = self._synthesis_of(step)
        self._step, self._files, self._table = step, {}, None
        if synthesis is not None:
            rows, seed, label = facts["rows_in_table"], facts["sampling_seed"], facts.get("label")
            schema = self._schema_of(label)
            if self._sink.draws_tables:
                self._files = {DRAWN_TABLE: drawn_table(step, rows, seed, facts.get(DRAWN))}
                return
            if (size := facts.get(DRAWN)) is not None:
                blocks = decoded_blocks(synthesis, schema, rows, seed, size, dictionaries=True)
                assert blocks is not None
                self._files = write_blocks(self._sink, self._store.staging, step, schema, label, blocks)
                return
            self._table = synthesis.released(schema, rows, seed)
            self._files = self._sink.render(labelled(self._table, label))
            if synthesis.grows is not None:
                additions = synthesis.grows.additions(schema)
                self._files = {**self._files, **self._sink.render_changes(labelled(additions, label))}

    def _follow(self, step: int) -> None:
        """Make tables of persistent records, from the first step on: each follows from the one before."""
        if step < self._step:
            self._step, self._records, self._next_id = 0, None, 1
        while self._step < step:
            self._step += 1
            self._advance(self._step)
        if self._records is None and step == self._store.last_step and self._last is not None:
            label = json.loads(self._manifest(step)).get("label")
            self._files = self._sink.render(labelled(self._last.with_ids, label))

    def _advance(self, step: int) -> None:
        facts = json.loads(self._manifest(step))
        synthesis, records = self._synthesis_of(step), self._records
        self._files, self._table, self._records = {}, None, None
        told = facts.get("records") or {}
        after = None if synthesis is None else synthesis.answers
        if after is None or told.get("kind") != "persistent":
            return
        before = records_before(records, self._synthesis_of, step)
        rows, seed, label = facts["rows_in_table"], facts["sampling_seed"], facts.get("label")
        schema, may_change = self._schema_of(label), told.get("may_change", ())
        made = carry(before, after, schema, rows, seed, first_id=self._next_id, may_change=may_change)
        if before is None and content_sha256(made.records.with_ids) != told["content_sha256"]:
            return  # what it follows from was dropped
        self._records, self._next_id = made.records, made.records.next_id
        self._table = made.records.with_ids
        self._files = self._sink.render(labelled(self._table, label))
        if made.changes is not None:
            self._files = {**self._files, **self._sink.render_changes(labelled(made.changes, label))}

    def _schema_of(self, label: Label | None) -> Schema:
        """Before there were labels, real numbers were released with all their digits."""
        return self._schema if label is not None else replace(self._schema, exact=True)

    def _manifest(self, step: int) -> bytes:
        committed = self._store.find(step=step)
        if committed is None:
            raise StoreDamagedError(f"the store knows no step {step}", where=str(self._store.path))
        return committed.manifest
