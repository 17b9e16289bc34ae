"""A JSON Schema of ``dpstream.toml``, for editors; made from the table of keys.

    python -m dpstream.project.json_schema > docs/reference/dpstream.schema.json

It refuses less than ``dpstream check`` does: it knows types, words and which key belongs to which mechanism, not what
fits together. Dates are texts to it, as they are to the editors that read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dpstream.core.contracts import Key
from dpstream.core.contracts.recipe_options import TEXT, TEXTS, words
from dpstream.core.schema.schema import COLUMN_TYPES
from dpstream.families.registry import DEFAULT_MECHANISM, mechanisms
from dpstream.project.keys import SECTIONS, keys_of

#: The file that ``dpstream init`` writes beside its draft, and the draft's first line, by which editors find it. A name
#: beside the file holds on every machine and without a network; an address would have to be one that we own.
NAME = "dpstream.schema.json"
LINE = f"#:schema ./{NAME}"
_NEEDED = ("stream", "source", "schema", "budget")


def json_schema() -> dict[str, Any]:
    """What a file may hold, with every installed mechanism.

    Errors:
        ConfigError: a package that brings a mechanism is broken.
    """
    tables = {name: _table(SECTIONS[name], keys_of(name)) for name in SECTIONS if name not in ("", "schema")}
    tables["mechanism"]["allOf"] = [_own(mechanism) for mechanism in mechanisms()]
    top = _table("A stream of differentially private releases.", keys_of(""))
    top["properties"] |= {name: tables.get(name) or _columns() for name in SECTIONS if name}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "dpstream.toml",
        **top,
        "required": list(_NEEDED),
    }


def _table(about: str, keys: Mapping[str, Key]) -> dict[str, Any]:
    """The schema of a section. Keys that only one mechanism needs are required in that mechanism's own rule."""
    needed = [key.name for key in keys.values() if key.default is None and not key.mechanisms]
    return {
        "type": "object",
        "description": about,
        "properties": {key.name: {**key.fragment, "description": key.about} for key in keys.values()},
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }


def _own(mechanism: str) -> dict[str, Any]:
    """The rule for one mechanism's options; the default mechanism's rule holds for files without a name, too."""
    keys = [key for key in keys_of("mechanism").values() if mechanism in key.mechanisms]
    named = {"properties": {"name": {"const": mechanism}}}
    return {
        "if": named if mechanism == DEFAULT_MECHANISM else {**named, "required": ["name"]},
        "then": {
            "propertyNames": words("name", *(key.name for key in keys)),
            "required": [key.name for key in keys if key.default is None],
        },
    }


def _columns() -> dict[str, Any]:
    """``[schema]``: the columns, or the file that has them."""
    kinds = [
        {
            "if": {"properties": {"type": {"const": word}}},
            "then": {
                "propertyNames": words("type", *(one.name for one in fields(kind) if one.name != "name"))
            },
        }
        for word, kind in COLUMN_TYPES.items()
    ]
    column = {
        "type": "object",
        "properties": {"type": words(*COLUMN_TYPES)},
        "required": ["type"],
        "allOf": kinds,
    }
    return {
        "type": "object",
        "description": SECTIONS["schema"],
        "properties": {
            "file": TEXT,
            "format": words(1),
            "confirmed": {"type": "boolean"},
            "edges_from": words("public", "data"),
            "ignore": TEXTS,
            "null_values": {"type": "array", "items": {"type": "string"}},
            "columns": {"type": "object", "additionalProperties": column},
            "constraints": _constraints(),
            "levels": {
                "type": "object",
                "additionalProperties": _object({"columns": TEXTS, "file": TEXT}, "columns", "file"),
            },
        },
        "additionalProperties": False,
    }


def _constraints() -> dict[str, Any]:
    """``[schema.constraints]``."""
    names = {"type": "array", "items": TEXT}
    derived = {"from": {"anyOf": [TEXT, names]}, "file": TEXT, "read": {"type": "boolean"}}
    return {
        "type": "object",
        "properties": {
            "forbidden": names,
            "allowed": {
                "type": "array",
                "items": _object({"columns": names, "file": TEXT}, "columns", "file"),
            },
            "derived": {"type": "object", "additionalProperties": _object(derived, "from", "file")},
            "violations": {
                "anyOf": [words("error"), {"type": "object", "additionalProperties": TEXT}],
            },
        },
        "additionalProperties": False,
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def schema_text() -> str:
    """The schema as a file.

    Errors: as ``json_schema``.
    """
    return json.dumps(json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
