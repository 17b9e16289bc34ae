"""The worker, and whoever decides, killed before durability calls: each decision takes effect and is logged once."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from desks import ANNA, BEN, OWNER, QUESTIONS, make_service, work
from fault_harness import faults_in, faulty, in_child, kill

from dpstream.project import Config
from dpstream.service.desk import Desk, Task
from dpstream.service.desk.board import end_task
from dpstream.service.desk.worker import Worker
from dpstream.stream import AskingStream

#: Every so many calls; 1 takes all (half a minute; make torture).
STRIDE = int(os.environ.get("DPSTREAM_KILL_STRIDE", "5"))


def life(folder: Path) -> None:
    """Two persons approve, one rejects, then one asks; the worker follows. May be lived again at any point."""
    desk = Desk.open(folder)
    for person in (ANNA, BEN):
        desk.decide(person, "test", 1, "approve")
    desk.decide(ANNA, "test", 2, "reject", "cut")
    work(desk)  # nothing is answered while steps are held
    if not any(one.kind == "ask" for one in desk.decisions(OWNER)):
        desk.ask(OWNER, "test", "zip = 'a'")
    work(desk)


def outcome(folder: Path) -> dict[str, Any]:
    """What came of it; equal for every life that ended."""
    desk = Desk.open(folder)
    with Config.load(folder / "dpstream.toml").open_stream(publish=False) as stream:
        assert isinstance(stream, AskingStream)
        decided = [(one.step, one.kind, one.by) for one in stream.decisions()]
        asked, held, steps = len(stream.asked()), stream.held(), stream.last_step
        spent = stream.standing.asked
    return {
        "log": [(one.number, one.person, one.kind, one.steps) for one in desk.decisions(OWNER)],
        "wrong": desk.check_log()[0],
        "tasks": [(one.number, one.kind, one.state) for one in desk.tasks(OWNER, "test")],
        "decided": decided,
        "state": (asked, spent, held, steps),
        "released": sorted(path.name for path in (folder / "releases").glob("step-*")),
        "card": desk.card(OWNER, "test").held,
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps are held."""
    folder = tmp_path_factory.mktemp("kills") / "prepared"
    make_service(folder, steps=2, approvals=2, mechanism=QUESTIONS, times=3, stream='total = "public"')
    desk = Desk.open(folder)
    for name in ("Anna", "Ben"):
        desk.add_person(OWNER, name, ["approver"])
    work(desk)
    return folder


def test_each_decision_takes_effect_once_whatever_is_killed(prepared: Path, tmp_path: Path) -> None:
    def copied(folder: Path) -> None:
        shutil.copytree(prepared, folder, dirs_exist_ok=True)

    expected: dict[str, Any] = {}
    for folder, name in faults_in(tmp_path, life, calls=slice(1, None, STRIDE), prepare=copied):
        expected = expected or outcome(tmp_path / "undisturbed")
        assert in_child(lambda folder=folder: life(folder)) == 0, (folder.name, name)  # type: ignore[misc]
        assert outcome(folder) == expected, (folder.name, name)
        shutil.rmtree(folder)
    assert expected["log"][2:] == [
        (3, "Anna", "approve", (1,)),
        (4, "Ben", "approve", (1,)),
        (5, "Anna", "reject", (2,)),
        (6, "Olga", "ask", ()),
    ]
    assert expected["tasks"] == [(1, "approve", "done"), (2, "reject", "done"), (3, "ask", "done")]
    assert expected["decided"] == [
        (1, "approved", "Anna, Ben (service, decision 4)"),
        (2, "rejected", "Anna (service, decision 5)"),
    ]
    assert expected["state"] == (1, 1, [], 2)
    assert expected["wrong"] == []
    assert expected["card"] == ()


def test_the_control_a_worker_that_marks_before_it_does_loses_decisions(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    marked_at: list[int] = []

    def marked(self: Worker, task: Task) -> bool:
        with self._desk.database.writing() as db:
            end_task(db, task.number, {}, None)
        marked_at.append(len(seen[0]))
        return True

    monkeypatch.setattr(Worker, "_begun", marked)
    for name in ("whole", "killed"):
        shutil.copytree(prepared, tmp_path / name)
    with faulty(None, kill) as calls:
        seen.append(calls)
        life(tmp_path / "whole")

    def disturbed() -> None:
        with faulty(marked_at[0] + 1, kill):
            life(tmp_path / "killed")

    assert in_child(disturbed) == -signal.SIGKILL
    work(Desk.open(tmp_path / "killed"))
    assert outcome(tmp_path / "killed")["tasks"][0] == (1, "approve", "done")
    assert outcome(tmp_path / "killed")["state"][2] == [1], "the judge sees that the approval is lost"
