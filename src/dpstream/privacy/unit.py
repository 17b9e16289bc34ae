"""Who is protected: the neighbouring relation, as a value that every mechanism must be given.

=====================  ==============================================  ==================
unit                   neighbouring streams differ in                  one histogram
=====================  ==============================================  ==================
``Event()``            one record inserted or deleted at one step      D1 = 1, D2^2 = 1
``Event("replace")``   one record's value at one step (sizes public)   D1 = 2, D2^2 = 2
``Individual(...)``    one person's entire history                     per mechanism
``User(...)``          all events of one user id                       refused for now
=====================  ==============================================  ==================

A record that arrives and is later deleted is two events; an update is a delete and an insert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpstream.errors import ConfigError, UnitError

__all__ = ["Event", "Individual", "Relation", "Unit", "User", "parse_unit"]

Relation = Literal["add-remove", "replace"]


@dataclass(frozen=True)
class Event:
    """One record inserted or deleted at one step (or, with ``replace``, one record's value).

    Under ``add-remove`` batch sizes are private. Under ``replace`` the owner has declared the numbers
    of inserts and of deletes at every step public, and a changed record moves a histogram in two cells.
    """

    relation: Relation = "add-remove"

    def __post_init__(self) -> None:
        _check_relation(self.relation)

    @property
    def changed_cells(self) -> int:
        """How many cells of a histogram over records one change touches (by 1 each)."""
        return 1 if self.relation == "add-remove" else 2

    @property
    def name(self) -> str:
        """The word used for this unit in configuration files and manifests."""
        return "event" if self.relation == "add-remove" else "event-replace"

    def describe(self) -> str:
        """The unit in words, for plans and manifests."""
        if self.relation == "add-remove":
            return (
                "one record inserted or deleted at one step (a record that is inserted and later "
                "deleted, or updated, is two such events)"
            )
        return (
            "the values of one record at one step; the numbers of inserts and of deletes at every step are "
            "public"
        )


@dataclass(frozen=True)
class Individual:
    """One person's entire history (used by panels)."""

    relation: Relation = "add-remove"

    def __post_init__(self) -> None:
        _check_relation(self.relation)

    @property
    def name(self) -> str:
        """The word used for this unit in configuration files and manifests."""
        return "individual" if self.relation == "add-remove" else "individual-replace"

    def describe(self) -> str:
        """The unit in words, for plans and manifests."""
        verb = "added or removed" if self.relation == "add-remove" else "replaced"
        return f"one person's entire history, {verb}"


@dataclass(frozen=True)
class User:
    """All events of one user id. Refused: the bound on events per user is not enforced yet."""

    max_events: int

    def __post_init__(self) -> None:
        raise _user_refused()


Unit = Event | Individual


def parse_unit(name: str) -> Unit:
    """The unit named in a configuration file.

    >>> parse_unit("event").describe()[:33]
    'one record inserted or deleted at'
    """
    match name:
        case "event":
            return Event()
        case "event-replace":
            return Event("replace")
        case "individual":
            return Individual()
        case "individual-replace":
            return Individual("replace")
        case "user":
            raise _user_refused()
    raise ConfigError(
        f"unknown privacy unit {name!r}",
        where="unit",
        allowed="event, event-replace, individual, individual-replace",
    )


def _user_refused() -> UnitError:
    return UnitError(
        "the unit 'user' needs a bound on events per user that the program enforces, "
        "and that is not built yet",
        where="unit",
        allowed="event, event-replace, individual",
    )


def _check_relation(relation: str) -> None:
    if relation not in ("add-remove", "replace"):
        raise ConfigError(f"unknown relation {relation!r}", where="unit", allowed="add-remove, replace")
