"""The files of one release: a table drawn anew, or the last one changed as little as possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import Synthesis
from dpstream.core.tables.change_tables import content_sha256
from dpstream.io.sinks.drawing import DRAWN_TABLE, drawn_table
from dpstream.io.sinks.publisher import MEASUREMENTS
from dpstream.io.sinks.staged_file import Content
from dpstream.stream.release import table_blocks
from dpstream.stream.release.label import Label, labelled
from dpstream.stream.release.persistent_records import PersistentRecords, carry, records_before
from dpstream.stream.release.publishing import (
    MAX_ROWS,
    MAX_ROWS_WHOLE,
    Publishing,
    keep_for_changes,
    record_facts,
)
from dpstream.stream.release.sink import Sink
from dpstream.stream.store.store import Store
from dpstream.stream.store.store_database import file_errors

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
        carried: for the next step.
        facts: about persistent records, for the manifest.
        keep: how many of the last steps keep their files; None for all.
        block: rows of a block, where the table was drawn in blocks.
    """

    files: dict[str, Content]
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


def _readers_follow(store: Store, policy: Publishing, sink: Sink | None, step: int) -> bool:
    """Whether readers have the table of the step before, or get it before this one. Changes since any other table
    would publish that table: it is this one less the inserts plus the deletes."""
    if sink is None or step == 1:
        return True
    before = store.find(step=step - 1)
    known = ("pending", "published", "expiring", "expired", *(("held",) if policy.approve else ()))
    return before is not None and before.publication in known


def measurement_file(policy: Publishing, sink: Sink | None, synthesis: Synthesis) -> dict[str, bytes]:
    """What the step measured, one JSON object a line; no file where it measured nothing, or nobody may read it.

    Nothing is taken out of it again: sums of later steps rest on it. It stays when a table expires or is withdrawn; a
    step that is held publishes it with its table, and a rejected step never does.
    """
    if sink is None or not policy.measurements or not synthesis.noisy_counts:
        return {}
    return {MEASUREMENTS: "".join(f"{one.line()}\n" for one in synthesis.noisy_counts).encode()}


def rows_of(synthesis: Synthesis, schema: Schema, policy: Publishing, sink: Sink | None) -> int:
    """Rows of the released table, cut by a public rule."""
    if policy.max_rows is not None:
        return synthesis.rows(schema, policy.max_rows)
    most = synthesis.rows(schema, MAX_ROWS)
    whole = synthesis.rows(schema, MAX_ROWS_WHOLE)
    if most == whole:
        return most
    persists = policy.records != "fresh" and synthesis.answers is not None
    if sink is None or sink.reads_whole or persists or synthesis.grows is not None:
        return whole
    return whole if synthesis.blocks(most, 0, table_blocks.BLOCK) is None else most


def make_files(
    policy: Publishing,
    store: Store,
    sink: Sink | None,
    schema: Schema,
    before: tuple[Carried, Callable[[int], Synthesis | None]],
    synthesis: Synthesis,
    *,
    step: int,
    rows: int,
    seed: int,
    label: Label,
    keyed: bool,
) -> ReleaseFiles:
    """Render what ``policy`` publishes of a step.

    Args:
        keyed: whether the private records have keys, and are updated.
        before: what the step before carried over, and what gives the synthesis of an earlier step.
    """
    carried, synthesis_of = before
    added_to, after = synthesis.grows, synthesis.answers
    follows = _readers_follow(store, policy, sink, step)
    if added_to is not None:
        table = added_to.table(schema)
        facts = {**added_to.facts(), "content_sha256": content_sha256(table)}
        additions = (lambda: added_to.additions(schema)) if follows else None
        files, keep = _rendered(policy, store, sink, step, table, label, additions)
        return ReleaseFiles(files, Carried(), facts, keep)
    if policy.records == "fresh" or after is None:
        carries, block = Carried(None, carried.next_id), table_blocks.BLOCK
        if sink is None:
            return ReleaseFiles({}, carries, None, policy.keep)
        if sink.draws_tables:
            # Not before the step is committed: what is drawn elsewhere could be read there.
            size = block if rows > block and synthesis.blocks(rows, seed, block) is not None else None
            told = {DRAWN_TABLE: drawn_table(step, rows, seed, size)}
            return ReleaseFiles({**told}, carries, None, policy.keep, size)
        blocks = None
        if rows > block:
            blocks = table_blocks.decoded_blocks(synthesis, schema, rows, seed, block, dictionaries=True)
        if blocks is None:
            whole = sink.render(labelled(synthesis.released(schema, rows, seed), label))
            return ReleaseFiles({**whole}, carries, None, policy.keep)
        with file_errors("the released table could not be written", store.path):
            files = table_blocks.write_blocks(
                sink, store.staging, step, schema, label, blocks, sealing=store.sealing
            )
        return ReleaseFiles(files, carries, None, policy.keep, block)
    start = records_before(carried.records, synthesis_of, step)
    may_change = _columns_that_change(policy, store, schema, step, keyed if start is None else None)
    made = carry(start, after, schema, rows, seed, first_id=carried.next_id, may_change=may_change)
    if not follows:
        made = replace(made, changes=None, deletes=0, inserts=rows, updates=0)
    changes = None if made.changes is None else lambda: made.changes
    files, keep = _rendered(policy, store, sink, step, made.records.with_ids, label, changes)
    return ReleaseFiles(
        files, Carried(made.records, made.records.next_id), record_facts(made, step, may_change), keep
    )


def _columns_that_change(
    policy: Publishing, store: Store, schema: Schema, step: int, begins: bool | None
) -> tuple[str, ...]:
    """The columns in which a record may change and keep its id, by a public rule: readers of a feed that has had no
    updates get none unless the owner says so.

    Args:
        begins: where records begin to persist with this step, whether they may change; else None.
    """
    if policy.may_change is not None:
        return schema.names if policy.may_change == "any" else policy.may_change
    if begins is not None:
        return schema.names if begins else ()
    before = store.find(step=step - 1)
    facts = {} if before is None else json.loads(before.manifest).get("records") or {}
    return tuple(facts.get("may_change", ()))


def _rendered(
    policy: Publishing,
    store: Store,
    sink: Sink | None,
    step: int,
    table: Any,
    label: Label,
    changes: Callable[[], Any] | None,
) -> tuple[dict[str, Content], int | None]:
    """The files of a table that follows from the one before it, and how many steps keep theirs.

    Args:
        changes: since the table before; None where there is none that readers have.
    """
    files: dict[str, Content] = {}
    keep = policy.keep
    if sink is None:
        return files, keep
    names = _names_around(store, policy, step)
    if changes is None or policy.full_table(step, names):
        files |= sink.render(labelled(table, label))
    if changes is not None and policy.publish != "full":
        files |= sink.render_changes(labelled(changes(), label))
    if keep is not None and policy.publish == "changes":
        keep = keep_for_changes(step, keep, {**names, step: set(files)})
    return files, keep
