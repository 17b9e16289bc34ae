"""``[base]``: the release that a successor stream begins with, and the declared rule for its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstream.core.contracts import shown
from dpstream.core.errors import ConfigError
from dpstream.project.reader import Section, exact_number

#: New label -> share; the shares add up to 1, exactly.
Shares = dict[str, Fraction]


@dataclass(frozen=True)
class BaseOptions:
    """What the section says, read but not yet compared with any columns.

    Attributes:
        place: file and section, for messages.
        releases: the predecessor's public folder.
        step: which of its releases; None for its last one.
        config: the predecessor's configuration, for evaluation only (private side).
        rename: new column -> old column.
        map: new column -> old label -> shares of its new labels.
        fill: new column -> shares of its labels.
        drop: old columns that are left out.
    """

    place: str
    releases: Path
    step: int | None
    config: Path | None
    rename: dict[str, str]
    map: dict[str, dict[str, Shares]]
    fill: dict[str, Shares]
    drop: tuple[str, ...]

    def rule(self) -> dict[str, Any]:
        """The declared rule, JSON-able and exact: one spelling per meaning."""
        return {
            "rename": self.rename,
            "map": {
                column: {old: _texts(shares) for old, shares in rules.items()}
                for column, rules in self.map.items()
            },
            "fill": {column: _texts(shares) for column, shares in self.fill.items()},
            "drop": sorted(self.drop),
        }


def read_base(section: Section, folder: Path) -> BaseOptions:
    """Read the section; paths are relative to ``folder``.

    Errors:
        ConfigError: a value that cannot be used, or shares that do not add up to 1.
    """
    releases = section.file_path("releases", folder, "folder")
    step = section.count("step")
    config = section.file_path("config", folder, "file") if section.has("config") else None
    rename = {new: _text(section, "rename", old) for new, old in _table(section, "rename").items()}
    maps = {
        column: {
            old: _shares(section, "map", value, f"{column!r}, {old!r}")
            for old, value in _inner(section, column, rules).items()
        }
        for column, rules in _table(section, "map").items()
    }
    fill = {
        column: _shares(section, "fill", value, repr(column))
        for column, value in _table(section, "fill").items()
    }
    drop = section.raw("drop") if section.has("drop") else []
    if not isinstance(drop, list) or not all(isinstance(name, str) for name in drop):
        raise section.wrong("drop", f"{shown(drop)} is not a list of columns")
    for key in ("rename", "map", "fill", "drop"):
        if section.has(key):
            section.note(key, ", ".join(section.raw(key)), default=False)
    return BaseOptions(
        section.place(),
        releases,
        step,
        config,
        rename,
        maps,
        fill,
        tuple(drop),
    )


def _table(section: Section, key: str) -> Mapping[str, Any]:
    value = section.raw(key) if section.has(key) else {}
    if not isinstance(value, Mapping):
        raise section.wrong(key, f"{shown(value)} is not a table")
    return value


def _inner(section: Section, column: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise section.wrong("map", f"the rule of column {column!r} ({shown(value)}) is not a table")
    return value


def _text(section: Section, key: str, value: Any) -> str:
    """A label or a column; TOML's truth values and whole numbers have labels too."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, str) and value):
        return str(value)
    raise section.wrong(key, f"{shown(value)} is not a label")


def _shares(section: Section, key: str, value: Any, what: str) -> Shares:
    """One label, a list of labels in even shares, or a table of labels with exact shares."""
    if isinstance(value, list):
        labels = [_text(section, key, item) for item in value]
        if not labels or len(set(labels)) != len(labels):
            raise section.wrong(key, f"{what}: {shown(value)} does not name each label once")
        return dict.fromkeys(labels, Fraction(1, len(labels)))
    if not isinstance(value, Mapping):
        return {_text(section, key, value): Fraction(1)}
    shares: Shares = {}
    for label, given in value.items():
        share = exact_number(given)
        if share is None or not 0 < share <= 1:
            raise section.wrong(key, f"{what}: {shown(given)} is not a share")
        shares[label] = share
    total = sum(shares.values(), Fraction(0))
    if total != 1:
        raise ConfigError(
            f"the shares of {what} add up to {total}",
            where=section.place(key),
            allowed='exact shares that add up to 1, such as {A = "0.6", B = "0.4"}',
        )
    return shares


def _texts(shares: Shares) -> dict[str, str]:
    return {label: str(share) for label, share in shares.items()}
