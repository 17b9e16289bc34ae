"""``[schema]`` in TOML: read strictly, written so that reading it back gives an equal schema."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, SchemaError
from dpstream.core.paths import read_text
from dpstream.core.schema.column import Column
from dpstream.core.schema.constraint_reading import read_constraints
from dpstream.core.schema.constraints import Constraints
from dpstream.core.schema.dates import Date, DateTime
from dpstream.core.schema.discrete import Boolean, Categorical
from dpstream.core.schema.numeric import Integer, Real, number_text

COLUMN_TYPES: dict[str, type[Column]] = {
    kind.type_name: kind for kind in (Boolean, Categorical, Integer, Real, Date, DateTime)
}
_SCHEMA_KEYS = ("columns", "confirmed", "constraints", "file", "format", "ignore", "null_values")


#: Where a schema stands, and the arguments of ``Schema``.
Declared = tuple[str, dict[str, Any]]


def read_schema(source: str | Path | Mapping[str, Any], base: Path | None, where: str) -> Declared:
    """See ``Schema.from_toml``."""
    if isinstance(source, Mapping):
        return _read_document(source, where, base, followed=False)
    path = Path(source)
    return _read_document(load_toml(path), str(path), path.parent, followed=False)


def load_toml(path: Path, name: str | None = None) -> dict[str, Any]:
    """A TOML file; a ConfigError names it, as ``name`` where its folder is not for everybody."""
    import tomllib

    where = str(path) if name is None else name
    try:
        document = tomllib.loads(read_text(path))
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise ConfigError(f"the file cannot be read: {reason}", where=where) from None
    except RecursionError:
        raise ConfigError("this is nested too deep", where=where, allowed="a TOML file") from None
    except (ValueError, OverflowError) as error:
        # Beside its own errors the parser lets those of Python's numbers and dates through.
        raise ConfigError(f"this is not TOML: {error}", where=where, allowed="a TOML file") from None
    _check_numbers(document, path)
    return document


def _check_numbers(document: dict[str, Any], path: Path) -> None:
    """Refuse whole numbers beyond the 64 bits that TOML promises; Python's parser takes them, and nothing else does."""
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ConfigError(
                "a whole number is beyond 64 bits",
                where=str(path),
                allowed="from -9223372036854775808 to 9223372036854775807",
            )


def _read_document(document: Mapping[str, Any], where: str, base: Path | None, *, followed: bool) -> Declared:
    inside = "schema" in document
    table = document["schema"] if inside else document
    place = f"{where} [schema]" if inside else where
    if not isinstance(table, Mapping):
        raise SchemaError("schema is not a table", where=where, allowed="[schema.columns.NAME] tables")
    for key in table:
        if key not in _SCHEMA_KEYS:
            raise unknown_key(key, table[key], _SCHEMA_KEYS, place)
    if "file" in table:
        return _follow(table, place, base, followed)
    return _build(table, place, base)


def _follow(table: Mapping[str, Any], place: str, base: Path | None, followed: bool) -> Declared:
    name = table["file"]
    if followed:
        raise SchemaError(
            f"file = {name!r} leads on to another file", where=place, allowed="one level of file"
        )
    if not isinstance(name, str) or len(table) > 1:
        raise SchemaError("file is not a text that stands alone", where=place, allowed='file = "schema.toml"')
    path = (base or Path()) / name
    return _read_document(load_toml(path), str(path), path.parent, followed=True)


def _build(table: Mapping[str, Any], place: str, base: Path | None) -> Declared:
    if table.get("format", 1) != 1:
        raise SchemaError(f"unknown format {table['format']!r}", where=place, allowed="1")
    columns = table.get("columns")
    if not isinstance(columns, Mapping) or not columns:
        raise SchemaError("there are no columns", where=place, allowed="[schema.columns.NAME] tables")
    confirmed = table.get("confirmed", True)
    if not isinstance(confirmed, bool):
        raise SchemaError(f"confirmed = {confirmed!r} cannot be used", where=place, allowed="true, false")
    built = tuple(_column(name, spec, f"{place} column {name!r}") for name, spec in columns.items())
    others = {key: table[key] for key in ("ignore", "null_values") if key in table}
    if "constraints" in table:
        built, others["constraints"] = read_constraints(table["constraints"], built, place, base)
    return place, {"columns": built, "confirmed": confirmed, **others}


def _column(name: str, spec: Any, place: str) -> Column:
    if not isinstance(spec, Mapping):
        raise SchemaError(f"{spec!r} is not a table", where=place, allowed="a table with a type")
    kinds = ", ".join(COLUMN_TYPES)
    if "type" not in spec:
        raise SchemaError("there is no type", where=place, allowed=f"type = one of {kinds}")
    word = spec["type"]
    kind = COLUMN_TYPES.get(word) if isinstance(word, str) else None
    if kind is None:
        hint = _did_you_mean(str(word), COLUMN_TYPES)
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
        f"unknown key {key!r} ({shown}){_did_you_mean(key, names)}", where=where, allowed=", ".join(names)
    )


def _did_you_mean(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def write_schema(
    columns: Iterable[Column],
    confirmed: bool,
    ignore: Iterable[str],
    null_values: Iterable[str],
    constraints: Constraints | None = None,
) -> str:
    """See ``Schema.to_toml``."""
    lines = ["[schema]"]
    if not confirmed:
        lines.append("confirmed = false")
    if ignore:
        lines.append(f"ignore = {toml_value(list(ignore))}")
    if null_values != ("",):
        lines.append(f"null_values = {toml_value(list(null_values))}")
    for column in columns:
        lines += ["", f"[schema.columns.{toml_key(column.name)}]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in column.spec().items()]
    if constraints is not None:
        lines += _constraint_lines(constraints)
    return "\n".join(lines) + "\n"


def _constraint_lines(constraints: Constraints) -> list[str]:
    excluded = constraints.excluded
    table: dict[str, Any] = {
        "forbidden": [one.words for one in excluded if one.file is None],
        "allowed": [{"columns": one.columns, "file": one.file} for one in excluded if one.file is not None],
        "violations": dict(constraints.repair),
    }
    lines = ["", "[schema.constraints]"]
    lines += [f"{key} = {toml_value(value)}" for key, value in table.items() if value]
    for one in constraints.derived:
        if one.file is None:
            raise SchemaError(
                f"no file says how column {one.column.name!r} follows from others",
                where="schema",
                allowed="constraints that were read from files",
            )
        spec = {"from": one.sources, "file": one.file, **({} if one.read else {"read": False})}
        lines.append(f"derived.{toml_key(one.column.name)} = {toml_value(spec)}")
    return lines


def toml_key(name: str) -> str:
    """A name as a TOML key, quoted where it must be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Any) -> str:
    """A text, number, boolean, date, time, list or table of those as TOML.

    >>> toml_value(["a\\tb", 1, 2.5, True])
    '["a\\\\tb", 1, 2.5, true]'
    >>> toml_value({"insert": ["I"]})
    '{ insert = ["I"] }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(key)} = {toml_value(item)}' for key, item in value.items())} }}"
    raise SchemaError(f"a {type(value).__name__} has no place in a schema file", where="schema")
