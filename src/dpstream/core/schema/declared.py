"""Columns as declarations have them, in files and in codebooks: a table of their type and its options.

Trusted base: kernel (makes the columns that encode private values).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from dpstream.core.errors import SchemaError, did_you_mean
from dpstream.core.schema.column import Column
from dpstream.core.schema.dates import Date, DateTime
from dpstream.core.schema.discrete import Boolean, Categorical
from dpstream.core.schema.numeric import Integer, Real

COLUMN_TYPES: dict[str, type[Column]] = {
    kind.type_name: kind for kind in (Boolean, Categorical, Integer, Real, Date, DateTime)
}


def column_from(name: str, spec: Any, place: str) -> Column:
    """A column of a declaration.

    Errors:
        SchemaError: names the column, key and value, and what is allowed.
    """
    if not isinstance(spec, Mapping):
        raise SchemaError(f"{spec!r} is not a table", where=place, allowed="a table with a type")
    kinds = ", ".join(COLUMN_TYPES)
    if "type" not in spec:
        raise SchemaError("there is no type", where=place, allowed=f"type = one of {kinds}")
    word = spec["type"]
    kind = COLUMN_TYPES.get(word) if isinstance(word, str) else None
    if kind is None:
        hint = did_you_mean(str(word), COLUMN_TYPES)
        raise SchemaError(f"unknown type = {word!r}{hint}", where=place, allowed=kinds)
    keys = [item.name for item in fields(kind) if item.name != "name"]
    for key in spec:
        if key != "type" and key not in keys:
            raise unknown_key(key, spec[key], ("type", *keys), place)
    try:
        return kind(name, **{key: value for key, value in spec.items() if key != "type"})
    except SchemaError as error:
        raise SchemaError(error.what, where=place, allowed=error.allowed) from None


def unknown_key(key: str, value: Any, allowed: Iterable[str], where: str) -> SchemaError:
    """The error for a key that nobody reads, with the nearest key that somebody reads."""
    names = sorted(allowed)
    shown = "a table" if isinstance(value, Mapping) else repr(value)
    return SchemaError(
        f"unknown key {key!r} ({shown}){did_you_mean(key, names)}", where=where, allowed=", ".join(names)
    )
