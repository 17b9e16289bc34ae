"""Drafts the configuration of a successor stream from its predecessor's: what ``dpstream init --after`` writes."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.io.objects import is_object_url
from dpstream.project.base import (
    NULL,
    BaseOptions,
    Predecessor,
    read_predecessor,
    readable,
    require_all_published,
)
from dpstream.project.config import Config
from dpstream.project.json_schema import LINE
from dpstream.project.schema_file import load_toml, toml_key, toml_value

_HEAD = """\
# Drafted by `dpstream init --after`: the stream {name!r} begins with the last release of {old!r}. Before the first
# run change columns, values (old ones: [base]), budget, mechanism. [source] start is the fixed border: this stream
# takes later records only, the earlier one publishes no further step.
"""


def draft_successor(path: str | Path, target: Path) -> str:
    """The text of a configuration that begins where ``path`` ends.

    Everything is taken over but names, places and the border; comments are not.

    Args:
        target: where the text will be; paths are made relative to it.

    Errors:
        ConfigError: a mechanism that begins with no table, no releases yet, steps that are held or unpublished, or no
            border in time.
    """
    old = Config.load(path)
    if not old.family.limits_of(old.recipe).base:
        raise ConfigError(
            f"the mechanism {old.plan().name!r} cannot begin with another stream's table",
            where=f"{old.path} [mechanism]",
            allowed="a separate new stream; a record that both read costs the sum",
        )
    require_all_published(old)
    options = BaseOptions(place=str(old.path), releases=old.output.dir, rename={}, map={}, fill={})
    predecessor = read_predecessor(options)
    document = load_toml(old.path)
    name, base = f"{old.name}-next", target.parent
    folder = re.sub(r"[^\w.-]+", "-", name) + "-"
    document["stream"]["name"] = name
    document["source"] = _source(old, predecessor, base)
    if "file" in document["schema"]:
        document["schema"] = {"file": _moved(old, document["schema"]["file"], base)}
    document["output"] = {**document.get("output", {}), "dir": f"{folder}releases"}
    if "database" in document["output"] and old.output.sink == "duckdb":
        document["output"]["database"] = f"{folder}releases.duckdb"
    elif "table" in document["output"] or old.output.sink == "postgresql":
        document["output"]["table"] = f"{old.output.table}_next"
    document["state"] = {**document.get("state", {}), "dir": f"{folder}state"}
    for section, key in (("budget", "account"), ("state", "key_file"), ("output", "sign")):
        if key in document[section]:
            document[section][key] = _moved(old, document[section][key], base)
    document["base"] = {
        "releases": os.path.relpath(old.output.dir, base),
        "config": os.path.relpath(old.path, base),
        "step": predecessor.step,
    }
    nulls = {
        column.name: {NULL: column.missing}
        for column in predecessor.schema.columns
        if readable(column).missing == NULL
    }
    if nulls:
        document["base"]["map"] = nulls
    return f"{LINE}\n{_HEAD.format(name=name, old=old.name)}{_toml(document)}"


def _source(old: Config, predecessor: Predecessor, base: Path) -> dict[str, Any]:
    """The old source from the border on, for as long a time as the old one."""
    table = dict(load_toml(old.path)["source"])
    options, last = old.source_options, int(predecessor.last["step"])
    grid = options.grid
    if grid is None:
        raise ConfigError(
            "a successor needs a border in time",
            where=f"{old.path} [source]",
            allowed="a [base] section by hand; both streams then cost the sum",
        )
    period = grid.period(last)
    if period is not None:
        assert isinstance(options.start, datetime.date)
        table["start"] = period[1].isoformat()
        if isinstance(options.end, datetime.date):
            length = options.end - options.start
            table["end"] = (period[1] + length).isoformat()
    else:
        assert isinstance(options.start, int)
        table["start"] = options.start + last
        if isinstance(options.end, int):
            table["end"] = table["start"] + options.end - options.start
    if not options.stdin and "path" in table:
        one = isinstance(table["path"], str)
        moved = [_moved(old, text, base) for text in options.path]
        table["path"] = moved[0] if one else moved
    if "database" in table:
        table["database"] = _moved(old, table["database"], base)
    return table


def _moved(old: Config, text: str, base: Path) -> str:
    """A path of the old file, as the new file has to say it."""
    if is_object_url(text):
        return text
    return os.path.relpath(old.path.parent / text, base)


def _toml(table: Mapping[str, Any], name: str = "") -> str:
    """A parsed document as TOML again."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in plain.items()]
    text = "\n".join([f"\n[{name}]", *lines] if name and (lines or not table) else lines)
    parts = [text] if text else []
    for key, value in table.items():
        if isinstance(value, Mapping):
            parts.append(_toml(value, f"{name}.{toml_key(key)}" if name else toml_key(key)).rstrip("\n"))
    return "\n".join(parts) + "\n"
