"""The queue: what the worker is to do, in order. A task is begun, done, and only then marked: it may be done twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpstream.service.desk.facts import Task, canonical, now
from dpstream.stream.store.store_database import StoreDatabase

_COLUMNS = "number, stream, kind, what, person, made, state, decision, result, why, ended"


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
    row = db.execute(
        f"SELECT {_COLUMNS} FROM tasks WHERE stream = ? AND state IN ('waiting', 'begun') ORDER BY number LIMIT 1",
        (stream,),
    ).fetchone()
    return None if row is None else _task(row)


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
