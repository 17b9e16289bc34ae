"""The codebook that goes with the releases: a Frictionless data package descriptor.

Format: https://specs.frictionlessdata.io/tabular-data-package/. Each field carries, under ``dpstream``, the
declaration of its bins and the label of every code, which the standard has no place for.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from dpstream.core.schema import Schema
from dpstream.core.schema.column import Column
from dpstream.core.schema.discrete import Categorical
from dpstream.core.schema.numeric import Ordered

_TYPES = {"real": "number"}


def descriptor(schema: Schema, name: str = "dpstream", path: str = "table.parquet") -> dict[str, Any]:
    """The descriptor of a released table, as plain values for JSON. It holds public declarations only.

    ``name`` becomes the package's name (lower case, other signs become ``-``); ``path`` is where a released
    table lies relative to the descriptor.
    """
    slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-") or "dpstream"
    resource = {
        "name": "table",
        "path": path,
        "profile": "tabular-data-resource",
        "schema": {"fields": [_field(column) for column in schema.released_columns], "missingValues": [""]},
    }
    return {
        "profile": "tabular-data-package",
        "name": slug,
        "title": name,
        "description": "Synthetic records: no row is a person. Values inside a bin are drawn uniformly, so an "
        "average of binned numbers may lie anywhere between the averages of the bins' two ends.",
        "resources": [resource],
        "dpstream": {
            "format": 1,
            "schema": schema.fingerprint(),
            **({} if schema.constraints is None else {"constraints": schema.constraints.spec()}),
        },
    }


def _field(column: Column) -> dict[str, Any]:
    kind = _TYPES.get(column.type_name, column.type_name)
    constraints: dict[str, Any] = {}
    if isinstance(column, Categorical):
        kind = "integer" if column.is_numeric else "string"
        listed: list[Any] = list(column.values if column.is_numeric else column.bin_labels())
        constraints["enum"] = listed if column.other is None else [*listed, column.other]
    elif isinstance(column, Ordered):
        constraints["minimum"], constraints["maximum"] = column.limits()
    becomes_null = column.missing is not None or (
        column.other is not None and not isinstance(column, Categorical)
    )
    constraints["required"] = not becomes_null
    spec = {key: _plain(value) for key, value in column.spec().items()}
    codes = [{"code": code, "label": label} for code, label in enumerate(column.labels())]
    return {
        "name": column.name,
        "type": kind,
        "constraints": constraints,
        "dpstream": {**spec, "size": column.size, "codes": codes},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date):
        return value.isoformat()
    return [_plain(item) for item in value] if isinstance(value, list) else value
