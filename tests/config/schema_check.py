"""A validator of JSON Schema for the words that ``dpstream.project.json_schema`` uses; an unknown word is an error."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_SILENT = {"$schema", "title", "description", "then"}


def faults(schema: Mapping[str, Any], value: Any, place: str = "file") -> list[str]:
    """What is wrong with a document that TOML gave, as ``place: word``."""
    if isinstance(value, datetime.date | datetime.time):
        value = value.isoformat()  # as editors have it
    return list(_faults(schema, value, place))


def _faults(schema: Mapping[str, Any], value: Any, place: str) -> Iterator[str]:
    for word, said in schema.items():
        if word in _SILENT:
            continue
        match word:
            case "type":
                names = [said] if isinstance(said, str) else said
                fine = any(_is(value, name) for name in names)
            case "enum":
                fine = any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in said)
            case "const":
                fine = value == said
            case "minimum":
                fine = not _is(value, "number") or value >= said
            case "maximum":
                fine = not _is(value, "number") or value <= said
            case "minLength":
                fine = not isinstance(value, str) or len(value) >= said
            case "maxLength":
                fine = not isinstance(value, str) or len(value) <= said
            case "minItems":
                fine = not isinstance(value, list) or len(value) >= said
            case "pattern":
                fine = not isinstance(value, str) or re.search(said, value) is not None
            case "anyOf":
                fine = any(not faults(one, value, place) for one in said)
            case "allOf":
                fine = True
                for one in said:
                    yield from faults(one, value, place)
            case "if":
                fine = True
                if not faults(said, value, place):
                    yield from faults(schema["then"], value, place)
            case "required":
                fine = not isinstance(value, dict) or set(said) <= set(value)
            case "propertyNames":
                fine = True
                for key in value if isinstance(value, dict) else ():
                    yield from faults(said, key, f"{place}.{key}")
            case "properties":
                fine = True
                for key in value if isinstance(value, dict) else ():
                    yield from faults(said.get(key, {}), value[key], f"{place}.{key}")
            case "additionalProperties":
                fine = True
                for key in value if isinstance(value, dict) else ():
                    if key not in schema.get("properties", {}):
                        if said is False:
                            yield f"{place}.{key}: unknown"
                        else:
                            yield from faults(said, value[key], f"{place}.{key}")
            case "items":
                fine = True
                for index, one in enumerate(value if isinstance(value, list) else ()):
                    yield from faults(said, one, f"{place}[{index}]")
            case _:
                raise AssertionError(f"unknown word {word!r} in the schema")
        if not fine:
            yield f"{place}: {word}"


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and isinstance(value, bool) == (name == "boolean")
