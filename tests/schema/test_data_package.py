"""The codebook is a tabular data package of Frictionless (specs.frictionlessdata.io), whatever the columns are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.stream.release.codebook import descriptor

SCHEMA = Schema(
    [
        Categorical("zip 'code\"", ["07001", "é"], missing="none", other="other"),
        Categorical("rooms", [1, 2, 3]),
        Integer("age", min=0, max=9, missing="none"),
        Real("rent", [0, 500, 1000]),
        Date("filed", start="2024-01-01", end="2024-01-31", every="day"),
        DateTime("at", edges=["2024-01-01T00:00:00", "2024-01-02T00:00:00"]),
        Boolean("paid"),
    ]
)
#: Of the table schema: type -> the constraints that it may have.
ANY = {"required", "unique", "enum"}
TYPES = {
    "string": ANY | {"minLength", "maxLength", "pattern"},
    "boolean": ANY,
    **dict.fromkeys(("integer", "number", "date", "datetime"), ANY | {"minimum", "maximum"}),
}


def check(package: dict[str, Any]) -> None:
    """The rules of the profiles ``tabular-data-package`` and ``tabular-data-resource``, and of a table schema."""
    assert package["profile"] == "tabular-data-package"
    assert re.fullmatch(r"[-a-z0-9._/]+", package["name"])
    assert isinstance(package["title"], str)
    (resource,) = package["resources"]
    assert resource["profile"] == "tabular-data-resource"
    assert re.fullmatch(r"[-a-z0-9._/]+", resource["name"])
    assert not resource["path"].startswith(("/", "~"))
    assert ".." not in resource["path"]
    assert all(isinstance(text, str) for text in resource["schema"]["missingValues"])
    names = [field["name"] for field in resource["schema"]["fields"]]
    assert len(names) == len(set(names)) > 0
    for field in resource["schema"]["fields"]:
        rules = field["constraints"]
        assert set(rules) <= TYPES[field["type"]], field["name"]
        assert isinstance(rules.get("required", False), bool)
        kinds = {"integer": int, "number": (int, float)}.get(field["type"], (str, bool))
        values = [rules[key] for key in ("minimum", "maximum") if key in rules] + rules.get("enum", [])
        assert all(isinstance(value, kinds) for value in values if value is not None), field["name"]


@pytest.mark.parametrize("name", ["evictions", 'A "Shop" of / ü', "---"])
def test_the_codebook_is_a_data_package(name: str) -> None:
    check(json.loads(json.dumps(descriptor(SCHEMA, name, "step-000001/table.parquet"), allow_nan=False)))


def test_the_check_finds_what_is_wrong() -> None:
    package = descriptor(SCHEMA)
    package["resources"][0]["schema"]["fields"][3]["type"] = "real"
    with pytest.raises(KeyError):
        check(package)
