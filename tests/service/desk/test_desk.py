"""The desk: logins, the table of roles, decisions by one or several persons, the log and the queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from desks import ANNA, BEN, OWNER, PASSWORD, make_secret, make_service, tell

from dpstream.core.errors import ConfigError
from dpstream.service.desk import Desk, NotAllowedError, Person, Proxy, people


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
    desk.add_person(OWNER, "Anna", ["approver"], PASSWORD)
    desk.add_person(OWNER, "Ben", ["approver"], PASSWORD)
    tell(desk, held={1: "first", 2: "second"})
    desk.decide(ANNA, "test", [1, 2], "approve")
    desk.decide(ANNA, "test", 1, "approve", "again")  # the same person twice is one person
    assert desk.tasks(OWNER, "test") == []
    with pytest.raises(ConfigError, match="could be both"):
        desk.decide(Person("Ben", BEN.roles, own=False), "test", 1, "approve")
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


def test_an_approval_by_somebody_who_left_does_not_count(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "left", approvals=2))
    for name in ("Olga", "Anna", "Ben"):
        desk.add_person(OWNER, name, ["owner"] if name == "Olga" else ["approver"], PASSWORD)
    tell(desk, held={1: "first"})
    desk.decide(ANNA, "test", 1, "approve")
    desk.remove_person(OWNER, "Anna")
    desk.decide(BEN, "test", 1, "approve")
    assert desk.tasks(OWNER, "test") == []
    desk.decide(OWNER, "test", 1, "approve")
    assert [one.what["by"] for one in desk.tasks(OWNER, "test")] == [["Ben", "Olga"]]


def test_who_was_removed_and_comes_back_begins_anew(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "back", approvals=2))
    for name in ("Olga", "Anna", "Ben"):
        desk.add_person(OWNER, name, ["owner"] if name == "Olga" else ["approver"], PASSWORD)
    tell(desk, held={1: "first"})
    before = desk.decide(ANNA, "test", 1, "approve")
    desk.remove_person(OWNER, "Anna")
    desk.add_person(OWNER, "Anna", ["approver", "analyst"], PASSWORD)
    desk.add_person(OWNER, "Ben as owner", ["approver"])  # is not Ben
    desk.decide(BEN, "test", 1, "approve")
    assert [one.person for one in desk.held(BEN, "test", 1).approvals] == ["Ben"]
    assert desk.tasks(OWNER, "test") == []
    assert desk.decide(ANNA, "test", 1, "approve").number > before.number
    assert [one.what["by"] for one in desk.tasks(OWNER, "test")] == [["Anna", "Ben"]]


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


def test_what_was_made_with_a_given_password_is_not_ones_own(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "own", approvals=2))
    desk.add_person(OWNER, "Ben", ["owner"], PASSWORD)
    tell(desk, held={1: "first"})

    def by_token(maker: Person) -> Person:
        found = desk.person_of_token(desk.add_token(maker, "Ben", "mine"))
        assert found is not None
        return found

    given = desk.person(desk.sign_in("Ben", PASSWORD) or "")
    assert given is not None
    for maker in (given, desk.operator("Ben"), Person("Ben", OWNER.roles, "token", own=True), OWNER):
        with pytest.raises(ConfigError, match="could be both"):
            desk.decide(by_token(maker), "test", 1, "approve")
    desk.set_password(given, "Ben", PASSWORD + "!")
    own = desk.person(desk.sign_in("Ben", PASSWORD + "!") or "")
    assert own is not None
    assert by_token(own).own
    desk.decide(by_token(own), "test", 1, "approve")


def test_another_table_than_the_one_looked_at_is_not_decided_about(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "looked"))
    tell(desk, held={1: "first", 2: "second"})
    seen = {step: desk.held(ANNA, "test", step).manifest_sha256 for step in (1, 2)}
    desk.decide(ANNA, "test", [1, 2], "approve", manifests=seen)
    tell(desk, held={1: "another", 2: "second"})  # drawn anew, after a restored state
    for kind in ("approve", "reject"):
        with pytest.raises(ConfigError, match="step 1 is not the one that was looked at any more"):
            desk.decide(ANNA, "test", [1, 2], kind, "well", manifests=seen)
    with pytest.raises(ConfigError, match="step 2 is not the one"):
        desk.decide(ANNA, "test", 2, "approve", manifests={1: seen[1]})
    assert len(desk.decisions(OWNER)) == 1
    desk.decide(BEN, "test", 2, "reject", "no", manifests={2: seen[2]})


def test_logins_end_and_wrong_tries_are_counted(tmp_path: Path) -> None:
    moment = [1_000_000.0]
    desk = Desk.open(make_service(tmp_path / "login"))
    desk = Desk(desk.settings, lambda: moment[0])
    desk.add_person(desk.operator("root"), "Anna", ["approver"], PASSWORD)
    secret = desk.sign_in("Anna", PASSWORD, "10.0.0.1")
    assert secret is not None
    assert desk.person(secret) == Person("Anna", frozenset({"approver"}), own=False)
    moment[0] += 3599
    assert desk.person(secret) is not None
    moment[0] += 3601
    assert desk.person(secret) is None
    assert desk.sign_in("Anna", "wrong", "10.0.0.2") is None
    for name in ("Anna", "Nobody"):
        for _ in range(10):
            assert desk.sign_in(name, "wrong", "10.0.1.1") is None
    assert desk.sign_in("Anna", PASSWORD, "10.0.1.1") is None
    moment[0] += 901
    secret = desk.sign_in("Anna", PASSWORD, "10.0.0.1")
    anna = desk.person(secret or "")
    assert anna is not None
    desk.set_password(anna, "Anna", PASSWORD + "!")
    assert desk.person(secret or "") is None
    assert desk.person(desk.sign_in("Anna", PASSWORD + "!", "") or "") == Person(
        "Anna", frozenset({"approver"})
    )


def test_an_outsider_locks_out_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk.open(make_service(tmp_path / "locked"))
    desk.add_person(OWNER, "Anna", ["approver"], PASSWORD)
    for _ in range(30):
        assert desk.sign_in("Anna", "wrong", "10.0.0.9") is None
    assert desk.sign_in("Anna", PASSWORD, "10.0.0.9") is None
    assert desk.sign_in("Anna", PASSWORD, "10.0.0.1") is not None
    # One name from many addresses, and one address with many names, have limits of their own.
    monkeypatch.setattr(people, "_MOST", (10, 20, 15))
    for number in range(10):
        assert desk.sign_in("Anna", "wrong", f"10.0.1.{number}") is None
        assert desk.sign_in(f"Nobody {number}", "wrong", "10.0.0.2") is None
    assert desk.sign_in("Anna", PASSWORD, "10.0.0.1") is None
    desk.add_person(OWNER, "Ben", ["approver"], PASSWORD)
    assert desk.sign_in("Ben", PASSWORD, "10.0.0.2") is not None
    for number in range(10):
        assert desk.sign_in(f"Other {number}", "wrong", "10.0.0.2") is None
    assert desk.sign_in("Ben", PASSWORD, "10.0.0.2") is None
    assert desk.sign_in("Ben", PASSWORD, "10.0.0.1") is not None


@pytest.mark.parametrize(
    ("address", "forwarded", "found"),
    [
        ("10.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["198.51.100.1, 192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["198.51.100.1", "192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["2001:DB8:0::1"], "2001:db8::1"),
        ("10.0.0.1", ["192.0.2.7, unknown"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.2", ["192.0.2.7"], "10.0.0.2"),
    ],
)
def test_only_the_proxy_says_where_somebody_comes_from(
    address: str, forwarded: list[str], found: str
) -> None:
    proxy = Proxy("10.0.0.1", "X-Remote-User", "X-Proxy-Secret", "s" * 32)
    assert people.client_address(proxy, address, ["s" * 32], forwarded) == found
    assert people.client_address(None, address, ["s" * 32], forwarded) == address
    for secrets in ([], [""], ["s" * 31], ["s" * 32, "s" * 32]):
        assert people.client_address(proxy, address, secrets, forwarded) == address


def test_a_wrong_try_costs_the_same_whether_the_name_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: one comparison of passwords, also for nobody, for who left, and for who has no password."""
    desk = Desk.open(make_service(tmp_path / "same"))
    for name in ("Anna", "Gone"):
        desk.add_person(OWNER, name, ["approver"], PASSWORD)
    desk.add_person(OWNER, "Bare", ["owner"])
    desk.remove_person(OWNER, "Gone")
    compared: list[str] = []
    real = people._verified
    monkeypatch.setattr(
        people, "_verified", lambda stored, given: compared.append(given) or real(stored, given)
    )
    for name in ("Anna", "Gone", "Bare", "Nobody"):
        assert desk.sign_in(name, "wrong password", name) is None
        assert compared == ["wrong password"]
        compared.clear()


