"""The desk, in a file and on a server: logins, roles, decisions by one or several persons, the log and the queue."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from desks import ANNA, BEN, OWNER, make_secret, make_service, tell, work

from dpstream.core.errors import ConfigError, StoreError
from dpstream.service.desk import Desk, NotAllowedError, Person


def test_a_decision_is_logged_and_queued_once(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "one"))
    tell(desk, held={1: "first"})
    first = desk.decide(ANNA, "test", 1, "approve")
    assert desk.decide(ANNA, "test", [1], "approve") == first
    assert [(one.kind, one.person, one.steps) for one in desk.decisions(OWNER)] == [("approve", "Anna", (1,))]
    (task,) = desk.tasks(OWNER, "test")
    assert (task.kind, task.state, task.what["step"], task.what["by"]) == ("approve", "waiting", 1, ["Anna"])
    assert desk.card(ANNA, "test").pending == (task,)


def test_two_persons_approve_and_one_rejects(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "two", approvals=2))
    desk.add_person(OWNER, "Anna", ["approver"])
    desk.add_person(OWNER, "Ben", ["approver"])
    tell(desk, held={1: "first", 2: "second"})
    desk.decide(ANNA, "test", [1, 2], "approve")
    desk.decide(ANNA, "test", 1, "approve", "again")  # the same person twice is one person
    assert desk.tasks(OWNER, "test") == []
    desk.decide(BEN, "test", 1, "approve")
    assert [one.what["by"] for one in desk.tasks(OWNER, "test")] == [["Anna", "Ben"]]
    assert [one.person for one in desk.held(ANNA, "test", 2).approvals] == ["Anna"]
    # One is enough to reject; the approval that the worker has not begun is not done any more.
    desk.decide(ANNA, "test", 1, "reject", "the source was cut")
    assert [(one.kind, one.state) for one in desk.tasks(OWNER, "test")] == [
        ("approve", "cancelled"),
        ("reject", "waiting"),
    ]
    # What was approved is what was looked at: another table at the same step begins anew.
    tell(desk, held={2: "another"})
    desk.decide(BEN, "test", 2, "approve")
    assert len(desk.tasks(OWNER, "test")) == 2


def test_an_approval_of_who_left_does_not_count_and_who_comes_back_begins_anew(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "left", approvals=2))
    for name in ("Olga", "Anna", "Ben"):
        desk.add_person(OWNER, name, ["owner"] if name == "Olga" else ["approver"])
    tell(desk, held={1: "first", 2: "second"})
    before = desk.decide(ANNA, "test", [1, 2], "approve")
    desk.remove_person(OWNER, "Anna")
    desk.decide(BEN, "test", 1, "approve")
    assert desk.tasks(OWNER, "test") == []
    desk.decide(OWNER, "test", 1, "approve")
    assert [one.what["by"] for one in desk.tasks(OWNER, "test")] == [["Ben", "Olga"]]
    desk.add_person(OWNER, "Anna", ["approver", "analyst"])
    desk.decide(BEN, "test", 2, "approve")
    desk.add_person(OWNER, "Ben as owner", ["approver"])  # is not Ben
    assert [one.person for one in desk.held(BEN, "test", 2).approvals] == ["Ben"]
    assert len(desk.tasks(OWNER, "test")) == 1
    assert desk.decide(ANNA, "test", 2, "approve").number > before.number
    assert desk.tasks(OWNER, "test")[1].what["by"] == ["Anna", "Ben"]


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
def test_a_step_that_is_held_again_can_be_decided_again(tmp_path: Path, first: str, second: str) -> None:
    """The same table, of a state that was restored: what was done before does not stand in the way."""
    desk = Desk.open(make_service(tmp_path / "again"))
    tell(desk, held={1: "first"})
    desk.decide(ANNA, "test", 1, first, "well")
    with desk.database.writing() as db:
        db.execute("UPDATE tasks SET state = 'done'")
    tell(desk, held={1: "first"})
    desk.decide(ANNA, "test", 1, second, "well")
    assert [(one.kind, one.state) for one in desk.tasks(OWNER, "test")] == [
        (first, "done"),
        (second, "waiting"),
    ]


def test_another_table_than_the_one_looked_at_is_not_decided_about(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "looked"))
    tell(desk, held={1: "first", 2: "second"})
    seen = {step: desk.held(ANNA, "test", step).manifest_sha256 for step in (1, 2)}
    desk.decide(ANNA, "test", [1, 2], "approve", manifests=seen)
    tell(desk, held={1: "another", 2: "second"})  # drawn anew, after a restored state
    for kind in ("approve", "reject"):
        with pytest.raises(ConfigError, match="step 1 has changed since your look"):
            desk.decide(ANNA, "test", [1, 2], kind, "well", manifests=seen)
    with pytest.raises(ConfigError, match="step 2 has changed"):
        desk.decide(ANNA, "test", 2, "approve", manifests={1: seen[1]})
    assert len(desk.decisions(OWNER)) == 1
    desk.decide(BEN, "test", 2, "reject", "no", manifests={2: seen[2]})


def test_a_one_time_token_is_used_once_and_its_login_ends(tmp_path: Path) -> None:
    """Made on the machine only; the older one, the used one, an old one and those of who left are refused."""
    moment = [1_000_000.0]
    desk = Desk(Desk.open(make_service(tmp_path / "login")).settings, lambda: moment[0])
    machine = desk.operator("root")
    for name, role in (("Anna", "approver"), ("Olga", "owner")):
        desk.add_person(machine, name, [role])
    with pytest.raises(NotAllowedError, match="allowed: machine"):
        desk.make_sign_in_token(OWNER, "Anna")
    with pytest.raises(ConfigError, match="the name is unknown"):
        desk.make_sign_in_token(machine, "Nobody")
    older, token = (desk.make_sign_in_token(machine, "Anna") for _ in range(2))
    secret = desk.sign_in(token) or ""
    assert [desk.sign_in(one) for one in (token, older, "", token[:-1])] == [None] * 4
    assert desk.person(secret) == Person("Anna", frozenset({"approver"}))
    moment[0] += 3599
    assert desk.person(secret) is not None
    moment[0] += 3601
    assert desk.person(secret) is None, "it was not used for an hour"
    secret, first = desk.sign_in(desk.make_sign_in_token(machine, "Anna")) or "", moment[0]
    while desk.person(secret) is not None:
        moment[0] += 3000
    assert 12 * 3600 <= moment[0] - first < 12 * 3600 + 3000, "whatever it was used for"
    token = desk.make_sign_in_token(machine, "Anna")
    moment[0] += 24 * 3600
    assert desk.sign_in(token) is None
    # An owner ends logins, and so does removing somebody; sessions and tokens that were not used alike.
    for end in (desk.end_sessions, desk.remove_person):
        secret = desk.sign_in(desk.make_sign_in_token(machine, "Anna")) or ""
        token = desk.make_sign_in_token(machine, "Anna")
        assert desk.person(secret) is not None
        end(OWNER, "Anna")
        assert (desk.person(secret), desk.sign_in(token)) == (None, None)
    words = [one.reason for one in desk.decisions(OWNER)]
    assert words.count("made a one-time token for Anna") == 8
    assert words[-2:] == ["made a one-time token for Anna", "removed Anna"]
    files = b"".join(path.read_bytes() for path in (tmp_path / "login").glob("service.sqlite*"))
    assert not any(one.encode() in files for one in (token, secret))


def test_the_proxys_header(tmp_path: Path) -> None:
    more = '[proxy]\naddress = "127.0.0.1"\nheader = "X-Remote-User"\nsecret_file = "../secret"'
    shared = make_secret(tmp_path / "secret")
    desk = Desk.open(make_service(tmp_path / "header", more=more))
    assert shared not in repr(desk.settings)
    desk.add_person(OWNER, "Anna", ["analyst"])
    assert desk.person_of_header("Anna", "127.0.0.1", [shared]) == Person("Anna", frozenset({"analyst"}))
    assert desk.person_of_header("Anna", "10.0.0.1", [shared]) is None
    assert desk.person_of_header("Nobody", "127.0.0.1", [shared]) is None
    for wrong in ([], [""], [shared[:-1]], [f"{shared}0"], ["\xe4" * 32], [shared, shared]):
        assert desk.person_of_header("Anna", "127.0.0.1", wrong) is None
    plain = Desk.open(make_service(tmp_path / "plain"))
    plain.add_person(OWNER, "Anna", ["analyst"])
    assert plain.person_of_header("Anna", "127.0.0.1", [shared]) is None


# On a server


if TYPE_CHECKING:
    from postgres_server import Cluster


def on_server(folder: Path, url: str, **options: object) -> Path:
    return make_service(folder, more=f'database = "{url}"', **options)  # type: ignore[arg-type]


def test_the_whole_life_of_a_held_step(postgres: Cluster, tmp_path: Path) -> None:
    folder = on_server(tmp_path / "service", postgres.url, service="life", steps=1, approvals=2)
    desk = Desk.open(folder)
    assert not (folder / "service.sqlite").exists()
    for name in ("Anna", "Ben"):
        desk.add_person(OWNER, name, ["approver"])
    token = desk.make_sign_in_token(desk.operator("root"), "Anna")
    assert desk.person(desk.sign_in(token) or "") is not None
    assert desk.sign_in(token) is None
    work(desk)
    for person in (ANNA, BEN):
        desk.decide(person, "test", 1, "approve")
    work(Desk.open(folder))
    assert [one.state for one in desk.tasks(OWNER, "test")] == ["done"]
    assert desk.check_log()[0] == []
    assert desk.card(OWNER, "test").held == ()


def test_writers_at_once_make_one_chain(postgres: Cluster, tmp_path: Path) -> None:
    for folder in (
        on_server(tmp_path / "server", postgres.url, service="many"),
        make_service(tmp_path / "file"),
    ):
        desk = Desk.open(folder)
        tell(desk, held={step: str(step) for step in range(1, 21)})

        def decide(first: int, desk: Desk = desk) -> None:
            for step in range(first, 21, 4):
                desk.decide(ANNA, "test", step, "approve")

        threads = [threading.Thread(target=decide, args=(first,)) for first in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert desk.check_log()[:2] == ([], 20)
        assert len(desk.tasks(OWNER, "test")) == 20


def test_a_server_that_cannot_be_reached_and_a_password_in_the_file(tmp_path: Path) -> None:
    folder = on_server(tmp_path / "gone", f"postgresql:///x?host={tmp_path}")
    with pytest.raises(StoreError, match="the server cannot be reached"):
        Desk.open(folder)
    folder = on_server(tmp_path / "password", "postgresql://me:hush@localhost/x")
    with pytest.raises(ConfigError) as told:
        Desk.open(folder)
    assert "hush" not in str(told.value)
