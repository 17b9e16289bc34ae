"""``dpstream.open``: a durable stream from Python. Its arguments are read as the sections of a file are."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstream.core.contracts import Family, Limits
from dpstream.core.errors import ConfigError, SchemaError, UnitError, did_you_mean
from dpstream.core.privacy import Amount, Event, Individual, Randomness, Record, Unit, User, handled_as
from dpstream.core.schema import Schema
from dpstream.core.tables import Workload
from dpstream.families.registry import families
from dpstream.project.config import Settings, read_settings
from dpstream.project.keys import StreamKeys, keys_of
from dpstream.project.sections import default_mechanism, named_family, read_unit, sections_of
from dpstream.stream import Stream

_WHERE = "dpstream.open"
_SECTIONS = ("stream", "budget", "expect", "accuracy", "prior", "discovery", "output", "state")
#: As ``StreamRecipe`` has it. Recipes of single tables take something else.
_CALIBRATED_WITH = ["budget", "unit", "horizon"]


def open(
    place: str | Path,
    schema: Schema,
    *,
    epsilon: Amount | None = None,
    unit: Unit | None = None,
    mechanism: Any = None,
    deletions: bool = False,
    randomness: Randomness | None = None,
    **sections: Mapping[str, Any],
) -> Stream:
    """Open the stream that lives in a folder, or start it there; then ``stream.step(frame, name=...)``.

    Guarantee: all releases together cost one ``unit`` the budget, as long as nobody restores an old copy of the state.

    Args:
        place: a folder: ``place/state`` is secret, ``place/releases`` public. schema: the public columns.
        epsilon: what all releases together may cost. unit: who is protected; by default as the mechanism has it.
        mechanism: a name, options as in ``[mechanism]`` of a file, or a recipe, ``dpstream.tabular.Pooled(...)``.
        deletions: a public statement that records may leave. randomness: for tests; releases made with it say so.
        sections: ``stream``, ``budget``, ``expect``, ``accuracy``, ``prior``, ``discovery``, ``output``, ``state``,
            with the keys of a file: ``budget={"rho": "1/2", "horizon": 12}``. Paths are relative to ``place``.

    Errors:
        ConfigError, SchemaError, BudgetError, UnitError, HorizonError: an argument, named. StoreError: the state.
    """
    if not isinstance(place, str | Path) or not str(place):
        raise _wrong("place", f"expected a path, got {place!r}", "a path")
    if not isinstance(schema, Schema):
        raise SchemaError(
            f"expected a schema, got {type(schema).__name__}",
            where=f"{_WHERE} schema",
            allowed="dpstream.Schema([dpstream.Boolean(...), ...]), dpstream.project.read_schema(...)",
        )
    if not isinstance(deletions, bool):
        raise _wrong("deletions", f"{deletions!r} cannot be used", "True, False")
    if randomness is not None and not isinstance(randomness, Randomness):
        allowed = "None; dpstream.core.privacy.Randomness.seeded(7) in tests"
        raise _wrong("randomness", f"a {type(randomness).__name__} cannot be used", allowed)
    _check_names(sections)
    document = {name: _as_written(table) for name, table in sections.items()}
    _add(document, "stream", _unit_keys(unit))
    _add(document, "budget", {} if epsilon is None else {"epsilon": epsilon})
    if isinstance(document["stream"], Mapping):
        document["stream"] = {"name": "stream", **document["stream"]}
    recipe = None if mechanism is None or isinstance(mechanism, str | Mapping) else mechanism
    if recipe is None:
        document["mechanism"] = {"name": mechanism} if isinstance(mechanism, str) else _as_written(mechanism)
    parts = sections_of(_WHERE, Path(place), document)
    keys = parts["stream"].read(StreamKeys)
    if recipe is None:
        chosen, _ = default_mechanism(parts["stream"], parts["source"])
        family = named_family(parts["mechanism"], chosen)
    else:
        others = ["season"] if keys.season is not None else []
        others += [name for name in ("expect", "accuracy", "prior", "discovery") if name in document]
        family = _family_of(recipe, unit, [*others, *(["deletions"] if deletions else [])])
    if deletions and family.limits.deletes:
        raise _wrong("deletions", family.limits.deletes, "False")
    found = read_unit(parts["stream"], keys, parts["source"], family.limits)
    settings = read_settings(parts, schema, keys, family, found, deletions=deletions, recipe=recipe)
    if settings["accuracy"].simulate is not None:
        allowed = "none; dpstream errors simulates the releases of a file's stream"
        raise parts["accuracy"].wrong("simulate", "only runs of a file simulate", allowed)
    return Settings(**settings, used=()).open_stream(randomness=randomness)


def _wrong(argument: str, what: str, allowed: str) -> ConfigError:
    return ConfigError(what, where=f"{_WHERE} {argument}", allowed=allowed)


def _check_names(sections: Mapping[str, Any]) -> None:
    """Refuse an unknown argument; a key of a section is told where it stands."""
    known = [*list(inspect.signature(open).parameters)[:-1], *_SECTIONS]
    for name in sections:
        if name not in _SECTIONS:
            homes = [home for home in ("mechanism", *_SECTIONS) if name in keys_of(home)]
            hint = f"; it is a key of {homes[0]}: {homes[0]}={{{name!r}: ...}}" if homes else ""
            what = f"unknown argument {name!r}{hint or did_you_mean(name, known)}"
            raise ConfigError(what, where=_WHERE, allowed=", ".join(known))


def _add(document: dict[str, Any], section: str, keys: Mapping[str, Any]) -> None:
    """Put keys that are arguments of their own into their section."""
    table = document.setdefault(section, {})
    for key, value in keys.items():
        if not isinstance(table, Mapping) or key in table:
            raise _wrong(section, f"{key} is given twice", f"{key} as an argument, or in {section}")
        document[section] = table = {**table, key: _as_written(value)}


def _unit_keys(unit: Unit | None) -> dict[str, Any]:
    """A unit as ``[stream]`` says it."""
    if unit is None:
        return {}
    if not isinstance(unit, Event | User | Individual | Record):
        allowed = "dpstream.Event(), Event('replace'), User(max_events, per), Individual(), Record()"
        raise UnitError(f"unknown unit {unit!r}", where=f"{_WHERE} unit", allowed=allowed)
    names = ("max_events", "cut_share", "returns")
    keys = {name: getattr(unit, name) for name in names if hasattr(unit, name)}
    if isinstance(unit, User) and unit.per is not None:
        keys["per"] = unit.per.name
    return {"unit": unit.name, **keys}


def _family_of(recipe: Any, unit: Unit | None, beside: list[str]) -> Family:
    """The family of a recipe; of one that no family has, a family that takes every unit.

    Errors:
        ConfigError: no recipe of a stream, or arguments ``beside`` it that belong into it.
    """
    calibrate = None if isinstance(recipe, type) else getattr(recipe, "calibrate", None)
    if not callable(calibrate) or list(inspect.signature(calibrate).parameters)[:3] != _CALIBRATED_WITH:
        kind = f"the class {recipe.__name__}" if isinstance(recipe, type) else f"a {type(recipe).__name__}"
        allowed = "a mechanism's name, its options, or a recipe such as dpstream.tabular.Pooled(workload)"
        raise _wrong("mechanism", f"expected a recipe of a stream, got {kind}", allowed)
    if beside:
        what = f"{', '.join(beside)} beside a recipe"
        raise ConfigError(what, where=_WHERE, allowed="options inside the recipe")
    units = ("event",) if unit is None else (handled_as(unit),)
    known = (family for family in families() if type(recipe) in family.recipes.values())
    return next(known, Family("", "a stream", {}, Limits(units=units)))


def _as_written(value: Any) -> Any:
    """A value as a file would have it."""
    if isinstance(value, Mapping):
        return {key: _as_written(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_written(part) for part in value]
    if isinstance(value, Workload):
        return value.as_option()
    return str(value) if isinstance(value, Fraction | Decimal | Path) else value
