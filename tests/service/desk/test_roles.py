"""Every method of the desk by every role, from the class itself: a method without an entry fails."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from desks import make_service, tell

from dpstream.core.errors import DpstreamError
from dpstream.service.desk import MAY, ROLES, Desk, NotAllowedError, Person

#: Methods that take no person: who somebody is, and what is public for monitoring or for the machine's commands.
OPEN = {
    *("open", "sign_in", "sign_out", "person", "person_of_header", "operator"),
    *("check_log", "health", "metrics"),
}
#: Asks only what would be allowed.
ASKS = {"may"}
METHODS = {
    name: thing
    for name, thing in inspect.getmembers(Desk, callable)
    if not name.startswith("_") and name not in OPEN | ASKS
}
#: Arguments that would do something; what else there is to a call is not the matter here.
ARGUMENTS: dict[str, Any] = {
    "stream": "test",
    "step": 1,
    "steps": 1,
    "kind": "approve",
    "question": "zip = 'a'",
    "name": "Zoe",
    "roles": ["analyst"],
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    made = Desk.open(make_service(tmp_path_factory.mktemp("roles") / "service"))
    tell(made, held={1: "first"})
    owner = made.operator("root")
    made.add_person(owner, "Olga", ["owner"])
    made.add_person(owner, "Zoe", ["analyst"])
    return made


def test_every_method_takes_a_person_and_is_in_the_table() -> None:
    for name, method in METHODS.items():
        assert next(iter(list(inspect.signature(method).parameters)[1:]), None) == "person", name
        assert name in MAY, f"{name} is in no table of roles"
    assert set(MAY) - set(METHODS) == {"plan"}, "the plan's form is a page's own"
    assert all(roles <= set(ROLES) for name, roles in MAY.items() if name != "make_sign_in_token")
    assert MAY["make_sign_in_token"].isdisjoint(ROLES), "whoever makes one could be somebody else"


def call(desk: Desk, name: str, person: Any) -> bool:
    """Call a method as somebody; whether the table let it pass."""
    parameters = list(inspect.signature(METHODS[name]).parameters.values())[2:]
    given = [ARGUMENTS[one.name] for one in parameters if one.default is inspect.Parameter.empty]
    try:
        getattr(desk, name)(person, *given)
    except NotAllowedError:
        return False
    except DpstreamError:
        return True  # allowed, and refused for another reason
    return True


@pytest.mark.parametrize("role", sorted(ROLES))
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_role_may_do_what_the_table_says_and_nothing_else(desk: Desk, name: str, role: str) -> None:
    person = Person("Mia", frozenset({role}))
    before = desk.decisions(desk.operator("root"))
    assert call(desk, name, person) == desk.may(person, name) == (role in MAY[name])
    if role not in MAY[name]:
        assert desk.decisions(desk.operator("root")) == before


@pytest.mark.parametrize("nobody", [None, "Olga", Person("Mia", frozenset())])
def test_nobody_may_do_anything(desk: Desk, nobody: Any) -> None:
    assert not [name for name in METHODS if call(desk, name, nobody)]


def test_a_method_without_an_entry_is_allowed_to_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MAY, "cards")
    with pytest.raises(NotAllowedError, match="allowed: nobody"):
        desk.cards(desk.operator("root"))


def test_the_last_owner_stays(desk: Desk) -> None:
    owner = desk.operator("root")
    for change in (
        lambda: desk.remove_person(owner, "Olga"),
        lambda: desk.set_roles(owner, "Olga", ["auditor"]),
    ):
        with pytest.raises(DpstreamError, match="the last owner stays"):
            change()
    assert desk.people(owner)[0] == Person("Olga", frozenset({"owner"}))


def test_where_nobody_is_owner_people_go_all_the_same(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "service"))
    operator = desk.operator("root")
    desk.add_person(operator, "Anna", ["approver"])
    desk.set_roles(operator, "Anna", ["auditor"])
    desk.remove_person(operator, "Anna")
    assert desk.people(operator) == []


def test_reasons_of_rejections_stay_with_those_who_see_decisions(desk: Desk) -> None:
    owner = desk.operator("root")
    tell(desk, held={2: "second"})
    desk.decide(Person("Anna", frozenset({"approver"})), "test", 2, "reject", "inside only")
    told = {role: repr(desk.tasks(Person("Mia", frozenset({role})), "test")) for role in ROLES}
    assert {role for role, text in told.items() if "inside only" in text} == {"auditor", "approver", "owner"}
    assert "inside only" not in repr(desk.cards(Person("Mia", frozenset({"analyst"}))))
    assert "inside only" in repr(desk.decisions(owner))
