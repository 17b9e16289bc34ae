"""The files of one release: a table drawn anew, or the last one changed as little as possible; and the files of
published steps, made again from the stored model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import Synthesis
from dpstream.core.errors import StoreError
from dpstream.io.sinks.change_tables import content_sha256
from dpstream.io.sinks.drawing import DRAWN_TABLE, Drawing, drawn_table
from dpstream.io.sinks.publisher import Publisher
from dpstream.io.sinks.table_files import Content, StagedFile, sha256_of
from dpstream.io.sinks.target import MEASUREMENTS, MODEL
from dpstream.stream.release import table_blocks
from dpstream.stream.release.manifest import DRAWN, Label, labelled
from dpstream.stream.release.persistent_records import PersistentRecords, carry, records_before
from dpstream.stream.release.publishing import (
    MAX_ROWS,
    MAX_ROWS_WHOLE,
    Publishing,
    keep_for_changes,
    record_facts,
)
from dpstream.stream.release.sampling import model_file
from dpstream.stream.release.table_blocks import drawing, write_blocks
from dpstream.stream.store.store import Store
from dpstream.stream.store.store_database import UNSEALED, Sealing, file_errors

if TYPE_CHECKING:
    from dpstream.core.schema import Schema


@dataclass(frozen=True)
class Carried:
    """What a release hands on to the next one: the records, where they persist, and the first free id."""

    records: PersistentRecords | None = None
    next_id: int = 1


@dataclass(frozen=True)
class ReleaseFiles:
    """The released files of a step.

    Attributes:
        rows: of the table.
        carried: for the next step.
        facts: about persistent records, for the manifest.
        keep: how many of the last steps keep their files; None for all.
        block: rows of a block, where the table was drawn in blocks.
    """

    files: dict[str, Content]
    rows: int
    carried: Carried
    facts: dict[str, Any] | None
    keep: int | None
    block: int | None = None


def steps_to_keep(policy: Publishing, store: Store) -> int | None:
    """How many of the last committed steps ``policy`` keeps. Changes are kept with the tables that they change."""
    if policy.keep is None or policy.publish != "changes":
        return policy.keep
    return keep_for_changes(store.last_step, policy.keep, _names_around(store, policy, store.last_step))


def _names_around(store: Store, policy: Publishing, step: int) -> dict[int, set[str]]:
    """The files of the steps that decide what ``step`` publishes and keeps: the last ones, and those around the oldest
    one that is kept. What is between them grows with ``keep``, and is not looked at."""
    names = store.file_names_of(step - policy.full_every, step)
    if policy.keep is not None:
        oldest = step - policy.keep + 1
        names |= store.file_names_of(oldest - 1 - policy.full_every, oldest)
    return names


class Renderer:
    """Makes the released files of a stream's steps.

    Args:
        sink: where releases go; None: nowhere.
        schema_at: the released columns of a step.
        drawn: what the table of an earlier step was drawn from, and the seed; None where they were dropped.
        keyed: whether the private records have keys, and are updated.
    """

    def __init__(
        self,
        policy: Publishing,
        store: Store,
        sink: Publisher | None,
        schema_at: Callable[[int], Schema],
        drawn: Callable[[int], tuple[Synthesis, int] | None],
        *,
        keyed: bool,
    ) -> None:
        self._policy, self.store, self.sink, self.schema_at = policy, store, sink, schema_at
        self.drawn, self._keyed = drawn, keyed

    def synthesis_of(self, step: int) -> Synthesis | None:
        """The stored model of an earlier step; None where it was dropped."""
        drawn = self.drawn(step)
        return None if drawn is None else drawn[0]

    def files(
        self, synthesis: Synthesis, carried: Carried, step: int, seed: int, label: Label
    ) -> ReleaseFiles:
        """What the policy publishes of a step.

        Args:
            carried: what the step before hands on.
        """
        schema = self.schema_at(step)
        rows = self._rows(synthesis, schema)
        added_to, after = synthesis.grows, synthesis.answers
        follows, beside = self._readers_follow(step), self._measurements(synthesis)
        if self.sink is not None and self._policy.model:
            beside |= model_file(synthesis, schema, step)
        if added_to is not None:
            table = added_to.table(schema)
            facts = {**added_to.facts(), "content_sha256": content_sha256(table)}
            additions = (lambda: added_to.additions(schema)) if follows else None
            files, keep = self._followed(step, table, label, additions)
            return ReleaseFiles(files | beside, rows, Carried(), facts, keep)
        if self._policy.records == "fresh" or after is None:
            carries, block = Carried(None, carried.next_id), table_blocks.BLOCK
            if self.sink is None:
                return ReleaseFiles({}, rows, carries, None, self._policy.keep)
            drawn = drawing(synthesis, schema, rows, seed, block if rows > block else None, label)
            with file_errors("the released table could not be written", self.store.path):
                files = drawn_files(self.sink, self.store, step, drawn, label, sealing=self.store.sealing)
            return ReleaseFiles(files | beside, rows, carries, None, self._policy.keep, drawn.block)
        start = records_before(carried.records, self.synthesis_of, step)
        may_change = self._columns_that_change(step, begins=start is None)
        made = carry(start, after, schema, rows, seed, first_id=carried.next_id, may_change=may_change)
        if not follows:
            made = replace(made, changes=None, deletes=0, inserts=rows, updates=0)
        changes = None if made.changes is None else lambda: made.changes
        files, keep = self._followed(step, made.records.with_ids, label, changes)
        carries, facts = Carried(made.records, made.records.next_id), record_facts(made, step, may_change)
        return ReleaseFiles(files | beside, rows, carries, facts, keep)

    def _rows(self, synthesis: Synthesis, schema: Schema) -> int:
        """Rows of the released table, cut by a public rule."""
        policy, sink = self._policy, self.sink
        if policy.max_rows is not None:
            return synthesis.rows(schema, policy.max_rows)
        most = synthesis.rows(schema, MAX_ROWS)
        whole = synthesis.rows(schema, MAX_ROWS_WHOLE)
        if most == whole:
            return most
        persists = policy.records != "fresh" and synthesis.answers is not None
        if sink is None or sink.targets[-1].takes == "whole" or persists or synthesis.grows is not None:
            return whole
        return whole if synthesis.blocks(most, 0, table_blocks.BLOCK) is None else most

    def _measurements(self, synthesis: Synthesis) -> dict[str, Content]:
        """What the step measured, one JSON object a line; no file where it measured nothing, or nobody may read it.

        Nothing is taken out of it again: sums of later steps rest on it. It stays when a table expires or is withdrawn;
        a step that is held publishes it with its table, and a rejected step never does.
        """
        if self.sink is None or not self._policy.measurements or not synthesis.noisy_counts:
            return {}
        return {MEASUREMENTS: "".join(f"{one.line()}\n" for one in synthesis.noisy_counts).encode()}

    def _readers_follow(self, step: int) -> bool:
        """Whether readers have the table of the step before, or get it before this one. Changes since any other table
        would publish that table: it is this one less the inserts plus the deletes."""
        if self.sink is None or step == 1:
            return True
        before = self.store.find(step=step - 1)
        known = ("pending", "published", "expiring", "expired", *(("held",) if self._policy.approve else ()))
        return before is not None and before.publication in known

    def _columns_that_change(self, step: int, *, begins: bool) -> tuple[str, ...]:
        """The columns in which a record may change and keep its id, by a public rule: readers of a feed that has had no
        updates get none unless the owner says so.

        Args:
            begins: whether records begin to persist with this step.
        """
        names, chosen = self.schema_at(step).names, self._policy.may_change
        if chosen is not None:
            return names if chosen == "any" else chosen
        if begins:
            return names if self._keyed else ()
        before = self.store.find(step=step - 1)
        facts = {} if before is None else json.loads(before.manifest).get("records") or {}
        return tuple(facts.get("may_change", ()))

    def _followed(
        self, step: int, table: Any, label: Label, changes: Callable[[], Any] | None
    ) -> tuple[dict[str, Content], int | None]:
        """The files of a table that follows from the one before it, and how many steps keep theirs.

        Args:
            changes: since the table before; None where there is none that readers have.
        """
        policy, sink, files = self._policy, self.sink, dict[str, Content]()
        keep = policy.keep
        if sink is None:
            return files, keep
        names = _names_around(self.store, policy, step)
        if changes is None or policy.full_table(step, names):
            files |= sink.render(labelled(table, label))
        if changes is not None and policy.publish != "full":
            files |= sink.render_changes(labelled(changes(), label))
        if keep is not None and policy.publish == "changes":
            keep = keep_for_changes(step, keep, {**names, step: set(files)})
        return files, keep


def drawn_files(
    sink: Publisher, store: Store, step: int, drawn: Drawing, label: Label, *, sealing: Sealing = UNSEALED
) -> dict[str, Content]:
    """The files of a table that is drawn anew.

    Args:
        sealing: see ``write_blocks``.
    """
    if sink.draws_tables:
        # Not before the step is committed: what is drawn elsewhere could be read there.
        return {DRAWN_TABLE: drawn_table(step, drawn.rows, drawn.seed, drawn.block)}
    if drawn.blocks is None:
        assert drawn.whole is not None
        return {**sink.render(labelled(drawn.whole(), label))}
    return write_blocks(sink, store.staging, step, drawn, sealing)


# Released files that wait on the disk, or are made again from what the store keeps, byte for byte.
#
# Once a step is published its bytes leave the store; those of a large table were never in it. What they were made from
# stays, as long as the keep policy keeps the table; nothing private is in it. A file whose hash is not
# the committed one is never given.


class NotMadeError(StoreError):
    """A file of a committed step is gone, and cannot be made again with the committed bytes."""


class RemadeFiles:
    """Makes files of committed steps again; quickest where steps are asked for in their order.

    Args:
        renderer: of a stream that has a sink.
        last: the records of the last step, where records persist.
    """

    def __init__(self, renderer: Renderer, last: PersistentRecords | None) -> None:
        assert renderer.sink is not None
        self._store, self._sink, self._schema_at = renderer.store, renderer.sink, renderer.schema_at
        self._synthesis_of, self._drawn = renderer.synthesis_of, renderer.drawn
        self._last = last
        #: The step made last, its files and its table; where records persist, also the records and the first free id.
        self._step = 0
        self._files: Mapping[str, Content] = {}
        self._table: Any = None
        self._records: PersistentRecords | None = None
        self._next_id = 1

    def file(self, step: int, name: str) -> Content:
        """One file of a committed step. A file that waits on the disk stays there until the store is swept.

        Errors:
            NotMadeError: it cannot be made again with the committed bytes.
        """
        digest, remembered = self._store.remembered_file(step, name)
        content: Content | None = remembered
        if content is None:
            content = self._store.staging.find(step, name, digest, self._store.sealing)
        if content is None and name == MODEL:
            if (synthesis := self._synthesis_of(step)) is not None:
                content = model_file(synthesis, self._schema_at(step), step).get(name)
        elif content is None:
            if step != self._step or isinstance(self._files.get(name), StagedFile):
                self._make(step)
            content = self._files.get(name)
        if content is None or sha256_of(content) != digest:
            raise NotMadeError(
                f"{name} of step {step} is missing and cannot be made identical",
                where=str(self._sink.directory),
                allowed="the file from a copy; that step's [output] format and program version; or dpstream withdraw",
            )
        return content

    def drawing(self, step: int) -> Drawing:
        """What the table of a committed step is drawn from.

        Errors:
            NotMadeError: its model is gone.
        """
        facts, drawn = json.loads(self._manifest(step)), self._drawn(step)
        if drawn is None:
            raise NotMadeError(
                f"the model of step {step} is gone",
                where=str(self._sink.directory),
                allowed="the partition from a copy; or dpstream withdraw",
            )
        (synthesis, seed), rows, label = drawn, facts["rows_in_table"], facts["label"]
        return drawing(synthesis, self._schema_at(step), rows, seed, facts.get(DRAWN), label)

    def whole(self, step: int) -> Any:
        """The table that a step's changes led to; its manifest has the hash of the content.

        Errors:
            NotMadeError: it cannot be made again.
        """
        if step == self._store.last_step and self._last is not None:
            table = self._last.with_ids
        else:
            if step != self._step:
                self._make(step)
            table = self._table
        records = json.loads(self._manifest(step)).get("records") or {}
        if table is None or content_sha256(table) != records.get("content_sha256"):
            raise NotMadeError(
                f"the whole table of step {step} cannot be made: the database lacks the step before",
                where=str(self._sink.directory),
                allowed="a copy of the database; or that step's program version",
            )
        return table

    def _make(self, step: int) -> None:
        facts = json.loads(self._manifest(step))
        kind = (facts.get("records") or {}).get("kind")
        if kind == "persistent":
            self._follow(step)
            return
        synthesis, schema, label = self._synthesis_of(step), self._schema_at(step), facts["label"]
        self._step, self._files, self._table = step, {}, None
        if synthesis is None:
            return
        if synthesis.grows is None:
            self._files = drawn_files(self._sink, self._store, step, self.drawing(step), label)
            return
        self._table = synthesis.grows.table(schema)
        additions = synthesis.grows.additions(schema)
        self._files = {
            **self._sink.render(labelled(self._table, label)),
            **self._sink.render_changes(labelled(additions, label)),
        }

    def _follow(self, step: int) -> None:
        """Make tables of persistent records, from the first step on: each follows from the one before."""
        if step < self._step:
            self._step, self._records, self._next_id = 0, None, 1
        while self._step < step:
            self._step += 1
            self._advance(self._step)
        if self._records is None and step == self._store.last_step and self._last is not None:
            label = json.loads(self._manifest(step))["label"]
            self._files = self._sink.render(labelled(self._last.with_ids, label))

    def _advance(self, step: int) -> None:
        facts = json.loads(self._manifest(step))
        drawn, records = self._drawn(step), self._records
        self._files, self._table, self._records = {}, None, None
        persistent = facts.get("records") or {}
        after = None if drawn is None else drawn[0].answers
        if drawn is None or after is None or persistent.get("kind") != "persistent":
            return
        before = records_before(records, self._synthesis_of, step)
        rows, seed, label = facts["rows_in_table"], drawn[1], facts["label"]
        schema, may_change = self._schema_at(step), persistent.get("may_change", ())
        made = carry(before, after, schema, rows, seed, first_id=self._next_id, may_change=may_change)
        if before is None and content_sha256(made.records.with_ids) != persistent["content_sha256"]:
            return  # what it follows from was dropped
        self._records, self._next_id = made.records, made.records.next_id
        self._table = made.records.with_ids
        self._files = self._sink.render(labelled(self._table, label))
        if made.changes is not None:
            self._files = {**self._files, **self._sink.render_changes(labelled(made.changes, label))}

    def _manifest(self, step: int) -> bytes:
        return self._store.committed(step).manifest
