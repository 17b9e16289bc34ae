"""What worker and pages exchange: the facts of each stream, its held steps, and the queue of what the worker is to do.

A task is begun, done, and only then marked: it may be done twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from dpstream.service.desk.facts import Card, Task, canonical, now
from dpstream.stream.store.store_database import StoreDatabase

#: What of a stream's facts is on its card; the rest (ledger, account, asked) is for methods of its own.
_ON_CARD = {one.name for one in fields(Card)} - {"name", "needed", "told_at", "pending"}

_COLUMNS = "number, stream, kind, what, person, made, state, decision, result, why, ended"


@dataclass(frozen=True)
class HeldRow:
    """A held step as it is stored. ``rows``: an Arrow IPC file of its table (``whole``), or of rows of its model;
    ``errors``: as of ``Stream.column_errors``, in JSON."""

    step: int
    sha256: str
    manifest: str
    rows: bytes | None
    whole: bool
    errors: str = "{}"


def write_board(
    db: StoreDatabase,
    stream: str,
    facts: Mapping[str, Any],
    fresh: Iterable[HeldRow],
    held: Iterable[int] | None,
) -> None:
    """Replace what is told of a stream.

    Args:
        fresh: held steps that are not stored yet, or with another manifest.
        held: all steps that are held now; others are forgotten. None: it is not known.
    """
    db.execute(
        "INSERT INTO board VALUES (?, ?, ?) ON CONFLICT (stream) DO UPDATE SET told = excluded.told, "
        "facts = excluded.facts",
        (stream, now(), canonical(dict(facts))),
    )
    new = list(fresh)
    gone: set[int] = set() if held is None else {step for step, _ in known_held(db, stream)} - set(held)
    for step in gone | {one.step for one in new}:
        db.execute("DELETE FROM held WHERE stream = ? AND step = ?", (stream, step))
    for one in new:
        db.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?)",
            (stream, one.step, one.sha256, one.manifest, one.rows, int(one.whole), one.errors),
        )


def read_facts(db: StoreDatabase, stream: str) -> tuple[str | None, dict[str, Any]]:
    """When the worker told it, and what; None and nothing where it never did."""
    row = db.execute("SELECT told, facts FROM board WHERE stream = ?", (stream,)).fetchone()
    return (None, {}) if row is None else (str(row[0]), json.loads(row[1]))


def card_of(
    name: str, told: str | None, facts: Mapping[str, Any], needed: int, pending: Iterable[Task]
) -> Card:
    """The card."""
    shown: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in facts.items()
        if key in _ON_CARD
    }
    shown |= {"needed": needed, "told_at": told, "pending": tuple(pending)}
    return Card(name, **shown)


def held_row(db: StoreDatabase, stream: str, step: int, *, rows: bool = False) -> HeldRow | None:
    """A held step; ``rows``: with its table."""
    row = db.execute(
        f"SELECT step, sha256, manifest, {'rows' if rows else 'NULL'}, whole, errors FROM held "
        "WHERE stream = ? AND step = ?",
        (stream, step),
    ).fetchone()
    if row is None:
        return None
    number, digest, manifest, table, whole, errors = row
    return HeldRow(number, digest, manifest, None if table is None else bytes(table), bool(whole), errors)


def known_held(db: StoreDatabase, stream: str) -> set[tuple[int, str]]:
    """The held steps that are stored, with the hashes of their manifests."""
    rows = db.execute("SELECT step, sha256 FROM held WHERE stream = ?", (stream,)).fetchall()
    return {(int(step), str(digest)) for step, digest in rows}


def add_task(
    db: StoreDatabase, stream: str, kind: str, what: Mapping[str, Any], person: str, decision: int
) -> Task:
    """Put a task at the end, in the caller's transaction."""
    (last,) = db.execute("SELECT coalesce(max(number), 0) FROM tasks").fetchone()
    task = Task(int(last) + 1, stream, kind, dict(what), person, now(), "waiting", decision)
    db.execute(
        "INSERT INTO tasks (number, stream, kind, what, person, made, state, decision) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (task.number, stream, kind, canonical(task.what), person, task.made, task.state, decision),
    )
    return task


def read_tasks(db: StoreDatabase, stream: str, *, only_open: bool = False) -> list[Task]:
    """The tasks of a stream, in order."""
    some = "AND state IN ('waiting', 'begun') " if only_open else ""
    rows = db.execute(f"SELECT {_COLUMNS} FROM tasks WHERE stream = ? {some}ORDER BY number", (stream,))
    return [_task(row) for row in rows.fetchall()]


def next_task(db: StoreDatabase, stream: str) -> Task | None:
    """The first task of a stream that is not done."""
    return next(iter(read_tasks(db, stream, only_open=True)), None)


def begin_task(db: StoreDatabase, number: int) -> bool:
    """From now on it cannot be cancelled; False where it was."""
    db.execute("UPDATE tasks SET state = 'begun' WHERE number = ? AND state = 'waiting'", (number,))
    row = db.execute("SELECT state FROM tasks WHERE number = ?", (number,)).fetchone()
    return row is not None and row[0] == "begun"


def end_task(db: StoreDatabase, number: int, result: Mapping[str, Any] | None, why: str | None) -> None:
    """It is done, or it failed and ``why`` says why."""
    db.execute(
        "UPDATE tasks SET state = ?, result = ?, why = ?, ended = ? WHERE number = ?",
        (
            "done" if why is None else "failed",
            None if result is None else canonical(dict(result)),
            why,
            now(),
            number,
        ),
    )


def cancel_tasks(db: StoreDatabase, stream: str, kind: str, step: int, why: str) -> None:
    """Tasks about a step that nobody has begun are not done any more."""
    for task in read_tasks(db, stream, only_open=True):
        if task.kind == kind and task.what.get("step") == step and task.state == "waiting":
            db.execute(
                "UPDATE tasks SET state = 'cancelled', why = ?, ended = ? WHERE number = ?",
                (why, now(), task.number),
            )


def rejection_waits(db: StoreDatabase, stream: str, step: int, manifest: str) -> bool:
    """Whether somebody has rejected the step with that manifest, and the worker has not come to it."""
    return any(
        task.kind == "reject" and task.what["step"] == step and task.what["manifest_sha256"] == manifest
        for task in read_tasks(db, stream, only_open=True)
    )


def _task(row: Any) -> Task:
    task = Task(*row)
    result = None if row[8] is None else json.loads(row[8])
    return replace(task, what=json.loads(row[3]), result=result)
