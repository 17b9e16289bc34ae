"""Checks that every tabular recipe makes when it is calibrated.

Trusted base: kernel (what is left out before counting).
"""

from __future__ import annotations

from typing import cast

from dpstream.core.contracts import CancellingBatch, Events, PrivateBatch, check_unit
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.unit import Event, EventUnit, Unit


def refuse_deletes(batch: PrivateBatch, *, deletions: bool) -> None:
    """Refuse deletes that a plan does not read, by whether they were given at all; they are never dropped."""
    if batch.declares_deletes and not deletions:
        raise ConfigError(
            "the plan does not read the batch's deletes",
            where="mechanism",
            allowed="deletions = true, or batches without deletes",
        )


def leaves_out_cancelled(wanted: bool, unit: EventUnit, *, deletions: bool) -> bool:
    """Whether a plan leaves out equal rows that come and go within a step: where records leave, and the numbers of
    inserts and deletes are not declared public (what is left of them is private)."""
    return wanted and deletions and unit.relation != "replace"


def read_events(batch: PrivateBatch, *, deletions: bool, cancels: bool) -> PrivateBatch:
    """The batch as the plan reads it; see ``refuse_deletes`` for deletes that it does not read."""
    refuse_deletes(batch, deletions=deletions)
    if not cancels or not batch.declares_deletes:
        return batch
    if not isinstance(batch, CancellingBatch):
        raise ConfigError(
            "the source's counts cannot leave out equal rows that come and go within a step",
            where="mechanism",
            allowed="cancels=False, which counts all of them",
        )
    return batch.without_cancelled()


def event_unit(unit: Unit | None) -> EventUnit:
    """The unit of a tabular stream: an event, or the bounded events of a user.

    Errors:
        UnitError: a whole person.
    """
    reason = "a stream of tables cannot protect the unit {unit!r}, only events or some events of a user"
    return check_unit(unit, cast(EventUnit, Event()), ("event", "event-replace", "user"), reason)


def events_apart(deletions: bool) -> tuple[Events, ...]:
    """The kinds of events that are followed apart: each event is in one of them."""
    return ("inserts", "deletes") if deletions else ("net",)
