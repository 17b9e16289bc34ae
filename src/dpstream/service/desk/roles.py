"""Who may do what at the desk: the one table. Whatever is not in it is allowed to nobody.

Never at the desk, for nobody: a raw state, restoring or discarding, a private evaluation, a private report.
"""

from __future__ import annotations

from dpstream.core.errors import InputError
from dpstream.service.desk.facts import Person

#: Each role with what it is for.
ROLES = {
    "analyst": "sees releases, asks questions",
    "auditor": "sees ledgers, accounts and decisions",
    "approver": "decides about tables",
    "owner": "all, and people and runs",
}
#: Of whoever works on the machine's command line, and of nobody else.
MACHINE = "machine"
_ALL = frozenset(ROLES)
_OWNER = frozenset({"owner"})
_DECIDES = frozenset({"approver", "owner"})
_LOOKS = frozenset({"auditor", "approver", "owner"})

#: What is done (a method of ``Desk``, or more precisely), and the roles that may.
MAY: dict[str, frozenset[str]] = {
    "cards": _ALL,
    "card": _ALL,
    "config": _ALL,
    "tasks": _ALL,
    "ledger": _LOOKS,
    "accounts": _LOOKS,
    "decisions": _LOOKS,
    "held": _DECIDES,
    "decide": _DECIDES,
    "price": frozenset({"analyst", "owner"}),
    "ask": frozenset({"analyst", "owner"}),
    "plan": frozenset({"analyst", "approver", "owner"}),
    "run_now": _OWNER,
    "people": _OWNER,
    "add_person": _OWNER,
    "remove_person": _OWNER,
    "set_roles": _OWNER,
    "end_sessions": _OWNER,
    # Whoever makes a token could sign in with it: an owner on the pages must not be somebody else.
    "make_sign_in_token": frozenset({MACHINE}),
}


class NotAllowedError(InputError):
    """The person has no role that may do this."""


def require(person: Person | None, action: str) -> None:
    """Refuse what none of a person's roles may do.

    Errors:
        NotAllowedError: nobody is signed in, no role may, or the action is in no table.
    """
    if not isinstance(person, Person):
        raise NotAllowedError("nobody is signed in", where="desk", allowed="somebody who is")
    may = MAY.get(action, frozenset())
    if not person.roles & may:
        raise NotAllowedError(
            f"{person.name} may not do this ({action.replace('_', ' ')})",
            where="desk",
            allowed=" or ".join(role for role in (*ROLES, MACHINE) if role in may) or "nobody",
        )
