"""What an editor says of a configuration by its JSON Schema."""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema_rs

from dpstream.project.json_schema import json_schema


@functools.cache
def _validator() -> Any:
    return jsonschema_rs.validator_for(json_schema())


def faults(document: dict[str, Any]) -> list[str]:
    """What is wrong with a document that TOML gave, as ``place: words``; dates are texts, as editors have them."""
    texts = json.loads(json.dumps(document, default=lambda day: day.isoformat()))
    found = _validator().iter_errors(texts)
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in found]
