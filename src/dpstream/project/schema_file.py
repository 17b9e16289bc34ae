"""``[schema]`` in TOML: read strictly, written so that reading it back gives an equal schema."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, SchemaError
from dpstream.core.paths import read_text
from dpstream.core.schema import Constraints, Schema
from dpstream.core.schema.numeric import number_text
from dpstream.core.schema.schema import column_from, unknown_key
from dpstream.project.constraint_file import read_constraints, read_levels

_SCHEMA_KEYS = (
    "columns",
    "confirmed",
    "constraints",
    "edges_from",
    "file",
    "format",
    "ignore",
    "levels",
    "null_values",
)


def read_schema(
    source: str | Path | Mapping[str, Any], *, base: Path | None = None, where: str = "schema"
) -> Schema:
    """Read ``[schema]`` of a configuration file, of a schema file, or of a parsed table.

    ``file = "schema.toml"`` is followed, relative to the file that says so.

    Args:
        base: the folder of a parsed table. where: the file that it was read from.

    Errors:
        ConfigError: a file that cannot be read. SchemaError: names file, key, value and what is allowed.
    """
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
        raise ConfigError("the file is nested too deep", where=where, allowed="a TOML file") from None
    except (ValueError, OverflowError) as error:
        # Beside its own errors the parser lets those of Python's numbers and dates through.
        raise ConfigError(f"invalid TOML: {error}", where=where, allowed="a TOML file") from None
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


def _read_document(document: Mapping[str, Any], where: str, base: Path | None, *, followed: bool) -> Schema:
    inside = "schema" in document
    table = document["schema"] if inside else document
    place = f"{where} [schema]" if inside else where
    if not isinstance(table, Mapping):
        raise SchemaError("schema has to be a table", where=where, allowed="[schema.columns.NAME] tables")
    for key in table:
        if key not in _SCHEMA_KEYS:
            raise unknown_key(key, table[key], _SCHEMA_KEYS, place)
    if "file" not in table:
        return _build(table, place, base)
    name = table["file"]
    if followed:
        raise SchemaError(
            f"file = {name!r} leads on to another file", where=place, allowed="one level of file"
        )
    if not isinstance(name, str) or len(table) > 1:
        raise SchemaError("file has to be a text, alone", where=place, allowed='file = "schema.toml"')
    path = (base or Path()) / name
    return _read_document(load_toml(path), str(path), path.parent, followed=True)


def _build(table: Mapping[str, Any], place: str, base: Path | None) -> Schema:
    if table.get("format", 1) != 1:
        raise SchemaError(f"unknown format {table['format']!r}", where=place, allowed="1")
    columns = table.get("columns")
    if not isinstance(columns, Mapping) or not columns:
        raise SchemaError("columns are missing", where=place, allowed="[schema.columns.NAME] tables")
    confirmed = table.get("confirmed", True)
    if not isinstance(confirmed, bool):
        raise SchemaError(f"confirmed = {confirmed!r} cannot be used", where=place, allowed="true, false")
    edges_from = table.get("edges_from", "public")
    if edges_from not in ("public", "data"):
        raise SchemaError(f"edges_from = {edges_from!r} cannot be used", where=place, allowed="public, data")
    built = tuple(column_from(name, spec, f"{place} column {name!r}") for name, spec in columns.items())
    others = {key: table[key] for key in ("ignore", "null_values") if key in table}
    if "constraints" in table:
        built, others["constraints"] = read_constraints(table["constraints"], built, place, base)
    try:
        schema = Schema(built, confirmed=confirmed, edges_from_data=edges_from == "data", **others)
    except SchemaError as error:
        raise SchemaError(error.what, where=place, allowed=error.allowed) from None
    return read_levels(table.get("levels", {}), schema, place, base)


def write_schema(schema: Schema) -> str:
    """The ``[schema]`` part of a configuration file; reading it back gives an equal schema."""
    lines = ["[schema]"]
    if not schema.confirmed:
        lines.append("confirmed = false")
    if schema.edges_from_data:
        lines.append('edges_from = "data"')
    if schema.ignore:
        lines.append(f"ignore = {toml_value(list(schema.ignore))}")
    if schema.null_values != ("",):
        lines.append(f"null_values = {toml_value(list(schema.null_values))}")
    own = schema.constraints
    made = () if own is None else own.coarser_levels
    for column in schema.released_columns:
        if column.name in made:
            continue
        lines += ["", f"[schema.columns.{toml_key(column.name)}]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in column.spec().items()]
    if own is not None:
        lines += _constraint_lines(own)
    return "\n".join(lines) + "\n"


def _constraint_lines(constraints: Constraints) -> list[str]:
    excluded = constraints.excluded
    table: dict[str, Any] = {
        "forbidden": [one.words for one in excluded if one.file is None],
        "allowed": [{"columns": one.columns, "file": one.file} for one in excluded if one.file is not None],
        "violations": dict(constraints.repair),
    }
    lines = [f"{key} = {toml_value(value)}" for key, value in table.items() if value]
    files = {one.column.name: one.file for one in constraints.derived}
    for one in constraints.derived:
        if one.file is None:
            raise SchemaError(
                f"no file says how column {one.column.name!r} follows from others",
                where="schema",
                allowed="constraints from files",
            )
        if one.column.name in constraints.coarser_levels:
            continue
        spec = {"from": one.sources, "file": one.file, **({} if one.read else {"read": False})}
        lines.append(f"derived.{toml_key(one.column.name)} = {toml_value(spec)}")
    lines = ["", "[schema.constraints]", *lines] if lines else []
    levels = [
        f"{toml_key(one.name)} = {toml_value({'columns': one.columns, 'file': files[one.columns[0]]})}"
        for one in constraints.levels
    ]
    return [*lines, "", "[schema.levels]", *levels] if levels else lines


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
