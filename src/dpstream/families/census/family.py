"""What a stream of censuses says about itself."""

from __future__ import annotations

from typing import Any

from dpstream.core.contracts import Alternative, Family, Limits
from dpstream.core.privacy import Event, Unit
from dpstream.families.census.census_plan import OTHER_UNIT, Census

_AS_EVENTS = (
    "a source of inserts and deletes, [stream] unit = {unit!r}, and half of the epsilon (a quarter of a rho)"
)


def _alternatives(recipe: Any, unit: Unit) -> tuple[Alternative, ...]:
    """The census, and what follows inserts and deletes without knowing whose they are."""
    event = Event("replace" if unit.name == "record-replace" else "add-remove")
    needs = _AS_EVENTS.format(unit=event.name)
    others = (Alternative(name, unit=event, events=2, needs=needs) for name in ("pooled", "dpstabs"))
    return (Alternative("census"), *others)


CENSUS = Family(
    "census",
    "a table of keyed records",
    {"census": Census},
    Limits(
        units=("record", "record-replace"),
        other_units=OTHER_UNIT,
        unit_reason="a census protects all that a key does during a stay",
        bounded="a stay is protected whole, with all updates",
        rows=("keyed records need steps by time", "a time_column, or the source's steps"),
    ),
    alternatives=_alternatives,
)