def test_tokens_and_the_proxys_header(tmp_path: Path) -> None:
    more = '[proxy]\naddress = "127.0.0.1"\nheader = "X-Remote-User"\nsecret_file = "../secret"'
    shared = make_secret(tmp_path / "secret")
    desk = Desk.open(make_service(tmp_path / "header", more=more))
    assert shared not in repr(desk.settings)
    desk.add_person(OWNER, "Anna", ["analyst"])
    secret = desk.add_token(OWNER, "Anna", "nightly")
    assert desk.person_of_token(secret) == Person("Anna", frozenset({"analyst"}), "token", own=False)
    found = desk.person_of_header("Anna", "127.0.0.1", shared)
    assert found == Person("Anna", frozenset({"analyst"}), "proxy")
    assert desk.person_of_header("Anna", "10.0.0.1", shared) is None
    assert desk.person_of_header("Nobody", "127.0.0.1", shared) is None
    for wrong in ("", shared[:-1], f"{shared}0", "\xe4" * 32):
        assert desk.person_of_header("Anna", "127.0.0.1", wrong) is None
    assert desk.sign_in("Anna", "", "") is None
    (token,) = desk.tokens(OWNER)
    desk.remove_token(OWNER, token.number)
    assert desk.person_of_token(secret) is None
    plain = Desk.open(make_service(tmp_path / "plain"))
    plain.add_person(OWNER, "Anna", ["analyst"])
    assert plain.person_of_header("Anna", "127.0.0.1", shared) is None
    files = [path.read_bytes() for path in (tmp_path / "header").glob("service.sqlite*")]
    assert not any(secret.encode() in data for data in files)


def test_an_analyst_decides_nothing(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "analyst"))
    tell(desk, held={1: "first"})
    with pytest.raises(NotAllowedError, match="Ada may not do this"):
        desk.decide(Person("Ada", frozenset({"analyst"})), "test", 1, "approve")
    assert desk.decisions(OWNER) == []
