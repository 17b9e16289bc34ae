"""Each key of ``[source]`` is declared once: reader, kinds, table of keys and JSON Schema agree."""

from __future__ import annotations

from dataclasses import fields

import pytest

from dpstream.core.errors import ConfigError
from dpstream.io.sources.source_keys import KINDS, SourceKeys, keys_of_kind
from dpstream.io.sources.source_options import SourceOptions
from dpstream.project.json_schema import json_schema
from dpstream.project.keys import keys_of
from dpstream.spark.spark_source import SparkKeys

_OF_OTHER_SECTIONS = ("continues", "own", "same_unit")


def test_the_fields_are_the_table_and_the_json_schema() -> None:
    names = [one.name for one in fields(SourceKeys) if one.name not in _OF_OTHER_SECTIONS]
    names += [one.name for one in fields(SparkKeys)]  # a kind with keys of its own, as another package's has
    assert list(keys_of("source")) == names
    assert list(json_schema()["properties"]["source"]["properties"]) == names
    for row in keys_of("source").values():
        assert all((row.allowed, row.default, row.reason, row.meaning, row.fragment)), row.name


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_of_another_kind_is_refused(kind: str) -> None:
    own = keys_of_kind(kind)
    others = {key for other in KINDS for key in keys_of_kind(other)} - set(own)
    assert others
    for key in others:
        value = {"rows": 1, "path": "*"}.get(key, "x")
        with pytest.raises(ConfigError, match=f"{key}.* has no meaning with kind") as caught:
            SourceOptions.parse({"kind": kind, key: value})
        assert caught.value.allowed == ", ".join(own)
