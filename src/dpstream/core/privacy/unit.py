"""Who is protected: the neighbouring relation, as a value that every mechanism must be given.

=====================  ==============================================  ==================
unit                   neighbouring streams differ in                  one histogram
=====================  ==============================================  ==================
``Event()``            one record inserted or deleted at one step      D1 = 1, D2^2 = 1
``Event("replace")``   one record's value at one step (sizes public)   D1 = 2, D2^2 = 2
``Individual(...)``    one person's entire history                     per mechanism
``User(max_events)``   all events of one user id, ``max_events`` of   each event as under
                       which are admitted over the whole stream        ``Event()``
``User(..., per=...)`` the same, in one public period                  the same
``InsertedRecord()``   one record's one insert; its key counts once    as ``Event()``
``Record()``           one record's whole stay: its insert, updates    per mechanism
                       and delete
=====================  ==============================================  ==================

A record that arrives and is later deleted is two events; an update is a delete and an insert.

Trusted base: kernel (who is protected).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dpstream.core.errors import BudgetError, ConfigError, UnitError
from dpstream.core.privacy.budget import Budget, PureDP, exact_amount
from dpstream.core.privacy.periods import Periods

NeighbourRelation = Literal["add-remove", "replace"]
#: What a key is that comes back after it was absent at the end of a step: a new record, or refused.
Returns = Literal["new", "refuse"]

#: A larger bound would leave nothing to each event; a misprint is the likelier explanation.
MAX_EVENTS = 10**6
#: Of a user's budget for the number of users whom the bound cuts: it changes by 1 with a user, that of records by the
#: bound, so that it is known better with less (docs/theory/users.md).
CUT_SHARE = Fraction(1, 50)
_SHARES = "an exact number from 0 (not counted) to less than 1"


@dataclass(frozen=True)
class Event:
    """One record inserted or deleted at one step (or, with ``replace``, one record's value).

    Under ``add-remove`` batch sizes are private. Under ``replace`` the owner has declared the numbers
    of inserts and of deletes at every step public, and a changed record moves a histogram in two cells.
    """

    relation: NeighbourRelation = "add-remove"

    def __post_init__(self) -> None:
        _check_relation(self.relation)

    @property
    def changed_cells(self) -> int:
        """How many cells of a histogram over records one change touches (by 1 each)."""
        return 1 if self.relation == "add-remove" else 2

    @property
    def event(self) -> Event:
        """What one change of a stream is: the event itself."""
        return self

    def factor(self, budget: Budget) -> int:
        """How many times the loss of one event a unit can have: once."""
        return 1

    def per_event(self, budget: Budget) -> Budget:
        """What a single event may cost: the budget."""
        return budget

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

    relation: NeighbourRelation = "add-remove"

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
    """All events of one user id together, inserts and deletes, over the whole life of a stream or in one period.

    Guarantee: a mechanism whose loss for one event is at most ``per_event(budget)`` loses, with the count of users
    whom the bound cuts, at most ``budget`` for one user (and period): group privacy (pure DP adds up along a path of
    ``max_events`` streams; zCDP grows with the square, Bun and Steinke 2016). Proof: docs/theory/users.md.

    The bound is enforced by ``dpstream.stream`` (``contribution.py``). Whoever calls a plan's ``step`` has to keep it.

    Args:
        per: periods, for each of which the bound begins anew. None: the whole life. A user of k periods has k losses.
        cut_share: part of the budget for the count of users whom the bound cuts, exact; 0: they are not counted.

    >>> User(4).per_event(PureDP.of(1)).epsilon, User(4, cut_share=0).per_event(PureDP.of(1)).epsilon
    (Fraction(49, 200), Fraction(1, 4))
    """

    max_events: int
    per: Periods | None = None
    cut_share: Fraction = CUT_SHARE

    def __post_init__(self) -> None:
        bound = self.max_events
        if isinstance(bound, bool) or not isinstance(bound, int) or not 1 <= bound <= MAX_EVENTS:
            raise ConfigError(
                f"max_events = {bound!r}: expected a bound", where="unit", allowed=f"1 to {MAX_EVENTS}"
            )
        try:
            share = Fraction(0) if self.cut_share == 0 else exact_amount(self.cut_share, where="unit")
        except BudgetError as error:
            raise ConfigError(f"cut_share: {error.what}", where="unit", allowed=_SHARES) from None
        if share >= 1:
            raise ConfigError(f"cut_share = {share}", where="unit", allowed=_SHARES)
        object.__setattr__(self, "cut_share", share)

    @property
    def event(self) -> Event:
        """What one change of a stream is: one record inserted or deleted at one step."""
        return Event()

    @property
    def relation(self) -> NeighbourRelation:
        """A user's events are there or not, so the numbers of records are private."""
        return "add-remove"

    @property
    def changed_cells(self) -> int:
        """How many cells of a histogram each of the user's events touches (by 1)."""
        return self.event.changed_cells

    def factor(self, budget: Budget) -> int:
        """How many times the loss of one event a user can have: ``max_events`` (pure), or its square (zCDP)."""
        return self.max_events if isinstance(budget, PureDP) else self.max_events**2

    def per_event(self, budget: Budget) -> Budget:
        """What a single event may cost where ``budget`` is for a user; exact."""
        return budget.scaled((1 - self.cut_share) / self.factor(budget))

    @property
    def name(self) -> str:
        """The word used for this unit in configuration files and manifests."""
        return "user"

    def describe(self) -> str:
        """The unit in words, for plans and manifests."""
        bound = "1 event" if self.max_events == 1 else f"{self.max_events} events"
        where = "" if self.per is None else f" in one period ({self.per.name})"
        return (
            f"everything that one user id did{where}, of which at most {bound} over the whole "
            f"{'stream' if self.per is None else 'period'} (each insert, each delete) are counted and all others are "
            "left out"
        )


@dataclass(frozen=True)
class InsertedRecord(User):
    """One record of a table that only grows: its one insert.

    The key takes the place of a user id, and the bound of 1 is enforced as it is for users. A key is not a person,
    who may have any number of records: names, words and accounts therefore say record.
    """

    max_events: int = 1
    cut_share: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.per is not None:
            raise ConfigError("a record has one insert in all periods", where="unit", allowed="no per")
        if self.cut_share or type(self.max_events) is not int or self.max_events != 1:
            raise ConfigError(
                f"max_events = {self.max_events!r} contradicts a record, which is its one insert",
                where="unit",
                allowed="1",
            )

    @property
    def name(self) -> str:
        """The word used for this unit in configuration files and manifests."""
        return "record"

    def describe(self) -> str:
        """The unit in words, for plans and manifests."""
        return "one record: its one insert (a key that comes again is left out)"


@dataclass(frozen=True)
class Record:
    """One record's whole stay: all that one key does from its insert to the first step at whose end it is absent.

    A key that is present at the ends of two consecutive steps is in one stay, also if it was deleted and inserted
    between them. Under ``replace`` the owner has declared public which keys are present when; neighbouring tables then
    differ in the values of one stay.

    Args:
        relation: ``add-remove``: a stay is there or not. ``replace``: presence is public, values are private.
        returns: ``new``: a key that comes back begins another stay, with a loss of its own. ``refuse``: no key comes
            back, so that the unit is all that a key ever does.
    """

    relation: NeighbourRelation = "add-remove"
    returns: Returns = "new"

    def __post_init__(self) -> None:
        _check_relation(self.relation)
        if self.returns not in ("new", "refuse"):
            raise ConfigError(f"unknown returns = {self.returns!r}", where="unit", allowed="new, refuse")

    @property
    def counted(self) -> Event:
        """How one stay changes a histogram of the records that are present: like one event."""
        return Event(self.relation)

    @property
    def name(self) -> str:
        """The word used for this unit in configuration files and manifests."""
        return "record" if self.relation == "add-remove" else "record-replace"

    def describe(self) -> str:
        """The unit in words, for plans and manifests."""
        back = (
            "a key that comes back after an absence is a new record, with a loss of its own"
            if self.returns == "new"
            else "no key comes back after an absence, so this is all that one key ever does"
        )
        if self.relation == "add-remove":
            return (
                f"one record's whole stay in the table: its insert, all its updates and its delete ({back})"
            )
        values = "the values of one record during its whole stay in the table"
        return f"{values}; which keys are present when is public ({back})"


Unit = Event | Individual | User | Record
#: The units of streams whose mechanism sees single events.
EventUnit = Event | User


def handled_as(unit: Unit) -> str:
    """The name of the unit as which a mechanism handles it: an insert-only table's record is a user of one event.

    >>> handled_as(InsertedRecord()), handled_as(Record())
    ('user', 'record')
    """
    return "user" if isinstance(unit, User) else unit.name


def parse_unit(name: str, max_events: int | None = None, cut_share: Fraction = CUT_SHARE) -> Unit:
    """The unit named in a configuration file; ``max_events`` and ``cut_share`` belong to ``user``.

    Errors:
        UnitError: the unit ``user`` without its bound. ConfigError: an unknown unit, or a bad bound.

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
        case "record":
            return Record()
        case "record-replace":
            return Record("replace")
        case "user":
            if max_events is None:
                raise UnitError(
                    "the unit 'user' needs a bound on a user's events",
                    where="unit",
                    allowed="max_events, the most inserts and deletes together",
                )
            return User(max_events, None, cut_share)
    raise ConfigError(
        f"unknown privacy unit {name!r}",
        where="unit",
        allowed="event, event-replace, user, individual, individual-replace, record, record-replace",
    )


def _check_relation(relation: str) -> None:
    if relation not in ("add-remove", "replace"):
        raise ConfigError(f"unknown relation {relation!r}", where="unit", allowed="add-remove, replace")
