"""The decisions' log: what ``ledger verify`` finds of a change in the database, and what it cannot find."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from cli_stream import invoke
from desks import ANNA, OWNER, make_service, tell

from dpstream.core.errors import StoreDamagedError
from dpstream.service.desk import Desk
from dpstream.service.desk.decisions import HEAD, decision_hash, write_head
from dpstream.service.desk.worker import Worker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three decisions with tasks, seen by the worker, and a fourth without one."""
    made = make_service(tmp_path / "service")
    desk = Desk.open(made)
    tell(desk, held={1: "a", 2: "b", 3: "c"})
    for step in (1, 2, 3):
        desk.decide(ANNA, "test", step, "approve", f"looked at {step}")
    with desk.database.reading() as db:
        write_head(made, db)
    desk.add_person(OWNER, "Zoe", ["analyst"])
    return made


def verify(folder: Path) -> tuple[int, str]:
    result = invoke("ledger", "verify", folder)
    return result.exit_code, result.output


def rewrite(folder: Path, *statements: str) -> None:
    db = sqlite3.connect(folder / "service.sqlite")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def test_a_sound_log_prints_the_hash_to_keep(folder: Path) -> None:
    code, told = verify(folder)
    assert code == 0, told
    last = Desk.open(folder).decisions(OWNER)[-1]
    assert decision_hash(last.line()) in told
    shown = json.loads(invoke("ledger", "verify", folder, "--json").output)
    assert (shown["sound"], shown["decisions"], shown["service"]) == (True, 4, "office")


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE decisions SET line = replace(line, 'at 2', 'at 9') WHERE number = 2", "was changed"),
        ("DELETE FROM decisions WHERE number = 2", "decision 3 lacks the line before"),
        ("UPDATE decisions SET number = 9 WHERE number = 4", "decision 9 was changed"),
        ("UPDATE decisions SET line = 'x' WHERE number = 3", "decision 3 cannot be read"),
        # Its last lines: found by the worker's head, and by the tasks that follow from them.
        ("DELETE FROM decisions WHERE number >= 3", "task 3 lacks its decision 3"),
        ("DELETE FROM decisions WHERE number >= 3", "the log ends before decision 3, seen by the worker"),
        # Tasks that say something else than their decisions: put in, or changed.
        (
            "INSERT INTO tasks (number, stream, kind, what, person, made, state, decision) SELECT 9, stream, kind, "
            "replace(what, '\"step\":1', '\"step\":6'), person, made, 'waiting', 4 FROM tasks WHERE number = 1",
            "task 9 contradicts decision 4",
        ),
        ("UPDATE tasks SET what = replace(what, 'Anna', 'Ben') WHERE number = 2", "task 2 contradicts"),
        ("UPDATE tasks SET kind = 'reject' WHERE number = 3", "task 3 contradicts decision 3"),
        ("UPDATE tasks SET what = '[' WHERE number = 3", "task 3 contradicts decision 3"),
    ],
)
def test_a_changed_log_is_found(folder: Path, statement: str, finding: str) -> None:
    rewrite(folder, statement)
    code, told = verify(folder)
    assert code == 4
    assert finding in told


def test_a_line_that_cannot_be_read_stops_decisions_with_a_sentence(folder: Path) -> None:
    rewrite(folder, "UPDATE decisions SET line = '{}' WHERE number = 3")
    desk = Desk.open(folder)
    for act in (lambda: desk.decisions(OWNER), lambda: desk.decide(ANNA, "test", 1, "reject", "no")):
        with pytest.raises(StoreDamagedError, match="a decision cannot be read"):
            act()
    assert "database is missing" in verify(make_service(folder / "other"))[1]


def test_what_was_changed_with_its_hash_breaks_the_next_line(folder: Path) -> None:
    line = Desk.open(folder).decisions(OWNER)[1].line().replace("looked at 2", "looked at 9")
    rewrite(folder, f"UPDATE decisions SET line = '{line}', hash = '{decision_hash(line)}' WHERE number = 2")
    code, told = verify(folder)
    assert code == 4
    assert "decision 3 contradicts the line before" in told


def test_the_worker_keeps_what_it_saw_and_does_no_task_of_a_log_that_was_cut(tmp_path: Path) -> None:
    folder = make_service(tmp_path / "cut", steps=1)
    desk = Desk.open(folder)
    lines: list[str] = []
    worker = Worker(desk, lambda: 2e9, lines.append)
    while worker.round():
        pass
    desk.add_person(OWNER, "Zoe", ["analyst"])
    desk.add_person(OWNER, "Yan", ["analyst"])
    worker.round()  # nobody is about to do a task, and the worker has seen both lines
    head = (folder / HEAD).read_bytes()
    rewrite(folder, "DELETE FROM decisions WHERE number = 2")
    desk.decide(ANNA, "test", 1, "approve")
    worker.round()
    assert (folder / HEAD).read_bytes() == head
    assert [one.state for one in desk.tasks(OWNER, "test")] == ["waiting"]
    trouble = desk.card(OWNER, "test").trouble or ""
    assert "tasks stop" in trouble
    assert json.loads(lines[-1])["state"] == "changed"
    assert verify(folder)[0] == 4
    (folder / HEAD).unlink()  # whoever owns the service has looked
    worker.round()
    worker.close()
    assert [one.state for one in desk.tasks(OWNER, "test")] == ["done"]
    assert desk.card(OWNER, "test").trouble is None


def test_what_cannot_be_found(folder: Path) -> None:
    """A last line that no task follows from and that the worker has not seen; and everything cut, the head included:
    then only the hash that somebody kept differs."""
    before = verify(folder)[1]
    rewrite(folder, "DELETE FROM decisions WHERE number = 4")
    code, told = verify(folder)
    assert code == 0
    assert told != before
    rewrite(folder, "DELETE FROM decisions WHERE number = 3", "DELETE FROM tasks WHERE number = 3")
    assert verify(folder)[0] == 4
    (folder / HEAD).unlink()
    assert verify(folder)[0] == 0
