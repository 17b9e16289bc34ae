"""``[stream]`` and ``[source]`` of a stream whose records have keys: what they say together."""

from __future__ import annotations

from typing import cast

from dpstream.core.contracts import Limits, shown
from dpstream.core.contracts.registry import DEFAULT_MECHANISM
from dpstream.core.errors import UnitError
from dpstream.core.privacy import InsertedRecord, Record, Unit, handled_as
from dpstream.core.privacy.unit import Returns
from dpstream.project.reader import Section

#: What runs where records have keys and the file names no mechanism.
DEFAULT_KEYED = "census"
_RECORDS = ("record", "record-replace")


def asks_for_record(stream: Section, limits: Limits | None = None) -> bool:
    """Whether the file protects a record's whole stay; without a unit, what its mechanism protects."""
    if stream.has("unit") or limits is None:
        return stream.raw("unit") in _RECORDS
    return limits.units[0] in _RECORDS


def insert_only(source: Section) -> bool:
    """Whether the owner declares that records are never updated and never leave."""
    return source.raw("insert_only") is True


def default_mechanism(stream: Section, source: Section) -> tuple[str, str | None]:
    """What runs where the file names no mechanism, and why; None: the reason in the table of keys."""
    if not asks_for_record(stream):
        return DEFAULT_MECHANISM, None
    if insert_only(source):
        why = "the table is declared insert-only, so a record is one event, and what was measured of it stays true"
        return DEFAULT_MECHANISM, why
    return DEFAULT_KEYED, "records have keys: it measures the records that are there, so churn adds no error"


def read_record(section: Section, source: Section, limits: Limits) -> Unit:
    """The unit of a stream whose records have keys; of an insert-only table the one insert.

    Errors:
        ConfigError: keys of ``[stream]`` that contradict each other. UnitError: a mechanism that cannot protect it.
    """
    if section.has("max_events"):
        raise section.wrong("max_events", "a bound on events per user is set without the unit user")
    word = section.choice("unit", _RECORDS, "record")
    said = "public" if word == "record-replace" else "private"
    public = section.choice("total", ("private", "public"), said) == "public"
    if word == "record-replace" and not public:
        raise section.wrong(
            "total",
            "'private' contradicts unit = 'record-replace', which makes public which keys are there",
            "total = 'public', or unit = 'record'",
        )
    if insert_only(source):
        for key, wrong in (("returns", section.has("returns")), ("total", public)):
            if wrong:
                raise section.wrong(
                    key,
                    f"{key} = {shown(section.raw(key))} does not fit [source] insert_only, where each key counts once",
                    "leave it out, or insert_only = false",
                )
        reason = "[source] insert_only: a record is its one insert, and a key counts once"
        inserted = InsertedRecord()
        section.note("unit", inserted.name, default=True, reason=reason)
        _check(section, inserted, limits)
        return inserted
    returns = cast(Returns, section.choice("returns", ("new", "refuse"), "new"))
    unit = Record("replace" if public else "add-remove", returns)
    if public and word == "record":
        reason = 'total = "public" switches the relation to replace'
        section.note("unit", unit.name, default=True, reason=reason)
    _check(section, unit, limits)
    return unit


def _check(section: Section, unit: Unit, limits: Limits) -> None:
    if handled_as(unit) in limits.units:
        return
    if isinstance(unit, InsertedRecord):
        raise UnitError(
            "the mechanism of this file does not fit [source] insert_only, where a record is its one insert",
            where=section.place("unit"),
            allowed=f'[mechanism] name = "{DEFAULT_MECHANISM}", or insert_only = false',
        )
    if unit.name == "record-replace" and "record" in limits.units:
        raise section.wrong("total", limits.other_units.format(unit=unit.name), "private")
    raise UnitError(
        f"the mechanism of this file cannot protect the unit {unit.name!r}",
        where=section.place("unit"),
        allowed=f'[mechanism] name = "{DEFAULT_KEYED}"; or, where records never change and never leave, [source] '
        "insert_only = true",
    )


def check_key_column(section: Section, unit: Unit) -> None:
    """A key belongs to the unit ``record``, and that unit to a key.

    Errors:
        ConfigError: one without the other.
    """
    if isinstance(unit, Record) or insert_only(section):
        if not section.has("key_column"):
            raise section.wrong("key_column", "the key is missing, which unit = record needs")
    elif section.has("key_column"):
        raise section.wrong(
            "key_column",
            f"a key column is set with the unit {unit.name!r}, which does not follow records",
            '[stream] unit = "record", or no key_column',
        )
